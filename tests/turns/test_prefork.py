"""The workers of other jobs, in processes of their own as they are in production (W17, W22)."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile

from quality import tasks
from quality.ingest import importer
from quality.models import Import
from tenants.models import Membership
from tenants.scope import tenant_scope
from tests import environment
from tests.turns.conftest import eventually

ROOT = Path(__file__).resolve().parents[2]
NUM_TASKS = 100
PATIENCE_S = 90.0

type Start = Callable[..., Path]


@pytest.fixture
def start(db: None, tmp_path: Path) -> Iterator[Start]:
    """`start(processes)`: a prefork worker, ready; gives its log."""
    for left in (settings.STATE_DIR / "broker" / "messages").glob("*"):
        left.unlink()
    started: list[subprocess.Popen[bytes]] = []

    def begin(processes: int) -> Path:
        log = tmp_path / f"worker-{len(started)}.log"
        command = [sys.executable, "-m", "celery", "-A", "quality.celery:app", "worker", "-Q", "celery",
                   f"--concurrency={processes}", "--loglevel=INFO", f"--hostname=w{len(started)}@test",
                   "--without-mingle", "--without-gossip", "--without-heartbeat"]  # fmt: skip
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT))
        eventually(lambda: "ready." in log.read_text(), PATIENCE_S)
        return log

    yield begin
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_a_session_that_a_worker_leaves_open_ends_with_its_lease(db: None) -> None:
    """A worker that is stopped in mid-transaction would hold what others wait for as long as it is stopped."""
    program = """
import django

from quality import celery

django.setup()
celery.refuse_unsafe_role()
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SHOW idle_in_transaction_session_timeout")
    print(cursor.fetchone()[0])
"""
    command = [sys.executable, "-c", program]
    variables = {**os.environ, "TURN_LEASE_S": "7"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "7s", done.stderr


def count(logs: list[Path], words: str) -> int:
    return sum(log.read_text().count(words) for log in logs)


def succeeded(logs: list[Path], task: str) -> int:
    return sum(len(re.findall(rf"\.{task}\[[^\]]+\] succeeded in", log.read_text())) for log in logs)


def test_children_have_database_connections_of_their_own(start: Start) -> None:
    """The parent has asked the database before it forks; with its pool, children would wait for one another's."""
    log = start(2)
    for _ in range(NUM_TASKS):
        tasks.tick.delay()
    eventually(lambda: count([log], "tick[") >= 2 * NUM_TASKS, PATIENCE_S)  # received, and ended
    assert count([log], "] succeeded in") == NUM_TASKS
    told = log.read_text()
    assert "PoolTimeout" not in told
    assert "OperationalError" not in told


def test_no_task_waits_behind_a_busy_worker_while_another_is_free(
    start: Start, member: Callable[..., Membership]
) -> None:
    logs = [start(1), start(1)]
    maker = member()
    with psycopg.connect(environment.ADMIN_URL, dbname=environment.DATABASE) as admin:
        admin.execute("LOCK TABLE turn_schedules IN ACCESS EXCLUSIVE MODE")  # the tick comes no further than here
        tasks.tick.delay()
        eventually(lambda: count(logs, "tick[") == 1, PATIENCE_S)
        jobs = [_import(maker, number) for number in range(4)]
        eventually(lambda: all(_state(maker, job) == "done" for job in jobs), PATIENCE_S)
        assert count(logs, "tick[") == 1  # it still runs
        admin.rollback()
    eventually(lambda: succeeded(logs, "import_traces") == 4 and succeeded(logs, "tick") == 1, PATIENCE_S)


def _import(maker: Membership, number: int) -> Import:
    """An import that is queued, its message sent."""
    said = [{"role": "user", "content": f"Hello {number}"}, {"role": "assistant", "content": "Hi"}]
    file = SimpleUploadedFile(f"{number}.jsonl", json.dumps({"messages": said}).encode())
    with tenant_scope(maker.tenant_id):
        job = importer.accept_upload(upload=file, created_by=maker.user)
        importer.begin(job)
        return job


def _state(maker: Membership, job: Import) -> str:
    with tenant_scope(maker.tenant_id):
        return str(Import.objects.values_list("state", flat=True).get(pk=job.pk))
