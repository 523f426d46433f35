"""Real workers as processes of their own, which tests kill and stop; and what must hold whatever happened."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from launch.ports import free_port

from quality.models import CallState, DecisionKind, ToolCall, Turn, TurnRun, TurnState
from quality.turns.decide import Verdict, decide
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.service import Service
from tests.turns.conftest import Lab, eventually
from tests.turns.servers import ToolServer

ROOT = Path(__file__).resolve().parents[2]
LEASE_S, SWEEP_S = 3.0, 1.0
START_S = 90.0  # for a worker to be ready, on a busy machine
OWN_MODEL = "one-call"  # what the fixture `own_settings` calls it
ENDED = {TurnState.DONE, TurnState.FAILED, TurnState.CANCELLED}


class WorkerProcess:
    """One Celery worker, of the queue `turns` unless others are named, or a beat. `crash_at` is a step of
    `quality.turns.faults`, perhaps with `stop:`."""

    def __init__(
        self, folder: Path, *, crash_at: str = "", queues: str = "turns", is_beat: bool = False, **variables: str
    ) -> None:
        self.log = folder / f"process-{time.monotonic_ns()}.log"
        self._orders = self.log.with_suffix(".orders")
        self._orders.touch()
        celery = [sys.executable, "-m", "celery", "-A", "quality.celery:app"]
        worker = ["worker", "-Q", queues, "--pool=threads", "--concurrency=2", "--loglevel=INFO"]
        worker += ["--without-mingle", "--without-gossip", "--without-heartbeat"]
        beat = ["beat", "--loglevel=INFO", f"--schedule={self.log}.schedule"]
        command = [*celery, *(beat if is_beat else worker)]
        environment = {
            **os.environ,
            "TURN_SETUP": "tests.turns.setups.from_variables",
            "TURN_LEASE_S": str(LEASE_S),
            "TURN_SWEEP_S": str(SWEEP_S),
            "TEST_BUILD": "1",
            "CRASH_AT": crash_at or f"@{self._orders}",
            "LOG_LEVEL": "INFO",
            **variables,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def is_ready(self, within_s: float = START_S) -> "WorkerProcess":
        deadline = time.monotonic() + within_s
        while b" ready." not in self.log.read_bytes():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.05)
        return self

    def dies(self, within_s: float = START_S) -> None:
        """Waits until it was killed at its step."""
        code = self.process.wait(within_s)
        assert code == -signal.SIGKILL, (code, self.log.read_text()[-2000:])

    def stops(self, within_s: float = START_S) -> None:
        """Waits until it stopped itself at its step."""
        deadline = time.monotonic() + within_s
        while "T" not in Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2][:3]:
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.05)

    def is_to(self, order: str) -> None:
        """What becomes of it at its next step, as `crash_at` says it."""
        self._orders.write_text(order)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.stops()

    def goes_on(self) -> None:
        """Wakes it, with nothing more to come."""
        self.is_to("")
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def terminate(self, within_s: float = 40.0) -> int:
        self.process.terminate()
        return self.process.wait(within_s)


class Broker:
    """A Redis of the test's own, which it may stop and start again. It keeps nothing over a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
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
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self, seconds: float) -> None:
        with self.client() as client:
            client.execute_command("CLIENT", "PAUSE", str(int(seconds * 1000)), "ALL")

    def is_full(self, is_so: bool = True) -> None:
        """With nothing to evict: every write is refused, reads go on."""
        with self.client() as client:
            client.config_set("maxmemory", 1 if is_so else 0)


@dataclass
class Tally:
    """What the suite did and found, for its report."""

    faults: int = 0
    turns: int = 0
    lost: int = 0
    doubled: int = 0

    def add(self, other: dict[str, int]) -> None:
        for name, count in other.items():
            setattr(self, name, getattr(self, name) + count)


tally = Tally()


