import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.ingest.records import TurnRecord
from tests.ingest import promises
from tests.ingest.helpers import lines, refusals, state, take, turns

FORMAT = "vercel_ui"
USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Order 7?"}]}
STEP = {"type": "step-start"}


def part(
    state: str | None = "output-available", call_id: str = "c1", kind: str = "tool-get_order", **more: Any
) -> dict:
    told = {} if state is None else {"state": state}
    return {"type": kind, "toolCallId": call_id, "input": {"n": "7"}, **told, **more}


def says(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "state": "done"}


def reply(*parts: dict[str, Any], name: str = "a1", **more: Any) -> dict[str, Any]:
    return {"id": name, "role": "assistant", "parts": [*parts], **more}


def chat(*messages: dict[str, Any], **more: Any) -> TurnRecord:
    (turn,) = turns({"id": "chat", "messages": [*messages], **more}, FORMAT)
    return turn


STEPS = reply(
    STEP, part(output={"id": 5}), part(call_id="c2", kind="tool-load-policy", output="24 h"),
    STEP, part("output-error", "c3", "dynamic-tool", toolName="cancel", errorText="Too late"), STEP, says("Sorry."),
)  # fmt: skip
WHOLE = {"id": "chat", "messages": [USER, STEPS, {**USER, "id": "u2"}, reply(STEP, part(output=1), name="a2")]}


def test_one_message_holds_all_replies_of_its_turn():
    turn = chat(USER, STEPS)
    assert [(c.tool_name, c.cycle, c.index, c.result, c.is_error, c.error) for c in turn.calls] == [
        ("get_order", 0, 0, '{"id": 5}', False, None),
        ("load-policy", 0, 1, '"24 h"', False, None),
        ("cancel", 1, 0, None, True, "Too late"),
    ]
    assert {c.message for c in turn.calls} == {"a1"} == {turn.outbound_message}
    assert (turn.num_cycles, turn.message, turn.conversation) == (3, "u1", "chat")


def test_messages_are_kept_as_a_chat():
    told = json.loads(chat({"id": "s", "role": "system", "parts": [says("Be kind.")]}, USER, STEPS).messages)
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert [m["content"] for m in told] == ["Order 7?", None, '{"id": 5}', "24 h", None, "Too late", "Sorry."]
    assert told[4]["tool_calls"][0]["function"] == {"name": "cancel", "arguments": '{"n": "7"}'}


@pytest.mark.parametrize(
    ("told", "result", "is_error", "error", "warnings"),
    [
        (part(output={"a": 1}), '{"a": 1}', False, None, ()),
        (part(output='{"a": 1}'), '{"a": 1}', False, None, ()),
        (part(output="17"), '"17"', False, None, ()),
        (part(output=None), "null", False, None, ()),
        (part(), None, False, None, ("no_result",)),
        (part(output={"error": "gone"}), '{"error": "gone"}', False, None, ()),
        (part(output=1, preliminary=True), "1", False, None, ("preliminary_result",)),
        (part(output=1, providerExecuted=True), "1", False, None, ("provider_executed",)),
        (part("output-error", errorText="gone"), None, True, "gone", ()),
        (part("output-denied", approval={"id": "x", "approved": False, "reason": "no"}), None, True, "no", ("denied",)),
        (part("output-denied"), None, True, None, ("denied",)),
        (part("input-available"), None, None, None, ("no_result",)),
        (part("input-streaming"), None, None, None, ("incomplete", "no_result")),
        (part("approval-requested"), None, None, None, ("no_result",)),
        (part("approval-responded"), None, None, None, ("no_result",)),
        (part("some-day", output=1), None, None, None, ("no_result",)),
        (part(7, output=1), "1", False, None, ()),
    ],
)
def test_the_state_of_a_part_is_how_its_call_ended(told, result, is_error, error, warnings):
    (record,) = chat(USER, reply(told)).calls
    assert (record.result, record.is_error, record.error, record.warnings) == (result, is_error, error, warnings)


@pytest.mark.parametrize(
    ("word", "is_error"),
    [(word, False) for word in ("completed", "success", "result")]
    + [(word, True) for word in ("failed", "error")]
    + [(word, None) for word in ("pending", "loading", "running", "in-progress", "cancelled", "odd")],
)
@pytest.mark.parametrize("kind", ["tool-call", "tool_call"])
@pytest.mark.parametrize("key", ["state", "status"])
def test_other_kits_have_other_words(kind, key, word, is_error):
    told = {"type": kind, "toolCallId": "x", "toolName": "f", "args": {"n": 1}, key: word, "result": 1, "error": "gone"}
    (record,) = chat(USER, reply(told)).calls
    assert (record.tool_name, record.args, record.is_error) == ("f", '{"n": 1}', is_error)
    assert (record.error, record.result) == ("gone" if is_error else None, None if is_error is None else "1")


@pytest.mark.parametrize(
    ("told", "is_error"),
    [({"result": 1}, False), ({"error": "gone"}, True), ({"result": {"error": "gone"}}, True), ({}, None)],
)
def test_without_a_state_what_there_is_tells(told, is_error):
    (record,) = chat(USER, reply({"type": "tool-call", "toolCallId": "x", "toolName": "f", "args": {}, **told})).calls
    assert record.is_error is is_error


def test_a_result_may_be_a_part_of_its_own():
    call = {"type": "tool-call", "toolCallId": "x", "toolName": "f", "args": {}}
    (record,) = chat(USER, reply(call, {"type": "tool-result", "toolCallId": "x", "toolName": "f", "result": 1})).calls
    assert record.result == "1"


