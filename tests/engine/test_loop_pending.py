"""Calls that a person or the caller answers: they wait, and the turn goes on with what was decided."""

from dataclasses import replace

import pytest

from engine.history import NOT_ANSWERED
from engine.loop import Outcome
from engine.providers.behaviours import TEXT
from engine.records import (
    DID_NOT_HAPPEN,
    HAPPENED,
    Answered,
    Approve,
    CallRecord,
    CallState,
    Decision,
    Decline,
    NotAnswered,
    Resume,
)
from engine.tools import Mode, Safety, Tool
from tests.engine.turns import Counted, Playing, Watched, call, calls, client_tool, playing, watch

pytestmark = pytest.mark.anyio

ASKED = calls(call("ask_user", {"city": "Rome"}))


async def resumed(play: Playing, tools: list[Tool], turn: Watched, decision: Decision, **options: object) -> Watched:
    resume = Resume(turn.recorder.cycles, {c.call_id: decision for c in turn.result.open_calls})
    return await watch(play.model(), tools, resume=resume, recorder=turn.recorder, **options)


async def test_a_call_of_the_callers_tool_waits_while_the_others_run() -> None:
    counted = Counted()
    script = calls(call("ask_user", {"city": "Rome"}), call("get_weather", {"city": "Rome"}))
    async with playing(script, "plain_text") as play:
        turn = await watch(play.model(), [client_tool(), counted.tool()])
        assert turn.result.outcome is Outcome.AWAITING
        assert [record.name for record in turn.result.open_calls] == ["ask_user"]
        assert counted.ended == ["get_weather"]
        assert {record.name: record.state.value for record in turn.recorder.calls.values()} == {
            "ask_user": "pending",
            "get_weather": "result",
        }
        assert len(play.bodies) == 1
        assert turn.events[-1]["endReason"] == "awaiting"


async def test_a_handler_answers_for_the_caller() -> None:
    seen: list[CallRecord] = []

    async def handler(record: CallRecord) -> str:
        seen.append(record)
        return "yes"

    async with playing(ASKED, "plain_text") as play:
        turn = await watch(play.model(), [client_tool()], on_tool_call=handler)
        assert turn.result.outcome is Outcome.ANSWERED
        assert play.bodies[1]["messages"][2]["content"] == "yes"
        assert [(record.name, record.arguments) for record in seen] == [("ask_user", {"city": "Rome"})]
        assert turn.states() == ["streaming", "pending", "result"]


async def test_a_handler_with_no_answer_leaves_the_call_pending() -> None:
    async def handler(record: CallRecord) -> None:
        return None

    async with playing(ASKED, "plain_text") as play:
        turn = await watch(play.model(), [client_tool()], on_tool_call=handler)
        assert turn.result.outcome is Outcome.AWAITING


async def test_a_handler_may_refuse_and_may_fail() -> None:
    async def refusing(record: CallRecord) -> Decision:
        return Decline("not today")

    async def failing(record: CallRecord) -> Decision:
        raise ValueError("the window was closed")

    for handler, text in [
        (refusing, "Error: the call was refused: not today"),
        (failing, '{"error": "ValueError: the window was closed"}'),
    ]:
        async with playing(ASKED, "plain_text") as play:
            turn = await watch(play.model(), [client_tool()], on_tool_call=handler)
            assert turn.result.outcome is Outcome.ANSWERED
            assert play.bodies[1]["messages"][2]["content"] == text


async def test_a_handler_is_not_asked_about_calls_that_a_person_must_approve() -> None:
    asked: list[CallRecord] = []

    async def handler(record: CallRecord) -> str:
        asked.append(record)
        return "yes"

    counted = Counted()
    async with playing("one_call", "plain_text") as play:
        turn = await watch(play.model(), [counted.tool(mode=Mode.APPROVE)], on_tool_call=handler)
        assert turn.result.outcome is Outcome.AWAITING
        assert not asked
        assert not counted.begun


async def test_wrong_arguments_trouble_no_person() -> None:
    async with playing(calls(call("get_weather", {"city": 7})), "plain_text") as play:
        turn = await watch(play.model(), [Counted().tool(mode=Mode.APPROVE)])
        assert turn.result.outcome is Outcome.ANSWERED
        assert turn.states() == ["streaming", "error"]


@pytest.mark.parametrize(
    ("decision", "text", "state"),
    [
        (Answered("Paris"), "Paris", CallState.RESULT),
        (Answered("no such thing", is_error=True), "no such thing", CallState.ERROR),
        (Decline("too dear"), "Error: the call was refused: too dear", CallState.ERROR),
        (Decline(), "Error: the call was refused: no reason given", CallState.ERROR),
        (NotAnswered(), NOT_ANSWERED, CallState.ERROR),
    ],
)
async def test_a_waiting_turn_goes_on_with_what_was_decided(decision: Decision, text: str, state: CallState) -> None:
    async with playing(ASKED, "plain_text") as play:
        turn = await watch(play.model(), [client_tool()])
        after = await resumed(play, [client_tool()], turn, decision)
        assert (after.result.outcome, after.result.content) == (Outcome.ANSWERED, TEXT)
        assert play.bodies[1]["messages"][2]["content"] == text
        assert turn.recorder.calls[0, 0].state is state
        assert after.result.num_cycles == 2


