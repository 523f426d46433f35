"""Entries find their way on: when people go, when two do the same at once, when items go into the archive."""

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone

from quality.calls import CallFilter
from quality.models import Label, QueueEntry, ReviewQueue, ToolCall
from quality.review import archive
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, adjudication, claiming, making
from quality.review.queues.claiming import NotHere, claim_next
from tenants.models import Membership, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.review.queues.conftest import MakeQueue, Members, entry_of


@pytest.mark.parametrize("goes", ["demoted", "removed"])
@pytest.mark.parametrize("took_it_up", [False, True])
def test_what_was_handed_to_somebody_who_goes_is_others_again(
    tenant: Tenant,
    calls: list[ToolCall],
    make_queue: MakeQueue,
    ada: User,
    bob: User,
    lead: User,
    goes: str,
    took_it_up: bool,
) -> None:
    queue = make_queue(calls[:1])
    with tenant_scope(tenant):
        claim_next(queue, ada)
        claiming.hand_over(queue, ada, item_of_call(calls[0].pk), to=bob)
        if took_it_up:
            assert claim_next(queue, bob)
        assert claim_next(queue, lead) is None
        bobs = Membership.objects.filter(user=bob)
        if goes == "demoted":
            bobs.update(role=Role.VIEWER)
        else:
            bobs.delete()
        later = timezone.now() + claiming.lifetime() + dt.timedelta(minutes=1)
        assert claim_next(queue, lead, now=later) == entry_of(queue, calls[0])


def test_nothing_is_handed_over_while_others_hold_all_places(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, member: Members
) -> None:
    queue, carl = make_queue(calls[:1]), member().user
    with tenant_scope(tenant):
        item = item_of_call(calls[0].pk)
        claim_next(queue, ada)
        claiming.skip(queue, ada, item)
        assert claim_next(queue, bob)
        with pytest.raises(NotHere, match="at work"):
            claiming.hand_over(queue, ada, item, to=carl)
        claiming.hand_over(queue, bob, item, to=carl)
        assert claim_next(queue, carl) == entry_of(queue, calls[0])


def test_disagreements_about_disagreements_are_not_collected(tenant: Tenant, make_queue: MakeQueue, lead: User) -> None:
    queue = make_queue(labels_needed=2)
    with tenant_scope(tenant):
        collecting = adjudication.make(queue, actor=lead)
        with pytest.raises(ValidationError, match="itself"):
            adjudication.make(collecting, actor=lead)


def test_two_who_collect_disagreements_at_once_get_one_queue(
    tenant: Tenant, make_queue: MakeQueue, lead: User, member: Members
) -> None:
    queue = make_queue(labels_needed=2)
    gate = threading.Barrier(2)

    def collect(user: User) -> int:
        try:
            with tenant_scope(tenant):
                gate.wait(10)
                return adjudication.make(queue, actor=user).pk
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        made = set(pool.map(collect, [lead, member(Role.ADMIN).user]))
    assert len(made) == 1
    with tenant_scope(tenant):
        assert ReviewQueue.objects.filter(kind=ReviewQueue.Kind.ADJUDICATION).count() == 1


@pytest.mark.parametrize("labels_first", [True, False])
def test_a_label_counts_that_is_given_while_its_item_comes_in(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, lead: User, labels_first: bool
) -> None:
    """Each begins while the other has done all of his, but for the end of the transaction."""
    queue = make_queue(labels_needed=2)
    with tenant_scope(tenant):
        item = item_of_call(calls[0].pk)

    def label() -> None:
        record_label(item=item, reviewer=ada, label=Label.GOOD_REPLY)

    def add() -> None:
        adding.add_items(queue, [item], actor=lead)

    first, second = (label, add) if labels_first else (add, label)
    has_done = threading.Event()

    def follow() -> None:
        try:
            has_done.wait(10)
            with tenant_scope(tenant):
                second()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow)
        with tenant_scope(tenant):
            first()
            has_done.set()
            assert not _ends(following)  # it waits for this one
        following.result(10)
    with tenant_scope(tenant):
        assert entry_of(queue, calls[0]).num_labels == 1


def _ends(work: Any) -> bool:
    try:
        work.result(0.5)
    except TimeoutError:
        return False
    return True


def test_an_item_in_the_archive_is_in_no_queue_and_comes_back_with_it(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, lead: User
) -> None:
    queue = make_queue(calls[:2])
    with tenant_scope(tenant):
        items = [item_of_call(call.pk) for call in calls[:2]]
        adding.take_out(entry_of(queue, calls[1]), actor=lead)
        archive.archive(items, by=lead)
        assert claim_next(queue, ada) is None
        archive.restore(items, by=lead)
        assert claim_next(queue, ada) == entry_of(queue, calls[0])
        assert entry_of(queue, calls[1]).state == QueueEntry.State.REMOVED  # a person took it out


def test_what_comes_back_is_as_blind_as_its_queue_is_by_now(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User
) -> None:
    queue = make_queue(calls[:2])
    with tenant_scope(tenant):
        adding.take_out(entry_of(queue, calls[0]), actor=lead)
        making.keep_queue(replace(making.data_of(queue), is_blind=True), actor=lead, pk=queue.pk)
        adding.put_back(entry_of(queue, calls[0]), actor=lead)
        assert entry_of(queue, calls[0]).is_blind
        assert entry_of(queue, calls[1]).is_blind


def test_a_filter_is_frozen_as_of_now_at_the_latest() -> None:
    now = timezone.now()
    hour = dt.timedelta(hours=1)
    assert adding.frozen(CallFilter(), now).arrived_until == now
    assert adding.frozen(CallFilter(arrived_until=now + hour), now).arrived_until == now
    assert adding.frozen(CallFilter(arrived_until=now - hour), now).arrived_until == now - hour
    assert adding.frozen(CallFilter(until=now - hour), now).arrived_until == now
