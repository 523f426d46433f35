"""What workers stand on is taken away: broker, database connections, web, beat (W2, W3, W4, W11, W12)."""

import datetime as dt
import signal
import time
from collections.abc import Callable

import psycopg
import pytest
from django.utils import timezone

from quality import tasks
from quality.models import Schedule, ToolCall, Turn, TurnState
from tenants.scope import tenant_scope
from tests import environment
from tests.crash.house import LEASE_S, START_S, SWEEP_S, WorkerProcess, all_done, check_invariants, post_turn
from tests.service import Service
from tests.turns.conftest import Lab

pytestmark = [pytest.mark.crash, pytest.mark.slow]

type Start = Callable[..., WorkerProcess]
ALL_DONE_S = START_S + LEASE_S + SWEEP_S


def test_the_same_message_twenty_times_to_two_workers_is_one_turn(lab: Lab, start: Start) -> None:
    workers = [start(), start()]
    for worker in workers:
        worker.is_ready()
    turn = lab.turn(tools="unsafe")
    for _ in range(20):
        tasks.run_turn.delay(lab.tenant.pk, turn.pk)
    assert lab.rests(turn, ALL_DONE_S).state == TurnState.DONE
    time.sleep(1)
    assert lab.tools.count() == 1
    with tenant_scope(lab.tenant):
        assert ToolCall.objects.count() == 1
        assert Turn.objects.get().num_cycles == 2
    check_invariants([lab.tenant], lab.tools)


def test_turns_outlive_the_loss_of_every_database_connection(lab: Lab, start: Start) -> None:
    worker = start(TEST_MODEL_DELAY_S="0.4", PGAPPNAME="worker").is_ready()
    turns = [lab.turn(tools="unsafe") for _ in range(20)]
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:
        cut = []
        for _ in range(4):
            time.sleep(0.3)
            cut += admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'worker'"
            ).fetchall()
    assert len(cut) >= 3
    for turn in turns:
        run = lab.rests(turn, ALL_DONE_S)
        if run.state == TurnState.AWAITING:  # its outcome was lost with the connection: a person has to say
            continue
        assert (run.state, run.turn.end_reason) == (TurnState.DONE, "answered")
    check_invariants([lab.tenant], lab.tools)
    assert worker.process.poll() is None


def test_a_rolling_restart_costs_no_attempt(lab: Lab, start: Start) -> None:
    first = start(TEST_MODEL_DELAY_S="0.3").is_ready()
    turns = [lab.turn(tools="unsafe") for _ in range(30)]
    lab.until(turns[0], lambda run: run.state == TurnState.RUNNING)
    second = start(TEST_MODEL_DELAY_S="0.3")
    assert first.terminate() == 0
    for turn in turns:
        run = lab.rests(turn, ALL_DONE_S)
        assert (run.state, run.attempt) == (TurnState.DONE, 1)
    with tenant_scope(lab.tenant):
        assert [call.error for call in ToolCall.objects.filter(is_error=True)] == []
    assert lab.tools.count() == 30
    check_invariants([lab.tenant], lab.tools)
    assert second.process.poll() is None


@pytest.mark.redis
def test_a_turn_outlives_the_web_process_that_took_it(lab: Lab, start: Start, web: Service, api) -> None:
    post_turn(web, api("turns:write").text)
    web.process.send_signal(signal.SIGKILL)
    start()
    all_done(lab, 1)


def test_two_beats_of_which_one_dies_fire_a_slot_once(lab: Lab, start: Start) -> None:
    beats = [start(is_beat=True), start(is_beat=True)]
    start(queues="celery,turns").is_ready()
    with tenant_scope(lab.tenant):
        Schedule.objects.create(
            name="check", text="Hello", cron="0 0 1 1 *", model_label="plain_text", next_at=timezone.now()
        )
    time.sleep(1)
    beats[0].kill()
    all_done(lab, 1)
    time.sleep(1)
    with tenant_scope(lab.tenant):
        assert Turn.objects.count() == 1
        next_at = Schedule.objects.get().next_at
    assert next_at is not None
    assert next_at > timezone.now() + dt.timedelta(seconds=1)
