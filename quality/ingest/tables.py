"""The rows behind the store: what is there already, and how much is written at once.

Rows go by COPY into temporary tables of the connection and from there in one statement; direct COPY is refused under
row security. Lines for COPY are made here, too, and without the database: so the next batch can be made ready while
this one is written. All else runs inside the caller's `tenant_scope`.
"""
# ruff: noqa: S608 - the names put into SQL here are those of our own tables and columns

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import msgspec
from django.db import DatabaseError, IntegrityError, connection
from psycopg.errors import UniqueViolation

from quality.ingest import evidence
from quality.ingest.records import CallRecord, TurnRecord, toolset_sha256
from quality.models import CallState, TurnState
from tenants.scope import current_tenant_id

type Key = tuple[str, str]  # source, external id

_LOCK = 1_768_843_621  # of ingest, beside the tenant's id

_LARGE_BATCH = 100
_LINES_AT_ONCE = 200  # into COPY: the server reads these while the next are put together
# In the order of the lines: names first, which are escaped as one.
_TURN_COLUMNS = (
    "source",
    "external_id",
    "conversation_id",
    "contact_id",
    "message_id",
    "outbound_message_id",
    "state",
    "end_reason",
    "model",
    "provider",
    "style_id",
    "prompt_version",
    "messages",
    "system",
    "position",
    "num_calls",
    "num_cycles",
    "warnings",
    "started_at",
    "time_recorded",
    "duration_ms",
    "hints_version",
    "import_job_id",
    "created_at",
    "content_sha256",
    "toolset_id",
)
_CALL_COLUMNS = (
    "tool_name",
    "source",
    "external_id",
    "conversation_id",
    "contact_id",
    "message_id",
    "outbound_message_id",
    "model",
    "provider",
    "style_id",
    "prompt_version",
    "tool_call_id",
    "args",
    "result",
    "error",
    "is_error",
    "state",
    "turn_id",
    "cycle",
    "index",
    "started_at",
    "time_recorded",
    "duration_ms",
    "warnings",
    "created_at",
    "content_sha256",
    "toolset_id",
)
_KEPT = frozenset({"source", "num_calls", "import_job_id", "created_at"})
_TIMES = frozenset({"started_at", "time_recorded"})


class StoredTurn(NamedTuple):
    id: int
    digest: bytes


class StoredCall(NamedTuple):
    id: int
    digest: bytes
    turn_id: int
    turn: Key


class Line(msgspec.Struct, frozen=True, gc=False):
    """A row as a line for COPY, but for its toolset, which is told by its SHA-256. `id` is that of the stored row that
    it shall replace; `turn_id` a call's turn, if that is stored."""

    text: str
    toolset: str | None
    id: int | None
    turn_id: int | None = None


class Raced(Exception):
    """Rows that were to be new are stored: somebody wrote them between our look and our write, or we did not look."""


