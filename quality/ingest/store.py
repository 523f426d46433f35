"""Records into rows: idempotent, in any order, each item as a whole or not at all.

Identity is (tenant, source, external id). The same content again is *unchanged*; a call whose result was missing is
completed by a record that has it; a turn grows; any other content is refused with the code `conflict`. Toolsets are
kept once, by content.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.utils import timezone

from quality.ingest import tables
from quality.ingest.evidence import utc
from quality.ingest.items import Parsed
from quality.ingest.reader import ItemError, Unreadable
from quality.ingest.records import (
    CallRecord,
    Conflict,
    RecordError,
    TurnRecord,
    merge_calls,
    merge_turns,
    toolset_sha256,
)
from quality.ingest.tables import Key, Raced, Row, StoredCall, StoredTurn
from tenants.models import Tenant
from tenants.scope import tenant_scope

MAX_BATCH_ITEMS = 1000
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_CALLS_OF_TURN = 32_767
_ATTEMPTS = 3


@dataclass(slots=True)
class BatchReport:
    """What became of the items; `num_turns` and `num_calls` count new rows."""

    accepted: int = 0
    unchanged: int = 0
    rejected: list[ItemError] = field(default_factory=list)
    num_turns: int = 0
    num_calls: int = 0


def store(batch: Sequence[Parsed], *, tenant: Tenant | int, import_id: int | None = None) -> BatchReport:
    """Store one batch in one transaction. Opens the tenant's scope."""
    for attempt in range(_ATTEMPTS):
        try:
            with tenant_scope(tenant):
                tables.begin_batch(len(batch))
                plan = _Plan(batch)
                plan.write(import_id)
                return plan.report
        except Raced:
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def batches(parsed: Iterator[Parsed | ItemError]) -> Iterator[tuple[list[Parsed], list[ItemError]]]:
    """Items in batches that fit into memory and a short transaction, with what was refused on the way. What was read
    before the source turned out Unreadable comes out first."""
    good: list[Parsed] = []
    bad: list[ItemError] = []
    size = 0
    failure = None
    try:
        for item in parsed:
            if isinstance(item, ItemError):
                bad.append(item)
            else:
                good.append(item)
                size += item.size
            if len(good) + len(bad) >= MAX_BATCH_ITEMS or size >= MAX_BATCH_BYTES:
                yield good, bad
                good, bad, size = [], [], 0
    except Unreadable as error:
        failure = error
    if good or bad:
        yield good, bad
    if failure is not None:
        raise failure


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a turn of the batch shall be, and what is stored of it."""

    record: TurnRecord
    stored: StoredTurn | None
    changed: bool


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the batch that is new, or that completes the stored one."""

    record: CallRecord
    turn: Key
    stored: StoredCall | None


