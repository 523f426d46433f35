"""Kimi K2: `functions.N:0<|tool_call_argument_begin|>{…}`, in a section of calls."""

import re

from engine.parsing.calls import Found, found
from engine.parsing.format import Block
from engine.parsing.formats.json_block import read_object
from engine.parsing.formats.sections import finish_call, read_section
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

OPENS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
CLOSES = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
CALL, CALL_END, ARGUMENTS = "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"

_IN_SECTION = Marks(CALL, *CLOSES)
_IN_CALL = Marks(ARGUMENTS, CALL, CALL_END, *CLOSES)
_CALL_END = Marks(CALL_END)
_INDEX = re.compile(r":[0-9]+$")


def read(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    return (yield from read_section(source, tools, _read_call, _IN_SECTION, CLOSES))


def read_single(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    """A call whose section was never opened."""
    return Block([(yield from _read_call(source, tools))])


def _read_call(source: Source, tools: Toolbox) -> Wait[Found]:
    start = source.pos
    if (yield from source.until(_IN_CALL)) != ARGUMENTS:
        raise Cut if source.pos >= source.end else Broken("a call without arguments")
    call_id = source.slice(start, source.pos).strip()
    source.pos += len(ARGUMENTS)
    name = call_id if call_id in tools else _INDEX.sub("", call_id)
    yield from source.blanks()
    text = "" if (yield from source.at(_CALL_END)) else (yield from read_object(source))
    call = found(name, text, text, tools, call_id)
    yield from finish_call(source, _CALL_END)
    return call
