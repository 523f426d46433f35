"""An import taken back: all that it made, nothing that was there before or came from elsewhere, whatever happens to the
worker."""

import datetime as dt
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import timezone

from quality import tasks
from quality.ingest import importer, taking_back
from quality.models import Import, ImportState, Turn
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL, lines, state, take

KILLED = """
import sys, time, django
django.setup()
from quality.ingest import taking_back
taking_back.BATCH_TURNS = 10
remove, batches = taking_back._remove, []

def remove_and_stop(import_id):
    removed = remove(import_id)
    batches.append(removed)
    if len(batches) == 3:
        print("amid the third batch", flush=True)
        time.sleep(600)
    return removed

taking_back._remove = remove_and_stop
taking_back.run(int(sys.argv[1]), tenant=int(sys.argv[2]))
"""

type Imported = Callable[..., Import]


def records(count: int, prefix: str = "run") -> list[dict[str, object]]:
    return [{**NEUTRAL, "external_id": f"{prefix}-{n}"} for n in range(count)]


@pytest.fixture
def imported(tenant: Tenant, tmp_path: Path) -> Imported:
    """`imported(items)`: an import of these, at its end."""

    def start(items: list[dict[str, object]], into: Tenant = tenant) -> Import:
        path = tmp_path / "traces.jsonl"
        path.write_bytes(lines(*items))
        with tenant_scope(into):
            job = importer.create_import(filename="traces.jsonl", size=1)
        done = importer.run_import(job.pk, tenant=into, path=path)
        assert done is not None
        return done

    return start


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    messages: list[tuple[int, int]] = []
    monkeypatch.setattr(tasks.take_back_import, "delay", lambda *args: messages.append(args))
    return messages


def row(job: Import) -> Import:
    with tenant_scope(job.tenant_id or 0):
        return Import.objects.get(pk=job.pk)


def order(job: Import, member: Callable[..., Membership]) -> bool:
    user = member().user
    with tenant_scope(job.tenant_id or 0):
        return taking_back.order(job.pk, actor=user)


def test_what_it_made_goes_and_all_else_stays(
    tenant: Tenant,
    other_tenant: Tenant,
    imported: Imported,
    member: Callable[..., Membership],
    sent: list[tuple[int, int]],
) -> None:
    take(lines(*records(3, "before")), tenant)
    take(lines(*records(2, "mine")), other_tenant)
    begun = [{"external_id": "half", "tool_name": "find", "args": {}}]
    take(lines(*begun), tenant)
    before = state(tenant)
    completed = [{**begun[0], "result": {"found": 1}}]
    job = imported([*records(4, "mine"), *records(1, "before"), *completed])
    assert (job.num_accepted, job.num_unchanged, job.num_turns) == (5, 1, 4)
    assert order(job, member)
    assert not order(job, member)
    assert sent == [(tenant.pk, job.pk)]
    tasks.take_back_import(*sent[0])
    done = row(job)
    assert (done.state, done.num_taken_back) == (ImportState.TAKEN_BACK, 4)
    after = state(tenant)
    names = [call["external_id"] for call in after["calls"]]
    assert names == [call["external_id"] for call in before["calls"]]
    assert next(call for call in after["calls"] if call["external_id"] == "half")["result"] == '{"found": 1}'
    assert len(state(other_tenant)["calls"]) == 2
    assert imported(records(4, "mine")).num_turns == 4


def test_an_import_that_runs_or_waits_is_not_taken_back(tenant: Tenant, member: Callable[..., Membership]) -> None:
    for unfinished in (ImportState.PREVIEW, ImportState.QUEUED, ImportState.RUNNING, ImportState.TAKEN_BACK):
        with tenant_scope(tenant):
            job = importer.create_import(filename="t", size=1, state=unfinished)
        assert not order(job, member)
        assert row(job).state == unfinished


def test_a_killed_worker_s_taking_back_is_gone_on_with(
    tenant: Tenant, imported: Imported, member: Callable[..., Membership], sent: list[tuple[int, int]]
) -> None:
    job = imported(records(35))
    take(lines(*records(3, "other")), tenant)
    order(job, member)
    command = [sys.executable, "-c", KILLED, str(job.pk), str(tenant.pk)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "amid the third batch\n"
        assert not taking_back.run(job.pk, tenant=tenant)  # another one has it
        process.send_signal(signal.SIGKILL)
    with tenant_scope(tenant):
        assert Turn.objects.filter(import_job=job).count() == 15
        assert Import.objects.get(pk=job.pk).num_taken_back == 20
        Import.objects.filter(pk=job.pk).update(lease_until=timezone.now() - dt.timedelta(seconds=1))
    sent.clear()
    tasks.tick()
    assert sent == [(tenant.pk, job.pk)]
    tasks.take_back_import(*sent[0])
    done = row(job)
    assert (done.state, done.num_taken_back, done.attempt) == (ImportState.TAKEN_BACK, 35, 2)
    assert len(state(tenant)["calls"]) == 3
    tasks.tick()
    assert len(sent) == 1


def test_a_worker_that_lost_its_lease_takes_nothing_more(
    tenant: Tenant, imported: Imported, member: Callable[..., Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = imported(records(25))
    monkeypatch.setattr(tasks.take_back_import, "delay", lambda *args: None)
    monkeypatch.setattr(taking_back, "BATCH_TURNS", 10)
    order(job, member)
    remove = taking_back._remove

    def lose(import_id: int) -> int:
        Import.objects.filter(pk=import_id).update(lease_token="00000000-0000-4000-8000-000000000000")
        return remove(import_id)

    monkeypatch.setattr(taking_back, "_remove", lose)
    assert not taking_back.run(job.pk, tenant=tenant)
    with tenant_scope(tenant):
        assert Turn.objects.count() == 15
