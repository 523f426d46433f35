"""A turn from the user's message to the reply: what runs, in which order, and what the model and the watcher read."""

import asyncio
import json
import time
from typing import Any

import pytest

from engine.errors import ToolError
from engine.loop import Outcome, run_turn
from engine.messages import Message
from engine.providers.behaviours import TEXT
from engine.providers.wire import TEXT_CALLS, Completion
from engine.recorder import MemoryRecorder
from engine.records import CallState
from engine.tools import Arguments, FunctionTool, ToolContext, ToolOutcome
from tests.engine.turns import CITY, Counted, call, calls, playing, watch

pytestmark = pytest.mark.anyio


async def test_a_turn_calls_a_tool_and_answers() -> None:
    counted = Counted()
    async with playing(calls(call("get_weather", {"city": "Rome"})), Completion("21 degrees in Rome.")) as play:
        turn = await watch(play.model(), [counted.tool()])
        assert turn.result.outcome is Outcome.ANSWERED
        assert turn.result.content == turn.text == "21 degrees in Rome."
        assert counted.begun == [("get_weather", {"city": "Rome"})]
        assert (turn.result.num_cycles, turn.result.num_calls) == (2, 1)
        [_, asked, answered] = play.bodies[1]["messages"]
        assert asked["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Rome"}'}
        assert answered == {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "21 degrees"}
        assert turn.result.messages == (asked, answered, {"role": "assistant", "content": "21 degrees in Rome."})


async def test_a_turn_without_tools_is_one_answer() -> None:
    async with playing("plain_text") as play:
        turn = await watch(play.model(), [])
        assert (turn.result.content, len(play.bodies)) == (TEXT, 1)


async def test_tools_of_one_reply_run_side_by_side_and_answer_in_the_models_order() -> None:
    counted = Counted()
    tools = [counted.tool(name, takes_s=s, result=name) for name, s in [("slow", 0.3), ("middle", 0.2), ("fast", 0.1)]]
    script = calls(*(call(name, {"city": name}) for name in ("slow", "middle", "fast")))
    async with playing(script, "plain_text") as play:
        started = time.monotonic()
        turn = await watch(play.model(), tools)
        assert time.monotonic() - started < 0.5
        assert counted.ended == ["fast", "middle", "slow"]
        assert [message["content"] for message in play.bodies[1]["messages"][2:]] == ["slow", "middle", "fast"]
        assert [c.index for c in turn.recorder.calls.values()] == [0, 1, 2]


async def test_each_change_of_a_call_is_told_between_its_writing_and_the_end() -> None:
    async with playing(calls(call("get_weather", {"city": "Rome"}), text="I look."), "plain_text") as play:
        turn = await watch(play.model(), [Counted().tool()])
        assert turn.states() == ["streaming", "running", "result"]
        assert turn.events[-1] == {
            "type": "assistant_end",
            "content": TEXT,
            "exhausted": False,
            "endReason": "answered",
            "error": None,
        }
        result = next(event for event in turn.events if event.get("state") == "result")
        assert result["arguments"] == {"city": "Rome"}
        assert result["rawArguments"] == '{"city": "Rome"}'
        assert (result["cycle"], result["index"], result["result"]) == (0, 0, "21 degrees")
        written = "".join(event.get("argumentsDelta", "") for event in turn.events)
        assert written == '{"city": "Rome"}'
        assert len({event["callId"] for event in turn.events if event["type"] == "tool_call"} - {None}) == 1


@pytest.mark.parametrize("form", list(TEXT_CALLS))
async def test_no_markup_of_a_call_is_ever_shown(form: str) -> None:
    async with playing() as play:
        turn = await watch(play.model(f"text_call:{form},plain_text"), [Counted().tool()])
        assert turn.text == turn.result.content == TEXT
        assert turn.states() == ["running", "result"]


async def test_an_unknown_tool_is_an_answer_to_the_model() -> None:
    async with playing("unknown_tool", "plain_text") as play:
        turn = await watch(play.model(), [Counted().tool()])
        assert turn.result.outcome is Outcome.ANSWERED
        assert play.bodies[1]["messages"][2]["content"] == "Error: unknown tool 'ThaiRestaurant'"


