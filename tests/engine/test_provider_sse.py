import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.providers.sse import SSEParser


def read(*chunks: bytes) -> list[str]:
    parser = SSEParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_each_line_end_of_the_standard_ends_a_line(end: bytes) -> None:
    assert read(end.join([b"data: one", b"", b"data: two", b"", b""])) == ["one", "two"]


def test_comments_and_other_fields_are_no_events() -> None:
    assert read(b": ping - 2026\n\nevent: message\nid: 7\nretry: 10\ndata: x\n\n: ping\n\n") == ["x"]


def test_the_blank_after_the_colon_is_optional_and_only_one_is_taken() -> None:
    assert read(b"data:x\n\ndata:  y\n\n") == ["x", " y"]


def test_several_data_lines_make_one_event() -> None:
    assert read(b"data: a\ndata: b\n\n") == ["a\nb"]


def test_a_byte_order_mark_is_skipped_even_in_pieces() -> None:
    stream = b"\xef\xbb\xbfdata: x\n\n"
    assert read(stream) == read(*(bytes([byte]) for byte in stream)) == ["x"]


def test_an_event_without_its_blank_line_counts_at_the_end() -> None:
    assert read(b"data: [DONE]") == ["[DONE]"]
    assert read(b"data: [DONE]\n") == ["[DONE]"]


def test_bytes_that_are_no_utf8_do_not_raise() -> None:
    assert read(b"data: \xff\xfe\n\n") == ["\ufffd\ufffd"]


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=8), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.booleans(),
    st.data(),
)
def test_any_split_of_the_bytes_gives_the_same_events(
    texts: list[str], end: bytes, mark: bool, data: st.DataObject
) -> None:
    stream = (b"\xef\xbb\xbf" if mark else b"") + b"".join(
        b": ping" + end + end + b"data: " + text.encode() + end + end for text in texts
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    assert read(*(stream[a:b] for a, b in itertools.pairwise(edges))) == texts


@given(st.lists(st.binary(max_size=20)))
def test_nothing_raises_on_arbitrary_bytes(chunks: list[bytes]) -> None:
    assert read(*chunks) == read(b"".join(chunks))


def test_a_line_in_a_million_pieces_takes_linear_time() -> None:
    def seconds(pieces: int) -> float:
        parser, started = SSEParser(), time.perf_counter()
        for _ in range(pieces):
            parser.feed(b"x" * 8)
        parser.finish()
        return time.perf_counter() - started

    seconds(1000)
    assert seconds(200_000) < 60 * max(seconds(20_000), 0.01)
