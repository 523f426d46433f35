"""JSON behind a marker: an object, a list, or several of them, with or without an end marker.

Hermes and Qwen (`<tool_call>`), Granite and Phi (`<|tool_call|>`, `<function_call>`, `functools[`), MiniMax M1
(`<tool_calls>`), Nemotron (`<TOOLCALL>`), Command R (`<|START_ACTION|>`), InternLM (`<|plugin|>`).
"""

import re
from contextlib import suppress
from functools import cache

from engine.parsing.calls import Found, from_object
from engine.parsing.extent import skip_value
from engine.parsing.format import Block, Reader
from engine.parsing.jsonish import repaired
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

_NONE = Marks()
_PLUGIN = Marks("<|plugin|>")
_ACTION_END = Marks("<|action_end|>")
_FENCE = Marks("```")
_ITEM_ENDS = ("},", "}]")
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
        calls = (yield from read_values(source, tools, _NONE)) if begins else []
    except Broken:
        calls = []
    if not calls:
        return None
    yield from finish_block(source, _NONE, "")
    return Block(calls)


def read_json(source: Source, tools: Toolbox, ends: Marks, opening: str) -> Wait[Block | None]:
    yield from source.blanks()
    yield from skip_fence(source)
    if (yield from source.peek()) not in ("{", "["):
        return None
    calls = yield from read_values(source, tools, _with_opening(ends, opening))
    yield from finish_block(source, ends, opening)
    return Block(calls)


def skip_fence(source: Source) -> Wait[None]:
    """Step over the opening of a code fence, which is noise around JSON."""
    if (yield from source.take(_FENCE)):
        yield from source.match(_INFO)
        yield from source.blanks()


def read_object(source: Source) -> Wait[str]:
    """The JSON object at `pos`, in a fence or not, as it is written. Blanks before it are skipped."""
    yield from source.blanks()
    yield from skip_fence(source)
    if (char := (yield from source.peek())) != "{":
        raise Broken("a call without arguments") if char and not source.ends_within(_FENCE) else Cut
    start = source.pos
    yield from skip_value(source)
    text = source.slice(start, source.pos)
    yield from source.match(_BRACES)
    here = source.pos
    yield from source.blanks()
    if not (yield from source.take_end(_FENCE)):
        source.rewind(here)
    return text


def read_values(source: Source, tools: Toolbox, limits: Marks) -> Wait[list[Found]]:
    """The calls of one JSON value or of several, between which stand blanks, `;` or `,`. `pos` ends behind the last.

    If the output ends inside one, or it is broken, those before it stay. `limits` are where the block ends.
    """
    calls: list[Found] = []
    while True:
        last, before = source.pos, len(calls)
        yield from source.blanks()
        yield from source.char(";", ",")
        yield from source.blanks()
        char = yield from source.peek()
        try:
            if char == "[":
                source.pos += 1
                yield from _read_list(source, tools, calls, limits)
            elif char == "{":
                yield from _read_item(source, tools, calls)
        except Cut:
            if not calls:
                raise
            source.pos = source.end
            return calls
        except Broken:
            if not calls:
                raise
        if len(calls) == before:
            if before:
                source.rewind(last)
            return calls


def _read_list(source: Source, tools: Toolbox, calls: list[Found], limits: Marks) -> Wait[None]:
    """The items of a list whose bracket was just read; a broken one is left out."""
    while True:
        yield from source.blanks()
        if (yield from source.char("]")):
            return
        if not (yield from source.peek()):
            raise Cut
        try:
            yield from _read_item(source, tools, calls)
        except Broken:
            if (yield from source.until(_between_items(limits))) not in _ITEM_ENDS:
                raise Cut if source.pos >= source.end else Broken("a broken list") from None
            source.pos += 1
        yield from source.blanks()
        if not (yield from source.char(",")) and (yield from source.peek()) not in ("]", ""):
            raise Broken("a comma is missing")


def _read_item(source: Source, tools: Toolbox, calls: list[Found]) -> Wait[None]:
    start = source.pos
    yield from skip_value(source)
    text = source.slice(start, source.pos)
    value = repaired(text)
    with suppress(Broken):  # it is well formed, but no call
        calls.append(from_object(value, text, tools))


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
    return Marks(*filter(None, (opening, *ends.literals)))


@cache
def _between_items(limits: Marks) -> Marks:
    return Marks(*_ITEM_ENDS, *limits.literals)
