"""Records into rows: idempotent, in any order, each item as a whole or not at all.

Identity is (tenant, source, external id). The same content again is *unchanged*; a record that tells more completes a
stored call, in either order; a turn grows; any other content is refused with the code `conflict`, unless the sender
corrects. Toolsets are kept once, by content.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
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
    anonymous_turn_id,
    correct_call,
    correct_turn,
    merge_calls,
    merge_turns,
    to_neutral,
)
from quality.ingest.tables import Insertion, Key, Line, Raced, StoredCall, StoredTurn
from quality.ingest.wording import ONE_OF_TWO, PLACE_IS_LABELLED, call_name
from quality.privacy.incoming import masked_batch
from quality.review import hinting
from tenants import audit, masks
from tenants.masking.masker import Masker
from tenants.models import ApiToken, Tenant, User
from tenants.scope import tenant_scope

MAX_BATCH_ITEMS = 1000
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_CALLS_OF_TURN = 32_767
_ATTEMPTS = 3


@dataclass(slots=True)
class BatchReport:
    """What became of the items; `num_turns` and `num_calls` count new rows. `is_new`: nothing of them was stored."""

    accepted: int = 0
    unchanged: int = 0
    rejected: list[ItemError] = field(default_factory=list)
    num_turns: int = 0
    num_calls: int = 0
    num_replaced: int = 0
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Correction:
    """The sender wants stored calls replaced where the sent ones differ; each is audited in this name."""

    actor: User | None = None
    token: ApiToken | None = None


def store(
    batch: Sequence[Parsed],
    *,
    tenant: Tenant | int,
    import_id: int | None = None,
    correction: Correction | None = None,
) -> BatchReport:
    """Store one batch in one transaction. Opens the tenant's scope."""
    for attempt in range(_ATTEMPTS):
        try:
            with tenant_scope(tenant):
                tables.begin_batch(len(batch))
                kept = masked_batch(batch, masks.at_write())
                plan = _Plan(kept, correction, _look_up(kept))
                plan.write(plan.rows(import_id))
                if plan.report.accepted:
                    hinting.wake(tenant)
                return plan.report
        except Raced:
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


class Prepared(NamedTuple):
    """A batch that is held to be new, with all that can be done for it without the database."""

    batch: Sequence[Parsed]
    plan: "_Plan"
    rows: "_Rows"
    masker: Masker | None


def prepare(batch: Sequence[Parsed], *, import_id: int | None = None, masker: Masker | None = None) -> Prepared:
    """Plan a batch as if nothing of it were stored. `masker` is what `masks.at_write` last gave."""
    kept = masked_batch(batch, masker)
    plan = _Plan(kept, None, _Stored())
    return Prepared(kept, plan, plan.rows(import_id), masker)


class Storing:
    """A prepared batch on its way into the open scope. Nothing is looked up: the server writes while the caller goes
    on, for instance to prepare the next one, and `finish` says so if anything of it is stored. Nothing else may be
    asked of the connection before."""

    def __init__(self, prepared: Prepared, *, tenant: Tenant | int) -> None:
        """Raises Raced, as `finish` does; also if rules of masking have changed since it was prepared."""
        tables.begin_batch(len(prepared.batch))
        if masks.at_write() is not prepared.masker:
            raise Raced
        self._tenant = tenant
        self._report = prepared.plan.report
        rows = prepared.rows
        toolsets = tables.save_toolsets(rows.toolsets)
        self._insertion = Insertion(rows.new_turns, rows.new_calls, toolsets, check_references=True)

    def finish(self) -> BatchReport:
        """Wait until all is written. Raises Raced if it is not new: nothing is written then, and `store` will do."""
        self._insertion.finish()
        if self._report.accepted:
            hinting.wake(self._tenant)
        return self._report

    def abandon(self) -> None:
        """Leave the connection ready for a rollback."""
        self._insertion.abandon()


def store_new(batch: Sequence[Parsed], *, tenant: Tenant | int) -> BatchReport:
    """`store` for a batch that is most likely new: nothing is looked up, unless it turns out that something of it is
    stored."""
    try:
        with tenant_scope(tenant):
            return Storing(prepare(batch, masker=masks.at_write()), tenant=tenant).finish()
    except Raced:
        return store(batch, tenant=tenant)


def foresee(batch: Sequence[Parsed]) -> BatchReport:
    """What would become of a batch by what is stored now, in the open scope; nothing is written."""
    kept = masked_batch(batch, masks.at_write())
    return _Plan(kept, None, _look_up(kept)).report


