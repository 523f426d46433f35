"""Every mode of calls, and what a step can say."""

import itertools
from typing import Any

import pytest

from quality.cases.judge import judge
from quality.cases.sample import Call, Ending, Sample, Verdict
from tests.cases.samples import call, calls, codes, sample, tool, verdict

PASS, FAIL, INVALID, DIVERGED = Verdict.PASS, Verdict.FAIL, Verdict.INVALID_CALL, Verdict.DIVERGED
A, B, C, D = (call(name) for name in "abcd")


@pytest.mark.parametrize(
    ("mode", "steps", "made", "expected"),
    [
        ("exact", "ab", "ab", True),
        ("exact", "ab", "ba", False),
        ("exact", "ab", "abc", False),
        ("exact", "ab", "a", False),
        ("exact", "ab", "", False),
        ("exact", "aab", "aab", True),
        ("exact", "aab", "aba", False),
        ("any_order", "ab", "ab", True),
        ("any_order", "ab", "ba", True),
        ("any_order", "ab", "abb", False),
        ("any_order", "ab", "a", False),
        ("any_order", "aab", "aba", True),
        ("any_order", "aab", "abb", False),
        ("in_order", "ab", "ab", True),
        ("in_order", "ab", "cadbd", True),
        ("in_order", "ab", "ba", False),
        ("in_order", "ab", "bab", True),
        ("in_order", "ab", "a", False),
        ("in_order", "aa", "aba", True),
        ("contains", "ab", "ba", True),
        ("contains", "ab", "cbda", True),
        ("contains", "ab", "ac", False),
        ("contains", "aa", "ab", False),
        ("contains", "aa", "aba", True),
        ("only", "ab", "ab", True),
        ("only", "ab", "bba", True),
        ("only", "ab", "", True),
        ("only", "ab", "abc", False),
        ("first", "ab", "ba", True),
        ("first", "ab", "a", False),
        ("first", "ab", "abc", False),
        ("none", "", "", True),
        ("none", "", "a", False),
        ("any", "", "a", True),
        ("any", "", "ab", True),
        ("any", "", "", False),
    ],
)
@pytest.mark.parametrize("one_reply", [True, False])
def test_mode(mode: str, steps: str, made: str, expected: bool, one_reply: bool) -> None:
    if mode == "first" and not one_reply:
        return
    made_calls = [call(name) for name in made]
    given = sample(made_calls) if one_reply and made_calls else sample(*made_calls)
    assert verdict(calls(mode, *steps), given) is (PASS if expected else FAIL)


def test_first_looks_at_the_first_reply_alone() -> None:
    assert verdict(calls("first", "a"), sample(A, B, B)) is PASS
    assert verdict(calls("first", "b"), sample(A, B)) is FAIL
    assert verdict(calls("first", "a"), sample([], A)) is FAIL


def test_mode_first_is_what_is_meant_without_one() -> None:
    expectation = {"version": 1, "calls": {"steps": [{"tool": "a"}]}}
    assert verdict(expectation, sample(A, B)) is PASS


def f(*values: int) -> dict[str, Any]:
    return {"tool": "f", "args": {"x": {"one_of": list(values)}}}


@pytest.mark.parametrize("mode", ["any_order", "first", "contains", "only"])
def test_pairing_is_not_greedy(mode: str) -> None:
    """A first fit refuses f(1), f(2) for the steps f(1 or 2), f(1), and takes f(2), f(1)."""
    for first, second in ((1, 2), (2, 1)):
        assert verdict(calls(mode, f(1, 2), f(1)), sample([call("f", x=first), call("f", x=second)])) is PASS


def test_steps_and_calls_in_any_order_give_the_same_verdict() -> None:
    steps, made = [f(1, 2), f(1), f(1, 2, 3)], [call("f", x=value) for value in (3, 1, 2)]
    for some_steps in itertools.permutations(steps):
        for some_calls in itertools.permutations(made):
            assert verdict(calls("any_order", *some_steps), sample(list(some_calls))) is PASS


@pytest.mark.parametrize(
    ("written", "called"),
    [
        ("math.factorial", "math_factorial"),
        ("math_factorial", "math.factorial"),
        ("cancel_*", "cancel_order"),
        ("*_order", "get.order"),
        ("get_?", "get_a"),
    ],
)
def test_names_are_compared_with_dots_as_underscores_and_by_pattern(written: str, called: str) -> None:
    assert verdict(calls("exact", written), sample(call(called))) is PASS


