"""Bringing items into a queue: by hand, by a frozen filter, or behind the request; and taking them out again.

An item that is in the queue already stays as it is, so doing it twice changes nothing. Each batch is one statement.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import calls
from quality.calls import CallFilter
from quality.filters import CallFilterForm, query_of
from quality.models import QueueEntry, Review, ReviewQueue
from quality.review.blind import seen_by
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn, items_after
from quality.review.queues import counting, ordering
from quality.review.queues.sql import rows
from quality.review.tags import of_items
from tenants import audit
from tenants.models import ApiToken, Tenant, User
from tenants.scope import tenant_scope

BATCH = 1_000
MAX_ENTRIES = 200_000  # of one queue: what is told of it as a whole stays cheap
MAX_AT_ONCE = 2_000  # that a request adds by itself; more is left to a worker


class QueueFull(ValidationError):
    """A queue holds MAX_ENTRIES at most."""


class QueueClosed(Exception):
    """Nothing comes into a closed queue."""


_INSERT: Final = """
INSERT INTO review_queue_entries (tenant_id, queue_id, turn_id, cycle, call_id, state, priority, why, started_at,
    tool_name, num_labels, labels_needed, is_blind, added_by_id, added_at)
SELECT %(tenant)s, q.id, i.turn_id, i.cycle, i.call_id, 'open', 0, '{}', i.started_at,
    i.tool_name, 0, q.labels_needed, q.is_blind, %(actor)s, %(now)s
FROM unnest(%(turns)s::bigint[], %(cycles)s::int[], %(calls)s::bigint[], %(times)s::timestamptz[], %(tools)s::text[])
    i(turn_id, cycle, call_id, started_at, tool_name)
