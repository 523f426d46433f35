"""The keys of Review: one table of what can be done, and each person's own keys over it.

A key is one character as the keyboard gives it (`U` is Shift and u), or a function key. An action that `asks` for a
second key is the first of two: `c 4`. Keys of the frame around the page are FIXED and nobody's to give away.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from quality.models import Label

Words = str | Promise


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a key does. `asks`: a second key says what to, such as the digit of a label."""

    name: str
    key: str
    words: Words
    group: str
    asks: bool = False


GROUPS: dict[str, Words] = {
    "label": _("Label"),
    "move": _("Move"),
    "look": _("Look"),
    "queue": _("In a queue"),
}


def _action(name: str, key: str, words: Words, group: str, *, asks: bool = False) -> Action:
    return Action(name=name, key=key, words=words, group=group, asks=asks)


ACTIONS: dict[str, Action] = {
    action.name: action
    for action in [
        *(_action(label.value, str(place), label.label, "label") for place, label in enumerate(Label, start=1)),
        _action("similar", "=", _("find similar calls"), "look"),
        _action("suggestion", "0", _("take the suggestion"), "label"),
        _action("agree", "y", _("agree with another’s label"), "label"),
        *(
            _action(
                f"answer_{number}",
                str(5 + number),
                format_lazy(_("take answer {n} of those side by side"), n=number),
                "label",
            )
            for number in range(1, 5)
        ),
        _action("correct", "c", _("a label, and what would have been right"), "label", asks=True),
        _action("edit", "e", _("correct your last label"), "label"),
        _action("here", "l", _("stay after this label, or go on"), "label"),
        _action("advance", "A", _("always go on after a label, or always stay"), "label"),
        _action("undo", "u", _("undo, step by step"), "label"),
        _action("redo", "U", _("redo what was undone"), "label"),
        _action("note", "n", _("write a note"), "label"),
        _action("keep_mine", "m", _("in a conflict: keep yours"), "label"),
        _action("keep_theirs", "t", _("in a conflict: keep theirs"), "label"),
        _action("next", "j", _("next"), "move"),
        _action("previous", "k", _("previous"), "move"),
        _action("skip", "s", _("skip to the next without a label"), "move"),
        _action("unskip", "S", _("back to what you skipped"), "move"),
        _action("next_call", "]", _("next call of the turn"), "move"),
        _action("previous_call", "[", _("previous call of the turn"), "move"),
        _action("again", "a", _("start again"), "move"),
        _action("unfiltered", "w", _("review without the filter"), "move"),
        _action("open", "v", _("open in Review, or the item’s own page"), "move"),
        _action("list", "b", _("these calls as a list"), "move"),
        _action("guidelines", "G", _("guidelines beside the item, and away"), "look"),
        _action("raw", "r", _("raw JSON of the arguments"), "look"),
        _action("find", "/", _("search in arguments and result"), "look"),
        _action("find_next", ".", _("next place found (F3, too)"), "look"),
        _action("find_previous", ",", _("place found before"), "look"),
        _action("expand", "x", _("unfold all, or fold"), "look"),
        _action("send_back", "B", _("send back: not for you"), "queue"),
        _action("hand_over", "H", _("hand over to another reviewer"), "queue"),
    ]
}
LABEL_ACTIONS = tuple(label.value for label in Label)

# What the frame, the browser and every page hold on to.
FIXED: dict[str, Words] = {
    "g": _("goes to a page"),
    "?": _("shows the keys"),
    "o": _("opens a turn in the console"),
}
_ONE_CHARACTER = re.compile(r"[^\s\x00-\x1f\x7f]|F(?:2|4|6|7|8|9|10)")


class KeyMap:
    """One person's keys: the table's, and what he set instead (`chosen`, by action). What cannot be used is passed over
    as long as it cannot: a table that grew must lock nobody out."""

    def __init__(self, chosen: Mapping[str, Any] | None = None) -> None:
        self.keys = {name: action.key for name, action in ACTIONS.items()}
        own = {name: str(key) for name, key in (chosen or {}).items() if name in ACTIONS}
        wanted = self.keys | own
        if own and not faults(wanted):
            self.keys = wanted

    def __getitem__(self, name: str) -> str:
        return self.keys[name]

    @property
    def own(self) -> dict[str, str]:
        """What differs from the table."""
        return {name: key for name, key in self.keys.items() if key != ACTIONS[name].key}

    def sheet(self) -> list[tuple[Words, list[tuple[str, Action]]]]:
        """By group: each action with its key."""
        return [
            (words, [(self.keys[action.name], action) for action in ACTIONS.values() if action.group == group])
            for group, words in GROUPS.items()
        ]


def faults(keys: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with a whole set of keys, by action: a key that is none, a fixed one, or one given twice."""
    found = {}
    for name, key in keys.items():
        if not _ONE_CHARACTER.fullmatch(key):
            found[name] = gettext("Give one character, or a function key such as F2.")
        elif key in FIXED:
            found[name] = gettext("%(key)s %(what)s everywhere.") % {"key": key, "what": FIXED[key]}
        elif others := [str(ACTIONS[other].words) for other, its in keys.items() if its == key and other != name]:
            found[name] = gettext("%(key)s is taken: %(what)s.") % {"key": key, "what": ", ".join(others)}
    return found


def changed(keys: Mapping[str, str]) -> dict[str, str]:
    """What to keep of a set of keys that a person sent, by action; raises ValidationError with the faults by action."""
    wanted = {name: action.key for name, action in ACTIONS.items()} | {
        name: key for name, key in keys.items() if name in ACTIONS
    }
    if told := faults(wanted):
        raise ValidationError({name: [message] for name, message in told.items()})
    return {name: key for name, key in wanted.items() if key != ACTIONS[name].key}


def key_map(user: Any) -> KeyMap:
    """The keys of a user, signed in or not."""
    settings = getattr(user, "review_settings", None)
    return KeyMap(
        settings.get("keys") if isinstance(settings, dict) and isinstance(settings.get("keys"), dict) else None
    )


def goes_on(user: Any) -> bool:
    """Does the next item come after a label? On unless the user said otherwise."""
    return _settings(user).get("advance") is not False


def _settings(user: Any) -> dict[str, Any]:
    found = getattr(user, "review_settings", None)
    return found if isinstance(found, dict) else {}
