"""How reviewers work: how much, how fast, with which labels, and how far they agree with the others.

Active time is estimated from answers alone: the time between two answers of one reviewer counts while it is at most
GAP. Longer ones are breaks, and the first answer after a break has no time of its own. Only what was given on the
screen has a pace: labels sent by a token, or many at once, say nothing about how fast somebody reads.

All functions need an open tenant scope.
"""

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from django.db import connection
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from quality.calls import PAGE_SIZE
from quality.improve import keyset
from quality.models import Feedback, FeedbackEvent, Suggestion, ToolCall
from quality.review import agreement as measures
from quality.review.agreement import Measure, Rest
from quality.review.agreement_data import AnswerFilter, answers
from quality.review.items import Item
from quality.review.queues.waiting import waits_blind
from tenants.models import Membership, Role, User
from tenants.scope import current_tenant_id

GAP: Final = dt.timedelta(minutes=5)
MAX_EVENTS: Final = 50_000  # of one reviewer, the newest
MAX_REVIEWERS: Final = 200
HIDDEN: Final = "hidden"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast labels were given on the screen. `num_timed` answers followed another within GAP, in `active` time;
    `median_s` is of the labels among them. `is_capped`: older ones of the period were not looked at."""

    num_timed: int = 0
    active: dt.timedelta = dt.timedelta()
    num_labels_timed: int = 0
    median_s: float | None = None
    num_undone: int = 0
    is_capped: bool = False

    @property
    def per_hour(self) -> float | None:
        """Labels per active hour; None without active time."""
        seconds = self.active.total_seconds()
        return 3_600 * self.num_labels_timed / seconds if seconds else None


@dataclass(frozen=True, kw_only=True)
class Work:
    """One reviewer in a period. `labels` counts current labels; those on items that wait in a blind queue in which the
    viewer labels are told together under HIDDEN, unless they are the viewer's own."""

    user: User
    labels: Mapping[str, int] = field(default_factory=dict)
    num_notes: int = 0
    pace: Pace = Pace()
    rest: Rest | None = None
    taken: Measure = Measure(value=None, n=0)  # noqa: RUF009 - frozen

    @property
    def num_labels(self) -> int:
        return sum(self.labels.values())

    @property
    def notes(self) -> Measure:
        """Share of the labels that came with a note."""
        return measures.share(self.num_notes, self.num_labels)


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Reviewers of a period, those with most labels first. `num_others` are not told, for there are too many."""

    since: dt.datetime
    until: dt.datetime
    works: tuple[Work, ...]
    is_capped: bool
    num_others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One label of a reviewer, as it stands. `label` is None where the viewer must not see it yet."""

    id: int
    item: Item
    label: str | None
    note: str
    is_corrected: bool
    at: dt.datetime
    by_token: bool


@dataclass(frozen=True, kw_only=True)
class SaidPage:
    """Labels of one reviewer, newest first; `next` is the cursor of the older ones."""

    rows: list[Said]
    next: str | None


def crew(since: dt.datetime, *, until: dt.datetime | None = None, viewer: User, only: User | None = None) -> Crew:
    """Everybody who may label or has labelled in the period; `only` narrows that to one. Six queries."""
    until = until or timezone.now()
    counted = _counts(since, until, viewer, only)
    people = {only.pk: only} if only else _people(counted)
    ranked = sorted(people.values(), key=lambda user: (-sum(counted[user.pk].labels.values()), str(user)))
    shown = ranked[:MAX_REVIEWERS]
    paces = _paces([user.pk for user in shown], since, until)
    found = answers(AnswerFilter(since=since, until=until))
    rests = measures.against_rest(found.sheet)
    taken = _taken(since, until, [user.pk for user in shown])
    works = tuple(
        Work(
            user=user,
            labels=dict(counted[user.pk].labels),
            num_notes=counted[user.pk].num_notes,
            pace=paces.get(user.pk, Pace()),
            rest=rests.get(user.pk),
            taken=taken.get(user.pk, Measure(value=None, n=0)),
        )
        for user in shown
    )
    return Crew(since=since, until=until, works=works, is_capped=found.is_capped, num_others=len(ranked) - len(shown))


class _Counts(dict[int, "_Count"]):
    def __missing__(self, key: int) -> "_Count":
        return self.setdefault(key, _Count())


@dataclass
class _Count:
    labels: Counter[str] = field(default_factory=Counter)
    num_notes: int = 0


def _counts(since: dt.datetime, until: dt.datetime, viewer: User, only: User | None) -> _Counts:
    labels = Feedback.objects.filter(updated_at__gte=since, updated_at__lt=until).order_by()
    if only:
        labels = labels.filter(reviewer=only)
    rows = (
        labels.annotate(is_hidden=waits_blind(viewer.pk))
        .values_list("reviewer_id", "label", "is_hidden")
        .annotate(number=Count("pk"), noted=Count("pk", filter=~Q(note="")))
    )
    found = _Counts()
    for reviewer, label, is_hidden, number, noted in rows:
        count = found[reviewer]
        count.labels[HIDDEN if is_hidden and reviewer != viewer.pk else label] += number
        count.num_notes += noted
    return found


def _people(counted: Collection[int]) -> dict[int, User]:
    members = Membership.objects.exclude(role=Role.VIEWER).values_list("user_id", flat=True)
    return User.objects.in_bulk({*members, *counted})