class Ledger:
    """Counts each turn and each doubled call once, however often invariants are checked."""

    def __init__(self) -> None:
        self._turns: set[int] = set()
        self._doubled: set[str | None] = set()

    def note(self, turns: set[int], doubled: set[str | None]) -> None:
        tally.turns += len(turns - self._turns)
        tally.doubled += len(doubled - self._doubled)
        self._turns |= turns
        self._doubled |= doubled


def check_invariants(
    tenants: list[Tenant], tools: ToolServer, ledger: Ledger | None = None, num_faults: int = 1
) -> None:
    """No turn lost, no unsafe call twice, no lease left behind, each turn at rest in a named state."""
    doubled = {key for key, count in tools.counts_by_key().items() if count > 1}
    runs = [run for tenant in tenants for run in _runs_of(tenant)]
    tally.faults += num_faults
    tally.lost += sum(run.state not in {*ENDED, TurnState.AWAITING} for run in runs)
    (ledger or Ledger()).note({run.turn_id for run in runs}, doubled)
    assert not doubled, tools.counts_by_key()
    for run in runs:
        assert run.state in {*ENDED, TurnState.AWAITING}, (run.state, run.attempt)
        assert run.turn.state == run.state
        assert run.lease_token is None
        assert run.lease_until is None
        assert bool(run.turn.end_reason) == (run.state in ENDED)
        assert (run.finished_at is not None) == (run.state in ENDED)
        with tenant_scope(run.tenant_id):
            open_calls = ToolCall.objects.filter(turn=run.turn_id, state__in=[CallState.PENDING, CallState.RUNNING])
            assert not (run.state in ENDED and open_calls.exists())


def _runs_of(tenant: Tenant) -> list[TurnRun]:
    with tenant_scope(tenant):
        return list(TurnRun.objects.select_related("turn"))


def all_at_rest(lab: Lab, number: int, within_s: float = START_S + LEASE_S + SWEEP_S) -> None:
    """Waits until the tenant's `number` turns wait for a person or have ended, then checks what must hold."""

    def is_so() -> bool:
        with tenant_scope(lab.tenant):
            return TurnRun.objects.filter(state__in=[*ENDED, TurnState.AWAITING]).count() == number

    eventually(is_so, within_s)
    check_invariants([lab.tenant], lab.tools)


def all_done(lab: Lab, number: int) -> None:
    """The same, and each of them was answered."""
    all_at_rest(lab, number)
    with tenant_scope(lab.tenant):
        assert set(TurnRun.objects.values_list("state", "turn__end_reason")) == {(TurnState.DONE, "answered")}


def post_turn(web: Service, token: str, **more: str) -> tuple[int, float]:
    """Id of a turn that is created through the API, and the seconds that the answer took."""
    body = {"text": "Weather in Rome?", "model": "one_call,plain_text", "styleId": "unsafe", **more}
    began = time.monotonic()
    status, answer = ask(web, "POST", "/api/turns", token, body)
    assert status == 201, answer
    return answer["id"], time.monotonic() - began


def ask(web: Service, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of one request to the API."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{web.url}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def is_answered(lab: Lab, turn: Turn, num_calls_before: int) -> None:
    """Waits until the turn rests. Where nobody knows what became of its call, a person who looked at the tool's side
    tells; then it goes on and is answered, and its unsafe call was made once."""
    run = lab.rests(turn, START_S + LEASE_S + SWEEP_S)
    if run.state == TurnState.AWAITING:
        took_effect = lab.tools.count() > num_calls_before
        with tenant_scope(turn.tenant_id):
            call = ToolCall.objects.get(turn=turn)
            assert call.state == CallState.UNKNOWN
            decide(turn.pk, [Verdict(call.pk, DecisionKind.HAPPENED if took_effect else DecisionKind.RUN_AGAIN)])
        run = lab.rests(turn, START_S + LEASE_S + SWEEP_S)
    assert (run.state, run.turn.end_reason) == (TurnState.DONE, "answered"), run.error
    with tenant_scope(turn.tenant_id):
        (call,) = ToolCall.objects.filter(turn=turn)
    assert lab.tools.count() - num_calls_before == (call.tool_name == "send_note")
