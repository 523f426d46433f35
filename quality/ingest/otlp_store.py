"""Spans that arrive over OTLP into rows: kept as they came, and the turns of their traces made of all that is kept.

Spans of a trace come late, in pieces, in any order and more than once. So each arrival raises the version of its trace
(`OtlpTrace`), and the whole trace is read again: the turn and its calls become what the spans say now. A reading that
an arrival has overtaken is not written over a newer one. What the last reading had to guess, a later one puts right:
the place of a call, the reply that asked for it, the source of the turn. Rows stay, and so do the labels on them.

A call that only a model's reply tells is the row of the tool's span once that comes. Of calls that no reading tells any
more those with labels stay, and others that spans did not make. Where the turn came in another way before, by a file,
spans only add what they tell of each call for itself.
"""

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import connection, models
from django.db.models import F, Q
from django.utils import timezone

from quality import tasks
from quality.ingest import otlp, tables
from quality.ingest.evidence import utc
from quality.ingest.items import Parsed
from quality.ingest.jsontext import JsonError
from quality.ingest.records import MAX_PLACE, CallRecord, RecordError, TurnRecord, toolset_sha256
from quality.ingest.spans import Reading, Span, fuller, read_trace, records_of_trace, turn_id
from quality.ingest.store import MAX_CALLS_OF_TURN, store
from quality.ingest.tables import Key, Row
from quality.models import OtlpTrace
from quality.review import hinting
from tenants.models import Tenant
from tenants.scope import current_tenant_id, tenant_scope

logger = logging.getLogger(__name__)

MAX_SPANS_OF_TRACE = 30_000
MAX_BYTES_OF_TRACE = 64 * 1024 * 1024
READ_AT_ONCE = 500  # spans of a trace up to which it is read before the sender is answered
MAX_ATTEMPTS = 5
UNREAD_AFTER = dt.timedelta(seconds=30)  # then the sweep believes that the message was lost
_DELETED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """What became of the spans of a request: rows of the traces that are to be read, small and large ones; how many
    spans were refused, and why the first was."""

    small: list[int]
    large: list[int]
    num_rejected: int = 0
    refusal: str = ""


def receive(spans: Sequence[otlp.KeptSpan], *, tenant: Tenant | int) -> Arrival:
    """Keep spans, read the small traces among theirs, and leave the large ones to a worker."""
    if not spans:
        return Arrival([], [])
    arrival = keep(spans, tenant=tenant)
    tenant_id = tenant if isinstance(tenant, int) else tenant.pk
    if arrival.small:
        try:
            read(arrival.small, tenant=tenant, parsed={kept.data: kept.span for kept in spans})
        except Exception:  # the spans are kept: the sweep tries again, trace by trace
            logger.exception("traces %s of tenant %s could not be read", arrival.small, tenant_id)
    for trace_id in arrival.large:
        tasks.publish_aside(tasks.read_spans, tenant_id, trace_id)
    return arrival


# --- keeping ----------------------------------------------------------------------------------------------------------
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
            "JOIN otlp_spans s ON s.tenant_id = %s AND s.trace_id = n.trace_id AND s.span_id = n.span_id",
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
            "SELECT trace_id FROM otlp_spans WHERE tenant_id = %s AND trace_id = ANY(%s) GROUP BY trace_id "
            "HAVING sum(octet_length(data)) >= %s",
            [current_tenant_id(), some, MAX_BYTES_OF_TRACE],
        )
        return {trace for (trace,) in cursor.fetchall()}


def _write_spans(rows: Sequence[tuple[int, str, str]], now: dt.datetime) -> None:
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO otlp_spans (tenant_id, trace_id, span_id, data, received_at) "
            "SELECT %s, n.*, %s FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n "
            "ON CONFLICT (tenant_id, trace_id, span_id) DO UPDATE "
            "SET data = EXCLUDED.data, received_at = EXCLUDED.received_at",
            [current_tenant_id(), now, *(list(column) for column in zip(*rows, strict=True))],
        )


