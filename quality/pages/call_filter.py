"""The filter of calls as pages show it: a form over the address, and each condition in words."""

from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from quality import calls
from quality.filters import CallFilterForm
from quality.languages import number
from quality.models import Label
from quality.pages.conditions import Words, conditions
from quality.pages.conditions import chips as conditions_in_words
from quality.review.hints import RULES

FILTER_WORDS = {
    "tool": gettext_lazy("tool"),
    "label": gettext_lazy("label"),
    "hint": gettext_lazy("hint"),
    "tag": gettext_lazy("tag"),
    "error": gettext_lazy("outcome"),
    "source": gettext_lazy("source"),
    "style": gettext_lazy("style"),
    "model": gettext_lazy("model"),
    "toolset": gettext_lazy("toolset"),
    "conversation": gettext_lazy("conversation"),
    "message": gettext_lazy("message"),
    "outbound_message": gettext_lazy("outbound message"),
    "contact": gettext_lazy("contact"),
    "archived": gettext_lazy("archive"),
    "from": gettext_lazy("from"),
    "to": gettext_lazy("until"),
    "arrived_to": gettext_lazy("came in until"),
}
PRIMARY = ("tool", "label", "hint", "tag", "error", "source")
REPEATED = ("tool", "label", "hint", "tag")
_SHOWN: Words = {
    "error": {
        "yes": gettext_lazy("failed"),
        "no": gettext_lazy("worked"),
        "none": gettext_lazy("not recorded"),
    },
    "label": {**dict(Label.choices), calls.UNLABELLED: gettext_lazy("none yet")},
    "hint": {**{rule.name: rule.word for rule in RULES}, calls.ANY_HINT: gettext_lazy("any")},
    "archived": {calls.ONLY_ARCHIVED: gettext_lazy("nothing else"), calls.WITH_ARCHIVED: gettext_lazy("too")},
}


def filter_query(data: QueryDict) -> QueryDict:
    """What of a query string is the filter of calls."""
    return conditions(data, FILTER_WORDS)


def chips(query: QueryDict) -> list[dict[str, str]]:
    """The filter of calls in words."""
    return conditions_in_words(query, FILTER_WORDS, _SHOWN)


def filter_context(form: CallFilterForm, query: QueryDict) -> dict[str, Any]:
    """What the filter component shows; four queries."""
    return {
        "form": form,
        "query": query.urlencode(),
        "chips": chips(query),
        "more_open": any(name not in PRIMARY for name in query),
        "values": {name: query.get(name, "") for name in FILTER_WORDS},
        "others": [(name, value) for name in REPEATED for value in query.getlist(name)[1:]],
        "tools": calls.tool_names(),
        "tags": calls.tag_names(),
        "sources": calls.sources(),
        "labels": [*Label.choices, (calls.UNLABELLED, _("Unlabelled"))],
        "hints": _hint_choices(query.get("hint", "")),
    }


def _hint_choices(chosen: str) -> list[tuple[str, str, str]]:
    """Value, word, and how many calls there are of each rule that says anything, and of the one chosen."""
    counts = calls.hint_counts()
    return [
        (rule.name, str(rule.word), number(counts[rule.name]) if counts[rule.name] <= calls.HINT_CAP else _("many"))
        for rule in RULES
        if counts[rule.name] or rule.name == chosen
    ]
