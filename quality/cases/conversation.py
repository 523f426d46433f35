"""What is sent on replay: the recorded conversation in a form that any server accepts, and the tools on offer.

A case holds what the model read for the reply under test, so the first reply of a replay stands for the recorded one.
Recorded call ids are replaced, what belongs to one provider (reasoning, signatures, item ids) is dropped, and each call
has its result right behind it: servers refuse histories in which one is missing.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.errors import EngineError, ToolError
from engine.history import wire_arguments
from engine.strict_json import JsonError, read_json
from engine.tools import FunctionTool, Mode, Registry
from quality.cases.record import Case
from quality.cases.sample import Served

PLACEHOLDER: Final = "[the result of this call was not recorded]"

_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "model": "assistant",
}
_DROPPED_PARTS: Final = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning.text", "refusal")
_TEXT_PARTS: Final = ("text", "input_text", "output_text")
_NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}

type Message = dict[str, Any]


class NotReplayable(EngineError):
    """What was recorded is not enough to ask a model once more."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of the recording and what it was answered with. `shown` is what the model reads of it."""

    tool: str
    arguments: str | Mapping[str, Any] | None
    served: Served
    shown: str


@dataclass(frozen=True, slots=True)
class Opening:
    """`notes` say what had to be changed, each once."""

    messages: tuple[Message, ...]
    recorded: tuple[RecordedCall, ...]
    notes: tuple[str, ...]


def opening_of(case: Case, system_prompt: str | None = None) -> Opening:
    """The conversation of a case, with another system prompt if one is given. Raises `NotReplayable`."""
    reader = _Reader()
    for item in _items(case.messages):
        reader.take(item)
    messages, recorded = _answered(reader.messages, reader.notes)
    if system_prompt is not None:
        rest = [message for message in messages if message["role"] != "system"]
        messages = [{"role": "system", "content": system_prompt}, *rest]
    if not any(message["role"] == "user" for message in messages):
        raise NotReplayable("its conversation has no message of a user")
    notes = tuple(f"{text} ({count} times)" if count > 1 else text for text, count in reader.notes.items())
    return Opening(tuple(messages), tuple(recorded), notes)


