"""A file or a request body, one item at a time, in constant memory.

Shapes: a JSON array of items, JSON Lines (CRLF, blank lines), one JSON object, or several after each other. Items are
cut out by structure alone (quotes and brackets); whether one is good JSON is for `jsontext.parse` to say, so that a bad
item loses only itself.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from quality.ingest.jsontext import MAX_BYTES
from quality.ingest.pieces import AROUND, LISTS, Pieces

MAX_TOTAL_BYTES = 512 * 1024 * 1024
CHUNK_BYTES = 256 * 1024

Shape = Literal["auto", "lines", "json"]

_SPACE = re.compile(rb"[ \t\n\r]*+")
_TEXT = rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")'  # what holds no bracket, or only brackets in strings
_FLAT = rb"[\[{]" + _TEXT + rb"*+[\]}]"
_LOW = rb"[\[{](?:" + _TEXT + rb"|" + _FLAT + rb")*+[\]}]"
# All up to and with the next bracket, over containers of one or two levels, which most are, in one go.
_BRACKET = re.compile(rb"(?:" + _TEXT + rb"|" + _LOW + rb")*+([\[\]{}])", re.DOTALL)
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_WORD = re.compile(rb'[^,\[\]{}" \t\n\r]*+')
_BALANCED = re.compile(rb"(?:" + _TEXT + rb"|" + _LOW + rb")*+", re.DOTALL)
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_LINE_OF_OBJECT = re.compile(rb"\n[ \t]*+\{")
_SIGNATURES = (
    (b"\xef\xbb\xbf", "malformed_json", "It begins with a byte order mark. Save it as UTF-8 without one."),
    (b"\xff\xfe", "invalid_utf8", "It is UTF-16. Save it as UTF-8 without byte order mark."),
    (b"\xfe\xff", "invalid_utf8", "It is UTF-16. Save it as UTF-8 without byte order mark."),
    (b"\x1f\x8b", "malformed_json", "It is compressed with gzip. Unpack it first."),
    (b"PK\x03\x04", "malformed_json", "It is a zip archive. Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "malformed_json", "It is compressed with zstd. Unpack it, or pack it with gzip."),
    (b"\xfd7zXZ", "malformed_json", "It is compressed with xz. Unpack it, or pack it with gzip."),
    (b"BZh", "malformed_json", "It is compressed with bzip2. Unpack it, or pack it with gzip."),
)


class Unreadable(Exception):
    """Nothing (more) of a file can be read; the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Item(msgspec.Struct, frozen=True, gc=False):
    """The bytes of one item, not yet checked. `index` counts from 0; `line` from 1, where the item begins. A `piece` is
    a part of a document that could not be held as a whole. `part` counts the files of an archive."""

    index: int
    line: int
    raw: bytes
    piece: bool = False
    part: int = 0


@dataclass(frozen=True, slots=True)
class ItemError:
    """One item that was refused, and why; `part` as in `Item`."""

    index: int
    line: int
    code: str
    path: str
    message: str
    part: int = 0


