"""What the quick reader decides is what the slow one says; what it cannot decide it leaves alone."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.ingest import jsonquick, jsontext

TEXT = st.text(max_size=8) | st.sampled_from(['":', '\\":', "3e-4", "\\u003a", ":", "a" * 1100, "0" * 400])
NUMBER = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=5,
)
PIECES = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b" ", b"\n", b"\x0b", b"\x00", b"\x1f", b"\x7f", b"\xff"),
    *(b"\xed\xa0\x80", b"\\ud800", b"\\u003a", b"\\u0022", b"e-400", b"e400", b"9" * 309, b"0." + b"0" * 330 + b"1"),
    *(b"NaN", b"-Infinity", b'"a":1,', b'"\\u0061" :2,', b'"' + b"k" * 1025 + b'":1,', b'\\":', b"\xef\xbb\xbf", b"01"),
]


def slow(raw: bytes) -> object:
    """The verdict of the standard library's scanner with our hooks; DOUBT if it refuses the text."""
    try:
        return jsontext._scan_document(raw.decode(), jsontext._scan)
    except (ValueError, StopIteration, RecursionError):
        return jsonquick.DOUBT


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":{"b":[{"c":1,"c":1}]}}',
        b'{"a":":","a":"\\u003a\\u003A"}',  # as many colons as are written again
        b'{"' + b"k" * 1025 + b'":1}',
        b'{"x":"\\"","' + b"k" * 1025 + b'":1}',
        b'{"' + b'k\\":' * 300 + b'":1}',
        b'{"' + b"k" * 1020 + b'\\"\\"\\"\\"\\"":1}',
        b"[1e-400]",
        b"[0.1,-1E-999]",
        b"1e400",
        b"9" * 309,
        b"0." + b"0" * 400 + b"1",
        b"NaN",
        b'"\xff"',
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
def test_what_may_be_refused_is_not_decided(raw):
    assert jsonquick.read(raw) is jsonquick.DOUBT


@pytest.mark.parametrize(
    "value",
    [
        {"id": str(uuid.UUID(int=0x3E4_0000)), "also": "12e-4 of a word", "more": "message-1e-9x"},
        {"long": "v" * 5_000, "escaped": '"' * 2_000, "after": 1},
        {"k" * 1024: [1.5, -2, 1e22], "": None},
        ["x" * 400 + "1" * 300, 10**300],
        {"a": {"a": {"a": ":"}}, "b": "a:b:c"},
    ],
)
def test_what_is_usual_is_decided(value):
    assert jsonquick.read(json.dumps(value).encode()) == value


@given(JSON, st.lists(st.tuples(st.integers(0, 400), st.sampled_from(PIECES)), max_size=2), st.sampled_from([None, 1]))
def test_it_never_takes_what_the_slow_reader_refuses_or_reads_otherwise(value, pieces, indent):
    raw = json.dumps(value, ensure_ascii=False, indent=indent).encode(errors="replace")
    for at, piece in pieces:
        raw = raw[:at] + piece + raw[at:]
    found = jsonquick.read(raw)
    if found is not jsonquick.DOUBT:
        assert repr(found) == repr(slow(raw))
