"""Example traces: each file gives its expected neutral records, imported twice and in any piece."""

import json
from pathlib import Path

import pytest

from quality.ingest.formats import FORMATS
from quality.ingest.items import Checked, Parsed, check
from quality.ingest.reader import Reader
from quality.ingest.records import to_neutral
from quality.ingest.traces import AUTO, Traces
from quality.review.conversation import read_conversation
from tests.corpus import corpus

ALL_FILES = sorted(
    path for path in (corpus.folder() / "traces").glob("*/*.json") if not path.name.endswith(".expected.json")
)
FILES = [path for path in ALL_FILES if path.parent.name in FORMATS]
IDS = [f"{path.parent.name}/{path.stem}" for path in FILES]


def records(path: Path, format_name: str) -> list[dict]:
    with path.open("rb") as file:
        items = list(Traces(Reader(file.read), format_name=format_name))
    assert all(isinstance(item, Parsed) for item in items), items
    calls = [to_neutral(call) for item in items for turn in item.turns for call in turn.calls]
    return sorted(({**call, "warnings": sorted(call["warnings"])} for call in calls), key=json.dumps)


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_trace_gives_its_expected_records(path):
    wanted = json.loads(path.with_name(f"{path.stem}.expected.json").read_text("utf-8"))
    wanted = sorted(({**call, "warnings": sorted(call["warnings"])} for call in wanted), key=json.dumps)
    assert records(path, path.parent.name) == wanted


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_trace_is_recognised_by_itself(path):
    with path.open("rb") as file:
        traces = Traces(Reader(file.read), format_name=AUTO)
        list(traces)
    assert traces.format is not None
    assert path.parent.name == traces.format.NAME


@pytest.mark.parametrize("path", ALL_FILES, ids=[f"{path.parent.name}/{path.stem}" for path in ALL_FILES])
def test_no_format_takes_the_files_of_another(path):
    with path.open("rb") as file:
        roots = [item.root for item in check(Reader(file.read)) if isinstance(item, Checked)]
    assert roots
    takers = {name for name, format in FORMATS.items() for root in roots if format.recognise(root)}
    assert takers <= {path.parent.name}


MESSAGES = {"openai_chat", "openai_responses", "anthropic_messages", "vercel_ui"}


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name in MESSAGES])
def test_each_call_has_its_place_in_the_messages_that_are_kept(path):
    with path.open("rb") as file:
        turns = [turn for item in Traces(Reader(file.read)) if isinstance(item, Parsed) for turn in item.turns]
    assert turns
    for turn in turns:
        assert read_conversation(turn.messages).places == {(call.cycle, call.index) for call in turn.calls}
