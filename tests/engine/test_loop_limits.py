"""Models that never come to an end, and the limits that end them."""

import json
import time

import pytest

from engine.limits import Limits, Price
from engine.loop import Outcome
from engine.providers.behaviours import TEXT
from engine.providers.wire import Completion
from engine.records import CallState
from engine.tools import Safety
from tests.engine.turns import Counted, call, calls, playing, watch

pytestmark = pytest.mark.anyio


def different(count: int = 30, per_reply: int = 1) -> list[Completion]:
    """Replies that ask for something else each time."""
    return [
        calls(*(call("get_weather", {"city": f"{at}-{which}"}) for which in range(per_reply))) for at in range(count)
    ]


async def test_four_cycles_without_an_answer_exhaust_a_turn() -> None:
    counted = Counted()
    async with playing(*different()) as play:
        turn = await watch(play.model(), [counted.tool()])
        assert (turn.result.outcome, turn.result.content, turn.result.exhausted) == (Outcome.EXHAUSTED, None, True)
        assert turn.events[-1]["exhausted"] is True
        assert len(play.bodies) == len(counted.begun) == 4


async def test_a_tenant_may_choose_one_last_answer_without_tools() -> None:
    async with playing(*different(2), Completion("That is all I found.")) as play:
        limits = Limits(max_cycles=2, on_exhaustion="answer")
        turn = await watch(play.model(), [Counted().tool()], limits=limits)
        assert turn.result.outcome is Outcome.EXHAUSTED
        assert turn.result.content == turn.text == "That is all I found."
        assert "tools" not in play.bodies[2]
        assert turn.recorder.replies[2].offered == ()


async def test_a_last_answer_that_calls_again_runs_nothing() -> None:
    counted = Counted()
    async with playing(*different(3)) as play:
        limits = Limits(max_cycles=2, on_exhaustion="answer")
        turn = await watch(play.model(), [counted.tool()], limits=limits)
        assert (turn.result.outcome, turn.result.content) == (Outcome.EXHAUSTED, None)
        assert len(counted.begun) == 2
        assert turn.result.messages[-1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("per_reply", [1, 2, 5])
async def test_calls_stop_at_exactly_the_limit(per_reply: int) -> None:
    counted = Counted()
    async with playing(*different(per_reply=per_reply)) as play:
        limits = Limits(max_cycles=50, max_calls=7)
        turn = await watch(play.model(), [counted.tool()], limits=limits)
        assert turn.result.outcome is Outcome.BUDGET_EXCEEDED
        assert len(counted.begun) == turn.result.num_calls == 7
        refused = [record for record in turn.recorder.calls.values() if record.state is CallState.ERROR]
        assert {record.outcome and record.outcome.text for record in refused} == {
            "Error: not run: a turn may make no more than 7 calls"
        }


async def test_a_turn_that_used_its_last_call_may_still_answer() -> None:
    async with playing(*different(2), "plain_text") as play:
        turn = await watch(play.model(), [Counted().tool()], limits=Limits(max_calls=2))
        assert (turn.result.outcome, turn.result.content) == (Outcome.ANSWERED, TEXT)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_cycles=50, max_tokens=100),
        Limits(max_cycles=50, max_cost=0.0003, price=Price(prompt=1.0, completion=10.0)),
        Limits(max_cycles=50, max_bytes=9_000),
    ],
)
async def test_tokens_money_and_bytes_end_a_turn(limits: Limits) -> None:
    counted = Counted()
    async with playing(*different()) as play:
        turn = await watch(play.model(), [counted.tool()], limits=limits)
        assert turn.result.outcome is Outcome.BUDGET_EXCEEDED
        assert 1 <= len(counted.begun) == len(play.bodies) - 1 < 10
        last = turn.recorder.calls[max(turn.recorder.calls)]
        assert last.outcome is not None
        assert last.outcome.text.startswith("Error: not run: the turn's budget is used up")


async def test_wall_time_ends_a_turn_while_the_model_is_silent() -> None:
    async with playing() as play:
        started = time.monotonic()
        turn = await watch(play.model("endless_pings"), [Counted().tool()], limits=Limits(wall_time_s=0.3))
        assert time.monotonic() - started < 0.6
        assert turn.result.outcome is Outcome.TIMED_OUT
        assert ": ping" in turn.recorder.failures[0].exchanges[0].body


