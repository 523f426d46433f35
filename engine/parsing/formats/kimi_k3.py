"""Kimi K3: elements spelt `<|open|>name attributes<|sep|>` … `<|close|>name<|sep|>`; calls stand in `tools`."""

import re
from typing import Any

from engine.parsing.format import Block
from engine.parsing.source import Cut, Marks, Source, Wait
from engine.parsing.tagged import Dialect, read_call, read_header, read_wrapped
from engine.parsing.toolbox import Toolbox, read_in_full

OPENS = ("<|open|>", "<|close|>")


def _convert(tools: Toolbox, name: str, key: str, attributes: dict[str, str], text: str) -> Any:
    kind = attributes.get("type")
    if kind == "string":
        return text
    if kind is None:
        return tools.typed(name, key, text)
    value = read_in_full(text)
    return text if value is None and text.strip() != "null" else value


_DIALECT = Dialect(
    call="<|open|>call ",
    call_end="<|close|>call<|sep|>",
    parameter="<|open|>argument ",
    parameter_end="<|close|>argument<|sep|>",
    closers=("<|close|>tools<|sep|>",),
    openers=("<|open|>tools<|sep|>",),
    header_end="<|sep|>",
    header_text=r"[^\n<]*",
    call_key="tool",
    parameter_key="key",
    escapes_attributes=True,
    convert=_convert,
)
_ELEMENT = re.compile(r"\w*")
_HEADER = re.compile(r"[^\n<]*")
_SEPARATOR = Marks("<|sep|>")


def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    element = yield from source.match(_ELEMENT)
    if source.pos >= source.end:
        raise Cut
    if opening == "<|open|>" and element == "call":
        header = yield from read_header(source, _DIALECT, _DIALECT.call_key)
        return Block([(yield from read_call(source, _DIALECT, tools, header))])
    yield from source.match(_HEADER)
    if not (yield from source.take(_SEPARATOR)):
        if source.pos >= source.end or source.ends_within(_SEPARATOR):
            raise Cut
        return None
    behind = source.pos
    block = None
    if opening == "<|open|>" and element == "tools":
        block = yield from read_wrapped(source, _DIALECT, tools)
    if block is None:  # a tag that stands for itself
        source.rewind(behind)
    return block or Block()
