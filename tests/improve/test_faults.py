"""Kinds of faults, against tables made by hand."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quality.improve.faults import MAX_FAULT_CHARS, MAX_FAULTS, describe_fault, faults_of, spoken
from quality.review.offered import OfferedTool

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "stay": {"type": "object", "properties": {"nights": {"type": "integer"}}, "required": ["nights"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (OfferedTool("get_weather", "", SCHEMA), OfferedTool("get_time", "", None))


def of(label: str, args: str | None = "{}", correction: Any = None, tool: str = "get_weather") -> list[str]:
    return list(faults_of(label, tool, args, correction, TOOLS))


@pytest.mark.parametrize(
    ("actual", "corrected", "faults"),
    [
        ('{"city":"Gent"}', {"city": "Ghent"}, ["arg:/city"]),
        ('{"city":"Ghent","unit":"C"}', {"city": "Ghent"}, ["arg:/unit"]),  # too much
        ('{"unit":"C"}', {"city": "Ghent", "unit": "C"}, ["arg:/city"]),  # left out
        ('{"b":1,"a":2}', {"a": 3, "b": 4}, ["arg:/a", "arg:/b"]),
        ('{"days":[1,2,3]}', {"days": [1, 5, 6]}, ["arg:/days/*"]),  # places share a kind
        ('{"days":[1]}', {"days": [1, 2]}, ["arg:/days/*"]),
        ('{"days":[]}', {"days": None}, ["arg:/days"]),
        ('{"stay":{"nights":2,"who":"x"}}', {"stay": {"nights": 3}}, ["arg:/stay/nights", "arg:/stay/who"]),
        ('{"guests":[{"age":3},{"age":4}]}', {"guests": [{"age": 3}, {"age": 5}]}, ["arg:/guests/*/age"]),
        ('{"a/b~c":1}', {"a/b~c": 2}, ["arg:/a~1b~0c"]),
        ('{"a":true}', {"a": 1}, ["arg:/a"]),  # true is not 1
        ('{"a":"5"}', {"a": 5}, ["arg:/a"]),
        ('{"a":null}', {}, ["arg:/a"]),
        ('"by hand"', {"city": "Ghent"}, ["arg:"]),
        ("{broken", {"city": "Ghent"}, ["arg:"]),
        (None, {"city": "Ghent"}, ["arg:"]),
        ('{"a":1,"a":2}', {"a": 2, "b": 1}, ["arg:/b"]),  # the last one counted
        ('{"o":{"a":1,"a":2}} and more', {"b": 1}, ["arg:"]),
        (
            '{"a":12345678901234567890.10,"b":1}',
            '{"arguments":{"b":2,"a":12345678901234567890.1}}',
            ["arg:/b"],
        ),
    ],
)
def test_wrong_arguments_are_told_apart_by_where_they_differ(actual: str, corrected: Any, faults: list[str]) -> None:
    correction = corrected if isinstance(corrected, str) else {"arguments": corrected}
    assert of("bad_args", actual, correction) == faults
    assert of("bad_args", actual, correction if isinstance(correction, str) else json.dumps(correction)) == faults


@pytest.mark.parametrize(
    ("args", "faults"),
    [
        ('{"city":7}', ["arg:/city"]),
        ("{}", ["arg:/city"]),  # required and left out
        ('{"city":"Ghent","unit":"C","tz":"CET"}', ["arg:/tz", "arg:/unit"]),  # not in the schema
        ('{"city":"Ghent","days":["one",2,"three"]}', ["arg:/days/*"]),
        ('{"city":"Ghent","stay":{}}', ["arg:/stay/nights"]),
        ('{"city":"Ghent"}', ["arg:"]),  # fits: nobody said what is wrong
        ("{broken", ["arg:"]),
        (None, ["arg:"]),
    ],
)
def test_without_a_correction_the_schema_says_what_is_wrong(args: str, faults: list[str]) -> None:
    assert of("bad_args", args) == faults


def test_a_correction_that_changes_nothing_counts_as_none() -> None:
    assert of("bad_args", '{"city":7,"days":[5]}', {"arguments": {"days": [5.0], "city": 7}}) == ["arg:/city"]
    assert of("bad_args", '{"city":"Ghent"}', {"arguments": {"city": "Ghent"}}) == ["arg:"]


def test_without_a_schema_nothing_is_said_of_the_arguments() -> None:
    assert of("bad_args", '{"x":1}', tool="get_time") == ["arg:"]
    assert of("bad_args", '{"x":1}', tool="unheard_of") == ["arg:"]


@pytest.mark.parametrize(
    ("label", "correction", "faults"),
    [
        ("wrong_tool", {"tool": "get_time"}, ["tool:get_time"]),
        ("wrong_tool", {"tool": "teleport", "offered": False}, ["tool:teleport"]),
        ("wrong_tool", None, ["tool:"]),
        ("wrong_tool", {"tool": 5}, ["tool:"]),
        ("missing_tool", {"tool": "get_time", "position": {"cycle": 0, "index": 1}}, ["missing:get_time"]),
        ("missing_tool", "not json", ["missing:"]),
        ("missing_tool", "[]", ["missing:"]),
        ("good_reply", {"tool": "get_time"}, []),
        ("other", {"arguments": {"city": "Ghent"}}, []),
        ("unheard_of", None, []),
    ],
)
def test_tools_are_named_and_other_labels_have_no_fault(label: str, correction: Any, faults: list[str]) -> None:
    assert of(label, '{"city":"Gent"}', correction) == faults


def test_faults_are_sorted_and_few() -> None:
    many = {f"k{number:02d}": number for number in range(30, 0, -1)}
    faults = of("bad_args", "{}", {"arguments": many})
    assert faults == [f"arg:/k{number:02d}" for number in range(1, MAX_FAULTS + 1)]


def test_a_fault_is_never_longer_than_an_index_takes() -> None:
    assert of("bad_args", "{}", {"arguments": {"x" * 1_000: 1}}) == ["arg:"]
    assert of("bad_args", '{"a":{}}', {"arguments": {"a": {"x" * 1_000: 1}}}) == ["arg:/a"]
    (fault,) = of("wrong_tool", "{}", {"tool": "é" * 2_000})
    assert len(fault) == len("tool:") + MAX_FAULT_CHARS


def test_what_text_columns_cannot_hold_is_replaced() -> None:
    assert of("bad_args", "{}", r'{"arguments":{"a\u0000b\ud800":1}}') == ["arg:/a\ufffdb\ufffd"]
    assert of("missing_tool", "{}", r'{"tool":"\ud800"}') == ["missing:\ufffd"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # building values takes its time on a busy machine
@given(label=st.sampled_from(["bad_args", "wrong_tool", "missing_tool"]), actual=JSON, correction=JSON, corrected=JSON)
def test_whatever_was_said_there_is_an_answer(label: str, actual: Any, correction: Any, corrected: Any) -> None:
    text = json.dumps(actual)
    for said in (correction, json.dumps(correction), {"arguments": corrected}, json.dumps({"arguments": corrected})):
        faults = faults_of(label, "get_weather", text, said, TOOLS)
        assert 1 <= len(faults) <= MAX_FAULTS
        assert list(faults) == sorted(set(faults))
        "".join(faults).encode()


@pytest.mark.parametrize(
    ("label", "tool", "fault", "words"),
    [
        ("bad_args", "book", "arg:/stay/nights", "Wrong argument stay.nights of book"),
        ("bad_args", "book", "arg:/days/*", "Wrong argument days[] of book"),
        ("bad_args", "book", "arg:", "Wrong arguments of book"),
        ("wrong_tool", "book", "tool:get_link", "book called instead of get_link"),
        ("wrong_tool", "book", "tool:", "book called instead of another tool, or none"),
        ("wrong_tool", "", "tool:get_link", "A tool named in words instead of get_link"),
        ("missing_tool", "", "missing:refund", "No call of refund"),
        ("missing_tool", "book", "missing:", "A call was left out"),
        ("other", "book", "", "Other: book"),
    ],
)
def test_faults_are_said_in_words(label: str, tool: str, fault: str, words: str) -> None:
    assert describe_fault(label, tool, fault) == words


def test_pointers_are_spoken_as_people_write_them() -> None:
    assert spoken("/a~1b/*/c") == "a/b[].c"
    assert spoken("") == ""
