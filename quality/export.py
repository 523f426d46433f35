"""Exports as JSON lines, in constant memory whatever their size.

PostgreSQL writes the records, so evidence goes out as it was spelled. A line has no line break of any kind in it: CR,
LF and TAB are but white space in JSON and become blanks; U+0085, U+2028 and U+2029 stand inside strings only and are
escaped. The last line says how many there were, with their checksum: a file without it is cut.
"""

import datetime as dt
import hashlib
import json
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection
from django.db.models.expressions import RawSQL

from quality.calls import CallFilter, Cursor, Position, matching
from quality.export_sql import CALL_RECORD, FEEDBACK_QUERY
from tenants import audit
from tenants.models import ApiToken, Membership, Role, User
from tenants.scope import current_tenant_id, tenant_scope

MEDIA_TYPE = "application/x-ndjson"
CHUNK_BYTES = 256 * 1024
MAX_FETCH = 50  # rows a fetch; fewer when they are large, so that a chunk stays near CHUNK_BYTES
RECHECK_S = 2.0

_BEGIN = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_END = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)

# Done here and not in SQL, where looking for them takes five times as long as all the rest.
_BREAKS = {"\r": " ", "\n": " ", "\t": " ", "\x85": r"\u0085", "\u2028": r"\u2028", "\u2029": r"\u2029"}

type Lines = Generator[bytes, None, None]


@dataclass(frozen=True, kw_only=True)
class FeedbackFilter:
    """What an export of feedback is narrowed to. `since` (included) and `until` are when a label was last changed."""

    labels: tuple[str, ...] = ()
    since: dt.datetime | None = None
    until: dt.datetime | None = None


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
class _Query:
    """SQL of rows `(time, id, record)` in the order of time and id."""

    sql: str
    params: Mapping[str, Any] | Sequence[Any]


def export_feedback(*, wanted: FeedbackFilter, part: Part, actor: User, token: ApiToken | None = None) -> Lines:
    """Current labels with their calls, the one changed last at the end. Call it in the tenant's scope; the lines are
    read later, in a scope of their own."""
    after = part.cursor.position if part.cursor else Position(at=_BEGIN, id=0)
    params = {
        "tenant": current_tenant_id(),
        "labels": list(wanted.labels) or None,
        "since": wanted.since or _BEGIN,
        "until": wanted.until or _END,
        "after_at": after.at,
        "after_id": after.id,
        "limit": part.rows,
    }
    return _begin("feedback", _Query(sql=FEEDBACK_QUERY, params=params), wanted, part, actor=actor, token=token)


def export_calls(*, wanted: CallFilter, part: Part, actor: User, token: ApiToken | None = None) -> Lines:
    """Calls with arguments and results, the newest at the end. Call it in the tenant's scope; the lines are read
    later, in a scope of their own."""
    calls = matching(wanted)
    if part.cursor:
        calls = calls.filter(part.cursor.position.newer())
    record = RawSQL(CALL_RECORD, [])  # noqa: S611  (names of ours; what was asked comes in as parameters)
    rows = calls.order_by("started_at", "id").annotate(record=record).values_list("started_at", "id", "record")
    sql, params = rows[: part.rows].query.sql_with_params()
    return _begin("calls", _Query(sql=sql, params=params), wanted, part, actor=actor, token=token)


def _begin(
    kind: str, query: _Query, wanted: FeedbackFilter | CallFilter, part: Part, *, actor: User, token: ApiToken | None
) -> Lines:
    asked = {name: value for name, value in asdict(wanted).items() if value}
    audit.record(
        f"export.{kind}",
        object_type="export",
        object_id=kind,
        actor=actor,
        token=token,
        detail=json.loads(json.dumps({**asked, "limit": part.limit}, default=str)),
    )
    return _lines(current_tenant_id(), query, part.limit, actor=actor, token=token)


def _lines(tenant_id: int, query: _Query, limit: int | None, *, actor: User, token: ApiToken | None) -> Lines:
    """Chunks of lines, then the trailer. The tenant's scope is open from the first row to the last.

    Ends without a trailer when the actor may no longer export: who gets the file sees that it is cut.
    """
    digest, count, last, more = hashlib.sha256(), 0, None, False
    checked_at, size = time.monotonic(), 10
    with tenant_scope(tenant_id), connection.chunked_cursor() as cursor:
        cursor.execute(query.sql, query.params)
        while rows := cursor.fetchmany(size):
            if limit is not None and count + len(rows) > limit:
                rows, more = rows[: limit - count], True
            chunk = "".join(_one_line(record) for *_, record in rows).encode()
            if rows:
                count, last = count + len(rows), rows[-1]
                size = max(1, min(MAX_FETCH, CHUNK_BYTES * len(rows) // len(chunk)))
                digest.update(chunk)
                yield chunk
            if more:
                break
            if time.monotonic() - checked_at > RECHECK_S:
                if not _may_export(actor, token):
                    return
                checked_at = time.monotonic()
    following = str(Cursor(position=Position(at=last[0], id=last[1]))) if more and last else None
    trailer = {"recordType": "_end", "count": count, "sha256": digest.hexdigest(), "nextCursor": following}
    yield json.dumps(trailer, separators=(",", ":")).encode() + b"\n"


def _one_line(record: str) -> str:
    """No reader takes anything inside for the end of the line: neither `\\n` alone nor `str.splitlines`."""
    for found, written in _BREAKS.items():
        if found in record:
            record = record.replace(found, written)
    return f"{record}\n"


def _may_export(actor: User, token: ApiToken | None) -> bool:
    """Is the actor still an admin, and the token still good? Roles and revocations act on running exports too."""
    membership = Membership.objects.filter(user=actor, user__is_active=True).first()
    if membership is None or not membership.may(Role.ADMIN):
        return False
    return token is None or any(found.is_live for found in ApiToken.objects.filter(pk=token.pk))
