"""Each rule on turns that it speaks of and turns that it keeps quiet on; and what all rules promise together."""

import json
import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.cases.toolset import Toolset
from quality.review.conversation import read_conversation
from quality.review.figures import Known
from quality.review.hints import BY_NAME, MAX_SENTENCE, RULES, SeenCall, SeenTurn, Usual, hints_of

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_order",
            "parameters": {
                "type": "object",
                "properties": {
                    "number": {"type": "string"},
                    "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
                },
                "required": ["number"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "refund_order"}},
]
OFFERED = Toolset.read(TOOLS)
OK = {"args": '{"number":"7"}', "result": '{"status":"sent"}', "is_error": False}
FAILED = {"args": '{"number":"7"}', "result": '"Error: no answer"', "is_error": True}
USUAL = Usual(num_calls=40, median=200.0, spread=20.0)


@dataclass
class Case:
    """A turn: calls as cycles of fields, the final reply, what the user said, and what is said of it: places (index in
    the turn's calls, or None) with a part of the sentence."""

    calls: list[list[dict[str, Any]]]
    said: list[tuple[int | None, str]]
    reply: str | None = "Done."
    user: str = "Where is my order 7?"
    fields: dict[str, Any] | None = None


def turn_of(case: Case) -> SeenTurn:
    calls, messages = [], [{"role": "user", "content": case.user}]
    for cycle, asked in enumerate(case.calls):
        placed = [
            SeenCall(
                **{"id": 10 * cycle + index, "cycle": cycle, "index": index, "tool_name": "get_order", "tools": OFFERED}
                | fields
            )
            for index, fields in enumerate(asked)
        ]
        functions = [{"function": {"name": call.tool_name, "arguments": call.args or ""}} for call in placed]
        messages.append({"role": "assistant", "content": "", "tool_calls": functions})
        messages += [{"role": "tool", "content": call.result or ""} for call in placed]
        calls += placed
    if case.reply is not None:
        messages.append({"role": "assistant", "content": case.reply})

    def known() -> Known:
        found = Known()
        for call in calls:
            found.add_json(call.args or "null", is_base=True)
            found.add_json(call.result or "null", is_base=True)
        found.add_text(case.user, is_base=True)
        return found

    said = tuple(read_conversation(json.dumps(messages), max_text=64_000).messages)
    fields = {"calls": tuple(calls), "said": said, "tools": OFFERED, "known": known}
    return SeenTurn(**fields | (case.fields or {}))


def result(text: Any, **fields: Any) -> dict[str, Any]:
    return {**OK, "result": json.dumps(text), **fields}


