"""The neutral record: one tool call an item, in the words of this product.

    {"external_id": "run-7:call-1", "conversation": "c-55", "message": "m-9", "tool_name": "get_order",
     "args": {"n": "7"}, "result": {"status": "sent"}, "started_at": "2026-05-12T08:30:00.000Z"}

Fields: `conversation, contact, message, cycle, index, tool_call_id, tool_name, args, result, is_error, error,
started_at, duration_ms, model, provider, source, prompt_version, warnings`; `tenant` is ignored, the credential says
whose it is. Only `tool_name` is required; null and absent mean the same. `args` and `result` are any JSON and are kept
as spelled.

More that may be sent:
- `external_id` makes sending again harmless: 1 to 200 characters of `A-Z a-z 0-9 . _ : / -`, a letter or digit first.
  Without it, it is the hash of source, conversation, message, cycle and index (of the whole record, if there is no
  conversation or message).
- `turn` groups the calls of one turn (an identifier, too). Without it, calls of one conversation and message are one.
  A record that tells neither goes to its call's turn, if an earlier or later one tells it.
- of the turn: `messages` (its own messages in OpenAI chat form), `system` (text), `tools` (those offered, in OpenAI
  form), `style_id`, `outbound_message` (id of the reply that was sent).

A call may come in parts under one `external_id`, in any order: what is known is kept, and two different values are a
`conflict`. `cycle` and `index` are 0 where no part tells them.

Other fields are not stored; the call gets the warning `unknown_field`.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from quality.ingest import evidence
from quality.ingest.items import Checked, Parsed, each
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError
from quality.ingest.records import (
    MAX_NAME_CHARS,
    MAX_PLACE,
    CallRecord,
    RecordError,
    TurnRecord,
    anonymous_turn_id,
    fingerprint,
)

NAME = "neutral"
LABEL = "Neutral record"

_IDENTIFIER = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}\Z")
_RESERVED_SOURCES = frozenset({"engine"})  # what our own loop records must not be written from outside
_MAX_DURATION_MS = 2_147_483_647


def recognise(root: Node) -> bool:
    return isinstance(root.value, dict) and "tool_name" in root.value


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return each(items, _turns)


type _Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None
type _Identifier = Annotated[str, Meta(pattern=_IDENTIFIER.pattern)] | None
type _Place = Annotated[int, Meta(ge=0, le=MAX_PLACE)] | None


class _Told(msgspec.Struct, gc=False, frozen=True, forbid_unknown_fields=True):
    """The fields of a record by their types; what is judged by its content is `Raw`. None: not told."""

    tool_name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    external_id: _Identifier = None
    source: _Identifier = None
    turn: _Identifier = None
    conversation: _Name = None
    contact: _Name = None
    message: _Name = None
    outbound_message: _Name = None
    tool_call_id: _Name = None
    model: _Name = None
    provider: _Name = None
    prompt_version: _Name = None
    style_id: _Name = None
    cycle: _Place = None
    index: _Place = None
    started_at: str | None = None
    duration_ms: int | float | None = None
    args: Raw = Raw()
    result: Raw = Raw()
    tenant: Raw = Raw()
    is_error: Raw = Raw()
    error: Raw = Raw()
    warnings: Raw = Raw()
    tools: Raw = Raw()
    messages: Raw = Raw()
    system: Raw = Raw()


_decode = msgspec.json.Decoder(_Told).decode
_KNOWN = frozenset(_Told.__struct_fields__)
_JUDGED = tuple(field.name for field in msgspec.structs.fields(_Told) if field.type is Raw)
_NAMES = (
    "conversation",
    "message",
    "tool_name",
    "contact",
    "tool_call_id",
    "model",
    "provider",
    "prompt_version",
    "outbound_message",
    "style_id",
)  # in the order in which their faults are told


def _turns(root: Node) -> list[TurnRecord]:
    record = root.value
    if not isinstance(record, dict):
        raise RecordError("not_an_object", "", "Expected a JSON object: one tool call.")
    return [_turn(root, _told_at_once(root) or _told_by_field(root))]


def _turn(root: Node, told: _Told) -> TurnRecord:
    """The turn of a record, with its call; raises RecordError."""
    record = root.value
    source, conversation, message = told.source or NAME, told.conversation or None, told.message or None
    if source in _RESERVED_SOURCES:
        raise RecordError("invalid_identifier", "source", f"The source {source!r} is reserved. Choose another name.")
    cycle, index = told.cycle or 0, told.index or 0
    external_id = told.external_id
    if external_id is None:
        identity = (conversation, message) if conversation and message else (root.text,)
        external_id = fingerprint(source, *identity, cycle, index)
    tools = evidence.toolset(root.get("tools"), "tools") if told.tools else None
    model, provider, prompt_version = told.model or None, told.provider or None, told.prompt_version or None
    contact, started_at = told.contact or None, told.started_at
    if started_at is not None:
        started_at = evidence.utc_from_text(started_at, "started_at")
    is_error, error, warnings = _outcome(record)
    call = CallRecord(
        external_id=external_id,
        tool_name=told.tool_name,
        cycle=cycle,
        index=index,
        tool_call_id=told.tool_call_id or None,
        args=None if record.get("args") is None else str(told.args, "utf-8"),
        result=None if record.get("result") is None else str(told.result, "utf-8"),
        is_error=is_error,
        error=error,
        conversation=conversation,
        contact=contact,
        message=message,
        started_at=started_at,
        duration_ms=None if told.duration_ms is None else _duration(told.duration_ms),
        model=model,
        provider=provider,
        source=source,
        prompt_version=prompt_version,
        tools=tools,
        warnings=warnings,
    )
    turn = told.turn
    if turn is None:
        if conversation and message:
            turn = _told_turn_id(source, conversation, message)
        else:
            turn = anonymous_turn_id(source, external_id)
    return TurnRecord(
        external_id=turn,
        source=source,
        calls=(call,),
        conversation=conversation,
        contact=contact,
        outbound_message=told.outbound_message or None,
        started_at=started_at,
        model=model,
        provider=provider,
        prompt_version=prompt_version,
        style_id=told.style_id or None,
        messages=_array(root, "messages") if told.messages else None,
        system=_system(root) if told.system else None,
        num_cycles=cycle + 1,
        tools=tools,
    )


@lru_cache(maxsize=128)
def _told_turn_id(source: str, conversation: str, message: str) -> str:
    """Identity of the turn of all calls of a conversation's message: mostly it is that of the record before, too."""
    return fingerprint("turn", source, conversation, message)


