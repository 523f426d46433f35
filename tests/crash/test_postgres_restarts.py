"""PostgreSQL is stopped and started again, at each step of a turn, under load and for longer than a lease."""

import urllib.request
from collections.abc import Callable, Iterator

import pytest

from quality.models import TurnRun, TurnState
from quality.turns.faults import STEPS
from tenants.scope import tenant_scope
from tests.conftest import KEEP
from tests.crash.house import (
    LEASE_S,
    START_S,
    SWEEP_S,
    Ledger,
    WorkerProcess,
    all_at_rest,
    ask,
    check_invariants,
    is_answered,
)
from tests.crash.own_postgres import MODES, OwnPostgres, pointed_at
from tests.service import running_service
from tests.turns.conftest import Lab, eventually

pytestmark = [pytest.mark.crash, pytest.mark.slow]

type Start = Callable[..., WorkerProcess]
NUM_TURNS = 30


@pytest.fixture(scope="module", autouse=True)
def postgres(django_db_setup: None, django_db_blocker) -> Iterator[OwnPostgres]:
    with django_db_blocker.unblock():
        server = OwnPostgres()
        try:
            with pointed_at(server):
                server.prepare()
                yield server
        finally:
            server.remove()


@pytest.fixture(scope="module")
def empty_tables(postgres: OwnPostgres) -> Callable[[], None]:
    return lambda: postgres.empty_tables(KEEP)


@pytest.mark.parametrize("mode", MODES)
def test_a_restart_at_any_step_of_a_turn_stops_nobody(
    lab: Lab, start: Start, postgres: OwnPostgres, subtests: pytest.Subtests, mode: str
) -> None:
    worker, ledger = start().is_ready(), Ledger()
    for step in STEPS:
        for tools in ("safe", "unsafe"):
            with subtests.test(step=step, tools=tools):
                worker.is_to(f"stop:{step}")
                num_calls = lab.tools.count()
                turn = lab.turn(tools=tools)
                worker.stops()
                postgres.restart(mode)
                worker.goes_on()
                is_answered(lab, turn, num_calls)
                check_invariants([lab.tenant], lab.tools, ledger)
    assert worker.process.poll() is None


@pytest.mark.parametrize("mode", MODES)
def test_restarts_under_load_lose_no_turn(lab: Lab, start: Start, postgres: OwnPostgres, mode: str) -> None:
    workers = [start(TEST_MODEL_DELAY_S="0.4").is_ready() for _ in range(2)]
    turns = [lab.turn(tools="unsafe") for _ in range(NUM_TURNS)]
    for _ in range(3):
        num_asked = len(lab.model.asked)
        eventually(lambda seen=num_asked: len(lab.model.asked) > seen + 5, START_S)
        postgres.restart(mode)
        turns += [lab.turn(tools="unsafe") for _ in range(5)]
    all_at_rest(lab, len(turns))
    with tenant_scope(lab.tenant):
        states = set(TurnRun.objects.values_list("state", flat=True))
    assert states <= {TurnState.DONE, TurnState.AWAITING}  # where an outcome was lost with a connection
    assert all(worker.process.poll() is None for worker in workers)


def test_a_server_away_for_longer_than_a_lease_loses_no_turn(lab: Lab, start: Start, postgres: OwnPostgres) -> None:
    worker = start(TEST_MODEL_DELAY_S="0.4").is_ready()
    turns = [lab.turn(tools=tools) for tools in ("safe", "unsafe") * 5]
    lab.until(turns[0], lambda run: run.state == TurnState.RUNNING)
    postgres.stop("fast")
    # It waits longer for a connection than a lease lasts, then says so.
    eventually(lambda: b"Leases were not renewed" in worker.log.read_bytes(), START_S + LEASE_S)
    postgres.start()
    all_at_rest(lab, len(turns), START_S + LEASE_S + SWEEP_S)
    with tenant_scope(lab.tenant):
        states = set(TurnRun.objects.values_list("state", flat=True))
    assert states <= {TurnState.DONE, TurnState.AWAITING}
    assert worker.process.poll() is None


def test_a_web_process_answers_as_before_after_a_restart(
    lab: Lab, postgres: OwnPostgres, collected_static: None, tmp_path, api
) -> None:
    token = api("turns:write", "read").text
    with running_service(tmp_path) as web:
        made = [ask(web, "POST", "/api/turns", token, {"text": f"Number {number}"}) for number in range(4)]
        postgres.restart("fast")
        answers = [ask(web, "GET", f"/api/turns/{answer['id']}", token) for _, answer in made]
        assert [status for status, _ in answers] == [200] * 4
        postgres.stop("immediate")
        status, problem = ask(web, "GET", f"/api/turns/{made[0][1]['id']}", token)
        assert status in {500, 503}
        assert "Traceback" not in str(problem)
        postgres.start()
        eventually(lambda: ask(web, "GET", f"/api/turns/{made[0][1]['id']}", token)[0] == 200)
        with urllib.request.urlopen(f"{web.url}/healthz", timeout=10) as health:
            assert health.status == 200