@pytest.mark.parametrize(
    ("written", "called"), [("cancel_*", "cancel"), ("get_?", "get_ab"), ("Get", "get"), ("a[b]", "ab")]
)
def test_other_names_are_others(written: str, called: str) -> None:
    assert verdict(calls("exact", written), sample(call(called))) is FAIL


@pytest.mark.parametrize(
    ("mode", "count", "made", "expected"),
    [
        ("exact", {"min": 2}, 1, False),
        ("exact", {"min": 2}, 3, True),
        ("exact", {"max": 2}, 0, True),
        ("exact", {"max": 2}, 3, False),
        ("exact", {"min": 1, "max": 2}, 2, True),
        ("any_order", {"min": 0, "max": 1}, 0, True),
        ("any_order", {"min": 0, "max": 1}, 2, False),
        ("contains", {"min": 2}, 1, False),
        ("contains", {"min": 1, "max": 2}, 3, False),
        ("contains", {"min": 1}, 3, True),
        ("in_order", {"min": 2}, 2, True),
        ("in_order", {"min": 2, "max": 2}, 3, False),
        ("only", {"max": 1}, 2, False),
        ("only", {"max": 1}, 0, True),
        ("only", {"min": 5}, 1, True),
        ("contains", {"max": 0}, 1, False),
        ("contains", {"max": 0}, 0, True),
    ],
)
def test_count(mode: str, count: dict[str, int], made: int, expected: bool) -> None:
    step = {"tool": "a", "count": count}
    given = sample([A] * made) if made else sample()
    assert verdict(calls(mode, step), given) is (PASS if expected else FAIL)


def test_any_of_takes_one_of_several_calls() -> None:
    expectation = calls("exact", {"any_of": [{"tool": "a"}, {"tool": "b", "args": {"x": 1}}]})
    assert verdict(expectation, sample(A)) is PASS
    assert verdict(expectation, sample(call("b", x=1))) is PASS
    judgement = judge(expectation, sample(call("b", x=2)))
    assert codes(judgement) == ["wrong_argument"]
    assert verdict(expectation, sample([A, call("b", x=1)])) is FAIL


GROUP = {"parallel": True, "steps": [{"tool": "a"}, {"tool": "b"}]}


@pytest.mark.parametrize(
    ("mode", "cycles", "expected"),
    [
        ("exact", ["ba", "c"], []),
        ("exact", ["bac"], []),
        ("exact", ["a", "b", "c"], ["not_same_cycle"]),
        ("exact", ["c", "ab"], ["wrong_order"]),
        ("in_order", ["d", "adb", "dc"], []),
        ("in_order", ["c", "ab"], ["wrong_order"]),
        ("any_order", ["c", "ab"], []),
        ("any_order", ["ca", "b"], ["not_same_cycle"]),
        ("contains", ["a", "ab", "c"], []),
        ("contains", ["a", "b", "c"], ["not_same_cycle"]),
        ("first", ["abc"], []),
        ("first", ["ab", "c"], ["missing_call"]),
    ],
)
def test_a_parallel_group_has_to_be_one_reply(mode: str, cycles: list[str], expected: list[str]) -> None:
    given = sample(*([call(name) for name in cycle] for cycle in cycles))
    assert codes(judge(calls(mode, GROUP, "c"), given)) == expected


def test_all_steps_can_be_one_group() -> None:
    expectation = calls("any_order", "a", "b", parallel=True)
    assert verdict(expectation, sample([B, A])) is PASS
    assert codes(judge(expectation, sample(A, B))) == ["not_same_cycle"]


WHEN = {"tool": "cancel", "when": {"result": 0, "path": "/status", "equal": "open"}}


