"""JSON without any markup: `{"name": …, "arguments": {…}}` on lines of its own, or in a fence that is all there is.

Ordinary answers look like it, so it counts only if it is strict and names an offered tool. What cannot be a call is
noticed from its first key or its name, so that an answer in JSON is not held back until its end.
"""

import re

from engine.parsing.calls import Found, clean_name, from_plain_json
from engine.parsing.extent import skip_string, skip_value
from engine.parsing.format import Block
from engine.parsing.formats.pythonic import nothing_follows
from engine.parsing.jsonish import unescape
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.tagged import END_OF_TURN
from engine.parsing.toolbox import Toolbox

_KEYS = frozenset({"name", "type", "function", "id", "tool_call_id", "index", "arguments", "parameters"})
_SPACES = re.compile(r"[ \t]*")
_INFO = re.compile(r"[^\n`]*")
_RUNS = {"`": re.compile("`*"), "~": re.compile("~*")}
_TAIL = Marks(*END_OF_TURN, "</tool_call>", "</tool_calls>", "</function_call>", "[/TOOL_CALLS]", "<|end|>", "<|call|>")
_WRAPPERS = Marks("<tool_call>", "<|return|>", "<|start|>")


def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    """Calls on lines of their own; `opening` is the bracket."""
    source.pos -= len(opening)
    calls: list[Found] = []
    while True:
        more = yield from _read_value(source, tools)
        if more is None:
            return None
        calls += more
        end = source.pos
        yield from source.match(_SPACES)
        following = yield from source.peek()
        if following == ";":
            source.pos += 1
            behind = source.pos
            yield from source.blanks()
            if (yield from source.peek()) in ("{", "["):
                continue
            source.rewind(behind)
            return Block(calls)
        if following in ("", "\n", "\r") or (yield from source.at(_TAIL)) or (yield from source.at(_WRAPPERS)):
            source.rewind(end)
            return Block(calls)
        return None


def read_fenced(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    """A fence with calls that is the whole message."""
    behind = source.pos
    if not source.alone:
        return None
    rest = yield from source.match(_RUNS[opening[0]])
    yield from source.match(_INFO)
    if not (yield from source.char("\n")):
        source.rewind(behind)
        return None
    fence = Marks(opening + rest)
    calls: list[Found] = []
    while True:
        yield from source.blanks()
        char = yield from source.peek()
        if char not in ("{", "[") or (char == "" and not calls):
            break
        more = yield from _read_value(source, tools)
        if more is None:
            return None
        calls += more
        yield from source.match(_SPACES)
        yield from source.char(";", ",")
    if not calls or (char and not (yield from source.take(fence))):
        return None
    if not (yield from nothing_follows(source)):
        return None
    return Block(calls)


def _read_value(source: Source, tools: Toolbox) -> Wait[list[Found] | None]:
    """The calls of the JSON value at `pos`, None if it holds anything else; `pos` ends behind it.

    If the output ends in it, it is `Cut` once it has named an offered tool, else text.
    """
    start = source.pos
    known = False
    try:
        known = yield from _begins_call(source, tools)
        source.rewind(start)
        yield from skip_value(source)
        return from_plain_json(source.slice(start, source.pos), tools)
    except Cut:
        if known or _names_tool(source.slice(start, source.end), tools):
            raise
        source.pos = source.end
        return None
    except Broken:
        return None


def _begins_call(source: Source, tools: Toolbox) -> Wait[bool]:
    """Whether an offered tool is named by the first key; False if that is not known yet, `Broken` if it is no call."""
    if (yield from source.char("[")):
        yield from source.blanks()
    if not (yield from source.char("{")):
        raise Cut if source.pos >= source.end else Broken("no object")
    key = yield from _read_string(source)
    if key not in _KEYS:
        raise Broken("a record, not a call")
    yield from source.blanks()
    if not (yield from source.char(":")):
        raise Cut if source.pos >= source.end else Broken("no colon")
    if key != "name":
        return False
    name = clean_name((yield from _read_string(source)), tools)
    if name not in tools:
        raise Broken("no offered tool")
    return True


def _read_string(source: Source) -> Wait[str]:
    yield from source.blanks()
    if (char := (yield from source.peek())) != '"':
        raise Broken("no string") if char else Cut
    start = source.pos
    yield from skip_string(source)
    return unescape(source.slice(start + 1, source.pos - 1), '"')


_NAME_SO_FAR = re.compile(r'"name"\s*:\s*"([^"\\]+)("?)')


def _names_tool(text: str, tools: Toolbox) -> bool:
    """Whether a call that is cut off has named an offered tool, or begun to."""
    named = _NAME_SO_FAR.search(text)
    if not named:
        return False
    return named[1] in tools if named[2] else tools.may_become(named[1])
