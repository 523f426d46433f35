"""Arguments against schemas, both written by strangers."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import patterns
from engine.errors import ToolError
from engine.schema import EMPTY, ArgumentSchema, declared_names, schema_fault
from engine.strict_json import JsonError, read_arguments, read_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "$ref",
        "pattern",
        "anyOf",
        "minimum",
        "multipleOf",
        "enum",
        "not",
        "$schema",
    ]
)
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "^[A-Z]"},
        "days": {"type": "array", "items": {"type": "integer", "maximum": 7}},
    },
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("arguments", "path", "reason"),
    [
        ({}, "$", "'city' is a required property"),
        ({"city": 5}, "$.city", "5 is not of type 'string'"),
        ({"city": "ghent"}, "$.city", "'ghent' does not match '^[A-Z]'"),
        ({"city": "Ghent", "days": [1, "two"]}, "$.days[1]", "'two' is not of type 'integer'"),
        ({"city": "Ghent", "days": [8]}, "$.days[0]", "8 is greater than the maximum of 7"),
        ([], "$", "arguments must be a JSON object"),
        (None, "$", "arguments must be a JSON object"),
    ],
)
def test_a_fault_names_its_place_and_its_reason(arguments: Any, path: str, reason: str) -> None:
    fault = ArgumentSchema(CITY).fault(arguments)

    assert fault is not None
    assert (fault.path, fault.reason) == (path, reason)


def test_good_arguments_have_no_fault() -> None:
    assert ArgumentSchema(CITY).fault({"city": "Ghent", "days": [1, 7]}) is None
    assert ArgumentSchema(EMPTY).fault({}) is None


def test_a_reason_quotes_no_megabyte() -> None:
    fault = ArgumentSchema(CITY).fault({"city": "g" * 9_000})

    assert fault is not None
    assert len(fault.reason) < 400


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        {"type": "string"},
        {"type": "object", "properties": []},
        {"properties": {"a": {"type": "strnig"}}},
        {"properties": {"a": {"$ref": "https://attacker.example/schema.json"}}},
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"a": {"$dynamicRef": "https://attacker.example/schema.json"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"pattern": "a" * 2_000}}},
        {"patternProperties": {"[": {}}},
    ],
)
def test_what_is_no_usable_schema_says_why(parameters: Any) -> None:
    assert schema_fault(parameters)
    if isinstance(parameters, dict):
        with pytest.raises(ToolError):
            ArgumentSchema(parameters)


@given(st.dictionaries(KEYWORDS, JSON, max_size=4), JSON)
def test_no_schema_and_no_arguments_raise(schema: dict[str, Any], arguments: Any) -> None:
    try:
        compiled = ArgumentSchema(schema)
    except ToolError:
        return
    compiled.fault(arguments)
    if isinstance(arguments, dict):
        compiled.known(arguments)


def test_references_within_the_schema_are_followed_and_missing_ones_are_told() -> None:
    schema = {
        "$defs": {"n": {"type": "integer"}},
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/x"}},
    }
    compiled = ArgumentSchema(schema)

    assert compiled.fault({"a": 1}) is None
    assert compiled.fault({"a": "x"}) is not None
    assert "does not contain" in str(compiled.fault({"b": 1}))


def test_a_schema_that_refers_to_itself_ends() -> None:
    compiled = ArgumentSchema({"properties": {"a": {"$ref": "#/properties/a"}}})

    assert "cannot be checked" in str(compiled.fault({"a": 1}))


def test_a_pattern_made_to_hang_is_stopped_and_the_next_one_works() -> None:
    compiled = ArgumentSchema({"properties": {"a": {"pattern": "(a+)+$"}, "b": {"pattern": "^(x|y)+$"}}})
    started = time.monotonic()

    assert "takes too long" in str(compiled.fault({"a": "a" * 40 + "!"}))
    assert time.monotonic() - started < 2
    assert compiled.fault({"b": "xyx"}) is None
    assert compiled.fault({"b": "xyz"}) is not None


def test_patterns_on_keys_are_bounded_as_well() -> None:
    compiled = ArgumentSchema({"patternProperties": {"^(a+)+$": {"type": "integer"}}})

    assert compiled.fault({"aaa": 1}) is None
    assert compiled.fault({"aaa": "x"}) is not None
    assert "takes too long" in str(compiled.fault({"a" * 40 + "!": 1}))


def test_more_text_than_patterns_are_matched_against_is_told() -> None:
    with pytest.raises(patterns.PatternTimeout, match="10000"):
        patterns.search("a", "b" * 10_001)


@pytest.mark.parametrize("pattern", [r"^\d{4}-\d{2}$", "^[A-Z]+$", "a|b", r"^(a|b)$", r"[(*+]{2}", ".", ""])
def test_matching_is_searching_as_python_does_it(pattern: str) -> None:
    import re

    for text in ("", "2026-11", "ABC", "a", "(*", "x\ny", "é"):
        assert patterns.search(pattern, text) == bool(re.search(pattern, text))


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({}, set()),
        ({"properties": {"a": {}}}, {"a"}),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a"}),
        ({"properties": {"a": {}}, "additionalProperties": True}, None),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, None),
        ({"patternProperties": {"^x": {}}}, None),
        ({"$ref": "#/$defs/x"}, None),
        ({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"required": ["a"]}]}, {"a", "b"}),
        ({"if": {}, "then": {"properties": {"c": {}}}, "else": {"properties": {"d": {}}}}, {"c", "d"}),
        ({"allOf": [{"$ref": "#/$defs/x"}]}, None),
    ],
)
def test_the_names_that_a_schema_declares(schema: dict[str, Any], names: set[str] | None) -> None:
    assert declared_names(schema) == names


def test_names_of_its_own_accord_are_not_passed_on() -> None:
    schema = ArgumentSchema({"properties": {"day": {}}})

    assert schema.known({"day": 1, "__tenant_id": "2", "tool": "x"}) == {"day": 1}
    assert schema.known({"day": 1, "pid": "2"}, frozenset(["pid"])) == {"day": 1, "pid": "2"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "malformed_json"),
        ('{"a":1}x', "malformed_json"),
        ('{"a":"\n"}', "malformed_json"),
        ("[NaN]", "non_finite_number"),
        ("[-Infinity]", "non_finite_number"),
        ("[1e400]", "number_out_of_range"),
        ("[-1e400]", "number_out_of_range"),
        ("[1e-400]", "number_out_of_range"),
        ("[" + "9" * 309 + "]", "number_out_of_range"),
        ("[0." + "1" * 309 + "]", "number_out_of_range"),
        ("[" * 101 + "]" * 101, "too_deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "too_deep"),
        ('{"a":1,"\\u0061":2}', "duplicate_key"),
    ],
)
def test_json_beyond_the_limits_is_named(text: str, code: str) -> None:
    with pytest.raises(JsonError) as refused:
        read_json(text)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100 + "]" * 100,
        "[" + "9" * 308 + "]",
        "[0.0, -0, 0e5, 1e308, 5e-324]",
        '["' + "[" * 500 + '"]',
        '"\\ud800"',
        "\ufeff{}",
    ],
)
def test_json_at_the_limits_is_read(text: str) -> None:
    read_json(text)


@given(st.text())
def test_no_text_makes_the_reader_raise_anything_else(text: str) -> None:
    for candidate in (text, f'{{"a": {text}}}'):
        try:
            read_arguments(candidate)
        except JsonError:
            continue


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ({}, {("city",), ("stay",)}),  # left out
        ({"city": 5, "stay": {}}, {("city",), ("stay", "nights")}),
        ({"city": "Ghent", "stay": {"nights": 1}, "days": [8, 1]}, {("days", 0)}),
        ({"city": "Ghent", "stay": {"nights": 1}, "x-a": 1, "b": 1, "c": 2}, {("b",), ("c",)}),  # too much
        ({"city": "Ghent", "stay": {"nights": 1}}, set()),
    ],
)
def test_faults_know_the_values_that_they_are_about(arguments: Any, places: set[tuple[str | int, ...]]) -> None:
    properties: Any = {**CITY["properties"], "stay": {"type": "object", "required": ["nights"]}}
    schema = {
        **CITY,
        "properties": properties,
        "required": ["city", "stay"],
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
    }
    assert {place for fault in ArgumentSchema(schema).faults(arguments) for place in fault.places} == places


def test_each_value_that_is_left_out_has_its_own_reason_alone() -> None:
    told = [(fault.places, fault.reason) for fault in ArgumentSchema({"required": ["a", "b", "a b"]}).faults({"c": 1})]
    assert told == [(((name,),), f"{name!r} is a required property") for name in ("a", "b", "a b")]


def test_a_schema_that_cannot_be_asked_names_no_place() -> None:
    (fault,) = ArgumentSchema({"properties": {"a": {"$ref": "#/nowhere"}}}).faults({"a": 1})
    assert fault.places == ()
