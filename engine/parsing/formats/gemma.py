"""Gemma 4: `<|tool_call>call:N{k:<|"|>text<|"|>}<tool_call|>`, and what it drifts to: `call:N({…})`, JSON quotes."""

import re
from typing import Any

from engine.parsing.calls import found
from engine.parsing.extent import skip_string, skip_value
from engine.parsing.format import Block
from engine.parsing.formats.json_block import finish_block
from engine.parsing.jsonish import literal, replace_surrogates, unescape
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox
from engine.strict_json import MAX_DEPTH

OPENS = ("<|tool_call>", "<|tool_call|>")
CLOSES = ("<tool_call|>",)
QUOTE = '<|"|>'

_ENDS = Marks(*CLOSES)
_CALL = Marks("call:")
_QUOTE = Marks(QUOTE)
_TOKENS = Marks(QUOTE, '"', "{", "}", "[", "]")
_NAME = re.compile(r"[\w.:/-]*")
_JSON_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_STRING_END = re.compile(re.escape(QUOTE) + r"(?=\s*[,}\]:])")
_BARE = re.compile(r"[^,:{}\[\]]*")
_SPACE = re.compile(r"\s*")
_PAIRS = {"{": "}", "[": "]"}


def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    yield from source.blanks()
    if not (yield from source.take(_CALL)):
        rest = source.slice(source.pos, source.end)
        if source.final and rest and "call:".startswith(rest):
            raise Cut
        return None
    name = yield from source.match(_NAME)
    yield from source.blanks()
    parenthesis = yield from source.char("(")
    yield from source.blanks()
    if (yield from source.peek()) != "{":
        raise Cut if source.pos >= source.end else Broken("a call without arguments")
    start = source.pos
    if (yield from _is_json(source)):
        yield from skip_value(source)
        text = source.slice(start, source.pos)
        call = found(name, text, text, tools)
    else:
        yield from _skip_object(source)
        text = source.slice(start, source.pos)
        call = found(name, _Reader(text).read(), text, tools)
    if parenthesis:
        yield from source.blanks()
        yield from source.char(")")
    yield from finish_block(source, _ENDS, opening)
    return Block([call])


def _is_json(source: Source) -> Wait[bool]:
    """Whether the object at `pos` has quoted keys, as JSON has."""
    here = source.pos
    source.pos += 1
    yield from source.blanks()
    quoted = (yield from source.peek()) in ('"', "'")
    source.rewind(here)
    return quoted


def _skip_object(source: Source) -> Wait[None]:
    """Step over the object at `pos`. A quote ends a string only where a value may end, as values are not escaped."""
    stack: list[str] = []
    while mark := (yield from source.until(_TOKENS)):
        if mark == '"':
            yield from skip_string(source)
            continue
        source.pos += len(mark)
        if mark == QUOTE:
            yield from _skip_text(source)
        elif mark in _PAIRS:
            stack.append(_PAIRS[mark])
            if len(stack) > MAX_DEPTH:
                raise Broken(f"more than {MAX_DEPTH} nested containers")
        elif stack.pop() != mark:
            raise Broken(f"{mark!r} does not belong here")
        if not stack:
            return
    raise Cut


def _skip_text(source: Source) -> Wait[None]:
    while (yield from source.until(_QUOTE)):
        source.pos += len(QUOTE)
        yield from source.blanks()
        if (yield from source.peek()) in (",", "}", "]", ":"):
            return
    raise Cut


class _Reader:
    """A reader of one object in this notation."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def read(self) -> Any:
        return self._value()

    def _skip(self) -> str:
        found = _SPACE.match(self.text, self.pos)
        assert found is not None
        self.pos = found.end()
        return self.text[self.pos : self.pos + 1]

    def _value(self) -> Any:
        match self._skip():
            case "{":
                return self._object()
            case "[":
                return self._array()
        text = self._string()
        if text is None:
            text = self._bare()
            try:
                return literal(text)
            except Broken:
                return text
        return text

    def _object(self) -> dict[str, Any]:
        self.pos += 1
        result: dict[str, Any] = {}
        while self._skip() != "}":
            key = self._string()
            key = self._bare() if key is None else key
            if self._skip() != ":":
                raise Broken("a colon is missing")
            self.pos += 1
            result[key] = self._value()
            self._comma("}")
        self.pos += 1
        return result

    def _array(self) -> list[Any]:
        self.pos += 1
        result: list[Any] = []
        while self._skip() != "]":
            result.append(self._value())
            self._comma("]")
        self.pos += 1
        return result

    def _comma(self, closing: str) -> None:
        char = self._skip()
        if char == ",":
            self.pos += 1
        elif char != closing:
            raise Broken("a comma is missing")

    def _string(self) -> str | None:
        """The quoted text at `pos`; None if none stands there."""
        if self.text.startswith(QUOTE, self.pos):
            start = self.pos + len(QUOTE)
            end = _STRING_END.search(self.text, start)
            if end is None:
                raise Broken("a string does not end")
            self.pos = end.end()
            return self.text[start : end.start()]
        quoted = _JSON_STRING.match(self.text, self.pos)
        if quoted is None:
            return None
        self.pos = quoted.end()
        return replace_surrogates(unescape(quoted[1], '"'))

    def _bare(self) -> str:
        found = _BARE.match(self.text, self.pos)
        assert found is not None
        if not found.group().strip():
            raise Broken("a key or a value is missing")
        self.pos = found.end()
        return found.group().strip()
