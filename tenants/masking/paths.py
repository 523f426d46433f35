"""JSON paths that can be followed while a text is read: names, indices and wildcards of RFC 9535, at any depth.

Filters and slices are refused: they need the whole value, and a rule has to hold for text that was cut.
"""

from dataclasses import dataclass

import jsonpath_rfc9535 as jsonpath
from django.utils.translation import gettext as _
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment
from jsonpath_rfc9535.selectors import IndexSelector, NameSelector, WildcardSelector

MAX_STEPS = 32

type Key = str | int


class PathFault(ValueError):
    """A path that cannot be a rule; the text says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One segment: what the next key may be, `deep`: or any key after it."""

    keys: frozenset[Key]
    any_key: bool
    deep: bool

    def takes(self, key: Key) -> bool:
        return self.any_key or key in self.keys


@dataclass(frozen=True, slots=True)
class Path:
    """A path as steps. A place within a value is the set of how many steps are behind it, `START` at its root."""

    steps: tuple[Step, ...]

    def after(self, places: frozenset[int], key: Key) -> frozenset[int]:
        """The places within the member `key` of a value at `places`."""
        found = set()
        for place in places:
            if place == len(self.steps):
                continue
            step = self.steps[place]
            if step.takes(key):
                found.add(place + 1)
            if step.deep:
                found.add(place)
        return frozenset(found)

    def ends(self, places: frozenset[int]) -> bool:
        """Is the value at these places one that the path names?"""
        return len(self.steps) in places


START = frozenset({0})


def parse_path(text: str) -> Path:
    """The path spelled so; raises PathFault."""
    try:
        query = jsonpath.compile(text)
    except (jsonpath.JSONPathError, ValueError, IndexError, RecursionError) as error:
        raise PathFault(_("This is no JSON path: %(reason)s") % {"reason": str(error).splitlines()[0]}) from error
    steps = tuple(_step(segment) for segment in query.segments)
    if not steps:
        raise PathFault(_("The path $ alone would mask everything. Name a member: $.customer.email"))
    if len(steps) > MAX_STEPS:
        raise PathFault(_("A path has at most %(limit)d steps.") % {"limit": MAX_STEPS})
    return Path(steps)


def _step(segment: jsonpath.segments.JSONPathSegment) -> Step:
    keys: set[Key] = set()
    any_key = False
    for selector in segment.selectors:
        match selector:
            case NameSelector():
                keys.add(selector.name)
            case IndexSelector() if selector.index >= 0:
                keys.add(selector.index)
            case WildcardSelector():
                any_key = True
            case _other:
                told = _("%(selector)s cannot be used here: only names, numbers from 0, * and ..")
                raise PathFault(told % {"selector": selector})
    return Step(frozenset(keys), any_key, isinstance(segment, JSONPathRecursiveDescentSegment))
