"""What a tenant keeps nothing raw of is masked before it is stored. A record keeps its identity and its place; hashes
of its content are made of what is stored, so that nobody can guess by them what was masked."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from quality.ingest.items import Parsed
from quality.ingest.jsontext import dump
from quality.ingest.otlp import KeptSpan, read_kept
from quality.ingest.otlp_values import any_value, as_any_value
from quality.ingest.records import CallRecord, TurnRecord
from tenants.masking.masker import DATA_MEMBERS, Masker
from tenants.masking.reading import Reading


def masked_batch(batch: Sequence[Parsed], masker: Masker | None) -> Sequence[Parsed]:
    if masker is None:
        return batch
    return [
        msgspec.structs.replace(item, turns=tuple(masked_turn(turn, masker) for turn in item.turns)) for item in batch
    ]


def masked_turn(turn: TurnRecord, masker: Masker) -> TurnRecord:
    """The turn with its calls. What is masked in a call for its place is masked in the whole turn."""
    reading = Reading(masker)
    calls = tuple(_call(call, reading) for call in turn.calls)
    return msgspec.structs.replace(
        turn,
        calls=calls,
        messages=None if turn.messages is None else reading.structure(turn.messages),
        system=None if turn.system is None else reading.structure(turn.system),
        contact=_prose(turn.contact, reading),
        warnings=_warnings(turn.warnings, reading),
    )


def _call(call: CallRecord, reading: Reading) -> CallRecord:
    return msgspec.structs.replace(
        call,
        args=None if call.args is None else reading.document(call.args),
        result=None if call.result is None else reading.document(call.result),
        error=_prose(call.error, reading),
        contact=_prose(call.contact, reading),
        warnings=_warnings(call.warnings, reading),
    )


def _prose(text: str | None, reading: Reading) -> str | None:
    return None if text is None else reading.prose(text)


def _warnings(warnings: Iterable[str], reading: Reading) -> tuple[str, ...]:
    return tuple(sorted({reading.prose(warning) for warning in warnings}))


# --- spans ------------------------------------------------------------------------------------------------------------
_NAMES = frozenset(
    {"id", "name", "role", "kind", "type", "model", "model_name", "provider", "system", "version", "mime_type"}
)
_OURS = ("gen_ai.", "llm.", "tool.", "tool_call.", "openinference.")
_DEFINITIONS = ("gen_ai.tool.definitions", "llm.tools.")
_CONVERSATIONS = frozenset({"messages", "input_messages", "output_messages", "system_instructions"})
_WHOLE = ("input.value", "output.value")


def masked_span(kept: KeptSpan, reading: Reading) -> KeptSpan:
    """A span as it may be kept. Its ids, times and names stay, and so do definitions of tools. Raises RecordError,
    JsonError."""
    span = json.loads(kept.data)
    holders = [span, *(event for event in span.get("events") or () if isinstance(event, dict))]
    for holder in holders:
        holder["attributes"] = [_attribute(pair, reading) for pair in _pairs(holder)]
    if isinstance(status := span.get("status"), dict) and isinstance(status.get("message"), str):
        status["message"] = reading.prose(status["message"])
    data = dump(span)
    return KeptSpan(read_kept(data), data)


def _pairs(holder: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        pair for pair in holder.get("attributes") or () if isinstance(pair, dict) and isinstance(pair.get("key"), str)
    ]


def _attribute(pair: dict[str, Any], reading: Reading) -> dict[str, Any]:
    key, value = pair["key"], any_value(pair.get("value"), "")
    masked = _value(key, value, reading)
    return pair if masked == value else {"key": key, "value": as_any_value(masked)}


def _value(key: str, value: Any, reading: Reading) -> Any:
    last = key.rpartition(".")[2]
    if key == "session.id" or key.startswith(_DEFINITIONS) or (key.startswith(_OURS) and last in _NAMES):
        return value
    if last in _CONVERSATIONS:
        return _within(value, reading)
    if key.startswith(_OURS):
        member = last if last in DATA_MEMBERS else "args"
        return json.loads(reading.structure(dump({member: value})))[member]
    (masked,) = json.loads(reading.document(dump({last: value}))).values()
    return _within(masked, reading) if key in _WHOLE else masked


def _within(value: Any, reading: Reading) -> Any:
    """A conversation, structured or as JSON text."""
    if isinstance(value, str):
        return reading.structure(value) if value.lstrip()[:1] in ("{", "[") else reading.prose(value)
    return json.loads(reading.structure(dump(value)))