@pytest.mark.parametrize(
    ("mode", "status", "then", "expected"),
    [
        ("exact", "open", "cancel", []),
        ("exact", "open", "", ["missing_call"]),
        ("exact", "shipped", "", []),
        ("exact", "shipped", "cancel", ["condition_not_met"]),
        ("contains", "open", "cancel", []),
        ("contains", "open", "", ["missing_call"]),
        ("contains", "shipped", "cancel", []),
        ("contains", "shipped", "", []),
        ("only", "shipped", "cancel", ["condition_not_met"]),
        ("only", "open", "cancel", []),
        ("any_order", "shipped", "cancel", ["condition_not_met"]),
        ("in_order", "open", "cancel", []),
    ],
)
def test_when_makes_a_step_depend_on_a_served_result(mode: str, status: str, then: str, expected: list[str]) -> None:
    made = [call("get", served={"status": status}), *([call(then)] if then else [])]
    assert codes(judge(calls(mode, "get", WHEN), sample(*made))) == expected


def test_a_result_that_is_text_with_json_in_it_is_read() -> None:
    made = call("get", served='{"status": "open"}')
    assert verdict(calls("exact", "get", WHEN), sample(made, call("cancel"))) is PASS


def test_when_looks_at_whichever_call_makes_sense_of_the_rest() -> None:
    """Two calls fit the first step; with the second the condition holds."""
    made = [call("get", served={"status": "shipped"}), call("get", served={"status": "open"}), call("cancel")]
    assert (
        verdict(calls("any_order", "get", "get", {**WHEN, "when": {**WHEN["when"], "result": 1}}), sample(*made))
        is PASS
    )


def test_conditions_can_hang_on_conditions() -> None:
    third = {"tool": "tell", "when": {"result": 1, "path": "/ok", "equal": True}}
    made = [call("get", served={"status": "open"}), call("cancel", served={"ok": True})]
    expectation = calls("exact", "get", WHEN, third)
    assert verdict(expectation, sample(*made, call("tell"))) is PASS
    assert codes(judge(expectation, sample(*made))) == ["missing_call"]
    assert verdict(expectation, sample(call("get", served={"status": "shipped"}))) is PASS


@pytest.mark.parametrize(
    ("extra", "given", "expected"),
    [
        (None, {"a": 1}, []),
        (None, {"a": 1, "b": 2}, ["extra_argument"]),
        (None, {"a": 1, "page": 1}, []),
        (None, {"a": 1, "page": 2}, ["extra_argument"]),
        ("forbid", {"a": 1, "b": 2}, ["extra_argument"]),
        ("allow", {"a": 1, "b": 2}, []),
        ("allow", {"a": 2, "b": 2}, ["wrong_argument"]),
        ({"defaults": {"b": 2}}, {"a": 1, "b": 2.0}, []),
        ({"defaults": {"b": 2}}, {"a": 1, "b": 3}, ["extra_argument"]),
        ({"defaults": {"b": 2}}, {"a": 1, "page": 1}, []),
        ({"ignore": ["*_id"]}, {"a": 1, "trace_id": "x"}, []),
        ({"ignore": ["*_id"]}, {"a": 1, "ids": 1}, ["extra_argument"]),
        (None, {}, ["missing_argument"]),
        (None, {"a": 1, "b": None}, ["extra_argument"]),
    ],
)
def test_extra_arguments(extra: Any, given: dict[str, Any], expected: list[str]) -> None:
    step = {"tool": "f", "args": {"a": 1}, **({"extra_args": extra} if extra else {})}
    parameters = {"properties": {"page": {"type": "integer", "default": 1}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    assert codes(judge(calls("exact", step), sample(call("f", **given)), tools=tools)) == expected


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [(1, True), (2, False), ({"present": True}, False), ({"absent": True}, True), ({"not": 1}, False)],
)
def test_a_default_that_is_left_out_was_given_in_effect(matcher: Any, expected: bool) -> None:
    tools = [tool("f", page={"type": "integer", "default": 1})]
    step = {"tool": "f", "args": {"page": matcher}}
    assert judge(calls("exact", step), sample(call("f")), tools=tools).passed is expected


def test_arguments_are_named_or_pointed_at() -> None:
    step = {"tool": "f", "args": {"/to/0/city": "Rome", "/a~1b": 1, "n": 2}}
    given = {"to": [{"city": "Rome", "zip": "1"}], "a/b": 1, "n": 2}
    assert verdict(calls("exact", step), sample(call("f", **given))) is PASS
    judgement = judge(calls("exact", step), sample(call("f", **{**given, "to": [{"city": "Oslo"}]})))
    assert [(reason.code, reason.path) for reason in judgement.reasons] == [("wrong_argument", "/to/0/city")]


def test_null_is_absent_joins_null_and_left_out_for_the_case() -> None:
    step = {"tool": "f", "args": {"a": {"absent": True}, "b": None}}
    made = sample(call("f", a=None, c=None))
    assert codes(judge(calls("exact", step), made)) == ["extra_argument", "missing_argument", "extra_argument"]
    assert verdict({**calls("exact", step), "null_is_absent": True}, made) is PASS


TOOLS = [tool("f", ("x",), x={"type": "integer"})]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (Call("f", '{"x": '), "bad_json"),
        (Call("f", "[1]"), "bad_json"),
        (Call("f", '{"x":1,"x":1}'), "bad_json"),
        (Call("f", '{"x": "1"}'), "bad_arguments"),
        (Call("f", "{}"), "bad_arguments"),
        (Call("f", ""), "bad_arguments"),
        (Call("g", "{}"), "unknown_tool"),
        (Call("f", '{"x":1}', fault="cut off"), "not_a_call"),
        (Call("f", '{"x": NaN}'), "bad_json"),
        (Call("f", {"x": float("inf")}), "bad_json"),
    ],
)
@pytest.mark.parametrize("mode", ["none", "any", "exact", "any_order", "in_order", "contains", "only", "first"])
def test_a_call_that_cannot_run_is_a_call_and_never_an_abstention(mode: str, made: Call, code: str) -> None:
    expectation = calls(mode, *([] if mode in ("none", "any") else ["f"]))
    judgement = judge(expectation, sample([made]), tools=TOOLS)
    (validity,) = judgement.validity
    assert (validity.valid, validity.code) == (False, code)
    if mode in ("contains", "in_order") and made.name == "g":
        assert codes(judgement) == ["missing_call"]  # a call beside, which these modes allow; the step was not called
    else:
        assert judgement.verdict is INVALID
        assert codes(judgement) == ["invalid_call"]


