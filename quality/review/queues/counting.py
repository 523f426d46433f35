"""What the assignments of entries come to: distinct reviewers, done or open, and whether all said the same."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quality.review.queues.sql import changed, rows


@dataclass(frozen=True, slots=True)
class Standing:
    """An entry after it was counted."""

    entry_id: int
    queue_id: int
    state: str
    agreed: bool | None


_RECOUNT: Final = """
UPDATE review_queue_entries e SET
    num_labels = c.num_labels,
    agreed = CASE WHEN c.num_labels >= e.labels_needed AND c.num_labels > 1 THEN c.kinds = 1 END,
    state = CASE WHEN e.state = 'removed' THEN e.state WHEN c.num_labels >= e.labels_needed THEN 'done' ELSE 'open' END,
    done_at = CASE WHEN c.num_labels >= e.labels_needed THEN coalesce(e.done_at, %(now)s) END
FROM (
    SELECT i.id, count(DISTINCT a.reviewer_id) AS num_labels, count(DISTINCT a.label) AS kinds
    FROM unnest(%(ids)s::bigint[]) i(id) LEFT JOIN review_assignments a
        ON a.tenant_id = %(tenant)s AND a.entry_id = i.id AND a.state = 'labelled'
    GROUP BY i.id
) c
WHERE e.tenant_id = %(tenant)s AND e.id = c.id
RETURNING e.id, e.queue_id, e.state, e.agreed
"""


def recount(entry_ids: Sequence[int], now: dt.datetime) -> list[Standing]:
    """Count the reviewers of these entries anew; how each stands then."""
    if not entry_ids:
        return []
    found = rows(_RECOUNT, {"ids": list(entry_ids), "now": now})
    return [Standing(*row) for row in found]


_EARLIER: Final = """
INSERT INTO review_assignments
    (tenant_id, entry_id, queue_id, reviewer_id, state, label, note, created_at, updated_at)
SELECT e.tenant_id, e.id, e.queue_id, f.reviewer_id, 'labelled', f.label, '', f.updated_at, f.updated_at
FROM unnest(%(ids)s::bigint[]) i(id)
JOIN review_queue_entries e ON e.tenant_id = %(tenant)s AND e.id = i.id
JOIN review_queues q ON q.tenant_id = e.tenant_id AND q.id = e.queue_id AND q.counts_earlier
JOIN agent_tool_call_feedback f ON f.tenant_id = e.tenant_id AND f.turn_id = e.turn_id
    AND (f.call_id = e.call_id OR e.call_id IS NULL AND f.call_id IS NULL AND f.cycle = e.cycle)
WHERE q.for_everyone OR EXISTS (
    SELECT FROM review_queue_reviewers r
    WHERE r.tenant_id = q.tenant_id AND r.queue_id = q.id AND r.reviewer_id = f.reviewer_id)
ON CONFLICT (tenant_id, entry_id, reviewer_id) DO NOTHING
"""


def count_earlier(entry_ids: Sequence[int], now: dt.datetime) -> list[Standing]:
    """Let labels count that the items of new entries had before, where their queue wants it so."""
    if entry_ids and changed(_EARLIER, {"ids": list(entry_ids)}):
        return recount(entry_ids, now)
    return []
