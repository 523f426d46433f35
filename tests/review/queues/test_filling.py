"""What comes into a queue: by hand, by a frozen filter, by a worker, and by a rule as calls arrive."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality import tasks
from quality.calls import CallFilter
from quality.models import Assignment, QueueEntry, ReviewQueue, ToolCall
from quality.review import hinting
from quality.review.items import Item, item_of_call, item_of_turn
from quality.review.labelling import record_label
from quality.review.queues import adding, filling, making
from quality.review.queues.adding import QueueClosed, QueueFull, add_matching
from tenants.models import AuditEvent, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import LATEST, ToolCallFactory, TurnFactory
from tests.ingest.helpers import NEUTRAL, take
from tests.review.queues.conftest import MakeQueue, entry_of, items_of


def calls_in(tenant: Tenant, queue: ReviewQueue) -> list[int | None]:
    with tenant_scope(tenant):
        entries = QueueEntry.objects.filter(queue=queue).order_by("-priority", "-started_at", "-pk")
        return list(entries.values_list("call_id", flat=True))


def test_an_item_has_one_entry_however_it_came(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User
) -> None:
    queue = make_queue(calls[:2])
    with tenant_scope(tenant):
        items = items_of(tenant, calls[:3])
        assert adding.add_items(queue, [*items, *items], actor=lead) == 1
        assert add_matching(queue, CallFilter(), lead) == 3
        assert add_matching(queue, CallFilter(), lead) == 0
    assert calls_in(tenant, queue) == [call.pk for call in calls]
    with tenant_scope(tenant):
        told = AuditEvent.objects.filter(action="queue.added").order_by("pk").values_list("detail__number", flat=True)
        assert list(told) == [2, 1, 3, 0]


def test_all_that_matches_goes_in_replies_without_a_call_too(tenant: Tenant, make_queue: MakeQueue, lead: User) -> None:
    with tenant_scope(tenant):
        failed = ToolCallFactory(is_error=True)
        ToolCallFactory(state="running", is_error=None)
        turn = TurnFactory()
    queue = make_queue()
    with tenant_scope(tenant):
        assert add_matching(queue, CallFilter(error="yes"), lead) == 1
        assert add_matching(queue, CallFilter(), lead) == 1
        kinds = set(QueueEntry.objects.values_list("call_id", "turn_id"))
        assert kinds == {(failed.pk, failed.turn_id), (None, turn.pk)}


def test_a_frozen_filter_takes_nothing_that_comes_later(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User
) -> None:
    queue = make_queue()
    frozen = adding.frozen(CallFilter())
    with tenant_scope(tenant):
        ToolCallFactory()
        assert add_matching(queue, frozen, lead) == len(calls)
        assert add_matching(queue, frozen, lead, limit=2) == 0


def test_a_limit_takes_the_newest(tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User) -> None:
    queue = make_queue()
    with tenant_scope(tenant):
        assert add_matching(queue, CallFilter(), lead, 2) == 2
    assert calls_in(tenant, queue) == [call.pk for call in calls[:2]]


def test_many_are_added_set_by_set(
    tenant: Tenant, make_queue: MakeQueue, lead: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many statements for a batch of ten as for one of forty."""
    with tenant_scope(tenant):
        turn = TurnFactory()
        for _ in range(40):
            ToolCallFactory(turn=turn)
    counted = []
    for size in (10, 40):
        queue = make_queue()
        with tenant_scope(tenant), CaptureQueriesContext(connection) as seen:
            assert add_matching(queue, CallFilter(), lead, size) == size
        counted.append(len(seen))
    assert counted[0] == counted[1] < 20
    monkeypatch.setattr(adding, "BATCH", 15)
    queue = make_queue()
    with tenant_scope(tenant):
        assert add_matching(queue, CallFilter(), lead) == 40


def test_a_worker_adds_what_was_ordered_and_goes_on_where_it_was(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "BATCH", 2)
    queue = make_queue()
    with tenant_scope(tenant):
        adding.order(queue, CallFilter(), actor=lead, limit=5)
        with pytest.raises(ValidationError, match="right now"):
            adding.order(queue, CallFilter(), actor=lead)
        ToolCallFactory()  # comes too late
    assert adding.unfinished() == [(tenant.pk, queue.pk)]
    assert adding.run(queue.pk, tenant=tenant, max_batches=1)
    assert calls_in(tenant, queue) == [call.pk for call in calls[:2]]
    tasks.fill_queue(tenant.pk, queue.pk)
    assert calls_in(tenant, queue) == [call.pk for call in calls[:5]]
    assert adding.unfinished() == []
    with tenant_scope(tenant):
        queue.refresh_from_db()
        assert (queue.backfill["added"], queue.backfill["done"]) == (5, True)


