"""Reasons as sentences."""

import json
from typing import Any

import pytest

from quality.cases.explain import CODES, describe, explain
from quality.cases.judge import judge
from quality.cases.sample import Ending, Reason, Sample
from tests.cases.samples import call, calls, sample, tool

TOOLS = [tool("get_order", ("order_number",), order_number={"type": "string"}), tool("cancel"), tool("list_orders")]


def told(expectation: Any, given: Sample, **more: Any) -> list[str]:
    return [explain(reason) for reason in judge(expectation, given, **more).reasons]


def order(number: Any, **more: Any) -> Any:
    return {"tool": "get_order", "args": {"order_number": number}, **more}


@pytest.mark.parametrize(
    ("expectation", "given", "sentence"),
    [
        (
            calls("first", order("7731")),
            sample(call("get_order", order_number="7713")),
            "get_order was called with order_number 7713; expected 7731.",
        ),
        (
            calls("first", order({"one_of": ["a b", "c"]})),
            sample(call("get_order", order_number="x y")),
            'get_order was called with order_number "x y"; expected one of "a b", c.',
        ),
        (
            calls("first", order("1")),
            sample(call("get_order")),
            "get_order was called without order_number; expected 1.",
        ),
        (
            calls("first", order("1")),
            sample(call("get_order", order_number="1", page=2)),
            "get_order was called with page 2; no page is expected.",
        ),
        (calls("first", order("1")), sample(call("cancel")), "cancel was called; expected get_order."),
        (calls("contains", "cancel"), sample(), "cancel was not called."),
        (
            calls("contains", {"tool": "cancel", "count": {"min": 2}}),
            sample(call("cancel")),
            "cancel was called 1 times; at least 2 are needed.",
        ),
        (
            calls("contains", {"tool": "cancel", "count": {"max": 1}}),
            sample([call("cancel")] * 2),
            "cancel was called 2 times; at most 1 are allowed.",
        ),
        (calls("none"), sample(call("cancel", why="x")), "cancel was called with why x; that call is not expected."),
        (calls("none"), sample(call("cancel")), "cancel was called; that call is not expected."),
        (calls("any"), sample(), "No tool was called at all."),
        (
            calls("exact", "cancel", "get_order"),
            sample(call("get_order"), call("cancel")),
            "The order was get_order, cancel; expected cancel, get_order.",
        ),
        (
            {"version": 1, "forbid": [{"tool": "cancel"}]},
            sample(call("cancel", id=5)),
            "cancel was called, which is forbidden.",
        ),
        (
            {"version": 1, "forbid": [{"tool": "cancel", "args": {"id": {"gt": 1}}}]},
            sample(call("cancel", id=5)),
            "cancel was called with id 5, which is forbidden.",
        ),
        (
            {"version": 1, "limits": {"max_calls": 1}},
            sample([call("cancel")] * 2),
            "2 calls were made; at most 1 are allowed.",
        ),
        (
            {"version": 1, "reply": {"must": [{"contains": "7731"}]}},
            sample(reply="No."),
            'The reply lacks "7731".',
        ),
        (
            {"version": 1, "reply": {"must_not": [{"regex": "refund(ed)?"}]}},
            sample(reply="We refunded it."),
            "The reply has text that matches refund(ed)?.",
        ),
        (
            calls("first", order({"judge": {"rubric": "polite"}})),
            sample(call("get_order", order_number="x")),
            "get_order, order_number: A judging model is needed, and gave no answer.",
        ),
        (
            {"version": 2},
            sample(),
            'The expectation cannot be used: an expectation needs "version": 1 (at /version).',
        ),
        (
            calls("any"),
            Sample(ending=Ending.ERROR, error="rate limited"),
            "The sample could not be finished: rate limited.",
        ),
    ],
)
def test_one_plain_sentence(expectation: Any, given: Sample, sentence: str) -> None:
    assert told(expectation, given) == [sentence]


def test_a_call_that_cannot_run() -> None:
    given = sample(call("get_order", order_number=7731))
    (sentence,) = told(calls("first", "get_order"), given, tools=TOOLS)
    assert sentence == "get_order was called in a way that cannot run at order_number: 7731 is not of type 'string'."


@pytest.mark.parametrize(
    ("matcher", "words"),
    [
        ({"gt": 5, "lte": 10}, "above 5 and at most 10"),
        ({"number": {"of": 10, "abs": 0.5}}, "10 within 0.5"),
        ({"not": {"equal": "x"}}, "anything but x"),
        ({"length": {"min": 1}}, "a length of at least 1"),
        ({"set": [1, 2]}, "these in any order: 1, 2"),
        ({"object": {"fields": {"a": 1}}}, "an object with a 1"),
        ({"date": {"of": "tomorrow", "tolerance": "1d"}}, "the date tomorrow within 1d"),
        ({"equal": {"a": 1}}, '{"a": 1}'),
        ({"present": True}, "any value"),
    ],
)
def test_matchers_in_words(matcher: Any, words: str) -> None:
    assert describe(matcher) == words


def test_long_values_are_cut() -> None:
    given = sample(call("get_order", order_number="x" * 100_000))
    (sentence,) = told(calls("first", order("7731")), given)
    assert len(sentence) < 400
    (reason,) = judge(calls("first", order("7731")), given).reasons
    assert len(str(reason.as_dict())) < 3_000


@pytest.mark.parametrize("odd", [{}, None, "x… (5,000 characters)", [1]])
def test_every_code_has_words_whatever_was_stored_with_it(odd: Any) -> None:
    for code in CODES:
        assert explain(Reason(code=code, got=odd, expected=odd)).endswith(".")


def test_a_stored_reason_is_told_as_before() -> None:
    (reason,) = judge(calls("first", order("7731")), sample(call("get_order", order_number="7713"))).reasons
    stored = json.loads(json.dumps(reason.as_dict()))
    assert Reason.from_dict(stored) == reason
    assert explain(Reason.from_dict(stored)) == explain(reason)
