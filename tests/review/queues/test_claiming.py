"""Claims: one reviewer at a time, with an end; and what he may do instead of labelling."""

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.utils import timezone

from quality.models import Assignment, QueueEntry, ReviewQueue, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label, undo
from quality.review.queues import claiming, making
from quality.review.queues.claiming import NotHere, claim_next, held, item_of
from tenants.models import Role, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory
from tests.review.queues.conftest import MakeQueue, Members, entry_of

SOON = dt.timedelta(minutes=16)


def label(user: User, entry: QueueEntry, word: str = "good_reply") -> None:
    record_label(item=item_of(entry), reviewer=user, label=word)


def test_entries_are_served_newest_first_and_each_to_one_reviewer(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:3])
    with tenant_scope(tenant):
        first, second, third = (claim_next(queue, user) for user in (ada, bob, ada))
        assert [entry.call_id for entry in (first, second, third) if entry] == [call.pk for call in calls[:3]]
        assert claim_next(queue, bob) is None
        assert [entry.call_id for entry in held(queue, ada)] == [calls[0].pk, calls[2].pk]


@pytest.mark.parametrize("needed", [1, 2])
def test_reviewers_who_race_never_get_the_same_place(
    tenant: Tenant, make_queue: MakeQueue, member: Members, needed: int
) -> None:
    with tenant_scope(tenant):
        calls = [ToolCallFactory() for _ in range(8)]
    queue = make_queue(calls, labels_needed=needed)
    users = [member().user for _ in range(6)]
    gate = threading.Barrier(len(users))

    def take_all(user: User) -> list[int]:
        taken = []
        gate.wait(10)
        try:
            while True:
                with tenant_scope(tenant):
                    entry = claim_next(queue, user)
                if entry is None:
                    return taken
                taken.append(entry.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(users)) as pool:
        taken = list(pool.map(take_all, users))
    each = [pk for entries in taken for pk in entries]
    assert len(each) == 8 * needed
    assert all(each.count(pk) == needed for pk in set(each))
    assert all(len(set(entries)) == len(entries) for entries in taken)
    assert sum(bool(entries) for entries in taken) > 1  # they did race


def test_a_claim_that_nobody_touches_goes_to_others(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:1])
    now = timezone.now()
    with tenant_scope(tenant):
        assert claim_next(queue, ada, now=now)
        assert claim_next(queue, bob, now=now + dt.timedelta(minutes=14)) is None
        assert claim_next(queue, bob, now=now + SOON)
        assert held(queue, ada, now=now + SOON) == []


def test_a_sign_of_life_prolongs_a_claim(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:1])
    before = timezone.now() - dt.timedelta(minutes=10)
    with tenant_scope(tenant):
        assert claim_next(queue, ada, now=before)
        assert claiming.touch(queue, ada, item_of_call(calls[0].pk))
        assert claim_next(queue, bob, now=before + SOON) is None


def test_a_label_closes_the_claim_and_undo_gives_it_back(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:1])
    with tenant_scope(tenant):
        entry = claim_next(queue, ada)
        assert entry
        label(ada, entry)
        entry.refresh_from_db()
        assert (entry.state, entry.num_labels, entry.agreed) == ("done", 1, None)
        assert (held(queue, ada), claim_next(queue, bob)) == ([], None)
        undo(item=item_of(entry), reviewer=ada)
        entry.refresh_from_db()
        assert (entry.state, entry.num_labels, entry.done_at) == ("open", 0, None)
        assert [one.pk for one in held(queue, ada)] == [entry.pk]
        assert claim_next(queue, bob) is None


def test_what_was_skipped_comes_back_at_the_end_the_first_one_first(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User
) -> None:
    queue = make_queue(calls[:3])
    with tenant_scope(tenant):
        for _ in range(2):
            entry = claim_next(queue, ada)
            assert entry
            claiming.skip(queue, ada, item_of(entry))
        served = []
        while entry := claim_next(queue, ada):
            served.append(entry.call_id)
            label(ada, entry)
        assert served == [calls[2].pk, calls[0].pk, calls[1].pk]


def test_a_skip_is_taken_back_unless_others_have_it(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:2])
    with tenant_scope(tenant):
        first = claim_next(queue, ada)
        assert first
        claiming.skip(queue, ada, item_of(first))
        again = claiming.unskip(queue, ada)
        assert again is not None
        assert again.pk == first.pk
        assert [one.pk for one in held(queue, ada)] == [first.pk]
        claiming.skip(queue, ada, item_of(first))
        theirs = claim_next(queue, bob)
        assert theirs is not None
        assert theirs.pk == first.pk
        assert claiming.unskip(queue, ada) is None


