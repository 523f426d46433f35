"""The rows behind the store: what is there already, and how much is written at once.

Rows go by COPY into temporary tables of the connection and from there in one statement each; direct COPY is refused
under row security. All of it runs inside the caller's `tenant_scope`.
"""
# ruff: noqa: S608 - the names put into SQL here are those of our own tables and columns

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from django.db import connection

from quality.ingest import evidence
from quality.ingest.records import CallRecord, TurnRecord, toolset_sha256
from quality.models import CallState, TurnState
from tenants.scope import current_tenant_id

type Key = tuple[str, str]  # source, external id
type Row = dict[str, Any]

_LOCK = 1_768_843_621  # of ingest, beside the tenant's id

_LARGE_BATCH = 100
_KEPT = frozenset({"id", "source", "num_calls", "import_job_id", "created_at"})
_TIMES = frozenset({"started_at", "time_recorded"})


class StoredTurn(NamedTuple):
    id: int
    digest: bytes


class StoredCall(NamedTuple):
    id: int
    digest: bytes
    turn_id: int
    turn: Key


class Raced(Exception):
    """Somebody else wrote the same rows between our look and our write: look again."""


def begin_batch(num_items: int) -> None:
    """One batch of a tenant at a time, until the transaction ends: so what was read stays true while it is written."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, current_tenant_id() % 2**31])
        if num_items >= _LARGE_BATCH:
            # A connection keeps its plans for checking foreign keys. One made while the tables were empty walks an
            # index of the whole tenant for each row, until ANALYZE comes by; a first import would take hours.
            cursor.execute("DISCARD PLANS")


# --- reading ----------------------------------------------------------------------------------------------------------
def _select(sql: str, keys: Iterable[Key]) -> list[tuple[Any, ...]]:
    """Rows of a query for one source and many ids, for all sources of the keys."""
    by_source = defaultdict(list)
    for source, external_id in keys:
        by_source[source].append(external_id)
    rows: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        for source, external_ids in by_source.items():
            cursor.execute(sql, [current_tenant_id(), source, external_ids])
            rows.extend(cursor.fetchall())
    return rows


def find_turns(keys: Collection[Key]) -> dict[Key, StoredTurn]:
    rows = _select(
        "SELECT source, external_id, id, content_sha256 FROM agent_turns "
        "WHERE tenant_id = %s AND source = %s AND external_id = ANY(%s)",
        keys,
    )
    return {(row[0], row[1]): StoredTurn(row[2], bytes(row[3])) for row in rows}


def find_calls(keys: Collection[Key]) -> dict[Key, StoredCall]:
    rows = _select(
        "SELECT c.source, c.external_id, c.id, c.content_sha256, c.turn_id, t.source, t.external_id "
        "FROM agent_tool_calls c JOIN agent_turns t ON t.tenant_id = c.tenant_id AND t.id = c.turn_id "
        "WHERE c.tenant_id = %s AND c.source = %s AND c.external_id = ANY(%s)",
        keys,
    )
    return {(row[0], row[1]): StoredCall(row[2], bytes(row[3]), row[4], (row[5], row[6])) for row in rows}


def find_labelled(turn_ids: Collection[int]) -> set[int]:
    """Those of the turns on which, or on whose calls, reviewers have said anything."""
    if not turn_ids:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT turn_id FROM agent_tool_call_feedback_events WHERE tenant_id = %s AND turn_id = ANY(%s)",
            [current_tenant_id(), list(turn_ids)],
        )
        return {turn_id for (turn_id,) in cursor.fetchall()}


def find_places(turn_ids: Collection[int]) -> dict[int, set[tuple[int, int]]]:
    """(cycle, index) of the calls that these turns have."""
    places: dict[int, set[tuple[int, int]]] = defaultdict(set)
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT turn_id, cycle, index FROM agent_tool_calls WHERE tenant_id = %s AND turn_id = ANY(%s)",
                [current_tenant_id(), list(turn_ids)],
            )
            for turn_id, cycle, index in cursor.fetchall():
                places[turn_id].add((cycle, index))
    return places


def load_turns(keys: Collection[Key]) -> dict[Key, TurnRecord]:
    """Stored turns as records, without their calls."""
    rows = _select(
        "SELECT t.source, t.external_id, t.conversation_id, t.contact_id, t.message_id, t.outbound_message_id, "
        "CASE WHEN t.time_recorded THEN t.started_at END, t.duration_ms, t.model, t.provider, t.prompt_version, "
        "t.style_id, t.messages, t.system, t.position, t.num_cycles, s.tools, t.warnings "
        "FROM agent_turns t LEFT JOIN agent_toolsets s ON s.tenant_id = t.tenant_id AND s.id = t.toolset_id "
        "WHERE t.tenant_id = %s AND t.source = %s AND t.external_id = ANY(%s)",
        keys,
    )
    return {
        (row[0], row[1]): TurnRecord(
            source=row[0],
            external_id=row[1],
            conversation=row[2] or None,
            contact=row[3] or None,
            message=row[4] or None,
            outbound_message=row[5] or None,
            started_at=evidence.utc(row[6]) if row[6] else None,
            duration_ms=row[7],
            model=row[8] or None,
            provider=row[9] or None,
            prompt_version=row[10] or None,
            style_id=row[11] or None,
            messages=row[12],
            system=row[13],
            position=row[14],
            num_cycles=row[15],
            tools=row[16],
            warnings=tuple(row[17]),
        )
        for row in rows
    }


def load_calls(keys: Collection[Key]) -> dict[Key, CallRecord]:
    """Stored calls as records."""
    rows = _select(
        "SELECT c.source, c.external_id, c.tool_name, c.cycle, c.index, c.tool_call_id, c.args, c.result, c.is_error, "
        "c.error, c.conversation_id, c.contact_id, c.message_id, CASE WHEN c.time_recorded THEN c.started_at END, "
        "c.duration_ms, c.model, c.provider, c.prompt_version, s.tools, c.warnings "
        "FROM agent_tool_calls c LEFT JOIN agent_toolsets s ON s.tenant_id = c.tenant_id AND s.id = c.toolset_id "
        "WHERE c.tenant_id = %s AND c.source = %s AND c.external_id = ANY(%s)",
        keys,
    )
    return {
        (row[0], row[1]): CallRecord(
            source=row[0],
            external_id=row[1],
            tool_name=row[2],
            cycle=row[3],
            index=row[4],
            tool_call_id=row[5],
            args=row[6],
            result=row[7],
            is_error=row[8],
            error=row[9],
            conversation=row[10] or None,
            contact=row[11] or None,
            message=row[12] or None,
            started_at=evidence.utc(row[13]) if row[13] else None,
            duration_ms=row[14],
            model=row[15] or None,
            provider=row[16] or None,
            prompt_version=row[17] or None,
            tools=row[18],
            warnings=tuple(row[19]),
        )
        for row in rows
    }


# --- writing ----------------------------------------------------------------------------------------------------------
def save_toolsets(texts: Collection[str]) -> dict[str, int]:
    """Ids of the toolsets by their SHA-256; those not seen before are stored, in the shortest spelling at hand."""
    by_sha = {toolset_sha256(text): text for text in sorted(texts, key=len, reverse=True)}
    if not by_sha:
        return {}
    tenant_id, found = current_tenant_id(), dict[str, int]()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sha256, id FROM agent_toolsets WHERE tenant_id = %s AND sha256 = ANY(%s)",
            [tenant_id, list(by_sha)],
        )
        found.update(cursor.fetchall())
        for sha in sorted(by_sha.keys() - found.keys()):
            cursor.execute(
                "INSERT INTO agent_toolsets (tenant_id, sha256, tools, num_tools, created_at) "
                "VALUES (%s, %s, %s, %s, now()) RETURNING id",
                [tenant_id, sha, by_sha[sha], len(json.loads(by_sha[sha]))],
            )
            found[sha] = cursor.fetchone()[0]
    return found


def turn_row(turn: TurnRecord, toolset_id: int | None, num_calls: int, import_id: int | None, now: str) -> Row:
    return {
        "source": turn.source,
        "external_id": turn.external_id,
        "content_sha256": turn.digest(),
        "conversation_id": turn.conversation or "",
        "contact_id": turn.contact or "",
        "message_id": turn.message or "",
        "outbound_message_id": turn.outbound_message or "",
        "state": TurnState.DONE.value,
        "end_reason": "answered" if turn.outbound_message else "",
        "model": turn.model or "",
        "provider": turn.provider or "",
        "style_id": turn.style_id or "",
        "prompt_version": turn.prompt_version or "",
        "toolset_id": toolset_id,
        "position": turn.position,
        "messages": turn.messages,
        "system": turn.system,
        "num_calls": num_calls,
        "num_cycles": turn.num_cycles,
        "warnings": list(turn.warnings),
        "started_at": turn.started_at or now,
        "time_recorded": turn.started_at is not None,
        "duration_ms": turn.duration_ms,
        "hints_version": 0,
        "import_job_id": import_id,
        "created_at": now,
    }


def call_row(call: CallRecord, turn: TurnRecord, turn_id: int, toolset_id: int | None, now: str) -> Row:
    outcome = CallState.ERROR if call.is_error else CallState.RESULT
    return {
        "turn_id": turn_id,
        "cycle": call.cycle,
        "index": call.index,
        "tool_call_id": call.tool_call_id,
        "tool_name": call.tool_name,
        "args": call.args,
        "result": call.result,
        "is_error": call.is_error,
        "error": call.error,
        "state": (outcome if call.has_outcome else CallState.UNKNOWN).value,
        "started_at": call.started_at or turn.started_at or now,
        "time_recorded": call.started_at is not None,
        "duration_ms": call.duration_ms,
        "source": call.source,
        "external_id": call.external_id,
        "content_sha256": call.digest(),
        "conversation_id": call.conversation or "",
        "contact_id": call.contact or "",
        "message_id": call.message or "",
        "outbound_message_id": turn.outbound_message or "",
        "model": call.model or "",
        "provider": call.provider or "",
        "style_id": turn.style_id or "",
        "prompt_version": call.prompt_version or "",
        "toolset_id": toolset_id,
        "warnings": list(call.warnings),
        "created_at": now,
    }


def insert_turns(rows: Sequence[Row]) -> dict[Key, int]:
    """Ids of the new turns; raises Raced."""
    if not rows:
        return {}
    with connection.cursor() as cursor:
        columns = _copy(cursor, "ingest_turns", "agent_turns", rows)
        cursor.execute(
            f"INSERT INTO agent_turns (tenant_id, {columns}) SELECT %s, {columns} FROM ingest_turns "
            "ON CONFLICT DO NOTHING RETURNING source, external_id, id",
            [current_tenant_id()],
        )
        ids = {(source, external_id): turn_id for source, external_id, turn_id in cursor.fetchall()}
    if len(ids) != len(rows):
        raise Raced
    return ids


def insert_calls(rows: Sequence[Row]) -> None:
    """Raises Raced."""
    if not rows:
        return
    with connection.cursor() as cursor:
        columns = _copy(cursor, "ingest_calls", "agent_tool_calls", rows)
        cursor.execute(
            f"INSERT INTO agent_tool_calls (tenant_id, {columns}) SELECT %s, {columns} FROM ingest_calls "
            "ON CONFLICT DO NOTHING",
            [current_tenant_id()],
        )
        if cursor.rowcount != len(rows):
            raise Raced


def update_turns(rows: Sequence[Row], added_calls: dict[int, int]) -> None:
    """Give stored turns, told by `id`, their merged content; `added_calls` counts the calls that turns have got, by id.
    What calls repeat from their turn follows it."""
    tenant_id = current_tenant_id()
    with connection.cursor() as cursor:
        if rows:
            _update(cursor, "ingest_grown_turns", "agent_turns", rows)
            cursor.execute(
                "UPDATE agent_tool_calls c SET outbound_message_id = t.outbound_message_id, style_id = t.style_id, "
                "started_at = CASE WHEN c.time_recorded THEN c.started_at ELSE t.started_at END FROM agent_turns t "
                "WHERE t.tenant_id = %s AND t.id = ANY(%s) AND c.tenant_id = t.tenant_id AND c.turn_id = t.id",
                [tenant_id, [row["id"] for row in rows]],
            )
        if added_calls:
            cursor.execute(
                "UPDATE agent_turns t SET num_calls = t.num_calls + added.n, hints_version = 0 "
                "FROM unnest(%s::bigint[], %s::int[]) AS added(id, n) WHERE t.tenant_id = %s AND t.id = added.id",
                [list(added_calls), list(added_calls.values()), tenant_id],
            )


def update_calls(rows: Sequence[Row]) -> None:
    """Give stored calls, told by `id`, their merged content, and their turn if it was not told before. What their
    reviews repeat follows; hints of their turns are to be made again."""
    if rows:
        with connection.cursor() as cursor:
            _update(cursor, "ingest_completed_calls", "agent_tool_calls", rows)
            cursor.execute(
                "UPDATE agent_tool_call_reviews r SET tool_name = c.tool_name, started_at = c.started_at "
                "FROM agent_tool_calls c WHERE c.tenant_id = %s AND c.id = ANY(%s) "
                "AND r.tenant_id = c.tenant_id AND r.call_id = c.id",
                [current_tenant_id(), [row["id"] for row in rows]],
            )
            cursor.execute(
                "UPDATE agent_turns SET hints_version = 0 WHERE tenant_id = %s AND id = ANY(%s)",
                [current_tenant_id(), sorted({row["turn_id"] for row in rows})],
            )


def remove_left(turn_ids: Collection[int]) -> None:
    """Remove turns whose only call went to the turn that was told later."""
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM agent_turns t WHERE t.tenant_id = %s AND t.id = ANY(%s) AND NOT EXISTS "
                "(SELECT FROM agent_tool_calls c WHERE c.tenant_id = t.tenant_id AND c.turn_id = t.id)",
                [current_tenant_id(), list(turn_ids)],
            )


def _copy(cursor: Any, name: str, table: str, rows: Sequence[Row]) -> str:
    """Rows into the connection's temporary table of this name, which is made on first use; the columns' names."""
    columns = ", ".join(rows[0])
    cursor.execute("SELECT to_regclass(%s)", [f"pg_temp.{name}"])
    if cursor.fetchone()[0] is None:
        cursor.execute(f"CREATE TEMP TABLE {name} ON COMMIT DELETE ROWS AS SELECT {columns} FROM {table} WITH NO DATA")
    else:
        cursor.execute(f"DELETE FROM {name}")
    with cursor.copy(f"COPY {name} ({columns}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(tuple(row.values()))
    return columns


def _update(cursor: Any, name: str, table: str, rows: Sequence[Row]) -> None:
    """Set by id all but what stays with a row. A time that was recorded stays, if the new row has none."""
    _copy(cursor, name, table, rows)
    settings = ", ".join(f"{column} = n.{column}" for column in rows[0] if column not in _KEPT | _TIMES)
    cursor.execute(
        f"UPDATE {table} o SET {settings}, time_recorded = n.time_recorded OR o.time_recorded, "
        "started_at = CASE WHEN n.time_recorded THEN n.started_at ELSE o.started_at END "
        f"FROM {name} n WHERE o.tenant_id = %s AND o.id = n.id",
        [current_tenant_id()],
    )
