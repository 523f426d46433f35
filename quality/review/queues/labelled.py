"""What a label means to the entries of its item. Labelling calls `after` in its own transaction, once for each label
and each undo; the items that no queue has cost one probe of an index."""

import datetime as dt
from typing import Final

from quality.models import Feedback, FeedbackEvent, ReviewQueue
from quality.review.items import Item
from quality.review.queues import adjudication, counting, refreshing
from quality.review.queues.claiming import lifetime
from quality.review.queues.sql import changed, rows

_ENTRIES: Final = """
SELECT e.id, q.id, q.ordering
FROM review_queue_entries e JOIN review_queues q ON q.tenant_id = e.tenant_id AND q.id = e.queue_id
LEFT JOIN review_assignments a ON a.tenant_id = e.tenant_id AND a.entry_id = e.id AND a.reviewer_id = %(reviewer)s
WHERE e.tenant_id = %(tenant)s AND {item} AND e.state <> 'removed' AND q.deleted_at IS NULL
    AND (a.id IS NOT NULL OR e.state = 'open' AND q.state <> 'closed' AND (q.for_everyone OR EXISTS (
        SELECT FROM review_queue_reviewers r
        WHERE r.tenant_id = q.tenant_id AND r.queue_id = q.id AND r.reviewer_id = %(reviewer)s)))
ORDER BY e.id FOR NO KEY UPDATE OF e
"""
_OF_CALL: Final = _ENTRIES.format(item="e.call_id = %(call)s")
_OF_TURN: Final = _ENTRIES.format(item="e.turn_id = %(turn)s AND e.cycle = %(cycle)s AND e.call_id IS NULL")
_LABELLED: Final = """
INSERT INTO review_assignments AS a
    (tenant_id, entry_id, queue_id, reviewer_id, state, label, note, created_at, updated_at)
SELECT %(tenant)s, e.id, e.queue_id, %(reviewer)s, 'labelled', %(label)s, '', %(now)s, %(now)s
FROM review_queue_entries e WHERE e.tenant_id = %(tenant)s AND e.id = ANY(%(ids)s)
ON CONFLICT (tenant_id, entry_id, reviewer_id) DO UPDATE SET state = 'labelled', label = EXCLUDED.label,
    seconds = CASE WHEN a.state = 'claimed'
        THEN least(extract(epoch FROM EXCLUDED.updated_at - a.updated_at), 3600)::int ELSE a.seconds END,
    expires_at = NULL,
    updated_at = CASE WHEN a.state = 'labelled' THEN a.updated_at ELSE EXCLUDED.updated_at END
"""
_TAKEN_BACK: Final = """
UPDATE review_assignments SET state = 'claimed', label = NULL, expires_at = %(until)s, updated_at = %(now)s
WHERE tenant_id = %(tenant)s AND entry_id = ANY(%(ids)s) AND reviewer_id = %(reviewer)s AND state = 'labelled'
"""


def after(event: FeedbackEvent, item: Item, now: dt.datetime) -> None:
    """Bring the entries of an item up to what the reviewer of this event says of it now: a label is his answer there,
    without one he holds the entry again. A label that is there already changes nothing."""
    of = {"call": item.call_id, "turn": item.turn_id, "cycle": item.cycle, "reviewer": event.reviewer_id}
    found = rows(_OF_TURN if item.call_id is None else _OF_CALL, of)
    if not found:
        return
    mine = Feedback.objects.filter(**item.key, reviewer=event.reviewer_id).values_list("label", flat=True).first()
    ids: list[int] = [pk for pk, _, _ in found]
    asked = {"ids": ids, "reviewer": event.reviewer_id, "now": now}
    if mine is None:
        changed(_TAKEN_BACK, asked | {"until": now + lifetime()})
    else:
        changed(_LABELLED, asked | {"label": mine})
    adjudication.follow(counting.recount(ids, now), item)
    for _, queue_id, ordering in found:
        if ordering == ReviewQueue.Order.USEFUL:
            refreshing.wake(queue_id)
