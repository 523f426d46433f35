"""The front of the parser: a reply goes in, whole or as a stream, a `Reply` comes out."""

from collections.abc import Iterable, Mapping
from typing import Any

from engine.messages import Reply, ToolCall
from engine.parsing.jsonish import replace_surrogates
from engine.parsing.machine import Machine
from engine.parsing.structured import Ids, StructuredCalls
from engine.parsing.toolbox import Toolbox

_TRUNCATED = frozenset({"length", "max_tokens", "model_length", "content_filter"})


class StreamParser:
    """Reads one reply as it arrives.

    `feed` takes a delta of a chat completion (`choices[0].delta`, null allowed) or a piece of text, and returns the
    text that may be shown now. `finish` returns the reply; its `text` begins with all that was shown. The one
    exception: a `</think>` whose `<think>` stood in the prompt makes reasoning of text that was shown already. Where
    it is known that the prompt opened a reasoning block, say so by `reasoning_open`, and nothing of it is shown.
    """

    def __init__(self, tools: Iterable[Any] | None = None, *, reasoning_open: bool = False) -> None:
        box = Toolbox(tools)
        self._machine = Machine(box, reasoning_open=reasoning_open)
        self._structured = StructuredCalls(box)
        self._reasoning: list[str] = []
        self._half = ""  # the first half of a surrogate pair, if a piece ended in it
        self._shown: list[str] = []
        self._reply: Reply | None = None

    @property
    def shown(self) -> str:
        """All text that `feed` has returned."""
        return "".join(self._shown)

    @property
    def settled(self) -> int:
        """How many characters of the text so far belong to no call and cannot become part of one any more: who passes
        the text on as it came holds back the rest. Reasoning in the text counts as settled."""
        return self._machine.settled

    @property
    def text_behind(self) -> str:
        """Once finished, where calls stood in the text: the visible text behind `settled`, which is now where the first
        of them begins."""
        return self._reply.text[self._machine.visible_before :] if self._reply else ""

    def feed(self, delta: str | Mapping[str, Any] | None) -> str:
        """Take the next piece; returns text now safe to show. After `finish` nothing more is taken."""
        if self._reply is not None or delta is None:
            return ""
        if isinstance(delta, str):
            return self._feed_text(delta)
        if not isinstance(delta, Mapping):
            return ""
        text, reasoning = _content(delta.get("content"))
        self._reasoning += [reasoning, *(_str(delta.get(key)) for key in ("reasoning_content", "reasoning"))]
        if delta.get("tool_calls"):
            self._structured.add_fragments(delta["tool_calls"])
        if delta.get("function_call"):
            self._structured.add_legacy(delta["function_call"])
        return self._feed_text(text)

    def feed_message(self, tool_calls: Any, function_call: Any) -> None:
        """Take the calls of a reply that was not streamed."""
        self._structured.add_message(tool_calls, function_call)

    def finish(self, finish_reason: str | None = None) -> Reply:
        """The whole reply. A `finish_reason` decides nothing but whether the output was cut off."""
        if self._reply is None:
            self._reply = self._finished(truncated=finish_reason in _TRUNCATED)
        return self._reply

    def _feed_text(self, text: str) -> str:
        if not text:
            return ""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        shown = self._machine.feed(replace_surrogates(text[:-1] if self._half else text))
        self._shown.append(shown)
        return shown

    def _finished(self, *, truncated: bool) -> Reply:
        if self._half:
            self._machine.feed("\ufffd")
        structured = self._structured.any
        text, reasoning, found = self._machine.finish(truncated=truncated, structured=structured)
        ids = Ids()
        calls, broken = self._structured.finish(ids, truncated=truncated)
        if not structured:
            calls = [ToolCall(ids.take(call.id), call.name, call.arguments, call.raw) for call in found]
        warnings = self._machine.warnings + [f"tool_calls: {call.name or 'a call'}: {call.reason}" for call in broken]
        reasoning = "\n".join(filter(None, ("".join(self._reasoning).strip(), reasoning.strip())))
        return Reply(tuple(calls), text, replace_surrogates(reasoning), tuple(warnings), tuple(broken))


def parse(
    content: Any,
    tool_calls: Any = None,
    *,
    tools: Iterable[Any] | None = None,
    finish_reason: str | None = None,
    function_call: Any = None,
    reasoning: str | None = None,
) -> Reply:
    """What a whole reply means. The arguments are members of the message as received; nothing in them raises."""
    parser = StreamParser(tools)
    parser.feed({"content": content, "reasoning_content": reasoning})
    parser.feed_message(tool_calls, function_call)
    return parser.finish(finish_reason)


def _content(content: Any) -> tuple[str, str]:
    """Text and reasoning of a `content`: a string, or a list of parts."""
    if isinstance(content, str):
        return content, ""
    text = reasoning = ""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping):
            text += _str(part.get("text"))
            thinking = part.get("thinking")
            reasoning += _content(thinking)[0] if isinstance(thinking, list) else _str(thinking)
    return text, reasoning


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""
