"""A worker is killed, or stopped past its lease, at each named step of a turn, with a safe and an unsafe tool
(W1, W8, W9, W10)."""

import json
from collections.abc import Callable

import pytest

from quality.models import CallState, DecisionKind, ToolCall, TurnEvent, TurnRun, TurnState
from quality.turns.decide import Verdict, decide
from quality.turns.faults import STEPS
from tenants.scope import tenant_scope
from tests.crash.house import LEASE_S, START_S, SWEEP_S, Ledger, WorkerProcess, check_invariants
from tests.turns.conftest import Lab

pytestmark = [pytest.mark.crash, pytest.mark.slow]

type Start = Callable[..., WorkerProcess]

LOST_OUTCOME = {"call_begun", "call_ran"}  # the call is on record as running, and nobody knows what became of it


@pytest.mark.parametrize("tools", ["safe", "unsafe"])
@pytest.mark.parametrize("step", STEPS)
def test_a_worker_killed_at_any_step_loses_no_turn_and_doubles_no_unsafe_call(
    lab: Lab, start: Start, step: str, tools: str
) -> None:
    victim = start(crash_at=step)
    turn = lab.turn(tools=tools)
    victim.dies()
    start()
    run = lab.rests(turn, START_S + LEASE_S + SWEEP_S)
    if tools == "unsafe" and step in LOST_OUTCOME:
        assert run.state == TurnState.AWAITING
        with tenant_scope(lab.tenant):
            call = ToolCall.objects.get(turn=turn)
            assert call.state == CallState.UNKNOWN
            kind = DecisionKind.RUN_AGAIN if step == "call_begun" else DecisionKind.HAPPENED
            decide(turn.pk, [Verdict(call.pk, kind)])
        run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == (TurnState.DONE, "answered")
    check_invariants([lab.tenant], lab.tools)
    if tools == "unsafe":
        assert lab.tools.count() == 1
    with tenant_scope(lab.tenant):
        assert ToolCall.objects.filter(turn=turn).count() == 1
        ends = [json.loads(data)["type"] for data in TurnEvent.objects.values_list("data", flat=True)]
    assert ends.count("assistant_end") == 1


def test_a_turn_that_kills_its_workers_is_given_up_after_three(lab: Lab, start: Start) -> None:
    turn = lab.turn()
    for _ in range(3):
        start(crash_at="loaded").dies(START_S + LEASE_S + SWEEP_S)
    start()
    run = lab.rests(turn, START_S + LEASE_S + SWEEP_S)
    assert (run.state, run.turn.end_reason, run.attempt) == (TurnState.FAILED, "worker_lost", 3)
    assert "lost" in run.error
    check_invariants([lab.tenant], lab.tools)


@pytest.mark.parametrize("tools", ["safe", "unsafe"])
def test_a_worker_stopped_past_its_lease_at_any_step_writes_nothing_when_it_wakes(
    lab: Lab, start: Start, subtests: pytest.Subtests, tools: str
) -> None:
    sleeper, other = start(), start()
    for worker in (sleeper, other):
        worker.is_ready()
    ledger = Ledger()
    for step in STEPS:
        with subtests.test(step=step):
            other.stop()
            sleeper.is_to(f"stop:{step}")
            turn = lab.turn(tools=tools)
            sleeper.stops()
            other.goes_on()
            lab.until(turn, lambda run: run.state in {TurnState.AWAITING, TurnState.DONE}, START_S + LEASE_S + SWEEP_S)
            other.stop()
            before, num_calls = everything(turn), lab.tools.count()
            sleeper.goes_on()
            # It goes on with what it had in hand, finds that this is another's, and serves as before.
            lab.rests(lab.turn(tools="safe"))
            assert everything(turn) == before
            assert lab.tools.count() == num_calls
            other.goes_on()
            check_invariants([lab.tenant], lab.tools, ledger)


def everything(turn) -> list[object]:
    """All that is on record of a turn."""
    with tenant_scope(turn.tenant_id):
        calls = list(ToolCall.objects.filter(turn=turn).order_by("pk").values())
        events = list(TurnEvent.objects.filter(turn=turn.pk).order_by("pk").values())
        run = TurnRun.objects.select_related("turn").get(turn=turn)
        return [calls, events, run.state, run.last_seq, run.attempt, run.turn.messages]