def begin_batch(num_items: int) -> None:
    """One batch of a tenant at a time, until the transaction ends: so what was read stays true while it is written."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, current_tenant_id() % 2**31])
        if num_items >= _LARGE_BATCH:
            # A connection keeps its plans for checking foreign keys. One made while the tables were empty walks an
            # index of the whole tenant for each row, until ANALYZE comes by; a first import would take hours.
            cursor.execute("DISCARD PLANS")


# --- reading ----------------------------------------------------------------------------------------------------------
def _select(columns: str, tables: str, keys: Iterable[Key]) -> list[tuple[Any, ...]]:
    """Rows of the first of these tables, by source and external id. One probe of its index for each key, whatever the
    planner thinks of the table: it may never have been analysed, or be a thousand times as large by now."""
    by_source = defaultdict(list)
    for source, external_id in keys:
        by_source[source].append(external_id)
    rows: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        for source, external_ids in by_source.items():
            cursor.execute(
                f"SELECT found.* FROM unnest(%s::text[]) AS k(external_id) CROSS JOIN LATERAL (SELECT {columns} "
                f"FROM {tables} WHERE o.tenant_id = (SELECT %s::bigint) "
                f"AND o.source = %s AND o.external_id = k.external_id OFFSET 0) "
                "AS found",
                [external_ids, current_tenant_id(), source],
            )
            rows.extend(cursor.fetchall())
    return rows


def find_turns(keys: Collection[Key]) -> dict[Key, StoredTurn]:
    rows = _select("o.source, o.external_id, o.id, o.content_sha256", "agent_turns o", keys)
    return {(row[0], row[1]): StoredTurn(row[2], bytes(row[3])) for row in rows}


def find_calls(keys: Collection[Key]) -> dict[Key, StoredCall]:
    rows = _select(
        "o.source, o.external_id, o.id, o.content_sha256, o.turn_id, t.source AS turn_source, t.external_id AS turn",
        "agent_tool_calls o JOIN agent_turns t ON t.tenant_id = o.tenant_id AND t.id = o.turn_id",
        keys,
    )
    return {(row[0], row[1]): StoredCall(row[2], bytes(row[3]), row[4], (row[5], row[6])) for row in rows}


def find_labelled(turn_ids: Collection[int]) -> set[int]:
    """Those of the turns on which, or on whose calls, reviewers have said anything."""
    if not turn_ids:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT turn_id FROM agent_tool_call_feedback_events WHERE tenant_id = (SELECT %s::bigint) "
            "AND turn_id = ANY(%s)",
            [current_tenant_id(), list(turn_ids)],
        )
        return {turn_id for (turn_id,) in cursor.fetchall()}


def find_places(turn_ids: Collection[int]) -> dict[int, set[tuple[int, int]]]:
    """(cycle, index) of the calls that these turns have."""
    places: dict[int, set[tuple[int, int]]] = defaultdict(set)
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT turn_id, cycle, index FROM agent_tool_calls WHERE tenant_id = (SELECT %s::bigint) "
                "AND turn_id = ANY(%s)",
                [current_tenant_id(), list(turn_ids)],
            )
            for turn_id, cycle, index in cursor.fetchall():
                places[turn_id].add((cycle, index))
    return places


def load_turns(keys: Collection[Key]) -> dict[Key, TurnRecord]:
    """Stored turns as records, without their calls."""
    rows = _select(
        "o.source, o.external_id, o.conversation_id, o.contact_id, o.message_id, o.outbound_message_id, "
        "CASE WHEN o.time_recorded THEN o.started_at END, o.duration_ms, o.model, o.provider, o.prompt_version, "
        "o.style_id, o.messages, o.system, o.position, o.num_cycles, s.tools, o.warnings",
        "agent_turns o LEFT JOIN agent_toolsets s ON s.tenant_id = o.tenant_id AND s.id = o.toolset_id",
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
        "o.source, o.external_id, o.tool_name, o.cycle, o.index, o.tool_call_id, o.args, o.result, o.is_error, "
        "o.error, o.conversation_id, o.contact_id, o.message_id, CASE WHEN o.time_recorded THEN o.started_at END, "
        "o.duration_ms, o.model, o.provider, o.prompt_version, s.tools, o.warnings",
        "agent_tool_calls o LEFT JOIN agent_toolsets s ON s.tenant_id = o.tenant_id AND s.id = o.toolset_id",
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
            "SELECT sha256, id FROM agent_toolsets WHERE tenant_id = (SELECT %s::bigint) AND sha256 = ANY(%s)",
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


def turn_line(turn: TurnRecord, num_calls: int, import_id: int | None, now: str, *, row: int | None = None) -> Line:
    """`row` is the id of the stored turn that it shall replace."""
    names = (
        turn.source,
        turn.external_id,
        turn.conversation or "",
        turn.contact or "",
        turn.message or "",
        turn.outbound_message or "",
        _DONE,
        "answered" if turn.outbound_message else "",
        turn.model or "",
        turn.provider or "",
        turn.style_id or "",
        turn.prompt_version or "",
    )
    text = (
        f"{_NULL if row is None else row}\t{_names(names)}\t{_text(turn.messages)}\t{_text(turn.system)}\t"
        f"{turn.position}\t{num_calls}\t{turn.num_cycles}\t{_array(turn.warnings)}\t{turn.started_at or now}\t"
        f"{'f' if turn.started_at is None else 't'}\t{_number(turn.duration_ms)}\t0\t{_number(import_id)}\t{now}\t"
        f"\\\\x{turn.digest().hex()}"
    )
    return Line(text, toolset_sha256(turn.tools) if turn.tools else None, row)


def call_line(call: CallRecord, turn: TurnRecord, turn_id: int | None, now: str, *, row: int | None = None) -> Line:
    """`turn_id` is None if the turn is a new one; `row` is the id of the stored call that it shall replace."""
    names = (
        turn.source,
        turn.external_id,
        call.tool_name,
        call.source,
        call.external_id,
        call.conversation or "",
        call.contact or "",
        call.message or "",
        turn.outbound_message or "",
        call.model or "",
        call.provider or "",
        turn.style_id or "",
        call.prompt_version or "",
    )
    is_error = call.is_error
    text = (
        f"{_NULL if row is None else row}\t{_names(names)}\t{_text(call.tool_call_id)}\t{_text(call.args)}\t"
        f"{_text(call.result)}\t{_text(call.error)}\t{_NULL if is_error is None else 't' if is_error else 'f'}\t"
        f"{_UNKNOWN if not call.has_outcome else _ERROR if is_error else _RESULT}\t{_number(turn_id)}\t"
        f"{call.cycle}\t{call.index}\t{call.started_at or turn.started_at or now}\t"
        f"{'f' if call.started_at is None else 't'}\t{_number(call.duration_ms)}\t{_array(call.warnings)}\t{now}\t"
        f"\\\\x{call.digest().hex()}"
    )
    return Line(text, toolset_sha256(call.tools) if call.tools else None, row, turn_id)


_DONE = TurnState.DONE.value
_UNKNOWN, _ERROR, _RESULT = CallState.UNKNOWN.value, CallState.ERROR.value, CallState.RESULT.value
_NULL = "\\N"


def _number(value: int | None) -> str | int:
    return _NULL if value is None else value


def _names(names: Sequence[str]) -> str:
    """Names in COPY's text form. Hardly ever one of them has to be escaped."""
    joined = "\t".join(names)
    if "\\" in joined or "\n" in joined or "\r" in joined or joined.count("\t") >= len(names):
        return "\t".join(map(_text, names))
    return joined


