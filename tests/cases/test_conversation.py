"""Whatever was recorded: it is sent in a form that servers take, or it is told why not."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quality.cases.conversation import NotReplayable, opening_of, tools_of
from quality.cases.sample import Call
from quality.cases.stubs import OnMiss, Shelf
from tests.cases.suite import asked, case_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "old_1", "tool", "text", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner, max_size=3)
    ),
    max_leaves=6,
)
IDS = st.none() | st.sampled_from(["old_1", "old_2", ""]) | JSON
CALLS = st.fixed_dictionaries(
    {}, optional={"id": IDS, "function": JSON | st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON})}
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image_url", "output_text"]) | JSON},
    optional={"text": JSON, "id": IDS, "tool_use_id": IDS, "name": JSON, "input": JSON, "content": JSON},
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "model"]) | JSON,
        "type": st.sampled_from(["function_call", "function_call_output", "reasoning", "message"]) | JSON,
        "content": JSON | st.lists(PARTS, max_size=3),
        "tool_calls": JSON | st.lists(CALLS, max_size=3),
        "function_call": JSON,
        "tool_call_id": IDS,
        "call_id": IDS,
        "name": JSON,
        "arguments": JSON,
        "output": JSON,
    },
)


@settings(deadline=None)
@given(st.lists(MESSAGES | JSON, max_size=8))
def test_any_recording_becomes_a_history_that_servers_take(messages: list[Any]) -> None:
    case = case_of(1, {"version": 1, "calls": {"mode": "any"}})
    given_messages = [*messages, {"role": "user", "content": "Hello"}]
    opening = opening_of(_with(case, given_messages), "Be brief.")
    open_ids: list[str] = []
    seen: set[str] = set()
    for message in opening.messages:
        assert set(message) <= {"role", "content", "tool_calls", "tool_call_id"}
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_ids.pop(0)
            continue
        assert open_ids == []
        open_ids = [call["id"] for call in message.get("tool_calls", ())]
        assert not seen & set(open_ids)
        seen |= set(open_ids)
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert open_ids == []
    assert [message["role"] for message in opening.messages].count("system") == 1
    shelf = Shelf(case, opening.recorded, toolset=case.toolset, on_miss=OnMiss.FIFO)
    shelf.answer(Call("a", "{}"))


def _with(case: Any, messages: list[Any]) -> Any:
    from dataclasses import replace

    return replace(case, messages=messages)


@settings(deadline=None)
@given(JSON | st.lists(JSON | st.fixed_dictionaries({"function": JSON}, optional={"name": JSON}), max_size=3))
def test_any_tools_are_offered_or_refused(tools: Any) -> None:
    try:
        offered = tools_of(tools).offers()
    except NotReplayable:
        return
    assert all(isinstance(tool["function"]["name"], str) for tool in offered)


def test_text_is_read_as_messages_and_tools() -> None:
    given = asked()
    case = case_of(input={**given, "messages": json.dumps(given["messages"]), "tools": json.dumps(given["tools"])})
    assert opening_of(case).messages == ({"role": "user", "content": "Where is order 7731?"},)
    assert len(tools_of(case.tools)) == 2


@pytest.mark.parametrize("arguments", ["{", '{"order_number": 1e999}', "[" * 5_000, "\ud800", None])
def test_calls_that_cannot_be_read_find_no_result_and_break_nothing(arguments: str | None) -> None:
    case = case_of()
    assert Shelf(case, toolset=case.toolset).answer(Call("get_order", arguments)).served is None
