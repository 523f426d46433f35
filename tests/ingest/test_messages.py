import json
from typing import Any

import pytest

from quality.ingest import messages
from quality.ingest.payloads import node_of

CALL = {"id": "a", "type": "function", "function": {"name": "find", "arguments": '{"n":1}'}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def reply(value: Any) -> list[Any]:
    """Messages of a reply as JSON values."""
    return [json.loads(message.text) for message in messages.of_reply(node_of(value))]


@pytest.mark.parametrize(
    "value",
    [
        ASKS,
        {"choices": [{"index": 1, "message": {"role": "assistant", "content": "no"}}, {"index": 0, "message": ASKS}]},
        {"messages": [ASKS]},
        json.dumps(ASKS),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "find", "input": {"n": 1}}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "find", "arguments": {"n": 1}}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "find", "arguments": '{"n":1}'}]},
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "AIMessage"],
            "kwargs": {"content": None, "tool_calls": [{"id": "a", "name": "find", "args": {"n": 1}}]},
        },
        {"type": "ai", "data": {"content": None, "additional_kwargs": {"tool_calls": [CALL]}}},
        {"type": "ai", "content": None, "tool_calls": [{"id": "a", "name": "find", "args": {"n": 1}}]},
        {"generations": [[{"text": "", "message": {"type": "ai", "content": None, "tool_calls": [CALL]}}]]},
        {"output": [{"type": "function_call", "call_id": "a", "id": "fc", "name": "find", "arguments": '{"n":1}'}]},
        {"role": "assistant", "content": None, "function_call": CALL["function"]},
    ],
)
def test_a_reply_in_any_form_asks_for_the_same_call(value):
    (message,) = messages.of_reply(node_of(value))
    (call,) = message.calls
    assert (message.role, call.index, call.tool_name, call.args.text) == ("assistant", 0, "find", '{"n":1}')
    assert call.call_id == (None if "function_call" in value else "a")


@pytest.mark.parametrize("value", [None, 7, True, [], {}, {"choices": []}, {"generations": []}, [1, None], {"text": 1}])
def test_what_is_no_reply_is_none(value):
    assert messages.of_reply(node_of(value)) == []


def test_a_text_is_what_was_said():
    assert reply("Sent.") == [{"role": "assistant", "content": "Sent."}]


def test_answers_are_messages_of_their_own_in_every_form():
    given = [
        {"role": "user", "content": "?"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"},
                                     {"type": "text", "text": "and?"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "b", "response": {"n": 1}},
                                   {"type": "tool_call_response", "id": "c", "result": "old"}]},
        {"type": "tool", "content": "y", "tool_call_id": "d"},
        {"role": "tool", "content": "z", "tool_call_id": "e"},
    ]  # fmt: skip
    read = messages.of_request(node_of({"messages": given}))
    assert [message.role for message in read] == ["user", "tool", "user", "tool", "tool", "tool", "tool"]
    answers = {message.answers_to: json.loads(message.text)["content"] for message in read if message.answers_to}
    assert answers == {"a": "x", "b": '{"n":1}', "c": "old", "d": "y", "e": "z"}


def test_reasoning_is_left_out_and_other_parts_stay():
    parts = [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "See"}, {"type": "blob", "uri": "u"}]
    assert reply({"role": "assistant", "parts": parts})[0]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "blob", "uri": "u"},
    ]


def exchange(given: list[Any], answer: Any = None, system: Any = None) -> dict[str, Any]:
    held = node_of(system) if system is not None else None
    return messages.exchange(messages.of_request(node_of(given)), messages.of_reply(node_of(answer)), held)


def test_the_thread_is_the_last_turn_of_the_request():
    user, said = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
    told = exchange([{"role": "system", "content": "Be kind."}, user, said, user, user, ASKS], said)["thread"]
    assert [json.loads(text)["role"] for text in told.given] == ["user", "user", "assistant"]
    assert (told.position, told.num_replies, len(told.opening)) == (1, 2, 2)
    assert json.loads(told.system) == "Be kind."


@pytest.mark.parametrize(
    "system", ["Be kind.", [{"type": "text", "content": "Be "}, {"type": "text", "content": "kind."}],
               '[{"type": "text", "content": "Be kind."}]', [{"type": "text", "text": "Be kind."}]]
)  # fmt: skip
def test_a_system_prompt_may_stand_apart(system):
    assert json.loads(exchange([], "x", system)["thread"].system) == "Be kind."


def test_pieces_of_one_reply_are_one_message_with_all_calls():
    told = exchange([], [{"role": "assistant", "content": "a"}, ASKS, {**ASKS, "content": "b"}])
    assert [call.index for call in told["calls"]] == [0, 1]
    assert json.loads(told["thread"].reply)["content"] == "ab"


def test_a_call_without_a_name_leaves_its_place_empty():
    (message,) = messages.of_reply(node_of({**ASKS, "tool_calls": [{"id": "x"}, CALL]}))
    assert [call.index for call in message.calls] == [1]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "find", "description": "d", "parameters": {"type": "object"}}},
        {"type": "function", "name": "find", "description": "d", "parameters": {"type": "object"}},
        {"name": "find", "description": "d", "input_schema": {"type": "object"}},
        '{"name": "find", "description": "d", "parameters": {"type": "object"}}',
    ],
)
def test_tools_are_kept_in_openai_form(tool):
    (kept,) = json.loads(messages.offered(node_of([tool, 7, "x", {"type": "web_search"}])) or "")
    function = {"name": "find", "description": "d", "parameters": {"type": "object"}}
    assert kept == {"type": "function", "function": function}


@pytest.mark.parametrize("tools", [None, [], "x", {"name": "find"}, [{}], 7])
def test_no_tools_are_none(tools):
    assert messages.offered(node_of(tools)) is None
