"""An import taken back: the turns that it made go with their calls and all that hangs on these, batch by batch.

What it only completed of turns from elsewhere stays: nobody knows any more which part of them was whose. Cases stand
alone and stay, too. Each batch and its count are one transaction, so a worker that is lost costs time, not work; the
next one goes on with what is left.
"""

import datetime as dt
import logging
import uuid
from dataclasses import dataclass

from django.db import connection, models, transaction
from django.db.models import F, Q
from django.utils import timezone

from quality import tasks
from quality.ingest import tables
from quality.models import Case, Feedback, Import, ImportState, ToolCall, Turn
from tenants import audit
from tenants.models import Tenant, User
from tenants.scope import current_tenant_id, tenant_scope

logger = logging.getLogger(__name__)

LEASE = dt.timedelta(seconds=90)
BATCH_TURNS = 500
ENDED = (ImportState.DONE, ImportState.FAILED)


@dataclass(frozen=True, slots=True)
class Hanging:
    """What goes when an import is taken back, and what stays of it."""

    num_turns: int
    num_calls: int
    num_labels: int
    num_reviewers: int
    num_cases: int
    num_calls_elsewhere: int

    @property
    def is_nothing(self) -> bool:
        return not self.num_turns


def hanging(job: Import) -> Hanging:
    """Count it, in the open scope."""
    turns = Turn.objects.filter(import_job=job)
    calls = ToolCall.objects.filter(turn__import_job=job)
    labels = Feedback.objects.filter(turn__import_job=job)
    num_calls = calls.count()
    said = labels.aggregate(labels=models.Count("pk"), reviewers=models.Count("reviewer", distinct=True))
    return Hanging(
        num_turns=turns.count(),
        num_calls=num_calls,
        num_labels=said["labels"],
        num_reviewers=said["reviewers"],
        num_cases=Case.objects.filter(call__turn__import_job=job).count(),
        num_calls_elsewhere=max(0, job.num_calls - num_calls),
    )


def order(import_id: int, *, actor: User) -> bool:
    """Begin to take an import back, in the open scope; False if it is not at its end, or was taken back before."""
    now = timezone.now()
    job = Import.objects.filter(pk=import_id, state__in=ENDED).first()
    if job is None:
        return False
    counted = hanging(job)
    ordered = Import.objects.filter(pk=import_id, state__in=ENDED).update(
        state=ImportState.TAKING_BACK,
        taken_back_by=actor,
        taken_back_at=now,
        num_taken_back=0,
        attempt=0,
        lease_token=None,
        lease_until=now + LEASE,
    )
    if not ordered:
        return False
    audit.record(
        "import.taking_back",
        object_type="import",
        object_id=import_id,
        actor=actor,
        detail={
            "filename": job.filename,
            "turns": counted.num_turns,
            "calls": counted.num_calls,
            "labels": counted.num_labels,
            "cases": counted.num_cases,
        },
    )
    tenant_id = job.tenant_id
    transaction.on_commit(lambda: tasks.publish(tasks.take_back_import, tenant_id, import_id))
    return True


def run(import_id: int, *, tenant: Tenant | int) -> bool:
    """Take back what is left of it; False if another worker has it, or there is nothing to do."""
    token = uuid.uuid4()
    with tenant_scope(tenant):
        if not _claim(import_id, token):
            return False
    while True:
        with tenant_scope(tenant):
            tables.begin_batch(BATCH_TURNS)
            mine = Import.objects.filter(pk=import_id, state=ImportState.TAKING_BACK, lease_token=token)
            if not mine.update(lease_until=timezone.now() + LEASE):
                logger.warning("import %s: another worker takes it back", import_id)
                return False
            removed = _remove(import_id)
            mine.update(num_taken_back=F("num_taken_back") + removed)
            if not removed:
                _finish(import_id)
                return True


def _claim(import_id: int, token: uuid.UUID) -> bool:
    now = timezone.now()
    free = Q(lease_token=None) | Q(lease_until__lt=now)
    candidates = Import.objects.filter(free, pk=import_id, state=ImportState.TAKING_BACK)
    return bool(candidates.update(attempt=F("attempt") + 1, lease_token=token, lease_until=now + LEASE))


def _remove(import_id: int) -> int:
    """Delete some turns of the import; how many. Keys of the database take along what hangs on them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM agent_turns WHERE tenant_id = %s AND id IN (SELECT id FROM agent_turns "
            "WHERE tenant_id = %s AND import_job_id = %s ORDER BY id LIMIT %s)",
            [current_tenant_id(), current_tenant_id(), import_id, BATCH_TURNS],
        )
        return int(cursor.rowcount)


def _finish(import_id: int) -> None:
    Import.objects.filter(pk=import_id).update(state=ImportState.TAKEN_BACK, lease_until=None)
    job = Import.objects.select_related("taken_back_by").get(pk=import_id)
    audit.record(
        "import.taken_back",
        object_type="import",
        object_id=import_id,
        actor=job.taken_back_by,
        detail={"filename": job.filename, "turns": job.num_taken_back},
    )


def lost() -> models.QuerySet[Import]:
    """Imports whose taking back lost its message or worker, in every tenant the `janitor` may see."""
    rows: models.QuerySet[Import] = models.QuerySet(Import).using("janitor")
    return rows.filter(state=ImportState.TAKING_BACK, lease_until__lt=timezone.now())
