"""Real function-calling tasks as cases: their right answers pass, damaged ones fail.

The tasks are from the Berkeley Function-Calling Leaderboard; see tests/corpus/data/BFCL_NOTICE.md. `benchmarks.bfcl`
compares with its own checker.
"""

import json
from typing import Any

import pytest

from benchmarks.bfcl import GREEDY, explain
from benchmarks.bfcl_tasks import Answer, Task, answers, damages, expectation, judge_of, right_answer, sample_of, tasks
from quality.cases.sample import Call, Sample, Verdict
from quality.cases.schema import check

TASKS = tasks()
KNOWN_FAULT = "parallel_multiple_26"  # lists a parameter that no function declares
RIGHT = ("right answer", "order of calls")
HARMLESS = (  # may pass: it means the same, or can mean the same to the case
    "other alternative",
    "blank where one may be",
    "dropped argument",  # where the tool has a default that is right
    "float for an integer",
    "integer for a float",
    "reordered list",  # where both orders are alternatives
    "blank in a text",
    "case of a text",
    "sign before a text",
    "exclamation mark in a text",
    "punctuation left out of a text",
)


def each(chosen: list[Task]) -> list[Any]:
    return [pytest.param(task, id=task["id"]) for task in chosen]


def verdict(task: Task, answer: Answer) -> Verdict:
    return judge_of(task).judge(sample_of(answer)).verdict


@pytest.mark.parametrize("task", each([task for task in TASKS if task["id"] != KNOWN_FAULT]))
def test_right_answers_pass_and_damaged_ones_fail(task: Task) -> None:
    assert check(expectation(task), task["tools"]) == []
    judge = judge_of(task)
    for kind, answer in answers(task):
        if kind.rpartition(": ")[2] not in HARMLESS:
            assert judge.judge(sample_of(answer)).passed is (kind in RIGHT), (kind, answer)


def test_a_fault_of_the_source_is_found() -> None:
    task = next(task for task in TASKS if task["id"] == KNOWN_FAULT)
    assert [fault.code for fault in check(expectation(task), task["tools"])] == []
    assert verdict(task, right_answer(task)) in (Verdict.PASS, Verdict.INVALID_CALL)


@pytest.mark.parametrize("task", each([task for task in TASKS if not task["possible_answers"]]))
def test_a_malformed_call_is_no_abstention(task: Task) -> None:
    sample = Sample(((Call("anything", "{broken"),),))
    assert judge_of(task).judge(sample).verdict is Verdict.INVALID_CALL


def made_up(given: dict[str, Any], **parameter: Any) -> Task:
    """A task with one argument, `x`."""
    parameters = {"type": "object", "properties": {"x": parameter}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    return {
        "id": "made_up",
        "order": "exact",
        "possible_answers": [{"name": "f", "arguments": {"x": given}}],
        "tools": tools,
    }


def given(*options: Any, kind: str = "value", optional: bool = False, blank_ok: bool = False) -> dict[str, Any]:
    return {"any_of": list(options), "kind": kind, "optional": optional, "blank_ok": blank_ok}


@pytest.mark.parametrize(
    ("wanted", "passing", "failing"),
    [
        (given("New York, NY"), ["new york NY", "NewYork,NY"], ["New York", "New York, NY2", 5, None]),
        (given("-5"), ["-5"], ["5", "+5"]),
        (given(5, 7.5), [5, 5.0, 7.5], ["5", 5.000000001, True]),
        (given("a", optional=True, blank_ok=True), ["A", ""], ["b", None]),
        (given("a", optional=True), ["a"], ["", "b"]),
        (given(["Rome", 5]), [["rome", 5.0]], [[5, "Rome"], ["Rome"], ["Rome", 5, 5], "Rome"]),
        (given([1, 2], [2, 1]), [[1, 2], [2, 1]], [[1], [1, 2, 3], [1, 1]]),
        (given({"a": ["X", "Y"], "b": [1, ""]}, kind="object"), [{"a": "y"}, {"a": "X", "b": 1}], [{}, {"b": 1}]),
        (given([{"a": ["X"]}], kind="object_list"), [[{"a": "x"}]], [[], [{"a": "Z"}], [{"a": "X"}, {"a": "X"}]]),
    ],
)  # fmt: skip
def test_alternatives_become_matchers(wanted: dict[str, Any], passing: list[Any], failing: list[Any]) -> None:
    task = made_up(wanted)
    assert check(expectation(task)) == []
    assert [verdict(task, [("f", {"x": value})]) for value in passing] == [Verdict.PASS] * len(passing)
    assert [verdict(task, [("f", {"x": value})]) for value in failing] == [Verdict.FAIL] * len(failing)
    assert verdict(task, [("f", {})]) is (Verdict.PASS if wanted["optional"] else Verdict.FAIL)


def test_damages_change_the_value() -> None:
    for value in (True, 0, 7, 2.0, 1e12, "a.b", "", [], ["a", 1], {"a": [1, 2]}):
        kinds = dict(damages(value))
        assert kinds
        assert json.dumps(value) not in map(json.dumps, kinds.values())


def test_a_difference_is_explained_by_the_rule_that_undone_ends_it() -> None:
    task = made_up(given("-5"), type="string")
    folded = explain(task, [("f", {"x": "5"})], ours=False, theirs=lambda *_: True)
    assert folded is not None
    assert "signs" in folded
    assert explain(task, [("f", {"x": "6"})], ours=False, theirs=lambda *_: True) is None
    right: Answer = [("f", {"x": "-5"}), ("g", {})]
    assert explain(task, right, ours=True, theirs=lambda _, answer: answer[0][0] == "g") == GREEDY
    assert explain(task, right, ours=True, theirs=lambda *_: False) is None
