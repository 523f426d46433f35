"""The quick verdict on a JSON text: good beyond doubt, or not decided.

msgspec reads JSON strictly, in a third of the time that the standard library's scanner takes with hooks, but lets some
things pass that we do not. Each of them is ruled out here by a look at the bytes that costs next to nothing; where such
a look cannot tell, the answer is `DOUBT`, and `jsontext.parse` decides by its slower ways. So what is decided here may
only ever be "good".

- Repeated keys: a parsed object has each key once, so writing the value again gives fewer colons than the text has.
  Colons in strings are the same on both sides, unless the text spells them as escapes.
- Long keys: looked for in what was written again, which has no blanks and no needless escapes.
- Numbers too long, or too small for a double: by a run of digits, or an exponent below zero after a number.
"""

import re
from typing import Any, Final

import msgspec

from quality.ingest.jsonfault import MAX_DIGITS, MAX_KEY_CHARS

DOUBT: Final = object()

_read = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode
_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)
_SMALL = re.compile(rb"[0-9][eE]-[0-9]")
_OF_NUMBER = b"0123456789.-"


def read(raw: bytes) -> Any:
    """The value of a text that is strict JSON without repeated keys, long keys and numbers out of range; or DOUBT. How
    deep it goes is not looked at."""
    try:
        value = _read(raw)
    except (msgspec.DecodeError, RecursionError):
        return DOUBT
    alike = raw.translate(_ALIKE)
    if _LONG_NUMBER in alike or (b"0e-0" in alike and _may_be_small(raw)):
        return DOUBT
    if type(value) is not dict and type(value) is not list:
        return value
    written = _write(value)
    if raw.count(b":") != written.count(b":") or (b"\\" in raw and (b"\\u003a" in raw or b"\\u003A" in raw)):
        return DOUBT
    if len(written) > MAX_KEY_CHARS and _may_have_long_key(written):
        return DOUBT
    return value


def _may_be_small(raw: bytes) -> bool:
    """Is there what may be a number with an exponent below zero? Such letters in a word or an id are none."""
    for found in _SMALL.finditer(raw):
        before = raw[max(0, found.start() - MAX_DIGITS) : found.start() + 1].rstrip(_OF_NUMBER)
        if not before or before[-1:] in b":,[ \t\n\r":
            return True
    return False


def _may_have_long_key(written: bytes) -> bool:
    """Is any key of a text without blanks longer than 1,024 bytes, or not to be told from what strings hold?"""
    if b"\\" not in written:
        if not _has_long_string(written):
            return False
    elif b'\\":' in written:
        return True
    for piece in written.split(b'":')[:-1]:  # each ends with a key
        if len(piece) > MAX_KEY_CHARS:
            start = piece.rfind(b'"')
            if len(piece) - start - 1 > MAX_KEY_CHARS or piece[start - 1 : start] == b"\\":
                return True
    return False


def _has_long_string(written: bytes) -> bool:
    """Are there more than 1,024 bytes without a quote? Goes in strides as long as that."""
    at = 0
    while at + MAX_KEY_CHARS < len(written):
        quote = written.rfind(b'"', at, at + MAX_KEY_CHARS + 1)
        if quote < 0:
            return True
        at = quote + 1
    return False
