"""Keeps queues of the order "most useful next" in order: after labels, debounced, set by set.

What people said is read from the newest labels alone, and written are the entries whose place changes.
"""

import datetime as dt
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from django.db import connections, transaction
from django.utils import timezone

from quality.models import Feedback, Label, ReviewQueue
from quality.review.queues.sql import changed, rows
from quality.review.queues.usefulness import Candidate, Counts, Known, Useful, useful
from tenants.models import Tenant
from tenants.scope import current_tenant_id, tenant_scope

STEP = 2_000  # entries that one statement reads and writes
MAX_ENTRIES = 20_000  # of a queue that are put in order anew: the first ones, and the newest of the rest
WINDOW = 10_000  # labels that the rates are of, the newest ones
FRESH = 200  # entries at the front whose reasons are always those of now
WAIT_S = 10.0  # at least, between two wakings by one process
DUE_S = 30.0  # at least, between two refreshings of a queue
LEAST: Final = 10  # thousandths of a score: what changes by less stays where it is
_woken: dict[tuple[int, int], float] = {}


# --- when -------------------------------------------------------------------------------------------------------------
def wake(queue_id: int) -> None:
    """Once a label is committed, say that its queue may be in another order now. What is not said, the tick finds."""
    transaction.on_commit(partial(_publish, current_tenant_id(), queue_id))


def _publish(tenant_id: int, queue_id: int) -> None:
    from quality.tasks import publish_aside, refresh_queue

    now = time.monotonic()
    if now - _woken.get((tenant_id, queue_id), -WAIT_S) >= WAIT_S:
        _woken[tenant_id, queue_id] = now
        publish_aside(refresh_queue, tenant_id, queue_id)


def overdue(now: dt.datetime | None = None) -> list[tuple[int, int]]:
    """Tenant and id of open queues of this order that were not looked at for DUE_S. Asks as the janitor."""
    before = (now or timezone.now()) - dt.timedelta(seconds=DUE_S)
    with connections["janitor"].cursor() as cursor:
        cursor.execute(
            "SELECT tenant_id, id FROM review_queues WHERE ordering = 'useful' AND state <> 'closed' "
            "AND deleted_at IS NULL AND refreshed_at < %s ORDER BY refreshed_at LIMIT 500",
            [before],
        )
        return list(cursor.fetchall())


def run(queue_id: int, *, tenant: Tenant | int) -> int:
    """Put a queue in order if labels came in since it was; how many entries moved. Opens the tenant's scope."""
    with tenant_scope(tenant):
        now = timezone.now()
        due = ReviewQueue.objects.filter(pk=queue_id, ordering=ReviewQueue.Order.USEFUL, deleted_at__isnull=True)
        queue = due.select_for_update(skip_locked=True, no_key=True).first()
        if queue is None:
            return 0
        since = queue.refreshed_at
        ReviewQueue.objects.filter(pk=queue_id).update(refreshed_at=now)
        # Labels of transactions that were under way then were committed since: look a little further back.
        if not Feedback.objects.filter(updated_at__gte=since - dt.timedelta(seconds=30)).exists():
            return 0
        return refresh(queue)


# --- doing it ---------------------------------------------------------------------------------------------------------
def refresh(queue: ReviewQueue, *, entry_ids: Sequence[int] | None = None, facts: Known | None = None) -> int:
    """Score the open entries, or these alone, and write those that move, and the first ones, so that what is told of
    them is true; how many were written."""
    facts = facts or known()
    if entry_ids is not None:
        return _scored(queue, entry_ids, facts)
    moved = _scored(queue, None, facts)
    first = [pk for (pk,) in rows(_FIRST, {"queue": queue.pk, "limit": FRESH})]
    return max(moved, _scored(queue, first, facts))


def _scored(queue: ReviewQueue, entry_ids: Sequence[int] | None, facts: Known) -> int:
    scores: dict[Candidate, Useful] = {}
    moved = 0
    for found in _waiting(queue, entry_ids):
        ids, priorities, whys = [], [], []
        for pk, priority, candidate in found:
            score = scores.get(candidate) or scores.setdefault(candidate, useful(candidate, facts))
            if entry_ids is not None or abs(score.priority - priority) >= LEAST:
                ids.append(pk)
                priorities.append(score.priority)
                whys.append(json.dumps(score.why))
        moved += _write(ids, priorities, whys)
    return moved


