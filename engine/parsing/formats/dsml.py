"""DeepSeek V3.2 and later: `<｜DSML｜function_calls>` (`tool_calls`, ` calls`), `invoke`, `parameter`.

Bars are single or double, full width or ASCII, a blank may follow them. The attribute `string` says whether a value
is text or JSON, whatever the schema says.
"""

import re
from functools import lru_cache
from typing import Any

from engine.parsing.format import Block
from engine.parsing.formats.invoke import read_unwrapped
from engine.parsing.source import Cut, Marks, Source, Wait
from engine.parsing.tagged import Dialect, read_wrapped
from engine.parsing.toolbox import Toolbox, read_in_full

_BARS = ("｜DSML｜", "｜｜DSML｜｜", "|DSML|", "||DSML||")
OPENS = tuple(f"<{bars}" for bars in _BARS)
CLOSES = tuple(f"</{bars}" for bars in _BARS)

_SPACES = re.compile(r"[ ]*")
_WORD = re.compile(r"\w*")
_WRAPPERS = ("function_calls", "tool_calls", "calls")
_NULLS = ("null", "none")


def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    blanks = yield from source.match(_SPACES)
    word = yield from source.match(_WORD)
    if source.pos >= source.end:
        raise Cut
    dialect, body = _dialect(opening[1:] + blanks)
    if word == "invoke":
        return (yield from read_unwrapped(source, dialect, body, tools))
    if word not in _WRAPPERS or not (yield from source.char(">")):
        return None
    behind = source.pos
    block = yield from read_wrapped(source, dialect, tools)
    if block is None:  # the tag alone
        source.rewind(behind)
    return block or Block()


def read_end(source: Source, _tools: Toolbox, _opening: str) -> Wait[Block | None]:
    """An end tag on its own."""
    yield from source.match(_SPACES)
    yield from source.match(_WORD)
    yield from source.char(">")
    return Block()


@lru_cache(maxsize=32)
def _dialect(prefix: str) -> tuple[Dialect, Marks]:
    dialect = Dialect(
        call=f"<{prefix}invoke",
        call_end=f"</{prefix}invoke>",
        parameter=f"<{prefix}parameter",
        parameter_end=f"</{prefix}parameter>",
        closers=tuple(f"</{prefix}{word}>" for word in _WRAPPERS),
        openers=tuple(f"<{prefix}{word}>" for word in _WRAPPERS),
        call_key="name",
        parameter_key="name",
        convert=_convert,
    )
    return dialect, Marks(dialect.parameter, dialect.call_end)


def _convert(tools: Toolbox, name: str, parameter: str, attributes: dict[str, str], text: str) -> Any:
    match attributes.get("string"):
        case "true":
            return text
        case "false":
            value = read_in_full(text)
            return text if value is None and text.strip().lower() not in _NULLS else value
        case _:
            return tools.typed(name, parameter, text)
