"""What changed between two texts, line by line."""

import difflib
from dataclasses import dataclass
from itertools import takewhile

MAX_LINES = 2_000
CONTEXT = 3


@dataclass(frozen=True, slots=True)
class Line:
    """`kind` is same, added or removed."""

    kind: str
    text: str


def diff(old: str, new: str) -> list[Line]:
    """The changed lines with three unchanged ones around them; empty where nothing changed. Of a change that spans more
    than MAX_LINES its beginning."""
    # The first three lines name the texts and the place of the first change.
    kinds = {" ": "same", "+": "added", "-": "removed"}
    left, right = _changed(old.splitlines(), new.splitlines())
    lines = list(difflib.unified_diff(left[:MAX_LINES], right[:MAX_LINES], lineterm="", n=CONTEXT))
    return [Line(kinds.get(line[:1], "same"), line[1:] if line[:1] in kinds else "…") for line in lines[3:]]


def _changed(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Both from shortly before their first difference to shortly after their last: what is long and the same on both
    sides must not use up the lines that are compared."""
    head = _num_same(old, new)
    tail = _num_same(old[head:][::-1], new[head:][::-1])
    head, tail = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    return old[head : len(old) - tail], new[head : len(new) - tail]


def _num_same(left: list[str], right: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