_FACTS: Final = """
WITH said AS (
    SELECT f.turn_id, f.cycle, f.call_id, f.tool_name, f.label <> %(good)s AS is_bad
    FROM agent_tool_call_feedback f WHERE f.tenant_id = %(tenant)s
    ORDER BY f.updated_at DESC, f.id DESC LIMIT %(window)s
)
SELECT 'tool', s.tool_name, count(*) FILTER (WHERE s.is_bad), count(*) FILTER (WHERE NOT s.is_bad)
FROM said s GROUP BY s.tool_name
UNION ALL
SELECT 'rule', h.rule, count(*) FILTER (WHERE s.is_bad), count(*) FILTER (WHERE NOT s.is_bad)
FROM said s CROSS JOIN LATERAL (
    SELECT DISTINCT h.rule FROM agent_tool_call_hints h
    WHERE s.call_id IS NOT NULL AND h.tenant_id = %(tenant)s AND h.call_id = s.call_id
    UNION
    SELECT DISTINCT h.rule FROM agent_tool_call_hints h
    WHERE s.call_id IS NULL AND h.tenant_id = %(tenant)s AND h.turn_id = s.turn_id AND h.call_id IS NULL
) h GROUP BY h.rule
"""


def known() -> Known:
    """What people said so far, of the newest WINDOW labels; one query."""
    rules: dict[str, Counts] = {}
    tools: dict[str, Counts] = {}
    for kind, name, bad, good in rows(_FACTS, {"good": Label.GOOD_REPLY, "window": WINDOW}):
        (rules if kind == "rule" else tools)[name] = Counts(bad, good)
    return Known(
        rules=rules,
        tools=tools,
        all=Counts(sum(one.bad for one in tools.values()), sum(one.good for one in tools.values())),
    )


_WAITING: Final = """
SELECT e.id, e.priority, e.tool_name,
    coalesce((SELECT array_agg(DISTINCT h.rule ORDER BY h.rule) FROM agent_tool_call_hints h
        WHERE h.tenant_id = e.tenant_id AND e.call_id IS NOT NULL AND h.call_id = e.call_id),
        (SELECT array_agg(DISTINCT h.rule ORDER BY h.rule) FROM agent_tool_call_hints h
        WHERE h.tenant_id = e.tenant_id AND e.call_id IS NULL AND h.turn_id = e.turn_id AND h.call_id IS NULL),
        '{}'),
    (SELECT count(DISTINCT f.label) FROM agent_tool_call_feedback f
        WHERE f.tenant_id = e.tenant_id AND f.turn_id = e.turn_id
            AND (f.call_id = e.call_id OR e.call_id IS NULL AND f.call_id IS NULL AND f.cycle = e.cycle))
FROM unnest(%(ids)s::bigint[]) i(id) JOIN review_queue_entries e ON e.tenant_id = %(tenant)s AND e.id = i.id
"""
_FIRST: Final = """
SELECT id FROM review_queue_entries WHERE tenant_id = %(tenant)s AND queue_id = %(queue)s AND state = 'open'
ORDER BY priority DESC, started_at DESC, id DESC LIMIT %(limit)s
"""
_IDS: Final = """
(SELECT id FROM review_queue_entries WHERE tenant_id = %(tenant)s AND queue_id = %(queue)s AND state = 'open'
    ORDER BY priority DESC, started_at DESC, id DESC LIMIT %(half)s)
UNION
(SELECT id FROM review_queue_entries WHERE tenant_id = %(tenant)s AND queue_id = %(queue)s AND state = 'open'
    ORDER BY id DESC LIMIT %(half)s)
"""


def _waiting(queue: ReviewQueue, entry_ids: Sequence[int] | None) -> Iterator[list[tuple[int, int, Candidate]]]:
    """Id, priority and candidate of entries, step by step."""
    if entry_ids is None:
        ids = [pk for (pk,) in rows(_IDS, {"queue": queue.pk, "half": MAX_ENTRIES // 2})]
    else:
        ids = list(entry_ids)
    for begin in range(0, len(ids), STEP):
        found = rows(_WAITING, {"ids": ids[begin : begin + STEP]})
        yield [(pk, priority, Candidate(tool, tuple(rules), kinds)) for pk, priority, tool, rules, kinds in found]


_WRITE: Final = """
UPDATE review_queue_entries e SET priority = p.priority, why = p.why::jsonb
FROM unnest(%(ids)s::bigint[], %(priorities)s::int[], %(whys)s::text[]) p(id, priority, why)
WHERE e.tenant_id = %(tenant)s AND e.id = p.id AND e.state = 'open'
"""


def _write(ids: list[int], priorities: list[int], whys: list[Any]) -> int:
    return changed(_WRITE, {"ids": ids, "priorities": priorities, "whys": whys}) if ids else 0
