"""A turn's messages as a conversation in which each call has its place."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.text import boundary

MAX_TEXT = 4_000  # characters of one message on a page; the rest is asked for
MAX_MESSAGES = 200
_SPACE = " \t\r\n,"


@dataclass(frozen=True, kw_only=True)
class PlacedCall:
    """A call as a reply asked for it; `key` is its (cycle, index)."""

    key: tuple[int, int]
    name: str
    args: str  # as the message spells them


@dataclass(frozen=True, kw_only=True)
class Said:
    """One message. `size` counts all characters of its text, `text` may be less; `cycle` is set for replies."""

    position: int
    role: str
    text: str
    size: int
    name: str = ""
    reasoning: str = ""
    cycle: int | None = None
    calls: tuple[PlacedCall, ...] = ()

    @property
    def hidden(self) -> int:
        return self.size - len(self.text)

    @property
    def is_folded(self) -> bool:
        """Results of tools are told once, with their call; in the conversation they are one line."""
        return self.role in {"tool", "function"}


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """`complete` is false if messages at the end were left out."""

    messages: list[Said] = field(default_factory=list)
    complete: bool = True

    @property
    def places(self) -> set[tuple[int, int]]:
        """(cycle, index) of each call that has a place here."""
        return {call.key for said in self.messages for call in said.calls}


def read_conversation(text: str | None, *, max_text: int = MAX_TEXT) -> Conversation:
    """The messages in a JSON array in OpenAI chat form. Of a text that was cut off, what is whole before the cut."""
    messages, complete = _elements(text or "[]")
    said: list[Said] = []
    cycle = 0
    for position, message in enumerate(messages):
        if isinstance(message, dict):
            is_reply = message.get("role") == "assistant"
            said.append(_said(message, position, cycle if is_reply else None, max_text))
            cycle += is_reply
    return Conversation(messages=said, complete=complete)


def message_text(text: str, position: int) -> str | None:
    """The whole text of one message; None if there is no such message."""
    messages, _ = _elements(text)
    if not 0 <= position < len(messages) or not isinstance(messages[position], dict):
        return None
    return text_of(messages[position].get("content"))


def _elements(text: str) -> tuple[list[Any], bool]:
    """Elements of a JSON array that may be cut off, and whether it was all of them."""
    found: list[Any] = []
    decoder = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
    position = _skip(text, 0)
    if text[position : position + 1] != "[":
        return [], not text
    position = _skip(text, position + 1)
    while text[position : position + 1] not in ("]", ""):
        if len(found) == MAX_MESSAGES:
            return found, False
        try:
            element, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return found, False
        found.append(element)
        position = _skip(text, position)
    return found, text[position : position + 1] == "]"


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _said(message: Mapping[str, Any], position: int, cycle: int | None, max_text: int) -> Said:
    whole = text_of(message.get("content")) or text_of(message.get("refusal"))
    reasoning = text_of(message.get("reasoning_content") or message.get("reasoning"))
    return Said(
        position=position,
        role=str(message.get("role") or "unknown"),
        text=whole if len(whole) <= max_text else whole[: boundary(whole, max_text)],
        size=len(whole),
        name=str(message.get("name") or message.get("tool_call_id") or ""),
        reasoning=reasoning[:max_text],
        cycle=cycle,
        calls=tuple(_calls(message, cycle)) if cycle is not None else (),
    )


def text_of(content: Any) -> str:
    """Content as text: parts are joined, what is no text is told as its JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return json.dumps(content, ensure_ascii=False)


def _part(part: Any) -> str:
    if isinstance(part, dict):
        for key in ("text", "refusal"):
            if isinstance(part.get(key), str):
                return str(part[key])
    return part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)


def _calls(message: Mapping[str, Any], cycle: int) -> Iterator[PlacedCall]:
    asked = message.get("tool_calls")
    asked = list(asked) if isinstance(asked, list) else []
    if isinstance(message.get("function_call"), dict):
        asked.append({"function": message["function_call"]})
    for index, call in enumerate(asked):
        if isinstance(call, dict):
            inner = call.get("function") or call.get("custom") or call
            inner = inner if isinstance(inner, dict) else {}
            args = inner.get("arguments", inner.get("input"))
            yield PlacedCall(
                key=(cycle, index),
                name=str(inner.get("name") or ""),
                args=args if isinstance(args, str) else json.dumps(args, ensure_ascii=False),
            )
