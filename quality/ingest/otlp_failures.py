"""Traces over OTLP that could not be read: told, tried again, or forgotten. All need an open tenant scope."""

from collections.abc import Sequence

from django.db import transaction
from django.db.models import F, QuerySet

from quality import tasks
from quality.models import OtlpTrace
from tenants import audit
from tenants.models import User

SHOWN = 50


def failed() -> QuerySet[OtlpTrace]:
    """Traces of which the newest reading failed, or was refused in part, newest first."""
    return OtlpTrace.objects.exclude(failure="").order_by("-last_at", "-id")


def newest() -> tuple[Sequence[OtlpTrace], bool]:
    """The newest of them, and whether there are more."""
    rows = list(failed()[: SHOWN + 1])
    return rows[:SHOWN], len(rows) > SHOWN


def retry(trace_pk: int) -> bool:
    """Read a trace once more; False if that is not wanted any more."""
    if not failed().filter(pk=trace_pk).order_by().update(version=F("version") + 1, attempt=0, failure=""):
        return False
    tenant_id = OtlpTrace.objects.values_list("tenant_id", flat=True).get(pk=trace_pk)
    transaction.on_commit(lambda: tasks.publish(tasks.read_spans, tenant_id, trace_pk))
    return True


def forget(trace_pk: int, *, actor: User) -> bool:
    """Delete a trace with its spans; calls that were read of it stay. False if it is gone, or was read meanwhile."""
    trace = failed().select_for_update().filter(pk=trace_pk).first()
    if trace is None:
        return False
    audit.record(
        "trace.deleted",
        object_type="trace",
        object_id=trace.pk,
        actor=actor,
        detail={"trace": trace.trace_id, "spans": trace.num_spans},
    )
    trace.delete()
    return True