async def test_an_approved_call_runs_with_the_arguments_a_person_gave_it() -> None:
    counted = Counted()
    tools = [counted.tool(mode=Mode.APPROVE, safety=Safety.UNSAFE)]
    async with playing("one_call", "plain_text") as play:
        turn = await watch(play.model(), tools)
        after = await resumed(play, tools, turn, Approve({"city": "Milan"}))
        assert counted.begun == [("get_weather", {"city": "Milan"})]
        [asked, _] = play.bodies[1]["messages"][1:]
        assert asked["tool_calls"][0]["function"]["arguments"] == '{"city": "Milan"}'
        record = turn.recorder.calls[0, 0]
        assert (record.raw_arguments, record.arguments) == ('{"city": "Rome"}', {"city": "Milan"})
        assert after.states() == ["running", "result"]


async def test_arguments_edited_into_nonsense_are_not_run() -> None:
    counted = Counted()
    tools = [counted.tool(mode=Mode.APPROVE)]
    async with playing("one_call", "plain_text") as play:
        turn = await watch(play.model(), tools)
        await resumed(play, tools, turn, Approve({"city": 5}))
        assert not counted.begun
        assert "invalid arguments" in play.bodies[1]["messages"][2]["content"]


async def test_a_turn_waits_on_until_the_last_call_is_decided() -> None:
    script = calls(call("ask_user", {"city": "Rome"}), call("ask_user", {"city": "Milan"}))
    async with playing(script, "plain_text") as play:
        turn = await watch(play.model(), [client_tool()])
        first, second = turn.result.open_calls
        once = await watch(
            play.model(),
            [client_tool()],
            recorder=turn.recorder,
            resume=Resume(turn.recorder.cycles, {second.call_id: Answered("two")}),
        )
        assert once.result.outcome is Outcome.AWAITING
        assert [record.call_id for record in once.result.open_calls] == [first.call_id]
        twice = await resumed(play, [client_tool()], once, Answered("one"))
        assert twice.result.outcome is Outcome.ANSWERED
        assert [message["content"] for message in play.bodies[1]["messages"][2:]] == ["one", "two"]


async def test_a_call_whose_outcome_was_lost_waits_for_a_person() -> None:
    counted = Counted()
    tools = [counted.tool(safety=Safety.UNSAFE)]
    for decision, text, runs in [
        (HAPPENED, HAPPENED.result, 0),
        (DID_NOT_HAPPEN, DID_NOT_HAPPEN.result, 0),
        (Approve(), "21 degrees", 1),
    ]:
        async with playing("one_call", "plain_text") as play:
            turn = await watch(play.model(), [counted.tool(mode=Mode.APPROVE, safety=Safety.UNSAFE)])
            counted.begun.clear()
            [cycle] = turn.recorder.cycles
            running = Resume([replace(cycle, calls={0: interrupted(cycle.calls[0])})])
            lost = await watch(play.model(), tools, resume=running, recorder=turn.recorder)
            assert lost.result.outcome is Outcome.AWAITING
            assert [record.state for record in lost.result.open_calls] == [CallState.UNKNOWN]
            assert not counted.begun
            after = await resumed(play, tools, lost, decision)
            assert after.result.outcome is Outcome.ANSWERED
            assert play.bodies[1]["messages"][2]["content"] == text
            assert len(counted.begun) == runs


def interrupted(record: CallRecord) -> CallRecord:
    """The record as a worker leaves it that dies while the tool runs."""
    return replace(record, state=CallState.RUNNING, mode=Mode.AUTO)


async def test_a_user_who_writes_on_closes_the_open_calls() -> None:
    async with playing(ASKED, "plain_text") as play:
        turn = await watch(play.model(), [client_tool()])
        messages = [
            {"role": "user", "content": "What is the weather?"},
            *turn.result.messages,
            {"role": "user", "content": "Never mind."},
        ]
        after = await watch(play.model(), [client_tool()], messages=messages)
        assert after.result.outcome is Outcome.ANSWERED
        sent = play.bodies[1]["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
        assert sent[2] == {
            "role": "tool",
            "tool_call_id": sent[1]["tool_calls"][0]["id"],
            "content": NOT_ANSWERED,
        }


async def test_a_history_that_servers_would_refuse_is_mended() -> None:
    broken = {"id": "a", "type": "function", "function": {"name": "x", "arguments": '{"cut": '}}
    parsed = {"id": "b", "type": "function", "function": {"name": "x", "arguments": {"n": 1}}}
    messages = [
        {"role": "tool", "tool_call_id": "lost", "content": "an orphan"},
        {"role": "assistant", "content": None, "tool_calls": [broken, parsed]},
        {"role": "tool", "tool_call_id": "b", "content": "fine"},
        {"role": "user", "content": "Go on"},
    ]
    async with playing("plain_text") as play:
        await watch(play.model(), [], messages=messages)
        [assistant, fine, missing, user] = play.bodies[0]["messages"]
        assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == ["{}", '{"n": 1}']
        assert (fine["content"], missing["content"], user["role"]) == ("fine", NOT_ANSWERED, "user")