class _Plan:
    """Decides item by item, on what is stored and on the items before; then writes it all."""

    def __init__(self, batch: Sequence[Parsed]) -> None:
        self.report = BatchReport()
        self._turns: dict[Key, _Turn] = {}
        self._calls: dict[Key, _Call] = {}
        self._look_up(batch)
        for item in batch:
            try:
                changed = self._take(item)
            except RecordError as error:
                self.report.rejected.append(ItemError(item.index, item.line, error.code, error.path, error.message))
            else:
                self.report.accepted += changed
                self.report.unchanged += not changed

    def _look_up(self, batch: Sequence[Parsed]) -> None:
        """Read what is stored of the batch's turns and calls; their content only where it differs."""
        turns = [(_key(turn), turn) for item in batch for turn in item.turns]
        calls = [(_key(call), call) for _, turn in turns for call in turn.calls]
        self._stored_turns = tables.find_turns({key for key, _ in turns})
        self._stored_calls = tables.find_calls({key for key, _ in calls})
        self._contents = tables.load_turns(_differing(turns, self._stored_turns))
        self._asked = tables.load_asked(_differing(calls, self._stored_calls))
        growing = {
            self._stored_turns[key].id: key
            for key, turn in turns
            if key in self._stored_turns and any(_key(call) not in self._stored_calls for call in turn.calls)
        }
        places = tables.find_places(growing)
        self._places = {key: places[turn_id] for turn_id, key in growing.items()}

    def _take(self, item: Parsed) -> bool:
        """Plan one item; True if it changes anything. Raises Conflict, and then nothing of the item was planned."""
        turns: dict[Key, _Turn] = {}
        calls: dict[Key, _Call] = {}
        places: dict[Key, set[tuple[int, int]]] = {}
        changed = False
        for record in item.turns:
            key = _key(record)
            before = turns.get(key) or self._turns.get(key)
            turns[key] = turn = self._turn(key, record, before)
            changed = changed or (turn.changed and turn is not before)
            for call in record.calls:
                call_key = _key(call)
                planned = self._call(call_key, key, call, calls.get(call_key) or self._calls.get(call_key))
                if planned is None:
                    continue
                changed = True
                if planned.stored is None and call_key not in calls and call_key not in self._calls:
                    self._claim_place(key, call, places.setdefault(key, set()))
                calls[call_key] = planned
        self._turns |= turns
        self._calls |= calls
        for key, claimed in places.items():
            self._places.setdefault(key, set()).update(claimed)
        return changed

    def _turn(self, key: Key, record: TurnRecord, before: _Turn | None) -> _Turn:
        """What the turn shall be once this record is in; `before` itself if that changes nothing."""
        if before is not None:
            merged = merge_turns(before.record, record)
            return before if merged.content == before.record.content else _Turn(merged, before.stored, True)
        stored = self._stored_turns.get(key)
        if stored is None:
            return _Turn(record, None, True)
        if key not in self._contents:
            return _Turn(record, stored, False)
        merged = merge_turns(self._contents[key], record)
        return _Turn(merged, stored, merged.digest() != stored.digest)

    def _call(self, key: Key, turn: Key, record: CallRecord, before: _Call | None) -> _Call | None:
        """What to write of the call; None if it is there already. Raises Conflict."""
        if before is not None:
            merged = merge_calls(before.record, record)
            return None if merged is before.record else _Call(merged, before.turn, before.stored)
        stored = self._stored_calls.get(key)
        if stored is None:
            return _Call(record, turn, None)
        if stored.digest == record.digest():
            return None
        if self._asked[key] != record.asked or stored.has_outcome == record.has_outcome:
            raise Conflict("external_id", f"The call {record.external_id} is stored with another content.")
        return _Call(record, turn, stored) if record.has_outcome else None

    def _claim_place(self, turn: Key, call: CallRecord, claimed: set[tuple[int, int]]) -> None:
        """A place in a turn holds one call."""
        place = (call.cycle, call.index)
        taken = self._places.get(turn, ())
        if place in claimed or place in taken:
            raise Conflict("index", f"The turn has another call at cycle {call.cycle}, index {call.index}.")
        if len(claimed) + len(taken) >= MAX_CALLS_OF_TURN:
            raise RecordError("too_many_calls", "", f"The turn has more than {MAX_CALLS_OF_TURN:,} calls.")
        claimed.add(place)

    def write(self, import_id: int | None) -> None:
        """Insert what is new, update what grew. Raises Raced."""
        now = utc(timezone.now())
        toolsets = tables.save_toolsets(
            {turn.record.tools for turn in self._turns.values() if turn.record.tools}
            | {call.record.tools for call in self._calls.values() if call.record.tools}
        )

        def toolset_id(tools: str | None) -> int | None:
            return toolsets[toolset_sha256(tools)] if tools else None

        added = Counter(call.turn for call in self._calls.values() if call.stored is None)
        new_turns, grown_turns = list[Row](), list[Row]()
        for key, turn in self._turns.items():
            if turn.changed:
                row = tables.turn_row(turn.record, toolset_id(turn.record.tools), added[key], import_id, now)
                if turn.stored:
                    grown_turns.append({"id": turn.stored.id, **row})
                else:
                    new_turns.append(row)
        stored_ids = {key: turn.stored.id for key, turn in self._turns.items() if turn.stored}
        ids = tables.insert_turns(new_turns) | stored_ids

        new_calls, completed_calls = list[Row](), list[Row]()
        for call in self._calls.values():
            record, owner = call.record, self._turns[call.turn].record
            row = tables.call_row(record, owner, ids[call.turn], toolset_id(record.tools), now)
            if call.stored:
                completed_calls.append({"id": call.stored.id, **row})
            else:
                new_calls.append(row)
        tables.insert_calls(new_calls)
        tables.complete_calls(completed_calls)
        tables.update_turns(grown_turns, {stored_ids[key]: n for key, n in added.items() if key in stored_ids})
        self.report.num_turns, self.report.num_calls = len(new_turns), len(new_calls)


def _key(record: TurnRecord | CallRecord) -> Key:
    return record.source, record.external_id


def _differing[R: (TurnRecord, CallRecord)](
    records: Iterable[tuple[Key, R]], stored: Mapping[Key, StoredTurn | StoredCall]
) -> set[Key]:
    """Keys of those that are stored with another content."""
    return {key for key, record in records if key in stored and stored[key].digest != record.digest()}
