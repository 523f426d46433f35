"""What a queue serves first, by its order; kept so as labels come in; and read by the right indexes."""

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from quality import tasks
from quality.models import Hint, QueueEntry, ReviewQueue, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, claiming, listing, making, ordering, refreshing
from tenants.models import Tenant, User
from tenants.scope import current_tenant_id, tenant_scope
from tests.factories import ToolCallFactory
from tests.review.queues.conftest import MakeQueue, entry_of


def hint(call: ToolCall, *rules: str) -> None:
    for rule in rules:
        Hint.objects.create(turn=call.turn, call=call, rule=rule, sentence="Look.", started_at=call.started_at)


def served(queue: ReviewQueue, user: User) -> list[int | None]:
    return [entry.call_id for entry in claiming.upcoming(queue, user, limit=20)]


@pytest.fixture
def mixed(tenant: Tenant) -> list[ToolCall]:
    """Newest first: a, b that failed, a with two hints, c with one, b."""
    with tenant_scope(tenant):
        calls = [
            ToolCallFactory(tool_name="a"),
            ToolCallFactory(tool_name="b", is_error=True),
            ToolCallFactory(tool_name="a"),
            ToolCallFactory(tool_name="c"),
            ToolCallFactory(tool_name="b"),
        ]
        hint(calls[2], "schema_violation", "slow_call")
        hint(calls[3], "slow_call")
        return calls


@pytest.mark.parametrize(
    ("order", "places"),
    [
        ("newest", [0, 1, 2, 3, 4]),
        ("errors", [1, 0, 2, 3, 4]),
        ("hints", [2, 3, 0, 1, 4]),
        ("spread", [0, 1, 3, 2, 4]),
        ("useful", [2, 3, 0, 1, 4]),
    ],
)
def test_each_order_serves_as_it_says_also_when_it_is_changed_to(
    tenant: Tenant, mixed: list[ToolCall], make_queue: MakeQueue, ada: User, lead: User, order: str, places: list[int]
) -> None:
    wanted = [mixed[place].pk for place in places]
    begun = make_queue(mixed, ordering=order)
    other = make_queue(mixed, ordering="spread" if order == "newest" else "newest")
    with tenant_scope(tenant):
        assert served(begun, ada) == wanted
        data = making.data_of(other)
        other = making.keep_queue(
            making.QueueData(**{name: getattr(data, name) for name in data.__slots__} | {"ordering": order}),
            actor=lead,
            pk=other.pk,
        )
        assert served(other, ada) == wanted


def test_a_tool_that_comes_later_has_its_turn(tenant: Tenant, make_queue: MakeQueue, ada: User, lead: User) -> None:
    with tenant_scope(tenant):
        calls = [ToolCallFactory(tool_name="a") for _ in range(3)]
        queue = make_queue(calls, ordering="spread")
        late = ToolCallFactory(tool_name="z")
        adding.add_items(queue, [item_of_call(late.pk)], actor=lead)
        assert served(queue, ada) == [calls[0].pk, late.pk, calls[1].pk, calls[2].pk]


def test_labels_put_the_most_useful_in_another_order_and_the_line_follows(
    tenant: Tenant, make_queue: MakeQueue, ada: User, bob: User
) -> None:
    with tenant_scope(tenant):
        slow = [ToolCallFactory(tool_name="a") for _ in range(6)]
        wrong = [ToolCallFactory(tool_name="a") for _ in range(6)]
        for call in slow:
            hint(call, "slow_call")
        for call in wrong:
            hint(call, "schema_violation")
    queue = make_queue([*slow, *wrong], ordering="useful")
    with tenant_scope(tenant):
        assert served(queue, ada)[0] == slow[0].pk  # nothing is known of either rule: the newest
        for call in slow[:4]:
            record_label(item=item_of_call(call.pk), reviewer=bob, label="good_reply")
        for call in wrong[:4]:
            record_label(item=item_of_call(call.pk), reviewer=bob, label="bad_args")
    tasks.refresh_queue(tenant.pk, queue.pk)
    with tenant_scope(tenant):
        assert served(queue, ada) == [call.pk for call in (*wrong[4:], *slow[4:])]
        why = entry_of(queue, wrong[5]).why
        assert (why["hints"]["rules"], why["tool_rate"]["bad"], why["tool_rate"]["of"]) == (["schema_violation"], 4, 8)


