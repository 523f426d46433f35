"""Calls that are listed one by one in a section, as DeepSeek (R1 to V3.1) and Kimi K2 write them."""

from collections.abc import Callable

from engine.parsing.calls import Found
from engine.parsing.format import Block
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

type OneCall = Callable[[Source, Toolbox], Wait[Found]]


def read_section(
    source: Source, tools: Toolbox, one: OneCall, begins: Marks, ends: tuple[str, ...]
) -> Wait[Block | None]:
    """Calls up to the end of the section. What stands between them is no text; a broken one is left out.

    Without an end the section stops behind its last call; if the output ends inside one, those before it stay.
    """
    calls: list[Found] = []
    last = source.pos
    while mark := (yield from source.until(begins)):
        source.pos += len(mark)
        if mark in ends:
            return Block(calls)
        here = source.pos
        try:
            calls.append((yield from one(source, tools)))
            last = source.pos
        except Broken:
            source.rewind(here)
        except Cut:
            if not calls:
                raise
            source.pos = source.end
            return Block(calls)
    if not calls:
        raise Cut
    source.rewind(last)
    yield from finish_call(source, begins)
    return Block(calls)


def finish_call(source: Source, end: Marks) -> Wait[None]:
    """Step over the token that ends a call, if it or a part of it is there."""
    here = source.pos
    yield from source.blanks()
    if not (yield from source.take_end(end)):
        source.rewind(here)
