"""Conversations in the form that chat servers accept: every call answered right behind, all arguments JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.messages import Message, ToolCall
from engine.records import CallRecord

NOT_ANSWERED = "Error: this call was not answered; the user wrote on instead."


def history(messages: Sequence[Message | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages in OpenAI form. Calls left open are answered as not answered; results that answer no call, which
    servers refuse, are left out; arguments that are no JSON object become `{}`."""
    return list(_mended(messages))


def _mended(messages: Sequence[Message | Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    unanswered: dict[str, None] = {}
    for message in messages:
        wire = wire_message(message) if isinstance(message, Message) else dict(message)
        if wire.get("role") == "tool":
            if wire.get("tool_call_id") in unanswered:
                del unanswered[wire["tool_call_id"]]
                yield wire
            continue
        yield from (tool_message(call_id, NOT_ANSWERED) for call_id in unanswered)
        if calls := wire.get("tool_calls"):
            wire["tool_calls"] = [_mended_call(call) for call in calls]
        unanswered = {call["id"]: None for call in calls or ()}
        yield wire
    yield from (tool_message(call_id, NOT_ANSWERED) for call_id in unanswered)


def wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content, **message.extra}
    if message.tool_calls:
        wire["tool_calls"] = [wire_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        wire["name"] = message.name
    return wire


def assistant_message(text: str, calls: Sequence[CallRecord]) -> dict[str, Any]:
    """A reply as it goes back into the history. Content is never null: chat templates trip over it."""
    wire: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        wire["tool_calls"] = [wire_call(call) for call in calls]
    return wire


def tool_message(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def wire_call(call: ToolCall | CallRecord) -> dict[str, Any]:
    call_id = call.id if isinstance(call, ToolCall) else call.call_id
    arguments = wire_arguments(call.raw_arguments, call.arguments)
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def wire_arguments(raw: Any, parsed: Mapping[str, Any] | None) -> str:
    """The model's own spelling where it is JSON and means what was run; else what was run; else `{}`."""
    read = _read_object(raw)
    if parsed is None:
        return "{}" if read is None else raw
    return raw if read == parsed else json.dumps(parsed, ensure_ascii=False)


def _mended_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    given = function.get("arguments")
    parsed = given if isinstance(given, dict) else None
    return {**call, "function": {**function, "arguments": wire_arguments(given, parsed)}}


def _read_object(text: Any) -> dict[str, Any] | None:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(text, parse_constant=refuse) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
