"""Exports of calls, feedback, cases and proposals: as JSON lines, feedback also as CSV; in constant memory whatever
their size.

PostgreSQL writes the records, so evidence goes out as it was spelled, in an order that stays. A line has no line break
of any kind in it (`export_lines`). The last line says how many there were, with their checksum: a file without it is
cut. One server-side cursor reads them, so all of an export is as of one moment.
"""

import datetime as dt
import hashlib
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models.expressions import RawSQL
from psycopg.errors import QueryCanceled

from quality.calls import CallFilter, Cursor, Position, matching
from quality.export_csv import sheet_head, sheet_row
from quality.export_lines import one_line
from quality.export_sql import (
    CASES,
    FEEDBACK,
    FEEDBACK_CELLS,
    FEEDBACK_SHEET,
    LABEL,
    PROPOSALS,
    Table,
    call_record,
    call_stamp,
    label_seen_by,
)
from quality.privacy.exported import masked_cells, masked_record
from quality.review import blind
from quality.review.queues import waiting
from tenants import audit, masks
from tenants.masking.masker import Masker
from tenants.models import ApiToken, Membership, Role, Tenant, User
from tenants.scope import current_tenant_id, tenant_scope

MEDIA_TYPE = "application/x-ndjson"
CSV_MEDIA_TYPE = "text/csv; charset=utf-8"
SCHEMA_VERSION = 1
CHUNK_BYTES = 256 * 1024
MAX_FETCH = 50  # rows a fetch; fewer when they are large, so that a chunk stays near CHUNK_BYTES
RECHECK_S = 2.0
TAG_LIMIT_S = 3.0  # an entity tag that takes longer is not given

_BEGIN = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_END = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)

type Lines = Generator[bytes, None, None]


class ExportStopped(Exception):
    """Who asked for the export may no longer have it."""


@dataclass(frozen=True, kw_only=True)
class FeedbackFilter:
    """What an export of feedback is narrowed to. `since` (included) and `until` are when a label was last changed."""

    labels: tuple[str, ...] = ()
    since: dt.datetime | None = None
    until: dt.datetime | None = None


@dataclass(frozen=True, kw_only=True)
class CaseFilter:
    """What an export of cases is narrowed to; several values of one field mean any of them."""

    statuses: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProposalFilter(CaseFilter):
    """The same of proposals."""


type Filter = CallFilter | FeedbackFilter | CaseFilter