def _told_at_once(root: Node) -> _Told | None:
    """The fields of a record as nearly all are. None: one of them may be at fault, or is no plain text."""
    if b"\\u0000" in root.raw:
        return None
    try:
        return _decode(root.raw)
    except msgspec.DecodeError:
        return None


def _told_by_field(root: Node) -> _Told:
    """The same, field by field; raises RecordError."""
    record = root.value
    source = _identifier(record, "source")
    names: dict[str, Any] = {field: _name(record, field) for field in _NAMES}
    judged: dict[str, Any] = {field: Raw(node.raw) for field in _JUDGED if (node := root.get(field))}
    if (tool_name := names.pop("tool_name")) is None:
        raise RecordError("missing_field", "tool_name", "A call needs the name of its tool.")
    return _Told(
        tool_name=tool_name,
        external_id=_identifier(record, "external_id"),
        source=source,
        turn=_identifier(record, "turn"),
        cycle=_place(record, "cycle"),
        index=_place(record, "index"),
        started_at=evidence.utc_from_text(record.get("started_at"), "started_at"),
        duration_ms=_duration(record.get("duration_ms")),
        **names,
        **judged,
    )


def _outcome(record: dict[str, Any]) -> tuple[bool | None, str | None, tuple[str, ...]]:
    """is_error, error and warnings. Warnings that were sent stand; without any they are derived."""
    warnings = list[str]()
    args, result = record.get("args"), record.get("result")
    if args is None:
        warnings.append("args_missing")
    elif not isinstance(args, dict):
        warnings.append("args_not_object")
    is_error, error = record.get("is_error"), record.get("error")
    if not (is_error is None or isinstance(is_error, bool)):
        raise RecordError("wrong_type", "is_error", "Expected true, false or null.")
    if is_error is None and error:
        is_error = True
    if result is None:
        warnings.append("no_result")
    elif is_error is None:
        is_error, found = evidence.fault_in_result(result)
        error = error or found
        if not is_error:
            warnings.extend(evidence.suspicions(result))
    if (sent := record.get("warnings")) is not None:
        warnings = _warnings(sent)
    if not record.keys() <= _KNOWN:
        warnings.append("unknown_field")
    return is_error, evidence.fault_text(error) if error else None, tuple(sorted(set(warnings))) if warnings else ()


def _warnings(sent: Any) -> list[str]:
    if not isinstance(sent, list) or len(sent) > 50 or not all(isinstance(word, str) for word in sent):
        raise RecordError("wrong_type", "warnings", "Expected an array of at most 50 strings.")
    return [word for position, text in enumerate(sent) if (word := evidence.name(text, f"warnings[{position}]"))]


def _name(record: dict[str, Any], field: str) -> str | None:
    value = record.get(field)
    if value is None:
        return None
    return value if evidence.is_plain_name(value) else evidence.name(value, field)


def _identifier(record: dict[str, Any], field: str) -> str | None:
    value = record.get(field)
    if value is None:
        return None
    if not isinstance(value, str) or not _IDENTIFIER.search(value):
        raise RecordError(
            "invalid_identifier",
            field,
            "Expected 1 to 200 characters from A-Z a-z 0-9 . _ : / - that start with a letter or digit.",
        )
    return value


def _place(record: dict[str, Any], field: str) -> int:
    value = record.get(field)
    return 0 if value is None else evidence.whole(value, field, at_most=MAX_PLACE)


def _duration(value: Any) -> int | None:
    if value is None:
        return None
    return evidence.whole(round(value) if isinstance(value, float) else value, "duration_ms", at_most=_MAX_DURATION_MS)


def _array(root: Node, field: str) -> str | None:
    node = root.get(field)
    if node is None:
        return None
    if not isinstance(node.value, list) or not all(isinstance(element, dict) for element in node.value):
        raise RecordError("wrong_type", field, "Expected an array of objects.")
    return node.text


def _system(root: Node) -> str | None:
    node = root.get("system")
    if node is None:
        return None
    if not isinstance(node.value, str):
        raise RecordError("wrong_type", "system", "Expected a string.")
    return node.text
