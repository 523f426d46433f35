"""How far a queue is, as a whole and by reviewer. A queue's size is bounded, and so is what is read here."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils import timezone

from quality.models import ReviewQueue
from quality.review.queues.people import reviewers_of
from quality.review.queues.sql import HOLDS, rows
from tenants.models import User

DAYS = 14  # of the burn-down
PACE_DAYS = 14  # that the pace is of


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A queue in numbers. `labels_left` are those that the open entries still need; `held` are at work now."""

    open: int
    done: int
    removed: int
    agreed: int
    disagreed: int
    labels_left: int
    held: int

    @property
    def total(self) -> int:
        return self.open + self.done

    @property
    def percent(self) -> int:
        """Of all entries that are done, rounded down: 100 is all of them."""
        return self.done * 100 // self.total if self.total else 0

    @property
    def is_finished(self) -> bool:
        return self.total > 0 and self.open == 0


_WHOLE: Final = """
SELECT e.queue_id, count(*) FILTER (WHERE e.state = 'open'), count(*) FILTER (WHERE e.state = 'done'),
    count(*) FILTER (WHERE e.state = 'removed'),
    count(*) FILTER (WHERE e.state = 'done' AND e.agreed), count(*) FILTER (WHERE e.state = 'done' AND NOT e.agreed),
    coalesce(sum(e.labels_needed - e.num_labels) FILTER (WHERE e.state = 'open'), 0)
FROM review_queue_entries e WHERE e.tenant_id = %(tenant)s AND e.queue_id = ANY(%(queues)s) GROUP BY e.queue_id
"""
_HELD: Final = f"""
SELECT a.queue_id, count(*) FROM review_assignments a
WHERE a.tenant_id = %(tenant)s AND a.queue_id = ANY(%(queues)s) AND a.state IN ('claimed', 'handed') AND {HOLDS}
GROUP BY a.queue_id
"""  # noqa: S608  (no input)


def of_queues(queues: Sequence[ReviewQueue]) -> dict[int, Progress]:
    """The progress of each of these queues, by id, in two queries."""
    ids = [queue.pk for queue in queues]
    held = dict(rows(_HELD, {"queues": ids, "now": timezone.now()}))
    found = {
        pk: Progress(
            open=is_open,
            done=done,
            removed=removed,
            agreed=agreed,
            disagreed=disagreed,
            labels_left=int(left),
            held=held.get(pk, 0),
        )
        for pk, is_open, done, removed, agreed, disagreed, left in rows(_WHOLE, {"queues": ids})
    }
    none = Progress(open=0, done=0, removed=0, agreed=0, disagreed=0, labels_left=0, held=0)
    return {pk: found.get(pk, none) for pk in ids}


def of_queue(queue: ReviewQueue) -> Progress:
    return of_queues([queue])[queue.pk]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One reviewer's part. `per_hour`: labels in an hour in which he labelled at all, of the last PACE_DAYS;
    `median_s`: from the screen to the label. None: nothing to tell it from."""

    reviewer: User
    is_reviewer: bool
    done: int = 0
    pending: int = 0
    skipped: int = 0
    sent_back: int = 0
    today: int = 0
    per_hour: float | None = None
    median_s: float | None = None
    last_at: dt.datetime | None = None


_SHARES: Final = f"""
SELECT a.reviewer_id, count(*) FILTER (WHERE a.state = 'labelled'),
    count(*) FILTER (WHERE a.state IN ('claimed', 'handed') AND {HOLDS}),
    count(*) FILTER (WHERE a.state = 'skipped'), count(*) FILTER (WHERE a.state = 'sent_back'),
    count(*) FILTER (WHERE a.state = 'labelled' AND a.updated_at >= %(midnight)s),
    count(*) FILTER (WHERE a.state = 'labelled' AND a.updated_at >= %(since)s),
    count(DISTINCT date_trunc('hour', a.updated_at)) FILTER (WHERE a.state = 'labelled' AND a.updated_at >= %(since)s),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY a.seconds) FILTER (WHERE a.state = 'labelled'),
    max(a.updated_at) FILTER (WHERE a.state = 'labelled')
