"""Calls that mean the same have one spelling."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quality.cases.canonical import call_hash, canonical_arguments, canonical_json
from quality.cases.values import equal, exact, key_of, read_exact

LEISURELY = settings(deadline=None, max_examples=60)

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "default": "c"},
        "note": {"type": ["string", "null"]},
        "must": {"type": ["string", "null"]},
        "inner": {"type": "object", "properties": {"page": {"type": "integer", "default": 1}}},
    },
    "required": ["must"],
}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"b": 1, "a": 2}', '{"a":2,"b":1}'),
        ('{"a": 5.0}', '{"a": 5}'),
        ('{"a": 1e2}', '{"a": 100.00}'),
        ('{"a": "\\u00e9"}', '{"a": "é"}'),
        ("", "{}"),
    ],
)
def test_spellings_of_one_value(left: str, right: str) -> None:
    assert canonical_arguments(left) == canonical_arguments(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"a": 5}', '{"a": "5"}'),
        ('{"a": 1}', '{"a": true}'),
        ('{"a": null}', "{}"),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": 0.1}', '{"a": 0.10000000000000000001}'),
    ],
)
def test_other_values_are_others(left: str, right: str) -> None:
    assert canonical_arguments(left) != canonical_arguments(right)


def test_defaults_are_filled_and_optional_nulls_dropped() -> None:
    written = '{"note": null, "must": null, "city": "Rome", "inner": {}, "more": null}'
    assert json.loads(canonical_arguments(written, SCHEMA)) == {
        "city": "Rome",
        "inner": {"page": 1},
        "more": None,
        "must": None,
        "unit": "c",
    }


@pytest.mark.parametrize("text", ["{broken", "[1]", '"text"', '{"a":1,"a":2}', "\ud800"])
def test_arguments_that_are_none_are_kept_as_text(text: str) -> None:
    assert json.loads(canonical_arguments(text)) == text


def test_a_hash_is_of_name_and_arguments() -> None:
    expected = hashlib.sha256(b'f_g\n{"a":5}').hexdigest()
    assert call_hash("f.g", '{"a": 5.0}') == call_hash("f_g", {"a": 5}) == expected
    assert call_hash("f", "{}") != call_hash("g", "{}")


# 1e308 is canonically an integer of more digits than are read.
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e300, 1e300) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@LEISURELY
@given(values, values)
def test_one_spelling_exactly_for_equal_values(left: Any, right: Any) -> None:
    left, right = exact(left), exact(right)
    assert (canonical_json(left) == canonical_json(right)) is (key_of(left) == key_of(right))
    assert equal(read_exact(canonical_json(left)), left)
