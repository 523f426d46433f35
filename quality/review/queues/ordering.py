"""What is served first: the priority of entries by their queue's order, set by set."""

from collections.abc import Sequence
from typing import Final

from quality.models import ReviewQueue
from quality.review.queues.sql import changed, rows

Order = ReviewQueue.Order

_ERRORS: Final = """CASE WHEN e.call_id IS NULL
    THEN EXISTS (SELECT FROM agent_turns t WHERE t.tenant_id = e.tenant_id AND t.id = e.turn_id AND t.state = 'failed')
    ELSE EXISTS (SELECT FROM agent_tool_calls c WHERE c.tenant_id = e.tenant_id AND c.id = e.call_id AND c.is_error)
    END::int"""
_HINTS: Final = """CASE WHEN e.call_id IS NULL
    THEN (SELECT count(DISTINCT h.rule) FROM agent_tool_call_hints h
        WHERE h.tenant_id = e.tenant_id AND h.turn_id = e.turn_id AND h.call_id IS NULL)
    ELSE (SELECT count(DISTINCT h.rule) FROM agent_tool_call_hints h
        WHERE h.tenant_id = e.tenant_id AND h.call_id = e.call_id)
    END::int"""
_BY_EACH: Final = """
UPDATE review_queue_entries e SET priority = p.priority, why = '{}'
FROM (
    SELECT e.id, %s AS priority FROM review_queue_entries e
    WHERE e.tenant_id = %%(tenant)s AND e.queue_id = %%(queue)s AND e.state = 'open'
        AND (%%(ids)s::bigint[] IS NULL OR e.id = ANY(%%(ids)s))
) p
WHERE e.tenant_id = %%(tenant)s AND e.id = p.id AND e.priority <> p.priority
"""
# A tool's entries follow one another in turns with those of the other tools: first each tool's first, then the second.
_SPREAD: Final = """
UPDATE review_queue_entries e SET priority = p.priority, why = '{}'
FROM (
    SELECT x.id, -(coalesce(b.number, 0) + row_number() OVER (
        PARTITION BY x.tool_name ORDER BY x.started_at DESC, x.id DESC)) AS priority
    FROM review_queue_entries x LEFT JOIN (
        SELECT o.tool_name, count(*) AS number FROM review_queue_entries o
        WHERE o.tenant_id = %(tenant)s AND o.queue_id = %(queue)s
            AND (o.state <> 'open' OR %(ids)s::bigint[] IS NOT NULL AND o.id <> ALL(%(ids)s))
        GROUP BY o.tool_name
    ) b ON b.tool_name = x.tool_name
    WHERE x.tenant_id = %(tenant)s AND x.queue_id = %(queue)s AND x.state = 'open'
        AND (%(ids)s::bigint[] IS NULL OR x.id = ANY(%(ids)s))
) p
WHERE e.tenant_id = %(tenant)s AND e.id = p.id AND e.priority <> p.priority
"""
_STATEMENTS: Final = {
    Order.NEWEST: _BY_EACH % "0",
    Order.ERRORS: _BY_EACH % _ERRORS,
    Order.HINTS: _BY_EACH % _HINTS,
    Order.SPREAD: _SPREAD,
}


def put_in_order(queue: ReviewQueue, entry_ids: Sequence[int] | None = None) -> int:
    """Set the priority of the open entries, of these alone if some are named; how many changed."""
    if entry_ids is not None and (not entry_ids or queue.ordering == Order.NEWEST):
        return 0  # new ones begin with 0
    if queue.ordering == Order.USEFUL:
        from quality.review.queues import refreshing

        return refreshing.refresh(queue, entry_ids=entry_ids)
    params = {"queue": queue.pk, "ids": None if entry_ids is None else list(entry_ids)}
    return changed(_STATEMENTS[Order(queue.ordering)], params)


def tools_of(queue: ReviewQueue) -> list[str]:
    """Names of the tools of a queue's entries, by name: one index probe each."""
    step = "SELECT min(tool_name) FROM review_queue_entries WHERE tenant_id = %(tenant)s AND queue_id = %(queue)s"
    found = rows(
        f"WITH RECURSIVE seen(value) AS (({step}) UNION ALL "  # noqa: S608  (no input)
        f"SELECT ({step} AND tool_name > seen.value) FROM seen WHERE seen.value IS NOT NULL) "
        "SELECT value FROM seen WHERE value <> ''",
        {"queue": queue.pk},
    )
    return [name for (name,) in found]
