import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quality.ingest.records import (
    CallRecord,
    Conflict,
    TurnRecord,
    correct_call,
    merge_calls,
    merge_turns,
    toolset_sha256,
)

NAMES = st.none() | st.sampled_from(["a", "b"])
GROWING = ['[{"role":"user"}]', '[{"role":"user"},{"role":"assistant"}]', '[{"role": "user"},{"role":"assistant"}]']
TURNS = st.builds(
    TurnRecord,
    external_id=st.just("t"),
    source=st.just("s"),
    conversation=NAMES,
    outbound_message=NAMES,
    style_id=NAMES,
    started_at=st.none() | st.sampled_from(["2026-05-12T08:30:00.000Z", "2026-05-12T08:30:01.000Z"]),
    messages=st.none() | st.sampled_from(GROWING),
    num_cycles=st.integers(0, 3),
    tools=st.none() | st.sampled_from(['[{"a":1}]', '[{"b":1}]', '[{"b": 1}]']),
    warnings=st.sampled_from([(), ("x",), ("x", "y")]),
)


@given(TURNS, TURNS, TURNS)
def test_turns_merge_in_any_order_and_repetition(one, two, three):
    merged = {
        merge_turns(merge_turns(first, second), third).digest()
        for first, second, third in itertools.permutations([one, two, three])
    }
    merged.add(merge_turns(one, merge_turns(two, merge_turns(three, merge_turns(two, one)))).digest())
    assert len(merged) == 1
    assert merge_turns(one, one).digest() == one.digest()


def test_turns_with_another_first_message_do_not_merge():
    one = TurnRecord("t", "s", messages='[{"role":"user","content":"a"}]')
    other = TurnRecord("t", "s", messages='[{"role":"user","content":"b"},{"role":"assistant"}]')
    with pytest.raises(Conflict):
        merge_turns(one, other)


ASKED = CallRecord("c", "get_order", args="{}", warnings=("no_result",))
DONE = replace(ASKED, result='"sent"', is_error=False, warnings=(), duration_ms=5)


def test_a_call_takes_the_outcome_that_it_lacked():
    assert merge_calls(ASKED, DONE) == merge_calls(DONE, ASKED) == DONE


@pytest.mark.parametrize(
    ("changes", "field"), [({"args": "[]"}, "args"), ({"result": '"lost"'}, "result"), ({"duration_ms": 6}, "duration")]
)
def test_a_call_with_another_content_is_a_conflict(changes, field):
    with pytest.raises(Conflict, match=field):
        merge_calls(DONE, replace(DONE, **changes))


WHOLE = replace(
    DONE,
    cycle=1,
    index=2,
    tool_call_id="t",
    conversation="c",
    contact="joe",
    message="m",
    started_at="2026-05-12T08:30:00.000Z",
    model="gpt-x",
    provider="p",
    prompt_version="1",
    tools='[{"a":1}]',
)
OPTIONAL = {"args": None, "result": None, "is_error": None, "cycle": 0, "index": 0} | dict.fromkeys(
    ("tool_call_id", "conversation", "contact", "message", "started_at", "model", "provider", "prompt_version", "tools")
)


def parts_of_a_call() -> st.SearchStrategy[CallRecord]:
    """The whole call with some of its values not told, and the warnings that an importer adds for them."""

    def part(names: set[str]) -> CallRecord:
        warnings = {"args": "args_missing", "result": "no_result"}
        found = tuple(sorted(warning for name, warning in warnings.items() if name in names))
        return replace(WHOLE, warnings=found, **{name: OPTIONAL[name] for name in names})

    return st.sets(st.sampled_from(sorted(OPTIONAL))).map(part)


@given(st.lists(parts_of_a_call(), min_size=1, max_size=5), st.randoms())
def test_parts_of_a_call_merge_in_any_order_and_lose_nothing(parts, random):
    shuffled = random.sample(parts, len(parts))
    merged = [functools.reduce(merge_calls, order) for order in (parts, shuffled, [*parts, *shuffled])]
    assert len({call.digest() for call in merged}) == 1
    for name, unknown in OPTIONAL.items():
        told = any(getattr(part, name) != unknown for part in parts)
        assert getattr(merged[0], name) == (getattr(WHOLE, name) if told else unknown)
    assert ("no_result" in merged[0].warnings) == (merged[0].result is None)


def test_a_correction_replaces_what_was_sent_and_keeps_the_rest():
    stored = replace(WHOLE, args="[1]", result='"Error"', is_error=True, error="boom", warnings=("args_not_object",))
    sent = CallRecord("c", "get_order", args="{}", result='"ok"', is_error=False, source=stored.source)
    assert correct_call(stored, sent) == replace(
        stored, args="{}", result='"ok"', is_error=False, error=None, warnings=()
    )
    with pytest.raises(Conflict, match="index"):
        correct_call(stored, replace(sent, index=3))


def test_a_result_for_other_arguments_completes_nothing():
    with pytest.raises(Conflict):
        merge_calls(ASKED, replace(DONE, args="[]"))


def test_toolsets_are_told_by_content_not_by_spelling():
    assert toolset_sha256('[{"a":1,"b":2}]') == toolset_sha256('[ {"b": 2, "a": 1} ]') != toolset_sha256('[{"a":1}]')


def test_nothing_is_not_an_empty_text_nor_a_word_for_nothing():
    digests = {replace(DONE, error=error).digest() for error in (None, "", "None", "0")}
    assert len(digests) == 4
