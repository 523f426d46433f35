"""A turn that dies at any step and is taken up again: nothing that ended runs again, nothing unsafe runs twice."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.limits import Limits
from engine.loop import Outcome
from engine.providers.behaviours import saying
from engine.providers.wire import Completion
from engine.recorder import MemoryRecorder
from engine.records import HAPPENED, CallRecord, CallState, FailedReply, ReplyRecord, Resume
from engine.tools import Arguments, FunctionTool, Safety, ToolContext, ToolOutcome, succeeded
from tests.engine.turns import CITY, Watched, call, calls, playing, watch

REPLIES = [
    calls(call("read", {"city": "a"}), call("pay", {"city": "b"}), call("read", {"city": "c"})),
    calls(call("pay", {"city": "d"}), call("pay", {"city": 5}), call("nobody", {})),
    Completion("All paid."),
]
FOLLOWED = saying(lambda ask: REPLIES[ask.cycle])


class Killed(Exception):
    """The worker dies here."""


class Mortal(MemoryRecorder):
    """Keeps its records through the deaths of the workers; the next death is so many steps away.

    A step is the moment before or after a record is kept, or one inside a tool.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None

    def step(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise Killed

    async def reply_received(self, reply: ReplyRecord) -> None:
        self.step()
        await super().reply_received(reply)
        self.step()

    async def reply_failed(self, failure: FailedReply) -> None:
        raise AssertionError("the model never fails here")

    async def calls_started(self, started: Sequence[CallRecord]) -> None:
        self.step()
        await super().calls_started(started)
        self.step()

    async def call_ended(self, ended: CallRecord) -> None:
        self.step()
        await super().call_ended(ended)
        self.step()


class Till:
    """Tools that count what they did in the world, and die in the middle when it is time."""

    def __init__(self, recorder: Mortal) -> None:
        self.done: Counter[str] = Counter()
        self.rerun: list[str] = []
        self._recorder = recorder

    def tools(self) -> list[FunctionTool]:
        return [
            FunctionTool("read", "", CITY, self._execute, safety=Safety.SAFE),
            FunctionTool("pay", "", CITY, self._execute, safety=Safety.UNSAFE),
        ]

    async def _execute(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        key = context.idempotency_key
        _, cycle, index = key.split(":")
        if self._recorder.calls[int(cycle), int(index)].state is not CallState.RUNNING:
            self.rerun.append(key)
        await asyncio.sleep(0)
        self.done[key] += 1
        return succeeded(f"done {arguments['city']}", context)


async def live(deaths: list[int]) -> tuple[Watched, Mortal, Till, int]:
    """Runs a turn to its end through these deaths; a person confirms unknown calls, which are counted."""
    recorder, confirmed = Mortal(), 0
    till = Till(recorder)
    async with playing(*[FOLLOWED] * (3 + len(deaths) + 5)) as play:
        model = play.model()
        decisions: dict[str, object] = {}
        for steps in [*deaths, None, None, None]:
            recorder.steps_left = steps
            resume = Resume(recorder.cycles, decisions)  # type: ignore[arg-type]
            try:
                turn = await watch(
                    model, till.tools(), recorder=recorder, resume=resume, turn_id="t", limits=Limits(max_cycles=3)
                )
            except Killed:
                continue
            if turn.result.outcome is not Outcome.AWAITING:
                return turn, recorder, till, confirmed
            for record in turn.result.open_calls:
                assert (record.state, record.safety) == (CallState.UNKNOWN, Safety.UNSAFE)
                confirmed += record.call_id not in decisions
                decisions[record.call_id] = HAPPENED
    raise AssertionError("the turn did not end")


def check(turn: Watched, recorder: Mortal, till: Till) -> None:
    assert (turn.result.outcome, turn.result.content) == (Outcome.ANSWERED, "All paid.")
    assert not till.rerun
    assert all(till.done[key] <= 1 for key in ("t:0:1", "t:1:0")), "an unsafe call ran twice"
    assert till.done["t:0:0"] >= 1
    assert till.done["t:0:2"] >= 1
    assert till.done["t:1:1"] == till.done["t:1:2"] == 0
    assert {place: record.state.value for place, record in recorder.calls.items()} == {
        (0, 0): "result",
        (0, 1): "result",
        (0, 2): "result",
        (1, 0): "result",
        (1, 1): "error",
        (1, 2): "error",
    }
    assert (turn.result.num_cycles, turn.result.num_calls) == (3, 4)


def test_a_turn_lives_through_a_death_at_every_single_step() -> None:
    lived = unknown = 0
    for step in range(40):
        turn, recorder, till, confirmed = asyncio.run(live([step]))
        check(turn, recorder, till)
        lived += recorder.steps_left is None
        unknown += confirmed
    _, untouched, _, confirmed = asyncio.run(live([39]))
    assert untouched.steps_left is not None, "the turn has more steps than were tried"
    assert confirmed == 0
    assert lived > 15
    assert unknown > 2


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 22), min_size=2, max_size=6))
def test_a_turn_lives_through_any_series_of_deaths(deaths: list[int]) -> None:
    turn, recorder, till, _ = asyncio.run(live(deaths))
    check(turn, recorder, till)


@pytest.mark.anyio
async def test_a_turn_taken_up_again_has_used_what_it_had_used() -> None:
    recorder = Mortal()
    till = Till(recorder)
    async with playing(*[FOLLOWED] * 3) as play:
        first = await watch(play.model(), till.tools(), recorder=recorder, turn_id="t", limits=Limits(max_cycles=1))
        assert first.result.outcome is Outcome.EXHAUSTED
        resume = Resume(recorder.cycles)
        again = await watch(play.model(), till.tools(), resume=resume, turn_id="t", limits=Limits(max_cycles=1))
        assert again.result.outcome is Outcome.EXHAUSTED
        assert again.result.usage == first.result.usage
        assert again.result.num_calls == first.result.num_calls == 3
        limited = await watch(play.model(), till.tools(), resume=resume, turn_id="t", limits=Limits(max_calls=3))
        assert limited.result.outcome is Outcome.BUDGET_EXCEEDED
        assert sum(till.done.values()) == 3


@pytest.mark.anyio
async def test_a_turn_that_had_ended_ends_the_same_without_a_request() -> None:
    recorder = Mortal()
    till = Till(recorder)
    async with playing(*[FOLLOWED] * 3) as play:
        first = await watch(play.model(), till.tools(), recorder=recorder, turn_id="t")
        again = await watch(play.model(), till.tools(), resume=Resume(recorder.cycles), turn_id="t")
        assert again.result.content == first.result.content == "All paid."
        assert again.result.messages == first.result.messages
        assert len(play.bodies) == 3


@pytest.mark.anyio
async def test_the_loop_guard_remembers_what_was_called_before() -> None:
    recorder = Mortal()
    till = Till(recorder)
    same = calls(call("read", {"city": "a"}))
    async with playing(same, same, same, "plain_text") as play:
        await watch(play.model(), till.tools(), recorder=recorder, turn_id="t", limits=Limits(max_cycles=2))
        turn = await watch(play.model(), till.tools(), recorder=recorder, turn_id="t", resume=Resume(recorder.cycles))
        assert turn.result.outcome is Outcome.ANSWERED
        assert sum(till.done.values()) == 2
        assert recorder.calls[2, 0].state is CallState.ERROR
