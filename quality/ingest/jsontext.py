"""Strict JSON whose parts can still be read as they were spelled.

`jsonquick.read` takes what is good beyond doubt. The rest the standard library's C scanner reads, with hooks for what
it lets pass. Only when something is wrong does `jsonfault.explain` walk the text once more, slowly and by the letter,
to say what, where and in which field: so verdict and position never depend on one Python version's wording.

Refused, by code: `invalid_utf8`, `malformed_json` (also a byte order mark), `non_finite_number` (NaN, Infinity),
`number_out_of_range` (over- or underflows a double, or more than 308 digits before or after the point),
`duplicate_key` (compared after unescaping), `key_too_long` (over 1,024 characters), `too_deep` (more than 100
containers in a field of a record), `too_large` (over 5 MiB).

Kept: NUL and lone surrogates, as the escapes `\\u0000` and `\\ud800` by which JSON text writes them. That is the
reversible form in which evidence holds them. `storable` makes the copy for plain text columns; that one is for show.
"""

import json
import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from typing import Any

import msgspec

from quality.ingest import jsonfault, jsonquick
from quality.ingest.jsonfault import ITEM_DEPTH, MAX_BYTES, MAX_DEPTH, MAX_DIGITS, MAX_KEY_CHARS, JsonError

__all__ = ["MAX_BYTES", "MAX_DEPTH", "JsonError", "Node", "dump", "escape_surrogates", "parse", "storable"]

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*+")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: an opening bracket is +1, a closing one -1


class _Refused(ValueError):
    """Raised by a hook inside the C scanner; `jsonfault.explain` finds out why."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Refused
    # Joining all keys costs less than measuring each, and hardly an object has 1,024 characters of them.
    if len("".join(members)) > MAX_KEY_CHARS and max(map(len, members)) > MAX_KEY_CHARS:
        raise _Refused
    return members


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS and len(text.lstrip("-")) > MAX_DIGITS:
        raise _Refused
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    suspect = math.isinf(value) or value == 0.0 or len(text) > MAX_DIGITS
    if suspect and jsonfault.fault_of_number(text):
        raise _Refused
    return value


def _constant(text: str) -> None:
    raise _Refused


def _scanner(**hooks: Any) -> Callable[[str, int], tuple[Any, int]]:
    """Reads one value of a text from a position: (value, end). Raises ValueError, StopIteration, RecursionError."""
    return json.JSONDecoder(**hooks).scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


_numbers: dict[str, Any] = {"parse_int": _integer, "parse_float": _number, "parse_constant": _constant}
_scan = _scanner(object_pairs_hook=_object, **_numbers)
_scan_repeating = _scanner(**_numbers)  # a repeated key is no fault here: the last one wins
_scan_checked = _scanner()
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_split_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Node:
    """One value of a checked text: what it is (`value`) and how it was spelled (`raw`, real UTF-8)."""

    __slots__ = ("_elements", "_members", "_spelled", "raw", "value")

    def __init__(self, raw: bytes, value: Any):
        self.raw = raw
        self.value = value
        self._spelled: Mapping[str, Any] | None = None  # members as they were cut out
        self._members: dict[str, Node] | None = None
        self._elements: list[Node] | None = None

    @property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def members(self) -> "dict[str, Node]":
        """Nodes of an object's members; empty for anything else."""
        if self._members is None:
            self._members = {}
            if isinstance(self.value, dict):
                value = self.value
                self._members = {key: Node(bytes(piece), value[key]) for key, piece in self._pieces().items()}
        return self._members

    @property
    def elements(self) -> "list[Node]":
        """Nodes of an array's elements; empty for anything else."""
        if self._elements is None:
            self._elements = []
            if isinstance(self.value, list):
                pieces = _elements_of(self.raw)
                self._elements = [Node(bytes(piece), value) for piece, value in zip(pieces, self.value, strict=True)]
        return self._elements

    def get(self, key: str) -> "Node | None":
        """Member `key`; None if it is absent or null."""
        if not isinstance(self.value, dict) or (value := self.value.get(key)) is None:
            return None
        return Node(bytes(self._pieces()[key]), value) if self._members is None else self._members[key]

    def text_of(self, key: str) -> str | None:
        """How member `key` is spelled; None if it is absent or null."""
        if not isinstance(self.value, dict) or self.value.get(key) is None:
            return None
        return str(self._pieces()[key], "utf-8")

    def _pieces(self) -> Mapping[str, Any]:
        """How each member of an object is spelled, as bytes or what makes some."""
        if self._spelled is None:
            self._spelled = _members_of(self.raw)
        return self._spelled