def test_a_queue_has_an_end_and_a_closed_one_takes_nothing(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(calls[:2])
    monkeypatch.setattr(adding, "MAX_ENTRIES", 3)
    with tenant_scope(tenant):
        with pytest.raises(QueueFull, match="room for 1 more"):
            adding.add_items(queue, items_of(tenant, calls), actor=lead)
        assert add_matching(queue, CallFilter(), lead) == 0  # the newest are there
        queue = making.set_state(queue, "closed", actor=lead)
        with pytest.raises(QueueClosed):
            adding.add_items(queue, items_of(tenant, calls[2:3]), actor=lead)


def test_what_was_taken_out_comes_back_by_hand_alone(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, lead: User
) -> None:
    queue = make_queue(calls[:1])
    with tenant_scope(tenant):
        adding.take_out(entry_of(queue, calls[0]), actor=lead)
        assert add_matching(queue, CallFilter(), lead, 1) == 0
        assert entry_of(queue, calls[0]).state == "removed"
        assert adding.add_items(queue, items_of(tenant, calls[:1]), actor=lead) == 1
        assert entry_of(queue, calls[0]).state == "open"


def test_earlier_labels_count_where_the_queue_wants_it(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    with tenant_scope(tenant):
        record_label(item=item_of_call(calls[0].pk), reviewer=ada, label="good_reply")
    counts, anew = make_queue(calls[:2]), make_queue(calls[:2], counts_earlier=False)
    others = make_queue(calls[:2], reviewers=(bob.pk,))
    with tenant_scope(tenant):
        assert (entry_of(counts, calls[0]).state, entry_of(counts, calls[0]).num_labels) == ("done", 1)
        assert entry_of(counts, calls[1]).state == "open"
        assert entry_of(anew, calls[0]).state == "open"
        assert entry_of(others, calls[0]).state == "open"
        # Where they do not count, the same answer given again does.
        record_label(item=item_of_call(calls[0].pk), reviewer=ada, label="good_reply")
        assert (entry_of(anew, calls[0]).state, Assignment.objects.filter(queue=anew).count()) == ("done", 1)


# --- by a rule --------------------------------------------------------------------------------------------------------
def arrive(tenant: Tenant, *records: dict[str, Any]) -> None:
    take(list(records), tenant)
    hinting.make(tenant)


def record(number: int, **fields: Any) -> dict[str, Any]:
    return {**NEUTRAL, "external_id": f"run-{number}", **fields}


def test_a_rule_takes_what_comes_in_from_now_on_and_passes_its_filter(tenant: Tenant, make_queue: MakeQueue) -> None:
    arrive(tenant, record(0, args=[7]))
    queue = make_queue(kind="rule", query="hint=any")
    plain = make_queue(kind="rule", query="tool=no_such_tool")
    arrive(tenant, record(1, args=[7]), record(2))
    assert len(calls_in(tenant, queue)) == 1
    assert calls_in(tenant, plain) == []
    with tenant_scope(tenant):
        hinting.forget(QueueEntry.objects.values_list("turn_id", flat=True))
    hinting.make(tenant)
    assert len(calls_in(tenant, queue)) == 1  # a repeat changes nothing


def test_a_paused_rule_does_not_fill_and_what_came_meanwhile_stays_out(
    tenant: Tenant, make_queue: MakeQueue, lead: User
) -> None:
    queue = make_queue(kind="rule")
    with tenant_scope(tenant):
        making.set_state(queue, "paused", actor=lead)
    arrive(tenant, record(1))
    with tenant_scope(tenant):
        making.set_state(queue, "open", actor=lead)
        hinting.forget(ToolCall.objects.values_list("turn_id", flat=True))
    arrive(tenant, record(2))
    assert len(calls_in(tenant, queue)) == 1


def test_a_rule_that_is_broken_costs_its_queue_alone(
    tenant: Tenant, make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    broken, queue = make_queue(kind="rule"), make_queue(kind="rule")
    with tenant_scope(tenant):
        ReviewQueue.objects.filter(pk=broken.pk).update(query="hint=gone_by_now")
    arrive(tenant, record(1))
    assert (calls_in(tenant, broken), len(calls_in(tenant, queue))) == ([], 1)
    assert "is not understood" in caplog.text


def test_a_sample_is_the_same_whenever_it_is_drawn_and_about_as_large_as_said() -> None:
    items = [Item(turn_id=1, cycle=0, call_id=number, started_at=LATEST) for number in range(1, 2001)]
    drawn = [item for item in items if filling.is_sampled(7, item, 0.25)]
    assert drawn == [item for item in items if filling.is_sampled(7, item, 0.25)]
    assert 420 < len(drawn) < 580
    assert drawn != [item for item in items if filling.is_sampled(8, item, 0.25)]
    assert set(drawn) <= {item for item in items if filling.is_sampled(7, item, 0.5)}
    assert all(filling.is_sampled(7, item, 1.0) for item in items)


def test_a_turn_without_calls_passes_a_rule_too(tenant: Tenant, make_queue: MakeQueue) -> None:
    queue = make_queue(kind="rule")
    with tenant_scope(tenant):
        turn = TurnFactory()
        assert filling.fill([turn.pk]) == 1
        entry = QueueEntry.objects.get(queue=queue)
        assert (entry.call_id, entry.turn_id) == (None, turn.pk)
        assert item_of_turn(turn.pk).key == {"turn_id": turn.pk, "cycle": 0, "call_id": None}
