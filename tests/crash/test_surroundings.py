"""What workers stand on is taken away: broker, database connections, web, beat (W2, W3, W4, W11, W12)."""

import datetime as dt
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from celery import Celery
from django.utils import timezone

from quality import tasks
from quality.models import Schedule, ToolCall, Turn, TurnRun, TurnState
from tenants.scope import tenant_scope
from tests import environment
from tests.crash.house import LEASE_S, START_S, SWEEP_S, WorkerProcess, check_invariants
from tests.service import Service, running_service
from tests.turns.conftest import Lab, eventually

pytestmark = [pytest.mark.crash, pytest.mark.slow]

type Start = Callable[..., WorkerProcess]
ALL_DONE_S = START_S + LEASE_S + SWEEP_S


class Broker:
    """A Redis of the test's own, which it may stop and start again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Broker":
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        assert program is not None
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(self._answers)
        return self

    def _answers(self) -> bool:
        with redis.Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self, seconds: float) -> None:
        with redis.Redis(port=self.port) as client:
            client.execute_command("CLIENT", "PAUSE", str(int(seconds * 1000)), "ALL")


@pytest.fixture
def broker(redis_url: str, tmp_path: Path) -> Iterator[Broker]:
    """`redis_url` is asked for its skip only: this one is stopped."""
    broker = Broker(tmp_path).start()
    yield broker
    broker.stop()


@pytest.fixture
def web(
    lab: Lab, broker: Broker, collected_static: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """A web process that publishes to the broker."""
    monkeypatch.setenv("REDIS_URL", broker.url)
    with running_service(tmp_path) as service:
        yield service


def post_turn(web: Service, token: str, **more: str) -> tuple[int, float]:
    """Id of a turn that is created through the API, and the seconds that the answer took."""
    body = json.dumps({"text": "Weather in Rome?", "model": "one_call,plain_text", "styleId": "unsafe", **more})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{web.url}/api/turns", body.encode(), headers)
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["id"], time.monotonic() - began


def all_done(lab: Lab, number: int) -> None:
    def is_so() -> bool:
        with tenant_scope(lab.tenant):
            return TurnRun.objects.filter(state=TurnState.DONE).count() == number

    eventually(is_so, ALL_DONE_S)
    check_invariants([lab.tenant], lab.tools)


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


@pytest.mark.redis
@pytest.mark.parametrize("fault", ["stopped", "paused"])
def test_without_a_broker_a_request_is_answered_and_its_turn_runs(
    lab: Lab, start: Start, broker: Broker, web: Service, api, fault: str
) -> None:
    token = api("turns:write").text
    start(REDIS_URL=broker.url, TURN_SWEEP_S="1").is_ready()
    post_turn(web, token)
    if fault == "stopped":
        broker.stop()
    else:
        broker.pause(8)
    _, took_s = post_turn(web, token)
    assert took_s < 3
    all_done(lab, 2)


@pytest.mark.redis
def test_a_worker_outlives_restarts_of_the_broker(lab: Lab, start: Start, broker: Broker) -> None:
    """With sweeps far apart, so that only a message can wake it."""
    start(REDIS_URL=broker.url, TURN_SWEEP_S="600").is_ready()
    for number in range(3):
        broker.stop()
        broker.start()
        turn = lab.turn(tools="unsafe")

        def send(turn: Turn = turn) -> None:
            with Celery(broker=broker.url) as client:
                client.send_task("quality.tasks.run_turn", (lab.tenant.pk, turn.pk), queue="turns")

        send()
        all_done(lab, number + 1)


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
