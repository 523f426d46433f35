"""Faults of expectations as people write them, and the published schemas."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quality.cases.matchers import MATCHERS
from quality.cases.published import SCHEMAS, text_of
from quality.cases.schema import EXPECTATION_SCHEMA, ExpectationError, advise, check, parse
from tests.cases.samples import calls, tool

LEISURELY = settings(deadline=None, max_examples=60)

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas"
EXAMPLE = {
    "version": 1,
    "calls": {
        "mode": "exact",
        "steps": [
            {"tool": "get_order", "args": {"order_number": {"equal": "7731"}}, "extra_args": "forbid"},
            {
                "any_of": [{"tool": "refund_order"}, {"tool": "create_ticket"}],
                "when": {"result": 0, "path": "/status", "equal": "delivered"},
            },
        ],
    },
    "forbid": [{"tool": "cancel_*"}, {"tool": "refund_order", "args": {"amount": {"gt": 100}}}],
    "limits": {"max_calls": 4, "max_cycles": 3},
    "reply": {
        "must": [{"contains": "7731", "fold": True}],
        "must_not": [{"regex": "refund(ed)?"}],
        "judge": None,
    },
    "verdict": {"k": 5, "need": "all"},
}
TOOLS = [
    tool("get_order", ("order_number",), order_number={"type": "string"}),
    tool("refund_order", order_number={"type": "string"}, amount={"type": "number"}),
    tool("create_ticket"),
]


def with_args(**args: Any) -> dict[str, Any]:
    return calls("first", {"tool": "f", "args": args})


def test_the_example_is_right() -> None:
    assert check(EXAMPLE) == check(json.dumps(EXAMPLE)) == check(EXAMPLE, TOOLS) == []
    parsed = parse(EXAMPLE)
    assert (parsed.verdict.k, parsed.verdict.need, parsed.needs_judge, parsed.first_cycle_only) == (
        5,
        "all",
        False,
        False,
    )


def test_everything_but_the_version_is_optional() -> None:
    assert check({"version": 1}) == []
    assert [fault.code for fault in advise({"version": 1})] == ["expects_nothing"]


FAULTS: list[tuple[Any, str, str, str]] = [
    ({}, "", "bad_version", '"version": 1'),
    ({"version": 2}, "/version", "bad_version", '"version": 1'),
    ({"version": True}, "/version", "bad_version", '"version": 1'),
    ([], "", "wrong_type", "must be an object, not an array"),
    ("{broken", "", "not_json", "no JSON"),
    ({"version": 1, "call": {}}, "/call", "unknown_key", 'did you mean "calls"?'),
    ({"version": 1, "Forbid": []}, "/Forbid", "unknown_key", 'did you mean "forbid"?'),
    (calls("exactly", "a"), "/calls/mode", "unknown_mode", 'did you mean "exact"?'),
    (calls("first", {"tol": "a"}), "/calls/steps/0/tol", "unknown_key", 'did you mean "tool"?'),
    (calls("first", {"args": {}}), "/calls/steps/0", "missing_key", 'needs "tool"'),
    (calls("first", {"tool": ""}), "/calls/steps/0/tool", "empty_text", "must not be empty"),
    (calls("first", {"tool": 5}), "/calls/steps/0/tool", "wrong_type", "must be text, not a number"),
    (calls("exact"), "/calls", "steps_missing", 'needs "steps"'),
    (calls("first"), "/calls", "steps_missing", 'needs "steps"'),
    (calls("none", "a"), "/calls/steps", "steps_not_used", "takes no steps"),
    (calls("first", {"tool": "f", "args": []}), "/calls/steps/0/args", "wrong_type", "names and matchers"),
    (calls("first", {"tool": "f", "extra_args": "alow"}), "/calls/steps/0/extra_args", "unknown_value", '"allow"?'),
    (calls("first", {"tool": "f", "count": {}}), "/calls/steps/0/count", "missing_key", '"min" or "max"'),
    (calls("exact", {"tool": "f", "count": {"min": 2, "max": 1}}), "/calls/steps/0/count", "out_of_range", "above"),
    (calls("exact", {"steps": [{"tool": "a"}]}), "/calls/steps/0", "missing_key", '"parallel": true'),
    (calls("exact", {"any_of": []}), "/calls/steps/0/any_of", "wrong_length", "1 to"),
    (
        calls("exact", {"any_of": [{"tool": "a", "count": {"min": 1}}]}),
        "/calls/steps/0/any_of/0/count",
        "unknown_key",
        "count",
    ),
    (with_args(x={"eqal": 5}), "/calls/steps/0/args/x/eqal", "unknown_matcher", 'did you mean "equal"?'),
    (with_args(x={"city": "Rome"}), "/calls/steps/0/args/x/city", "unknown_matcher", '{"equal": {…}}'),
    (with_args(x={}), "/calls/steps/0/args/x", "empty_matcher", '{"equal": {…}}'),
    (with_args(x={"regex": "(a"}), "/calls/steps/0/args/x/regex", "bad_regex", "no regular expression"),
    (with_args(x={"regex": "(?=a)"}), "/calls/steps/0/args/x/regex", "bad_regex", "linear time"),
    (with_args(x={"regex": "a" * 1_001}), "/calls/steps/0/args/x/regex", "too_long", "1,000"),
    (with_args(x={"gt": "5"}), "/calls/steps/0/args/x/gt", "wrong_type", "must be a number, not text"),
    (with_args(x={"number": 5}), "/calls/steps/0/args/x/number", "wrong_type", "must be an object"),
    (with_args(x={"number": {"abs": 1}}), "/calls/steps/0/args/x/number", "missing_key", '"of"'),
    (with_args(x={"number": {"of": 1, "abs": -1}}), "/calls/steps/0/args/x/number/abs", "out_of_range", "at least 0"),
    (with_args(x={"date": "soon"}), "/calls/steps/0/args/x/date", "bad_date", "2026-12-01"),
    (with_args(x={"date": "today+2h"}), "/calls/steps/0/args/x/date", "bad_date", "now+2h"),
    (
        with_args(x={"date": {"of": "today", "tolerance": "1 day"}}),
        "/calls/steps/0/args/x/date/tolerance",
        "bad_duration",
        "1d",
    ),
    (with_args(x={"text": {"of": "a", "case": "lower"}}), "/calls/steps/0/args/x/text/case", "unknown_value", "fold"),
    (with_args(x={"text": "a"}), "/calls/steps/0/args/x/text", "wrong_type", "object"),
    (with_args(x={"schema": {"type": "strin"}}), "/calls/steps/0/args/x/schema", "bad_schema", "cannot be used"),
    (
        with_args(x={"schema": {"$ref": "http://x/y"}}),
        "/calls/steps/0/args/x/schema",
        "bad_schema",
        "leaves the schema",
    ),
    (with_args(x={"ignore": False}), "/calls/steps/0/args/x/ignore", "wrong_value", "takes true"),
    (with_args(x={"one_of": []}), "/calls/steps/0/args/x/one_of", "wrong_length", "1 to"),
    (with_args(x={"one_of": [{"rgex": "a"}]}), "/calls/steps/0/args/x/one_of/0/rgex", "unknown_matcher", "regex"),
    (with_args(x={"not": {"each": {"gtt": 1}}}), "/calls/steps/0/args/x/not/each/gtt", "unknown_matcher", "gt"),
    (with_args(x={"object": {"a": 1}}), "/calls/steps/0/args/x/object/a", "unknown_key", "fields"),
    (with_args(x={"strict_type": True}), "/calls/steps/0/args/x/strict_type", "unknown_key", '"equal"'),
    (with_args(x={"judge": {"of": "a"}}), "/calls/steps/0/args/x/judge", "missing_key", "rubric"),
    (with_args(x={"email": "nobody"}), "/calls/steps/0/args/x/email", "wrong_type", "e-mail"),
    (with_args(**{"/a~b": 1}), "/calls/steps/0/args/~1a~0b", "bad_pointer", "~0"),
    (calls("exact", "a", {"tool": "b", "when": {"path": "/x"}}), "/calls/steps/1/when", "missing_key", "result"),
    (
        calls("exact", "a", {"tool": "b", "when": {"result": 0, "path": "/x"}}),
        "/calls/steps/1/when",
        "missing_key",
        "matcher",
    ),
    (
        calls("exact", "a", {"tool": "b", "when": {"result": 0, "path": "x", "equal": 1}}),
        "/calls/steps/1/when/path",
        "bad_pointer",
        "begins with",
    ),
    (
        calls("exact", "a", {"tool": "b", "when": {"result": 1, "path": "", "equal": 1}}),
        "/calls/steps/1/when/result",
        "bad_reference",
        "earlier step",
    ),
    (
        calls(
            "exact", {"tool": "a", "count": {"min": 1}}, {"tool": "b", "when": {"result": 0, "path": "", "equal": 1}}
        ),
        "/calls/steps/1/when/result",
        "bad_reference",
        "more than one call",
    ),
    (
        calls("first", "a", {"tool": "b", "when": {"result": 0, "path": "", "equal": 1}}),
        "/calls/steps/1/when",
        "not_reached",
        "another mode",
    ),
    ({**calls("first", "a"), "reply": {"must": [{"contains": "x"}]}}, "/reply", "not_reached", "another mode"),
    ({**calls("first", "a"), "retry": {"on_error": "stop"}}, "/retry", "not_reached", "another mode"),
    (
        {"version": 1, "forbid": [{"tool": "a", "extra_args": "allow"}]},
        "/forbid/0/extra_args",
        "unknown_key",
        "extra_args",
    ),
    ({"version": 1, "limits": {"max_calls": -1}}, "/limits/max_calls", "out_of_range", "0"),
    ({"version": 1, "limits": {"max_call": 1}}, "/limits/max_call", "unknown_key", "max_calls"),
    ({"version": 1, "retry": {}}, "/retry", "missing_key", "same_tool"),
    ({"version": 1, "retry": {"on_error": "again"}}, "/retry/on_error", "unknown_value", "same_tool"),
    ({"version": 1, "reply": {"must": [{"contain": "x"}]}}, "/reply/must/0/contain", "unknown_check", '"contains"?'),
    ({"version": 1, "reply": {"must": ["x"]}}, "/reply/must/0", "wrong_type", '{"contains": "7731"}'),
    ({"version": 1, "reply": {"must": [{"contains": "x", "regex": "y"}]}}, "/reply/must/0", "wrong_length", "one of"),
    (
        {"version": 1, "reply": {"must_not": [{"regex": "x", "fold": True}]}},
        "/reply/must_not/0/fold",
        "unknown_key",
        "fold",
    ),
    ({"version": 1, "reply": {"must": [{"language": "xx"}]}}, "/reply/must/0/language", "unknown_value", "language"),
    (
        {"version": 1, "reply": {"must": [{"uses_result": {"result": 0, "path": ""}}]}},
        "/reply/must/0/uses_result/result",
        "bad_reference",
        "no step 0",
    ),
    ({"version": 1, "verdict": {"k": 0}}, "/verdict/k", "out_of_range", "1"),
    ({"version": 1, "verdict": {"need": "most"}}, "/verdict/need", "unknown_value", "majority"),
    ({"version": 1, "verdict": {"need": 1.5}}, "/verdict/need", "out_of_range", "at most 1"),
    ({"version": 1, "null_is_absent": "yes"}, "/null_is_absent", "wrong_type", "true or false"),
    ({"version": 1, "limits": {"max_calls": float("nan")}}, "", "not_json", "nan is not JSON"),
]


@pytest.mark.parametrize(("expectation", "path", "code", "words"), FAULTS)
def test_a_fault_names_place_and_cure(expectation: Any, path: str, code: str, words: str) -> None:
    faults = check(expectation)
    assert (path, code) in [(fault.path, fault.code) for fault in faults]
    assert any(words in fault.message for fault in faults if fault.path == path), faults
    with pytest.raises(ExpectationError):
        parse(expectation)


def test_all_faults_are_told_at_once() -> None:
    expectation = {"version": 1, "calls": {"mode": "exactly", "steps": [{"tol": 1}]}, "forbids": []}
    assert len(check(expectation)) == 4


def test_tools_of_the_case_bind_the_steps() -> None:
    def faults(step: Any) -> list[tuple[str, str]]:
        return [(fault.path, fault.code) for fault in check(calls("first", step), TOOLS)]

    assert faults({"tool": "get_ordr"}) == [("/calls/steps/0/tool", "unknown_tool")]
    assert 'did you mean "get_order"?' in check(calls("first", {"tool": "get_ordr"}), TOOLS)[0].message
    assert faults({"tool": "cancel_*"}) == [("/calls/steps/0/tool", "unknown_tool")]
    assert faults({"tool": "*_order", "args": {"x": 1}}) == []
    assert faults({"tool": "get.order", "args": {"order_no": "1"}}) == [
        ("/calls/steps/0/args/order_no", "unknown_argument")
    ]
    assert faults({"tool": "get_order", "args": {"order_no": {"absent": True}}}) == []
    assert faults({"any_of": [{"tool": "get_order"}, {"tool": "x"}]}) == [
        ("/calls/steps/0/any_of/1/tool", "unknown_tool")
    ]
    assert faults({"parallel": True, "steps": [{"tool": "get_order"}, {"tool": "x"}]}) == [
        ("/calls/steps/0/steps/1/tool", "unknown_tool")
    ]
    assert check({"version": 1, "forbid": [{"tool": "x"}]}, TOOLS) == []
    assert [fault.code for fault in advise({"version": 1, "forbid": [{"tool": "x"}]}, TOOLS)] == ["unknown_tool"]


def test_advice_on_a_step_that_names_no_argument() -> None:
    assert [fault.code for fault in advise(calls("first", {"tool": "get_order"}), TOOLS)] == ["no_arguments"]
    assert advise(calls("first", {"tool": "create_ticket"}), TOOLS) == []
    assert advise(calls("first", "get_order"), TOOLS) == []


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_published_schemas_are_those_of_the_code(name: str) -> None:
    assert (PUBLISHED / name).read_text("utf-8") == text_of(SCHEMAS[name]), (
        "run: python -m quality.cases.published docs/schemas"
    )
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_every_matcher_is_in_the_published_schema() -> None:
    (_, objects) = EXPECTATION_SCHEMA["$defs"]["matcher"]["anyOf"]
    assert set(objects["properties"]) == {*MATCHERS, "strict_type"}


# Pieces that people mistype, wrongly put together: what the code takes, the published schema takes.
values = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3)
names = st.sampled_from(
    [
        *MATCHERS,
        "strict_type",
        "of",
        "abs",
        "min",
        "max",
        "fields",
        "extra",
        "rubric",
        "tool",
        "args",
        "any_of",
        "steps",
        "parallel",
        "when",
        "result",
        "path",
        "count",
        "extra_args",
        "mode",
        "version",
        "calls",
        "forbid",
        "reply",
        "must",
    ]
)
pieces = st.recursive(
    values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=12
)


@LEISURELY
@given(pieces, pieces, pieces)
def test_check_and_schema_agree_and_nothing_raises(matcher: Any, step: Any, reply: Any) -> None:
    validator = jsonschema.Draft202012Validator(EXPECTATION_SCHEMA)
    for expectation in (
        with_args(x=matcher),
        {"version": 1, "calls": {"mode": "exact", "steps": [step]}},
        {"version": 1, "reply": {"must": [reply], "judge": matcher}},
        {"version": 1, "forbid": [step], "limits": matcher, "verdict": reply},
        step,
    ):
        faults = check(expectation)
        if not faults:
            validator.validate(expectation)
        elif not validator.is_valid(expectation):
            assert any(fault.code != "schema" for fault in faults), (expectation, faults)
        advise(expectation, TOOLS)