def test_tools_may_be_called_like_the_kinds_of_parts():
    named = [part(call_id=name, kind=f"tool-{name}", output=1) for name in ("call", "result", "invocation", "tool-x")]
    assert [c.tool_name for c in chat(USER, reply(*named)).calls] == ["call", "result", "invocation", "tool-x"]


def test_input_that_did_not_fit_is_kept_as_it_was_sent():
    told = {**part("output-error", errorText="bad"), "rawInput": '{"n": '}
    del told["input"]
    (record,) = chat(USER, reply(told)).calls
    assert (record.args, record.warnings) == ('"{\\"n\\": "', ("args_not_json",))


def invocation(step: int, call_id: str, state: str = "result", **more: Any) -> dict[str, Any]:
    return {"state": state, "step": step, "toolCallId": call_id, "toolName": "f", "args": {}, **more}


OLD = [invocation(0, "a", result=1), invocation(0, "b", result={"error": "gone"}), invocation(1, "c", "call")]


def test_version_4_keeps_the_step_with_the_call():
    parts = [{"type": "tool-invocation", "toolInvocation": each} for each in OLD]
    turn = chat(USER, reply(*parts, content="", toolInvocations=OLD))
    assert [(c.tool_call_id, c.cycle, c.index, c.result, c.is_error) for c in turn.calls] == [
        ("a", 0, 0, "1", False),
        ("b", 0, 1, '{"error": "gone"}', True),
        ("c", 1, 0, None, None),
    ]


def test_version_4_had_no_parts_at_first():
    before = {"id": "u", "role": "user", "content": "Order 7?"}
    turn = chat(before, {"id": "a", "role": "assistant", "content": "Sent.", "toolInvocations": OLD[:1]})
    assert [(c.tool_call_id, c.cycle, c.result) for c in turn.calls] == [("a", 0, "1")]
    assert [m["content"] for m in json.loads(turn.messages)] == ["Order 7?", None, "1", "Sent."]


@pytest.mark.parametrize(
    ("told", "time"),
    [
        ({"createdAt": "2026-04-03T15:00:01Z"}, "2026-04-03T15:00:01.000Z"),
        ({"metadata": {"createdAt": 1_775_228_401_999}}, "2026-04-03T15:00:01.999Z"),
        ({"createdAt": "yesterday"}, None),
        ({"createdAt": "2026-04-03T15:00:01"}, None),
        ({"createdAt": 10**300}, None),
    ],
)
def test_times_are_by_habit(told, time):
    turn = chat(USER, reply(part(output=1), **told))
    assert (turn.started_at, turn.calls[0].started_at) == (time, time)


@pytest.mark.parametrize(
    ("messages", "code", "path"),
    [
        ([USER, {"parts": []}], "wrong_type", "messages[1]"),
        ([USER, reply({"text": "a"})], "wrong_type", "messages[1].parts[0]"),
        ([USER, reply({"type": "dynamic-tool"})], "missing_field", "messages[1].parts[0].toolName"),
        ([USER, reply({"type": "tool-invocation", "toolInvocation": {}})], "missing_field",
         "messages[1].parts[0].toolInvocation.toolName"),
        ([USER, reply(part(), name="x" * 501)], "too_long", "messages[1].id"),
        ([USER], "empty", "messages"),
    ],
)  # fmt: skip
def test_a_broken_chat_is_refused_by_field_and_loses_only_itself(messages, code, path):
    good = {"messages": [USER, reply(says("Yes."))]}
    (refused,) = refusals(lines(good, {"messages": messages}, good), FORMAT)
    assert (refused.index, refused.line, refused.code, refused.path) == (1, 2, code, path)


def test_the_same_file_twice_changes_nothing(tenant):
    stored = promises.changes_nothing_when_sent_again(json.dumps(WHOLE).encode(), tenant)
    assert (len(stored["turns"]), len(stored["calls"])) == (2, 4)


def test_half_a_file_then_the_whole_is_the_whole(tenant, other_tenant):
    data = lines(WHOLE, {**WHOLE, "id": "chat-2"})
    cut = data.index(b"Too late", data.index(b"\n")) + 3
    fault = promises.completes_after_a_cut(data, cut, tenant, other_tenant)
    assert (fault.code, fault.line, fault.path) == ("malformed_json", 2, "messages[1].parts[4].errorText")


def test_two_tenants_hold_the_same_file_apart(tenant, other_tenant):
    promises.stays_with_its_tenant(json.dumps(WHOLE).encode(), tenant, other_tenant)


def test_a_chat_that_was_saved_while_it_went_on_grows(tenant):
    ask, steps = part("input-available"), STEPS["parts"]
    for parts in ([STEP, ask], steps[:2], steps[:5], steps):
        assert not take([{"id": "chat", "messages": [USER, {**STEPS, "parts": parts}]}], tenant).rejected
    stored = state(tenant)
    assert (len(stored["turns"]), [c["state"] for c in stored["calls"]].count("error")) == (1, 1)
    assert sorted(c["tool_call_id"] for c in stored["calls"]) == ["c1", "c2", "c3"]


@given(st.integers(0, 2**32))
def test_the_order_of_keys_says_nothing(seed):
    assert promises.records(turns(promises.shuffled(WHOLE, random.Random(seed)))) == promises.records(turns(WHOLE))


@pytest.mark.parametrize("format_name", [FORMAT, "auto"])
@pytest.mark.parametrize(
    "good", [WHOLE, {"messages": [USER, {"role": "assistant", "content": "x", "toolInvocations": OLD[:1]}]}]
)
def test_nothing_that_comes_breaks_it(good, format_name):
    assert promises.refuses_or_reads_anything(good, format_name) > 50
