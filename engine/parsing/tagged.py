"""Calls whose arguments are written between tags, without any escaping.

A value may quote every tag of the format, so structure decides where it ends and not the first match: an end tag
counts only if what follows, blanks aside, can follow it. An unclosed value ends before a start tag that begins a
line, or before the end of the call.
"""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.parsing.calls import Found, clean_name
from engine.parsing.format import Block
from engine.parsing.source import Broken, Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
END_OF_TURN = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>", "</think>")
_LINE_START = re.compile(r"\n[ \t]*$")
MAX_HEADER = 1000  # characters of a start tag; what is longer is no tag


@dataclass(frozen=True)
class Dialect:
    """How a format spells its tags, and what may follow them."""

    call: str
    call_end: str
    parameter: str
    parameter_end: str
    closers: tuple[str, ...]  # ends of the wrapper
    openers: tuple[str, ...] = ()  # starts of a wrapper
    header_end: str = ">"  # ends a start tag; what stands before it is the name, or attributes
    header_text: str = r"[^\n<>]*"
    call_key: str = ""  # the attribute that holds the tool's name; "" if the name stands alone
    parameter_key: str = ""
    escapes_attributes: bool = False  # as `&quot;` and `&amp;`
    parameter_body: str = ""  # a tag that stands between the name of a parameter and its value
    trims_newlines: bool = False  # one newline on each side of a value is markup
    wrapper_is_end: bool = False  # the call has no end tag but its wrapper's
    convert: Callable[[Toolbox, str, str, dict[str, str], str], Any] | None = None

    @cached_property
    def header(self) -> tuple[re.Pattern[str], Marks]:
        return re.compile(self.header_text), Marks(self.header_end)

    @cached_property
    def body(self) -> Marks:
        return Marks(self.parameter_body)

    @cached_property
    def in_wrapper(self) -> Marks:
        return Marks(self.call, *self.closers)

    @cached_property
    def in_gap(self) -> Marks:
        return Marks(self.parameter, self.call_end, *self.closers, *filter(None, (self.call, *self.openers)))

    @cached_property
    def in_value(self) -> Marks:
        return Marks(self.parameter_end, self.call_end, self.parameter, *(self.closers if self.openers else ()))

    @cached_property
    def wrapper_starts(self) -> Marks:
        return Marks(*self.openers)

    @cached_property
    def after_value(self) -> Marks:
        return Marks(self.parameter, self.call_end, *self.closers)

    @cached_property
    def after_call(self) -> Marks:
        return Marks(*filter(None, (self.call, *self.closers, *self.openers, *END_OF_TURN)))


@dataclass(slots=True)
class _State:
    """A call while it is read: where its values lie, as offsets, so that the text is cut out once at the end."""

    header: dict[str, str]
    start: int
    values: list[tuple[dict[str, str], int, int]]
    in_value: bool = False
    fallback: tuple[int, list[tuple[dict[str, str], int, int]]] | None = None  # should no better end of the call come


def read_header(source: Source, dialect: Dialect, key: str) -> Wait[dict[str, str]]:
    """The rest of a start tag, up to and with its end, as attributes; the name is the attribute `name`."""
    start = source.pos
    pattern, end = dialect.header
    yield from source.match(pattern)
    text = source.slice(start, source.pos)
    if len(text) > MAX_HEADER:
        raise Broken("a start tag without an end")
    if not (yield from source.take(end)):
        if source.pos >= source.end:
            raise Cut
        raise Broken("a start tag without an end")
    if dialect.escapes_attributes:
        return {name: html.unescape(value) for name, value in _attributes(text, key).items()}
    return _attributes(text, key)


def _attributes(text: str, key: str) -> dict[str, str]:
    if not key:
        return {"name": text.strip().strip("\"'")}
    found = {match[1]: match[2] if match[2] is not None else match[3] for match in _ATTRIBUTE.finditer(text)}
    found["name"] = found.get(key, "")
    if text.rstrip().endswith("/"):
        found["/"] = ""
    return found


def read_call(source: Source, dialect: Dialect, tools: Toolbox, header: dict[str, str]) -> Wait[Found]:
    """The call whose start tag was just read; `pos` ends behind its end tag. Raises `Broken`, `Cut`."""
    state = _State(header, source.pos, [])
    if "/" in header:
        return _finished(source, dialect, tools, state, source.pos)
    try:
        end = yield from _read_parameters(source, dialect, state)
    except Cut:
        if source.truncated:
            raise
        if dialect.wrapper_is_end and state.values and not state.in_value:
            return _finished(source, dialect, tools, state, source.pos)
        if state.fallback is None:
            raise
        end, state.values = state.fallback
        source.rewind(end)
    return _finished(source, dialect, tools, state, end - len(dialect.call_end))


def _finished(source: Source, dialect: Dialect, tools: Toolbox, state: _State, end: int) -> Found:
    name = clean_name(state.header.get("name"), tools)
    arguments: dict[str, Any] = {}
    for header, start, stop in state.values:
        text = source.slice(start, stop)
        if dialect.trims_newlines:
            text = _trimmed(text)
        if not (key := header.get("name", "")):
            raise Broken("a parameter without a name")
        convert = dialect.convert
        arguments[key] = convert(tools, name, key, header, text) if convert else tools.typed(name, key, text)
    return Found(name, arguments, source.slice(state.start, end))


