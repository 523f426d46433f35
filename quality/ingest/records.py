"""What every importer makes: turns with their calls, as plain values.

`CallRecord` is the neutral record of one tool call, `TurnRecord` the turn it belongs to. A turn without any call is a
record too: reviewers label the call that is missing in it. Fields named `args`, `result`, `messages`, `system` and
`tools` are JSON text, spelled as it was received.

Both merge: a later import may bring a call's result, or more of a turn. `merge_turns` and `merge_calls` give the same
value for any order and repetition of their inputs, so importing is idempotent and needs no order. Nothing that is
known is ever lost to a record that does not tell it. A value of which one of the two has a part masked is one value:
rules of masking may have come, or gone, between two records of it.
"""

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from quality.ingest.wording import ONE_OF_TWO, call_name, quoted, turn_name
from tenants.masking.marks import more_masked
from tenants.masking.masker import is_marked

CONFLICT = "conflict"
_as_json = msgspec.json.Encoder().encode
MAX_PLACE = 32_767  # of cycle and index
MAX_TOOLS = 1_000
MAX_NAME_CHARS = 500  # of names and ids that are not ours; four bytes each still fit an index row
UNNAMED = "~"


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
        super().__init__(CONFLICT, path, message)


class CallRecord(msgspec.Struct, frozen=True, gc=False):
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

    def digest(self) -> bytes:
        """SHA-256 of the content."""
        return _content_digest((toolset_sha256(self.tools) if self.tools else None, *_call_content(self)))


_PLACE = ("cycle", "index")  # 0 where the source does not tell
_OUTCOME = ("result", "is_error", "error")
_CALL_VALUES = (
    "tool_name",
    "tool_call_id",
    "args",
    "conversation",
    "message",
    *_PLACE,
    *_OUTCOME,
    "contact",
    "started_at",
    "duration_ms",
    "model",
    "provider",
    "prompt_version",
)
_WARNINGS_OF_UNKNOWN = {
    "args": "args_missing",
    "result": "no_result",
    "tool_call_id": "no_call_id",
    "duration_ms": "unfinished",
}
_call_content = attrgetter(*_CALL_VALUES, "warnings")


class TurnRecord(msgspec.Struct, frozen=True, gc=False):
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
        return _content_digest((toolset_sha256(self.tools) if self.tools else None, *self.content[1:]))


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


def _content_digest(parts: tuple[Any, ...]) -> bytes:
    """JSON of the parts is the quickest text that tells all of them apart."""
    return hashlib.sha256(_as_json(parts)).digest()


def _digest(parts: tuple[Any, ...]) -> bytes:
    """None, "" and "None" differ, and `ascii` spells a text alike on every Python (`repr` does not)."""
    return hashlib.sha256(ascii(parts).encode()).digest()


def merge_calls(one: CallRecord, other: CallRecord) -> CallRecord:
    """What both tell, `one` itself if the other adds nothing: a known value stands where the other has none; raises
    Conflict if both are known and differ. Of two toolsets it is that with the greater hash, as in turns."""
    if one == other:
        return one
    values: dict[str, Any] = {}
    for name in _CALL_VALUES:
        known, told = getattr(one, name), getattr(other, name)
        if known == told or _is_unknown(name, told):
            continue
        if not _is_unknown(name, known):
            told = more_masked(known, told) if isinstance(known, str) else None
            if told is None:
                raise Conflict(name, f"{call_name(one)} was stored before with another {name}. {ONE_OF_TWO}")
        values[name] = told
    return _with(one, values, {*one.warnings, *other.warnings}, _toolset(one.tools, other.tools))


def correct_call(stored: CallRecord, sent: CallRecord) -> CallRecord:
    """The stored call with all that was sent in its place: a sent outcome replaces the whole outcome, a value that was
    not sent stays. Raises Conflict for the place, on which labels hang."""
    for name in _PLACE:
        if getattr(sent, name) and getattr(stored, name) != getattr(sent, name):
            told = f"{call_name(stored)} has another {name}. A place cannot be corrected: send the record without it."
            raise Conflict(name, told)
    replaced = [
        name
        for name in _CALL_VALUES
        if (sent.has_outcome if name in _OUTCOME else not _is_unknown(name, getattr(sent, name)))
    ]
    outdated = {
        warning
        for warning in stored.warnings
        if (sent.args is not None and warning.startswith("args_"))
        or (sent.has_outcome and warning == "error_text_suspected")
    }
    return _with(
        stored,
        {name: getattr(sent, name) for name in replaced},
        {*stored.warnings, *sent.warnings} - (outdated - set(sent.warnings)),
        sent.tools or stored.tools,
    )