def _members_of(raw: bytes) -> Mapping[str, Any]:
    """Key and spelling of each member of a checked object."""
    try:
        return _split_object(raw)
    except msgspec.DecodeError:  # msgspec refuses lone surrogates, JSON does not
        return dict(_slow_pieces(raw.decode(), is_object=True))


def _elements_of(raw: bytes) -> Sequence[Any]:
    """The spelling of each element of a checked array."""
    try:
        return _split_array(raw)
    except msgspec.DecodeError:
        return [piece for _, piece in _slow_pieces(raw.decode(), is_object=False)]


def _slow_pieces(text: str, *, is_object: bool) -> Iterator[tuple[str, bytes]]:
    """The same from Python; only for text that was checked before, which is what makes it so short."""

    def skip(position: int) -> int:
        return _SPACE.match(text, position).end()  # type: ignore[union-attr]

    position = skip(skip(0) + 1)
    while text[position] not in "]}":
        key = ""
        if is_object:
            key, position = scanstring(text, position + 1, True)
            position = skip(skip(position) + 1)
        _, end = _scan_checked(text, position)
        yield key, text[position:end].encode()
        position = skip(end)
        if text[position] == ",":
            position = skip(position + 1)


def parse(raw: bytes, *, depth: int = ITEM_DEPTH, limit: int = MAX_BYTES, repeated_keys: bool = False) -> Node:
    """Check one JSON text and return its root; raises JsonError.

    `repeated_keys` is for what a model wrote: there the last one wins (evidence keeps both).
    """
    if len(raw) > limit:
        raise JsonError("too_large", f"{len(raw):,} bytes; the limit for one item is {limit:,}.")
    value = jsonquick.read(raw)
    try:
        if value is jsonquick.DOUBT:
            value = _scan_document(raw.decode(), _scan_repeating if repeated_keys else _scan)
        deep = raw.count(b"{") + raw.count(b"[") > depth and _depth(raw) > depth
    except (ValueError, StopIteration, RecursionError) as error:
        raise jsonfault.explain(raw, depth=depth, repeated_keys=repeated_keys) from error
    if deep:
        raise jsonfault.explain(raw, depth=depth, repeated_keys=repeated_keys)
    return Node(raw.strip(b" \t\n\r"), value)


def _scan_document(text: str, scan: Any) -> Any:
    """Raises ValueError, StopIteration, RecursionError."""
    value, end = scan(text, _SPACE.match(text).end())  # type: ignore[union-attr]
    if _SPACE.match(text, end).end() != len(text):  # type: ignore[union-attr]
        raise _Refused
    return value


def _depth(raw: bytes) -> int:
    """How many containers are open at once in a well-formed text."""
    brackets = _STRING.sub(b"", raw).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(array("b", brackets)), default=0)


def dump(value: Any) -> str:
    """JSON text of a value that has no spelling of its own: real UTF-8, NUL and lone surrogates as escapes."""
    return escape_surrogates(encode_basestring(value) if type(value) is str else _dump(value))


def escape_surrogates(text: str) -> str:
    """The same JSON text, with lone surrogates in its strings written as the escapes UTF-8 can carry."""
    if text.isascii():
        return text
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def storable(text: str) -> str:
    """A copy for a plain text column (names, error texts): NUL and lone surrogates become U+FFFD. Not reversible; the
    evidence beside it holds the original."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)
