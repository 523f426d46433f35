"""`<invoke name>` and `<parameter name>`, in `<function_calls>` or MiniMax's `<minimax:tool_call>`, or on their own."""

from engine.parsing.format import Block
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.tagged import Dialect, read_call, read_header, read_wrapped
from engine.parsing.toolbox import Toolbox

OPENS = ("<function_calls>", "<minimax:tool_call>")
CLOSES = ("</function_calls>", "</minimax:tool_call>")
INVOKE = "<invoke "

_DIALECT = Dialect(
    call=INVOKE,
    call_end="</invoke>",
    parameter="<parameter ",
    parameter_end="</parameter>",
    closers=CLOSES,
    openers=OPENS,
    call_key="name",
    parameter_key="name",
)
_BODY = Marks("<parameter ", "</invoke>")


def read(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    return (yield from read_wrapped(source, _DIALECT, tools))


def read_bare(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    """An invoke element without a wrapper: a call to an offered tool only."""
    return (yield from read_unwrapped(source, _DIALECT, _BODY, tools))


def read_unwrapped(source: Source, dialect: Dialect, body: Marks, tools: Toolbox) -> Wait[Block | None]:
    start = source.pos
    try:
        header = yield from read_header(source, dialect, dialect.call_key)
    except Broken:
        return None
    except Cut:
        name = source.slice(start, source.end).strip().removeprefix("name=").lstrip("\"'")
        if name and tools.may_become(name.rstrip("\"'")):
            raise
        return None
    name = header["name"]
    behind = source.pos
    yield from source.blanks()
    begins = "/" in header or (yield from source.at(body))
    source.rewind(behind)
    if not name or (not begins and not (source.final and name in tools)):
        return None
    try:
        call = yield from read_call(source, dialect, tools, header)
    except (Cut, Broken):
        if name in tools:
            raise
        source.rewind(behind)
        return None
    return Block([call]) if call.name in tools else None