KINDS: dict[str, type] = {
    "calls": CallFilter,
    "feedback": FeedbackFilter,
    "cases": CaseFilter,
    "proposals": ProposalFilter,
}
FILE_NAMES = {
    "calls": "tool-calls",
    "feedback": "tool-call-feedback",
    "cases": "tool-call-regression-cases",
    "proposals": "improvement-proposals",
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which part: at most `limit` records (None: all), from `cursor` on."""

    limit: int | None = None
    cursor: Cursor | None = None

    @property
    def rows(self) -> int | None:
        """One row more than asked for tells whether there are more."""
        return None if self.limit is None else self.limit + 1


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be exported. `as_csv` is for feedback alone; `viewer` is from whom blind queues keep others' labels
    (`as_seen`)."""

    wanted: Filter
    part: Part = Part()
    as_csv: bool = False
    viewer: int | None = None

    @property
    def kind(self) -> str:
        return next(kind for kind, filter_class in KINDS.items() if type(self.wanted) is filter_class)

    @property
    def filename(self) -> str:
        return f"{FILE_NAMES[self.kind]}.{'csv' if self.as_csv else 'jsonl'}"

    @property
    def media_type(self) -> str:
        return CSV_MEDIA_TYPE if self.as_csv else MEDIA_TYPE


@dataclass(frozen=True, kw_only=True)
class Reader:
    """For whom it is."""

    actor: User
    token: ApiToken | None = None

    def may_export(self) -> bool:
        """Still an admin, and the token still good? Roles and revocations act on running exports too."""
        membership = Membership.objects.filter(user=self.actor, user__is_active=True).first()
        if membership is None or not membership.may(Role.ADMIN):
            return False
        return self.token is None or any(found.is_live for found in ApiToken.objects.filter(pk=self.token.pk))


@dataclass(slots=True)
class Written:
    """How far an export is. `complete`: all of it was given out. `masks`: names of the rules that it went through."""

    num: int = 0
    complete: bool = False
    masks: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class _Query:
    """SQL of rows `(time, id, what)` in the order of the export."""

    sql: str
    params: Sequence[Any]


def as_seen(order: Order, user: User) -> Order:
    """The order as this user may have it: labels that a blind queue keeps from him are left out. In the open scope."""
    if isinstance(order.wanted, CallFilter):
        order = replace(order, wanted=blind.seen_by(order.wanted, user))
    return replace(order, viewer=waiting.viewer_of(user))


def masker_of(reader: Reader) -> Masker | None:
    """What an export goes through that is made for this reader now, in the open scope."""
    tenant = Tenant.objects.filter(pk=current_tenant_id()).first()
    if tenant is None or not tenant.masks_stamp:  # none: deleted meanwhile, and its rows with it
        return None
    membership = Membership.objects.filter(user=reader.actor).first()
    return masks.for_export(tenant, Role(membership.role) if membership else None)


def audited(order: Order, reader: Reader, *, action: str = "", **detail: Any) -> None:
    """Write down, in the open scope, who exports what (`export.<kind>`), or another `action` on it."""
    asked = {name: value for name, value in asdict(order.wanted).items() if value and name != "viewer"}
    facts = {**asked, "limit": order.part.limit, **({"format": "csv"} if order.as_csv else {}), **detail}
    audit.record(
        action or f"export.{order.kind}",
        object_type="export",
        object_id=order.kind,
        actor=reader.actor,
        token=reader.token,
        detail=json.loads(json.dumps(facts, default=str)),
    )


def lines(
    order: Order, *, tenant_id: int, reader: Reader, tagged: bool = False, written: Written | None = None
) -> Lines:
    """Chunks of lines, then the trailer. The tenant's scope is open from the first row to the last.

    `tagged`: the first piece is the entity tag of what follows, empty if it would take too long to tell.

    JSON lines end without a trailer when the reader may no longer export, so that who gets the file sees that it is
    cut. A CSV file has none, so there ExportStopped is raised and the connection breaks off. `written` follows it.
    """
    written = written or Written()
    with tenant_scope(tenant_id):
        order = as_seen(order, reader.actor)
        masker = masker_of(reader)
        written.masks = masker.names if masker else ()
        if tagged:
            with connection.chunked_cursor() as cursor:
                tag = _begin_tagged(cursor, order, masker)
                yield tag
                if tag:
                    yield from _pieces(cursor, order, reader, masker, written)
                    return
        with connection.chunked_cursor() as cursor:
            query = _query(order, "record")
            cursor.execute(query.sql, query.params)
            yield from _pieces(cursor, order, reader, masker, written)


def _pieces(cursor: CursorWrapper, order: Order, reader: Reader, masker: Masker | None, written: Written) -> Lines:
    limit, write = order.part.limit, _writer(order, masker)
    digest, last, more = hashlib.sha256(), None, False
    checked_at, size = time.monotonic(), 10
    if order.as_csv:
        yield sheet_head(FEEDBACK_CELLS).encode()
    while rows := cursor.fetchmany(size):
        if limit is not None and written.num + len(rows) > limit:
            rows, more = rows[: limit - written.num], True
        chunk = "".join(write(what) for *_, what in rows).encode()
        if rows:
            written.num, last = written.num + len(rows), rows[-1]
            size = max(1, min(MAX_FETCH, CHUNK_BYTES * len(rows) // len(chunk)))
            digest.update(chunk)
            yield chunk
        if more:
            break
        if time.monotonic() - checked_at > RECHECK_S:
            if not reader.may_export():
                if order.as_csv:
                    raise ExportStopped("Who asked for this export may no longer have it.")
                return
            checked_at = time.monotonic()
    written.complete = True
    if order.as_csv:
        return
    following = str(Cursor(position=Position(at=last[0], id=last[1]))) if more and last else None
    trailer = {"recordType": "_end", "count": written.num, "sha256": digest.hexdigest(), "nextCursor": following}
    yield json.dumps(trailer, separators=(",", ":")).encode() + b"\n"


def _writer(order: Order, masker: Masker | None) -> Callable[[Any], str]:
    if masker is None:
        return sheet_row if order.as_csv else one_line
    if order.as_csv:
        names = list(FEEDBACK_CELLS)
        return lambda cells: sheet_row(masked_cells(names, cells, masker))
    return lambda record: one_line(masked_record(record, kind=order.kind, masker=masker))


def count(order: Order, *, cap: int) -> int:
    """How many records match; `cap` + 1 stands for "more than cap". In the open scope."""
    if isinstance(order.wanted, CallFilter):
        return matching(order.wanted).order_by().values("pk")[: cap + 1].count()
    table = _TABLES[order.kind]
    with connection.cursor() as cursor:
        cursor.execute(table.count(), _named(order) | {"limit": cap + 1})
        ((number,),) = cursor.fetchall()
    return int(number)


def example(order: Order, reader: Reader) -> str | None:
    """The first line that an export would have, without its end. In the open scope."""
    query = _query(replace(order, part=Part(limit=1)), "record")
    with connection.cursor() as cursor:
        cursor.execute(query.sql, query.params)
        row = cursor.fetchone()
    return None if row is None else _writer(order, masker_of(reader))(row[2]).rstrip("\r\n")


_TABLES: dict[str, Table] = {"feedback": FEEDBACK, "cases": CASES, "proposals": PROPOSALS}


def _query(order: Order, what: str) -> _Query:
    """The query of records (`record`) or of their stamps (`stamp`). Stamps of all rows need no order."""
    is_sorted = what == "record" or order.part.limit is not None
    if isinstance(order.wanted, CallFilter):
        label = LABEL if order.viewer is None else label_seen_by(order.viewer)
        write = call_record if what == "record" else call_stamp
        return _query_of_calls(order, write(label), is_sorted=is_sorted)
    table = FEEDBACK_SHEET if order.as_csv else _TABLES[order.kind]
    return _positional(table.select(getattr(table, what), is_sorted=is_sorted), _named(order))


def _query_of_calls(order: Order, expression: str, *, is_sorted: bool) -> _Query:
    assert isinstance(order.wanted, CallFilter)
    calls = matching(order.wanted)
    if order.part.cursor:
        calls = calls.filter(order.part.cursor.position.newer())
    what = RawSQL(expression, [])  # noqa: S611  (names of ours; what was asked comes in as parameters)
    rows = (
        calls.order_by(*(("started_at", "id") if is_sorted else ()))
        .annotate(what=what)
        .values_list("started_at", "id", "what")
    )
    sql, params = rows[: order.part.rows].query.sql_with_params()
    return _Query(sql=sql, params=params)


def _named(order: Order) -> dict[str, Any]:
    """The parameters of a table's SQL."""
    after = order.part.cursor.position if order.part.cursor else Position(at=_BEGIN, id=0)
    named: dict[str, Any] = {
        "tenant": current_tenant_id(),
        "after_at": after.at,
        "after_id": after.id,
        "limit": order.part.rows,
        "viewer": order.viewer,
    }
    for name, value in vars(order.wanted).items():
        named[name] = (list(value) or None) if isinstance(value, tuple) else value
    if isinstance(order.wanted, FeedbackFilter):
        named |= {"since": order.wanted.since or _BEGIN, "until": order.wanted.until or _END}
    return named


def _positional(sql: str, named: Mapping[str, Any]) -> _Query:
    """The same with parameters by position, so that two such queries can be put together."""
    pieces, params = [], []
    for at, piece in enumerate(sql.split("%(")):
        if at:
            name, _, piece = piece.partition(")s")  # noqa: PLW2901
            params.append(named[name])
            pieces.append("%s")
        pieces.append(piece)
    return _Query(sql="".join(pieces), params=params)


def _begin_tagged(cursor: CursorWrapper, order: Order, masker: Masker | None) -> bytes:
    """Begin the export in `cursor`, and give the entity tag of what the cursor holds; empty (and nothing begun) if the
    tag takes longer than TAG_LIMIT_S.

    Why it is strong. The bytes of an export follow from three things: how it is written (the text of the SQL, this
    format's version, the rules of masking), what was asked (the parameters), and the rows, each of whose stamps is
    another one whenever its record is; order and number of rows follow from the rows. All of them are hashed. Tag and
    rows come from one statement and so from one snapshot: a row that comes and goes between two statements could else
    leave a client with the tag of what it never got. The rows' hashes are added up, 128 bits wide, so that nothing need
    be sorted or kept. It costs a walk over the rows that reads no evidence: long values lie outside of the row.
    """
    records, stamps = _query(order, "record"), _query(order, "stamp")
    sums = ", ".join(f"coalesce(sum(hashtextextended(id || ' ' || stamp, {seed})), 0)" for seed in (0, 1))
    sql = (
        f"SELECT NULL::timestamptz, NULL::bigint, (SELECT concat_ws(' ', count(*), {sums}) "  # noqa: S608
        f"FROM ({stamps.sql}) stamped(at, id, stamp)) UNION ALL ({records.sql})"
    )
    try:
        with transaction.atomic():
            with connection.cursor() as plain:
                plain.execute("SELECT set_config('statement_timeout', %s, true)", [f"{TAG_LIMIT_S * 1000:.0f}"])
            try:
                cursor.execute(sql, [*stamps.params, *records.params])
                ((*_, rows),) = cursor.fetchmany(1)
            except OperationalError:
                cursor.close()  # now, when it knows that there is nothing left to close
                raise
            with connection.cursor() as plain:
                plain.execute("SELECT set_config('statement_timeout', '0', true)")
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            return b""
        raise
    parts = [SCHEMA_VERSION, records.sql, records.params, rows, *([masker.sha256] if masker else [])]
    written = json.dumps(parts, default=str)
    return f'"{hashlib.sha256(written.encode()).hexdigest()[:40]}"'.encode()
