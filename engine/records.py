"""What a turn leaves behind: for each model reply one record, for each of its calls another.

A turn can be taken up again from these: `run_turn(..., resume=Resume(cycles, decisions))`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from engine.messages import Reply
from engine.providers.protocol import Exchange, Usage
from engine.tools import Mode, Safety, ToolOutcome


class CallState(StrEnum):
    STREAMING = "streaming"  # the model is writing it
    PENDING = "pending"  # waits for a person or for the caller
    RUNNING = "running"
    RESULT = "result"
    ERROR = "error"  # it failed, was refused, or was not run: the outcome says which
    UNKNOWN = "unknown"  # it ran, its outcome was lost, and it must not run twice


OPEN = frozenset({CallState.PENDING, CallState.UNKNOWN})
ENDED = frozenset({CallState.RESULT, CallState.ERROR})


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call, found again by (`cycle`, `index`): the reply's ordinal in the turn, the call's in the reply.

    `raw_arguments` is the text as received; `arguments` what it was read as (None: it could not be), or what a person
    made of it. `idempotency_key` stays the same however often the call is run. Times are UTC.
    """

    cycle: int
    index: int
    call_id: str
    name: str
    raw_arguments: str
    arguments: dict[str, Any] | None
    state: CallState
    mode: Mode = Mode.AUTO
    safety: Safety = Safety.UNSAFE
    idempotency_key: str = ""
    outcome: ToolOutcome | None = None
    started_at: datetime | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyRecord:
    """One model reply with what it was an answer to. `offered` is the toolset of that very request, in OpenAI form."""

    cycle: int
    reply: Reply
    offered: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    num_bytes: int = 0
    model: str = ""
    warnings: tuple[str, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    started_at: datetime | None = None
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class FailedReply:
    """A reply that did not come, with whatever was received of it. `code` is a `ModelError`'s, or `cancelled`."""

    cycle: int
    code: str
    message: str
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class Cycle:
    """A recorded reply and its calls as far as they were recorded, by their index."""

    reply: ReplyRecord
    calls: Mapping[int, CallRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Approve:
    """Run the call, with these arguments if they were edited. For an unknown call: run it again."""

    arguments: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Decline:
    """Do not run it; the model reads the reason."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome, as the caller or a person gives it."""

    result: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """Nobody will answer: the user wrote on."""


type Decision = Approve | Decline | Answered | NotAnswered

HAPPENED = Answered("The call was made. Its result was lost; a person confirmed that it took effect.")
DID_NOT_HAPPEN = Answered("Error: the call took no effect; a person confirmed this.", is_error=True)


@dataclass(frozen=True, slots=True)
class Resume:
    """A turn as recorded so far, and what was decided on its open calls, by call id."""

    cycles: Sequence[Cycle]
    decisions: Mapping[str, Decision] = field(default_factory=dict)
