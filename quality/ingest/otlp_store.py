"""Spans that arrive over OTLP into rows: kept as they came, and the turns of their traces made of all that is kept.

Spans of a trace come late, in pieces, in any order and more than once. So each arrival raises the version of its trace
(`OtlpTrace`), and the whole trace is read again: the turn and its calls become what the spans say now. What the last
reading had to guess, a later one puts right: the place of a call, the reply that asked for it, the source of the turn.
Rows stay, and so do the labels on them.
"""

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from django.conf import settings
from django.db import connection, models
from django.db.models import F, Q
from django.utils import timezone

from quality import tasks
from quality.ingest import otlp, tables
from quality.ingest.jsontext import JsonError
from quality.ingest.otlp_keeping import Arrival, keep
from quality.ingest.otlp_turns import load, understand, write
from quality.ingest.records import RecordError
from quality.ingest.spans import Span
from quality.models import OtlpTrace
from quality.privacy.incoming import masked_span
from quality.review import hinting
from tenants import masks
from tenants.masking.reading import Reading
from tenants.models import Tenant
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
UNREAD_AFTER = dt.timedelta(seconds=30)  # then the sweep believes that the message was lost
_DELETED_AT_ONCE = 1_000


def receive(spans: Sequence[otlp.KeptSpan], *, tenant: Tenant | int) -> Arrival:
    """Keep spans, read the small traces among theirs, and leave the large ones to a worker."""
    if not spans:
        return Arrival([], [])
    spans, refused = _masked(spans, tenant)
    arrival = keep(spans, tenant=tenant)
    if refused:
        refusal = arrival.refusal or refused[0]
        arrival = replace(arrival, num_rejected=arrival.num_rejected + len(refused), refusal=refusal)
    tenant_id = tenant if isinstance(tenant, int) else tenant.pk
    if arrival.small:
        try:
            read(arrival.small, tenant=tenant, parsed={kept.data: kept.span for kept in spans})
        except Exception:  # the spans are kept: the sweep tries again, trace by trace
            logger.exception("traces %s of tenant %s could not be read", arrival.small, tenant_id)
    for trace_id in arrival.large:
        tasks.publish_aside(tasks.read_spans, tenant_id, trace_id)
    return arrival


def _masked(spans: Sequence[otlp.KeptSpan], tenant: Tenant | int) -> tuple[Sequence[otlp.KeptSpan], list[str]]:
    """The spans as they may be kept, and why those that cannot are not."""
    if isinstance(tenant, Tenant) and not tenant.masks_stamp:
        return spans, []
    with tenant_scope(tenant):
        masker = masks.at_write()
    if masker is None:
        return spans, []
    readings: dict[str, Reading] = defaultdict(lambda: Reading(masker))  # of traces, whose spans quote each other
    refused = list[str]()
    for _ in range(2):  # what a span masks for its place may stand in those before it
        masked = list[otlp.KeptSpan]()
        for kept in spans:
            try:
                masked.append(masked_span(kept, readings[kept.span.trace]))
            except (RecordError, JsonError) as error:
                refused.append(masker.sentence(error.message))
        spans = masked
    return spans, refused


def read(trace_ids: Sequence[int], *, tenant: Tenant | int, parsed: Mapping[str, Span] = {}) -> None:
    """Make the turns of these traces what their spans say by now. A trace that cannot be read says why in its row.
    `parsed` has spans that are at hand, by their text."""
    with tenant_scope(tenant):
        found = load(trace_ids)
    done = [understand(row, texts, parsed) for row, texts in found]
    if done:
        with tenant_scope(tenant):
            tables.begin_batch(sum(len(read.spans) for read in done))
            masker = masks.at_write()  # spans may have been kept before a rule was
            write([read.masked(masker) for read in done] if masker else done)
            hinting.wake(tenant)


def run(trace_id: int, *, tenant_id: int) -> None:
    """Read one trace for a worker; raises what went wrong, and counts it. Does nothing if another has read it."""
    with tenant_scope(tenant_id):
        taken = OtlpTrace.objects.filter(pk=trace_id, read_version__lt=F("version"), attempt__lt=MAX_ATTEMPTS)
        if not taken.update(attempt=F("attempt") + 1):
            return
    try:
        read([trace_id], tenant=tenant_id)
    except Exception as error:
        told = f"Something went wrong here ({type(error).__name__}). Read it once more; the service's log says more."
        with tenant_scope(tenant_id):
            OtlpTrace.objects.filter(pk=trace_id, attempt__gte=MAX_ATTEMPTS).update(failure=told)
        raise


# --- the sweep --------------------------------------------------------------------------------------------------------
def unread() -> models.QuerySet[OtlpTrace]:
    """Traces whose message or worker was lost, in every tenant the `janitor` may see."""
    waits = Q(read_version__lt=F("version"), attempt__lt=MAX_ATTEMPTS, last_at__lt=timezone.now() - UNREAD_AFTER)
    return models.QuerySet(OtlpTrace).using("janitor").filter(waits)


def delete_old() -> int:
    """Delete traces with their spans to which nothing came for OTLP_KEEP_DAYS; how many they were. Their turns stay."""
    limit, num_deleted = timezone.now() - dt.timedelta(days=settings.OTLP_KEEP_DAYS), 0
    old: models.QuerySet[OtlpTrace] = models.QuerySet(OtlpTrace).using("janitor").filter(last_at__lt=limit)
    for tenant_id in set(old.values_list("tenant_id", flat=True)):
        with tenant_scope(tenant_id), connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM otlp_traces WHERE tenant_id = %s AND id IN "
                "(SELECT id FROM otlp_traces WHERE tenant_id = %s AND last_at < %s ORDER BY last_at LIMIT %s)",
                [tenant_id, tenant_id, limit, _DELETED_AT_ONCE],
            )
            num_deleted += cursor.rowcount
    return num_deleted
