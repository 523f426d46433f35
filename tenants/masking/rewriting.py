"""Rewriting JSON text where it lies: what is not replaced stays spelled as it was, and a text that was cut can be read.

Nothing here fails on text that is no JSON: whatever stands where a value may stand is taken for one.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

_TOKEN = re.compile(r'[ \t\r\n]+|[{}\[\],:]|"[^"\\]*(?:\\.[^"\\]*)*"?|[^\s{}\[\],:"]+|.', re.DOTALL)
_ESCAPE_AT_END = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")

type Key = str | int


@dataclass(frozen=True, slots=True)
class Text:
    """A string as it is met: its characters, and whether the text was cut within it."""

    value: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Plain:
    """A number, `true`, `false`, `null`, or what stands in the place of one."""

    spelling: str


type Scalar = Text | Plain


@dataclass(slots=True)
class _Level[Place]:
    place: Place
    is_array: bool
    key: Key = 0
    awaits_value: bool = False


class Hand[Place](Protocol):
    """Who decides what is replaced. A value has a place: the root's, or what `inward` makes of its container's and of
    the key or index it stands at. Each answer is JSON text; None keeps what is there."""

    def inward(self, place: Place, key: Key) -> Place: ...

    def whole(self, place: Place, spelling: Callable[[], str]) -> str | None:
        """Of any value, before it is looked into."""

    def scalar(self, place: Place, value: Scalar) -> str | None:
        """Of a string, number or word."""

    def name(self, value: Text) -> str | None:
        """Of a member's name."""


def rewrite[Place](text: str, root: Place, hand: Hand[Place]) -> str:
    """`text` with some of its values replaced, in linear time."""
    tokens = [(token.group(), token.start(), token.end()) for token in _TOKEN.finditer(text)]
    ends = _ends(tokens)
    out: list[str] = []
    levels: list[_Level[Place]] = []
    index = 0
    while index < len(tokens):
        token, start, _ = tokens[index]
        first = token[0]
        level = levels[-1] if levels else None
        if first in " \t\r\n:":
            out.append(token)
        elif first in "}]":
            if levels:
                levels.pop()
            out.append(token)
        elif first == ",":
            if level is not None:
                _next(level)
            out.append(token)
        elif level is not None and not level.is_array and not level.awaits_value:
            level.key, level.awaits_value = _key(token), True
            out.append((hand.name(decoded(token)) if first == '"' else None) or token)
        else:
            place = hand.inward(level.place, level.key) if level is not None else root
            end = ends.get(index, index + 1)
            instead = hand.whole(place, partial(_slice, text, start, tokens[end - 1][2]))
            if instead is not None:
                out.append(instead)
                index = end
                continue
            if first in "{[":
                levels.append(_Level(place, is_array=first == "["))
                out.append(token)
            else:
                out.append(hand.scalar(place, _scalar(token)) or token)
        index += 1
    return "".join(out)


def _slice(text: str, start: int, end: int) -> str:
    return text[start:end]


def _ends(tokens: list[tuple[str, int, int]]) -> dict[int, int]:
    """Of the token that opens a container: the index after the one that closes it, or after the last."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for index, (token, _, _) in enumerate(tokens):
        if token in ("{", "["):
            opened.append(index)
        elif token in ("}", "]") and opened:
            ends[opened.pop()] = index + 1
    return ends | dict.fromkeys(opened, len(tokens))


def decoded(token: str) -> Text:
    """The characters of a string's spelling, which may be cut off anywhere."""
    is_cut = len(token) < 2 or not token.endswith('"') or _is_escaped_end(token)
    body = _ESCAPE_AT_END.sub("", token[1:]) if is_cut else token[1:-1]
    if "\\" not in body:
        return Text(body, is_cut)
    try:
        return Text(json.loads(f'"{body}"', strict=False), is_cut)
    except ValueError:
        return Text(body, is_cut)


def spelled(value: str) -> str:
    """A string as JSON text that a database can keep: real UTF-8, NUL and lone surrogates as escapes."""
    return LONE.sub(lambda match: f"\\u{ord(match.group()):04x}", json.dumps(value, ensure_ascii=False))


LONE = re.compile("[\ud800-\udfff]")  # halves of surrogate pairs, which UTF-8 has no place for


def _is_escaped_end(token: str) -> bool:
    return (len(token) - 1 - len(token[:-1].rstrip("\\"))) % 2 == 1


def _scalar(token: str) -> Scalar:
    return decoded(token) if token[0] == '"' else Plain(token)


def _key(token: str) -> Key:
    return decoded(token).value if token[0] == '"' else token


def _next[Place](level: _Level[Place]) -> None:
    if level.is_array:
        assert isinstance(level.key, int)
        level.key += 1
    level.awaits_value = False
