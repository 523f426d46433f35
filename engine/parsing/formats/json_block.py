"""JSON behind a marker: an object, a list, or several of them, with or without an end marker.

Hermes and Qwen (`<tool_call>`), Granite and Phi (`<|tool_call|>`, `<function_call>`, `functools[`), MiniMax M1
(`<tool_calls>`), Nemotron (`<TOOLCALL>`), Command R (`<|START_ACTION|>`), InternLM (`<|plugin|>`).
"""

import re
from functools import cache

from engine.parsing.calls import Found, from_payload
from engine.parsing.extent import skip_value
from engine.parsing.format import Block, Reader
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

_NONE = Marks()
_PLUGIN = Marks("<|plugin|>")
_ACTION_END = Marks("<|action_end|>")
_FENCE = Marks("```")
_INFO = re.compile(r"[\w+-]*")
_BRACES = re.compile(r"[}\])]*")  # one too many of them is noise
_BRACES_AND_BLANKS = re.compile(r"[}\]) \t\r\n]*")


@cache
def reader(*closes: str) -> Reader:
    """The reader of a format whose blocks end with one of `closes`."""
    ends = Marks(*closes)

    def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
        return (yield from read_json(source, tools, ends, opening))

    return read


def read_plugin(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    """InternLM: the marker of a plug-in stands between the opening and the JSON."""
    if not (yield from source.take(_PLUGIN)):
        if source.ends_within(_PLUGIN):
            raise Cut
        return None
    return (yield from read_json(source, tools, _ACTION_END, opening))


def read_functools(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    """Phi: `functools[{…}]`. The Python module of that name is followed by anything else."""
    source.pos -= 1
    start = source.pos
    source.pos += 1
    yield from source.blanks()
    begins = (yield from source.peek()) == "{"
    source.rewind(start)
    try:
        calls = (yield from read_values(source, tools)) if begins else []
    except Broken:
        calls = []
    if not calls:
        return None
    yield from finish_block(source, _NONE, "")
    return Block(calls)


def read_json(source: Source, tools: Toolbox, ends: Marks, opening: str) -> Wait[Block | None]:
    yield from source.blanks()
    if (yield from source.take(_FENCE)):
        yield from source.match(_INFO)
        yield from source.blanks()
    if (yield from source.peek()) not in ("{", "["):
        return None
    calls = yield from read_values(source, tools)
    yield from finish_block(source, ends, opening)
    return Block(calls)


def read_values(source: Source, tools: Toolbox) -> Wait[list[Found]]:
    """The calls of one JSON value or of several, between which stand blanks, `;` or `,`. `pos` ends behind the last."""
    calls: list[Found] = []
    last = source.pos
    while True:
        start = source.pos
        try:
            yield from skip_value(source)
            more = from_payload(source.slice(start, source.pos), tools)
        except Cut:
            if not calls:
                raise
            source.pos = source.end
            return calls
        except Broken:
            if not calls:
                raise
            more = []
        if calls and not more:
            source.rewind(last)
            return calls
        calls += more
        last = source.pos
        yield from source.blanks()
        yield from source.char(";", ",")
        yield from source.blanks()
        if (yield from source.peek()) not in ("{", "["):
            source.rewind(last)
            return calls


def finish_block(source: Source, ends: Marks, opening: str) -> Wait[None]:
    """Step over the end of a block, and over what stands between the value and it. Without an end, stay."""
    yield from source.match(_BRACES)
    here = source.pos
    yield from source.match(_BRACES_AND_BLANKS)
    if (yield from source.take_end(ends)):
        return
    if ends.literals and (mark := (yield from source.until(_with_opening(ends, opening)))) in ends.literals:
        source.pos += len(mark)
    else:
        source.rewind(here)


@cache
def _with_opening(ends: Marks, opening: str) -> Marks:
    return Marks(opening, *ends.literals)
