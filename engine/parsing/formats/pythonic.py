"""Calls as Python writes them: `[name(key=value), …]` (Llama 4, LFM2), `name.call(key=value)` (Llama 3 built-ins)."""

import re
from typing import Any

from engine.parsing.calls import Found, clean_name
from engine.parsing.extent import skip_string, skip_value
from engine.parsing.format import Block
from engine.parsing.formats.json_block import finish_block, read_json
from engine.parsing.jsonish import repaired, unescape
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.tagged import END_OF_TURN
from engine.parsing.toolbox import Toolbox

OPENS = ("<|python_start|>", "<|tool_call_start|>")
CLOSES = ("<|python_end|>", "<|tool_call_end|>")

_ENDS = Marks(*CLOSES)
_NAME = re.compile(r"[\w.:/-]*")
_KEY = re.compile(r"[\w.-]*")
_TRIPLE = Marks('"""', "'''")
_IN_TRIPLE = {quotes: Marks("\\", quotes) for quotes in _TRIPLE.literals}
_NEXT = Marks("),", ")]", *CLOSES)
_TAIL = Marks(*END_OF_TURN, *CLOSES)


def read_marked(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    """A list of calls, or JSON, between markers."""
    start = source.pos
    yield from source.blanks()
    calls: list[Found] = []
    if (yield from source.char("[")):
        yield from source.blanks()
        if (yield from source.peek()) not in ("{", ""):
            yield from read_list(source, tools, calls, strict=False)
            yield from finish_block(source, _ENDS, opening)
            return Block(calls)
    source.rewind(start)
    return (yield from read_json(source, tools, _ENDS, opening))


def read_whole(source: Source, tools: Toolbox, _opening: str) -> Wait[Block | None]:
    """A list of calls to offered tools that is the whole message."""
    if not source.alone:
        return None
    yield from source.blanks()
    calls: list[Found] = []
    try:
        yield from read_list(source, tools, calls, strict=True)
    except Broken:
        return None
    if not calls:
        return None
    return Block(calls) if (yield from nothing_follows(source)) else None


def nothing_follows(source: Source) -> Wait[bool]:
    """Whether the output ends here, blanks and tokens that end a turn aside. `pos` stays."""
    here = source.pos
    while True:
        yield from source.blanks()
        if not (yield from source.take(_TAIL)):
            break
    ended = source.pos >= source.end
    source.rewind(here)
    return ended


def read_list(source: Source, tools: Toolbox, calls: list[Found], *, strict: bool) -> Wait[None]:
    """Fill `calls` from a list whose bracket was just read; `pos` ends behind the closing one.

    Strict: all must be well formed and name an offered tool (`Broken`; `Cut` is let out only once one was named).
    Else broken ones are left out, and complete ones before a cut stay.
    """
    named = not strict
    while True:
        yield from source.blanks()
        if (yield from source.char("]")):
            return
        try:
            name = yield from _read_name(source, tools, strict=strict)
            named = True
            calls.append((yield from read_arguments(source, tools, name)))
            yield from source.blanks()
            if not (yield from source.char(",")) and (yield from source.peek()) != "]":
                raise Broken("a comma is missing")
        except Cut:
            if not named:
                raise Broken("no call") from None
            if strict or not calls:
                raise
            source.pos = source.end
            return
        except Broken:
            if strict:
                raise
            if not (yield from source.until(_NEXT)):
                raise Cut from None
            if (yield from source.take(_ENDS)):
                return
            source.pos += 1
            yield from source.char(",")


def _read_name(source: Source, tools: Toolbox, *, strict: bool) -> Wait[str]:
    name = yield from source.match(_NAME)
    if strict and source.pos >= source.end and tools.may_become(name):
        raise Cut
    if strict and name not in tools:
        raise Broken("no offered tool")
    yield from source.blanks()
    if not (yield from source.char("(")):
        raise Cut if source.pos >= source.end else Broken("no call")
    return clean_name(name, tools)


def read_arguments(source: Source, tools: Toolbox, name: str) -> Wait[Found]:
    """The call whose opening parenthesis was just read."""
    start = source.pos
    arguments: dict[str, Any] = {}
    while True:
        yield from source.blanks()
        if (yield from source.char(")")):
            break
        key = yield from source.match(_KEY)
        yield from source.blanks()
        if not key or key[0].isdigit() or not (yield from source.char("=")):
            raise Cut if source.pos >= source.end else Broken("an argument without a name")
        yield from source.blanks()
        arguments[key] = yield from _read_value(source)
        yield from source.blanks()
        if not (yield from source.char(",")) and (yield from source.peek()) != ")":
            raise Cut if source.pos >= source.end else Broken("a comma is missing")
    return Found(name, tools.retyped(name, arguments), source.slice(start, source.pos - 1))


def _read_value(source: Source) -> Wait[Any]:
    start = source.pos
    if quotes := (yield from source.take(_TRIPLE)):
        while (yield from source.until(_IN_TRIPLE[quotes])) == "\\":
            source.pos += 2
        yield from source.take(_TRIPLE)
        if source.slice(source.pos - 3, source.pos) != quotes or source.pos < start + 6:
            raise Cut
        return unescape(source.slice(start + 3, source.pos - 3), "'")
    if (yield from source.peek()) in ('"', "'"):
        yield from skip_string(source)
    else:
        yield from skip_value(source)
    return repaired(source.slice(start, source.pos))
