"""Chunks of a stream that we make ourselves, in the envelope of the model's server."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine.messages import ToolCall

DONE = b"data: [DONE]\n\n"
_ENVELOPE = ("id", "created", "model", "system_fingerprint", "service_tier")


def chunk(envelope: Mapping[str, Any], delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return event({**envelope, "choices": [choice]})


def event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json_bytes(value) + b"\n\n"


def json_bytes(value: Any) -> bytes:
    """JSON in UTF-8; lone surrogates, which UTF-8 cannot carry, as escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def envelope_of(completion: Mapping[str, Any]) -> dict[str, Any]:
    """What chunks of one completion have in common."""
    members = {name: completion[name] for name in _ENVELOPE if completion.get(name) is not None}
    return {"object": "chat.completion.chunk", **members}


def call_values(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """Calls as `tool_calls` of a message: the arguments as the model spelled them, where that is JSON."""
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
        for call in calls
    ]


def arguments_text(call: ToolCall) -> str:
    try:
        if json.loads(call.raw_arguments) == call.arguments:
            return call.raw_arguments
    except (ValueError, RecursionError):
        pass
    return json.dumps(call.arguments, ensure_ascii=False)


def call_chunks(envelope: Mapping[str, Any], calls: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """One chunk for each call, numbered in order."""
    for index, call in enumerate(calls):
        yield chunk(envelope, {"tool_calls": [{"index": index, **call}]})
