"""The form of an expectation: what it shows it writes back, number by number; what it cannot show it says."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.cases import schema
from quality.improve.expectation_form import MATCHERS, MODES, STEPLESS, Argument, NotPlain, Plain, Step, read, write

VALUES = {
    "equal": st.sampled_from(['"Zürich"', "1.10", "12345678901234567890", '{"a":[1,2]}', "true", "null", '""']),
    "one_of": st.sampled_from(['["a","b"]', "[1,2.0]"]),
    "text": st.text('aZü“ "\\±☂\u202e', max_size=20),
    "number": st.sampled_from(["12.50 ± 0.1", "-3 ± 0"]),
    "gt": st.sampled_from(["1", "2.50"]),
    "gte": st.just("1"),
    "lt": st.just("1"),
    "lte": st.just("1"),
    "regex": st.sampled_from(["[a-z]+", "a|b"]),
    "judge": st.sampled_from(["Says hello", "“quoted”"]),
    "ignore": st.just(""),
    "present": st.just(""),
    "absent": st.just(""),
}
NAMES = st.sampled_from(["city", "unit", "a b", "x/y", "day"])


@st.composite
def arguments(draw):
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    found = []
    for name in names:
        matcher = draw(st.sampled_from(sorted(MATCHERS)))
        found.append(Argument(name, matcher, draw(VALUES[matcher])))
    return tuple(found)


STEPS = st.builds(Step, st.sampled_from(["get_weather", "cancel_*"]), arguments(), st.sampled_from(["forbid", "allow"]))


@st.composite
def plains(draw):
    mode = draw(st.sampled_from(["", *MODES]))
    has_steps = mode and mode not in STEPLESS
    least = 0 if mode == "first" else 1  # of the first reply it may only be said what is forbidden in it
    steps = tuple(draw(st.lists(STEPS, min_size=least, max_size=3))) if has_steps else ()
    forbidden = STEPS.map(lambda step: replace(step, extra=""))
    forbid = tuple(draw(st.lists(forbidden, max_size=2, min_size=0 if steps or mode in STEPLESS else 1)))
    rest = draw(st.sampled_from([{}, {"limits": '{"max_calls": 4}'}, {"null_is_absent": "true"}]))
    return Plain(mode, steps, forbid, rest)


@given(plains())
def test_what_is_written_is_read_again_and_is_a_valid_expectation(plain):
    text = write(plain)
    assert schema.check(text) == []
    assert read(text) == plain


def test_numbers_stay_as_they_are_spelled():
    text = '{"version": 1, "calls": {"steps": [{"tool": "a", "args": {"x": 1.10, "y": {"equal": 1E2}}}]}}'
    assert '"x": {"equal":1.10}' in write(read(text))
    assert '"y": {"equal":1E2}' in write(read(text))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("Zürich", "Zürich"), ('"Zürich"', "Zürich"), ("12", 12), ("[1", "[1"), ("", ""), ("a\x00b", "a\x00b")],
)
def test_text_without_quotes_is_text(typed, meant):
    written = json.loads(write(Plain("first", (Step("a", (Argument("x", "equal", typed),)),))))
    assert written["calls"]["steps"][0]["args"]["x"]["equal"] == meant


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[]", "object"),
        ("{", "JSON"),
        ('{"calls": {"mode": "sideways"}}', "sideways"),
        ('{"calls": {"parallel": true}}', "parallel"),
        ('{"calls": {"steps": [{"any_of": []}]}}', "any_of"),
        ('{"calls": {"steps": [{"tool": "a", "count": {"min": 2}}]}}', "count"),
        ('{"calls": {"steps": [{"tool": "a", "extra_args": {"ignore": ["x"]}}]}}', "extra_args"),
        ('{"calls": {"steps": [{"tool": "a", "args": {"x": {"set": []}}}]}}', "'set'"),
        ('{"calls": {"steps": [{"tool": "a", "args": {"x": {"gt": 1, "lt": 2}}}]}}', "several"),
        ('{"calls": {"steps": [{"tool": "a", "args": {"x": {"text": {"of": "a"}}}}]}}', "options"),
        ('{"forbid": {}}', "forbid"),
        ('{"calls": {"steps": [{}]}}', "names no tool"),
        # A browser would send these back changed.
        ('{"calls": {"steps": [{"tool": "a", "args": {" x": {"equal": 1}}}]}}', "blanks around"),
        ('{"calls": {"steps": [{"tool": "a", "args": {"x\\ny": {"equal": 1}}}]}}', "line breaks"),
        ('{"calls": {"steps": [{"tool": "a", "args": {"": {"equal": 1}}}]}}', "empty name"),
        ('{"calls": {"steps": [{"tool": "a "}]}}', "blanks around"),
        ('{"calls": {"steps": [{"tool": "a", "args": {"x": {"judge": {"rubric": "a\\nb"}}}}]}}', "options"),
        ('{"calls": {"steps": [{"tool": "a", "args": {"x": {"regex": "a\\r\\nb"}}}]}}', "options"),
    ],
)
def test_what_it_cannot_show_it_says(text, where):
    with pytest.raises(NotPlain) as refused:
        read(text)
    assert where in str(refused.value)


def test_a_row_that_was_only_added_says_nothing_and_a_name_given_twice_is_a_fault():
    city = Argument("city", "equal", '"Bern"')
    assert write(Plain("first", (Step("a", (city, Argument(""))),))) == write(Plain("first", (Step("a", (city,)),)))
    twice = write(Plain("first", (Step("a", (city, replace(city, text='"Basel"'))),)))
    (fault,) = schema.check(twice)
    assert "'city' stands twice" in fault.message