async def test_wrong_arguments_never_reach_a_tool() -> None:
    counted = Counted()
    async with playing(calls(call("get_weather", {"city": 7})), "plain_text") as play:
        turn = await watch(play.model(), [counted.tool()])
        assert not counted.begun
        content = play.bodies[1]["messages"][2]["content"]
        assert content == "Error: invalid arguments for tool 'get_weather': $.city: 7 is not of type 'string'"
        assert turn.recorder.calls[0, 0].arguments == {"city": 7}


@pytest.mark.parametrize("broken", ["{'city': Paris", '{"city": "Par', "[1, 2]", '{"city": NaN}'])
async def test_arguments_that_are_no_json_are_kept_and_never_go_back_broken(broken: str) -> None:
    counted = Counted()
    async with playing(calls(call("get_weather", broken)), "plain_text") as play:
        turn = await watch(play.model(), [counted.tool()])
        assert not counted.begun
        kept = turn.recorder.calls[0, 0]
        assert (kept.raw_arguments, kept.state) == (broken, CallState.ERROR)
        [asked, answered] = play.bodies[1]["messages"][1:]
        assert isinstance(json.loads(asked["tool_calls"][0]["function"]["arguments"]), dict)
        assert answered["content"].startswith("Error: invalid arguments for tool 'get_weather': $")


async def test_the_models_own_spelling_goes_back_where_it_is_json() -> None:
    async with playing(calls(call("get_weather", '{ "city" :"R\\u00f3ma"}')), "plain_text") as play:
        await watch(play.model(), [Counted().tool()])
        function = play.bodies[1]["messages"][1]["tool_calls"][0]["function"]
        assert function["arguments"] == '{ "city" :"R\\u00f3ma"}'


async def test_the_whole_result_is_recorded_and_the_model_reads_a_part() -> None:
    async with playing("one_call", "plain_text") as play:
        turn = await watch(play.model(), [Counted().tool(result="x" * 5000)])
        outcome = turn.recorder.calls[0, 0].outcome
        assert outcome is not None
        assert outcome.result == "x" * 5000
        assert play.bodies[1]["messages"][2]["content"] == "x" * 2000 + "… [truncated]"


async def raising(error: BaseException) -> ToolOutcome:
    raise error


@pytest.mark.parametrize(
    "trouble",
    [ValueError("no such city"), RecursionError(), SystemExit(3), asyncio.CancelledError(), TimeoutError(), KeyError()],
)
async def test_no_error_of_a_tool_breaks_the_loop(trouble: BaseException) -> None:
    async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        return await raising(trouble)

    tool = FunctionTool("get_weather", "", CITY, execute)
    async with playing("one_call", "plain_text") as play:
        turn = await watch(play.model(), [tool])
        assert turn.result.outcome is Outcome.ANSWERED
        assert json.loads(play.bodies[1]["messages"][2]["content"])["error"]
        assert turn.recorder.calls[0, 0].state is CallState.ERROR


async def test_a_tool_that_returns_nonsense_is_told_of() -> None:
    async def execute(arguments: Arguments, context: ToolContext) -> Any:
        return "plain"

    async with playing("one_call", "plain_text") as play:
        await watch(play.model(), [FunctionTool("get_weather", "", CITY, execute)])
        assert json.loads(play.bodies[1]["messages"][2]["content"]) == {"error": "the tool returned str"}


async def test_a_failing_tool_leaves_its_neighbours_alone() -> None:
    counted = Counted()
    tools = [counted.tool("bad", result=ValueError("oops")), counted.tool("good", takes_s=0.05)]
    async with playing(calls(call("bad", {"city": "a"}), call("good", {"city": "b"})), "plain_text") as play:
        turn = await watch(play.model(), tools)
        assert counted.ended == ["good"]
        assert [message["content"] for message in play.bodies[1]["messages"][2:]] == [
            '{"error": "ValueError: oops"}',
            "21 degrees",
        ]
        assert turn.result.outcome is Outcome.ANSWERED


