import json
from typing import Any

import pytest

from quality.ingest.records import CallRecord
from tests.ingest.helpers import lines, refusals, turns

CALLS = [{"id": "call_1", "type": "function", "function": {"name": "get_order", "arguments": '{"n": "7"}'}}]
REPLY = {"role": "assistant", "content": None, "tool_calls": CALLS}


def observation(number: int, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"o-{number}",
        "traceId": "t-1",
        "type": kind,
        "name": "get_order" if kind == "TOOL" else "chat",
        "startTime": f"2026-05-03T09:45:0{number}.000Z",
        "endTime": f"2026-05-03T09:45:0{number}.500Z",
        "parentObservationId": None,
        "level": "DEFAULT",
        "statusMessage": None,
        "input": '{"n": "7"}',
        "output": "sent",
        "metadata": {},
        **more,
    }


def generation(number: int, **more: Any) -> dict[str, Any]:
    given = {"messages": [{"role": "user", "content": "Order 7?"}], "tools": [{"name": "get_order"}]}
    return observation(number, "GENERATION", **{"input": given, "output": REPLY, "model": "m"} | more)


def page(*observations: dict[str, Any]) -> dict[str, Any]:
    return {"data": list(observations), "meta": {"cursor": None}}


def call(*observations: dict[str, Any]) -> CallRecord:
    (turn,) = turns(page(*observations))
    (found,) = turn.calls
    return found


def test_pages_traces_and_single_observations_are_one():
    observations = [observation(2, "TOOL"), generation(1)]
    wanted = turns(page(*observations))
    assert turns([page(each) for each in observations]) == turns(lines(*observations)) == wanted
    assert turns({"id": "t-1", "timestamp": "x", "observations": observations}) == wanted
    assert wanted[0].calls[0].message == "o-1"


def test_session_and_user_may_stand_on_the_trace():
    trace = {"id": "t-1", "sessionId": "c", "userId": "u", "observations": [observation(1, "TOOL")]}
    (turn,) = turns(trace)
    assert (turn.conversation, turn.contact, turn.calls[0].conversation) == ("c", "u", "c")


def test_only_tools_are_calls():
    kinds = ("SPAN", "AGENT", "EVENT", "CHAIN", "RETRIEVER")
    (turn,) = turns(page(generation(1), *(observation(2 + n, kind) for n, kind in enumerate(kinds))))
    assert [c.tool_name for c in turn.calls] == ["get_order"]
    assert turn.calls[0].warnings == ("no_result",)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ('"At 11."', '"At 11."'),
        ("At 11.", '"At 11."'),
        ('"unclosed', '"\\"unclosed"'),
        ("17", '"17"'),
        ('{"a": 1.10}', '{"a": 1.10}'),
        ({"a": 1}, '{"a": 1}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
    ],
)
def test_output_comes_as_json_or_as_its_text(sent, kept):
    found = call(observation(1, "TOOL", output=sent))
    assert found.result == kept


@pytest.mark.parametrize(
    ("more", "is_error", "error"),
    [
        ({"level": "ERROR", "statusMessage": "gone", "output": None}, True, "gone"),
        ({"level": "ERROR", "output": {"error": "gone"}}, True, "gone"),
        ({"level": "WARNING", "statusMessage": "slow"}, False, None),
        ({"level": None, "output": {"error": "gone"}}, True, "gone"),
        ({"output": {"type": "tool", "tool_call_id": "a", "content": "gone", "status": "error"}}, True, "gone"),
    ],
)
def test_an_error_is_told_by_the_level(more, is_error, error):
    found = call(observation(1, "TOOL", **more))
    assert (found.is_error, found.error) == (is_error, error)


def test_the_call_id_is_in_the_metadata_or_that_of_the_reply():
    assert call(observation(1, "TOOL", metadata='{"tool_call_id": "x"}')).tool_call_id == "x"
    assert call(generation(1), observation(2, "TOOL")).tool_call_id == "call_1"
    assert call(observation(1, "TOOL")).warnings == ("no_call_id",)


def test_the_prompt_of_the_generation_goes_before_what_an_application_says():
    said = observation(2, "TOOL", metadata={"prompt_version": "r2"})
    assert call(said).prompt_version == "r2"
    assert call(generation(1, promptName="desk", promptVersion=14), said).prompt_version == "desk@14"


def test_a_page_without_input_and_output_says_so():
    bare = observation(1, "TOOL")
    del bare["input"], bare["output"]
    assert call(bare).warnings == ("args_missing", "no_call_id", "no_result")


def test_overlapping_pages_and_an_observation_that_ended_later_are_one_call():
    running = observation(1, "TOOL", endTime=None, output=None)
    (turn,) = turns([page(running), page(observation(1, "TOOL")), page(running)])
    assert [(c.duration_ms, c.result) for c in turn.calls] == [(500, '"sent"')]
    (turn,) = turns(page(running))
    assert (turn.calls[0].is_error, turn.calls[0].warnings) == (None, ("no_call_id", "no_result", "unfinished"))


def test_messages_and_tools_of_the_generation_are_kept():
    (turn,) = turns(page(generation(1), observation(2, "TOOL")))
    assert [m["role"] for m in json.loads(turn.messages or "")] == ["user", "assistant", "tool"]
    assert json.loads(turn.tools or "") == [{"type": "function", "function": {"name": "get_order"}}]


@pytest.mark.parametrize(
    ("key", "value"), [("id", None), ("traceId", ""), ("name", None), ("name", 7 * [1]), ("id", "x" * 501)]
)
def test_a_broken_observation_is_named_and_loses_only_itself(key, value):
    broken = {**observation(3, "TOOL"), key: value}
    (refused,) = refusals(lines(page(observation(1, "TOOL"), broken)))
    assert (refused.line, refused.path) == (1, f"data[1].{key}")
