"""GLM: `<tool_call>N`, then `<arg_key>` and `<arg_value>`; a body that is one name only has no arguments."""

import re

from engine.parsing.calls import Found
from engine.parsing.format import Block
from engine.parsing.source import Cut, Marks, Source, Wait
from engine.parsing.tagged import Dialect, read_call
from engine.parsing.toolbox import Toolbox

_DIALECT = Dialect(
    call="",
    call_end="</tool_call>",
    parameter="<arg_key>",
    parameter_end="</arg_value>",
    closers=("</tool_call>",),
    openers=("<tool_call>",),
    header_end="</arg_key>",
    parameter_body="<arg_value>",
    wrapper_is_end=True,
)
_NAME = re.compile(r"[\w.:/-]*")
_BODY = Marks("<arg_key>", "</tool_call>")


def read(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    yield from source.blanks()
    name = yield from source.match(_NAME)
    if not name:
        return None
    yield from source.blanks()
    if not (yield from source.at(_BODY)):
        rest = source.slice(source.pos, source.end)
        if not source.final or (rest and not "<arg_key>".startswith(rest) and not "</tool_call>".startswith(rest)):
            return None
        if source.truncated or rest or not tools.takes_nothing(name):
            raise Cut
        return Block([Found(name, {}, "")])
    return Block([(yield from read_call(source, _DIALECT, tools, {"name": name}))])
