"""Disagreements of a queue: another queue collects them, and its reviewers see the answers side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from quality.models import Assignment, Feedback, QueueEntry, ReviewQueue
from quality.review.items import Item
from quality.review.queues import adding, making
from quality.review.queues.counting import Standing
from quality.review.queues.sql import changed
from tenants.models import ApiToken, User

Kind = ReviewQueue.Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one reviewer of an entry says; `feedback` is None for a label that was taken back since."""

    reviewer: User
    label: str
    feedback: Feedback | None


def adjudication_of(queue: ReviewQueue) -> ReviewQueue | None:
    """The queue that collects the disagreements of this one, the newest if there are several."""
    found = ReviewQueue.objects.filter(of_queue=queue, kind=Kind.ADJUDICATION, deleted_at__isnull=True)
    return found.order_by("state", "-pk").first()


@transaction.atomic
def make(queue: ReviewQueue, *, actor: User, token: ApiToken | None = None) -> ReviewQueue:
    """The queue of this one's disagreements, made if there is none, with those that there are already. Who makes it
    decides them; others can be named on its page. Raises ValidationError for a queue of disagreements."""
    queue = ReviewQueue.objects.select_for_update(no_key=True).get(pk=queue.pk)  # of two who make it one does
    if queue.kind == Kind.ADJUDICATION:
        raise ValidationError(_("This queue collects disagreements itself."), "is_adjudication")
    there = adjudication_of(queue)
    if there is not None:
        return there
    taken = set(ReviewQueue.objects.filter(deleted_at__isnull=True).values_list("name", flat=True))
    stem = _("%(queue)s: disagreements") % {"queue": queue.name[:90]}
    name = next(one for one in (stem, *(f"{stem} {number}" for number in range(2, 1_000))) if one not in taken)
    data = making.QueueData(name=name, kind=Kind.ADJUDICATION, counts_earlier=False, reviewers=(actor.pk,))
    made = making.keep_queue(data, actor=actor, token=token, of_queue=queue.pk)
    changed(_COLLECT, {"queue": made.pk, "of": queue.pk, "entries": None})
    return made


_COLLECT: Final = """
INSERT INTO review_queue_entries (tenant_id, queue_id, turn_id, cycle, call_id, state, priority, why, started_at,
    tool_name, num_labels, labels_needed, is_blind, added_at)
SELECT e.tenant_id, q.id, e.turn_id, e.cycle, e.call_id, 'open', 0, '{}', e.started_at,
    e.tool_name, 0, q.labels_needed, false, now()
FROM review_queue_entries e JOIN review_queues q ON q.tenant_id = e.tenant_id AND q.id = %(queue)s
WHERE e.tenant_id = %(tenant)s AND e.queue_id = %(of)s AND e.state = 'done' AND e.agreed = false
    AND (%(entries)s::bigint[] IS NULL OR e.id = ANY(%(entries)s))
ON CONFLICT (tenant_id, queue_id, turn_id, cycle, call_id) DO UPDATE SET state = 'open'
    WHERE review_queue_entries.state = 'removed' AND review_queue_entries.num_labels = 0
"""


def collect(standings: Sequence[Standing]) -> None:
    """Bring in what is disagreed on among entries of one queue that were counted anew, for another reason than a label:
    it asks for fewer labels now, or took up items with earlier ones."""
    apart = [one for one in standings if one.state == QueueEntry.State.DONE and one.agreed is False]
    if not apart:
        return
    of = apart[0].queue_id
    collecting = ReviewQueue.objects.filter(of_queue=of, kind=Kind.ADJUDICATION, deleted_at__isnull=True)
    for queue in collecting.exclude(state=ReviewQueue.State.CLOSED):
        entries = [one.entry_id for one in apart[: max(adding.room_in(queue), 0)]]
        changed(_COLLECT, {"queue": queue.pk, "of": of, "entries": entries})


def follow(standings: Sequence[Standing], item: Item) -> None:
    """Bring the queues of disagreements up to how an item's entries stand now: what is disagreed on comes in, what all
    agree on by now goes, as long as nobody decided it."""
    by_queue = {one.queue_id: one for one in standings}
    collecting = ReviewQueue.objects.filter(
        of_queue__in=list(by_queue), kind=Kind.ADJUDICATION, deleted_at__isnull=True
    ).exclude(state=ReviewQueue.State.CLOSED)
    for queue in collecting:
        standing = by_queue[queue.of_queue_id or 0]
        if standing.state == QueueEntry.State.DONE and standing.agreed is False:
            if adding.room_in(queue) > 0:
                changed(_COLLECT, {"queue": queue.pk, "of": standing.queue_id, "entries": [standing.entry_id]})
        else:
            undecided = QueueEntry.objects.filter(queue=queue, **item.key, num_labels=0, state=QueueEntry.State.OPEN)
            undecided.update(state=QueueEntry.State.REMOVED)


def answers(entry: QueueEntry) -> list[Answer]:
    """What the reviewers of an entry say, in the order of their answers; of a disagreement that is to be decided, what
    those of the queue say that it comes from. Who may see them is the caller's to ask (`quality.review.blind`)."""
    source = _source(entry)
    said = Assignment.objects.filter(entry=source, state=Assignment.State.LABELLED)
    feedback = {one.reviewer_id: one for one in _feedback(source)}
    return [
        Answer(reviewer=one.reviewer, label=one.label or "", feedback=feedback.get(one.reviewer_id))
        for one in said.select_related("reviewer").order_by("updated_at", "pk")
    ]


def _source(entry: QueueEntry) -> QueueEntry:
    """The entry whose answers are to be shown."""
    if entry.queue.kind != Kind.ADJUDICATION:
        return entry
    found = QueueEntry.objects.filter(queue=entry.queue.of_queue_id, turn=entry.turn_id, call=entry.call_id)
    if entry.call_id is None:
        found = found.filter(cycle=entry.cycle)
    return found.first() or entry


def _feedback(entry: QueueEntry) -> list[Feedback]:
    key: dict[str, Any] = {"turn": entry.turn_id, "call": entry.call_id}
    if entry.call_id is None:
        key["cycle"] = entry.cycle
    return list(Feedback.objects.filter(**key).select_related("reviewer"))