def _with(call: CallRecord, values: dict[str, Any], warnings: set[str], tools: str | None) -> CallRecord:
    """The call with these values and without warnings of what is known by now; itself if nothing changes."""
    for name, warning in _WARNINGS_OF_UNKNOWN.items():
        if values.get(name, getattr(call, name)) is not None:
            warnings.discard(warning)
    changed = msgspec.structs.replace(call, **values, warnings=tuple(sorted(warnings)), tools=tools)
    return call if changed == call else changed


def _is_unknown(name: str, value: Any) -> bool:
    return value is None or (value == 0 and name in _PLACE)


def merge_turns(one: TurnRecord, other: TurnRecord) -> TurnRecord:
    """The sum of what both tell, without calls: the longer messages, the earlier start, of two names the greater.
    `one` itself if the other adds nothing."""
    ours, theirs = one.content, other.content
    if ours == theirs:
        return one
    if one.messages != other.messages and one.messages and other.messages:
        first, second = (json.loads(text)[:1] for text in (one.messages, other.messages))
        if first != second and more_masked(_as_json(first).decode(), _as_json(second).decode()) is None:
            both = f"another first message: {quoted(one.messages) or 'none'}, now {quoted(other.messages) or 'none'}"
            raise Conflict("messages", f"{turn_name(one)} was stored before with {both}. {ONE_OF_TWO}")
    sums: dict[str, Any] = {}
    for (name, sum_of), known, told in zip(_TURN_SUMS, ours, theirs, strict=True):
        if known != told and (both := sum_of(known, told)) != known:
            sums[name] = both
    return msgspec.structs.replace(one, calls=(), **sums) if sums else one


def correct_turn(turn: TurnRecord, stored: CallRecord, corrected: CallRecord) -> TurnRecord:
    """The turn, once one of its calls was corrected: what it had from that call follows."""
    names = ("conversation", "contact", "model", "provider", "prompt_version")
    followed = {
        name: getattr(corrected, name)
        for name in names
        if getattr(corrected, name) is not None and getattr(turn, name) == getattr(stored, name)
    }
    return msgspec.structs.replace(turn, **followed)


def anonymous_turn_id(source: str, call_id: str) -> str:
    """Identity of the turn of a call that was sent without one: it holds this call alone, until its turn is told."""
    return fingerprint("turn", source, call_id)


@lru_cache(maxsize=128)
def toolset_sha256(tools: str) -> str:
    """Address of the tools offered: the same for any spelling of the same JSON."""
    canonical = json.dumps(json.loads(tools), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _toolset(one: str | None, other: str | None) -> str | None:
    if one == other:
        return one
    return max((text for text in (one, other) if text), key=toolset_sha256, default=None)


def _greater(one: Any, other: Any) -> Any:
    return other if one is None or (other is not None and other > one) else one


def _earlier(one: Any, other: Any) -> Any:
    return other if one is None or (other is not None and other < one) else one


def _longer(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return other if one is None else one
    if is_marked(one) or is_marked(other):  # marks have lengths of their own
        return more_masked(one, other) or max(one, other, key=lambda text: (len(json.loads(text)), len(text), text))
    return max(one, other, key=lambda text: (len(text), text))


def _all_warnings(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other}))


_TURN_SUMS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("tools", _toolset),
    *((name, _greater) for name in _TURN_NAMES),
    *((name, _longer) for name in _TURN_TEXTS),
    ("started_at", _earlier),
    ("warnings", _all_warnings),
)  # in the order of `TurnRecord.content`


def to_neutral(call: CallRecord) -> dict[str, Any]:
    """The neutral record as JSON values. `tenant` is the upload's, never the file's."""
    return {
        "tenant": None,
        "conversation": None if (call.conversation or "").startswith(UNNAMED) else call.conversation,
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


def unnamed_conversation(identity: object) -> str:
    """What we call a conversation of several turns whose source gives it no name: `~` and sixteen hex digits. No id
    that a source gives begins so, and the neutral record of it says null."""
    return f"{UNNAMED}{fingerprint('conversation', identity)[:16]}"


def fingerprint(*parts: object) -> str:
    """An external id made of what identifies a thing: SHA-256 in hex."""
    return _digest(parts).hex()
