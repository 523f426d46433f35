"""Labels on replies without a call go with their reply when more of its trace comes in, history and all."""

import pytest
from django.db import DatabaseError, connection

from quality.ingest.otlp_labels import moving
from quality.models import Feedback, FeedbackEvent, Review, Turn
from quality.review import labelling
from quality.review.items import Item, item_of_turn
from tenants.scope import tenant_scope
from tests.ingest.span_files import genai_chat, genai_tool
from tests.ingest.test_otlp_store import send


def labelled(tenant, member, cycle: int | None = None, label: str = "missing_tool") -> Item:
    """The last reply of the one turn, with a label that was changed once, and a history of three events."""
    reviewer = member("operator").user
    with tenant_scope(tenant):
        item = item_of_turn(Turn.objects.get().pk, cycle)
        labelling.record_label(item=item, label="other", reviewer=reviewer)
        labelling.record_label(item=item, label=label, reviewer=reviewer)
        labelling.undo(item=item, reviewer=reviewer)
        labelling.record_label(item=item, label=label, reviewer=reviewer)
    return item


def told(tenant, cycle: int) -> tuple[list[str], list[int]]:
    """Current labels and versions of the history of the reply at this cycle."""
    with tenant_scope(tenant):
        item = item_of_turn(Turn.objects.get().pk, cycle)
        labels = [one.label for one in labelling.current_labels(item)]
        return labels, [event.version for event in labelling.history(item)]


def test_the_label_of_a_last_reply_goes_with_it(tenant, member):
    send(tenant, genai_chat(9))
    labelled(tenant, member)
    send(tenant, genai_chat(1, "a"), genai_tool(2, call_id="a"))
    assert told(tenant, 1) == (["missing_tool"], [1, 2, 3, 4])
    assert told(tenant, 0) == ([], [])
    send(tenant, genai_chat(3, "b"), genai_tool(4, call_id="b"))
    assert told(tenant, 2) == (["missing_tool"], [1, 2, 3, 4])
    with tenant_scope(tenant):
        item = item_of_turn(Turn.objects.get().pk)
        labelling.record_label(item=item, label="good_reply", reviewer=member("operator").user)
        assert Review.objects.get().cycle == item.cycle == 2
        assert {event.cycle for event in FeedbackEvent.objects.all()} == {2}


def test_a_later_reply_takes_no_label_along(tenant, member):
    send(tenant, genai_chat(1))
    labelled(tenant, member)
    send(tenant, genai_chat(5))
    assert told(tenant, 0) == (["missing_tool"], [1, 2, 3, 4])
    assert told(tenant, 1) == ([], [])


def test_labels_of_several_replies_keep_apart(tenant, member):
    """One was the last in turn when it was labelled, the other beside a call; both shift by one, into each other."""
    send(tenant, genai_chat(5, "a"), genai_tool(6, call_id="a"), genai_chat(9))
    labelled(tenant, member, 0, "other")
    labelled(tenant, member, 1)
    send(tenant, genai_chat(1, "b"), genai_tool(2, call_id="b"))
    assert told(tenant, 0) == ([], [])
    assert told(tenant, 1) == (["other"], [1, 2, 3])
    assert told(tenant, 2) == (["missing_tool"], [1, 2, 3, 4])


def test_what_came_twice_or_tells_nothing_new_moves_nothing(tenant, member):
    spans = [genai_chat(1, "a"), genai_tool(2, call_id="a"), genai_chat(9)]
    send(tenant, *spans)
    labelled(tenant, member)
    send(tenant, *spans)
    send(tenant, genai_tool(3, call_id="c"))
    assert told(tenant, 1) == (["missing_tool"], [1, 2, 3, 4])


def test_other_tenants_labels_stay_where_they_are(tenant, other_tenant, member):
    for one in (tenant, other_tenant):
        send(one, genai_chat(9))
    labelled(tenant, member)
    with tenant_scope(tenant):
        turn = Turn.objects.get().pk
    with tenant_scope(other_tenant), connection.cursor() as cursor:
        cursor.execute("SELECT follow_replies(%s::bigint[], %s::int[], %s::int[])", [[turn], [0], [7]])
    assert told(tenant, 0) == (["missing_tool"], [1, 2, 3, 4])


def test_the_history_cannot_be_changed_otherwise(tenant, member):
    send(tenant, genai_chat(9))
    labelled(tenant, member)
    for change in ("cycle = 5", "label = 'other'"):
        with pytest.raises(DatabaseError), tenant_scope(tenant), connection.cursor() as cursor:
            cursor.execute(f"UPDATE agent_tool_call_feedback_events SET {change}")
    with tenant_scope(tenant):
        assert Feedback.objects.get().cycle == 0


@pytest.mark.parametrize(
    ("wanted", "held", "moved"),
    [
        ({1: 2, 2: 3}, {1, 2}, {1: 2, 2: 3}),
        ({1: 2, 2: 1}, {1, 2}, {1: 2, 2: 1}),
        ({1: 2, 2: 3}, {1, 2, 3}, {}),  # what waits for a cycle that is not left stays as well
        ({1: 3, 2: 3}, {1, 2}, {1: 3}),
        ({1: 2, 2: 3}, {1}, {1: 2}),
    ],
)
def test_only_what_finds_a_free_cycle_moves(wanted, held, moved):
    assert moving(wanted, held) == moved
