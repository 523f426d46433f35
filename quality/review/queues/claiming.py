"""Gives an entry to one reviewer at a time, and takes it back.

A claim locks the entry, counts its places once more, and writes the assignment: of reviewers who race, none gets what
another has. It expires; whatever the reviewer does there prolongs it. What somebody skipped comes back at the end of
his own order, what he sent back does not; what was handed to him comes first, and stays his.
"""

import datetime as dt
import time
from collections.abc import Collection
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from quality.models import Assignment, QueueEntry, ReviewQueue
from quality.review.items import Item
from quality.review.queues import counting
from quality.review.queues.people import may_label, reviewers_of
from quality.review.queues.sql import HOLDS, rows
from tenants import audit
from tenants.models import ApiToken, User

State = Assignment.State
MAX_NOTE_CHARS = 1_000
_TRIES, _PAUSE_S = 4, 0.03  # while all that is left is locked by others, who are about to take or to leave it
_MAX_PASSED = 200  # entries that others took in the moment of the claim


class NotHere(Exception):
    """The reviewer has nothing to do with this entry, or not any more. The text says what to do."""


# --- what is next -----------------------------------------------------------------------------------------------------
_PLACE_LEFT: Final = f"""
e.state = 'open' AND e.labels_needed > (
    SELECT count(*) FROM review_assignments a
    WHERE a.tenant_id = %(tenant)s AND a.entry_id = e.id AND a.reviewer_id <> %(me)s
        AND (a.state = 'labelled' OR {HOLDS}))
"""  # noqa: S608  (no input)
# One look at the assignments of each entry, by the entry alone: while the planner knows little of the tables, it would
# rather join with all assignments of the reviewer. His own, of whatever kind but an old claim, takes all places.
_IN_ORDER: Final = f"""
SELECT e.id FROM review_queue_entries e
WHERE e.tenant_id = %(tenant)s AND e.queue_id = %(queue)s AND e.state = 'open' AND e.id <> ALL(%(passed)s)
    AND e.labels_needed > (
        SELECT count(*) FILTER (WHERE a.reviewer_id <> %(me)s AND (a.state = 'labelled' OR {HOLDS})) + 1000 * count(*)
            FILTER (WHERE a.reviewer_id = %(me)s AND (a.state <> 'claimed' OR {HOLDS}))
        FROM review_assignments a WHERE a.tenant_id = %(tenant)s AND a.entry_id = e.id)
ORDER BY e.priority DESC, e.started_at DESC, e.id DESC LIMIT %(limit)s
"""  # noqa: S608
_MINE: Final = f"""
SELECT e.id FROM review_assignments m JOIN review_queue_entries e ON e.tenant_id = m.tenant_id AND e.id = m.entry_id
WHERE m.tenant_id = %(tenant)s AND m.queue_id = %(queue)s AND m.reviewer_id = %(me)s AND m.state = %(state)s
    AND {_PLACE_LEFT} AND e.id <> ALL(%(passed)s)
ORDER BY m.updated_at, m.id LIMIT %(limit)s
"""  # noqa: S608
_LOCK: Final = " FOR NO KEY UPDATE OF e SKIP LOCKED"
_STILL: Final = f"""
SELECT e.id FROM review_queue_entries e WHERE e.tenant_id = %(tenant)s AND e.id = %(entry)s AND {_PLACE_LEFT}
"""  # noqa: S608
_HELD: Final = f"""
SELECT a.entry_id FROM review_assignments a
WHERE a.tenant_id = %(tenant)s AND a.queue_id = %(queue)s AND a.reviewer_id = %(me)s AND a.state = 'claimed' AND {HOLDS}
    AND (%(after)s::bigint IS NULL OR (a.created_at, a.id) > (
        SELECT m.created_at, m.id FROM review_assignments m WHERE m.tenant_id = %(tenant)s AND m.id = %(after)s))
ORDER BY a.created_at, a.id
"""  # noqa: S608
_TAKEN: Final = f"""
SELECT count(*) FROM review_assignments a WHERE a.tenant_id = %(tenant)s AND a.entry_id = %(entry)s
    AND a.reviewer_id <> ALL(%(two)s) AND (a.state = 'labelled' OR {HOLDS})
"""  # noqa: S608
_TAKE: Final = """
INSERT INTO review_assignments
    (tenant_id, entry_id, queue_id, reviewer_id, state, note, expires_at, created_at, updated_at)
VALUES (%(tenant)s, %(entry)s, %(queue)s, %(me)s, 'claimed', '', %(until)s, %(now)s, %(now)s)
ON CONFLICT (tenant_id, entry_id, reviewer_id) DO UPDATE SET
    state = 'claimed', expires_at = EXCLUDED.expires_at, updated_at = EXCLUDED.updated_at
"""


def held(
    queue: ReviewQueue, user: User, *, after: QueueEntry | None = None, now: dt.datetime | None = None
) -> list[QueueEntry]:
    """The entries that this reviewer holds, the one he took first in front; those that he took after another one."""
    mine = Assignment.objects.filter(entry=after, reviewer=user).first() if after else None
    asked = {"queue": queue.pk, "me": user.pk, "now": now or timezone.now(), "after": mine.pk if mine else None}
    found = rows(_HELD, asked)
    entries = QueueEntry.objects.filter(state=QueueEntry.State.OPEN).in_bulk([pk for (pk,) in found])
    return [entries[pk] for (pk,) in found if pk in entries]


