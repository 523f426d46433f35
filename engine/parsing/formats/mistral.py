"""Mistral: `[TOOL_CALLS]` with a list, or with `name{…}`, `name[ARGS]{…}`, `name[CALL_ID]id[ARGS]{…}`."""

import re

from engine.parsing.calls import found
from engine.parsing.format import Block
from engine.parsing.formats.json_block import read_json, read_object
from engine.parsing.source import Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

OPENS = ("[TOOL_CALLS]",)
CLOSES = ("[/TOOL_CALLS]",)

_NAME = re.compile(r"[\w.:/-]*")
_ID = re.compile(r"[\w-]*")
_CALL_ID = Marks("[CALL_ID]")
_ARGS = Marks("[ARGS]")
_AFTER_NAME = Marks("[CALL_ID]", "[ARGS]")
_CLOSES = Marks(*CLOSES)
_NONE = Marks()


def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    block = yield from read_json(source, tools, _NONE, opening)
    if block is None:
        block = yield from _read_named(source, tools)
    here = source.pos
    yield from source.blanks()
    if not (yield from source.take(_CLOSES)):
        source.rewind(here)
    return block


def _read_named(source: Source, tools: Toolbox) -> Wait[Block | None]:
    name = yield from source.match(_NAME)
    if not name:
        return None
    yield from source.blanks()
    call_id = ""
    if (yield from source.take(_CALL_ID)):
        call_id = yield from source.match(_ID)
    yield from source.take(_ARGS)
    yield from source.blanks()
    if (char := (yield from source.peek())) not in ("{", "`"):
        if not char or source.ends_within(_AFTER_NAME):
            raise Cut
        return None
    text = yield from read_object(source)
    return Block([found(name, text, text, tools, call_id)])