JOIN review_queues q ON q.tenant_id = %(tenant)s AND q.id = %(queue)s
ON CONFLICT (tenant_id, queue_id, turn_id, cycle, call_id) DO %(conflict)s
RETURNING id
"""
_NOTHING: Final = _INSERT.replace("%(conflict)s", "NOTHING")
_BACK_IN: Final = _INSERT.replace(
    "%(conflict)s",
    "UPDATE SET state = 'open', is_blind = EXCLUDED.is_blind, why = '{}' WHERE review_queue_entries.state = 'removed'",
)


def put_in(queue: ReviewQueue, items: Sequence[Item], *, actor: User | None, back_in: bool = False) -> int:
    """Make entries of these items; how many are new. With `back_in` what was taken out comes back, too. The caller
    sees to it that there is room."""
    from quality.review.queues import adjudication

    if not items:
        return 0
    now = timezone.now()
    if queue.counts_earlier:
        _lock(items)
    found = rows(
        _BACK_IN if back_in else _NOTHING,
        {
            "queue": queue.pk,
            "actor": actor.pk if actor else None,
            "now": now,
            "turns": [item.turn_id for item in items],
            "cycles": [item.cycle for item in items],
            "calls": [item.call_id for item in items],
            "times": [item.started_at for item in items],
            "tools": [item.tool_name for item in items],
        },
    )
    ids = [pk for (pk,) in found]
    adjudication.collect(counting.count_earlier(ids, now))
    if back_in:
        counting.recount(ids, now)
    ordering.put_in_order(queue, ids)
    return len(ids)


def _lock(items: Sequence[Item]) -> None:
    """Hold the reviews of these items, as labelling does, until the transaction ends: a label that is being given now
    is there when earlier labels are counted, or finds the entry."""
    fresh = [Review(**item.columns, tool_name=item.tool_name, started_at=item.started_at) for item in items]
    Review.objects.bulk_create(fresh, ignore_conflicts=True)
    list(Review.objects.select_for_update().filter(of_items(items)).order_by("pk").values_list("pk"))


def room_in(queue: ReviewQueue) -> int:
    """How many more entries the queue takes."""
    return MAX_ENTRIES - QueueEntry.objects.filter(queue=queue)[:MAX_ENTRIES].count()


def _check(queue: ReviewQueue, number: int) -> None:
    if queue.state == ReviewQueue.State.CLOSED:
        raise QueueClosed(f"The queue {queue.name} is closed. Open it again, then add to it.")
    room = room_in(queue)
    if number > room:
        raise QueueFull(
            f"The queue {queue.name} has room for {room:,} more; it takes {MAX_ENTRIES:,} in all. "
            "Narrow the filter, or make another queue.",
            code="queue_full",
        )


@transaction.atomic
def add_items(queue: ReviewQueue, items: Iterable[Item], *, actor: User, token: ApiToken | None = None) -> int:
    """Put single items into a queue; how many were not in it. Raises QueueFull and QueueClosed."""
    items = list({item.kind + str(item): item for item in items}.values())
    _check(queue, len(items))
    added = 0
    for begin in range(0, len(items), BATCH):
        added += put_in(queue, items[begin : begin + BATCH], actor=actor, back_in=True)
    _record("queue.added", queue, actor, token, number=added)
    return added


def items_of(call_ids: Iterable[int], turn_ids: Iterable[int] = ()) -> tuple[list[Item], list[str]]:
    """The items of calls, and of the last replies of turns; and what there is none of."""
    found: list[Item] = []
    missing: list[str] = []
    for kind, ids in (("call", call_ids), ("turn", turn_ids)):
        for pk in dict.fromkeys(ids):
            try:
                found.append(item_of_call(pk) if kind == "call" else item_of_turn(pk))
            except NoSuchItem:
                missing.append(f"{kind} {pk}")
    return found, missing


def frozen(wanted: CallFilter, now: dt.datetime | None = None) -> CallFilter:
    """The filter as of now: what comes in later, of whatever time, is not meant. One that was frozen before stays."""
    now = now or timezone.now()
    return replace(wanted, arrived_until=min(wanted.arrived_until or now, now))


def add_matching(
    queue: ReviewQueue,
    wanted: CallFilter,
    actor: User,
    limit: int | None = None,
    *,
    token: ApiToken | None = None,
) -> int:
    """Put all that a filter lets through now into a queue, the newest first and up to `limit`; how many were not in
    it. In one transaction: for more than MAX_AT_ONCE use `order`. Raises QueueFull and QueueClosed."""
    _check(queue, 1)
    wanted = seen_by(frozen(wanted), actor)
    left = min(MAX_ENTRIES if limit is None else limit, room_in(queue))
    added, place = 0, None
    with transaction.atomic():
        while left > 0:
            new, seen, place = add_batch(queue, wanted, after=place, actor=actor, limit=min(BATCH, left))
            added, left = added + new, left - seen
            if place is None:
                break
        _record("queue.added", queue, actor, token, number=added, query=query_of(wanted))
    return added


def count(wanted: CallFilter) -> int:
    """How many calls a filter lets through; COUNT_CAP + 1 stands for more."""
    return calls.count(wanted)


def add_batch(
    queue: ReviewQueue, wanted: CallFilter, *, after: Item | None, actor: User | None, limit: int = BATCH
) -> tuple[int, int, Item | None]:
    """Put the next items that a filter lets through, after `after`, into a queue: how many were new, how many there
    were, and the last one (None: that was all). The filter is frozen by the caller."""
    items = items_after(after, wanted, limit=limit)
    added = put_in(queue, items, actor=actor)
    return added, len(items), items[-1] if len(items) == limit else None


# --- by a worker ------------------------------------------------------------------------------------------------------
@transaction.atomic
def order(
    queue: ReviewQueue,
    wanted: CallFilter,
    *,
    actor: User,
    limit: int | None = None,
    token: ApiToken | None = None,
) -> None:
    """Have a worker put all that a filter lets through now into a queue. `queue.backfill` tells how far it is. Raises
    ValidationError while another order is at work there, QueueFull and QueueClosed."""
    from quality.tasks import fill_queue, publish

    queue = ReviewQueue.objects.select_for_update(no_key=True).get(pk=queue.pk)
    _check(queue, 1)
    if queue.backfill and not queue.backfill.get("done"):
        told = _("Calls are being added to %(queue)s right now. Wait until that is done.")
        raise ValidationError(told % {"queue": queue.name})
    wanted = frozen(wanted)
    queue.backfill = {
        "query": query_of(wanted),
        "left": min(MAX_ENTRIES if limit is None else limit, room_in(queue)),
        "added": 0,
        "seen": 0,
        "by": actor.pk,
    }
    queue.save(update_fields=["backfill"])
    _record("queue.adding", queue, actor, token, query=queue.backfill["query"])
    tenant_id = queue.tenant_id
    transaction.on_commit(lambda: publish(fill_queue, tenant_id, queue.pk))


def run(queue_id: int, *, tenant: Tenant | int, max_batches: int = 50) -> bool:
    """Go on with what was ordered, batch by batch; True if more is left. A batch and its place are one transaction, so
    that a lost worker costs nothing. Opens the tenant's scope."""
    for _batch in range(max_batches):
        with tenant_scope(tenant):
            queue = (
                ReviewQueue.objects.select_for_update(skip_locked=True, no_key=True)
                .filter(pk=queue_id, deleted_at__isnull=True)
                .first()
            )
            if queue is None or not queue.backfill or queue.backfill.get("done"):
                return False
            _step(queue)
            if queue.backfill.get("done"):
                return False
    return True


