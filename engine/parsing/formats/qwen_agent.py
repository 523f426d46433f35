"""Qwen-Agent: `✿FUNCTION✿: N`, `✿ARGS✿: {…}`. A stray `✿RESULT✿` or `✿RETURN✿` is markup."""

import re

from engine.parsing.calls import found
from engine.parsing.format import Block
from engine.parsing.formats.json_block import read_object
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

FUNCTION = "✿FUNCTION✿"
STRAYS = ("✿RESULT✿", "✿RETURN✿", "✿ARGS✿")

_ARGS = Marks("✿ARGS✿")
_FLOWER = "✿"
_NAME = re.compile(r"[^\n✿]*")
_SPACES = re.compile(r"[ \t]*")


def read(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    if not (yield from source.char(":")):
        return None
    name = (yield from source.match(_NAME)).strip()
    yield from source.blanks()
    if not (yield from source.take(_ARGS)):
        raise Cut if source.pos >= source.end or source.ends_within(_ARGS) else Broken("a call without arguments")
    yield from source.char(":")
    yield from source.blanks()
    text = "" if (yield from source.peek()) == _FLOWER else (yield from read_object(source))
    return Block([found(name, text, text, tools)])


def read_stray(source: Source, _tools: Toolbox, _opening: str) -> Wait[Block | None]:
    yield from source.char(":")
    yield from source.match(_SPACES)
    return Block()
