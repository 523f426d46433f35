"""Turns of traces made what their spans say: from kept spans to a reading, and from the reading to rows.

A reading that an arrival has overtaken is not written over a newer one. Of calls that no reading tells any more those
with labels stay, and others that spans did not make. Where the turn came in another way before, by a file, spans only
add what they tell of each call for itself.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.db import connection
from django.utils import timezone

from quality.ingest import otlp, tables
from quality.ingest.evidence import utc
from quality.ingest.items import Parsed
from quality.ingest.jsontext import JsonError
from quality.ingest.otlp_calls import (
    Changes,
    adopt,
    bring_labels_along,
    calls_of_turns,
    changes_of,
    key_of,
    lock_reviews,
    move,
    remove,
)
from quality.ingest.otlp_labels import Cycles, follow, last_replies
from quality.ingest.records import RecordError, TurnRecord
from quality.ingest.span_records import Reading, read_trace, records_of_trace, turn_id
from quality.ingest.spans import Span
from quality.ingest.store import MAX_CALLS_OF_TURN, store
from quality.ingest.tables import Key
from quality.privacy.incoming import masked_turn
from tenants.masking.masker import Masker
from tenants.scope import current_tenant_id


@dataclass(frozen=True, slots=True)
class Read:
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

    def masked(self, masker: Masker) -> "Read":
        """The same with what may not be stored masked."""
        turn = self.reading.turn and masked_turn(self.reading.turn, masker)
        return replace(self, reading=replace(self.reading, turn=turn), failure=masker.sentence(self.failure))


def load(trace_ids: Sequence[int]) -> list[tuple[tuple[int, int, str], list[str]]]:
    """The traces that are unread, with their spans. One statement: what is read is of the version that it says."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT o.id, o.version, o.trace_id, s.data FROM otlp_traces o "
            "JOIN otlp_spans s ON s.tenant_id = o.tenant_id AND s.trace_id = o.id "
            "WHERE o.tenant_id = (SELECT %s::bigint) AND o.id = ANY(%s) AND o.read_version < o.version",
            [current_tenant_id(), list(trace_ids)],
        )
        found: dict[tuple[int, int, str], list[str]] = defaultdict(list)
        for pk, version, trace, data in cursor.fetchall():
            found[pk, version, trace].append(data)
    return list(found.items())


def understand(row: tuple[int, int, str], texts: Sequence[str], parsed: Mapping[str, Span]) -> Read:
    try:
        spans = [parsed.get(text) or otlp.read_kept(text) for text in texts]
        reading = read_trace(spans)
    except (RecordError, JsonError) as error:
        return Read(*row, Reading(None, {}), [], failure=error.message)
    if reading.turn and len(reading.turn.calls) > MAX_CALLS_OF_TURN:
        return Read(*row, Reading(None, {}), [], failure=f"The trace has more than {MAX_CALLS_OF_TURN:,} calls.")
    return Read(*row, reading, spans)


def write(done: Sequence[Read]) -> None:
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
            "WHERE o.tenant_id = (SELECT %s::bigint) AND o.id = n.id",
            [
                [read.id for read in current],
                [read.version for read in current],
                [sources[read.id] for read in current],
                [failures[read.id] for read in current],
                current_tenant_id(),
            ],
        )


