"""A look at a file: what it is taken for and why, of its beginning alone, with nothing stored."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from quality.ingest import preview
from quality.ingest.formats import FORMATS
from quality.ingest.noted import MEANINGS
from quality.ingest.preview import Preview
from tests.ingest.helpers import NEUTRAL, lines

CORPUS = Path(__file__).resolve().parents[1] / "corpus/data/traces"
FILES = sorted(path for path in CORPUS.glob("*/*.json") if not path.name.endswith(".expected.json"))


class Counted(io.RawIOBase):
    """Endless bytes, made as they are asked for; tells how many were."""

    def __init__(self, begin: bytes, again: bytes) -> None:
        self.given = 0
        self._begin = begin
        self._again = again

    def read(self, size: int = -1) -> bytes:
        assert size >= 0
        piece = self._begin[:size] or (self._again * (size // len(self._again) + 1))[:size]
        self._begin = self._begin[size:]
        self.given += len(piece)
        return piece


def look(data: bytes | Any, format_name: str = "auto") -> Preview:
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    return preview.look_at(file, max_bytes=512 * 1024 * 1024, format_name=format_name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_file_of_the_corpus_is_recognised_by_keys_that_it_has(path: Path) -> None:
    data = path.read_bytes()
    seen = look(data)
    (found,) = seen.formats
    assert found.name == path.parent.name
    assert found.label == FORMATS[found.name].LABEL
    assert found.keys
    for key in found.keys:
        assert f'"{key.removesuffix("[]").rpartition(".")[2]}"'.encode() in data or f'"{key}"'.encode() in data
    assert (seen.num_refused, seen.failure, seen.is_whole) == (0, "", True)
    assert seen.num_calls == sum(bool(one.tool) for one in seen.rows) > 0
    assert {warned.code for warned in seen.warnings} <= MEANINGS.keys()
    assert look(gzip.compress(data)) == seen


def test_counts_rows_warnings_and_refusals_of_a_whole_file() -> None:
    items = [
        NEUTRAL,
        {**NEUTRAL, "external_id": "run-2", "is_error": True, "started_at": "2026-01-02T03:04:05Z"},
        {"external_id": "run-3", "tool_name": "wait"},
        {"tool_name": "t", "cycle": -1},
    ]
    seen = look(lines(*items))
    assert (seen.num_items, seen.num_turns, seen.num_calls, seen.num_results, seen.num_errors) == (4, 3, 3, 2, 1)
    assert (seen.num_timed, seen.num_refused, seen.is_whole) == (1, 1, True)
    assert (seen.refusals[0].line, seen.refusals[0].path) == (4, "cycle")
    assert [(row.turn, row.tool, row.args, row.result) for row in seen.rows[1:]] == [
        (2, "get_order", '{"n": "7"}', '{"status": "sent"}'),
        (3, "wait", None, None),
    ]
    assert {(warned.code, warned.count) for warned in seen.warnings} == {("args_missing", 1), ("no_result", 1)}
    assert seen.tools == [("get_order", 2), ("wait", 1)]


RECORD = lines(NEUTRAL)
SPAN = (
    b'{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"execute_tool f","attributes":'
    b'[{"key":"gen_ai.operation.name","value":{"stringValue":"execute_tool"}},{"key":"gen_ai.tool.name","value":'
    b'{"stringValue":"f"}}],"startTimeUnixNano":"1","endTimeUnixNano":"2"}'
)


@pytest.mark.parametrize(
    ("begin", "again", "format_name"),
    [
        (RECORD, b"\n" + RECORD, "neutral"),
        (b"[" + RECORD, b"," + RECORD, "neutral"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + SPAN, b"," + SPAN, "otel_genai"),
        (b'{"tool_name":"t","args":[', b"[1],", ""),
        (b'{"tool_name":"', b"x", ""),
        (b"[", b" ", ""),
    ],
    ids=["lines", "array", "spans", "large item", "large word", "blanks"],
)
def test_of_a_file_however_large_only_the_beginning_is_read(begin: bytes, again: bytes, format_name: str) -> None:
    endless = Counted(begin, again)
    seen = look(endless)
    assert endless.given <= 2 * preview.MAX_BYTES
    assert [found.name for found in seen.formats] == ([format_name] if format_name else [])
    assert bool(seen.rows) == bool(format_name)
    if format_name:
        assert not seen.is_whole


def test_a_chosen_format_is_taken_as_it_is() -> None:
    seen = look(json.dumps({"messages": [{"role": "user", "content": "?"}]}).encode(), "neutral")
    (found,) = seen.formats
    assert (found.name, found.keys) == ("neutral", ())
    assert seen.refusals[0].code == "missing_field"


def test_a_file_of_several_formats_names_them() -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    seen = look(lines(NEUTRAL, chat))
    assert [found.name for found in seen.formats] == ["neutral", "openai_chat"]
    assert seen.rows[1].asked == "Hi"
    assert not seen.rows[1].tool


def test_what_cannot_be_read_says_why() -> None:
    assert "nothing in it" in look(b"").failure
    assert "tar archive" in look(b"a.json" + b"\0" * 251 + b"ustar" + b"\0" * 250).failure
