"""Turns that are given up: by a person, or by the worker that runs them."""

import asyncio
import threading
import time

import pytest

from engine.loop import Outcome, run_turn
from engine.recorder import MemoryRecorder
from engine.records import CallState
from engine.tools import Arguments, Safety, ToolContext, ToolOutcome
from tests.engine.turns import Counted, call, calls, playing, watch

pytestmark = pytest.mark.anyio


async def cancelled_after(seconds: float) -> asyncio.Event:
    cancel = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, cancel.set)
    return cancel


@pytest.mark.parametrize(("safety", "state"), [(Safety.SAFE, CallState.ERROR), (Safety.UNSAFE, CallState.UNKNOWN)])
async def test_cancelling_reaches_a_running_tool(safety: Safety, state: CallState) -> None:
    counted = Counted()
    async with playing("one_call") as play:
        started = time.monotonic()
        tool = counted.tool(takes_s=30, safety=safety)
        turn = await watch(play.model(), [tool], cancel=await cancelled_after(0.2))
        assert time.monotonic() - started < 1
        assert (turn.result.outcome, turn.result.content) == (Outcome.CANCELLED, None)
        assert (len(counted.begun), counted.ended) == (1, [])
        assert turn.recorder.calls[0, 0].state is state
        assert turn.states()[-1] == state.value
        assert turn.events[-1]["endReason"] == "cancelled"


async def test_cancelling_reaches_a_tool_in_a_thread() -> None:
    stopped = threading.Event()

    async def work(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        def wait() -> None:
            if context.cancel.wait(10):
                stopped.set()

        await asyncio.to_thread(wait)
        raise AssertionError("nobody waits for this any more")

    async with playing("one_call") as play:
        turn = await watch(play.model(), [Counted().tool(result=work)], cancel=await cancelled_after(0.2))
        assert turn.result.outcome is Outcome.CANCELLED
        assert await asyncio.to_thread(stopped.wait, 2)


async def test_cancelling_stops_the_model_and_keeps_what_it_said() -> None:
    async with playing() as play:
        turn = await watch(play.model("endless_stream"), [], cancel=await cancelled_after(0.2))
        assert turn.result.outcome is Outcome.CANCELLED
        [failure] = turn.recorder.failures
        assert failure.code == "cancelled"
        assert "and so on" in failure.exchanges[0].body
        async with asyncio.timeout(2):
            while play.server.num_open:
                await asyncio.sleep(0.01)


async def test_cancelling_ends_the_wait_before_another_try() -> None:
    async with playing("rate_limited:30") as play:
        started = time.monotonic()
        turn = await watch(play.model(), [], cancel=await cancelled_after(0.2))
        assert turn.result.outcome is Outcome.CANCELLED
        assert time.monotonic() - started < 1


async def test_a_turn_cancelled_beforehand_asks_nothing() -> None:
    cancel = asyncio.Event()
    cancel.set()
    async with playing("plain_text") as play:
        turn = await watch(play.model(), [], cancel=cancel)
        assert (turn.result.outcome, len(play.bodies)) == (Outcome.CANCELLED, 0)


async def test_what_had_ended_before_stays_as_it_was() -> None:
    counted = Counted()
    tools = [counted.tool("fast"), counted.tool("slow", takes_s=30)]
    async with playing(calls(call("fast", {"city": "a"}), call("slow", {"city": "b"}))) as play:
        turn = await watch(play.model(), tools, cancel=await cancelled_after(0.2))
        assert [record.state.value for record in turn.recorder.calls.values()] == ["result", "error"]


async def test_a_worker_that_goes_away_writes_nothing_more() -> None:
    recorder, counted = MemoryRecorder(), Counted()
    async with playing("one_call") as play:
        tool = counted.tool(takes_s=30, safety=Safety.UNSAFE)
        messages = [{"role": "user", "content": "Weather in Rome?"}]
        work = asyncio.ensure_future(run_turn(play.model(), [tool], messages, recorder=recorder))
        while not counted.begun:
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert recorder.calls[0, 0].state is CallState.RUNNING  # whoever takes the turn up finds it so
        assert not recorder.failures
        assert not counted.ended
