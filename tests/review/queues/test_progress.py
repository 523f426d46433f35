"""How far a queue is, and whose part is which."""

import datetime as dt

import pytest
from django.utils import timezone

from quality.models import Assignment, QueueEntry, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, claiming, progress
from quality.review.queues.source import QueueSource
from quality.review.sources import PARTS, Lost
from tenants.models import Tenant, User
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory
from tests.review.queues.conftest import MakeQueue, entry_of


def label(call: ToolCall, user: User, word: str = "good_reply") -> None:
    record_label(item=item_of_call(call.pk), reviewer=user, label=word)


def test_a_queue_in_numbers(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls, labels_needed=2)
    with tenant_scope(tenant):
        for call, word in ((calls[0], "good_reply"), (calls[1], "bad_args")):
            label(call, ada)
            label(call, bob, word)
        label(calls[2], ada)
        adding.take_out(entry_of(queue, calls[5]), actor=lead)
        assert claiming.claim_next(queue, bob)
        told = progress.of_queue(queue)
    assert (told.open, told.done, told.removed, told.total, told.percent) == (3, 2, 1, 5, 40)
    assert (told.agreed, told.disagreed, told.labels_left, told.held) == (1, 1, 5, 1)
    assert not told.is_finished


def test_an_empty_queue_is_not_finished(tenant: Tenant, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with tenant_scope(tenant):
        told = progress.of_queue(queue)
        assert (told.total, told.percent, told.is_finished, progress.days(queue)) == (0, 0, False, [])


def test_one_open_entry_keeps_a_queue_from_being_finished(tenant: Tenant, make_queue: MakeQueue, ada: User) -> None:
    with tenant_scope(tenant):
        calls = [ToolCallFactory() for _ in range(200)]
        queue = make_queue(calls)
        Assignment.objects.bulk_create(
            Assignment(entry=entry, queue=queue, reviewer=ada, state="labelled", label="good_reply")
            for entry in QueueEntry.objects.filter(queue=queue).exclude(call=calls[7])
        )
        QueueEntry.objects.filter(queue=queue).exclude(call=calls[7]).update(state="done", num_labels=1)
        told = progress.of_queue(queue)
        assert (told.open, told.percent, told.is_finished) == (1, 99, False)
        label(calls[7], ada)
        assert progress.of_queue(queue).is_finished


def test_each_reviewers_part_and_pace(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls, reviewers=(ada.pk, bob.pk))
    now = timezone.now()
    with tenant_scope(tenant):
        begun = claiming.claim_next(queue, ada, now=now - dt.timedelta(seconds=30))
        assert begun
        label(calls[0], ada)
        label(calls[1], ada)
        Assignment.objects.filter(entry__call=calls[1]).update(updated_at=now - dt.timedelta(hours=30))
        for leave in (claiming.skip, claiming.send_back):
            entry = claiming.claim_next(queue, bob)
            assert entry
            leave(queue, bob, claiming.item_of(entry))
        assert claiming.claim_next(queue, bob)
        shares = {str(one.reviewer): one for one in progress.by_reviewer(queue)}
    assert set(shares) == {"Ada", "Bob"}
    mine, theirs = shares["Ada"], shares["Bob"]
    assert (mine.done, mine.pending, mine.per_hour) == (2, 0, 1.0)
    assert mine.today in (0, 1)  # at midnight the sitting is of yesterday
    assert mine.median_s is not None
    assert 29 <= mine.median_s <= 60
    assert (theirs.done, theirs.pending, theirs.skipped, theirs.sent_back) == (0, 1, 1, 1)
    assert (theirs.per_hour, theirs.median_s, theirs.last_at) == (None, None, None)
    assert str(lead) not in shares


def test_the_burn_down_adds_up(tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User) -> None:
    queue = make_queue(calls)
    today = timezone.now()
    with tenant_scope(tenant):
        QueueEntry.objects.filter(queue=queue).update(added_at=today - dt.timedelta(days=20))
        QueueEntry.objects.filter(call__in=calls[:2]).update(added_at=today - dt.timedelta(days=1))
        for call in calls[:3]:
            label(call, ada)
        QueueEntry.objects.filter(call=calls[2]).update(done_at=today - dt.timedelta(days=2))
        told = progress.days(queue)
        left = progress.days_left(progress.of_queue(queue), told)
    assert len(told) == progress.DAYS
    assert [(day.added, day.done, day.left) for day in told[-4:]] == [(0, 0, 4), (0, 1, 3), (2, 0, 5), (0, 2, 3)]
    assert left == 3 / (3 / 7)


def test_the_review_of_a_queue_tells_where_one_is(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:4], guidelines="Read twice.", fields=("result",), reviewers=(ada.pk, bob.pk))
    with tenant_scope(tenant):
        source = QueueSource("acme", queue, ada)
        first = source.first()
        assert first is not None
        assert (first.call_id, source.first()) == (calls[0].pk, first)
        second = source.following(first)
        assert second is not None
        assert second.call_id == calls[1].pk
        assert source.following(first) == second  # asked again, it is the same one
        third = source.following(second)  # while the label of the first one is on its way
        assert third is not None
        assert third.call_id == calls[2].pk
        claiming.send_back(queue, ada, third)
        label(calls[0], ada)
        theirs = QueueSource("acme", queue, bob)
        assert theirs.first() == item_of_call(calls[2].pk)
        source = QueueSource("acme", queue, ada)
        rail = source.rail(second)
        assert [(stop.item.call_id, stop.label) for stop in rail.before] == [(calls[0].pk, "good_reply")]
        assert [stop.item.call_id for stop in rail.after] == [calls[3].pk]
        told = source.standing()
        assert (told.left, told.total, told.done, told.mine, told.held) == (3, 4, 1, 1, 1)
        desk = source.desk(second)
        assert (desk.parts, desk.guidelines, desk.is_adjudication) == ({"result"}, "Read twice.", False)
        assert desk.parts < set(PARTS)
        assert [action.name for action in source.actions(second)] == ["skip", "send_back", "hand_over", "unskip"]


def test_a_label_for_what_others_took_meanwhile_is_refused(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:1])
    with tenant_scope(tenant):
        item = item_of_call(calls[0].pk)
        source = QueueSource("acme", queue, ada)
        source.first()
        source.check(item)
        Assignment.objects.update(expires_at=timezone.now() - dt.timedelta(minutes=1))
        source.check(item)  # nobody took it: it is his again
        Assignment.objects.update(expires_at=timezone.now() - dt.timedelta(minutes=1))
        assert QueueSource("acme", queue, bob).first() == item
        with pytest.raises(Lost, match="Others took this one"):
            source.check(item)
