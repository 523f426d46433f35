"""Whose eyes evidence is read for. Columns of evidence ask here: with `reading_as(...)` open, what comes out of them is
masked, and what goes in has its marks put back, so that a record edited by somebody who sees marks loses nothing.

Without it (workers, commands) evidence is read as it is kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tenants.masking.masker import Masker, Memory, UnknownMark, restored, restored_prose

__all__ = ["Reading", "UnknownMark", "as_stored", "current", "put_back", "put_back_prose", "read_on_as", "reading_as"]


@dataclass(slots=True)
class Reading:
    """A masker and what it hid so far."""

    masker: Masker
    memory: Memory = field(default_factory=dict)

    def document(self, text: str) -> str:
        return self.masker.document(text, self.memory)

    def structure(self, text: str) -> str:
        return self.masker.structure(text, self.memory)

    def prose(self, text: str) -> str:
        return self.masker.prose(text, self.memory)

    def sentence(self, text: str) -> str:
        return self.masker.sentence(text, self.memory)


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
    return text if reading is None else restored(text, reading.memory)


def put_back_prose(text: str) -> str:
    """The same of a note; marks that are not known stay."""
    reading = _current.get()
    return text if reading is None else restored_prose(text, reading.memory)
