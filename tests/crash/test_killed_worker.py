"""A worker is killed at each named step of a turn, with a safe and with an unsafe tool (W1, W8, W9)."""

import json
import os
import signal
import time
from collections.abc import Callable

import pytest

from quality.models import CallState, DecisionKind, ToolCall, TurnEvent, TurnState
from quality.turns.decide import Verdict, decide
from quality.turns.faults import STEPS
from tenants.scope import tenant_scope
from tests.crash.house import LEASE_S, START_S, SWEEP_S, WorkerProcess, check_invariants
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


@pytest.mark.parametrize("step", ["call_begun", "call_ran", "reply_came", "ending"])
def test_a_worker_stopped_past_its_lease_writes_nothing_when_it_wakes(lab: Lab, start: Start, step: str) -> None:
    sleeper = start(crash_at=f"stop:{step}")
    turn = lab.turn(tools="unsafe")
    sleeper.stops()
    start()
    lab.until(turn, lambda run: run.state in {TurnState.AWAITING, TurnState.DONE}, START_S + LEASE_S + SWEEP_S)
    before, num_calls = everything(lab), lab.tools.count()
    os.kill(sleeper.process.pid, signal.SIGCONT)
    time.sleep(2)
    assert everything(lab) == before
    assert lab.tools.count() == num_calls
    check_invariants([lab.tenant], lab.tools)


def everything(lab: Lab) -> list[object]:
    """All that is on record of the tenant's turns."""
    with tenant_scope(lab.tenant):
        calls = list(ToolCall.objects.order_by("pk").values())
        events = list(TurnEvent.objects.order_by("pk").values())
        runs = [(run.state, run.last_seq, run.attempt, run.turn.messages) for run in lab_runs()]
    return [calls, events, runs]


def lab_runs() -> list:
    from quality.models import TurnRun

    return list(TurnRun.objects.select_related("turn").order_by("pk"))
