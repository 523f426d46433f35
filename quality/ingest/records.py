"""What every importer makes: turns with their calls, as plain values.

`CallRecord` is the neutral record of one tool call, `TurnRecord` the turn it belongs to. A turn without any call is a
record too: reviewers label the call that is missing in it. Fields named `args`, `result`, `messages`, `system` and
`tools` are JSON text, spelled as it was received.

Both merge: a later import may bring a call's result, or more of a turn. `merge_turns` and `merge_calls` give the same
value for any order and repetition of their inputs, so importing is idempotent and needs no order.
"""

import hashlib
import json
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

MAX_PLACE = 32_767  # of cycle and index
MAX_TOOLS = 1_000
MAX_NAME_CHARS = 500  # of names and ids that are not ours; four bytes each still fit an index row


class RecordError(ValueError):
    """An item that is JSON but no record; `path` names the field."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.path = path
        self.message = message


class Conflict(RecordError):
    """The same identity with another content."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__("conflict", path, message)


class CallRecord(msgspec.Struct, frozen=True):
    """One tool call. `started_at` is UTC text with milliseconds; None anywhere means that nothing was recorded."""

    external_id: str
    tool_name: str
    cycle: int = 0
    index: int = 0
    tool_call_id: str | None = None
    args: str | None = None
    result: str | None = None
    is_error: bool | None = None
    error: str | None = None
    conversation: str | None = None
    contact: str | None = None
    message: str | None = None
    started_at: str | None = None
    duration_ms: int | None = None
    model: str | None = None
    provider: str | None = None
    source: str = ""
    prompt_version: str | None = None
    tools: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def has_outcome(self) -> bool:
        return self.result is not None or self.is_error is not None

    @property
    def asked(self) -> tuple[Any, ...]:
        """What the model asked for, and where: an outcome may be added to it, it never changes."""
        return (self.tool_name, self.tool_call_id, self.args, self.conversation, self.message, self.cycle, self.index)

    def digest(self) -> bytes:
        """SHA-256 of the content. The tools offered are the turn's to tell."""
        return _digest(_call_content(self))


_CALL_CONTENT = (
    "tool_name",
    "tool_call_id",
    "args",
    "conversation",
    "message",
    "cycle",
    "index",
    "result",
    "is_error",
    "error",
    "contact",
    "started_at",
    "duration_ms",
    "model",
    "provider",
    "prompt_version",
    "warnings",
)
_call_content = attrgetter(*_CALL_CONTENT)


class TurnRecord(msgspec.Struct, frozen=True):
    """One inbound message and all the agent did to answer it. `message` is the inbound one, `outbound_message` the
    reply; `position` is the turn's ordinal in its conversation."""

    external_id: str
    source: str
    calls: tuple[CallRecord, ...] = ()
    conversation: str | None = None
    contact: str | None = None
    message: str | None = None
    outbound_message: str | None = None
    started_at: str | None = None
    duration_ms: int | None = None
    model: str | None = None
    provider: str | None = None
    prompt_version: str | None = None
    style_id: str | None = None
    messages: str | None = None
    system: str | None = None
    position: int = 0
    num_cycles: int = 0
    tools: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[Any, ...]:
        """The turn itself, without its calls."""
        return _turn_content(self)

    def digest(self) -> bytes:
        """SHA-256 of the turn's own content; its calls have their own."""
        return _digest((toolset_sha256(self.tools) if self.tools else None, *self.content[1:]))


_TURN_NAMES = (
    "conversation",
    "contact",
    "message",
    "outbound_message",
    "duration_ms",
    "model",
    "provider",
    "prompt_version",
    "style_id",
    "position",
    "num_cycles",
)
_TURN_TEXTS = ("messages", "system")
_turn_content = attrgetter("tools", *_TURN_NAMES, *_TURN_TEXTS, "started_at", "warnings")


def _digest(parts: tuple[Any, ...]) -> bytes:
    """None, "" and "None" differ, and `ascii` spells a text alike on every Python (`repr` does not)."""
    return hashlib.sha256(ascii(parts).encode()).digest()


def merge_calls(one: CallRecord, other: CallRecord) -> CallRecord:
    """The record with the outcome, if the other one has none; raises Conflict if they tell different stories."""
    if one.digest() == other.digest():
        return one
    if one.asked == other.asked and one.has_outcome != other.has_outcome:
        return one if one.has_outcome else other
    field = next(name for name in _CALL_CONTENT if getattr(one, name) != getattr(other, name))
    raise Conflict(field, f"The call {one.external_id} was stored before with another {field}.")


def merge_turns(one: TurnRecord, other: TurnRecord) -> TurnRecord:
    """The sum of what both tell, without calls: the longer messages, the earlier start, of two names the greater."""
    if one.content == other.content:
        return one
    if one.messages != other.messages and one.messages and other.messages:
        first, second = (json.loads(text)[:1] for text in (one.messages, other.messages))
        if first != second:
            raise Conflict("messages", f"The turn {one.external_id} was stored before with another first message.")
    known = [started for started in (one.started_at, other.started_at) if started is not None]
    sums: dict[str, Any] = {name: _greater(getattr(one, name), getattr(other, name)) for name in _TURN_NAMES}
    sums |= {name: _longer(getattr(one, name), getattr(other, name)) for name in _TURN_TEXTS}
    sums["tools"] = max((text for text in (one.tools, other.tools) if text), key=toolset_sha256, default=None)
    sums["started_at"] = min(known, default=None)
    sums["warnings"] = tuple(sorted({*one.warnings, *other.warnings}))
    return msgspec.structs.replace(one, calls=(), **sums)


@lru_cache(maxsize=128)
def toolset_sha256(tools: str) -> str:
    """Address of the tools offered: the same for any spelling of the same JSON."""
    canonical = json.dumps(json.loads(tools), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _greater(one: Any, other: Any) -> Any:
    return max((value for value in (one, other) if value is not None), default=None)


def _longer(one: str | None, other: str | None) -> str | None:
    return max((text for text in (one, other) if text is not None), key=lambda text: (len(text), text), default=None)


def to_neutral(call: CallRecord) -> dict[str, Any]:
    """The neutral record as JSON values. `tenant` is the upload's, never the file's."""
    return {
        "tenant": None,
        "conversation": call.conversation,
        "contact": call.contact,
        "message": call.message,
        "cycle": call.cycle,
        "index": call.index,
        "tool_call_id": call.tool_call_id,
        "tool_name": call.tool_name,
        "args": None if call.args is None else json.loads(call.args),
        "result": None if call.result is None else json.loads(call.result),
        "is_error": call.is_error,
        "error": call.error,
        "started_at": call.started_at,
        "duration_ms": call.duration_ms,
        "model": call.model,
        "provider": call.provider,
        "source": call.source,
        "prompt_version": call.prompt_version,
        "warnings": list(call.warnings),
    }


def fingerprint(*parts: object) -> str:
    """An external id made of what identifies a thing: SHA-256 in hex."""
    return _digest(parts).hex()