def _trimmed(text: str) -> str:
    """Without the one newline after the start tag and the one before the end tag."""
    text = text.removeprefix("\r\n") if text.startswith("\r\n") else text.removeprefix("\n")
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def _read_parameters(source: Source, dialect: Dialect, state: _State) -> Wait[int]:
    """Read up to the end of the call and return its offset."""
    while True:
        state.in_value = False
        mark = yield from source.until(dialect.in_gap)
        if not mark:
            raise Cut
        source.pos += len(mark)
        if mark == dialect.call_end:
            return source.pos
        if mark != dialect.parameter:
            source.pos -= len(mark)
            raise Broken("the call has no end tag")
        header = yield from read_header(source, dialect, dialect.parameter_key)
        if dialect.parameter_body:
            yield from source.blanks()
            if not (yield from source.take(dialect.body)):
                raise Cut if source.pos >= source.end else Broken("a parameter without a value")
        state.in_value = True
        if (end := (yield from _read_value(source, dialect, state, header))) is not None:
            return end


def _read_value(source: Source, dialect: Dialect, state: _State, header: dict[str, str]) -> Wait[int | None]:
    """Read one value; returns the end of the call if the value runs up to it, None if the gap after it follows."""
    start = source.pos
    while True:
        mark = yield from source.until(dialect.in_value)
        if not mark:
            raise Cut
        stop = source.pos
        source.pos += len(mark)
        if mark == dialect.parameter:
            cut = _line_start(source, dialect, start, stop)
            if cut is not None:
                source.rewind(stop)
                state.values.append((header, start, cut))
                return None
        elif mark != dialect.call_end and mark in dialect.closers:
            if (yield from _wrapper_follows(source, dialect)):
                source.rewind(stop)
                raise Broken("the call has no end tag")
        elif mark == dialect.call_end:
            if (yield from _call_may_end(source, dialect)):
                state.values.append((header, start, _without_newline(source, dialect, start, stop)))
                return stop + len(mark)
        else:
            end = yield from _value_may_end(source, dialect)
            if end is None:
                continue
            if end == 0:
                state.values.append((header, start, stop))
                return None
            source.pos = end
            if dialect.wrapper_is_end or (yield from _call_may_end(source, dialect)):
                state.values.append((header, start, stop))
                return end
            state.fallback = state.fallback or (end, [*state.values, (header, start, stop)])


def _line_start(source: Source, dialect: Dialect, start: int, stop: int) -> int | None:
    """Where a value ends whose next tag stands at `stop`; None if that tag does not begin a line."""
    found = _LINE_START.search(source.slice(max(start, stop - 80), stop))
    if found is None:
        return None
    blanks = found.end() - found.start() - 1
    return stop - blanks if dialect.trims_newlines else stop - blanks - 1


def _without_newline(source: Source, dialect: Dialect, start: int, stop: int) -> int:
    """The end of an unclosed value: the line break before the next tag is layout."""
    layout = not dialect.trims_newlines and stop > start and source.slice(stop - 1, stop) == "\n"
    return stop - 1 if layout else stop


def _value_may_end(source: Source, dialect: Dialect) -> Wait[int | None]:
    """After the end tag of a value: 0 if it counts, the end of the call if that follows at once, None if it is text."""
    yield from source.blanks()
    mark = yield from source.at(dialect.after_value)
    if mark == dialect.call_end:
        return source.pos + len(mark)
    return 0 if mark or source.pos >= source.end else None


def _call_may_end(source: Source, dialect: Dialect) -> Wait[bool]:
    """Whether what follows the end tag of a call lets it count. `pos` stays behind the tag."""
    here = source.pos
    yield from source.blanks()
    counts = bool((yield from source.at(dialect.after_call))) or source.pos >= source.end
    source.rewind(here)
    return counts


def _wrapper_follows(source: Source, dialect: Dialect) -> Wait[bool]:
    """Whether another block begins right after the end of a wrapper: then the value before it was never closed."""
    yield from source.blanks()
    return bool((yield from source.at(dialect.wrapper_starts)))


def read_wrapped(source: Source, dialect: Dialect, tools: Toolbox) -> Wait[Block | None]:
    """The calls of a wrapper whose start tag was just read; None if it does not begin with one.

    A broken call is left out. Without an end tag the block ends behind its last call, and if the output ends inside a
    call, the complete ones before it stay.
    """
    yield from source.blanks()
    if not (yield from source.at(dialect.in_wrapper)):
        rest = source.slice(source.pos, source.end)
        if source.final and rest and dialect.call.startswith(rest):
            raise Cut
        return None
    calls: list[Found] = []
    last = source.pos
    while mark := (yield from source.until(dialect.in_wrapper)):
        source.pos += len(mark)
        if mark in dialect.closers:
            return Block(calls)
        try:
            header = yield from read_header(source, dialect, dialect.call_key)
            calls.append((yield from read_call(source, dialect, tools, header)))
            last = source.pos
        except Broken:
            continue
        except Cut:
            if not calls:
                raise
            source.pos = source.end
            return Block(calls)
    if not calls:
        raise Cut
    source.rewind(last)
    yield from source.blanks()
    if not (yield from source.take_end(dialect.in_wrapper)):
        source.rewind(last)
    return Block(calls)
