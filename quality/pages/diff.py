"""What changed between two texts, line by line."""

import difflib
from dataclasses import dataclass

MAX_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Line:
    """`kind` is same, added or removed."""

    kind: str
    text: str


def diff(old: str, new: str) -> list[Line]:
    """The changed lines with three unchanged ones around them; empty where nothing changed."""
    # The first three lines name the texts and the place of the first change.
    kinds = {" ": "same", "+": "added", "-": "removed"}
    lines = list(difflib.unified_diff(old.splitlines()[:MAX_LINES], new.splitlines()[:MAX_LINES], lineterm="", n=3))
    return [Line(kinds.get(line[:1], "same"), line[1:] if line[:1] in kinds else "…") for line in lines[3:]]
