"""Qwen3-Coder: `<tool_call>` `<function=N>` `<parameter=K>`; Seed-OSS has the same body in `<seed:tool_call>`.

The function element also comes without its wrapper, and with JSON in it (Llama 3's `<function=N>{…}</function>`).
"""

from engine.parsing.calls import found
from engine.parsing.format import Block
from engine.parsing.formats.json_block import finish_block, read_object
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.tagged import Dialect, read_call, read_header, read_wrapped
from engine.parsing.toolbox import Toolbox

OPENS = ("<tool_call>", "<seed:tool_call>")
CLOSES = ("</tool_call>", "</seed:tool_call>")
FUNCTION = "<function="

_DIALECT = Dialect(
    call=FUNCTION,
    call_end="</function>",
    parameter="<parameter=",
    parameter_end="</parameter>",
    closers=CLOSES,
    openers=OPENS,
    trims_newlines=True,
)
_BODY = Marks("<parameter=", "</function>", "{", "```")
_FUNCTION = Marks(FUNCTION)
_CLOSES = Marks(*CLOSES)
_END = Marks("</function>")


def read(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    start = source.pos
    block = yield from _read_wrapped_json(source, tools)
    if block is not None:
        return block
    source.rewind(start)
    return (yield from read_wrapped(source, _DIALECT, tools))


def _read_wrapped_json(source: Source, tools: Toolbox) -> Wait[Block | None]:
    """A function element with JSON in it, within a wrapper that it does not need."""
    yield from source.blanks()
    if not (yield from source.take(_FUNCTION)):
        return None
    try:
        header = yield from read_header(source, _DIALECT, "")
    except Broken:
        return None
    yield from source.blanks()
    if (yield from source.peek()) not in ("{", "`"):
        return None
    block = yield from _read_json(source, tools, header["name"])
    here = source.pos
    yield from source.blanks()
    if not (yield from source.take_end(_CLOSES)):
        source.rewind(here)
    return block


def read_bare(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    """A function element without wrapper: with JSON in it a format of its own, else a call to an offered tool."""
    start = source.pos
    try:
        header = yield from read_header(source, _DIALECT, "")
    except Broken:
        return None
    except Cut:
        if tools.may_become(source.slice(start, source.end)):
            raise
        return None
    name = header["name"]
    behind = source.pos
    yield from source.blanks()
    body = yield from source.at(_BODY)
    if body in ("{", "```"):
        return (yield from _read_json(source, tools, name))
    source.rewind(behind)
    if not body and not (source.final and name in tools):
        return None
    try:
        call = yield from read_call(source, _DIALECT, tools, header)
    except (Cut, Broken):
        if name in tools:
            raise
        source.rewind(behind)
        return None
    return Block([call]) if call.name in tools else None


def _read_json(source: Source, tools: Toolbox, name: str) -> Wait[Block]:
    text = yield from read_object(source)
    yield from finish_block(source, _END, FUNCTION)
    return Block([found(name, text, text, tools)])
