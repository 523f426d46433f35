"""Whose eyes evidence is read for. Columns of evidence ask here: with `reading_as(...)` open, what comes out of them is
masked, and what goes in has its marks put back, so that a record edited by somebody who sees marks loses nothing.

Without it (workers, commands) evidence is read as it is kept.

The rule for whoever writes a use case: what only shows evidence, or stores what a person typed, does nothing. What
computes with evidence (hashes, checks against a schema, comparisons, drafts, what a tool runs with) does three things,
for which `quality.stored` has the words:

1. It reads what its caller was shown, as the caller reads it: from then on their marks are known.
2. It puts back what stands behind the marks of what was sent, and refuses marks that are not known.
3. It computes `as_stored()`, and gives back rows that were read anew afterwards: what it computed with is not shown.
   What it refuses is told in words that do not quote what the caller may not see.

A mark is known in the request alone in which it was shown: nothing of this is kept.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from tenants.masking.masker import MARK, Hidden, Json, Masker, Memory, UnknownMark, restored, restored_prose

__all__ = ["Reading", "UnknownMark", "as_stored", "current", "put_back", "put_back_prose", "read_on_as", "reading_as"]


@dataclass(slots=True)
class Reading:
    """A masker and what it hid so far; `sent` are the marks that its reader sent, and that were put back."""

    masker: Masker
    memory: Memory = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)

    def document(self, text: str) -> str:
        return self.masker.document(text, self.memory)

    def structure(self, text: str) -> str:
        return self.masker.structure(text, self.memory)

    def prose(self, text: str, *, cut: bool = False) -> str:
        return self.masker.prose(text, self.memory, cut=cut)

    def sentence(self, text: str, *, cut: bool = False) -> str:
        return self.masker.sentence(text, self.memory, cut=cut)

    def hides(self, text: str) -> bool:
        """Is there a mark in a text as it was read, with something behind it?"""
        return any(self.memory.get(mark.group(), "") != mark.group() for mark in MARK.finditer(text))

    def put_back(self, text: str) -> str:
        self._note(text)
        return restored(text, self.memory)

    def put_back_prose(self, text: str) -> str:
        self._note(text)
        return restored_prose(text, self.memory)

    def refusal(self, text: str, instead: str) -> str:
        """A reason why something was refused, as its reader may read it: `instead` where it quotes what stands behind a
        mark that they sent, else with what patterns find masked."""
        behind = (self.memory[mark] for mark in self.sent)
        return instead if any(_quotes(text, value) for value in behind) else self.prose(text)

    def _note(self, text: str) -> None:
        self.sent.update(mark.group() for mark in MARK.finditer(text) if self.memory.get(mark.group()) is not None)


def _quotes(text: str, hidden: Hidden | None) -> bool:
    """Is a value in a text, however it was written there, or cut?"""
    value = hidden.spelling if isinstance(hidden, Json) else hidden or ""
    spellings = {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    if isinstance(hidden, Json):
        with suppress(ValueError):
            spellings.add(repr(json.loads(value)))
    return any(spelling[:12] in text for spelling in spellings if spelling)


_current: ContextVar[Reading | None] = ContextVar("reading", default=None)


def current() -> Reading | None:
    """Who reads, if they are spared anything."""
    return _current.get()


@contextmanager
def reading_as(masker: Masker | None) -> Iterator[Reading | None]:
    """Evidence is read through `masker` from here on; None, or one without rules: as it is kept."""
    reading = Reading(masker) if masker else None
    token = _current.set(reading)
    try:
        yield reading
    finally:
        _current.reset(token)


def read_on_as(masker: Masker | None) -> None:
    """The same until whatever is open around it ends: for a reader who becomes known inside."""
    _current.set(Reading(masker) if masker else None)


@contextmanager
def as_stored() -> Iterator[None]:
    """Evidence is read as it is kept: for what computes with it. Nothing that was read so may be shown."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def put_back(text: str) -> str:
    """JSON text that a reader sent, with what stands behind its marks; raises UnknownMark for a mark that they were not
    shown in this reading."""
    reading = _current.get()
    return text if reading is None else reading.put_back(text)


def put_back_prose(text: str) -> str:
    """The same of a note; marks that are not known stay."""
    reading = _current.get()
    return text if reading is None else reading.put_back_prose(text)