def _raise_versions(changed: Sequence[tuple[int, int]], now: dt.datetime) -> None:
    if not changed:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE otlp_traces o SET version = o.version + 1, num_spans = o.num_spans + n.added, attempt = 0, "
            "failure = '', last_at = %s FROM unnest(%s::bigint[], %s::int[]) AS n(id, added) "
            "WHERE o.tenant_id = %s AND o.id = n.id",
            [now, [pk for pk, _ in changed], [added for _, added in changed], current_tenant_id()],
        )


# --- reading ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Read:
    """A trace as it was read at one version; `turn` is None if it tells none, or could not be read (`failure`)."""

    id: int
    version: int
    trace: str
    reading: Reading
    spans: list[Span]
    failure: str = ""

    @property
    def source(self) -> str:
        return self.reading.turn.source if self.reading.turn else ""


def read(trace_ids: Sequence[int], *, tenant: Tenant | int, parsed: Mapping[str, Span] = {}) -> None:
    """Make the turns of these traces what their spans say by now. A trace that cannot be read says why in its row.
    `parsed` has spans that are at hand, by their text."""
    with tenant_scope(tenant):
        found = _load(trace_ids)
    done = [_read(row, texts, parsed) for row, texts in found]
    if done:
        with tenant_scope(tenant):
            tables.begin_batch(sum(len(read.spans) for read in done))
            _write(done)
            hinting.wake(tenant)


def run(trace_id: int, *, tenant_id: int) -> None:
    """Read one trace for a worker; raises what went wrong, and counts it. Does nothing if another has read it."""
    with tenant_scope(tenant_id):
        taken = OtlpTrace.objects.filter(pk=trace_id, read_version__lt=F("version"), attempt__lt=MAX_ATTEMPTS)
        if not taken.update(attempt=F("attempt") + 1):
            return
    read([trace_id], tenant=tenant_id)


def _load(trace_ids: Sequence[int]) -> list[tuple[tuple[int, int, str], list[str]]]:
    """The traces that are unread, with their spans. One statement: what is read is of the version that it says."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT o.id, o.version, o.trace_id, s.data FROM otlp_traces o "
            "JOIN otlp_spans s ON s.tenant_id = o.tenant_id AND s.trace_id = o.id "
            "WHERE o.tenant_id = %s AND o.id = ANY(%s) AND o.read_version < o.version",
            [current_tenant_id(), list(trace_ids)],
        )
        found: dict[tuple[int, int, str], list[str]] = defaultdict(list)
        for pk, version, trace, data in cursor.fetchall():
            found[pk, version, trace].append(data)
    return list(found.items())


def _read(row: tuple[int, int, str], texts: Sequence[str], parsed: Mapping[str, Span]) -> _Read:
    try:
        spans = [parsed.get(text) or otlp.read_kept(text) for text in texts]
        reading = read_trace(spans)
    except (RecordError, JsonError) as error:
        return _Read(*row, Reading(None, {}), [], failure=error.message)
    if reading.turn and len(reading.turn.calls) > MAX_CALLS_OF_TURN:
        return _Read(*row, Reading(None, {}), [], failure=f"The trace has more than {MAX_CALLS_OF_TURN:,} calls.")
    return _Read(*row, reading, spans)


def _write(done: Sequence[_Read]) -> None:
    """Write what was read, unless a newer reading was written meanwhile."""
    formats = _lock_for_reading(done)
    current = [read for read in done if read.id in formats]
    told = [read for read in current if read.reading.turn]
    stored = tables.find_turns({key for read in told for key in _keys(read, formats[read.id])})
    others = {read.id for read in told if not formats[read.id] and _keys(read, "")[0] in stored}
    _Writer([read for read in told if read.id not in others], formats, stored).write()
    failures = {read.id: _complete(read) if read.id in others else read.failure for read in current}
    sources = {read.id: formats[read.id] if read.id in others else read.source or formats[read.id] for read in current}
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE otlp_traces o SET read_version = n.version, format = n.format, failure = n.failure, attempt = 0 "
            "FROM unnest(%s::bigint[], %s::int[], %s::text[], %s::text[]) AS n(id, version, format, failure) "
            "WHERE o.tenant_id = %s AND o.id = n.id",
            [
                [read.id for read in current],
                [read.version for read in current],
                [sources[read.id] for read in current],
                [failures[read.id] for read in current],
                current_tenant_id(),
            ],
        )


def _lock_for_reading(done: Sequence[_Read]) -> dict[int, str]:
    """Sources of the traces whose readings are news, by their ids; locked, so that none is written twice at a time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT o.id, o.format FROM otlp_traces o JOIN unnest(%s::bigint[], %s::int[]) AS n(id, version) "
            "ON n.id = o.id WHERE o.tenant_id = %s AND o.read_version < n.version ORDER BY o.id FOR UPDATE OF o",
            [[read.id for read in done], [read.version for read in done], current_tenant_id()],
        )
        return dict(cursor.fetchall())


