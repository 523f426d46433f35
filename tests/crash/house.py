"""Real workers as processes of their own, which tests kill and stop; and what must hold whatever happened."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from quality.models import CallState, ToolCall, TurnRun, TurnState
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.turns.servers import ToolServer

ROOT = Path(__file__).resolve().parents[2]
LEASE_S, SWEEP_S = 3.0, 1.0
START_S = 30.0  # for a worker to be ready, on a busy machine
ENDED = {TurnState.DONE, TurnState.FAILED, TurnState.CANCELLED}


class WorkerProcess:
    """One Celery worker, of the queue `turns` unless others are named, or a beat. `crash_at` is a step of
    `quality.turns.faults`, perhaps with `stop:`."""

    def __init__(
        self, folder: Path, *, crash_at: str = "", queues: str = "turns", is_beat: bool = False, **variables: str
    ) -> None:
        self.log = folder / f"process-{time.monotonic_ns()}.log"
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
            "CRASH_AT": crash_at,
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

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def terminate(self, within_s: float = 40.0) -> int:
        self.process.terminate()
        return self.process.wait(within_s)


@dataclass
class Tally:
    """What the suite did and found, for its report."""

    faults: int = 0
    turns: int = 0
    lost: int = 0
    doubled: int = 0


tally = Tally()


def check_invariants(tenants: list[Tenant], tools: ToolServer) -> None:
    """No turn lost, no unsafe call twice, no lease left behind, each turn at rest in a named state."""
    tally.faults += 1
    tally.doubled += sum(count > 1 for count in tools.counts_by_key().values())
    for tenant in tenants:
        with tenant_scope(tenant):
            states = list(TurnRun.objects.values_list("state", flat=True))
            tally.turns += len(states)
            tally.lost += sum(state not in {*ENDED, TurnState.AWAITING} for state in states)
    assert all(count == 1 for count in tools.counts_by_key().values()), tools.counts_by_key()
    for tenant in tenants:
        with tenant_scope(tenant):
            for run in TurnRun.objects.select_related("turn"):
                assert run.state in {*ENDED, TurnState.AWAITING}, (run.state, run.attempt)
                assert run.turn.state == run.state
                assert run.lease_token is None
                assert run.lease_until is None
                assert bool(run.turn.end_reason) == (run.state in ENDED)
                assert (run.finished_at is not None) == (run.state in ENDED)
                open_calls = ToolCall.objects.filter(turn=run.turn_id, state__in=[CallState.PENDING, CallState.RUNNING])
                if run.state in ENDED:
                    assert not open_calls.exists()