def test_validity_is_told_apart_from_rightness() -> None:
    judgement = judge(calls("contains", "f"), sample([call("f", x=1), call("g"), call("f", x="1")]), tools=TOOLS)
    assert judgement.passed
    assert [each.valid for each in judgement.validity] == [True, False, False]
    assert [(each.cycle, each.index, each.path) for each in judgement.validity][2] == (0, 2, "/x")


def test_without_tools_every_name_is_known() -> None:
    assert verdict(calls("exact", "f"), sample(call("f", anything=1))) is PASS


def forbid(*entries: Any) -> dict[str, Any]:
    return {"version": 1, "forbid": list(entries)}


@pytest.mark.parametrize(
    ("entry", "made", "hit"),
    [
        ({"tool": "cancel_*"}, call("cancel_order"), True),
        ({"tool": "cancel_*"}, call("get_order"), False),
        ({"tool": "refund", "args": {"amount": {"gt": 100}}}, call("refund", amount=101), True),
        ({"tool": "refund", "args": {"amount": {"gt": 100}}}, call("refund", amount=100), False),
        ({"tool": "refund", "args": {"amount": {"gt": 100}}}, call("refund"), False),
        ({"tool": "refund", "args": {"amount": {"gt": 100}}}, call("refund", amount=101, note="x"), True),
        ({"tool": "refund", "args": {"a": 1, "b": 2}}, call("refund", a=1, b=3), False),
        ({"tool": "refund"}, Call("refund", "{broken"), True),
        ({"tool": "refund", "args": {"a": 1}}, Call("refund", "{broken"), False),
    ],
)
def test_forbid(entry: dict[str, Any], made: Call, hit: bool) -> None:
    judgement = judge(forbid(entry), sample(A, made))
    assert codes(judgement) == (["forbidden_call"] if hit else [])
    assert judgement.verdict is (FAIL if hit else PASS)


def test_forbid_holds_beside_every_mode() -> None:
    for mode in ("contains", "in_order"):
        assert codes(judge({**calls(mode, "a"), **forbid({"tool": "b"})}, sample(A, B))) == ["forbidden_call"]


