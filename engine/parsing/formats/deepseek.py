"""DeepSeek: `function<sep>N` with a json fence (R1, V3), or `N<sep>{…}` (V3.1), in a section of calls."""

import re

from engine.parsing.calls import Found, found
from engine.parsing.format import Block
from engine.parsing.formats.json_block import read_object
from engine.parsing.formats.sections import finish_call, read_section
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

OPEN, CLOSE = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"

_IN_SECTION = Marks(CALL, CLOSE)
_IN_CALL = Marks(SEPARATOR, CALL, CALL_END, CLOSE)
_CALL_END = Marks(CALL_END)
_NAME_LINE = re.compile(r"[^\n`{<]*")


def read(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    return (yield from read_section(source, tools, _read_call, _IN_SECTION, (CLOSE,)))


def read_single(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    """A call whose section was never opened."""
    return Block([(yield from _read_call(source, tools))])


def _read_call(source: Source, tools: Toolbox) -> Wait[Found]:
    start = source.pos
    if (yield from source.until(_IN_CALL)) != SEPARATOR:
        raise Cut if source.pos >= source.end else Broken("a call without a separator")
    name = source.slice(start, source.pos).strip()
    source.pos += len(SEPARATOR)
    yield from source.blanks()
    if name == "function" and (yield from source.peek()) != "{":
        name = (yield from source.match(_NAME_LINE)).strip()
    text = yield from read_object(source)
    call = found(name, text, text, tools)
    yield from finish_call(source, _CALL_END)
    return call
