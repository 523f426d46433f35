"""Spans of a trace as values: what formats make of what they carry, whatever it is carried in.

A format reads what it carries into `Span`s: those of tools, of models, and others, which tell what their children
inherit. `span_joining` finds out what belongs together, `span_records` makes the turn and its calls of it.
"""

from dataclasses import dataclass

from quality.ingest.messages import Call, Thread
from quality.ingest.payloads import Args, Result


@dataclass(frozen=True, slots=True)
class Tool:
    """What the span of a tool tells. `is_error` is the format's flag, None if it has none."""

    name: str
    call_id: str | None
    args: Args
    result: Result | None
    is_error: bool | None
    error: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """What the span of a model tells: the calls it asked for, and the answers to earlier ones (by call id) that it was
    given. `tells_unexecuted`: a call it asked for and no tool span ran is a record of its own."""

    message: str
    model: str | None = None
    provider: str | None = None
    calls: tuple[Call, ...] = ()
    answers: tuple[tuple[str, Result], ...] = ()
    thread: Thread | None = None
    tools: str | None = None
    tells_unexecuted: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are Unix nanoseconds; `session` stands for the conversation where the trace names none; `size` is
    that of its text, for bounds."""

    source: str
    trace: str
    id: str
    parent: str | None = None
    started: int | None = None
    ended: int | None = None
    conversation: str | None = None
    session: str | None = None
    contact: str | None = None
    prompt_version: str | None = None
    tool: Tool | None = None
    model: Model | None = None
    size: int = 0


def fuller(one: Span, other: Span) -> Span:
    """Of two that were sent as the same span, that which ended later, or else says more."""
    return other if _fullness(other) > _fullness(one) else one


def _fullness(span: Span) -> tuple[int, int, str]:
    return span.ended or 0, span.size, repr(span)