def _keys(read: _Read, known_as: str) -> list[Key]:
    """Under which its turn may be stored: as it is told now, and as it was told last."""
    sources = dict.fromkeys([read.source, known_as])
    return [(source, turn_id(source, read.trace)) for source in sources if source]


def _complete(read: _Read) -> str:
    """Add what the spans tell to calls that came in another way; what is refused of it."""
    parts = records_of_trace(read.spans, whole=False)
    report = store([Parsed(n, 0, 0, (part,)) for n, part in enumerate(parts)], tenant=current_tenant_id())
    return report.rejected[0].message if report.rejected else ""


class _Writer:
    """Turns of traces whose rows are made by their spans, brought up to what was read."""

    def __init__(self, done: Sequence[_Read], formats: dict[int, str], stored: dict[Key, tables.StoredTurn]) -> None:
        self._done = done
        self._formats = formats
        self._stored = stored
        self._now = utc(timezone.now())

    def write(self) -> None:
        turns = [(read, read.reading.turn) for read in self._done if read.reading.turn]
        if not turns:
            return
        homes = {read.id: self._home(read) for read, _ in turns}
        _lock_reviews([home.id for home in homes.values() if home])
        rows = _calls_of_turns([home.id for home in homes.values() if home])
        elsewhere = tables.find_calls({_key(call) for _, turn in turns for call in turn.calls})
        self._toolsets = tables.save_toolsets(
            {turn.tools for _, turn in turns if turn.tools}
            | {call.tools for _, turn in turns for call in turn.calls if call.tools}
        )
        fresh = [(read, turn) for read, turn in turns if homes[read.id] is None]
        calls_of = {read.id: [call for call in turn.calls if _key(call) not in elsewhere] for read, turn in fresh}
        ids = tables.insert_turns([self._turn_row(turn, len(calls_of[read.id])) for read, turn in fresh])
        new_calls = [
            self._call_row(call, turn, ids[turn.source, turn.external_id])
            for read, turn in fresh
            for call in calls_of[read.id]
        ]
        grown = list[tuple[TurnRecord, tables.StoredTurn, _Changes]]()
        for read, turn in turns:
            if home := homes[read.id]:
                grown.append((turn, home, _changes(read, turn, rows[home.id], home.id, elsewhere)))
        self._rename([(home.id, turn) for turn, home, _ in grown])
        self._change(grown)
        for turn, home, changes in grown:
            new_calls += [self._call_row(call, turn, home.id) for call in changes.new]
        tables.insert_calls(new_calls)
        tables.update_turns(
            [
                {"id": home.id, **self._turn_row(turn, 0)}
                for turn, home, changes in grown
                if changes or home.digest != turn.digest()
            ],
            {home.id: changes.added for _, home, changes in grown if changes.added},
        )

    def _home(self, read: _Read) -> tables.StoredTurn | None:
        """The row of the turn, also if it goes by the name of another source yet."""
        return next((self._stored[key] for key in _keys(read, self._formats[read.id]) if key in self._stored), None)

    def _turn_row(self, turn: TurnRecord, num_calls: int) -> Row:
        return tables.turn_row(turn, self._toolset(turn.tools), num_calls, None, self._now)

    def _call_row(self, call: CallRecord, turn: TurnRecord, row: int) -> Row:
        return tables.call_row(call, turn, row, self._toolset(call.tools), self._now)

    def _toolset(self, tools: str | None) -> int | None:
        return self._toolsets[toolset_sha256(tools)] if tools else None

    def _rename(self, turns: Sequence[tuple[int, TurnRecord]]) -> None:
        """Which convention names a turn may change, with the first span of another one."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE agent_turns t SET source = n.source, external_id = n.external_id "
                "FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n(id, source, external_id) "
                "WHERE t.tenant_id = %s AND t.id = n.id AND t.external_id <> n.external_id",
                [
                    [row for row, _ in turns],
                    [turn.source for _, turn in turns],
                    [turn.external_id for _, turn in turns],
                    current_tenant_id(),
                ],
            )

    def _change(self, grown: Sequence[tuple[TurnRecord, tables.StoredTurn, "_Changes"]]) -> None:
        """Bring stored calls up. What moves leaves its place before any comes into one."""
        moved = [(call.id, place) for _, _, changes in grown for call, place in changes.moved]
        _remove([call.id for _, _, changes in grown for call in changes.gone])
        _move([call for call, _ in moved], [place for _, place in moved])
        changed = [(call, record, turn, home) for turn, home, changes in grown for call, record in changes.changed]
        _adopt([(call.id, record) for call, record, _, _ in changed if call.key != _key(record)])
        tables.update_calls(
            [{"id": call.id, **self._call_row(record, turn, home.id)} for call, record, turn, home in changed]
        )
        _bring_labels_along([call for call, _ in moved])


# --- stored calls -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _CallRow:
    id: int
    key: Key
    digest: bytes
    place: tuple[int, int]
    is_labelled: bool

    @property
    def is_of_span(self) -> bool:
        """Did a tool's span tell it? Others are made of what a model's reply asked for."""
        return ":" in self.key[1]

    def differs(self, call: CallRecord) -> bool:
        return self.digest != call.digest() or self.key != _key(call)


def _calls_of_turns(turn_ids: Sequence[int]) -> dict[int, list[_CallRow]]:
    found: dict[int, list[_CallRow]] = {turn: [] for turn in turn_ids}
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT c.turn_id, c.id, c.source, c.external_id, c.content_sha256, c.cycle, c.index, EXISTS (SELECT "
                "FROM agent_tool_call_feedback_events e WHERE e.tenant_id = c.tenant_id AND e.turn_id = c.turn_id "
                "AND e.call_id = c.id) FROM agent_tool_calls c WHERE c.tenant_id = %s AND c.turn_id = ANY(%s) "
                "ORDER BY c.cycle, c.index FOR UPDATE OF c",
                [current_tenant_id(), list(turn_ids)],
            )
            for turn, pk, source, external_id, digest, cycle, index, is_labelled in cursor.fetchall():
                row = _CallRow(pk, (source, external_id), bytes(digest), (cycle, index), is_labelled)
                found[turn].append(row)
    return found


@dataclass(slots=True)
class _Changes:
    """What is to be done to the calls of one turn. `moved` come to another place."""

    new: list[CallRecord]
    changed: list[tuple[_CallRow, CallRecord]]
    gone: list[_CallRow]
    moved: list[tuple[_CallRow, tuple[int, int]]]

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone or self.moved)

    @property
    def added(self) -> int:
        return len(self.new) - len(self.gone)


def _changes(
    read: _Read, turn: TurnRecord, rows: Sequence[_CallRow], home: int, elsewhere: dict[Key, tables.StoredCall]
) -> _Changes:
    """From the calls that are stored to those that are told; one that is stored in another turn stays there."""
    calls = [call for call in turn.calls if (found := elsewhere.get(_key(call))) is None or found.turn_id == home]
    by_key = {row.key: row for row in rows}
    by_id = {row.key[1]: row for row in rows}
    matched: dict[int, CallRecord] = {}
    new = []
    for call in calls:
        row = by_key.get(_key(call)) or by_id.get(read.reading.earlier.get(call.external_id, ""))
        if row is None or row.id in matched:
            new.append(call)
        else:
            matched[row.id] = call
    left = [row for row in rows if row.id not in matched]
    stays = [row for row in left if row.is_labelled or row.is_of_span]
    kept = [(row, matched[row.id]) for row in rows if row.id in matched]
    moved = [(row, _place(call)) for row, call in kept if row.place != _place(call)]
    told = {_place(call) for call in calls}
    taken = told | {row.place for row in stays}
    moved += [(row, _free(row.place[0], taken)) for row in stays if row.place in told]
    return _Changes(
        new=new,
        changed=[(row, call) for row, call in kept if row.differs(call)],
        gone=[row for row in left if row not in stays],
        moved=moved,
    )


def _key(call: CallRecord) -> Key:
    return call.source, call.external_id


def _place(call: CallRecord) -> tuple[int, int]:
    return call.cycle, call.index


def _free(cycle: int, taken: set[tuple[int, int]]) -> tuple[int, int]:
    """The place after all others of a cycle, taken from now on."""
    place = (cycle, 1 + max(index for other, index in taken if other == cycle))
    taken.add(place)
    return place


def _lock_reviews(turn_ids: Sequence[int]) -> None:
    """Before the calls, as reviewers do: so neither waits for the other in a circle."""
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT FROM agent_tool_call_reviews WHERE tenant_id = %s AND turn_id = ANY(%s) ORDER BY id FOR UPDATE",
                [current_tenant_id(), list(turn_ids)],
            )


def _remove(calls: Sequence[int]) -> None:
    if calls:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM agent_tool_calls WHERE tenant_id = %s AND id = ANY(%s)",
                [current_tenant_id(), list(calls)],
            )


def _move(calls: Sequence[int], places: Sequence[tuple[int, int]]) -> None:
    """Put calls where nobody is, first out of all real cycles: as they go, one may want where another is still."""
    if not calls:
        return
    for each in ([(MAX_PLACE, number) for number in range(len(calls))], places):
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE agent_tool_calls c SET cycle = n.cycle, index = n.index "
                "FROM unnest(%s::bigint[], %s::int[], %s::int[]) AS n(id, cycle, index) "
                "WHERE c.tenant_id = %s AND c.id = n.id",
                [list(calls), [cycle for cycle, _ in each], [index for _, index in each], current_tenant_id()],
            )


def _adopt(calls: Sequence[tuple[int, CallRecord]]) -> None:
    """Calls that a reply told are called by their tool's span from now on."""
    if calls:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE agent_tool_calls c SET source = n.source, external_id = n.external_id "
                "FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n(id, source, external_id) "
                "WHERE c.tenant_id = %s AND c.id = n.id",
                [
                    [row for row, _ in calls],
                    [record.source for _, record in calls],
                    [record.external_id for _, record in calls],
                    current_tenant_id(),
                ],
            )


def _bring_labels_along(calls: Sequence[int]) -> None:
    """What stands beside calls that moved says their cycle, too. The history of labels keeps what was true then."""
    if calls:
        with connection.cursor() as cursor:
            for table in ("agent_tool_call_reviews", "agent_tool_call_feedback"):
                cursor.execute(
                    f"UPDATE {table} r SET cycle = c.cycle FROM agent_tool_calls c "  # noqa: S608  (names of our own)
                    "WHERE c.tenant_id = %s AND c.id = ANY(%s) AND r.tenant_id = c.tenant_id AND r.call_id = c.id "
                    "AND r.cycle <> c.cycle",
                    [current_tenant_id(), list(calls)],
                )


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
