"""Tasks of the Berkeley Function-Calling Leaderboard as cases of ours, and right and damaged answers to them.

The tasks are those of tests/corpus/data/BFCL_NOTICE.md. Each argument has alternatives (`any_of`), may be `optional`,
and may be a blank text (`blank_ok`); `kind` says how alternatives are written: as values, as objects whose fields have
alternatives each, or as lists of such objects.
"""

import copy
import json
import math
from collections.abc import Iterator
from itertools import permutations
from typing import Any

from quality.cases.judge import CaseJudge
from quality.cases.sample import Call, Sample
from quality.cases.schema import parse
from quality.cases.values import pointer_to
from tests.corpus import corpus

type Task = dict[str, Any]
type Answer = list[tuple[str, Any]]  # names and arguments; arguments that are text are no JSON object

STRINGS = {"case": "fold", "space": "ignore", "punct": "ignore"}
MAX_ORDERS = 24


def tasks() -> list[Task]:
    return list(corpus.load("bfcl_sample.jsonl"))


# What is expected.


def expectation(task: Task) -> dict[str, Any]:
    if not task["possible_answers"]:
        return {"version": 1, "calls": {"mode": "none"}}
    steps = []
    for answer in task["possible_answers"]:
        arguments: dict[str, Any] = {}
        for name, given in answer["arguments"].items():
            arguments |= _matchers(name, given)
        steps.append({"tool": answer["name"], "args": arguments})
    return {"version": 1, "calls": {"mode": "exact" if task["order"] == "exact" else "any_order", "steps": steps}}


