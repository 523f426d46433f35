"""What holds for every format of spans or runs: files sent twice, cut, mixed up, broken, and by two tenants."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from quality.ingest.formats import FORMATS
from quality.ingest.items import Parsed
from quality.ingest.jsontext import parse
from quality.ingest.reader import ItemError
from quality.review.conversation import read_conversation
from tests.corpus import corpus
from tests.ingest.helpers import outcomes, state, take, turns

NAMES = ("otel_genai", "openinference", "langfuse", "langsmith", "mlflow")
FILES = [
    path
    for name in NAMES
    for path in sorted((corpus.folder() / "traces" / name).glob("*.json"))
    if not path.name.endswith(".expected.json")
]
each_file = pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])


def documents(path: Path) -> list[Any]:
    """The file's items as JSON values."""
    value = json.loads(path.read_bytes())
    return value if isinstance(value, list) else [value]


def lists(value: Any) -> list[list[Any]]:
    """The lists of spans in a document."""
    if not isinstance(value, dict):
        return []
    found = [value[key] for key in ("spans", "observations", "child_runs") if isinstance(value.get(key), list)]
    data = value.get("data")
    found += [data] if isinstance(data, list) else lists(data)
    for key in ("resourceSpans", "scopeSpans"):
        found += [each for held in value.get(key, []) for each in lists(held)]
    return found


@each_file
def test_the_same_file_twice_changes_nothing(path, tenant):
    data = path.read_bytes()
    first = take(data, tenant)
    before = state(tenant)
    again = take(data, tenant)
    assert (first.accepted > 0, first.rejected, again.rejected) == (True, [], [])
    assert (again.accepted, again.num_calls, again.num_turns) == (0, 0, 0)
    assert state(tenant) == before


@each_file
def test_two_tenants_hold_the_same_file_apart(path, tenant, other_tenant):
    data = path.read_bytes()
    take(data, tenant)
    assert state(other_tenant)["calls"] == []
    take(data, other_tenant)
    assert state(tenant) == state(other_tenant) != {"turns": [], "calls": [], "toolsets": []}


@each_file
@pytest.mark.parametrize("indent", [None, 2])
def test_half_a_file_keeps_what_is_complete_and_the_whole_completes_it(path, indent, tenant, other_tenant):
    data = json.dumps(json.loads(path.read_bytes()), indent=indent).encode()
    wanted = {call.external_id: call.tool_name for turn in turns(data) for call in turn.calls}
    for tenths in (3, 5, 7, 9, 9.9):
        half = data[: int(len(data) * tenths / 10)]
        report = take(half, tenant)
        assert report.rejected, "a cut file is told as one"
        assert all(issue.line == half.count(b"\n") + 1 and issue.message for issue in report.rejected[-1:])
        kept = {call["external_id"]: call["tool_name"] for call in state(tenant)["calls"]}
        assert kept.items() <= wanted.items()
    assert take(data, tenant).rejected == []
    take(data, other_tenant)
    assert state(tenant) == state(other_tenant)


@each_file
def test_after_the_whole_file_half_of_it_changes_nothing(path, tenant):
    data = path.read_bytes()
    take(data, tenant)
    before = state(tenant)
    take(data[: len(data) * 9 // 10], tenant)
    assert state(tenant) == before


@each_file
def test_order_and_repetition_of_spans_do_not_matter(path):
    items = documents(path)
    expected = turns(items)
    for seed in range(5):
        mixed = copy.deepcopy(items)
        shuffle = random.Random(seed).shuffle
        for held in [mixed, *(found for item in mixed for found in lists(item))]:
            held.extend(copy.deepcopy(held[:1]))
            shuffle(held)
        assert _contents(turns(mixed)) == _contents(expected)


def _contents(found: list) -> set:
    return {(turn.content, turn.calls) for turn in found}


@each_file
def test_each_call_has_its_place_in_the_messages_and_indents_do_not_matter(path):
    found = turns(json.dumps(documents(path), indent=5).encode())
    assert _contents(found) == _contents(turns(path.read_bytes()))
    for turn in found:
        if turn.messages is not None:
            assert read_conversation(turn.messages).places == {(call.cycle, call.index) for call in turn.calls}


@each_file
def test_no_other_format_takes_the_file_for_its_own(path):
    for item in outcomes(path.read_bytes()):
        assert isinstance(item, Parsed)
    root = parse(json.dumps(documents(path)[0]).encode())
    assert [name for name, format in FORMATS.items() if format.recognise(root)] == [path.parent.name]


HOSTILE: list[Any] = [
    None, True, 0, -1, 2**70, 1e300, "", "x", "{", '"\\ud800"', "\0", "\ud800", [], {}, [[]], [None], [{}], {"": None},
    {"a": {"b": []}}, "a" * 600, {"stringValue": 1}, {"kvlistValue": {"values": [1]}}, [{"key": "x"}], "not a time",
]  # fmt: skip


def _mutants(value: Any, rng: random.Random) -> Any:
    """The value with something hostile at a random place."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _mutants(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _mutants(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.7:
        try:
            return json.dumps(_mutants(json.loads(value), rng))
        except ValueError:
            pass
    return rng.choice(HOSTILE)


@each_file
def test_hostile_files_never_raise_and_what_is_refused_says_why(path):
    items = documents(path)
    rng = random.Random(path.stem)
    for _ in range(150):
        broken = items
        for _ in range(rng.randint(1, 4)):
            broken = _mutants(broken, rng)
        data = json.dumps(broken if isinstance(broken, list) and broken else [broken]).encode()
        for outcome in outcomes(data, path.parent.name):
            if isinstance(outcome, ItemError):
                assert outcome.code
                assert outcome.message
                assert outcome.line >= 1
            else:
                for turn in outcome.turns:
                    assert turn.messages is None or isinstance(json.loads(turn.messages), list)
                    assert turn.tools is None or isinstance(json.loads(turn.tools), list)
                    for call in turn.calls:
                        assert call.tool_name
                        for text in (call.args, call.result):
                            assert text is None or parse(text.encode(), repeated_keys=True)


@each_file
def test_hostile_files_can_be_stored(path, tenant):
    items = documents(path)
    rng = random.Random(f"store {path.stem}")
    broken = [_mutants(copy.deepcopy(rng.choice(items)), rng) for _ in range(40)]
    report = take(json.dumps(broken).encode(), tenant, path.parent.name)
    assert report.accepted + report.unchanged + len(report.rejected) > 0