FROM review_assignments a WHERE a.tenant_id = %(tenant)s AND a.queue_id = %(queue)s GROUP BY a.reviewer_id
"""  # noqa: S608


def by_reviewer(queue: ReviewQueue) -> list[Share]:
    """The part of each reviewer, those who did most first; reviewers who did nothing yet are told, too."""
    now = timezone.now()
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    asked = {"queue": queue.pk, "now": now, "midnight": midnight, "since": now - dt.timedelta(days=PACE_DAYS)}
    counted = {row[0]: row[1:] for row in rows(_SHARES, asked)}
    reviewers = {user.pk: user for user in reviewers_of(queue)}
    people = {**{user.pk: user for user in User.objects.filter(pk__in=list(counted))}, **reviewers}
    shares = [_share(user, counted.get(pk), is_reviewer=pk in reviewers) for pk, user in people.items()]
    return sorted(shares, key=lambda one: (-one.done, str(one.reviewer)))


def _share(user: User, row: tuple[Any, ...] | None, *, is_reviewer: bool) -> Share:
    if row is None:
        return Share(reviewer=user, is_reviewer=is_reviewer)
    done, pending, skipped, sent_back, today, recent, hours, median_s, last_at = row
    return Share(
        reviewer=user,
        is_reviewer=is_reviewer,
        done=done,
        pending=pending,
        skipped=skipped,
        sent_back=sent_back,
        today=today,
        per_hour=recent / hours if hours else None,
        median_s=median_s,
        last_at=last_at,
    )


def of_reviewer(queue: ReviewQueue, user: User) -> Share:
    """One reviewer's part, without the others'."""
    return next(
        (one for one in by_reviewer(queue) if one.reviewer.pk == user.pk), Share(reviewer=user, is_reviewer=False)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What came in and what was done on a day, and what was left at its end."""

    day: dt.date
    added: int
    done: int
    left: int


_DAYS: Final = """
SELECT d.day, sum(d.added), sum(d.done) FROM (
    SELECT (e.added_at AT TIME ZONE %(zone)s)::date AS day, 1 AS added, 0 AS done
    FROM review_queue_entries e WHERE e.tenant_id = %(tenant)s AND e.queue_id = %(queue)s AND e.state <> 'removed'
    UNION ALL
    SELECT (e.done_at AT TIME ZONE %(zone)s)::date, 0, 1
    FROM review_queue_entries e WHERE e.tenant_id = %(tenant)s AND e.queue_id = %(queue)s AND e.state = 'done'
) d GROUP BY d.day ORDER BY d.day
"""


def days(queue: ReviewQueue, *, last: int = DAYS) -> list[Day]:
    """The burn-down: the last days, oldest first, without those before the queue's first entry."""
    found = rows(_DAYS, {"queue": queue.pk, "zone": timezone.get_current_timezone_name()})
    if not found:
        return []
    counted = {day: (int(added), int(done)) for day, added, done in found}
    today = timezone.localdate()
    begin = max(found[0][0], today - dt.timedelta(days=last - 1))
    left = sum(added - done for day, (added, done) in counted.items() if day < begin)
    told = []
    for number in range((today - begin).days + 1):
        day = begin + dt.timedelta(days=number)
        added, done = counted.get(day, (0, 0))
        left += added - done
        told.append(Day(day=day, added=added, done=done, left=left))
    return told


def days_left(progress: Progress, told: Sequence[Day]) -> float | None:
    """At the mean pace of the last seven days, how many days what is open takes; None: nothing was done in them."""
    done = sum(day.done for day in told[-7:])
    return progress.open / (done / min(len(told), 7)) if done else None