def test_forbid_alone_can_look_at_the_first_reply_only() -> None:
    expectation = {"version": 1, "calls": {"mode": "first"}, "forbid": [{"tool": "b"}]}
    assert verdict(expectation, sample(A, B)) is PASS
    assert verdict(expectation, sample([A, B])) is FAIL


def test_limits() -> None:
    expectation = {"version": 1, "limits": {"max_calls": 2, "max_cycles": 3}}
    assert verdict(expectation, sample(A, B)) is PASS  # two calls, and the final text as the third reply
    assert codes(judge(expectation, sample([A, B, C]))) == ["too_many_calls"]
    assert codes(judge(expectation, sample(A, [], B))) == ["too_many_cycles"]
    assert verdict({**calls("first", "a"), "limits": {"max_cycles": 1}}, sample(A, B)) is PASS


@pytest.mark.parametrize(
    ("rule", "then", "reply", "expected"),
    [
        ("same_tool", "get", "ok", []),
        ("same_tool", "other", "ok", ["not_retried"]),
        ("same_tool", "", "ok", ["not_retried"]),
        ("stop", "", "Sorry.", []),
        ("stop", "get", "ok", ["called_after_error"]),
        ("stop", "other", "ok", ["called_after_error"]),
        ("ask", "", "Which order?", []),
        ("ask", "", "Sorry.", ["did_not_ask"]),
        ("ask", "", "どの注文ですか？", []),
        ("ask", "get", "Which?", ["called_after_error"]),
    ],
)
def test_what_follows_an_error(rule: str, then: str, reply: str, expected: list[str]) -> None:
    expectation = {"version": 1, "retry": {"on_error": rule}}
    made = [call("get", served="no such order", error=True), *([call(then)] if then else [])]
    assert codes(judge(expectation, sample(*made, reply=reply))) == expected


def test_without_an_error_there_is_nothing_to_retry() -> None:
    assert verdict({"version": 1, "retry": {"on_error": "same_tool"}}, sample(call("get", served={}))) is PASS


# What is known before the end.

ORDER = {"tool": "a"}


@pytest.mark.parametrize(
    ("expectation", "made", "expected"),
    [
        (calls("none"), "a", FAIL),
        (calls("none"), "", DIVERGED),
        (calls("any"), "a", PASS),
        (calls("any"), "", DIVERGED),
        (calls("first", "a"), "a", PASS),
        (calls("first", "a"), "b", FAIL),
        (calls("first", "a"), "", DIVERGED),
        (calls("first", {"tool": "a", "count": {"min": 0}}), "", DIVERGED),
        (calls("exact", "a", "b"), "a", DIVERGED),
        (calls("exact", "a", "b"), "b", FAIL),
        (calls("exact", "a", "b"), "ab", DIVERGED),
        (calls("any_order", "a", "b"), "b", DIVERGED),
        (calls("any_order", "a", "b"), "bc", FAIL),
        (calls("in_order", "a", "b"), "ab", PASS),
        (calls("in_order", "a", "b"), "b", DIVERGED),
        (calls("contains", "a"), "a", PASS),
        (calls("contains", "a"), "b", DIVERGED),
        (calls("only", "a"), "a", DIVERGED),
        (calls("only", "a"), "b", FAIL),
        ({**calls("contains", "a"), **forbid({"tool": "c"})}, "a", DIVERGED),
        (forbid({"tool": "c"}), "c", FAIL),
        ({**calls("contains", "a"), "reply": {"must": [{"contains": "x"}]}}, "a", DIVERGED),
        ({**calls("contains", "a"), "limits": {"max_calls": 1}}, "ab", FAIL),
        (calls("contains", {"tool": "a", "count": {"max": 1}}), "a", DIVERGED),
        (calls("contains", {"tool": "a", "count": {"max": 1}}), "aa", FAIL),
        (calls("exact", GROUP), "a", FAIL),
    ],
)
@pytest.mark.parametrize("ending", [Ending.DIVERGED, Ending.RUNNING])
def test_a_sample_that_was_cut_is_judged_where_it_is_decided(
    expectation: Any, made: str, expected: Verdict, ending: Ending
) -> None:
    judgement = judge(expectation, sample(*(call(name) for name in made), reply=None, ending=ending))
    assert judgement.verdict is expected
    assert judgement.decided is (expected is not DIVERGED)