def _step(queue: ReviewQueue) -> None:
    state: dict[str, Any] = queue.backfill
    form = CallFilterForm(QueryDict(state["query"]))
    if not form.is_valid():
        state |= {"done": True, "failure": "The filter is not understood any more."}
    else:
        place = state.get("place")
        after = Item(**{**place, "started_at": dt.datetime.fromisoformat(place["started_at"])}) if place else None
        actor = User.objects.filter(pk=state["by"]).first()
        limit = max(min(BATCH, state["left"], room_in(queue)), 0)
        if limit == 0:
            state["done"] = True
        else:
            wanted = seen_by(form.wanted, actor) if actor else form.wanted
            new, seen, last = add_batch(queue, wanted, after=after, actor=actor, limit=limit)
            state |= {"added": state["added"] + new, "seen": state["seen"] + seen, "left": state["left"] - seen}
            state["place"] = _place(last)
            state["done"] = last is None or state["left"] <= 0
    queue.save(update_fields=["backfill"])


def _place(item: Item | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {**item.columns, "started_at": item.started_at.isoformat(), "tool_name": item.tool_name}


def unfinished() -> list[tuple[int, int]]:
    """Tenant and id of queues that something is still to be added to. Asks as the janitor."""
    with connections["janitor"].cursor() as cursor:
        cursor.execute(
            "SELECT tenant_id, id FROM review_queues WHERE backfill <> '{}' AND deleted_at IS NULL "
            "AND coalesce((backfill->>'done')::boolean, false) = false LIMIT 500"
        )
        return list(cursor.fetchall())


# --- taking out -------------------------------------------------------------------------------------------------------
@transaction.atomic
def take_out(entry: QueueEntry, *, actor: User, token: ApiToken | None = None) -> None:
    """Take an entry out: nobody is served it, no rule brings it back. Labels that were given stay."""
    if (
        QueueEntry.objects.filter(pk=entry.pk)
        .exclude(state=QueueEntry.State.REMOVED)
        .update(state=QueueEntry.State.REMOVED)
    ):
        _record("queue.taken_out", entry.queue, actor, token, entry=entry.pk)


@transaction.atomic
def put_back(entry: QueueEntry, *, actor: User, token: ApiToken | None = None) -> None:
    """Put an entry back that was taken out."""
    out = QueueEntry.objects.filter(pk=entry.pk, state=QueueEntry.State.REMOVED)
    if out.update(state=QueueEntry.State.OPEN, why={}, is_blind=entry.queue.is_blind):
        counting.recount([entry.pk], timezone.now())
        ordering.put_in_order(entry.queue, [entry.pk])
        _record("queue.put_back", entry.queue, actor, token, entry=entry.pk)


_ARCHIVED: Final[dict[str, Any]] = {"archived": {}}  # why such an entry is out: with its item it comes back


def set_aside(items: Sequence[Item]) -> None:
    """Take open entries of items out that go into the archive, in all queues."""
    if items:
        there = QueueEntry.objects.filter(of_items(items), state=QueueEntry.State.OPEN)
        there.update(state=QueueEntry.State.REMOVED, why=_ARCHIVED)


def bring_back(items: Sequence[Item]) -> None:
    """Put entries back that went with their items into the archive."""
    from quality.review.queues import adjudication

    if not items:
        return
    out = QueueEntry.objects.filter(of_items(items), state=QueueEntry.State.REMOVED, why=_ARCHIVED)
    by_queue: dict[int, list[int]] = {}
    for pk, queue_id in out.values_list("pk", "queue_id"):
        by_queue.setdefault(queue_id, []).append(pk)
    now = timezone.now()
    for queue in ReviewQueue.objects.in_bulk(by_queue).values():
        QueueEntry.objects.filter(pk__in=by_queue[queue.pk]).update(
            state=QueueEntry.State.OPEN, why={}, is_blind=queue.is_blind
        )
        adjudication.collect(counting.recount(by_queue[queue.pk], now))
        ordering.put_in_order(queue, by_queue[queue.pk])


def _record(action: str, queue: ReviewQueue, actor: User, token: ApiToken | None, **detail: Any) -> None:
    audit.record(
        action,
        object_type="review_queue",
        object_id=queue.pk,
        actor=actor,
        token=token,
        detail={"name": queue.name, **detail},
    )