def batches(
    parsed: Iterator[Parsed | ItemError], *, max_items: int = MAX_BATCH_ITEMS
) -> Iterator[tuple[list[Parsed], list[ItemError]]]:
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
            if len(good) + len(bad) >= max_items or size >= MAX_BATCH_BYTES:
                yield good, bad
                good, bad, size = [], [], 0
    except Unreadable as error:
        failure = error
    if good or bad:
        yield good, bad
    if failure is not None:
        raise failure


class _Turn(msgspec.Struct, frozen=True, gc=False):
    """What a turn of the batch shall be, and what is stored of it."""

    record: TurnRecord
    stored: StoredTurn | None
    changed: bool


class _Call(msgspec.Struct, frozen=True, gc=False):
    """What a call of the batch shall be, and what is stored of it."""

    record: CallRecord
    turn: Key
    stored: StoredCall | None
    corrected: bool = False


@dataclass(slots=True)
class _Draft:
    """What one item plans: taken over as a whole, or not at all."""

    turns: dict[Key, _Turn] = field(default_factory=dict)
    calls: dict[Key, _Call] = field(default_factory=dict)
    places: dict[Key, set[tuple[int, int]]] = field(default_factory=dict)
    left: set[Key] = field(default_factory=set)
    changed: bool = False


@dataclass(slots=True)
class _Stored:
    """What is stored of a batch; false if that is nothing. Contents are those of rows that differ."""

    turns: dict[Key, StoredTurn] = field(default_factory=dict)
    calls: dict[Key, StoredCall] = field(default_factory=dict)
    turn_contents: dict[Key, TurnRecord] = field(default_factory=dict)
    call_contents: dict[Key, CallRecord] = field(default_factory=dict)
    labelled: set[int] = field(default_factory=set)
    places: dict[Key, set[tuple[int, int]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.turns or self.calls)


def _look_up(batch: Sequence[Parsed]) -> _Stored:
    """Read what is stored of the batch's turns and calls; their content only where it differs."""
    turns = [(_key(turn), turn) for item in batch for turn in item.turns]
    calls = [(_key(call), call, turn) for turn, record in turns for call in record.calls]
    stored_calls = tables.find_calls({key for key, _, _ in calls})
    moving = {
        key: (stored, turn) for key, _, turn in calls if (stored := stored_calls.get(key)) and stored.turn != turn
    }
    homes = {stored.turn for stored, _ in moving.values()}
    stored_turns = tables.find_turns({key for key, _ in turns} | homes)
    if not stored_calls and not stored_turns:
        return _Stored()
    contents = tables.load_turns(_differing(turns, stored_turns) | homes | {turn for _, turn in moving.values()})
    differing = _differing([(key, call) for key, call, _ in calls], stored_calls) | moving.keys()
    call_contents = tables.load_calls(differing)
    labelled = tables.find_labelled({stored_calls[key].turn_id for key in differing})
    filling = {turn for key, _, turn in calls if key not in stored_calls or key in differing} | homes
    ids = {stored_turns[key].id: key for key in filling if key in stored_turns}
    places = tables.find_places(ids)
    return _Stored(
        turns=stored_turns,
        calls=stored_calls,
        turn_contents=contents,
        call_contents=call_contents,
        labelled=labelled,
        places={key: places[turn_id] for turn_id, key in ids.items()},
    )


@dataclass(slots=True)
class _Rows:
    """The rows of a plan. Toolsets are told by their texts."""

    new_turns: list[Line] = field(default_factory=list)
    grown_turns: list[Line] = field(default_factory=list)
    new_calls: list[Line] = field(default_factory=list)
    changed_calls: list[Line] = field(default_factory=list)
    moved_calls: list[Line] = field(default_factory=list)
    added_calls: dict[int, int] = field(default_factory=dict)  # by id of a stored turn
    toolsets: set[str] = field(default_factory=set)


class _Plan:
    """Decides item by item, on what is stored and on the items before; then writes it all."""

    def __init__(self, batch: Sequence[Parsed], correction: Correction | None, stored: _Stored) -> None:
        self.report = BatchReport(is_new=not stored)
        self._correction = correction
        self._stored = stored
        self._places = stored.places
        self._turns: dict[Key, _Turn] = {}
        self._calls: dict[Key, _Call] = {}
        self._left: set[Key] = set()
        for item in batch:
            try:
                changed = self._take_new(item) or self._take(item)
            except RecordError as error:
                self.report.rejected.append(ItemError(item.index, item.line, error.code, error.path, error.message))
            else:
                self.report.accepted += changed
                self.report.unchanged += not changed

    def _take_new(self, item: Parsed) -> bool:
        """Plan an item of one turn of which nothing is stored and no call was planned, as most are in most files. False
        if it is another one, and then nothing was planned. Raises RecordError, and then neither."""
        if len(item.turns) != 1:
            return False
        record = item.turns[0]
        key = _key(record)
        before, places = self._turns.get(key), self._places.get(key)
        calls = {_key(call): _Call(call, key, None) for call in record.calls}
        claimed = {_place(call) for call in record.calls}
        is_new = (
            key not in self._stored.turns
            and self._stored.calls.keys().isdisjoint(calls)
            and self._calls.keys().isdisjoint(calls)
            and len(calls) == len(claimed) == len(record.calls)
            and len(places or ()) + len(claimed) <= MAX_CALLS_OF_TURN
            and (not places or places.isdisjoint(claimed))
            and (before is None or (before.stored is None and bool(calls)))
        )
        if not is_new:
            return False
        merged = record if before is None else merge_turns(before.record, record)
        self._turns[key] = _Turn(merged, None, True)
        self._calls |= calls
        if places is None:
            self._places[key] = claimed
        else:
            places |= claimed
        return True

    def _take(self, item: Parsed) -> bool:
        """Plan one item; True if it changes anything. Raises RecordError, and then nothing of the item was planned."""
        draft = _Draft()
        for record in item.turns:
            self._add(draft, self._at_home(draft, record))
        self._left |= draft.left
        self._turns |= draft.turns
        for key in draft.left:
            self._turns.pop(key, None)
        self._calls |= draft.calls
        for key, claimed in draft.places.items():
            self._places.setdefault(key, set()).update(claimed)
        return draft.changed

    def _add(self, draft: _Draft, record: TurnRecord) -> None:
        key = _key(record)
        before = draft.turns.get(key) or self._turns.get(key)
        draft.turns[key] = turn = self._turn(key, record, before)
        draft.changed = draft.changed or (turn.changed and turn is not before)
        for call in record.calls:
            known = self._known(draft, call)
            planned = _Call(call, key, None) if known is None else self._call(key, known, call)
            if planned is known:
                continue
            draft.changed = True
            if known is not None and known.turn != key:
                self._move(draft, known, key)
            if known is None or known.turn != key or _place(known.record) != _place(planned.record):
                self._claim_place(key, planned.record, draft.places.setdefault(key, set()))
            if known is not None and planned.corrected:
                turn = draft.turns[key]
                corrected = correct_turn(turn.record, known.record, planned.record)
                draft.turns[key] = _Turn(corrected, turn.stored, turn.changed or corrected != turn.record)
            draft.calls[_key(call)] = planned

    def _known(self, draft: _Draft, call: CallRecord) -> _Call | None:
        """The call as planned so far, else as stored."""
        key = _key(call)
        planned = draft.calls.get(key) or self._calls.get(key)
        stored = self._stored.calls.get(key)
        if planned is not None or stored is None:
            return planned
        return _Call(self._stored.call_contents.get(key, call), stored.turn, stored)

    def _at_home(self, draft: _Draft, record: TurnRecord) -> TurnRecord:
        """A record that tells no turn belongs to the one that its call has."""
        for call in record.calls:
            known = self._known(draft, call)
            if known is None or known.turn == _key(record):
                continue
            if record.external_id == anonymous_turn_id(call.source, call.external_id):
                return msgspec.structs.replace(record, external_id=known.turn[1])
        return record

    def _turn(self, key: Key, record: TurnRecord, before: _Turn | None) -> _Turn:
        """What the turn shall be once this record is in; `before` itself if that changes nothing."""
        if before is None:
            stored = self._stored.turns.get(key)
            if stored is None:
                return _Turn(record, None, True)
            before = _Turn(self._stored.turn_contents.get(key, record), stored, False)
        try:
            merged = merge_turns(before.record, record)
        except Conflict:
            if self._correction is None or before.stored is None:
                raise
            merged = merge_turns(msgspec.structs.replace(before.record, messages=record.messages), record)
        return before if merged is before.record else _Turn(merged, before.stored, True)

    def _call(self, turn: Key, known: _Call, record: CallRecord) -> _Call:
        """What the call shall be once this record is in; `known` itself if that changes nothing. Raises Conflict."""
        corrected = known.corrected
        try:
            merged = merge_calls(known.record, record)
        except Conflict:
            if self._correction is None or known.stored is None:
                raise
            merged, corrected = correct_call(known.record, record), True
        if merged is known.record and turn == known.turn:
            return known
        if merged.cycle != known.record.cycle and known.stored and known.stored.turn_id in self._stored.labelled:
            told = f"{call_name(known.record)} has labels at cycle {known.record.cycle}, and is told at {merged.cycle}."
            raise Conflict("cycle", f"{told} {PLACE_IS_LABELLED}")
        return _Call(merged, turn, known.stored, corrected)

    def _move(self, draft: _Draft, call: _Call, target: Key) -> None:
        """Take a call whose turn was not told before into its turn, with what was told of the turn. Raises Conflict."""
        left, name = call.turn, call_name(call.record)
        if left[1] != anonymous_turn_id(call.record.source, call.record.external_id):
            raise Conflict("turn", f"{name} was stored before in another turn. {ONE_OF_TWO}")
        old = draft.turns.get(left) or self._turns.get(left)
        if old is None:
            old = _Turn(self._stored.turn_contents[left], self._stored.turns[left], False)
        new = draft.turns[target]
        told = msgspec.structs.replace(old.record, external_id=target[1])
        if new.stored is not None and old.stored is not None and old.stored.id in self._stored.labelled:
            raise Conflict("turn", f"{name} has labels in the turn that it was stored in. {PLACE_IS_LABELLED}")
        draft.turns[target] = _Turn(merge_turns(new.record, told), new.stored or old.stored, True)
        draft.left.add(left)

    def _claim_place(self, turn: Key, call: CallRecord, claimed: set[tuple[int, int]]) -> None:
        """A place in a turn holds one call."""
        place = _place(call)
        taken = self._places.get(turn, ())
        if place in claimed or place in taken:
            raise Conflict(
                "index",
                f"{call_name(call)} belongs at cycle {call.cycle}, index {call.index} of its turn, where another call "
                "is. Give each call a place of its own; of a trace in several files, import these as one zip.",
            )
        if len(claimed) + len(taken) >= MAX_CALLS_OF_TURN:
            raise RecordError(
                "too_many_calls", "", f"Its turn has {MAX_CALLS_OF_TURN:,} calls, and can have no more. Split it."
            )
        claimed.add(place)

    def rows(self, import_id: int | None) -> _Rows:
        """The rows of what was decided, as they are written."""
        now = utc(timezone.now())
        ids = {key: turn.stored.id for key, turn in self._turns.items() if turn.stored}
        added = Counter(
            call.turn
            for call in self._calls.values()
            if call.stored is None or call.stored.turn_id != ids.get(call.turn)
        )
        rows = _Rows(added_calls={ids[key]: number for key, number in added.items() if key in ids})
        for key, turn in self._turns.items():
            if turn.changed:
                line = tables.turn_line(turn.record, added[key], import_id, now, row=ids.get(key))
                (rows.grown_turns if turn.stored else rows.new_turns).append(line)
            if turn.record.tools:
                rows.toolsets.add(turn.record.tools)
        for call in self._calls.values():
            record, stored = call.record, call.stored
            turn_id = ids.get(call.turn)
            owner = self._turns[call.turn].record
            line = tables.call_line(record, owner, turn_id, now, row=stored.id if stored else None)
            if stored is None:
                rows.new_calls.append(line)
            elif stored.turn_id != turn_id:
                rows.moved_calls.append(line)
            else:
                rows.changed_calls.append(line)
            if record.tools:
                rows.toolsets.add(record.tools)
        self.report.num_turns, self.report.num_calls = len(rows.new_turns), len(rows.new_calls)
        return rows

    def write(self, rows: _Rows) -> None:
        """Insert what is new, update what grew. Raises Raced."""
        toolsets = tables.save_toolsets(rows.toolsets)
        # One after the other: a call may leave a place that another takes.
        tables.update_calls(rows.changed_calls, toolsets)
        tables.update_calls(rows.moved_calls, toolsets)
        Insertion(rows.new_turns, rows.new_calls, toolsets).finish()
        tables.update_turns(rows.grown_turns, rows.added_calls, toolsets)
        left = {stored.id for key in self._left if (stored := self._stored.turns.get(key))}
        kept = {turn.stored.id for turn in self._turns.values() if turn.stored}
        tables.remove_left(left - kept)
        self._audit()

    def _audit(self) -> None:
        """The old version of a corrected call is gone; its hash and the names of what differed stay."""
        for key, call in self._calls.items():
            if call.corrected and call.stored and self._correction:
                before, after = to_neutral(self._stored.call_contents[key]), to_neutral(call.record)
                audit.record(
                    "evidence.replaced",
                    object_type="tool_call",
                    object_id=call.stored.id,
                    actor=self._correction.actor,
                    token=self._correction.token,
                    before=before,
                    after=after,
                    detail={
                        "source": call.record.source,
                        "external_id": call.record.external_id,
                        "fields": sorted(name for name in before if before[name] != after[name]),
                    },
                )
                self.report.num_replaced += 1


def _place(call: CallRecord) -> tuple[int, int]:
    return call.cycle, call.index


def _key(record: TurnRecord | CallRecord) -> Key:
    return record.source, record.external_id


def _differing[R: (TurnRecord, CallRecord)](
    records: Iterable[tuple[Key, R]], stored: Mapping[Key, StoredTurn | StoredCall]
) -> set[Key]:
    """Keys of those that are stored with another content."""
    return {key for key, record in records if key in stored and stored[key].digest != record.digest()}
