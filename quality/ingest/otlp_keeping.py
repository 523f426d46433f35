"""Spans as they came: kept, one row a span, with the version of their trace raised."""

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import connection
from django.utils import timezone

from quality.ingest import otlp, tables
from quality.ingest.spans import fuller
from tenants.models import Tenant
from tenants.scope import current_tenant_id, tenant_scope

MAX_SPANS_OF_TRACE = 30_000
MAX_BYTES_OF_TRACE = 64 * 1024 * 1024
READ_AT_ONCE = 500  # spans of a trace up to which it is read before the sender is answered


@dataclass(frozen=True, slots=True)
class Arrival:
    """What became of the spans of a request: rows of the traces that are to be read, small and large ones; how many
    spans were refused, and why the first was."""

    small: list[int]
    large: list[int]
    num_rejected: int = 0
    refusal: str = ""


def keep(spans: Iterable[otlp.KeptSpan], *, tenant: Tenant | int) -> Arrival:
    """Keep spans and raise the versions of their traces, in one transaction. The same span again changes nothing; of
    two that differ the fuller one stays."""
    by_trace: dict[str, dict[str, otlp.KeptSpan]] = defaultdict(dict)
    for kept in spans:
        held = by_trace[kept.span.trace].get(kept.span.id)
        if held is None or fuller(held.span, kept.span) is kept.span:
            by_trace[kept.span.trace][kept.span.id] = kept
    with tenant_scope(tenant):
        return _keep(by_trace)


def _keep(by_trace: dict[str, dict[str, otlp.KeptSpan]]) -> Arrival:
    now = timezone.now()
    rows = _lock_traces(sorted(by_trace), now)
    known = _known_spans(rows, by_trace)
    full = _full(rows)
    small, large, changed = list[int](), list[int](), list[tuple[int, int]]()
    new = list[tuple[int, str, str]]()
    num_rejected, refusal = 0, ""
    for trace, row in sorted(rows.items()):
        added = written = 0
        for span_id, kept in by_trace[trace].items():
            before = known.get((row.id, span_id))
            if before is None:
                if row.num_spans + added >= MAX_SPANS_OF_TRACE or row.id in full:
                    num_rejected += 1
                    refusal = refusal or f"The trace {trace} holds as many spans, or bytes, as are kept of one."
                    continue
                added += 1
            elif before == kept.data or not _says_more(before, kept):
                continue
            written += 1
            new.append((row.id, span_id, kept.data))
        if written:
            changed.append((row.id, added))
        if written or row.is_unread:
            (small if row.num_spans + added <= READ_AT_ONCE else large).append(row.id)
    _write_spans(new, now)
    _raise_versions(changed, now)
    return Arrival(small, large, num_rejected, refusal)


def _says_more(before: str, kept: otlp.KeptSpan) -> bool:
    return fuller(otlp.read_kept(before), kept.span) is kept.span


@dataclass(frozen=True, slots=True)
class _TraceRow:
    id: int
    num_spans: int
    is_unread: bool


def _lock_traces(traces: Sequence[str], now: dt.datetime) -> dict[str, _TraceRow]:
    """The rows of these traces, made where there are none; locked in order, so that no two requests wait in a
    circle."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO otlp_traces AS o (tenant_id, trace_id, format, num_spans, version, read_version, attempt, "
            "failure, first_at, last_at) SELECT %s, id, '', 0, 0, 0, 0, '', %s, %s FROM unnest(%s::text[]) AS n(id) "
            "ORDER BY id ON CONFLICT (tenant_id, trace_id) DO UPDATE SET first_at = o.first_at "
            "RETURNING trace_id, id, num_spans, read_version < version",
            [current_tenant_id(), now, now, list(traces)],
        )
        return {trace: _TraceRow(pk, num_spans, is_unread) for trace, pk, num_spans, is_unread in cursor.fetchall()}


def _known_spans(
    rows: dict[str, _TraceRow], by_trace: dict[str, dict[str, otlp.KeptSpan]]
) -> dict[tuple[int, str], str]:
    pairs = [(row.id, span_id) for trace, row in rows.items() if row.num_spans for span_id in by_trace[trace]]
    if not pairs:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT s.trace_id, s.span_id, s.data FROM unnest(%s::bigint[], %s::text[]) AS n(trace_id, span_id) "
            "JOIN otlp_spans s ON s.tenant_id = (SELECT %s::bigint) "
            "AND s.trace_id = n.trace_id AND s.span_id = n.span_id",
            [[trace for trace, _ in pairs], [span for _, span in pairs], current_tenant_id()],
        )
        return {(trace, span): data for trace, span, data in cursor.fetchall()}


def _full(rows: dict[str, _TraceRow]) -> set[int]:
    """Those of the traces that hold as many bytes as may be."""
    some = [row.id for row in rows.values() if row.num_spans * otlp.MAX_SPAN_BYTES >= MAX_BYTES_OF_TRACE]
    if not some:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT trace_id FROM otlp_spans WHERE tenant_id = (SELECT %s::bigint) "
            "AND trace_id = ANY(%s) GROUP BY trace_id "
            "HAVING sum(octet_length(data)) >= %s",
            [current_tenant_id(), some, MAX_BYTES_OF_TRACE],
        )
        return {trace for (trace,) in cursor.fetchall()}


def _write_spans(rows: Sequence[tuple[int, str, str]], now: dt.datetime) -> None:
    if not rows:
        return
    with connection.cursor() as cursor:
        tables.clear_temporary(cursor, "ingest_spans", "trace_id, span_id, data FROM otlp_spans")
        with cursor.copy("COPY ingest_spans (trace_id, span_id, data) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        cursor.execute(
            "INSERT INTO otlp_spans (tenant_id, trace_id, span_id, data, received_at) "
            "SELECT %s, trace_id, span_id, data, %s FROM ingest_spans "
            "ON CONFLICT (tenant_id, trace_id, span_id) DO UPDATE "
            "SET data = EXCLUDED.data, received_at = EXCLUDED.received_at",
            [current_tenant_id(), now],
        )


def _raise_versions(changed: Sequence[tuple[int, int]], now: dt.datetime) -> None:
    if not changed:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE otlp_traces o SET version = o.version + 1, num_spans = o.num_spans + n.added, attempt = 0, "
            "failure = '', last_at = %s FROM unnest(%s::bigint[], %s::int[]) AS n(id, added) "
            "WHERE o.tenant_id = (SELECT %s::bigint) AND o.id = n.id",
            [now, [pk for pk, _ in changed], [added for _, added in changed], current_tenant_id()],
        )
