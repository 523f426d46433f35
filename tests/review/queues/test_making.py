"""Queues as they are kept: changed in part, deleted and brought back, and gone for good after a while."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from quality.models import Assignment, Feedback, QueueEntry, ReviewQueue, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, adjudication, claiming, making, people
from tenants.models import AuditEvent, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.review.queues.conftest import MakeQueue, Members, entry_of

LATER = dt.timedelta(days=31)


def closed_and_deleted(queue: ReviewQueue, lead: User) -> None:
    making.set_state(queue, "closed", actor=lead)
    making.delete_queue(queue, actor=lead)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"labels_needed": 0}, "labels_needed"),
        ({"labels_needed": 10}, "labels_needed"),
        ({"kind": "rule", "sample_rate": 1.5}, "sample_rate"),
        ({"kind": "rule", "query": "error=maybe"}, "query"),
        ({"name": "Taken"}, "name"),
        ({"name": ""}, "name"),
        ({"ordering": "backwards"}, "ordering"),
        ({"guidelines": "x" * 20_001}, "guidelines"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_its_field(
    tenant: Tenant, make_queue: MakeQueue, lead: User, said: dict[str, Any], field: str
) -> None:
    make_queue(name="Taken")
    with tenant_scope(tenant), pytest.raises(ValidationError) as refusal:
        making.keep_queue(making.QueueData(**{"name": "New", **said}), actor=lead)
    assert list(refusal.value.error_dict) == [field]


def test_a_change_is_written_to_the_audit_log_and_the_rest_stays(
    tenant: Tenant, make_queue: MakeQueue, lead: User, ada: User
) -> None:
    queue = make_queue(kind="rule", query="error=yes", sample_rate=0.5, reviewers=(ada.pk,))
    with tenant_scope(tenant):
        changed = making.keep_queue(replace(making.data_of(queue), name="Renamed"), actor=lead, pk=queue.pk)
        assert (changed.query, changed.sample_rate, changed.for_everyone) == ("error=yes", 0.5, False)
        assert people.reviewers_of(changed) == [ada]
        told = AuditEvent.objects.filter(object_type="review_queue", object_id=str(queue.pk)).order_by("pk")
        assert [event.action for event in told] == ["queue.created", "queue.added", "queue.changed"]
        assert told[0].after_sha256 == told[2].before_sha256 != told[2].after_sha256


def test_fewer_labels_needed_finish_what_has_them(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User, ada: User
) -> None:
    queue = make_queue(calls[:2], labels_needed=2)
    with tenant_scope(tenant):
        record_label(item=item_of_call(calls[0].pk), reviewer=ada, label="other")
        making.keep_queue(replace(making.data_of(queue), labels_needed=1), actor=lead, pk=queue.pk)
        assert [entry_of(queue, call).state for call in calls[:2]] == ["done", "open"]


def test_a_deleted_queue_goes_for_good_after_a_month_and_its_labels_stay(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User, ada: User
) -> None:
    queue, other = make_queue(calls[:2]), make_queue(calls[:1])
    with tenant_scope(tenant):
        record_label(item=item_of_call(calls[0].pk), reviewer=ada, label="other")
        closed_and_deleted(queue, lead)
    now = timezone.now()
    assert making.purge(now) == 0
    with tenant_scope(tenant):
        making.restore_queue(queue.pk, actor=lead)
        assert entry_of(queue, calls[0]).state == "done"
        making.delete_queue(making.queue_of(queue.pk), actor=lead)
    assert making.purge(now + LATER) == 1
    with tenant_scope(tenant):
        assert list(ReviewQueue.objects.all()) == [other]
        assert set(QueueEntry.objects.values_list("queue_id", flat=True)) == {other.pk}
        assert set(Assignment.objects.values_list("queue_id", flat=True)) == {other.pk}
        assert Feedback.objects.count() == 1


def test_a_queue_stays_while_another_one_decides_its_disagreements(
    tenant: Tenant, make_queue: MakeQueue, lead: User
) -> None:
    queue = make_queue(labels_needed=2)
    with tenant_scope(tenant):
        collects = adjudication.make(queue, actor=lead)
        closed_and_deleted(queue, lead)
    now = timezone.now() + LATER
    assert making.purge(now) == 0
    with tenant_scope(tenant):
        closed_and_deleted(collects, lead)
    assert making.purge(now) >= 1
    assert making.purge(now) == 0
    with tenant_scope(tenant):
        assert not ReviewQueue.objects.exists()


def test_members_are_found_by_address_or_name_if_it_means_one(tenant: Tenant, member: Members) -> None:
    ada = member(user__name="Ada", user__email="ada@example.com").user
    twins = [member(user__name="Bob").user for _ in range(2)]
    member(Role.VIEWER, user__name="Vera")
    with tenant_scope(tenant):
        assert people.found_members(["ADA", " ada@example.com ", ""]) == ([ada], [])
        assert people.found_members(["Bob", "Vera", "nobody@example.com"]) == (
            [],
            ["Bob", "Vera", "nobody@example.com"],
        )
        assert people.found_members([twins[0].email])[0] == [twins[0]]


def test_who_is_no_reviewer_any_more_lets_go_of_what_was_handed_to_him(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls[:1], reviewers=(ada.pk, bob.pk))
    with tenant_scope(tenant):
        entry = claiming.claim_next(queue, ada)
        assert entry
        claiming.hand_over(queue, ada, claiming.item_of(entry), to=bob)
        data = replace(making.data_of(queue), reviewers=(ada.pk, lead.pk))
        queue = making.keep_queue(data, actor=lead, pk=queue.pk)
        assert claiming.claim_next(queue, lead) == entry


def test_disagreements_that_come_by_another_way_than_a_label_are_collected(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls[:1], labels_needed=3)
    with tenant_scope(tenant):
        for call in calls[:2]:
            record_label(item=item_of_call(call.pk), reviewer=ada, label="wrong_tool")
            record_label(item=item_of_call(call.pk), reviewer=bob, label="good_reply")
        collected = QueueEntry.objects.filter(queue=adjudication.make(queue, actor=lead))
        assert not collected.exists()
        queue = making.keep_queue(replace(making.data_of(queue), labels_needed=2), actor=lead, pk=queue.pk)
        assert [entry.call_id for entry in collected] == [calls[0].pk]
        adding.add_items(queue, [item_of_call(calls[1].pk)], actor=lead)
        assert {entry.call_id for entry in collected.all()} == {calls[0].pk, calls[1].pk}