def test_a_queue_is_looked_at_now_and_then_and_written_only_after_labels(
    tenant: Tenant, mixed: list[ToolCall], make_queue: MakeQueue, ada: User
) -> None:
    queue = make_queue(mixed, ordering="useful")
    make_queue(mixed)  # of another order
    now = timezone.now()
    assert refreshing.overdue(now) == []
    assert refreshing.overdue(now + dt.timedelta(minutes=1)) == [(tenant.pk, queue.pk)]
    with tenant_scope(tenant):
        ReviewQueue.objects.filter(pk=queue.pk).update(refreshed_at=now - dt.timedelta(hours=1))
    assert refreshing.run(queue.pk, tenant=tenant) == 0
    assert refreshing.overdue(now) == []
    with tenant_scope(tenant):
        for call in mixed[2:4]:
            record_label(item=item_of_call(call.pk), reviewer=ada, label="wrong_tool")
    assert refreshing.run(queue.pk, tenant=tenant) == 3  # those that are open


def plan_of(statement: str, params: dict[str, Any]) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SET LOCAL enable_seqscan = off"
        )  # of a few rows a scan is the best plan: ask if it can do without
        cursor.execute(f"EXPLAIN {statement}", {"tenant": current_tenant_id(), **params})
        return "\n".join(row for (row,) in cursor.fetchall())


def test_no_statement_of_a_queue_walks_over_all_calls(
    tenant: Tenant, mixed: list[ToolCall], make_queue: MakeQueue, ada: User
) -> None:
    queue = make_queue(mixed)
    asked = {"queue": queue.pk, "me": ada.pk, "now": timezone.now(), "passed": [], "limit": 1, "state": "skipped"}
    ids = {"queue": queue.pk, "ids": [1, 2], "half": 10, "good": "good_reply", "window": 10}
    with tenant_scope(tenant):
        plans = {
            "claim": plan_of(claiming._IN_ORDER + claiming._LOCK, asked),
            "mine": plan_of(claiming._MINE + claiming._LOCK, asked),
            "errors": plan_of(ordering._STATEMENTS[ReviewQueue.Order.ERRORS], ids),
            "hints": plan_of(ordering._STATEMENTS[ReviewQueue.Order.HINTS], ids),
            "facts": plan_of(refreshing._FACTS, ids),
            "waiting": plan_of(refreshing._WAITING, ids),
            "ids": plan_of(refreshing._IDS, ids),
        }
    for name, plan in plans.items():
        assert "Seq Scan" not in plan, (name, plan)
    assert "review_queue_entries_next_idx" in plans["claim"]
    assert "agent_tool_call_feedback_new" in plans["facts"]


def test_a_page_of_entries_goes_on_where_the_one_before_it_ended(tenant: Tenant, make_queue: MakeQueue) -> None:
    with tenant_scope(tenant):
        calls = [ToolCallFactory(is_error=place % 3 == 0) for place in range(11)]
        queue = make_queue(calls, ordering="errors")
        wanted, seen, cursor = listing.EntryFilter(), [], ""
        while True:
            page = listing.find(queue, wanted, cursor=cursor, page_size=4)
            seen += [entry.call_id for entry in page.rows]
            if page.next is None:
                break
            cursor = page.next
        entries = QueueEntry.objects.filter(queue=queue).order_by("-priority", "-started_at", "-pk")
        assert seen == list(entries.values_list("call_id", flat=True))
        assert len(seen) == 11
        for bad in ("x", "bm9uc2Vuc2U", cursor[:-3]):
            with pytest.raises(listing.BadCursor):
                listing.find(queue, wanted, cursor=bad)