def test_what_was_sent_back_goes_to_others_alone(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    queue = make_queue(calls[:1])
    with tenant_scope(tenant):
        entry = claim_next(queue, ada)
        assert entry
        claiming.send_back(queue, ada, item_of(entry), note="Needs somebody who reads German")
        assert claim_next(queue, ada) is None
        assert Assignment.objects.get(reviewer=ada).note == "Needs somebody who reads German"
        theirs = claim_next(queue, bob)
        assert theirs is not None
        assert theirs.pk == entry.pk


def test_what_is_handed_over_waits_for_its_reviewer_alone_and_comes_first(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls[:3])
    with tenant_scope(tenant):
        entry = claim_next(queue, ada)
        assert entry
        claiming.hand_over(queue, ada, item_of(entry), to=bob, note="You know this tool")
        taken = [one.call_id for one in (claim_next(queue, lead), claim_next(queue, lead)) if one]
        assert taken == [calls[1].pk, calls[2].pk]
        assert claim_next(queue, lead) is None
        assert claim_next(queue, ada) is None
        theirs = claim_next(queue, bob)
        assert theirs is not None
        assert theirs.pk == entry.pk
        mine = Assignment.objects.get(reviewer=bob)
        assert (mine.handed_by, mine.note) == (ada, "You know this tool")
        Assignment.objects.filter(pk=mine.pk).update(expires_at=timezone.now() - SOON)
        assert claim_next(queue, lead) is None  # it is still his
        assert [one.pk for one in held(queue, bob)] == [entry.pk]


def test_nothing_is_handed_to_who_does_not_review_the_queue(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, member: Members
) -> None:
    viewer = member(Role.VIEWER).user
    queue = make_queue(calls[:1])
    with tenant_scope(tenant):
        entry = claim_next(queue, ada)
        assert entry
        for to in (viewer, ada):
            with pytest.raises(NotHere, match="reviewers"):
                claiming.hand_over(queue, ada, item_of(entry), to=to)


def test_named_reviewers_alone_are_served(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, member: Members
) -> None:
    queue = make_queue(calls[:2], reviewers=(ada.pk,))
    viewer = member(Role.VIEWER).user
    with tenant_scope(tenant):
        assert claim_next(queue, bob) is None
        assert claim_next(queue, viewer) is None
        assert claim_next(queue, ada)
        with pytest.raises(NotHere):
            claiming.skip(queue, bob, item_of_call(calls[0].pk))


def test_a_closed_queue_serves_nothing_and_a_paused_one_goes_on(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, lead: User
) -> None:
    queue = make_queue(calls[:2])
    with tenant_scope(tenant):
        queue = making.set_state(queue, "paused", actor=lead)
        assert claim_next(queue, ada)
        queue = making.set_state(queue, "closed", actor=lead)
        assert claim_next(queue, ada) is None


def test_two_labels_are_two_reviewers_and_say_whether_they_agree(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls[:2], labels_needed=2)
    with tenant_scope(tenant):
        for call, word in ((calls[0], "good_reply"), (calls[1], "bad_args")):
            label(ada, entry_of(queue, call))
            record_label(item=item_of_call(call.pk), reviewer=ada, label="good_reply", note="again")
            assert entry_of(queue, call).num_labels == 1
            label(bob, entry_of(queue, call), word)
        found = [(one.state, one.num_labels, one.agreed) for one in (entry_of(queue, call) for call in calls[:2])]
        assert found == [("done", 2, True), ("done", 2, False)]
        label(lead, entry_of(queue, calls[0]), "other")  # a third opinion is no answer of this queue
        assert (entry_of(queue, calls[0]).num_labels, entry_of(queue, calls[0]).agreed) == (2, True)
        label(bob, entry_of(queue, calls[1]), "good_reply")  # an answer of it can be changed
        assert entry_of(queue, calls[1]).agreed is True


def test_a_done_entry_is_opened_again_for_one_more_label(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls[:1], reviewers=(ada.pk, bob.pk))
    with tenant_scope(tenant):
        entry = entry_of(queue, calls[0])
        label(ada, entry)
        claiming.reopen(entry, actor=lead)
        assert claim_next(queue, ada) is None
        theirs = claim_next(queue, bob)
        assert theirs is not None
        label(bob, theirs, "bad_args")
        assert (entry_of(queue, calls[0]).state, entry_of(queue, calls[0]).agreed) == ("done", False)
        with pytest.raises(NotHere, match="All reviewers"):
            claiming.reopen(entry, actor=lead)


def test_another_tenants_queue_is_not_there(
    tenant: Tenant, other_tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, member: Members
) -> None:
    queue = make_queue(calls[:1])
    stranger = member(tenant=other_tenant).user
    with tenant_scope(other_tenant):
        assert ReviewQueue.objects.count() == QueueEntry.objects.count() == 0
        assert claim_next(queue, stranger) is None