async def test_ids_that_a_server_gives_twice_are_told_apart() -> None:
    async with playing("repeated_ids", "repeated_ids", "plain_text") as play:
        tools = [Counted().tool(), Counted().tool("get_news")]
        turn = await watch(play.model(), tools)
        ids = [record.call_id for record in turn.recorder.calls.values()]
        assert len(set(ids)) == len(ids) == 4
        history = play.bodies[2]["messages"]
        assert [message["tool_call_id"] for message in history if message["role"] == "tool"] == ids


async def test_the_record_holds_the_very_toolset_of_the_request_and_the_raw_reply() -> None:
    async with playing("one_call", "plain_text") as play:
        turn = await watch(play.model(), [Counted().tool()])
        reply = turn.recorder.replies[0]
        assert list(reply.offered) == play.bodies[0]["tools"]
        assert "chat.completion.chunk" in reply.exchanges[0].body
        assert (reply.finish_reason, reply.usage.prompt_tokens, reply.model) == ("tool_calls", 20, "choose")
        assert turn.result.usage.prompt_tokens == 40


async def test_a_call_is_recorded_before_it_runs_and_after_it_ended() -> None:
    steps: list[str] = []

    class Noting(MemoryRecorder):
        async def reply_received(self, reply: Any) -> None:
            steps.append("reply")

        async def calls_started(self, started: Any) -> None:
            steps.extend(f"started {record.name}" for record in started)

        async def call_ended(self, ended: Any) -> None:
            steps.append(f"ended {ended.name} {ended.state}")

    async def note(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        steps.append(f"ran {context.idempotency_key}")
        return ToolOutcome("fine", "fine")

    async with playing("one_call", "plain_text") as play:
        await watch(play.model(), [Counted().tool(result=note)], recorder=Noting(), turn_id="t1")
    assert steps == ["reply", "started get_weather", "ran t1:0:0", "ended get_weather result", "reply"]


async def test_a_recorder_that_fails_ends_the_turn_before_the_tool_runs() -> None:
    class Fenced(MemoryRecorder):
        async def calls_started(self, started: Any) -> None:
            raise PermissionError("the lease is lost")

    counted = Counted()
    async with playing("one_call", "plain_text") as play:
        with pytest.raises(PermissionError):
            await watch(play.model(), [counted.tool()], recorder=Fenced())
        assert not counted.begun
        assert len(play.bodies) == 1


async def test_a_recorder_that_fails_cancels_the_tools_that_still_run() -> None:
    class Fenced(MemoryRecorder):
        async def call_ended(self, ended: Any) -> None:
            raise PermissionError("the lease is lost")

    counted = Counted()
    tools = [counted.tool("fast"), counted.tool("slow", takes_s=5)]
    async with playing(calls(call("fast", {"city": "a"}), call("slow", {"city": "b"}))) as play:
        started = time.monotonic()
        with pytest.raises(PermissionError):
            await watch(play.model(), tools, recorder=Fenced())
        assert time.monotonic() - started < 1
        assert counted.ended == ["fast"]


async def test_two_tools_of_one_name_are_refused() -> None:
    async with playing() as play:
        with pytest.raises(ToolError, match="two tools are called 'get_weather'"):
            await run_turn(play.model(), [Counted().tool(), Counted().tool()], [])


async def test_messages_may_be_dataclasses_or_plain() -> None:
    async with playing("plain_text") as play:
        messages = [Message("system", "Be brief."), {"role": "user", "content": "Hello"}]
        await run_turn(play.model(), [], messages)
        assert play.bodies[0]["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ]


async def test_a_model_that_says_nothing_twice_ends_in_a_named_way() -> None:
    async with playing() as play:
        turn = await watch(play.model("empty_stream"), [Counted().tool()])
        assert (turn.result.outcome, turn.result.content) == (Outcome.EMPTY, None)
        assert "tool parser" in str(turn.result.error)