class _Cut(Exception):
    """The file ends inside a document; `path` is where."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Reader:
    """Iterate for `Item`s and `ItemError`s; raises Unreadable. `bytes_read` tells the progress."""

    def __init__(
        self,
        read: Callable[[int], bytes],
        *,
        shape: Shape = "auto",
        max_total_bytes: int = MAX_TOTAL_BYTES,
        max_item_bytes: int = MAX_BYTES,
        first_index: int = 0,
    ) -> None:
        self.bytes_read = 0
        self._read = read
        self._shape = shape
        self._max_total = max_total_bytes
        self._max_item = max_item_bytes
        self._data = b""
        self._at = 0  # all before it is done with
        self._line = 1
        self._counted = 0  # lines are counted up to here
        self._index = first_index - 1

    def __iter__(self) -> Iterator[Item | ItemError]:
        while len(self._data) < CHUNK_BYTES and self._more():  # enough to tell the shape by, however small the pieces
            pass
        if not self._skip_space():
            raise Unreadable("malformed_json", "There is nothing in it.")
        self._refuse_other_kinds()
        if self._shape == "lines" or (self._shape == "auto" and self._has_lines()):
            yield from self._lines()
        elif self._here() == b"[":
            yield from self._array()
        else:
            yield from self._values()

    @property
    def line(self) -> int:
        """The line that reading has come to."""
        return self._count_lines(self._at)

    @property
    def next_index(self) -> int:
        """The index that the next item has."""
        return self._index + 1

    def too_large(self) -> Unreadable:
        limit = self._max_total / (1024 * 1024)
        return Unreadable("too_large", f"It is larger than {limit:g} MiB. Split it and send the parts one by one.")

    # --- bytes --------------------------------------------------------------------------------------------------------
    def _more(self) -> bool:
        """Read on; False at the end. Reads at least as much as is held, so that rescanning stays linear."""
        chunk = self._read(max(CHUNK_BYTES, len(self._data) - self._at))
        if not chunk:
            return False
        self.bytes_read += len(chunk)
        if self.bytes_read > self._max_total:
            raise self.too_large()
        self._count_lines(self._at)
        self._data = self._data[self._at :] + chunk
        self._at = self._counted = 0
        return True

    def _count_lines(self, position: int) -> int:
        """Number of the line at `position`, which may only grow."""
        self._line += self._data.count(b"\n", self._counted, position)
        self._counted = position
        return self._line

    def _skip_space(self) -> bool:
        """Go to the next character that is no blank; False at the end."""
        while True:
            self._at = _SPACE.match(self._data, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._data):
                return True
            if not self._more():
                return False

    # --- shape --------------------------------------------------------------------------------------------------------
    def _refuse_other_kinds(self) -> None:
        head = self._data[self._at : self._at + CHUNK_BYTES]
        for signature, code, message in _SIGNATURES:
            if head.startswith(signature):
                raise Unreadable(code, message)
        if head[257:262] == b"ustar":
            raise Unreadable("malformed_json", "It is a tar archive. Send the files in it, or a zip of them.")
        if head[:4].count(0) >= 2 or (head[:1] in b"[{" and head[1:2] == b"\0"):
            raise Unreadable("invalid_utf8", "It is UTF-16 or UTF-32. Save it as UTF-8 without byte order mark.")
        if head[:1] not in (b"[", b"{") and (b"\0" in head or not _LINE_OF_OBJECT.search(head)):
            raise Unreadable(
                "malformed_json",
                f"It begins with {head[:12].decode(errors='replace')!a}. Expected a JSON object, an array of "
                "objects, or one object a line.",
            )

    def _has_lines(self) -> bool:
        """Is this JSON Lines? If the first line holds a whole object and another line follows, or if the second line
        begins with an object and so the first one is a broken item."""
        first = self._here()
        if first == b"[":
            return False
        while (newline := self._data.find(b"\n", self._at)) < 0:
            if len(self._data) - self._at > self._max_item or not self._more():
                return False
        following = _SPACE.match(self._data, newline).end()  # type: ignore[union-attr]
        while following == len(self._data):
            newline, following = newline - self._at, following - self._at
            if not self._more():
                return False
            following = _SPACE.match(self._data, following).end()  # type: ignore[union-attr]
        if self._data.startswith(b"{", following):
            return True
        if first != b"{":
            return True
        first_line = newline - self._at
        length, depth = self._length_of_container()
        return depth == 0 and length <= first_line

    # --- lines --------------------------------------------------------------------------------------------------------
    def _lines(self) -> Iterator[Item | ItemError]:
        while self._skip_space():
            line = self._count_lines(self._at)
            self._index += 1
            end = self._data.find(b"\n", self._at)
            while end < 0 and len(self._data) - self._at <= self._max_item:
                if not self._more():
                    end = len(self._data)
                    break
                end = self._data.find(b"\n", self._at)
            if end < 0 or end - self._at > self._max_item + 1:
                self._skip_line()
                yield self._too_large(line)
                continue
            raw = self._data[self._at : end].rstrip(b" \t\r")
            self._at = end
            yield Item(self._index, line, raw)

    def _skip_line(self) -> None:
        while (end := self._data.find(b"\n", self._at)) < 0:
            self._at = len(self._data)
            if not self._more():
                return
        self._at = end

    def _too_large(self, line: int) -> ItemError:
        limit = self._max_item / (1024 * 1024)
        return ItemError(self._index, line, "too_large", "", f"The item is larger than {limit:g} MiB.")

    # --- structure ----------------------------------------------------------------------------------------------------
    def _values(self) -> Iterator[Item | ItemError]:
        """Values after each other; exactly one if the shape is `json`."""
        while self._skip_space():
            line = self._count_lines(self._at)
            if self._shape == "auto" and self._is_unbounded():
                yield from self._document(line)
                continue
            item = self._value(line)
            if item is None:  # the parser says best what is missing
                item = Item(self._index, line, self._data[self._at :])
                self._at = len(self._data)
            if self._shape == "json" and self._skip_space():
                raise Unreadable("malformed_json", "There is more after the JSON value. Send an array, or JSON Lines.")
            yield item

    # --- documents that cannot be held, or are cut off ----------------------------------------------------------------
    def _is_unbounded(self) -> bool:
        if self._here() != b"{":
            return False
        length, depth = self._length_of_container()
        return depth > 0 or length > self._max_item

    def _document(self, line: int) -> Iterator[Item | ItemError]:
        """Such a document in pieces. One without a list to take apart is an item that is refused."""
        self._index += 1
        index, is_held = self._index, len(self._data) - self._at <= self._max_item
        rest = self._data[self._at :] if is_held else b""
        pieces, found = Pieces(), False
        end: ItemError | Unreadable | None = None
        try:
            for each in self._part((), "", b"", pieces):
                found = True
                yield each
        except _Cut as cut:
            self._at = len(self._data)
            message = "It ends before this is complete. All that was complete before was read."
            end = ItemError(index, self._count_lines(self._at), "truncated", cut.path, message)
        except Unreadable as error:
            end = error
        if (piece := pieces.take()) is not None:
            found = True
            yield Item(index, pieces.line, piece, piece=True)
        self._index = index
        if isinstance(end, Unreadable):
            raise end
        if found:
            yield from [end] if end else []
        elif is_held and end:
            yield Item(index, line, rest)  # the parser says best what is missing
        else:
            yield self._too_large(line)

    def _part(self, path: tuple[str, ...], where: str, key: bytes, pieces: Pieces) -> Iterator[Item | ItemError]:
        """Pieces of a container with a list somewhere inside, and what is too large in it; raises _Cut, Unreadable."""
        bracket = self._here()
        pieces.enter(bracket, key)
        self._at += 1
        position = 0
        while self._next(b"}" if bracket == b"{" else b"]", position, where):
            if bracket == b"{":
                yield from self._member(path, where, pieces)
            elif path in LISTS:
                yield from self._element(f"{where}[{position}]", pieces)
            elif self._here() == b"{":
                yield from self._part(path, f"{where}[{position}]", b"", pieces)
            else:
                self._take(where)
            position += 1
        if path in LISTS and (piece := pieces.take()) is not None:
            yield Item(self._index, pieces.line, piece, piece=True)
        pieces.leave()

    def _next(self, end: bytes, position: int, where: str) -> bool:
        """Go to the next member or element; False after the last. Raises _Cut."""
        if not self._skip_space():
            raise _Cut(where)
        if self._here() == end:
            self._at += 1
            return False
        if position:
            self._expect(b",", where)
        return True

    def _expect(self, character: bytes, where: str) -> None:
        """Pass a character and the space after it; raises _Cut, Unreadable."""
        if not self._skip_space():
            raise _Cut(where)
        if self._here() != character:
            raise self._unexpected(repr(character.decode()), where)
        self._at += 1
        if not self._skip_space():
            raise _Cut(where)

    def _unexpected(self, expected: str, where: str) -> Unreadable:
        line, found = self._count_lines(self._at), self._here().decode(errors="replace")
        where = where or "the document"
        message = f"Line {line}: expected {expected} in {where}, found {found!a}. What follows was not read."
        return Unreadable("malformed_json", message)

    def _key(self, where: str) -> bytes:
        length = self._length_of_scalar(_STRING)
        key = self._data[self._at : self._at + length]
        self._at += length
        if not self._skip_space():
            raise _Cut(where)
        return key

    def _member(self, path: tuple[str, ...], where: str, pieces: Pieces) -> Iterator[Item | ItemError]:
        if self._here() != b'"':
            raise self._unexpected("a key in double quotes", where)
        key = self._key(where)
        name = _plain(key)
        inside, field = (*path, name), f"{where}.{name}" if where else name
        self._expect(b":", where)
        here = self._here()
        if (here == b"[" and inside in LISTS) or (here in (b"{", b"[") and inside in AROUND):
            yield from self._part(inside, field, key, pieces)
            return
        value = self._take(field)
        if not self._skip_space():  # a scalar may be cut anywhere
            raise _Cut(field)
        if isinstance(value, Item):
            pieces.member(key, value.raw)

    def _element(self, where: str, pieces: Pieces) -> Iterator[Item | ItemError]:
        line = self._count_lines(self._at)
        element = self._take(where)
        if isinstance(element, ItemError):
            yield ItemError(element.index, line, element.code, where, element.message)
        elif element.raw[:1] == b"{":
            pieces.add(element.raw, line)
        if pieces.is_full and (piece := pieces.take()) is not None:
            yield Item(self._index, pieces.line, piece, piece=True)

    def _take(self, where: str) -> Item | ItemError:
        """A value that is no item of its own; raises _Cut."""
        value = self._value(self._line)
        self._index -= 1
        if value is None:
            raise _Cut(where)
        return value

    def _array(self) -> Iterator[Item | ItemError]:
        self._at += 1
        if self._skip_space() and self._here() == b"]":
            self._at += 1
        else:
            yield from self._elements()
        if self._skip_space():
            yield self._error("malformed_json", "There is more after the end of the array; it was not read.")

    def _elements(self) -> Iterator[Item | ItemError]:
        """The items of an array whose opening bracket was read, and its end."""
        while self._skip_space():
            if self._here() in (b",", b"]"):
                yield self._error("malformed_json", f"Expected an item, found {self._here().decode()!r}.")
            else:
                item = self._value(self._count_lines(self._at))
                if item is None:
                    self._at = len(self._data)
                    self._index -= 1
                    break
                yield item
            if not self._skip_space():
                break
            separator = self._here()
            self._at += 1
            if separator == b"]":
                return
            if separator != b",":
                raise Unreadable(
                    "malformed_json",
                    f"Line {self._count_lines(self._at)}: expected ',' or ']' after item {self._index}, found "
                    f"{separator.decode(errors='replace')!a}. What follows was not read.",
                )
        yield self._error("truncated", "It ends before its array is closed. All complete items were read.")

    def _here(self) -> bytes:
        return self._data[self._at : self._at + 1]

    def _error(self, code: str, message: str) -> ItemError:
        self._index += 1
        return ItemError(self._index, self._count_lines(self._at), code, "", message)

    def _value(self, line: int) -> Item | ItemError | None:
        """The value at hand, good or not; None if the file ends inside it."""
        self._index += 1
        here = self._here()
        if here in (b"{", b"["):
            length, depth = self._length_of_container()
            if depth:
                too_large = len(self._data) - self._at > self._max_item
                return self._too_large(line) if too_large and self._skip_container(length, depth) else None
            if length > self._max_item:
                self._at += length
                return self._too_large(line)
        else:
            length = self._length_of_scalar(_STRING if here == b'"' else _WORD)
        raw = self._data[self._at : self._at + length]
        self._at += length
        return Item(self._index, line, raw)

    def _length_of_container(self) -> tuple[int, int]:
        """Bytes up to where its brackets are balanced, and 0; or bytes up to the last bracket read and how many are
        open there, at the end of the file or when it grows too large."""
        length = depth = 1
        while True:
            match = _BRACKET.match(self._data, self._at + length)
            if match:
                length = match.end() - self._at
                depth += 1 if match[1] in b"[{" else -1
                if depth == 0:
                    return length, 0
            elif len(self._data) - self._at > self._max_item or not self._more():
                return length, depth

    def _length_of_scalar(self, pattern: re.Pattern[bytes]) -> int:
        while True:
            match = pattern.match(self._data, self._at)
            if match and match.end() < len(self._data):
                return max(1, match.end() - self._at)
            if len(self._data) - self._at > self._max_item:
                raise Unreadable("too_large", "It holds one endless word. Expected objects.")
            if not self._more():
                return len(self._data) - self._at

    def _skip_container(self, length: int, depth: int) -> bool:
        """Read on to the end of a container that is too large to hold; False if the file ends first."""
        self._at += length
        inside = False
        while True:
            self._at = (_INSIDE if inside else _BALANCED).match(self._data, self._at).end()  # type: ignore[union-attr]
            here = self._here()
            if here in (b"", b"\\"):  # at the end of what was read, maybe between a backslash and its character
                if not self._more():
                    return False
                continue
            self._at += 1
            if here == b'"':
                inside = not inside
            else:
                depth += 1 if here in b"[{" else -1
                if depth == 0:
                    return True


def _plain(key: bytes) -> str:
    """The name of a member, as far as it matters for finding lists and for messages."""
    return key[1:-1].decode(errors="replace")[:100]
