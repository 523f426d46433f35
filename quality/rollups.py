"""Calls counted by the hour: kept in the background, read exactly. Needs an open tenant scope, but for `waiting`.

Triggers mark the hours that writers touch (`touched_hours`). A reader takes the count of an hour that is not marked,
and counts the calls of one that is, in one statement: so what is told is true to the last committed call, whether the
counting keeps up or not.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection, connections, transaction
from django.utils import timezone

from quality.calls import CallFilter
from tenants.scope import current_tenant_id

HOUR: Final = dt.timedelta(hours=1)
HOURS_AT_ONCE: Final = 200
LOCK: Final = 0x51A1_0000  # of an advisory lock; the tenant is its second half

# What an Overview narrows by. A filter that asks for more is counted call by call.
_COLUMNS: Final = {
    "tools": "tool_name = ANY(%(tools)s)",
    "style": "style_id = %(style)s",
    "model": "model = %(model)s",
    "source": "source = %(source)s",
    "toolset": "toolset_id = (SELECT id FROM agent_toolsets WHERE tenant_id = %(tenant)s AND sha256 = %(toolset)s)",
}
# Both ends of the period stand as they are: of `greatest` and `least` the planner expects a third of all calls each,
# and reads the table from end to end for a single hour.
_READ: Final = """
WITH marked AS (
    SELECT hour FROM touched_hours WHERE tenant_id = %(tenant)s AND hour >= %(floor)s AND hour < %(until)s
    UNION SELECT hour FROM unnest(%(edges)s::timestamptz[]) e(hour)
), counted AS (
    SELECT hour, {key} AS key, num_calls, num_errors, num_outcomes FROM call_hours h
    WHERE tenant_id = %(tenant)s AND hour >= %(since)s AND hour < %(until)s {narrowed}
        AND NOT EXISTS (SELECT FROM marked m WHERE m.hour = h.hour)
    UNION ALL
    SELECT m.hour, c.* FROM marked m CROSS JOIN LATERAL (
        SELECT {key} AS key, count(*), count(*) FILTER (WHERE is_error), count(is_error) FROM agent_tool_calls
        WHERE tenant_id = %(tenant)s AND started_at >= m.hour AND started_at < m.hour + interval '1 hour'
            AND started_at >= %(since)s AND started_at < %(until)s {narrowed}
        GROUP BY 1
    ) c
)
SELECT {bucket}, key, sum(num_calls)::bigint, sum(num_errors)::bigint, sum(num_outcomes)::bigint
FROM counted GROUP BY 1, 2
"""
_COUNT: Final = """
INSERT INTO call_hours
    (tenant_id, hour, tool_name, style_id, model, source, toolset_id, num_calls, num_errors, num_outcomes)
SELECT %(tenant)s, h.hour, c.* FROM unnest(%(hours)s::timestamptz[]) h(hour) CROSS JOIN LATERAL (
    SELECT tool_name, style_id, model, source, toolset_id,
        count(*), count(*) FILTER (WHERE is_error), count(is_error)
    FROM agent_tool_calls
    WHERE tenant_id = %(tenant)s AND started_at >= h.hour AND started_at < h.hour + interval '1 hour'
    GROUP BY 1, 2, 3, 4, 5
) c
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """Calls of one day (None: of the whole period) and one tool (empty: of all of them)."""

    day: dt.date | None = None
    key: str = ""
    num_calls: int
    num_errors: int
    num_outcomes: int


def by_tool(period: CallFilter) -> list[Count]:
    """The calls of a period (with both ends), by tool."""
    rows = _read(period, bucket="NULL::date", key="tool_name")
    return [Count(key=key, num_calls=calls, num_errors=errors, num_outcomes=out) for _, key, calls, errors, out in rows]


def by_day(period: CallFilter, *, by: str = "") -> list[Count]:
    """The same by day of the viewer's zone, and by `tool_name`, `style_id` or `model` if `by` says so.

    Hours are whole hours of UTC. Where the zone is off by a part of one, calls are counted one by one.
    """
    assert by in ("", "tool_name", "style_id", "model")
    zone = timezone.get_current_timezone_name()
    rows = _read(
        period,
        bucket="(hour AT TIME ZONE %(zone)s)::date",
        key=by or "''::text",
        zone=zone,
        exact=not _is_whole_hours(period),
    )
    return [
        Count(day=day, key=key, num_calls=calls, num_errors=errors, num_outcomes=outcomes)
        for day, key, calls, errors, outcomes in sorted(rows)
    ]


_ONE_BY_ONE: Final = """
SELECT (started_at AT TIME ZONE %(zone)s)::date, {key} AS key,
    count(*), count(*) FILTER (WHERE is_error), count(is_error)
FROM agent_tool_calls
WHERE tenant_id = %(tenant)s AND started_at >= %(since)s AND started_at < %(until)s {narrowed}
GROUP BY 1, 2
"""


