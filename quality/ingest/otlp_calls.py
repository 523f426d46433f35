"""Rows of a turn's calls, brought from what a reading told to what the next one tells.

A call keeps its row, and so its labels, while its place, its id and all that is told of it change. What moves leaves
its place before any comes into one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import connection

from quality.ingest import tables
from quality.ingest.records import MAX_PLACE, CallRecord, TurnRecord
from quality.ingest.tables import Key
from tenants.scope import current_tenant_id


@dataclass(frozen=True, slots=True)
class CallRow:
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
        return self.digest != call.digest() or self.key != key_of(call)


def calls_of_turns(turn_ids: Sequence[int]) -> dict[int, list[CallRow]]:
    found: dict[int, list[CallRow]] = {turn: [] for turn in turn_ids}
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT c.turn_id, c.id, c.source, c.external_id, c.content_sha256, c.cycle, c.index, EXISTS (SELECT "
                "FROM agent_tool_call_feedback_events e WHERE e.tenant_id = c.tenant_id AND e.turn_id = c.turn_id "
                "AND e.call_id = c.id) FROM agent_tool_calls c WHERE c.tenant_id = (SELECT %s::bigint) "
                "AND c.turn_id = ANY(%s) "
                "ORDER BY c.cycle, c.index FOR UPDATE OF c",
                [current_tenant_id(), list(turn_ids)],
            )
            for turn, pk, source, external_id, digest, cycle, index, is_labelled in cursor.fetchall():
                row = CallRow(pk, (source, external_id), bytes(digest), (cycle, index), is_labelled)
                found[turn].append(row)
    return found


@dataclass(slots=True)
class Changes:
    """What is to be done to the calls of one turn. `moved` come to another place."""

    new: list[CallRecord]
    changed: list[tuple[CallRow, CallRecord]]
    gone: list[CallRow]
    moved: list[tuple[CallRow, tuple[int, int]]]

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone or self.moved)

    @property
    def added(self) -> int:
        return len(self.new) - len(self.gone)


def changes_of(
    turn: TurnRecord,
    earlier: Mapping[str, str],
    rows: Sequence[CallRow],
    home: int,
    elsewhere: Mapping[Key, tables.StoredCall],
) -> Changes:
    """From the calls that are stored to those that are told; one that is stored in another turn stays there. `earlier`
    as in `Reading`."""
    calls = [call for call in turn.calls if (found := elsewhere.get(key_of(call))) is None or found.turn_id == home]
    by_key = {row.key: row for row in rows}
    by_id = {row.key[1]: row for row in rows}
    matched: dict[int, CallRecord] = {}
    new = []
    for call in calls:
        row = by_key.get(key_of(call)) or by_id.get(earlier.get(call.external_id, ""))
        if row is None or row.id in matched:
            new.append(call)
        else:
            matched[row.id] = call
    left = [row for row in rows if row.id not in matched]
    stays = [row for row in left if row.is_labelled or row.is_of_span]
    kept = [(row, matched[row.id]) for row in rows if row.id in matched]
    moved = [(row, place_of(call)) for row, call in kept if row.place != place_of(call)]
    told = {place_of(call) for call in calls}
    taken = told | {row.place for row in stays}
    moved += [(row, _free(row.place[0], taken)) for row in stays if row.place in told]
    return Changes(
        new=new,
        changed=[(row, call) for row, call in kept if row.differs(call)],
        gone=[row for row in left if row not in stays],
        moved=moved,
    )


def key_of(call: CallRecord) -> Key:
    return call.source, call.external_id


def place_of(call: CallRecord) -> tuple[int, int]:
    return call.cycle, call.index


def _free(cycle: int, taken: set[tuple[int, int]]) -> tuple[int, int]:
    """The place after all others of a cycle, taken from now on."""
    place = (cycle, 1 + max(index for other, index in taken if other == cycle))
    taken.add(place)
    return place


def lock_reviews(turn_ids: Sequence[int]) -> None:
    """Before the calls, as reviewers do: so neither waits for the other in a circle."""
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT FROM agent_tool_call_reviews WHERE tenant_id = (SELECT %s::bigint) "
                "AND turn_id = ANY(%s) ORDER BY id FOR UPDATE",
                [current_tenant_id(), list(turn_ids)],
            )


def remove(calls: Sequence[int]) -> None:
    if calls:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM agent_tool_calls WHERE tenant_id = (SELECT %s::bigint) AND id = ANY(%s)",
                [current_tenant_id(), list(calls)],
            )


def move(calls: Sequence[int], places: Sequence[tuple[int, int]]) -> None:
    """Put calls where nobody is, first out of all real cycles: as they go, one may want where another is still."""
    if not calls:
        return
    for each in ([(MAX_PLACE, number) for number in range(len(calls))], places):
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE agent_tool_calls c SET cycle = n.cycle, index = n.index "
                "FROM unnest(%s::bigint[], %s::int[], %s::int[]) AS n(id, cycle, index) "
                "WHERE c.tenant_id = (SELECT %s::bigint) AND c.id = n.id",
                [list(calls), [cycle for cycle, _ in each], [index for _, index in each], current_tenant_id()],
            )


def adopt(calls: Sequence[tuple[int, CallRecord]]) -> None:
    """Calls that a reply told are called by their tool's span from now on."""
    if calls:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE agent_tool_calls c SET source = n.source, external_id = n.external_id "
                "FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n(id, source, external_id) "
                "WHERE c.tenant_id = (SELECT %s::bigint) AND c.id = n.id",
                [
                    [row for row, _ in calls],
                    [record.source for _, record in calls],
                    [record.external_id for _, record in calls],
                    current_tenant_id(),
                ],
            )


def bring_labels_along(calls: Sequence[int]) -> None:
    """What stands beside calls that moved says their cycle, too. The history of labels keeps what was true then."""
    if calls:
        with connection.cursor() as cursor:
            for table in ("agent_tool_call_reviews", "agent_tool_call_feedback"):
                cursor.execute(
                    f"UPDATE {table} r SET cycle = c.cycle FROM agent_tool_calls c "  # noqa: S608  (names of our own)
                    "WHERE c.tenant_id = (SELECT %s::bigint) "
                    "AND c.id = ANY(%s) AND r.tenant_id = c.tenant_id AND r.call_id = c.id "
                    "AND r.cycle <> c.cycle",
                    [current_tenant_id(), list(calls)],
                )