CASES: dict[str, dict[str, Case]] = {
    "args_not_object": {
        "text": Case([[OK | {"args": '"{number: 7"'}]], [(0, "“{number: 7”")]),
        "an array": Case([[OK | {"args": "[7]"}]], [(0, "an array: “[7]”")]),
        "null": Case([[OK | {"args": "null"}]], [(0, "null")]),
        "an object": Case([[OK]], []),
        "nothing recorded": Case([[OK | {"args": None}]], []),
        "an object with a key twice": Case([[OK | {"args": '{"number":"7","number":"8"}'}]], []),
        "only the beginning was read": Case([[OK | {"args": '{"number":', "is_whole": False}]], []),
    },
    "repeated_key": {
        "at the top": Case([[OK | {"args": '{"number":"7","number":"8"}'}]], [(0, "“number” twice")]),
        "deep inside": Case([[OK | {"args": '{"number":"7","items":[{"n":1,"n":2}]}'}]], [(0, "“n” twice")]),
        "the same key in two objects": Case([[OK | {"args": '{"number":"7","items":[{"n":1},{"n":2}]}'}]], []),
        "once": Case([[OK]], []),
    },
    "schema_violation": {
        "missing": Case([[OK | {"args": "{}"}]], [(0, "at /number: 'number' is a required property")]),
        "wrong type": Case([[OK | {"args": '{"number":7}'}]], [(0, "at /number: 7 is not of type 'string'")]),
        "deep inside": Case([[OK | {"args": '{"number":"7","items":[{"n":1},{"n":"x"}]}'}]], [(0, "at /items/1/n:")]),
        "one too many": Case([[OK | {"args": '{"number":"7","now":true}'}]], [(0, "at /now:")]),
        "two too many, each told once": Case(
            [[OK | {"args": '{"number":"7","now":true,"x":1}'}]],
            [(0, "at /now: “now” is not allowed."), (0, "at /x: “x” is not allowed.")],
        ),
        "all right": Case([[OK]], []),
        "a tool without a schema": Case([[OK | {"tool_name": "refund_order", "args": '{"x":1}'}]], []),
        "no tools recorded": Case([[OK | {"args": "{}", "tools": Toolset()}]], []),
        "a schema that is none": Case(
            [[OK | {"args": "{}", "tools": Toolset.read([{"name": "get_order", "parameters": {"type": "nonsense"}}])}]],
            [],
        ),
    },
    "unknown_tool": {
        "another": Case([[OK | {"tool_name": "getOrder"}]], [(0, "“getOrder” was offered; offered were get_order, ")]),
        "none of that name": Case([[OK | {"tool_name": "x\ny"}]], [(0, "“x y”")]),
        "offered": Case([[OK]], []),
        "a dot for an underscore": Case([[OK | {"tool_name": "get.order"}]], []),
        "no tools recorded": Case([[OK | {"tool_name": "x", "tools": Toolset()}]], []),
        "run by the provider": Case([[OK | {"tool_name": "web_search", "warnings": ("provider_executed",)}]], []),
    },
    "call_in_prose": {
        "markup": Case(
            [],
            [(None, "“get_order” as text")],
            reply='<tool_call>{"name": "get_order", "arguments": {"number": "7"}}</tool_call>',
        ),
        "a name": Case([], [(None, "naming the tool “get_order”")], reply="I would use get_order with number 7 now."),
        "another tool's name after a call": Case([[OK]], [(0, "“refund_order”")], reply="Next: refund_order(7)"),
        "announced": Case([], [(None, "“I'll check")], reply="Sure. I'll check that for you."),
        "announced in Italian": Case([], [(None, "controllo")], reply="Certo, ora controllo il suo ordine."),
        "announced in Spanish": Case([], [(None, "Voy a consultar")], reply="Voy a consultar su pedido."),
        "an answer": Case([], [], reply="We are open until six."),
        "a question": Case([], [], reply="I'll check that. What is its number?"),
        "a condition": Case([], [], reply="I will check it once you send me the number."),
        "after a call": Case([[OK]], [], reply="It was sent. I'll check again tomorrow."),
        "a tool that was called": Case([[OK]], [], reply="get_order says that it was sent."),
        "no tools": Case([], [], reply="I'll check that.", fields={"tools": Toolset()}),
    },
    "repeated_call": {
        "in the next cycle": Case([[OK], [OK]], [(1, 'as call 1: “{"number":"7"}”')]),
        "spelled otherwise": Case([[OK], [OK | {"args": '{ "number": "7" }'}]], [(1, "as call 1")]),
        "side by side": Case([[OK, OK]], [(1, "as call 1")]),
        "other arguments": Case([[OK], [OK | {"args": '{"number":"8"}'}]], []),
        "another tool": Case([[OK], [OK | {"tool_name": "refund_order"}]], []),
        "after a failure": Case([[FAILED], [OK]], []),
    },
    "error_not_retried": {
        "at the end": Case([[FAILED]], [(0, "failed (“Error: no answer”), and no call followed")]),
        "the last of two": Case([[OK], [FAILED]], [(1, "Error: no answer")]),
        "tried again": Case([[FAILED], [OK]], []),
        "tried otherwise": Case([[FAILED], [OK | {"tool_name": "refund_order"}]], []),
        "refused": Case([[FAILED | {"is_ours": True, "error": "refused"}]], []),
        "stopped by us": Case([[FAILED | {"is_ours": True, "error": "timed_out"}]], []),
        "the turn was cut short": Case([[FAILED]], [], fields={"is_done": False}),
    },
    "retry_storm": {
        "three": Case([[FAILED], [FAILED], [FAILED]], [(2, "failed 3 times in this turn, at last with “Error: no")]),
        "at once": Case([[FAILED, FAILED, FAILED, FAILED], [OK]], [(3, "failed 4 times")]),
        "two": Case([[FAILED], [FAILED], [OK]], []),
        "of different tools": Case([[FAILED], [FAILED | {"tool_name": "refund_order"}], [FAILED]], []),
    },
    "exhausted_loop": {
        "our own": Case([[OK], [OK]], [(1, "used all its cycles after 2 calls")], fields={"end_reason": "exhausted"}),
        "our own, by its budget": Case(
            [[OK]], [(0, "its budget after 1 call,")], fields={"end_reason": "budget_exceeded"}
        ),
        "a log that breaks off": Case([[OK], [OK], [OK]], [(2, "end after 3 calls in 3 cycles")], reply=None),
        "answered": Case([[OK], [OK], [OK]], [], fields={"end_reason": "answered"}),
        "a short log": Case([[OK], [OK]], [], reply=None),
        "still open": Case([[OK], [OK], [OK | {"result": None, "is_error": None}]], [], reply=None),
        "without messages": Case([[OK], [OK], [OK]], [], reply=None, fields={"said": ()}),
    },
    "empty_result": {
        "an empty list": Case([[result([])]], [(0, "empty result: “[]”")]),
        "blank text": Case([[result("  ")]], [(0, "empty result")]),
        "null": Case([[result(None)]], [(0, "“null”")]),
        "no hits": Case([[result({"hits": [], "total": 0})]], [(0, 'found nothing: “{"hits": [], "total": 0}”')]),
        "something": Case([[OK]], []),
        "zero": Case([[result(0)]], []),
        "false": Case([[result({"open": False})]], []),
        "a failure": Case([[result("", is_error=True)]], []),
        "nothing recorded": Case([[OK | {"result": None}]], []),
        "a list beside an answer": Case([[result({"warnings": [], "status": "sent"})]], []),
    },
    "result_cut": {
        "by us": Case([[OK | {"shown": "x" * 40 + "… [truncated]"}]], [(0, "only the first 53 characters")]),
        "a mark": Case([[result("one two [output truncated after 4096 bytes]")]], [(0, "“[output truncated")]),
        "a count": Case([[result("one two... (1200 more characters)")]], [(0, "1200 more characters")]),
        "it says so": Case([[result({"rows": [1], "truncated": True})]], [(0, "truncated: true")]),
        "half of a JSON": Case([[result('{"rows": [' + '"abc", ' * 60)]], [(0, "breaks off after")]),
        "whole": Case([[result({"rows": [1], "truncated": False})]], []),
        "redacted, not cut": Case([[OK | {"shown": '{"status":"***"}'}]], []),
        "words about it": Case([[result("The log was truncated by cron, as it should be.")]], []),
        "not JSON, but whole": Case([[result("{'a': " + "'b'" * 100 + "}")]], []),
    },
    "slow_call": {
        "far out": Case(
            [[OK | {"duration_ms": 9_000, "usual": USUAL}]], [(0, "Took 9.0 s; the 40 calls of get_order")]
        ),
        "of a slow tool": Case(
            [[OK | {"duration_ms": 90_000, "usual": Usual(num_calls=20, median=9_000, spread=900)}]], [(0, "90.0 s")]
        ),
        "usual": Case([[OK | {"duration_ms": 260, "usual": USUAL}]], []),
        "slow, and always so": Case(
            [[OK | {"duration_ms": 20_000, "usual": Usual(num_calls=40, median=9_000, spread=900)}]], []
        ),
        "too few to tell": Case([[OK | {"duration_ms": 9_000, "usual": Usual(num_calls=19, median=2, spread=1)}]], []),
        "nothing to compare": Case([[OK | {"duration_ms": 9_000}]], []),
    },
    "contradicts_result": {
        "a price": Case([[result({"total": 34.0})]], [(0, "“37.00”")], reply="You get 37.00 EUR back."),
        "a date": Case([[result({"eta": "2026-10-30"})]], [(0, "“9 November”")], reply="It comes on 9 November."),
        "a date in Italian": Case([[result({"eta": "2026-10-30"})]], [(0, "“5 marzo 2026”")], reply="Il 5 marzo 2026."),
        "two": Case([[result({"t": 6})]], [(0, "“21”, “88”")], reply="It has 21 degrees and 88% humidity."),
        "the same price": Case([[result({"total": 1299.5})]], [], reply="In total 1.299,50 €, or 1 299.50."),
        "the same day": Case([[result({"eta": "2026-10-30"})]], [], reply="El 30 de octubre, that is October 30th."),
        "rounded": Case([[result({"t": 21.48})]], [], reply="It is about 21 °C."),
        "worked out": Case([[result({"items": [{"n": 2, "price": 17.5}]})]], [], reply="Together 35.00 EUR."),
        "a sum": Case([[result([{"p": 10.5}, {"p": 20.25}, {"p": 30.5}])]], [], reply="Together 61.25."),
        "per cent": Case([[result({"share": 0.37})]], [], reply="37% of them."),
        "by the user": Case([[OK]], [], user="I paid 450 EUR on 3/4/2026", reply="You paid 450 on 3 April 2026."),
        "a piece of an id": Case([[result({"id": "ORD-773199"})]], [], reply="Your order 773199 was sent."),
        "small counts, times, lists": Case([[OK]], [], reply="1. Two of 3 came at 14:30.\n2. The rest at 5 pm."),
        "code and addresses": Case([[OK]], [], reply="See https://example.com/a/4711 and `wait 4711`."),
        "a result is missing": Case([[OK], [OK | {"result": None}]], [], reply="You get 37.00 EUR."),
        "the rest is not known": Case([[OK]], [], reply="You get 37.00.", fields={"add_before": lambda _: False}),
        "no call": Case([], [], reply="It costs 37.00 EUR."),
    },
    "declined": {
        "with a reason": Case(
            [[FAILED | {"is_ours": True, "error": "refused", "result": '"Error: the call was refused: too dear"'}]],
            [(0, "refused this call of get_order: “Error: the call was refused: too dear”")],
        ),
        "elsewhere": Case([[FAILED | {"warnings": ("denied",), "error": None}]], [(0, "this call of get_order.")]),
        "a connection": Case([[FAILED | {"error": "refused"}]], []),
        "a failure": Case([[FAILED | {"is_ours": True, "error": "tool_crashed"}]], []),
    },
}