def _read(period: CallFilter, *, bucket: str, key: str, exact: bool = False, **more: Any) -> list[tuple[Any, ...]]:
    assert period.since
    assert period.until
    since, until = period.since.astimezone(dt.UTC), period.until.astimezone(dt.UTC)
    floor, last = _floor(since), _floor(until)
    given = {name: value for name in _COLUMNS if (value := getattr(period, name))}
    narrowed = "".join(f" AND {_COLUMNS[name]}" for name in given)
    edges = [hour for hour, moment in ((floor, since), (last, until)) if hour != moment]
    asked = {"tenant": current_tenant_id(), "since": since, "until": until, "floor": floor, "edges": edges, **given}
    if "tools" in given:
        asked["tools"] = list(period.tools)
    statement = _ONE_BY_ONE if exact else _READ
    with connection.cursor() as cursor:
        cursor.execute(statement.format(bucket=bucket, key=key, narrowed=narrowed), asked | more)
        return cursor.fetchall()


def _floor(moment: dt.datetime) -> dt.datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _is_whole_hours(period: CallFilter) -> bool:
    """Do the viewer's days begin at full hours of UTC, all through the period?"""
    zone = timezone.get_current_timezone()
    assert period.since
    assert period.until
    days = (period.until - period.since).days + 1
    moments = (period.since + dt.timedelta(days=number) for number in range(0, days + 1, 7))
    return all((offset := zone.utcoffset(one)) is not None and not offset % HOUR for one in (*moments, period.until))


# --- keeping ---------------------------------------------------------------------------------------------------------


@transaction.atomic
def count_marked(*, limit: int = HOURS_AT_ONCE) -> bool:
    """Count marked hours anew, the newest first; true if there are more."""
    tenant = current_tenant_id()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [LOCK, tenant % 2**31])
        if not cursor.fetchone()[0]:
            return False  # another worker is at it
        cursor.execute(
            "SELECT DISTINCT hour FROM touched_hours WHERE tenant_id = %s ORDER BY hour DESC LIMIT %s",
            [tenant, limit + 1],
        )
        found = [hour for (hour,) in cursor.fetchall()]
        hours = found[:limit]
        # Marks first, then calls: what is committed between the two is counted and stays marked, and is counted again.
        cursor.execute("DELETE FROM touched_hours WHERE tenant_id = %s AND hour = ANY(%s)", [tenant, hours])
        _count(hours)
    return len(found) > limit


def _count(hours: Sequence[dt.datetime]) -> None:
    asked: dict[str, Any] = {"tenant": current_tenant_id(), "hours": list(hours)}
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM call_hours WHERE tenant_id = %(tenant)s AND hour = ANY(%(hours)s)", asked)
        cursor.execute(_COUNT, asked)


def waiting() -> list[int]:
    """Tenants with marked hours."""
    with connections["janitor"].cursor() as cursor:
        cursor.execute("SELECT DISTINCT tenant_id FROM touched_hours")
        return [tenant_id for (tenant_id,) in cursor.fetchall()]


@transaction.atomic
def rebuild() -> int:
    """Mark every hour that has calls or counts, to be counted anew; how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO touched_hours (tenant_id, hour) "
            "SELECT %(tenant)s, hour FROM call_hours WHERE tenant_id = %(tenant)s "
            "UNION SELECT %(tenant)s, date_trunc('hour', started_at, 'UTC') FROM agent_tool_calls "
            "WHERE tenant_id = %(tenant)s",
            {"tenant": current_tenant_id()},
        )
        return int(cursor.rowcount)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """An hour whose count is not what its calls say; None: there is no row."""

    hour: dt.datetime
    tool_name: str
    counted: int | None
    actual: int | None


def differences(*, limit: int = 20) -> list[Difference]:
    """Where counts of hours that are not marked differ from the calls; none, if all is well. Reads all calls."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH actual AS (
                SELECT date_trunc('hour', started_at, 'UTC') AS hour, tool_name, style_id, model, source, toolset_id,
                    count(*) AS calls, count(*) FILTER (WHERE is_error) AS errors, count(is_error) AS outcomes
                FROM agent_tool_calls WHERE tenant_id = %(tenant)s GROUP BY 1, 2, 3, 4, 5, 6
            )
            SELECT coalesce(a.hour, h.hour), coalesce(a.tool_name, h.tool_name), h.num_calls, a.calls
            FROM (SELECT * FROM call_hours WHERE tenant_id = %(tenant)s) h FULL JOIN actual a
                ON a.hour = h.hour AND a.tool_name = h.tool_name AND a.style_id = h.style_id AND a.model = h.model
                AND a.source = h.source AND coalesce(a.toolset_id, 0) = coalesce(h.toolset_id, 0)
            WHERE (h.num_calls, h.num_errors, h.num_outcomes) IS DISTINCT FROM (a.calls, a.errors, a.outcomes)
                AND NOT EXISTS (SELECT FROM touched_hours t
                    WHERE t.tenant_id = %(tenant)s AND t.hour = coalesce(a.hour, h.hour))
            ORDER BY 1, 2 LIMIT %(limit)s
            """,
            {"tenant": current_tenant_id(), "limit": limit},
        )
        return [
            Difference(hour=hour, tool_name=tool, counted=counted, actual=actual)
            for hour, tool, counted, actual in cursor.fetchall()
        ]