def _paces(reviewers: list[int], since: dt.datetime, until: dt.datetime) -> dict[int, Pace]:
    """One query: the newest events of each reviewer by their index, and the times between them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH newest AS (SELECT e.* FROM unnest(%(reviewers)s::bigint[]) r(id) CROSS JOIN LATERAL ("
            "SELECT id, reviewer_id, action, created_at, nonce IS NOT NULL AND token_id IS NULL AS by_hand "
            "FROM agent_tool_call_feedback_events WHERE tenant_id = %(tenant)s AND reviewer_id = r.id "
            "ORDER BY id DESC LIMIT %(limit)s) e), "
            "inside AS (SELECT * FROM newest WHERE created_at >= %(since)s AND created_at < %(until)s), "
            "timed AS (SELECT reviewer_id, action, by_hand, "
            "extract(epoch FROM created_at - lag(created_at) OVER (PARTITION BY reviewer_id, by_hand "
            "ORDER BY created_at, id))::float8 AS gap FROM inside) "
            "SELECT reviewer_id, count(*), count(*) FILTER (WHERE action = 'undo'), "
            "count(*) FILTER (WHERE by_hand AND gap <= %(gap)s), "
            "coalesce(sum(gap) FILTER (WHERE by_hand AND gap <= %(gap)s), 0), "
            "count(*) FILTER (WHERE by_hand AND gap <= %(gap)s AND action = 'label'), "
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY gap) "
            "FILTER (WHERE by_hand AND gap <= %(gap)s AND action = 'label') "
            "FROM timed GROUP BY reviewer_id",
            {
                "reviewers": reviewers,
                "tenant": current_tenant_id(),
                "since": since,
                "until": until,
                "gap": GAP.total_seconds(),
                "limit": MAX_EVENTS,
            },
        )
        rows = cursor.fetchall()
    return {
        reviewer: Pace(
            num_timed=timed,
            active=dt.timedelta(seconds=active),
            num_labels_timed=labels,
            median_s=median,
            num_undone=undone,
            is_capped=number >= MAX_EVENTS,
        )
        for reviewer, number, undone, timed, active, labels, median in rows
    }


def _taken(since: dt.datetime, until: dt.datetime, reviewers: Iterable[int]) -> dict[int, Measure]:
    """How often each took what a model suggested, of the suggestions that he decided."""
    state = Suggestion.State
    rows = (
        Suggestion.objects.filter(decided_at__gte=since, decided_at__lt=until, decided_by__in=list(reviewers))
        .order_by()
        .values_list("decided_by")
        .annotate(
            accepted=Count("pk", filter=Q(state=state.ACCEPTED)),
            decided=Count("pk", filter=Q(state__in=[state.ACCEPTED, state.OVERRULED])),
        )
    )
    return {reviewer: measures.share(accepted, decided) for reviewer, accepted, decided in rows}


# --- one reviewer's work ---------------------------------------------------------------------------------------------


def said_by(
    reviewer: User, *, viewer: User, labels: Collection[str] = (), cursor: str = "", page_size: int = PAGE_SIZE
) -> SaidPage:
    """The labels of a reviewer as they stand, newest first. Two queries. Raises BadCursor.

    They are found by the events that made them, along the index of a reviewer's events. What waits in a blind queue
    in which the viewer labels is told without its label, unless it is the viewer's own; a filter by label leaves it
    out.
    """
    events = _standing(reviewer).annotate(is_hidden=waits_blind(viewer.pk))
    if labels:
        events = events.filter(label__in=list(labels))
        events = events if viewer == reviewer else events.filter(is_hidden=False)
    if cursor:
        (before,) = keyset.read(cursor, keyset.number)
        events = events.filter(pk__lt=before)
    found = list(events.order_by("-pk")[: page_size + 1])
    shown = found[:page_size]
    calls = _calls(shown)
    rows = [_said(event, calls, may_see=viewer == reviewer or not event.is_hidden) for event in shown]
    return SaidPage(rows=rows, next=keyset.write(shown[-1].pk) if len(found) > page_size else None)


def _standing(reviewer: User) -> QuerySet[FeedbackEvent]:
    """The events whose label is the reviewer's current one."""
    current = Feedback.objects.filter(
        turn_id=OuterRef("turn_id"), reviewer_id=OuterRef("reviewer_id"), version=OuterRef("version")
    ).order_by()
    of_call, of_turn = current.filter(call_id=OuterRef("call_id")), current.filter(call=None, cycle=OuterRef("cycle"))
    return FeedbackEvent.objects.filter(
        (Q(call_id__isnull=False) & Q(Exists(of_call))) | (Q(call_id=None) & Q(Exists(of_turn))),
        reviewer=reviewer,
        label__isnull=False,
    )


def _calls(events: Iterable[FeedbackEvent]) -> dict[int, tuple[str, dt.datetime]]:
    """Tools and times of the calls that the events are about. Never what the calls hold."""
    ids = [event.call_id for event in events if event.call_id]
    return {
        pk: (tool, at)
        for pk, tool, at in ToolCall.objects.filter(pk__in=ids).values_list("pk", "tool_name", "started_at")
    }


def _said(event: FeedbackEvent, calls: Mapping[int, tuple[str, dt.datetime]], *, may_see: bool) -> Said:
    tool, at = calls.get(event.call_id or 0, ("", event.created_at))
    item = Item(turn_id=event.turn_id, cycle=event.cycle, call_id=event.call_id, started_at=at, tool_name=tool)
    return Said(
        id=event.pk,
        item=item,
        label=event.label if may_see else None,
        note=event.note if may_see else "",
        is_corrected=bool(event.correction) and may_see,
        at=event.created_at,
        by_token=event.token_id is not None,
    )