def test_each_rule_has_cases_both_ways() -> None:
    assert CASES.keys() == BY_NAME.keys()
    for name, cases in CASES.items():
        speaking = [case for case in cases.values() if case.said]
        assert min(len(speaking), len(cases) - len(speaking)) >= 2, name


@pytest.mark.parametrize(
    ("rule", "case"),
    [pytest.param(name, case, id=f"{name}-{key}") for name in CASES for key, case in CASES[name].items()],
)
def test_a_rule_says_this(rule: str, case: Case) -> None:
    turn = turn_of(case)
    found = [remark for remark in hints_of(turn) if remark.rule == rule]
    calls = list(turn.calls)
    assert [calls.index(remark.call) if remark.call else None for remark in found] == [at for at, _ in case.said]
    for remark, (_, part) in zip(found, case.said, strict=True):
        assert part in remark.sentence


def test_a_path_points_at_the_argument() -> None:
    (remark,) = hints_of(turn_of(Case([[OK | {"args": '{"number":"7","items":[{"n":"x"}]}'}]], [])))
    assert (remark.rule, remark.path, remark.cycle) == ("schema_violation", "/items/0/n", 0)


def test_sentences_are_bounded_and_storable() -> None:
    hostile = json.dumps({"number": "\0\ud800" + "<script>" * 10_000, "\0" * 900: 1})
    for remark in hints_of(
        turn_of(Case([[OK | {"args": hostile, "tool_name": "\0" * 5_000}], [OK | {"args": hostile}]], []))
    ):
        assert len(remark.sentence) <= MAX_SENTENCE + 20
        assert "\0" not in remark.sentence + remark.path
        (remark.sentence + remark.path).encode()


