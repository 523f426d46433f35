"""Documents that cannot be held, or are cut off, in pieces."""

import io
import json

import pytest

from quality.ingest import pieces
from quality.ingest.reader import Item, ItemError, Reader, Unreadable

DOCUMENTS = {
    "otlp": lambda elements: {
        "resourceSpans": [
            {"resource": {"a": 1}, "scopeSpans": [{"spans": elements[:1]}, {"spans": elements[1:2], "url": "x"}]},
            {"scopeSpans": [{"spans": elements[2:]}]},
        ]
    },
    "listing": lambda elements: {"data": elements, "next_cursor": None},
    "mlflow": lambda elements: {"info": {"trace_id": "tr-1"}, "data": {"spans": elements}},
    "langfuse": lambda elements: {"id": "t", "sessionId": "c", "observations": elements, "tags": []},
    "langsmith": lambda elements: {"id": "r", "extra": {"m": [1, "]}"]}, "child_runs": elements},
}
ELEMENTS = [{"n": n, "text": ']}"' * 40, "held": [{}]} for n in range(9)]


def read(data: bytes, **limits: int) -> list[Item | ItemError]:
    return list(Reader(io.BytesIO(data).read, **limits))


def elements(value) -> list:
    """What is found at the places of lists."""
    if isinstance(value, dict):
        return [e for key, held in value.items() if key not in ("info", "extra", "resource") for e in elements(held)]
    if isinstance(value, list):
        return [e for held in value for e in ([held] if "n" in held else elements(held))]
    return []


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_document_that_is_too_large_comes_in_pieces_of_its_own_form(name, indent, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", 300)
    data = json.dumps(DOCUMENTS[name](ELEMENTS), indent=indent).encode()
    found = read(data, max_item_bytes=1_000)
    assert all(isinstance(item, Item) and item.piece and item.index == 0 for item in found), found
    parts = [json.loads(item.raw) for item in found]
    assert [e for part in parts for e in elements(part)] == ELEMENTS
    assert len(parts) > 3
    if name == "mlflow":
        assert all(part["info"] == {"trace_id": "tr-1"} for part in parts)
    if name == "langfuse":
        assert all(part["sessionId"] == "c" for part in parts)


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_document_cut_anywhere_keeps_what_is_complete_and_says_where_it_ends(name, indent):
    data = json.dumps(DOCUMENTS[name](ELEMENTS[:4]), indent=indent).encode()
    kept_before = 0
    for length in range(1, len(data)):
        *items, last = read(data[:length])
        kept = [e for item in items for e in elements(json.loads(item.raw))]
        assert kept == ELEMENTS[: len(kept)]
        assert len(kept) >= kept_before
        kept_before = len(kept)
        if kept:
            assert isinstance(last, ItemError)
            assert (last.code, last.line) == ("truncated", data[:length].count(b"\n") + 1)
        else:
            assert isinstance(last, Item)
            assert last.raw == data[:length]
    assert kept_before == 4
    assert [item.raw for item in read(data)] == [data]


def test_where_it_ends_is_told_by_field():
    data = json.dumps(DOCUMENTS["otlp"](ELEMENTS)).encode()
    error = read(data[: data.index(b'"n": 4') + 3])[-1]
    assert error.path == "resourceSpans[1].scopeSpans[0].spans[2]"


def test_an_element_that_is_too_large_loses_only_itself():
    data = json.dumps({"data": [*ELEMENTS[:2], {"n": 2, "text": "x" * 2_000}, *ELEMENTS[3:]]}).encode()
    found = read(data, max_item_bytes=1_000)
    (refused,) = [item for item in found if isinstance(item, ItemError)]
    assert (refused.code, refused.path) == ("too_large", "data[2]")
    kept = [e["n"] for item in found if isinstance(item, Item) for e in elements(json.loads(item.raw))]
    assert kept == [0, 1, 3, 4, 5, 6, 7, 8]


def test_a_document_without_such_a_list_is_refused_as_before():
    large = json.dumps({"messages": ELEMENTS * 3}).encode()
    (refused,) = read(large, max_item_bytes=1_000)
    assert (refused.code, refused.index) == ("too_large", 0)
    first, second = read(large + b"\n\n" + large, max_item_bytes=1_000)
    assert (first.index, second.index, second.line) == (0, 1, 3)


def test_what_follows_a_document_in_pieces_is_read():
    data = json.dumps({"data": ELEMENTS}, indent=1).encode() + b"\n" + json.dumps({"x": 1}, indent=1).encode()
    found = read(data, max_item_bytes=1_000)
    assert (found[-1].index, json.loads(found[-1].raw)) == (1, {"x": 1})


@pytest.mark.parametrize(
    "broken", [b'{"data": [{"n": 1} {"n": 2}', b'{"data": [{"n": 1}], 7', b'{"data": [{"n": 1}], "a" 7']
)
def test_a_document_with_a_fault_of_its_own_is_read_up_to_it(broken):
    items = iter(Reader(io.BytesIO(broken).read))
    assert json.loads(next(items).raw) == {"data": [{"n": 1}]}
    with pytest.raises(Unreadable, match="Line 1: expected"):
        next(items)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pieces_do_not_depend_on_how_the_bytes_come(size):
    data = json.dumps(DOCUMENTS["otlp"](ELEMENTS)).encode()[:-40]
    stream = io.BytesIO(data)
    assert list(Reader(lambda _: stream.read(size), max_item_bytes=1_000)) == read(data, max_item_bytes=1_000)