async def test_wall_time_ends_a_turn_while_a_tool_works() -> None:
    counted = Counted()
    async with playing("one_call", "plain_text") as play:
        started = time.monotonic()
        turn = await watch(play.model(), [counted.tool(takes_s=30)], limits=Limits(wall_time_s=0.3))
        assert time.monotonic() - started < 1.5
        assert turn.result.outcome is Outcome.TIMED_OUT
        assert (len(counted.begun), counted.ended, len(play.bodies)) == (1, [], 1)


async def test_a_tool_has_its_own_time_and_the_turn_goes_on() -> None:
    async with playing("one_call", "plain_text") as play:
        turn = await watch(play.model(), [Counted().tool(takes_s=30)], limits=Limits(tool_timeout_s=0.1))
        assert turn.result.outcome is Outcome.ANSWERED
        assert "in time" in json.loads(play.bodies[1]["messages"][2]["content"])["error"]


async def test_the_third_identical_call_is_not_run_and_the_model_is_told() -> None:
    counted = Counted()
    same = calls(call("get_weather", '{"city": "Rome"}'))
    async with playing(same, calls(call("get_weather", '{ "city":"Rome" }')), same, "plain_text") as play:
        turn = await watch(play.model(), [counted.tool(safety=Safety.UNSAFE)])
        assert len(counted.begun) == 2
        assert play.bodies[3]["messages"][-1]["content"].startswith("Error: this exact call was already made 2 times")
        assert (turn.result.outcome, turn.result.content) == (Outcome.ANSWERED, TEXT)
        assert play.bodies[3]["tools"]


async def test_a_model_that_insists_gets_to_answer_without_tools() -> None:
    counted = Counted()
    same = calls(call("get_weather", {"city": "Rome"}))
    async with playing(*[same] * 4, Completion("It is 21 degrees.")) as play:
        turn = await watch(play.model(), [counted.tool()], limits=Limits(max_cycles=9))
        assert len(counted.begun) == 2
        assert (turn.result.outcome, turn.result.content) == (Outcome.ANSWERED, "It is 21 degrees.")
        assert ["tools" in body for body in play.bodies] == [True] * 4 + [False]


async def test_a_call_written_in_place_of_the_last_answer_is_not_shown() -> None:
    written = Completion('{"name": "get_weather", "arguments": {"city": "Rome"}}')
    async with playing(*different(1), written) as play:
        limits = Limits(max_cycles=1, on_exhaustion="answer")
        turn = await watch(play.model(), [Counted().tool()], limits=limits)
        assert (turn.result.content, turn.text) == (None, "")
        assert "call_without_tools_ignored" in turn.result.warnings


async def test_a_model_that_repeats_itself_for_ever_is_stopped() -> None:
    counted = Counted()
    async with playing() as play:
        turn = await watch(play.model("S14"), [counted.tool()], limits=Limits(max_cycles=50))
        assert len(counted.begun) == 2
        assert len(play.bodies) == 5
        assert turn.result.outcome in (Outcome.ANSWERED, Outcome.EXHAUSTED)


@pytest.mark.parametrize(("limit", "run"), [(2, 1), (4, 3), (0, 6)])
async def test_the_loop_guard_is_a_setting(limit: int, run: int) -> None:
    counted = Counted()
    async with playing(*[calls(call("get_weather", {"city": "Rome"}))] * 6, "plain_text") as play:
        await watch(play.model(), [counted.tool()], limits=Limits(max_cycles=7, identical_calls=limit))
        assert len(counted.begun) == run


async def test_identical_calls_of_one_reply_count_too() -> None:
    counted = Counted()
    async with playing(calls(*[call("get_weather", {"city": "Rome"})] * 3), "plain_text") as play:
        turn = await watch(play.model(), [counted.tool()])
        assert len(counted.begun) == 2
        assert [record.state.value for record in turn.recorder.calls.values()].count("error") == 1


async def test_calls_with_other_arguments_are_not_identical() -> None:
    counted = Counted()
    async with playing(*different(3), "plain_text") as play:
        await watch(play.model(), [counted.tool()])
        assert len(counted.begun) == 3