@pytest.mark.parametrize("piece", ["\n", ". ", " ", "I'll ", "get_order", "[truncated", "“", "{", '{{"name": '])
def test_long_replies_and_results_are_read_in_one_go(piece: str) -> None:
    """A pattern that began anew at each character would not come to an end."""
    text = (piece * 60_000)[:60_000]
    hints_of(turn_of(Case([[result(text, args=json.dumps({"number": text}))]], [], reply=text)))
    hints_of(turn_of(Case([], [], reply=text)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-50, 50) | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3)
)
CALLS = st.fixed_dictionaries(
    {
        "args": st.none()
        | st.sampled_from(['{"number":"7"}', "{}", "[]", '"x', '{"a":1,"a":2}'])
        | JSON.map(json.dumps),
        "result": st.none() | JSON.map(json.dumps),
        "is_error": st.sampled_from([None, True, False]),
        "tool_name": st.sampled_from(["get_order", "refund_order", "other"]),
        "duration_ms": st.none() | st.integers(0, 100_000),
        "usual": st.sampled_from([None, USUAL]),
    }
)


@given(
    st.lists(st.lists(CALLS, min_size=1, max_size=3), max_size=4),
    st.none() | st.text(max_size=30) | st.just("I'll check 4711 on 5 May."),
    st.randoms(use_true_random=False),
)
def test_the_same_turn_has_the_same_hints_whatever_the_order_of_its_rows(
    calls: list[list[dict[str, Any]]], reply: str | None, order: random.Random
) -> None:
    turn = turn_of(Case(calls, [], reply=reply))
    rows = list(turn.calls)
    order.shuffle(rows)
    once, again = hints_of(turn), hints_of(turn_of(Case(calls, [], reply=reply, fields={"calls": tuple(rows)})))
    assert [(one.place, one.sentence) for one in once] == [(one.place, one.sentence) for one in again]
    places = [one.place for one in once]
    assert len(places) == len(set(places))


def test_each_rule_is_told_in_words() -> None:
    assert len({rule.word for rule in RULES}) == len(RULES)
    assert all(rule.about.endswith(".") and rule.word == rule.word.lower() for rule in RULES)
