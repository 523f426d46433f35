"""Llama 3: `<|python_tag|>` with JSON, `;` between objects, or with `name.call(key=value)`."""

import re

from engine.parsing.calls import clean_name
from engine.parsing.format import Block
from engine.parsing.formats.json_block import read_json
from engine.parsing.formats.pythonic import read_arguments
from engine.parsing.source import Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

OPENS = ("<|python_tag|>",)

_NONE = Marks()
_NAME = re.compile(r"[\w.-]*")


def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    block = yield from read_json(source, tools, _NONE, opening)
    if block is not None:
        return block
    name = yield from source.match(_NAME)
    if source.pos >= source.end and name:
        raise Cut
    if not name.endswith(".call") or not (yield from source.char("(")):
        return None
    name = clean_name(name.removesuffix(".call"), tools)
    return Block([(yield from read_arguments(source, tools, name))])