def tools_of(given: Any) -> Registry:
    """Tools as they are offered; nothing can run them, since they are answered from the recording. They are read from
    OpenAI's form, from bare `{name, parameters}`, or from the JSON text of either. Raises `NotReplayable`."""
    tools = _items(given, what="tools")
    found = []
    for tool in tools:
        inner = tool.get("function", tool.get("custom", tool)) if isinstance(tool, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise NotReplayable("one of its tools has no name")
        parameters = inner.get("parameters", inner.get("input_schema"))
        schema = parameters if isinstance(parameters, Mapping) else _NO_PARAMETERS
        found.append(FunctionTool(inner["name"], str(inner.get("description") or ""), schema, None, Mode.CLIENT))
    try:
        return Registry(found)
    except ToolError as error:
        raise NotReplayable(f"its tools cannot be offered: {error}") from error


def _items(given: Any, what: str = "messages") -> list[Any]:
    if isinstance(given, str):
        try:
            given = read_json(given)
        except (JsonError, RecursionError) as error:
            raise NotReplayable(f"its {what} cannot be read: {error}") from error
    if not isinstance(given, list) or not given:
        raise NotReplayable(f"it has no {what}")
    return given


class _Reader:
    """Reads messages in OpenAI's two forms and Anthropic's into those of the chat completions protocol. Ids of calls
    are still the recorded ones, and results may lie anywhere."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.notes: Counter[str] = Counter()
        self._is_open = False  # the last message is a call item, and another one belongs into the same reply

    def take(self, item: Any) -> None:
        was_open, self._is_open = self._is_open, False
        if not isinstance(item, Mapping):
            self.notes["what was no message was left out"] += 1
            return
        kind, role = item.get("type"), str(item.get("role"))
        if kind == "function_call":
            call = _call(item.get("call_id") or item.get("id"), item)
            if was_open:
                self.messages[-1]["tool_calls"].append(call)
            else:
                self.messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            self._is_open = True
        elif kind == "function_call_output":
            self._result(item.get("call_id"), item.get("output"))
        elif role in ("tool", "function"):
            self._result(item.get("tool_call_id"), item.get("content"))
        elif role in _ROLES:
            self._message(_ROLES[role], item)
        else:
            self.notes["what only one provider knows was left out"] += 1

    def _message(self, role: str, item: Mapping[str, Any]) -> None:
        calls = [_call(call.get("id"), call.get("function", call)) for call in _mappings(item.get("tool_calls"))]
        if isinstance(item.get("function_call"), Mapping) and not calls:
            calls = [_call(None, item["function_call"])]
        content, inner = self._content(item.get("content"))
        calls += inner
        if role == "assistant":
            message = {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}
            if calls or content:
                self.messages.append(message)
        elif content:
            self.messages.append({"role": role, "content": content})

    def _content(self, content: Any) -> tuple[Any, list[Message]]:
        """Text, or parts where there are others than text; and the calls that stand among the parts."""
        if content is None or isinstance(content, str):
            return content or "", []
        if not isinstance(content, list):
            return _text(content), []
        parts: list[Any] = []
        calls: list[Message] = []
        for part in content:
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind == "tool_use":
                calls.append(_call(part.get("id"), {"name": part.get("name"), "arguments": part.get("input")}))
            elif kind == "tool_result":
                self._result(part.get("tool_use_id"), part.get("content"))
            elif kind in _DROPPED_PARTS:
                self.notes["what only one provider knows was left out"] += 1
            elif kind in _TEXT_PARTS:
                parts.append({"type": "text", "text": str(part.get("text") or "")})
            else:
                parts.append(part if isinstance(part, Mapping) else {"type": "text", "text": _text(part)})
        if all(part.get("type") == "text" for part in parts):
            return "\n".join(part["text"] for part in parts), calls
        return parts, calls

    def _result(self, call_id: Any, content: Any) -> None:
        if isinstance(content, list) and all(isinstance(part, Mapping) and "text" in part for part in content):
            content = "\n".join(str(part["text"]) for part in content)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": _text(content)})


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _call(call_id: Any, function: Any) -> Message:
    inner = function if isinstance(function, Mapping) else {}
    given = inner.get("arguments")
    arguments = wire_arguments(given, given if isinstance(given, dict) else None)
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": str(inner.get("name") or ""), "arguments": arguments},
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _answered(messages: list[Message], notes: Counter[str]) -> tuple[list[Message], list[RecordedCall]]:
    """Fresh ids, and behind each call its result: the recorded one, or the placeholder."""
    found: list[Message] = []
    recorded: list[RecordedCall] = []
    fresh = (f"call_{number}" for number in range(1, 1 << 30))
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            continue  # stands behind its call by now
        found.append(message)
        if not message.get("tool_calls"):
            continue
        results = list(_results_behind(messages, place))
        calls = message["tool_calls"] = [dict(call) for call in message["tool_calls"]]
        for call in calls:
            result = _taken(results, call["id"])
            call["id"] = next(fresh)
            if result is None:
                notes["a result that was not recorded was filled with a placeholder"] += 1
                content = PLACEHOLDER
            else:
                content = result
                function = call["function"]
                served = Served(json.dumps(content, ensure_ascii=False))
                recorded.append(RecordedCall(function["name"], function["arguments"], served, content))
            found.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        if results:
            notes["a result that answers no call was left out"] += len(results)
    return found, recorded


def _results_behind(messages: list[Message], place: int) -> Iterator[Message]:
    """The results that stand between a reply and the next one."""
    for message in messages[place + 1 :]:
        if message["role"] == "assistant":
            return
        if message["role"] == "tool":
            yield message


def _taken(results: list[Message], call_id: Any) -> str | None:
    """Takes the result with this id; where ids are missing, the next one."""
    for place, result in enumerate(results):
        if result["tool_call_id"] == call_id or call_id is None or result["tool_call_id"] is None:
            return str(results.pop(place)["content"])
    return None
