import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quality.ingest.records import TurnRecord
from tests.ingest import promises
from tests.ingest.helpers import lines, refusals, state, take, turns

FORMAT = "openai_responses"
USER = {"role": "user", "content": "Order 7?"}


def call(
    call_id: str = "call_1", name: str = "get_order", arguments: Any = '{"n": "7"}', **more: Any
) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def output(content: Any, call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def says(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def pair(number: int, given: Any, *items: dict[str, Any], **request: Any) -> dict[str, Any]:
    return {
        "request": {"model": "m", "input": given, **request},
        "response": {
            "id": f"resp_{number}",
            "created_at": 1_778_574_600 + number,
            "model": "m-2026",
            "output": [*items],
        },
    }


def listing(*items: dict[str, Any], **more: Any) -> TurnRecord:
    (turn,) = turns({"items": [*items], **more}, FORMAT)
    return turn


CHAIN = [
    pair(1, "Order 7?", call("a"), call("b", "get_plan")),
    pair(2, [output("sent", "a"), output('{"p": 1}', "b")], call("c"), previous_response_id="resp_1"),
    pair(3, [output("late", "c")], says("Sent."), previous_response_id="resp_2"),
    pair(4, "And order 8?", call("d", arguments='{"n": "8"}'), previous_response_id="resp_3"),
    pair(5, [output("lost", "d")], says("Lost."), previous_response_id="resp_4"),
]
STATELESS = [
    pair(1, "Order 7?", {"type": "reasoning", "id": "rs"}, call("a", id="fc_1", status="completed")),
    pair(2, [USER, {"type": "reasoning", "id": "rs"}, call("a"), output("sent", "a")], says("Sent.")),
    pair(
        3,
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Order 7?"}]},
         call("a"), output("sent", "a"), says("Sent."), {"role": "user", "content": "8?"}],
        call("b"),
    ),
]  # fmt: skip


def told(found: list[TurnRecord]) -> list[tuple[Any, ...]]:
    return [(c.message, c.cycle, c.index, c.tool_call_id, c.result) for turn in found for c in turn.calls]


def test_results_in_the_next_input_are_joined():
    first, second = turns(CHAIN)
    assert told([first, second]) == [
        ("resp_1", 0, 0, "a", '"sent"'),
        ("resp_1", 0, 1, "b", '{"p": 1}'),
        ("resp_2", 1, 0, "c", '"late"'),
        ("resp_4", 0, 0, "d", '"lost"'),
    ]
    assert (first.outbound_message, second.outbound_message, second.position) == ("resp_3", "resp_5", 1)
    assert first.conversation == second.conversation
    assert first.conversation.startswith("~")


def test_a_history_sent_again_in_each_request_gives_each_call_once():
    first, second = turns(STATELESS)
    assert told([first, second]) == [("resp_1", 0, 0, "a", '"sent"'), ("resp_3", 0, 0, "b", None)]
    assert first.num_cycles == 2


def test_messages_are_kept_as_a_chat():
    first, _ = turns(CHAIN)
    user, asked, one, two, again, three, reply = json.loads(first.messages)
    assert (user, reply) == (USER, {"role": "assistant", "content": "Sent."})
    assert [c["function"] for c in asked["tool_calls"]] == [
        {"name": "get_order", "arguments": '{"n": "7"}'},
        {"name": "get_plan", "arguments": '{"n": "7"}'},
    ]
    assert [m["tool_call_id"] for m in (one, two, three)] == ["a", "b", "c"]
    assert [m["content"] for m in (one, two, three)] == ["sent", '{"p": 1}', "late"]
    assert again["content"] is None


def test_what_requests_and_responses_tell_reaches_turn_and_calls():
    tools = [{"type": "function", "name": "get_order", "parameters": {"type": "object"}}]
    one = pair(1, "?", call(), conversation="conv_1", safety_identifier="u", instructions="Be kind.", tools=tools)
    two = pair(2, [output("sent")], says("Sent."), conversation={"id": "conv_1"}, prompt={"id": "p", "version": "7"})
    (turn,) = turns([one, two])
    for record in (turn, *turn.calls):
        assert (record.conversation, record.contact, record.prompt_version, record.model) == (
            "conv_1",
            "u",
            "7",
            "m-2026",
        )
    assert turn.system == '"Be kind."'
    assert json.loads(turn.calls[0].tools) == tools
    assert (turn.tools, turn.calls[0].started_at) == (None, "2026-05-12T08:30:01.000Z")


def test_logs_of_several_chats_may_alternate_and_come_as_lines():
    other = json.loads(json.dumps(CHAIN).replace("resp_", "resp_x").replace('"call_id": "', '"call_id": "x'))
    mixed = [each for both in zip(CHAIN, other, strict=True) for each in both]
    apart = [*turns(CHAIN), *turns(other)]
    assert sorted(turns(lines(*mixed)), key=repr) == sorted(apart, key=repr)


def test_pairing_is_by_call_id_not_by_id():
    turn = listing(USER, call("a", id="b"), call("b", id="a"), output("1", "a"), {**output("2", "b"), "id": "a"})
    assert [c.result for c in turn.calls] == ['"1"', '"2"']


def test_a_reply_is_named_by_its_first_call_and_ends_at_an_output():
    turn = listing(USER, {"type": "reasoning"}, says("Let me see."), call("a"), output("1", "a"), call("b"), says("x"))
    assert told([turn]) == [("#3", 0, 0, "a", '"1"'), ("#5", 1, 0, "b", None)]


def test_a_custom_tool_gets_its_free_text_as_input():
    asked = {"type": "custom_tool_call", "call_id": "a", "name": "run_sql", "input": "select 1"}
    (record,) = listing(USER, asked, {"type": "custom_tool_call_output", "call_id": "a", "output": "1"}).calls
    assert (record.tool_name, record.args, record.result) == ("run_sql", '{"input":"select 1"}', '"1"')


@pytest.mark.parametrize(
    ("told", "result", "is_error", "error", "warnings"),
    [
        ({"output": "ok"}, '"ok"', False, None, ("provider_executed",)),
        ({"error": "gone"}, None, True, "gone", ("provider_executed",)),
        ({"error": {"type": "t", "code": 4, "message": "gone"}}, None, True, "gone", ("provider_executed",)),
        ({"status": "incomplete"}, None, None, None, ("incomplete", "no_result", "provider_executed")),
    ],
)
def test_a_call_that_ran_at_the_provider_holds_its_own_outcome(told, result, is_error, error, warnings):
    asked = {"type": "mcp_call", "id": "mcp_1", "name": "f", "arguments": "{}", "server_label": "s", **told}
    (record,) = listing(USER, asked, says("Done.")).calls
    assert (record.tool_call_id, record.result, record.is_error, record.error) == ("mcp_1", result, is_error, error)
    assert record.warnings == warnings


def test_a_reply_with_calls_of_the_provider_alone_is_the_answer():
    (turn,) = turns([pair(1, "?", {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": "1"})])
    assert turn.outbound_message == "resp_1"


def test_arguments_that_were_cut_off_are_kept_and_told():
    (record,) = listing(USER, call(arguments='{"n": "7', status="incomplete")).calls
    assert json.loads(record.args) == '{"n": "7'
    assert record.warnings == ("args_not_json", "incomplete", "no_result")


def test_output_in_parts_is_joined_if_all_are_text():
    text, image = {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x"}
    one, two = listing(USER, call("a"), call("b"), output([text, text], "a"), output([text, image], "b")).calls
    assert (one.result, json.loads(two.result)) == ('"aa"', [text, image])


def test_a_request_that_failed_leaves_the_results_it_brought():
    failed = {"request": CHAIN[1]["request"], "response": {"error": {"message": "overloaded"}}}
    (turn,) = turns([CHAIN[0], failed])
    assert [c.result for c in turn.calls] == ['"sent"', '{"p": 1}']
    assert turns([CHAIN[0], failed, *CHAIN[1:]]) == turns(CHAIN)


def test_a_response_without_items_of_ours_is_a_reply_too():
    (turn,) = turns(
        [pair(1, "?", {"type": "web_search_call", "id": "w"}), pair(2, [], call(), previous_response_id="resp_1")]
    )
    assert [c.cycle for c in turn.calls] == [1]


def test_a_response_asked_for_twice_makes_no_call_twice(tenant):
    again = pair(6, [output("late", "c")], says("Sent!"), previous_response_id="resp_2")
    take([*CHAIN[:3], again], tenant)
    assert sorted(c["tool_call_id"] for c in state(tenant)["calls"]) == ["a", "b", "c"]


def test_many_open_logs_are_let_out_and_told_once(monkeypatch, tenant):
    monkeypatch.setattr("quality.ingest.logs.MAX_HELD_BYTES", 3_000)
    one, two = [
        [json.loads(json.dumps(part).replace("resp_", f"resp_{n}_").replace('"a"', f'"a{n}"')) for n in range(20)]
        for part in STATELESS[:2]
    ]
    for n, (first, second) in enumerate(zip(one, two, strict=True)):
        first["request"]["input"] = f"Order {n}?"
        second["request"]["input"][0] = {"role": "user", "content": f"Order {n}?"}
    assert not take(lines(*one, *two), tenant).rejected
    assert [c["result"] for c in state(tenant)["calls"]] == ['"sent"'] * 20


def test_a_log_too_long_to_hold_loses_no_result(monkeypatch, tenant):
    monkeypatch.setattr("quality.ingest.logs.MAX_HELD_BYTES", 1_500)
    log = [pair(0, "Order?", call("c0"), conversation="conv")]
    for n in range(1, 30):
        given = [output(f"sent {n}", f"c{n - 1}"), *([{"role": "user", "content": "Next?"}] if n % 3 == 0 else [])]
        log.append(pair(n, given, call(f"c{n}"), conversation="conv"))
    assert not take(log, tenant).rejected
    stored = state(tenant)
    assert len(stored["turns"]) == 10
    assert sum(c["result"] is None for c in stored["calls"]) == 1
    assert sorted((c["message_id"], c["cycle"]) for c in stored["calls"]) == sorted(
        (f"resp_{n}", n % 3) for n in range(30)
    )


@pytest.mark.parametrize(
    ("item", "code", "path"),
    [
        ({"items": [USER, 1]}, "wrong_type", "items[1]"),
        ({"items": [USER, call(name="")]}, "missing_field", "items[1].name"),
        ({"items": [USER]}, "empty", "items"),
        ({"items": {}}, "missing_field", "items"),
        (pair(1, 7, says("a")), "wrong_type", "request.input"),
        (pair(1, "?", {"type": 1}), "wrong_type", "response.output[0]"),
        (pair(1, "?", says("a"), tools=[1]), "wrong_type", "request.tools"),
    ],
)
def test_a_broken_item_is_refused_by_field_and_loses_only_itself(item, code, path):
    good = {"items": [USER, says("Yes.")]}
    (refused,) = refusals(lines(good, item, good), FORMAT)
    assert (refused.index, refused.line, refused.code, refused.path) == (1, 2, code, path)


@pytest.mark.parametrize("log", [CHAIN, STATELESS])
def test_the_same_file_twice_changes_nothing(tenant, log):
    stored = promises.changes_nothing_when_sent_again(json.dumps(log).encode(), tenant)
    assert len(stored["turns"]) == 2


@pytest.mark.parametrize("log", [CHAIN, STATELESS])
@pytest.mark.parametrize("kept", [1, 2])
def test_half_a_file_then_the_whole_is_the_whole(tenant, other_tenant, log, kept):
    data = json.dumps(log, indent=1).encode()
    cut = data.index(b'"request"', data.index(f'"resp_{kept}"'.encode()))
    fault = promises.completes_after_a_cut(data, cut + 30, tenant, other_tenant)
    assert (fault.code, fault.line) == ("truncated", data[: cut + 30].count(b"\n") + 1)


def test_two_tenants_hold_the_same_file_apart(tenant, other_tenant):
    promises.stays_with_its_tenant(json.dumps(CHAIN).encode(), tenant, other_tenant)


@given(st.integers(0, 2**32))
def test_the_order_of_keys_says_nothing(seed):
    for log in (CHAIN, STATELESS):
        other = promises.shuffled(log, random.Random(seed))
        assert promises.records(turns(other)) == promises.records(turns(log))


@pytest.mark.parametrize("format_name", [FORMAT, "auto"])
@pytest.mark.parametrize(
    "good", [CHAIN[:2], {"items": [USER, call(), output("1"), says("x")], "tools": [{"name": "f"}]}]
)
def test_nothing_that_comes_breaks_it(good, format_name):
    assert promises.refuses_or_reads_anything(good, format_name) > 50
