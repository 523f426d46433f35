"""Real function-calling tasks as cases: their right answers pass, damaged ones fail.

The tasks are from the Berkeley Function-Calling Leaderboard; see tests/corpus/data/BFCL_NOTICE.md.
"""

import copy
import itertools
import json
from typing import Any

import pytest

from quality.cases.judge import judge
from quality.cases.sample import Call, Sample, Verdict
from quality.cases.schema import check
from tests.corpus import corpus

TASKS = corpus.load("bfcl_sample.jsonl")
CALLING = [task for task in TASKS if task["possible_answers"]]
KNOWN_FAULT = "parallel_multiple_26"  # lists a parameter that no function declares
STRINGS = {"case": "fold", "space": "ignore", "punct": "ignore"}


def tasks(chosen: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(task, id=task["id"]) for task in chosen]


def matcher(value: Any) -> Any:
    return {"text": {"of": value, **STRINGS}} if isinstance(value, str) else {"equal": value}


def argument(given: dict[str, Any]) -> Any:
    options = [matcher(value) for value in given["any_of"] if value != "" or not given["optional"]]
    if given["kind"] == "object":
        options = [
            {"object": {"fields": {name: {"one_of": values} for name, values in each.items()}}}
            for each in given["any_of"]
        ]
    elif given["kind"] == "object_list":
        options = [
            {"equal": [{name: values[0] for name, values in item.items()} for item in each]} for each in given["any_of"]
        ]
    return {"one_of": [*options, *([{"absent": True}] if given["optional"] else [])]}


def expectation(task: dict[str, Any]) -> dict[str, Any]:
    if not task["possible_answers"]:
        return {"version": 1, "calls": {"mode": "none"}}
    steps = [
        {"tool": answer["name"], "args": {name: argument(given) for name, given in answer["arguments"].items()}}
        for answer in task["possible_answers"]
    ]
    return {"version": 1, "calls": {"mode": "exact" if task["order"] == "exact" else "any_order", "steps": steps}}


def value_of(given: dict[str, Any]) -> Any:
    value = given["any_of"][0]
    if given["kind"] == "object":
        return {name: values[0] for name, values in value.items()}
    if given["kind"] == "object_list":
        return [{name: values[0] for name, values in item.items()} for item in value]
    return value


def right_answer(task: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (
            answer["name"],
            {name: value_of(given) for name, given in answer["arguments"].items() if not given["optional"]},
        )
        for answer in task["possible_answers"]
    ]


def verdict(task: dict[str, Any], answer: list[tuple[str, dict[str, Any]]]) -> Verdict:
    made = tuple(Call(name, json.dumps(arguments)) for name, arguments in answer)
    sample = Sample((made,) if made else (), reply="Done.")
    return judge(expectation(task), sample, tools=task["tools"]).verdict


@pytest.mark.parametrize("task", tasks([task for task in TASKS if task["id"] != KNOWN_FAULT]))
def test_the_expectation_is_right_and_the_right_answer_passes(task: dict[str, Any]) -> None:
    assert check(expectation(task), task["tools"]) == []
    assert verdict(task, right_answer(task)) is Verdict.PASS


def test_a_fault_of_the_source_is_found() -> None:
    task = next(task for task in TASKS if task["id"] == KNOWN_FAULT)
    assert [fault.code for fault in check(expectation(task), task["tools"])] == []
    assert verdict(task, right_answer(task)) in (Verdict.PASS, Verdict.INVALID_CALL)


@pytest.mark.parametrize(
    "task", tasks([task for task in CALLING if task["order"] == "any" and len(task["possible_answers"]) < 5])
)
def test_calls_of_one_reply_have_no_order(task: dict[str, Any]) -> None:
    for answer in itertools.permutations(right_answer(task)):
        assert verdict(task, list(answer)) is Verdict.PASS


@pytest.mark.parametrize("task", tasks(CALLING))
def test_damaged_answers_fail(task: dict[str, Any]) -> None:
    answer = right_answer(task)
    assert verdict(task, answer[1:]) is Verdict.FAIL
    assert verdict(task, [*answer, answer[0]]) is Verdict.FAIL
    assert verdict(task, [("no_such_tool", answer[0][1]), *answer[1:]]) is Verdict.INVALID_CALL
    extra = copy.deepcopy(answer)
    extra[0][1]["delete_database"] = True
    assert verdict(task, extra) in (Verdict.FAIL, Verdict.INVALID_CALL)
    for name, value in answer[0][1].items():
        damaged = copy.deepcopy(answer)
        damaged[0][1][name] = f"-{value}x" if isinstance(value, str) else "nonsense"
        assert verdict(task, damaged) in (Verdict.FAIL, Verdict.INVALID_CALL), name


@pytest.mark.parametrize("task", tasks([task for task in TASKS if not task["possible_answers"]]))
def test_a_malformed_call_is_no_abstention(task: dict[str, Any]) -> None:
    sample = Sample(((Call("anything", "{broken"),),))
    assert judge(expectation(task), sample, tools=task["tools"]).verdict is Verdict.INVALID_CALL
