"""Who must not see what others say of an item: reviewers of a blind queue, until all answers are in.

An item is hidden from a member who may label in a blind queue that still waits for labels of it; his own label he sees.
Who may not label there sees all: a lead is an admin whom the queue does not name. All functions need an open tenant
scope, and cost a query or two. `queues.waiting` has the same rule for many rows at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from django.db.models import Q, QuerySet

from quality.calls import CallFilter, CallPage
from quality.models import Feedback, FeedbackEvent
from quality.review.items import Item
from quality.review.queues.people import LABELLING_ROLES
from quality.review.queues.sql import rows
from quality.review.queues.waiting import viewer_of, waits_blind
from tenants.models import User

if TYPE_CHECKING:
    from quality.review.evidence import ItemEvidence

type Place = tuple[int | None, int, int]
"""An item by its ids: the call and two zeros, or None with the turn and the cycle of a reply without a call."""

_HIDDEN: Final = """
SELECT DISTINCT e.turn_id, e.cycle, e.call_id
FROM review_queue_entries e JOIN review_queues q ON q.tenant_id = e.tenant_id AND q.id = e.queue_id
WHERE e.tenant_id = %(tenant)s AND e.is_blind AND e.state = 'open'
    AND (e.call_id = ANY(%(calls)s) OR e.call_id IS NULL AND e.turn_id = ANY(%(turns)s))
    AND q.state <> 'closed' AND q.deleted_at IS NULL
    AND EXISTS (SELECT FROM memberships m
        WHERE m.tenant_id = e.tenant_id AND m.user_id = %(user)s AND m.role = ANY(%(roles)s))
    AND (q.for_everyone OR EXISTS (SELECT FROM review_queue_reviewers r
        WHERE r.tenant_id = q.tenant_id AND r.queue_id = q.id AND r.reviewer_id = %(user)s))
"""


def hidden_from(user: User, items: Iterable[Item]) -> set[Item]:
    """Those of the items whose labels by others this user must not see."""
    items = list(items)
    hidden = _hidden(user, [one.call_id for one in items if one.call_id], [one.turn_id for one in items])
    calls = {call for _, _, call in hidden if call is not None}
    turns = {(turn, cycle) for turn, cycle, call in hidden if call is None}
    return {one for one in items if (one.call_id in calls if one.call_id else (one.turn_id, one.cycle) in turns)}


def hidden_calls(user: User, call_ids: Iterable[int]) -> set[int]:
    """The same for calls, by id."""
    return {call for _, _, call in _hidden(user, list(call_ids), []) if call is not None}


def hidden_places(user: User, places: Iterable[Place]) -> set[Place]:
    """The same for items that are known by their ids alone."""
    places = set(places)
    calls = [call for call, _, _ in places if call is not None]
    turns = [turn for call, turn, _ in places if call is None]
    hidden = {(call, 0, 0) if call else (None, turn, cycle) for turn, cycle, call in _hidden(user, calls, turns)}
    return places & hidden


def hides(user: User, item: Item) -> bool:
    """Must this user not see what others say of the item?"""
    return bool(hidden_from(user, [item]))


def _hidden(user: User, calls: list[int], turns: list[int]) -> list[tuple[int, int, int | None]]:
    if not calls and not turns:
        return []
    roles = [role.value for role in LABELLING_ROLES]
    asked = {"calls": calls, "turns": turns, "user": user.pk, "roles": roles}
    return [(turn, cycle, call) for turn, cycle, call in rows(_HIDDEN, asked)]


def veiled(found: "ItemEvidence", user: User) -> "ItemEvidence":
    """The evidence without what this user must not see: others' labels, and what happened with them."""
    if not hides(user, found.item):
        return found
    return replace(
        found,
        is_veiled=True,
        labels=[label for label in found.labels if label.reviewer_id == user.pk],
        events=[event for event in found.events if event.reviewer_id == user.pk],
    )


def veiled_page(page: CallPage, user: User) -> CallPage:
    """A page of calls as this user may see it: of those whose labels are hidden he sees his own alone."""
    hidden = hidden_calls(user, [row.id for row in page.rows])
    if not hidden:
        return page
    said = Feedback.objects.filter(reviewer=user, call__in=list(hidden)).values_list("call_id", "label")
    mine = {call_id: label for call_id, label in said if call_id is not None}
    rows = [
        replace(row, label=mine.get(row.id), num_labels=int(row.id in mine)) if row.id in hidden else row
        for row in page.rows
    ]
    return replace(page, rows=rows)


def seen_by(wanted: CallFilter, user: User) -> CallFilter:
    """The filter as this user may apply it: what he is not told by a list, its length and its order do not tell him
    either."""
    return replace(wanted, viewer=viewer_of(user))


def visible(labels: QuerySet[Feedback], user: User) -> QuerySet[Feedback]:
    """Of these labels those that this user may see."""
    viewer = viewer_of(user)
    return labels if viewer is None else labels.exclude(waits_blind(viewer) & ~Q(reviewer=viewer))


def veiled_labels[L: (Feedback, FeedbackEvent)](user: User, item: Item, labels: Sequence[L]) -> list[L]:
    """Of the labels of an item, or of its history, what this user may see."""
    return [label for label in labels if label.reviewer_id == user.pk] if hides(user, item) else list(labels)