def claim_next(
    queue: ReviewQueue, user: User, *, beside: Collection[int] = (), now: dt.datetime | None = None
) -> QueueEntry | None:
    """Take the next entry for this reviewer: one that was handed to him, else the next in the queue's order, else one
    that he skipped, the longest ago first. None: there is none for him. `beside` are ids that are passed over."""
    if queue.state == ReviewQueue.State.CLOSED or queue.deleted_at is not None or not may_label(queue, user):
        return None
    asked = {
        "queue": queue.pk,
        "me": user.pk,
        "now": now or timezone.now(),
        "passed": list(beside),
        "limit": 1,
    }
    with transaction.atomic():
        for statement, state in ((_MINE, "handed"), (_IN_ORDER, ""), (_MINE, "skipped")):
            entry_id = _take_first(statement, asked | {"state": state})
            if entry_id is not None:
                entry: QueueEntry = QueueEntry.objects.get(pk=entry_id)
                return entry
    return None


def _take_first(statement: str, asked: dict[str, Any]) -> int | None:
    tries = 0
    while tries < _TRIES and len(asked["passed"]) < _MAX_PASSED:
        found = rows(statement + _LOCK, asked)
        if not found:
            if not rows(statement, asked):
                return None
            tries += 1
            time.sleep(_PAUSE_S)
            continue
        ((entry_id,),) = found
        # The lock may have come free with a claim that the statement above did not see yet: look again.
        if rows(_STILL, asked | {"entry": entry_id}):
            rows(_TAKE, asked | {"entry": entry_id, "until": asked["now"] + lifetime()})
            return int(entry_id)
        asked = asked | {"passed": [*asked["passed"], entry_id]}
    return None


def upcoming(queue: ReviewQueue, user: User, *, limit: int, beside: Collection[int] = ()) -> list[QueueEntry]:
    """What would be this reviewer's next, in order and without taking it: skipped ones come last."""
    asked = {"queue": queue.pk, "me": user.pk, "now": timezone.now(), "passed": list(beside)}
    ids: list[int] = []
    for statement, state in ((_MINE, "handed"), (_IN_ORDER, ""), (_MINE, "skipped")):
        if len(ids) < limit:
            found = rows(statement, asked | {"state": state, "limit": limit - len(ids)})
            ids += [pk for (pk,) in found if pk not in ids]
    entries = QueueEntry.objects.in_bulk(ids)
    return [entries[pk] for pk in ids if pk in entries]


def lifetime() -> dt.timedelta:
    """How long a claim holds without a sign of life."""
    return dt.timedelta(minutes=settings.REVIEW_CLAIM_MINUTES)


# --- what a reviewer does with it -------------------------------------------------------------------------------------
def entry_of(queue: ReviewQueue, item: Item) -> QueueEntry | None:
    """The item's entry in a queue."""
    return QueueEntry.objects.filter(queue=queue, **item.key).first()


def take(queue: ReviewQueue, user: User, item: Item, *, keep: bool = False) -> bool:
    """Take this very item, if it is open and a place is left; whether it is his now. With `keep` a claim that holds
    stays as old as it is, and is prolonged."""
    entry = entry_of(queue, item)
    if entry is None or queue.state == ReviewQueue.State.CLOSED or not may_label(queue, user):
        return False
    now = timezone.now()
    asked = {"queue": queue.pk, "me": user.pk, "now": now, "entry": entry.pk}
    with transaction.atomic():
        QueueEntry.objects.select_for_update(no_key=True).get(pk=entry.pk)
        mine = Assignment.objects.filter(entry=entry, reviewer=user).first()
        if (mine and mine.state == State.LABELLED) or not rows(_STILL, asked):
            return False
        if keep and mine and mine.state == State.CLAIMED:
            Assignment.objects.filter(pk=mine.pk).update(expires_at=now + lifetime())
        else:
            rows(_TAKE, asked | {"until": now + lifetime()})
    return True


def touch(queue: ReviewQueue, user: User, item: Item) -> bool:
    """A sign of life: the claim holds on. False: it is not this reviewer's any more."""
    now = timezone.now()
    entry = entry_of(queue, item)
    mine = Assignment.objects.filter(entry=entry, reviewer=user, state=State.CLAIMED).first() if entry else None
    if mine is None:
        return False
    if mine.expires_at and mine.expires_at > now:
        return bool(Assignment.objects.filter(pk=mine.pk, state=State.CLAIMED).update(expires_at=now + lifetime()))
    return take(queue, user, item, keep=True)


def skip(queue: ReviewQueue, user: User, item: Item, *, note: str = "") -> None:
    """Put an entry to the end of this reviewer's own order. Raises NotHere."""
    _leave(queue, user, item, State.SKIPPED, note)


