"""The message in the bytes of a reply, as the client that reads them puts it together. No I/O."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.providers.completion import first_choice, read_content
from quality.gateway.events import Events, TooLong
from quality.ingest.jsontext import dump

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


@dataclass(slots=True)
class Message:
    """What the model said: the message in OpenAI form, and what was told beside it."""

    value: dict[str, Any]
    id: str = ""
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        """As JSON."""
        return dump(self.value)

    @property
    def calls(self) -> list[dict[str, Any]]:
        calls = self.value.get("tool_calls")
        return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def read_reply(body: bytes, *, is_stream: bool) -> Message | None:
    """None where there is no message, or an empty one."""
    message = _streamed(body) if is_stream else _whole(body)
    if message is None or not (message.calls or any(message.value.get(name) for name in _TEXTS)):
        return None
    return message


def _whole(body: bytes) -> Message | None:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    choice = first_choice(data) if isinstance(data, dict) else None
    value = choice.get("message") if choice else None
    if choice is None or not isinstance(value, dict):
        return None
    value = {"role": "assistant", **value}
    if not value.get("tool_calls") and isinstance(value.get("function_call"), dict):
        value["tool_calls"] = [{"id": None, "type": "function", "function": value.pop("function_call")}]
    return _told(Message(value), data, choice)


def _told(message: Message, data: Mapping[str, Any], choice: Mapping[str, Any]) -> Message:
    message.id = message.id or _word(data.get("id"))
    message.finish_reason = _word(choice.get("finish_reason")) or message.finish_reason
    return message


@dataclass(slots=True)
class _Call:
    """A call whose pieces come one by one: the first id and name count, for some servers repeat both in each."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def value(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id or None, "type": "function", "function": function}


def _streamed(body: bytes) -> Message | None:
    message, texts, calls = Message({}), dict[str, list[str]](), dict[Any, _Call]()
    seen = False
    for data in _objects(body):
        choice = first_choice(data)
        delta = choice.get("delta") if choice else None
        if choice is None:
            continue
        seen = True
        _told(message, data, choice)
        if not isinstance(delta, dict):
            continue
        for name in _TEXTS:
            if text := read_content(delta.get(name)):
                texts.setdefault(name, []).append(text)
        _add_calls(calls, delta)
    if not seen:
        return None
    content = "".join(texts.pop("content", []))
    message.value = {"role": "assistant", "content": content or None}
    message.value |= {name: "".join(pieces) for name, pieces in texts.items()}
    if calls:
        message.value["tool_calls"] = [call.value for call in calls.values()]
    return message


def _add_calls(calls: dict[Any, _Call], delta: Mapping[str, Any]) -> None:
    pieces = delta.get("tool_calls")
    pieces = pieces if isinstance(pieces, list) else []
    if not pieces and isinstance(delta.get("function_call"), dict):
        pieces = [{"index": 0, "function": delta["function_call"]}]
    for piece in pieces:
        if not isinstance(piece, dict):
            continue
        index, given = piece.get("index"), _word(piece.get("id"))
        call = calls.setdefault(index if isinstance(index, int) else given, _Call())
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call.id = call.id or given
        call.name = call.name or _word(function.get("name"))
        arguments = function.get("arguments")
        if arguments:
            call.arguments.append(arguments if isinstance(arguments, str) else dump(arguments))


def _objects(body: bytes) -> Iterable[dict[str, Any]]:
    events = Events()
    try:
        for event in (*events.feed(body), *events.finish()):
            yield from event.objects
    except TooLong:
        return


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
