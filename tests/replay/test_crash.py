"""A worker is killed in the middle of a replay: what was finished is not asked for again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quality import tasks
from quality.models import ReplayState
from quality.replay import lease
from tenants.models import Membership, Role, Tenant
from tests.crash.house import START_S, WorkerProcess
from tests.replay.lab import Lab, Models
from tests.turns.conftest import eventually

pytestmark = [pytest.mark.crash, pytest.mark.slow]

CASES, SAMPLES, CONCURRENCY = 100, 5, 4

type Start = Callable[[], WorkerProcess]


@pytest.fixture
def start(models: Models, tmp_path: Path) -> Iterator[Start]:
    """`start()` a real worker of the queue that replays are in, whose slices and leases are short."""
    workers: list[WorkerProcess] = []

    def begin() -> WorkerProcess:
        allowed = {"OUTBOUND_ALLOW_CIDRS": "127.0.0.1/32", "OUTBOUND_ALLOW_PORTS": str(models.port)}
        short = {"REPLAY_LEASE_S": "3", "REPLAY_SLICE_S": "3"}
        workers.append(WorkerProcess(tmp_path, queues="celery", **allowed, **short))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.kill()


def test_a_killed_replay_goes_on_and_asks_for_nothing_that_was_finished(
    tenant: Tenant, member: Callable[..., Membership], models: Models, start: Start
) -> None:
    lab = Lab(tenant, member(Role.ADMIN).user, models)
    lab.endpoint("right")
    lab.cases(CASES)
    models.delay_s = 0.02
    victim = start().is_ready()
    replay = lab.start("right", samples=SAMPLES, concurrency=CONCURRENCY)
    eventually(lambda: lab.fresh(replay).num_finished > CASES, START_S)
    victim.kill()
    killed = lab.fresh(replay)
    assert killed.state in (ReplayState.RUNNING, ReplayState.QUEUED)
    finished = {("right", sample.replay_case.number, sample.index + 1) for sample in lab.samples(replay)}
    assert CASES < len(finished) == killed.num_finished < CASES * SAMPLES
    before = models.places
    under_way = set(before) - finished
    assert len(under_way) <= CONCURRENCY

    start().is_ready()
    eventually(lambda: lease.lost().exists() or lab.fresh(replay).num_finished > killed.num_finished, START_S)
    tasks.tick()  # a worker that fell between two slices left a message, any other one a lease that ran out
    done = lab.rests(replay, START_S)

    assert (done.state, done.exit_code, done.num_errors) == (ReplayState.DONE, 0, 0)
    assert done.num_finished == len(lab.samples(replay)) == CASES * SAMPLES
    assert set(models.places) == {("right", case + 1, seed + 1) for case in range(CASES) for seed in range(SAMPLES)}
    twice = {place for place, count in models.places.items() if count > 1}
    assert twice <= under_way  # asked by the first worker, which did not live to write them down
    assert all(count <= 2 for count in models.places.values())
    assert sum(models.places.values()) == CASES * SAMPLES + len(under_way)