def _text(text: str | None) -> str:
    """A text, or none, in COPY's text form."""
    if text is None:
        return _NULL
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    if "\t" in text:
        text = text.replace("\t", "\\t")
    return text


def _array(values: Sequence[str]) -> str:
    """An array of texts in COPY's text form."""
    return _text(f"{{{','.join(map(_element, values))}}}") if values else "{}"


def _element(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@contextmanager
def _raced() -> Iterator[None]:
    """Rows that are there already are told by Raced."""
    try:
        with connection.wrap_database_errors:
            yield
    except IntegrityError as error:
        if isinstance(error.__cause__, UniqueViolation):
            raise Raced from error
        raise


class Insertion:
    """New turns and calls on their way: sent off here, to be ended by `finish`. The server inserts them while the
    caller goes on; nothing else may be asked of the connection in between. A call whose turn is new finds it by name.
    """

    def __init__(
        self,
        turns: Sequence[Line],
        calls: Sequence[Line],
        toolsets: Mapping[str, int],
        *,
        check_references: bool = False,
    ) -> None:
        """`check_references`: let the server check foreign keys now, too, and not with the commit. Raises Raced."""
        self._running = ExitStack()
        if not turns and not calls:
            return
        with connection.cursor() as cursor:
            _copy(cursor, _TURNS, turns, toolsets)
            _copy(cursor, _CALLS, calls, toolsets)
        session: Any = connection.connection
        with _raced(), ExitStack() as running:
            running.enter_context(session.pipeline())
            if check_references:
                session.execute("SET CONSTRAINTS ALL IMMEDIATE")
            session.execute(_INSERT, [current_tenant_id(), current_tenant_id()])
            self._running = running.pop_all()

    def finish(self) -> None:
        """Wait until the rows are in; raises Raced."""
        with _raced(), self._running:
            pass

    def abandon(self) -> None:
        """Wait, whatever comes of it, so that the transaction can be rolled back."""
        with suppress(DatabaseError), connection.wrap_database_errors:
            self._running.close()


def update_turns(lines: Sequence[Line], added_calls: dict[int, int], toolsets: Mapping[str, int]) -> None:
    """Give stored turns their merged content; `added_calls` counts the calls that turns have got, by id. What calls
    repeat from their turn follows it."""
    tenant_id = current_tenant_id()
    with connection.cursor() as cursor:
        if lines:
            _update(cursor, _TURNS, lines, toolsets)
            cursor.execute(
                "UPDATE agent_tool_calls c SET outbound_message_id = t.outbound_message_id, style_id = t.style_id, "
                "started_at = CASE WHEN c.time_recorded THEN c.started_at ELSE t.started_at END FROM agent_turns t "
                "WHERE t.tenant_id = (SELECT %s::bigint) "
                "AND t.id = ANY(%s) AND c.tenant_id = t.tenant_id AND c.turn_id = t.id",
                [tenant_id, [line.id for line in lines]],
            )
        if added_calls:
            cursor.execute(
                "UPDATE agent_turns t SET num_calls = t.num_calls + added.n, hints_version = 0 "
                "FROM unnest(%s::bigint[], %s::int[]) AS added(id, n) WHERE t.tenant_id = (SELECT %s::bigint) "
                "AND t.id = added.id",
                [list(added_calls), list(added_calls.values()), tenant_id],
            )


def update_calls(lines: Sequence[Line], toolsets: Mapping[str, int]) -> None:
    """Give stored calls their merged content, and their turn if it was not told before. What their reviews repeat
    follows; hints of their turns are to be made again."""
    if lines:
        with connection.cursor() as cursor:
            _update(cursor, _CALLS, lines, toolsets)
            cursor.execute(
                "UPDATE agent_tool_call_reviews r SET tool_name = c.tool_name, started_at = c.started_at "
                "FROM agent_tool_calls c WHERE c.tenant_id = (SELECT %s::bigint) AND c.id = ANY(%s) "
                "AND r.tenant_id = c.tenant_id AND r.call_id = c.id",
                [current_tenant_id(), [line.id for line in lines]],
            )
            cursor.execute(
                "UPDATE agent_turns SET hints_version = 0 WHERE tenant_id = (SELECT %s::bigint) AND id = ANY(%s)",
                [current_tenant_id(), sorted({line.turn_id for line in lines if line.turn_id is not None})],
            )


def remove_left(turn_ids: Collection[int]) -> None:
    """Remove turns whose only call went to the turn that was told later."""
    if turn_ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM agent_turns t WHERE t.tenant_id = (SELECT %s::bigint) AND t.id = ANY(%s) AND NOT EXISTS "
                "(SELECT FROM agent_tool_calls c WHERE c.tenant_id = t.tenant_id AND c.turn_id = t.id)",
                [current_tenant_id(), list(turn_ids)],
            )


