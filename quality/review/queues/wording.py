"""Why an item is served, in one line and in the reader's language."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from quality.models import QueueEntry, ReviewQueue
from quality.review.hints import BY_NAME

SHOWN = 3  # parts of a score that a line tells, those that count most
FEW = 20  # labels of a tool; with fewer its rate says little


def why_of(queue: ReviewQueue, entry: QueueEntry) -> str:
    """Why an entry is served where it is; empty where its queue goes by another order."""
    if queue.ordering != ReviewQueue.Order.USEFUL:
        return ""
    hides = entry.is_blind and entry.state == QueueEntry.State.OPEN  # that others disagree is what they said, too
    return why_line({name: part for name, part in entry.why.items() if not (hides and name == "disagreement")})


def why_line(why: Mapping[str, Any]) -> str:
    """The parts of a score that count most, such as "2 hints (against the schema, same call again) · tool seldom
    labelled"; empty if nothing speaks for the item but its place."""
    known = [(name, part) for name, part in why.items() if name in _WORDS and isinstance(part, dict)]
    ranked = sorted(known, key=lambda one: -float(one[1].get("score", 0)))
    words = [word for name, part in ranked if (word := _WORDS[name](part))]
    return capfirst(" · ".join(words[:SHOWN]))


def _hints(part: Mapping[str, Any]) -> str:
    rules = [str(rule) for rule in part.get("rules", [])]
    if not rules:
        return ""
    names = ", ".join(str(BY_NAME[rule].word) if rule in BY_NAME else rule for rule in rules)
    told = ngettext("%(number)d hint (%(names)s)", "%(number)d hints (%(names)s)", len(rules))
    return told % {"number": len(rules), "names": names}


def _disagreement(part: Mapping[str, Any]) -> str:
    return _("reviewers disagree")


def _tool_rate(part: Mapping[str, Any]) -> str:
    bad, of = int(part.get("bad", 0)), int(part.get("of", 0))
    if not bad:
        return ""
    return _("%(bad)d of %(of)d labelled calls of this tool were bad") % {"bad": bad, "of": of}


def _unsure(part: Mapping[str, Any]) -> str:
    of = int(part.get("of", 0))
    return _("how often this tool fails is not clear yet") if 0 < of < FEW else ""


def _rare_tool(part: Mapping[str, Any]) -> str:
    of = int(part.get("of", 0))
    if of == 0:
        return _("tool never labelled yet")
    return _("tool seldom labelled") if of < FEW else ""


def _rare_fault(part: Mapping[str, Any]) -> str:
    return _("a kind of hint that was seldom judged")


_WORDS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "hints": _hints,
    "disagreement": _disagreement,
    "tool_rate": _tool_rate,
    "unsure": _unsure,
    "rare_tool": _rare_tool,
    "rare_fault": _rare_fault,
}
