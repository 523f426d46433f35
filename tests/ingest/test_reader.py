import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.ingest.reader import Item, Reader, Unreadable


def read(data: bytes, *, step: int | None = None, **options) -> list:
    """What came out: bytes of items, codes of refusals, and what ended it."""
    source = io.BytesIO(data)
    reader = Reader(lambda size: source.read(step or size), **options)
    found: list = []
    try:
        found.extend(item.raw if isinstance(item, Item) else item.code for item in reader)
    except Unreadable as error:
        found.append(error)
    return found


def failure(data: bytes, **options) -> Unreadable:
    *_, last = read(data, **options)
    assert isinstance(last, Unreadable)
    return last


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b'{"a":1}', [b'{"a":1}']),
        (b'{\n "a": [\n1]\n}\n', [b'{\n "a": [\n1]\n}']),
        (b'{\n"a":1\n}\n{\n"b":2}', [b'{\n"a":1\n}', b'{\n"b":2}']),
        (b'{"a":1}\r\n\r\n  {"b":2}  \r\n', [b'{"a":1}', b'{"b":2}']),
        (b'[{"a":1},\n {"b":"]}"}]\n', [b'{"a":1}', b'{"b":"]}"}']),
        (b'[1, "a,b" ,[2]]', [b"1", b'"a,b"', b"[2]"]),
        (b"[]", []),
        (b'{"a":1}\n{"b":\n{"c":3}\n', [b'{"a":1}', b'{"b":', b'{"c":3}']),
        (b'{"broken\n{"c":3}\n', [b'{"broken', b'{"c":3}']),
        (b'not json\n{"c":3}\n', [b"not json", b'{"c":3}']),
    ],
)
@pytest.mark.parametrize("step", [None, 1, 3])
def test_the_shape_is_found_out(data, wanted, step):
    assert read(data, step=step) == wanted


def test_items_know_their_line():
    data = b'[\n{"a":1},\n\n{"b":\n2}, {"c":3}\n]'
    assert [(item.index, item.line) for item in Reader(io.BytesIO(data).read)] == [(0, 2), (1, 4), (2, 5)]
    data = b'\n{"a":1}\n\nx\n'
    assert [(item.index, item.line) for item in Reader(io.BytesIO(data).read)] == [(0, 2), (1, 4)]


@pytest.mark.parametrize("cut", ['[{"a":1},{"b', '[{"a":1},', '[{"a":1}', '[{"a":1},{"b":"x'])
def test_a_cut_array_keeps_its_whole_items_and_tells_of_the_cut(cut):
    whole, *rest = read(cut.encode())
    assert (whole, rest[-1]) == (b'{"a":1}', "truncated")


def test_commas_astray_cost_nothing_but_themselves():
    assert read(b'[,{"a":1},,{"b":2},]') == [
        "malformed_json",
        b'{"a":1}',
        "malformed_json",
        b'{"b":2}',
        "malformed_json",
    ]


def test_what_follows_an_array_is_told():
    assert read(b'[{"a":1}] x') == [b'{"a":1}', "malformed_json"]


def test_a_broken_array_ends_where_it_breaks():
    first, error = read(b'[{"a":1}\n{"b":2}]')
    assert first == b'{"a":1}'
    assert "Line 2" in error.message


@pytest.mark.parametrize(
    ("data", "code", "hint"),
    [
        (b"", "malformed_json", "nothing"),
        (b" \n\t\n", "malformed_json", "nothing"),
        ("[1]".encode("utf-16"), "invalid_utf8", "UTF-16"),
        ("[1]".encode("utf-16-be"), "invalid_utf8", "UTF-16"),
        ('{"a":1}'.encode("utf-16-le"), "invalid_utf8", "UTF-16"),
        (b'\xef\xbb\xbf{"a":1}', "malformed_json", "byte order mark"),
        (b"\x1f\x8b\x08\x00", "malformed_json", "gzip"),
        (b"PK\x03\x04\x14", "malformed_json", "zip"),
        (b'\x89PNG\r\n\x1a\n\0\0{"a":1}\n{', "malformed_json", "PNG"),
        (b"tool,args\nget_order,{}\n", "malformed_json", "tool,args"),
        (b"null", "malformed_json", "object"),
    ],
)
def test_what_is_no_trace_file_gets_one_clear_answer(data, code, hint):
    error = failure(data)
    assert error.code == code
    assert hint in error.message


def test_an_item_too_large_loses_only_itself():
    huge = json.dumps({"a": 'x\\"[{' * 200_000}).encode()
    deep = b"[" + b"[1]," * 300_000 + b"1]"
    limit = 1024 * 1024
    for step in (None, 70_001):
        wanted = [b'{"z":1}', "too_large", b'{"b":1}']
        assert read(b'{"z":1}\n' + huge + b'\n{"b":1}', max_item_bytes=limit, step=step) == wanted
        assert read(b'[{"z":1},' + huge + b',{"b":1}]', max_item_bytes=limit, step=step) == wanted
        assert read(b'[{"z":1},' + deep + b',{"b":1}]', max_item_bytes=limit, step=step) == wanted
    assert read(b"[" + huge[:-3], max_item_bytes=limit) == ["truncated"]


def test_a_file_too_large_is_stopped_at_the_limit():
    data = b'{"a":1}\n' * 200_000
    *items, error = read(data, max_total_bytes=1024 * 1024)
    assert error.code == "too_large"
    assert "1 MiB" in error.message
    assert items
    assert set(items) == {b'{"a":1}'}


def test_a_body_said_to_be_one_json_value_is_no_more():
    assert read(b'{"a":1}', shape="json") == [b'{"a":1}']
    (error,) = read(b'{"a":1}{"b":2}', shape="json")
    assert error.code == "malformed_json"


def test_lines_said_to_be_lines_are_cut_at_each_newline():
    assert read(b'{"a":\n1}', shape="lines") == [b'{"a":', b"1}"]


OBJECTS = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.lists(st.integers(), max_size=3)), max_size=5
)


@given(OBJECTS, st.integers(1, 40), st.sampled_from(["array", "lines", "pretty"]))
def test_items_come_out_whole_however_the_bytes_arrive(objects, step, shape):
    texts = [json.dumps(item, ensure_ascii=False, indent=2 if shape == "pretty" else None) for item in objects]
    data = "\n".join(texts) if shape == "lines" else "[" + ",\n".join(texts) + "]"
    if not objects and shape == "lines":
        return
    assert read(data.encode(), step=step) == [text.encode() for text in texts]


@given(st.text(st.sampled_from('{}[]",:\\\n a1é'), max_size=40), st.integers(1, 9))
def test_no_text_hangs_or_breaks_the_reader(text, step):
    def plain(found):
        return [item.code if isinstance(item, Unreadable) else item for item in found]

    assert plain(read(text.encode(), step=step)) == plain(read(text.encode()))
