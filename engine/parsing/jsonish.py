"""JSON as models write it: strict where it is strict, repaired where the fault is harmless, never completed.

Repairs: trailing commas, Python literals, raw control characters in strings, `\\n` written as two characters between
tokens, a fence around the value, anything after a complete value. The text of a string is never changed.
"""

import json
import math
import re
from typing import Any

from engine.parsing.source import Broken
from engine.strict_json import MAX_DEPTH

_CONTAINERS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|([\[{])|([\]}])', re.DOTALL)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_FENCE = re.compile(r"\s*```[\w+-]*[ \t]*(?:\r?\n|\\n)?")
_SPACE = re.compile(r"(?:\s|\\[nrt])*+")
_WORD = re.compile(r"[\w.+-]++")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9_]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([0-7]{1,3})|(\r?\n)|(.))", re.DOTALL)
_STRINGS = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\\": "\\", "'": "'", '"': '"'}
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_PAIRS = {"{": "}", "[": "]", "(": ")"}


def strict(text: str) -> Any:
    """The value of a strict JSON text, repeated keys resolved to the last. Raises `Broken`."""
    _check_depth(text)
    try:
        return _cleaned(json.loads(text, parse_constant=_refuse, parse_float=_float), text)
    except (ValueError, RecursionError) as exc:  # ValueError also for integers of more digits than Python converts
        raise Broken(str(exc)) from None


def repaired(text: str) -> Any:
    """The value at the start of `text`, strict if that works, else with the repairs above. Raises `Broken`."""
    try:
        return strict(text)
    except Broken:
        pass
    if fence := _FENCE.match(text):
        text = text[fence.end() :]
    return _cleaned(_Relaxed(text).whole(), text)


def replace_surrogates(text: str) -> str:
    """Both halves of a pair become one character, a lone half U+FFFD: what is left can be encoded."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _cleaned(value: Any, source: str) -> Any:
    return _deep_clean(value) if _ESCAPED_SURROGATE.search(source) or _SURROGATE.search(source) else value


def _deep_clean(value: Any) -> Any:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_deep_clean(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): _deep_clean(item) for key, item in value.items()}
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _CONTAINERS.finditer(text):
        depth += (token[1] is not None) - (token[2] is not None)
        if depth > MAX_DEPTH:
            raise Broken(f"more than {MAX_DEPTH} nested containers")


def _refuse(name: str) -> Any:
    raise Broken(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Broken(f"{text[:40]} does not fit a double")
    return value


class _Relaxed:
    """A reader of one JSON-like or Python-like literal at the start of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def whole(self) -> Any:
        self._skip()
        return self._value(0)

    def _skip(self) -> str:
        found = _SPACE.match(self.text, self.pos)
        assert found is not None
        self.pos = found.end()
        return self.text[self.pos : self.pos + 1]

    def _value(self, depth: int) -> Any:
        char = self.text[self.pos : self.pos + 1]
        if depth > MAX_DEPTH:
            raise Broken(f"more than {MAX_DEPTH} nested containers")
        if char == "{":
            return self._object(depth)
        if char in ("[", "("):
            return self._array(depth, _PAIRS[char])
        if char in _STRINGS:
            return self._string(char)
        return self._word()

    def _object(self, depth: int) -> dict[str, Any]:
        self.pos += 1
        result: dict[str, Any] = {}
        while (char := self._skip()) != "}":
            if char not in _STRINGS:
                raise Broken("a key must be a string")
            key = self._string(char)
            if self._skip() != ":":
                raise Broken("a colon is missing")
            self.pos += 1
            self._skip()
            result[key] = self._value(depth + 1)
            self._comma("}")
        self.pos += 1
        return result

    def _array(self, depth: int, closing: str) -> list[Any]:
        self.pos += 1
        result: list[Any] = []
        while self._skip() != closing:
            result.append(self._value(depth + 1))
            self._comma(closing)
        self.pos += 1
        return result

    def _comma(self, closing: str) -> None:
        char = self._skip()
        if char == ",":
            self.pos += 1
        elif char != closing:
            raise Broken("a comma is missing, or the text ends")

    def _string(self, quote: str) -> str:
        found = _STRINGS[quote].match(self.text, self.pos)
        if not found:
            raise Broken("a string does not end")
        self.pos = found.end()
        return unescape(found[1], quote)

    def _word(self) -> Any:
        found = _WORD.match(self.text, self.pos)
        if not found:
            raise Broken("a value is missing")
        self.pos = found.end()
        return literal(found.group())


def literal(word: str) -> Any:
    """A bare word as JSON or Python means it: true, None, -4.25. Raises `Broken`."""
    if word in _WORDS:
        return _WORDS[word]
    if not _NUMBER.fullmatch(word) or not any(char.isdigit() for char in word):
        raise Broken(f"{word[:40]!r} is no value")
    try:
        return int(word) if re.fullmatch(r"[+-]?[0-9_]+", word) else _float(word)
    except ValueError as exc:
        raise Broken(str(exc)) from None


def unescape(body: str, quote: str) -> str:
    """The text of a quoted string: JSON's escapes and Python's; an escape that neither knows stays as written."""
    return _ESCAPE.sub(lambda found: _unescaped(found, quote), body) if "\\" in body else body


def _unescaped(found: re.Match[str], quote: str) -> str:
    if code := found[1] or found[2] or found[3]:
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else found.group()
    if found[4]:
        return chr(int(found[4], 8))
    if found[5]:  # a line continued, as Python has it
        return ""
    if found[6] == "/" and quote == '"':
        return "/"
    return _SIMPLE.get(found[6], found.group())