def _matchers(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Those of one argument. A list with one spelling only is told item by item, so that texts in it are folded too."""
    options = given["any_of"]
    if len(options) == 1 and isinstance(options[0], list) and options[0] and not given["optional"]:
        item = _fields if given["kind"] == "object_list" else _value
        items = {pointer_to(name, place): item(each) for place, each in enumerate(options[0])}
        return {name: {"length": len(options[0])}, **items}
    read = _fields if given["kind"] == "object" else _value
    found = [read(_first(each) if given["kind"] == "object_list" else each) for each in options]
    found += [_value("")] if given["blank_ok"] else []
    found += [{"absent": True}] if given["optional"] else []
    return {name: {"one_of": found}}


def _value(value: Any) -> Any:
    return {"text": {"of": value, **STRINGS}} if isinstance(value, str) else {"equal": value}


def _fields(fields: dict[str, list[Any]]) -> Any:
    """An object whose fields have alternatives; a blank among them means that the field may be left out."""
    return {
        "object": {
            "fields": {
                name: {"one_of": [*map(_value, values), *([{"absent": True}] if "" in values else [])]}
                for name, values in fields.items()
            }
        }
    }


def judge_of(task: Task) -> CaseJudge:
    return CaseJudge(parse(expectation(task)), tools=task["tools"])


def sample_of(answer: Answer) -> Sample:
    made = tuple(
        Call(name, arguments if isinstance(arguments, str) else json.dumps(arguments)) for name, arguments in answer
    )
    return Sample((made,) if made else (), reply="Done.")


# Answers.


def right_answer(task: Task) -> Answer:
    """The first alternative of everything that has to be there."""
    return [
        (
            answer["name"],
            {name: _first(given["any_of"][0]) for name, given in answer["arguments"].items() if not given["optional"]},
        )
        for answer in task["possible_answers"]
    ]


def _first(value: Any, *, inside: bool = False) -> Any:
    """One spelling: fields of objects have a list of alternatives each."""
    if isinstance(value, dict):
        return {name: values[0] for name, values in value.items()}
    if isinstance(value, list) and not inside:
        return [_first(item, inside=True) for item in value]
    return copy.deepcopy(value)


def answers(task: Task) -> Iterator[tuple[str, Answer]]:
    """Right and damaged answers, each with what was done to it."""
    right = right_answer(task)
    yield "right answer", right
    if not right:
        yield from _answers_to_none(task)
        return
    yield from _other_right_answers(task, right)
    yield from _damaged_calls(task, right)
    for place, (_, arguments) in enumerate(right):
        for name, value in arguments.items():
            for kind, damaged in damages(value):
                yield kind, _changed(right, place, {**arguments, name: damaged})


def _answers_to_none(task: Task) -> Iterator[tuple[str, Answer]]:
    name = task["tools"][0]["function"]["name"]
    yield "call where none is right", [(name, {})]
    yield "malformed call where none is right", [(name, "{broken")]


def _other_right_answers(task: Task, right: Answer) -> Iterator[tuple[str, Answer]]:
    for place, possible in enumerate(task["possible_answers"]):
        for name, given in possible["arguments"].items():
            for option in given["any_of"]:
                yield "other alternative", _changed(right, place, {**right[place][1], name: _first(option)})
            if given["blank_ok"]:
                yield "blank where one may be", _changed(right, place, {**right[place][1], name: ""})
    for order in list(permutations(right))[1:MAX_ORDERS]:
        yield "order of calls", list(order)


def _damaged_calls(task: Task, right: Answer) -> Iterator[tuple[str, Answer]]:
    names = [tool["function"]["name"] for tool in task["tools"]]
    yield "no call", []
    for place, (name, arguments) in enumerate(right):
        rest = right[:place] + right[place + 1 :]
        if rest:
            yield "missing call", rest
        yield "duplicated call", [*right, right[place]]
        yield "unknown tool", [*right[:place], ("no_such_tool", arguments), *right[place + 1 :]]
        if others := [other for other in names if other != name]:
            yield "wrong tool", [*right[:place], (others[0], arguments), *right[place + 1 :]]
            yield "extra call", [*right, (others[0], {})]
        yield "malformed arguments", _changed(right, place, "{broken")
        yield "extra argument", _changed(right, place, {**arguments, "delete_database": True})
        for left_out in arguments:
            kept = {each: value for each, value in arguments.items() if each != left_out}
            yield "dropped argument", _changed(right, place, kept)


def _changed(answer: Answer, place: int, arguments: Any) -> Answer:
    return [*answer[:place], (answer[place][0], arguments), *answer[place + 1 :]]


def damages(value: Any) -> Iterator[tuple[str, Any]]:
    """What can go wrong with a value, once for each kind."""
    yield "null", None
    if isinstance(value, bool):
        yield "other truth value", not value
        yield "number for a truth value", int(value)
        yield "text for a truth value", str(value).lower()
    elif isinstance(value, int | float):
        yield from _damaged_number(value)
    elif isinstance(value, str):
        yield from _damaged_text(value)
    elif isinstance(value, list):
        yield from _damaged_list(value)
    elif isinstance(value, dict):
        yield "extra field", {**value, "extra": 1}
        for name, item in value.items():
            yield "dropped field", {each: kept for each, kept in value.items() if each != name}
            yield from ((f"inside an object: {kind}", {**value, name: damaged}) for kind, damaged in damages(item))


def _damaged_number(value: float) -> Iterator[tuple[str, Any]]:
    yield "other number", value + 1
    yield "change of 1e-9", near if (near := value + 1e-9) != value else math.nextafter(value, math.inf)
    yield "text for a number", str(value)
    if value:
        yield "other sign", -value
    if value in (0, 1):
        yield "truth value for a number", bool(value)
    if isinstance(value, int):
        yield "float for an integer", float(value)
    elif value.is_integer():
        yield "integer for a float", int(value)


def _damaged_text(value: str) -> Iterator[tuple[str, Any]]:
    middle = len(value) // 2
    yield "number for a text", 7
    yield "list for a text", [value]
    yield "other text", f"{value}x"
    if value:
        yield "empty text", ""
    yield "blank in a text", f"{value[:middle]} {value[middle:]}"
    yield "sign before a text", f"-{value}"
    yield "exclamation mark in a text", f"{value}!"
    if value.swapcase() != value:
        yield "case of a text", value.swapcase()
    if (bare := "".join(char for char in value if char not in ",./-_*^")) != value:
        yield "punctuation left out of a text", bare


def _damaged_list(value: list[Any]) -> Iterator[tuple[str, Any]]:
    yield "text for a list", json.dumps(value)
    yield "longer list", [*value, value[0] if value else 1]
    if value:
        yield "shorter list", value[:-1]
        yield from ((f"inside a list: {kind}", [damaged, *value[1:]]) for kind, damaged in damages(value[0]))
    if value[::-1] != value:
        yield "reordered list", value[::-1]
