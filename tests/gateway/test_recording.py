"""What is recorded of an exchange: calls from replies, results from later requests, each history once."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from quality.gateway.exchange import Exchange, Said
from quality.gateway.record import record
from quality.models import GatewayDay, GatewayHistory, ToolCall, Toolset, Turn
from tenants.scope import tenant_scope
from tests.gateway.conftest import QUESTION, TOOLS, Lab, port_of
from tests.service import running_service

SYSTEM = {"role": "system", "content": "You help."}
ANSWER = '{"degrees": 21.50}'


def result_of(call: Any, content: str = ANSWER) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def streamed(client: openai.OpenAI, messages: list[Any], script: str, **more: Any) -> dict[str, Any]:
    """A reply as a client of the SDK puts it together."""
    chunks = client.chat.completions.create(
        model="main",
        messages=messages,
        tools=TOOLS,  # type: ignore[arg-type]
        stream=True,
        extra_headers={"X-Script": script, **more},
    )
    text, calls = "", {}
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or []:
                call = calls.setdefault(
                    piece.index, {"id": piece.id, "type": "function", "function": {"name": "", "arguments": ""}}
                )
                assert piece.function is not None
                call["function"]["name"] += piece.function.name or ""
                call["function"]["arguments"] += piece.function.arguments or ""
    return {"role": "assistant", "content": text or None, **({"tool_calls": list(calls.values())} if calls else {})}


def whole(client: openai.OpenAI, messages: list[Any], script: str, **more: Any) -> dict[str, Any]:
    reply = client.chat.completions.create(
        model="main",
        messages=messages,
        tools=TOOLS,  # type: ignore[arg-type]
        extra_headers={"X-Script": script, **more},
    )
    return reply.choices[0].message.model_dump()  # with nulls and members that nobody sent, as programs do


@pytest.mark.parametrize("ask", [streamed, whole], ids=["streamed", "whole"])
def test_an_agents_loop_over_two_turns_is_two_turns_with_their_calls_and_results(lab: Lab, ask: Any):
    client = lab.sdk()
    messages: list[Any] = [SYSTEM, QUESTION]
    for script in ("parallel_calls:2", "one_call"):
        reply = ask(client, messages, script)
        messages.append(reply)
        messages += [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": ANSWER if script == "one_call" else '{"error": "down"}',
            }
            for call in reply["tool_calls"]
        ]
    messages.append(ask(client, messages, "plain_text:It is fine."))
    messages.append({"role": "user", "content": "And in Oslo?"})
    reply = ask(client, messages, "one_call")
    messages += [reply, {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "3 degrees"}]
    messages.append(ask(client, messages, "plain_text:It is cold."))

    lab.settled(lambda: ToolCall.objects.filter(result__isnull=False).count() == 4)
    lab.settled(lambda: GatewayHistory.objects.count() == 5)
    first, second = lab.turns(2)
    assert first.conversation_id == second.conversation_id
    assert (first.source, first.position, second.position) == ("gateway", 0, 1)
    assert (first.num_cycles, second.num_cycles, first.num_calls, second.num_calls) == (3, 2, 3, 1)
    assert json.loads(first.system or "") == "You help."
    assert [message["role"] for message in json.loads(first.messages or "")] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert [message["role"] for message in json.loads(second.messages or "")] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert first.outbound_message_id
    assert first.history is None
    assert second.history is None
    places = [(call.turn_id, call.cycle, call.index, call.result, call.is_error) for call in lab.calls(4)]
    assert places == [
        (first.pk, 0, 0, '{"error": "down"}', True),
        (first.pk, 0, 1, '{"error": "down"}', True),
        (first.pk, 1, 0, ANSWER, False),
        (second.pk, 0, 0, '"3 degrees"', False),
    ]
    with tenant_scope(lab.tenant_id):
        toolset = Toolset.objects.get()
    assert json.loads(toolset.tools) == TOOLS
    assert {call.toolset_id for call in lab.calls(4)} == {toolset.pk}
    lab.days(lambda day: (day.num_requests, day.num_failed, day.num_gaps) == (5, 0, 0))


def test_headers_say_whose_a_request_is_and_join_histories_that_were_cut_off(lab: Lab):
    said = {"conversation": "c-9", "contact": "ada", "style": "brisk", "prompt_version": "brisk@3"}
    first = lab.post("one_call", **said).json()["choices"][0]["message"]
    call = first["tool_calls"][0]
    lab.turns(1)
    cut_off = [
        {"role": "user", "content": "(summary) weather in Rome, please"},
        {"role": "assistant", "content": None, "tool_calls": first["tool_calls"]},
        {"role": "tool", "tool_call_id": call["id"], "content": ANSWER},
    ]
    lab.post("plain_text:Fine.", {"messages": cut_off}, **said)
    lab.settled(lambda: ToolCall.objects.filter(result=ANSWER).count() == 1)
    lab.settled(lambda: GatewayHistory.objects.count() == 2)
    (turn,) = lab.turns(1)
    assert (turn.conversation_id, turn.contact_id, turn.style_id, turn.prompt_version) == (
        "c-9",
        "ada",
        "brisk",
        "brisk@3",
    )
    assert turn.num_cycles == 2
    (stored,) = lab.calls(1)
    assert (stored.tool_call_id, stored.args, stored.style_id) == (call["id"], call["function"]["arguments"], "brisk")


def test_a_history_from_elsewhere_is_context_and_makes_no_calls(lab: Lab):
    example = {"id": "e", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Bonn"}'}}
    history = [
        SYSTEM,
        {"role": "user", "content": "Weather in Bonn?"},
        {"role": "assistant", "content": None, "tool_calls": [example]},
        {"role": "tool", "tool_call_id": "e", "content": "rain"},
        {"role": "assistant", "content": "It rains."},
        QUESTION,
    ]
    lab.post("one_call", {"messages": history})
    (turn,) = lab.turns(1)
    assert [message["role"] for message in json.loads(turn.messages or "")] == ["user", "assistant"]
    assert json.loads(turn.history or "") == history[1:5]
    assert turn.position == 1
    assert len(lab.calls(1)) == 1


def test_the_same_request_again_is_another_turn_and_the_newer_goes_on(lab: Lab):
    replies = [lab.post("one_call").json()["choices"][0]["message"] for _ in range(2)]
    assert replies[0]["tool_calls"][0]["id"] == replies[1]["tool_calls"][0]["id"]  # the scripted server's ids
    older, newer = lab.turns(2)
    lab.settled(lambda: GatewayHistory.objects.count() == 2)
    answered = [
        QUESTION,
        replies[1],
        {"role": "tool", "tool_call_id": replies[1]["tool_calls"][0]["id"], "content": "21"},
    ]
    for _ in range(2):  # also a request that is repeated doubles nothing
        lab.post("status:500", {"messages": answered})
    lab.settled(lambda: ToolCall.objects.filter(result='"21"').count() == 1)
    lab.days(lambda day: (day.num_requests, day.num_failed) == (4, 2))
    assert [call.result for call in lab.calls(2)] == [None, '"21"']
    assert [turn.pk for turn in lab.turns(2)] == [older.pk, newer.pk]


def test_conversations_that_begin_alike_at_the_same_time_stay_apart(lab: Lab):
    replies = [lab.post("S1").json()["choices"][0]["message"] for _ in range(3)]
    lab.settled(lambda: GatewayHistory.objects.count() == 3)
    for number, reply in enumerate(replies, start=1):
        asked = [QUESTION, reply, {"role": "user", "content": f"And on day {number}?"}]
        called = lab.post("one_call", {"messages": asked}).json()["choices"][0]["message"]
        lab.turns(3 + number)
        lab.post(
            "S1",
            {
                "messages": [
                    *asked,
                    called,
                    {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": str(number)},
                ]
            },
        )
    lab.settled(lambda: GatewayHistory.objects.count() == 9)
    turns = lab.turns(6)
    assert sorted(turn.position for turn in turns) == [0, 0, 0, 1, 1, 1]
    assert len({turn.conversation_id for turn in turns if turn.position}) == 3
    assert sorted(str(call.result) for call in lab.calls(3)) == ['"1"', '"2"', '"3"']


def test_arguments_are_kept_as_spelled_and_doubts_are_noted(lab: Lab):
    for script, warnings in {
        "S9": {"no_result"},
        "unknown_tool": {"no_result", "unknown_tool"},
        "broken_arguments": {"args_not_json", "no_result", "args_against_schema"},
        "S12": {"no_result", "args_against_schema"},
    }.items():
        before = len(lab.calls(0))
        for is_streamed in (True, False):
            lab.post(script, {"stream": is_streamed, "tools": [TOOLS[0]]})
        added = 4 if script == "S9" else 2
        calls = lab.calls(before + added)[before:]
        assert {frozenset(call.warnings) for call in calls} == {frozenset(warnings)}, script
        assert len({(call.tool_name, call.index, call.args) for call in calls}) == added / 2, script


def test_two_tenants_know_nothing_of_each_other(lab: Lab, at: Any, other_tenant: Any):
    other = at(other_tenant)
    other.endpoint()
    reply = lab.post("one_call", conversation="same").json()["choices"][0]["message"]
    lab.turns(1)
    answered = [QUESTION, reply, {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "21"}]
    other.post("plain_text", {"messages": answered}, conversation="same")
    (foreign,) = other.turns(1)
    assert foreign.num_calls == 0
    assert lab.calls(1)[0].result is None
    assert [model.id for model in other.sdk().models.list()] == ["main"]
    lab.endpoint("ours")
    with pytest.raises(openai.NotFoundError, match="These are there: main"):
        other.sdk().chat.completions.create(model="ours", messages=[QUESTION])  # type: ignore[list-item]


def test_what_cannot_be_recorded_passes_and_is_told_as_a_gap(lab: Lab):
    odd = lab.post("S1", {"messages": [QUESTION, {"content": "no role"}]})
    assert odd.status_code == 200
    day = lab.days(lambda day: day.num_gaps == 1)
    assert (day.num_requests, day.num_failed) == (1, 0)
    assert "messages[1]" in day.last_gap
    assert day.last_gap_at is not None
    with tenant_scope(lab.tenant_id):
        assert not Turn.objects.exists()


def test_half_a_reply_is_recorded_as_what_it_is(lab: Lab):
    with lab.stream("never_done:60") as response:
        for chunk in response.iter_raw():
            if b'"finish_reason": "stop"' in chunk:
                break
    (turn,) = lab.turns(1)
    assert turn.warnings == ["client_gone"]
    assert "The weather in Paris" in (turn.messages or "")
    lab.days(lambda day: (day.num_requests, day.num_failed) == (1, 0))


def test_a_process_that_is_told_to_stop_records_first_what_it_has(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OUTBOUND_ALLOW_CIDRS", "127.0.0.1/32")
    monkeypatch.setenv("OUTBOUND_ALLOW_PORTS", str(port_of(lab.model.base_url)))
    with running_service(tmp_path) as service:
        own = replace(lab, service=service)
        for number in range(20):
            assert own.post(f"plain_text:{number}").status_code == 200
    with tenant_scope(lab.tenant_id):
        assert Turn.objects.count() == 20
        assert GatewayDay.objects.get().num_requests == 20


def test_two_processes_share_a_conversation(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The reply may still be on its way to the database in one when the next request ends in the other."""
    monkeypatch.setenv("OUTBOUND_ALLOW_CIDRS", "127.0.0.1/32")
    monkeypatch.setenv("OUTBOUND_ALLOW_PORTS", str(port_of(lab.model.base_url)))
    with running_service(tmp_path) as service:
        messages: list[Any] = [QUESTION]
        for place, script in ((lab, "one_call"), (replace(lab, service=service), "plain_text:Fine.")):
            reply = place.post(script, {"messages": messages}).json()["choices"][0]["message"]
            messages.append(reply)
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": "21"} for call in reply.get("tool_calls", [])
            ]
        lab.settled(lambda: ToolCall.objects.filter(result='"21"').count() == 1)
    (turn,) = lab.turns(1)
    assert turn.num_cycles == 2


def test_a_key_that_a_server_says_is_not_kept(tenant: Any):
    """However it was cut on its way to the client, who asked with it."""
    key = "sk-upstream-0123456789"
    answer = {"id": "c1", "choices": [{"message": {"role": "assistant", "content": f"I was given {key}."}}]}
    exchange = Exchange(
        id="e1", tenant_id=tenant.pk, label="main", model="m", said=Said(), checks_arguments=True, key=key,
        request=json.dumps({"model": "main", "messages": [QUESTION]}).encode(), started_at=dt.datetime.now(dt.UTC),
    )  # fmt: skip
    exchange.status = 200
    for piece in (json.dumps(answer)[:90], json.dumps(answer)[90:]):
        exchange.keep(piece.encode())
    with tenant_scope(tenant):
        assert record(exchange, may_wait=False) == ""
        kept = Turn.objects.get().messages or ""
    assert key not in kept
    assert "I was given {secret:MODEL_KEY}." in kept