def _lock_for_reading(done: Sequence[Read]) -> dict[int, str]:
    """Sources of the traces whose readings are news, by their ids; locked, so that none is written twice at a time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT o.id, o.format FROM otlp_traces o JOIN unnest(%s::bigint[], %s::int[]) AS n(id, version) "
            "ON n.id = o.id WHERE o.tenant_id = (SELECT %s::bigint) "
            "AND o.read_version < n.version ORDER BY o.id FOR UPDATE OF o",
            [[read.id for read in done], [read.version for read in done], current_tenant_id()],
        )
        return dict(cursor.fetchall())


def _keys(read: Read, known_as: str) -> list[Key]:
    """Under which its turn may be stored: as it is told now, and as it was told last."""
    sources = dict.fromkeys([read.source, known_as])
    return [(source, turn_id(source, read.trace)) for source in sources if source]


def _complete(read: Read) -> str:
    """Add what the spans tell to calls that came in another way; what is refused of it."""
    parts = records_of_trace(read.spans, whole=False)
    report = store([Parsed(n, 0, 0, (part,)) for n, part in enumerate(parts)], tenant=current_tenant_id())
    return report.rejected[0].message if report.rejected else ""


def _shifts(grown: Sequence[tuple[Read, int, Changes]]) -> dict[int, Cycles]:
    """Where the replies of stored turns are now: those with calls by their calls, the last one by its message."""
    last = last_replies([home for _, home, _ in grown])
    found: dict[int, Cycles] = {}
    for read, home, changes in grown:
        cycles = {row.place[0]: place[0] for row, place in changes.moved if row.place[0] != place[0]}
        if home in last and last[home][1] in read.reading.replies:
            cycles[last[home][0]] = read.reading.replies.index(last[home][1])
        found[home] = cycles
    return found


class _Writer:
    """Turns of traces whose rows are made by their spans, brought up to what was read."""

    def __init__(self, done: Sequence[Read], formats: dict[int, str], stored: dict[Key, tables.StoredTurn]) -> None:
        self._done = done
        self._formats = formats
        self._stored = stored
        self._now = utc(timezone.now())

    def write(self) -> None:
        turns = [(read, read.reading.turn) for read in self._done if read.reading.turn]
        if not turns:
            return
        homes = {read.id: self._home(read) for read, _ in turns}
        lock_reviews([home.id for home in homes.values() if home])
        rows = calls_of_turns([home.id for home in homes.values() if home])
        elsewhere = tables.find_calls({key_of(call) for _, turn in turns for call in turn.calls})
        self._toolsets = tables.save_toolsets(
            {turn.tools for _, turn in turns if turn.tools}
            | {call.tools for _, turn in turns for call in turn.calls if call.tools}
        )
        fresh = [(read, turn) for read, turn in turns if homes[read.id] is None]
        calls_of = {read.id: [call for call in turn.calls if key_of(call) not in elsewhere] for read, turn in fresh}
        new_turns = [tables.turn_line(turn, len(calls_of[read.id]), None, self._now) for read, turn in fresh]
        new_calls = [
            tables.call_line(call, turn, None, self._now) for read, turn in fresh for call in calls_of[read.id]
        ]
        known = [read for read, _ in turns if homes[read.id]]
        grown = list[tuple[TurnRecord, tables.StoredTurn, Changes]]()
        for read, turn in turns:
            if home := homes[read.id]:
                grown.append((turn, home, changes_of(turn, read.reading.earlier, rows[home.id], home.id, elsewhere)))
        shifts = _shifts([(read, home.id, changes) for read, (_, home, changes) in zip(known, grown, strict=True)])
        self._rename([(home.id, turn) for turn, home, _ in grown])
        self._change(grown)
        follow(shifts)
        for turn, home, changes in grown:
            new_calls += [tables.call_line(call, turn, home.id, self._now) for call in changes.new]
        tables.Insertion(new_turns, new_calls, self._toolsets).finish()
        tables.update_turns(
            [
                tables.turn_line(turn, 0, None, self._now, row=home.id)
                for turn, home, changes in grown
                if changes or home.digest != turn.digest()
            ],
            {home.id: changes.added for _, home, changes in grown if changes.added},
            self._toolsets,
        )

    def _home(self, read: Read) -> tables.StoredTurn | None:
        """The row of the turn, also if it goes by the name of another source yet."""
        return next((self._stored[key] for key in _keys(read, self._formats[read.id]) if key in self._stored), None)

    def _rename(self, turns: Sequence[tuple[int, TurnRecord]]) -> None:
        """Which convention names a turn may change, with the first span of another one."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE agent_turns t SET source = n.source, external_id = n.external_id "
                "FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n(id, source, external_id) "
                "WHERE t.tenant_id = (SELECT %s::bigint) AND t.id = n.id AND t.external_id <> n.external_id",
                [
                    [row for row, _ in turns],
                    [turn.source for _, turn in turns],
                    [turn.external_id for _, turn in turns],
                    current_tenant_id(),
                ],
            )

    def _change(self, grown: Sequence[tuple[TurnRecord, tables.StoredTurn, Changes]]) -> None:
        """Bring stored calls up. What moves leaves its place before any comes into one."""
        moved = [(call.id, place) for _, _, changes in grown for call, place in changes.moved]
        remove([call.id for _, _, changes in grown for call in changes.gone])
        move([call for call, _ in moved], [place for _, place in moved])
        changed = [(call, record, turn, home) for turn, home, changes in grown for call, record in changes.changed]
        adopt([(call.id, record) for call, record, _, _ in changed if call.key != key_of(record)])
        tables.update_calls(
            [tables.call_line(record, turn, home.id, self._now, row=call.id) for call, record, turn, home in changed],
            self._toolsets,
        )
        bring_labels_along([call for call, _ in moved])
