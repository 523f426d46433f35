"""The queue: calls and turns without a call, merged newest first."""

import datetime as dt
import itertools
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality.calls import CallFilter
from quality.review.items import (
    Item,
    item_of_call,
    item_of_turn,
    items_after,
    items_before,
    next_item,
    previous_item,
    progress,
    unlabelled,
)
from quality.review.labelling import record_label, undo
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.factories import LATEST, ToolCallFactory, TurnFactory

EVERYTHING = CallFilter()
QUEUE = unlabelled(EVERYTHING)


def seed() -> list[Item]:
    """Six items, newest first; the third to fifth are of the same instant."""
    at = [LATEST - dt.timedelta(hours=hours) for hours in range(4)]
    busy = TurnFactory(started_at=at[2])
    calls = [ToolCallFactory(turn=busy), ToolCallFactory(turn=busy)]
    silent = TurnFactory(started_at=at[2])
    return [
        item_of_turn(TurnFactory(started_at=at[0]).pk),
        item_of_call(ToolCallFactory(turn__started_at=at[1]).pk),
        item_of_call(calls[1].pk),
        item_of_call(calls[0].pk),
        item_of_turn(silent.pk),
        item_of_call(ToolCallFactory(turn__started_at=at[3], tool_name="book").pk),
    ]


def walk(wanted: CallFilter) -> list[Item]:
    found: list[Item] = []
    while (item := next_item(found[-1] if found else None, wanted)) and len(found) < 20:
        found.append(item)
    return found


def test_skipping_walks_through_everything_once_newest_first(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        items = seed()
        assert walk(QUEUE) == items
        assert items_after(None, QUEUE, limit=10) == items
        assert items_after(items[1], QUEUE, limit=2) == items[2:4]


def test_going_back_is_the_same_way(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        items = seed()
        assert items_before(items[-1], QUEUE, limit=10) == items[-2::-1]
        for before, item in itertools.pairwise(items):
            assert previous_item(item, QUEUE) == before
        assert previous_item(items[0], QUEUE) is None


def test_labelled_items_leave_the_queue_and_come_back_when_undone(
    tenant: Tenant, member: Callable[..., Membership]
) -> None:
    reviewer = member().user
    with tenant_scope(tenant):
        items = seed()
        for item in (items[1], items[4]):
            record_label(item=item, reviewer=reviewer, label="other")
        assert walk(QUEUE) == [items[0], items[2], items[3], items[5]]
        assert walk(EVERYTHING) == items
        assert next_item(items[1], QUEUE) == items[2]
        undo(item=items[4], reviewer=reviewer)
        assert next_item(items[3], QUEUE) == items[4]


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (CallFilter(tools=("book",)), [5]),
        (CallFilter(error="no"), [1, 2, 3, 5]),
        (CallFilter(source="elsewhere"), []),
        (CallFilter(until=LATEST - dt.timedelta(hours=1, minutes=30)), [2, 3, 4, 5]),
        (CallFilter(contact="contact-1", model="tiny-model", style="friendly"), [0, 1, 2, 3, 4, 5]),
    ],
)
def test_the_queue_can_be_narrowed(tenant: Tenant, wanted: CallFilter, kept: list[int]) -> None:
    with tenant_scope(tenant):
        items = seed()
        assert walk(unlabelled(wanted)) == [items[index] for index in kept]


def test_progress_counts_what_is_left_and_what_i_did_today(tenant: Tenant, member: Callable[..., Membership]) -> None:
    ada, bob = member().user, member().user
    with tenant_scope(tenant):
        items = seed()
        for item in items[:3]:
            record_label(item=item, reviewer=ada, label="good_reply")
        record_label(item=items[0], reviewer=bob, label="good_reply")
        done = progress(EVERYTHING, ada)
        assert (done.left, done.capped, done.mine_today) == (3, False, 3)
        assert progress(CallFilter(tools=("book",)), bob).left == 1


def test_the_queue_takes_as_many_queries_for_twenty_items_as_for_one(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
        with CaptureQueriesContext(connection) as for_one:
            items_after(None, QUEUE, limit=20)
        ToolCallFactory.create_batch(10)
        TurnFactory.create_batch(9)
        with CaptureQueriesContext(connection) as for_twenty:
            assert len(items_after(None, QUEUE, limit=20)) == 20
        assert len(for_one) == len(for_twenty) == 2


def test_another_tenants_items_are_not_in_the_queue(tenant: Tenant, other_tenant: Tenant) -> None:
    with tenant_scope(tenant):
        seed()
    with tenant_scope(other_tenant):
        mine = item_of_call(ToolCallFactory().pk)
        assert walk(QUEUE) == [mine]