class _Table(NamedTuple):
    """A table, and the temporary one before it, which has the columns that are written, and some to find rows by."""

    name: str
    before: str
    columns: tuple[str, ...]
    finding: str

    @property
    def names(self) -> tuple[str, ...]:
        return ("id", *(part.split()[-1] for part in self.finding.split(", ") if part), *self.columns)


_TURNS = _Table("agent_turns", "ingest_turns", _TURN_COLUMNS, "")
_CALLS = _Table("agent_tool_calls", "ingest_calls", _CALL_COLUMNS, "source AS turn_source, external_id AS turn_name")

_OF_CALL = ", ".join("coalesce(c.turn_id, t.id)" if name == "turn_id" else f"c.{name}" for name in _CALL_COLUMNS)
_INSERT = (
    f"WITH turns AS (INSERT INTO agent_turns (tenant_id, {', '.join(_TURN_COLUMNS)}) "
    f"SELECT %s, {', '.join(_TURN_COLUMNS)} FROM ingest_turns "
    "RETURNING id, source, external_id), "
    f"calls AS (INSERT INTO agent_tool_calls (tenant_id, {', '.join(_CALL_COLUMNS)}) "
    f"SELECT %s, {_OF_CALL} "
    "FROM ingest_calls c LEFT JOIN turns t ON t.source = c.turn_source AND t.external_id = c.turn_name "
    "RETURNING 1) SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM calls)"
)


def _copy(cursor: Any, table: _Table, lines: Sequence[Line], toolsets: Mapping[str, int]) -> None:
    """Lines into the connection's temporary table, which is made on first use."""
    clear_temporary(
        cursor, table.before, f"{', '.join(filter(None, ('id', table.finding, *table.columns)))} FROM {table.name}"
    )
    if not lines:
        return
    ends: dict[str | None, str] = {None: "\t\\N\n", **{sha: f"\t{pk}\n" for sha, pk in toolsets.items()}}
    with cursor.copy(f"COPY {table.before} ({', '.join(table.names)}) FROM STDIN") as copy:
        for start in range(0, len(lines), _LINES_AT_ONCE):
            copy.write("".join([line.text + ends[line.toolset] for line in lines[start : start + _LINES_AT_ONCE]]))


def clear_temporary(cursor: Any, name: str, columns: str) -> None:
    """Empty a temporary table of the connection; made on first use, of these columns (`… FROM table`)."""
    cursor.execute("SELECT to_regclass(%s)", [f"pg_temp.{name}"])
    if cursor.fetchone()[0] is None:
        cursor.execute(f"CREATE TEMP TABLE {name} ON COMMIT DELETE ROWS AS SELECT {columns} WITH NO DATA")
    else:
        cursor.execute(f"DELETE FROM {name}")


def _update(cursor: Any, table: _Table, lines: Sequence[Line], toolsets: Mapping[str, int]) -> None:
    """Set by id all but what stays with a row. A time that was recorded stays, if the new row has none."""
    _copy(cursor, table, lines, toolsets)
    settings = ", ".join(f"{column} = n.{column}" for column in table.columns if column not in _KEPT | _TIMES)
    cursor.execute(
        f"UPDATE {table.name} o SET {settings}, time_recorded = n.time_recorded OR o.time_recorded, "
        "started_at = CASE WHEN n.time_recorded THEN n.started_at ELSE o.started_at END "
        f"FROM {table.before} n WHERE o.tenant_id = (SELECT %s::bigint) AND o.id = n.id",
        [current_tenant_id()],
    )