def test_a_sample_that_a_limit_stopped_is_judged_as_it_is() -> None:
    assert verdict(calls("exact", "a", "b"), sample(A, reply=None, ending=Ending.STOPPED)) is FAIL
    assert verdict(calls("exact", "a"), sample(A, reply=None, ending=Ending.STOPPED)) is PASS


def test_an_error_is_no_failure_of_the_model() -> None:
    judgement = judge(calls("none"), Sample(((A,),), ending=Ending.ERROR, error="rate limited"))
    assert judgement.verdict is Verdict.ERROR
    assert [(reason.code, reason.got) for reason in judgement.reasons] == [("sample_error", "rate limited")]


def test_an_expectation_that_cannot_be_used_is_an_error() -> None:
    judgement = judge({"version": 1, "calls": {"mode": "exactly"}}, sample(A))
    assert judgement.verdict is Verdict.ERROR
    assert codes(judgement) == ["bad_expectation", "bad_expectation"]


def test_what_needs_a_model_is_asked_last_and_once() -> None:
    rubric = {"judge": {"rubric": "polite"}}
    expectation = calls("any_order", {"tool": "f", "args": {"x": rubric}}, {"tool": "f", "args": {"x": rubric}})
    given = sample([call("f", x="please"), call("f", x="please")])
    assert codes(judge(expectation, given)) == ["not_judged", "not_judged"]
    assert judge(expectation, given).verdict is Verdict.ERROR
    asked: list[Any] = []
    assert judge(expectation, given, ask=lambda question: asked.append(question) is None).passed
    assert len(asked) == 1
    assert verdict(expectation, given, ask=lambda _: False) is FAIL
    assert verdict(expectation, given, ask=lambda _: None) is Verdict.ERROR
    asked.clear()
    assert verdict({**expectation, **forbid({"tool": "f"})}, given, ask=asked.append) is FAIL
    assert not asked


def test_a_sample_of_very_many_calls_fails_by_that() -> None:
    judgement = judge(calls("contains", "a"), sample([A] * 5_000))
    assert codes(judgement) == ["too_many_calls"]


# Reasons.


def test_reasons_tell_step_call_path_expected_and_got() -> None:
    expectation = calls("exact", "a", {"tool": "get_order", "args": {"order_number": "7731"}})
    (reason,) = judge(expectation, sample(A, call("get_order", order_number="7713"))).reasons
    assert reason.as_dict() == {
        "code": "wrong_argument",
        "step": 1,
        "call": 1,
        "tool": "get_order",
        "path": "/order_number",
        "expected": "7731",
        "got": "7713",
    }


@pytest.mark.parametrize(
    ("steps", "made", "expected"),
    [
        ("ab", "ac", ["wrong_tool"]),
        ("a", "ab", ["unexpected_call"]),
        ("ab", "a", ["missing_call"]),
        ("ab", "cd", ["wrong_tool", "wrong_tool"]),
        ("a", "bc", ["wrong_tool", "unexpected_call"]),
        ("abc", "d", ["wrong_tool", "missing_call", "missing_call"]),
    ],
)
def test_each_fault_is_told_once(steps: str, made: str, expected: list[str]) -> None:
    assert codes(judge(calls("any_order", *steps), sample([call(name) for name in made]))) == expected


def test_a_call_is_told_beside_the_step_that_it_comes_nearest_to() -> None:
    steps = [{"tool": "f", "args": {"x": 1, "y": 1}}, {"tool": "f", "args": {"x": 2, "y": 2}}]
    judgement = judge(calls("any_order", *steps), sample([call("f", x=2, y=3), call("f", x=9, y=1)]))
    told = [(reason.step, reason.call, reason.path, reason.got) for reason in judgement.reasons]
    assert told == [(1, 0, "/y", 3), (0, 1, "/x", 9)]


def test_exact_calls_of_one_tool_are_told_place_by_place() -> None:
    steps = [{"tool": "f", "args": {"x": 1}}, {"tool": "f", "args": {"x": 2}}]
    judgement = judge(calls("exact", *steps), sample(call("f", x=2), call("f", x=1)))
    assert [(reason.code, reason.call, reason.got) for reason in judgement.reasons] == [
        ("wrong_argument", 0, 2),
        ("wrong_argument", 1, 1),
    ]