def unskip(queue: ReviewQueue, user: User, item: Item | None = None) -> QueueEntry | None:
    """Take up again what this reviewer skipped, the last one if none is named; None if there is none, or others have
    it by now."""
    skipped = Assignment.objects.filter(queue=queue, reviewer=user, state=State.SKIPPED)
    if item is not None:
        skipped = skipped.filter(entry=entry_of(queue, item))
    mine = skipped.select_related("entry").order_by("-updated_at", "-pk").first()
    if mine is None or not take(queue, user, item_of(mine.entry)):
        return None
    entry: QueueEntry = mine.entry
    return entry


def send_back(queue: ReviewQueue, user: User, item: Item, *, note: str = "") -> None:
    """Leave an entry to the others: this reviewer is not served it again. Raises NotHere."""
    _leave(queue, user, item, State.SENT_BACK, note)


@transaction.atomic
def hand_over(
    queue: ReviewQueue, user: User, item: Item, *, to: User, note: str = "", token: ApiToken | None = None
) -> None:
    """Give an entry to another reviewer of the queue, who is served it next; it waits for him alone. Raises NotHere,
    also where others hold all places of it: he could not label it then."""
    entry = _locked(queue, item)
    if entry.state != QueueEntry.State.OPEN:
        raise NotHere("This one is done already.")
    if not may_label(queue, user):
        raise NotHere("You do not review this queue.")
    if to.pk == user.pk or not may_label(queue, to):
        raise NotHere(f"{to} does not review this queue. Choose one of its reviewers.")
    if Assignment.objects.filter(entry=entry, reviewer=to, state=State.LABELLED).exists():
        raise NotHere(f"{to} has labelled this one already. Choose somebody else.")
    now = timezone.now()
    ((taken,),) = rows(_TAKEN, {"entry": entry.pk, "now": now, "two": [user.pk, to.pk]})
    if taken >= entry.labels_needed:
        raise NotHere("Others are at work on this one, as many as it takes. Skip it, or send it back.")
    given = {"state": State.HANDED, "expires_at": None, "handed_by": user, "note": _cut(note), "updated_at": now}
    Assignment.objects.update_or_create(
        entry=entry, reviewer=to, defaults=given, create_defaults=given | {"queue": queue}
    )
    mine = Assignment.objects.filter(entry=entry, reviewer=user).exclude(state=State.LABELLED)
    mine.update(state=State.SENT_BACK, expires_at=None, handed_by=None, updated_at=now)
    audit.record(
        "queue.handed_over",
        object_type="review_queue",
        object_id=queue.pk,
        actor=user,
        token=token,
        detail={"name": queue.name, "entry": entry.pk, "to": to.email},
    )


def _leave(queue: ReviewQueue, user: User, item: Item, state: str, note: str) -> None:
    with transaction.atomic():
        entry = _locked(queue, item)
        if not may_label(queue, user):
            raise NotHere("You do not review this queue.")
        mine = Assignment.objects.filter(entry=entry, reviewer=user).first()
        if mine and mine.state == State.LABELLED:
            raise NotHere("You labelled this one. Undo the label first.")
        left = {"state": state, "expires_at": None, "handed_by": None, "note": _cut(note), "updated_at": timezone.now()}
        Assignment.objects.update_or_create(
            entry=entry, reviewer=user, defaults=left, create_defaults=left | {"queue": queue}
        )


@transaction.atomic
def reopen(entry: QueueEntry, *, actor: User, token: ApiToken | None = None) -> None:
    """Ask for one more label on an entry that is done. Raises NotHere where all its reviewers gave theirs."""
    entry = QueueEntry.objects.select_for_update(no_key=True).select_related("queue").get(pk=entry.pk)
    if entry.state != QueueEntry.State.DONE:
        raise NotHere("This one is not done.")
    if entry.queue.state == ReviewQueue.State.CLOSED:
        raise NotHere("The queue is closed. Open it again first.")
    said = set(Assignment.objects.filter(entry=entry, state=State.LABELLED).values_list("reviewer_id", flat=True))
    if not [user for user in reviewers_of(entry.queue) if user.pk not in said]:
        raise NotHere("All reviewers of the queue labelled it. They can change their labels on it at any time.")
    entry.labels_needed = entry.num_labels + 1
    entry.save(update_fields=["labels_needed"])
    counting.recount([entry.pk], timezone.now())
    audit.record(
        "queue.reopened",
        object_type="review_queue",
        object_id=entry.queue_id,
        actor=actor,
        token=token,
        detail={"name": entry.queue.name, "entry": entry.pk},
    )


def item_of(entry: QueueEntry) -> Item:
    """The item of an entry."""
    return Item(
        turn_id=entry.turn_id,
        cycle=entry.cycle,
        call_id=entry.call_id,
        started_at=entry.started_at,
        tool_name=entry.tool_name,
    )


def _locked(queue: ReviewQueue, item: Item) -> QueueEntry:
    entry = QueueEntry.objects.select_for_update(no_key=True).filter(queue=queue, **item.key).first()
    if entry is None:
        raise NotHere(f"The {item} is not in the queue {queue.name}.")
    return entry


def _cut(note: str) -> str:
    return note.strip().replace("\x00", "")[:MAX_NOTE_CHARS]
