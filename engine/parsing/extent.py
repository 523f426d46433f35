"""Where a JSON value ends, found while it arrives.

The scanner knows strings, brackets and the order of tokens, so an end tag inside a string is text, and text that can
be no JSON is noticed at once and not at the end of the output. It is as tolerant as `jsonish.repaired`.
"""

import re

from engine.parsing.source import Broken, Cut, Source, Wait
from engine.strict_json import MAX_DEPTH

_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[\w.+-]*")
_STRINGS = {
    '"': re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL),
    "'": re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+", re.DOTALL),
}
_PAIRS = {"{": "}", "[": "]", "(": ")"}

# What may come next.
_VALUE, _VALUE_OR_END, _KEY_OR_END, _COLON, _COMMA_OR_END = range(5)


def skip_value(source: Source) -> Wait[None]:
    """Step over the JSON value at `pos`. Raises `Broken` where it can be none, `Cut` where the output ends in it."""
    stack: list[str] = []
    expect = _VALUE
    while True:
        char = yield from _next_char(source)
        if char in _STRINGS and expect not in (_COLON, _COMMA_OR_END):
            yield from skip_string(source)
            expect = _COLON if expect == _KEY_OR_END else _COMMA_OR_END
        elif char in _PAIRS and expect in (_VALUE, _VALUE_OR_END):
            source.pos += 1
            stack.append(_PAIRS[char])
            if len(stack) > MAX_DEPTH:
                raise Broken(f"more than {MAX_DEPTH} nested containers")
            expect = _KEY_OR_END if char == "{" else _VALUE_OR_END
            continue
        elif char == ":" and expect == _COLON:
            source.pos += 1
            expect = _VALUE
        elif char == "," and expect == _COMMA_OR_END and stack:
            source.pos += 1
            expect = _KEY_OR_END if stack[-1] == "}" else _VALUE_OR_END
        elif stack and char == stack[-1] and expect in (_COMMA_OR_END, _KEY_OR_END, _VALUE_OR_END):
            source.pos += 1
            stack.pop()
            expect = _COMMA_OR_END
        elif expect in (_VALUE, _VALUE_OR_END) and (yield from source.skip(_WORD)):
            expect = _COMMA_OR_END
        else:
            raise Broken(f"{char!r} does not belong here")
        if not stack:
            return


def skip_string(source: Source) -> Wait[None]:
    """Step over the quoted string at `pos`."""
    quote = source.window[source.pos - source.base]
    source.pos += 1
    while True:
        found = _STRINGS[quote].match(source.window, source.pos - source.base)
        assert found is not None
        source.pos = source.base + found.end()
        if source.window[found.end() : found.end() + 1] == quote:
            source.pos += 1
            return
        yield from source.more()


def _next_char(source: Source) -> Wait[str]:
    """The next character that is neither blank nor a blank written as `\\n`."""
    while True:
        found = _SPACE.match(source.window, source.pos - source.base)
        assert found is not None
        source.pos = source.base + found.end()
        char = source.window[found.end() : found.end() + 1]
        if char == "\\":
            after = source.window[found.end() + 1 : found.end() + 2]
            if after and after not in "nrt":
                raise Broken("a backslash outside of a string")
            if after:
                source.pos += 2
                continue
        elif char:
            return char
        yield from source.more()


def member(text: str, key: str) -> str | None:
    """How the value of `key` is written in a JSON object; the last one, if it stands there more than once."""
    source = Source()
    source.feed(text)
    source.final = True
    reader = _read_member(source, key)
    try:
        while True:
            next(reader)
    except StopIteration as stop:
        return stop.value
    except (Broken, Cut):
        return None


def _read_member(source: Source, key: str) -> Wait[str | None]:
    found = None
    if (yield from _next_char(source)) != "{":
        raise Broken("no object")
    source.pos += 1
    while (char := (yield from _next_char(source))) != "}":
        if char == ",":
            source.pos += 1
            continue
        start = source.pos
        yield from skip_value(source)
        name = source.slice(start + 1, source.pos - 1)
        if (yield from _next_char(source)) != ":":
            raise Broken("a colon is missing")
        source.pos += 1
        yield from _next_char(source)
        start = source.pos
        yield from skip_value(source)
        if name == key:
            found = source.slice(start, source.pos)
    return found
