"""Texts with marks beside texts without: is it the same, but for what is masked in one of them?"""

import re

from tenants.masking.masker import MARK, is_marked

_PLACE = re.compile(f'"?{MARK.pattern}"?')  # a value that was no string is a mark in quotes


def more_masked(one: str, other: str) -> str | None:
    """Of two texts that differ only in what a mark stands for in one of them, that one; None if they differ otherwise.
    Equal texts are the same."""
    if one == other:
        return one
    return next((text for text, plain in ((one, other), (other, one)) if is_marked(text) and _fits(text, plain)), None)


def _fits(masked: str, plain: str) -> bool:
    """Could `plain` be `masked` with something in the places of its marks? In linear time: what stands between two
    marks is looked for from where the one before it was found."""
    at = done = 0
    before: re.Match[str] | None = None
    for mark in _PLACE.finditer(masked):
        piece = masked[done : mark.start()]
        found = plain.find(piece, at)
        if found < 0 or not _may_stand_for(before, plain[at:found]):
            return False
        at, done, before = found + len(piece), mark.end(), mark
    last = masked[done:]
    found = len(plain) - len(last)
    return found >= at and plain.endswith(last) and _may_stand_for(before, plain[at:found])


def _may_stand_for(mark: re.Match[str] | None, text: str) -> bool:
    """Nothing stands before the first mark; and a mark of the same rule stands for another value."""
    if mark is None:
        return not text
    other = _PLACE.fullmatch(text)
    return other is None or other[1] != mark[1] or other[2] == mark[2]
