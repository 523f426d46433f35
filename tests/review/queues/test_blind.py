"""Blind queues: what others said is told by no door before all answers are in."""

import pytest
from django.http import QueryDict

from quality.models import Label, ReviewQueue, Suggestion, SuggestionRun, ToolCall
from quality.pages.review_source import FilterSource
from quality.review import labelling
from quality.review.items import item_of_call
from quality.review.labelling import StaleLabel, record_label
from quality.review.queues import claiming, wording
from quality.review.queues.claiming import NotHere
from tenants.models import Tenant, User
from tenants.scope import tenant_scope
from tests.review.queues.conftest import MakeQueue, entry_of


def test_a_write_that_came_too_late_is_not_answered_with_what_is_hidden(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    make_queue(calls[:1], labels_needed=3, is_blind=True)
    with tenant_scope(tenant):
        item = item_of_call(calls[0].pk)
        record_label(item=item, reviewer=ada, label=Label.WRONG_TOOL)
        record_label(item=item, reviewer=bob, label=Label.GOOD_REPLY)
        with pytest.raises(StaleLabel) as told:
            record_label(item=item, reviewer=bob, label=Label.OTHER, seen_version=0)
        assert [one.reviewer for one in told.value.current] == [bob]
        with pytest.raises(StaleLabel) as told:
            labelling.undo(item=item, reviewer=bob, seen_version=0)
        assert [one.reviewer for one in told.value.current] == [bob]


def test_the_last_answer_of_a_blind_queue_decides_no_suggestion_that_its_author_could_not_see(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, lead: User
) -> None:
    queue = make_queue(calls[:1], is_blind=True)
    with tenant_scope(tenant):
        item = item_of_call(calls[0].pk)
        run = SuggestionRun.objects.create(endpoint_label="a", max_items=1, created_by=lead)
        said = {"model": "a", "label": Label.GOOD_REPLY, "reason": "", "tool_name": item.tool_name}
        suggestion = Suggestion.objects.create(**item.columns, run=run, **said)
        record_label(item=item, reviewer=ada, label=Label.GOOD_REPLY)
        assert entry_of(queue, calls[0]).state == "done"
        suggestion.refresh_from_db()
        assert suggestion.state == Suggestion.State.OPEN


def test_who_does_not_review_a_queue_hands_nothing_over(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User, lead: User
) -> None:
    queue = make_queue(calls[:1], reviewers=(ada.pk, lead.pk))
    with tenant_scope(tenant):
        assert claiming.claim_next(queue, ada)
        with pytest.raises(NotHere, match="do not review"):
            claiming.hand_over(queue, bob, item_of_call(calls[0].pk), to=lead)
        assert len(claiming.held(queue, ada)) == 1


def test_why_an_item_is_served_does_not_tell_that_others_disagree(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue
) -> None:
    queue = make_queue(calls[:1], ordering=ReviewQueue.Order.USEFUL, labels_needed=3, is_blind=True)
    with tenant_scope(tenant):
        entry = entry_of(queue, calls[0])
        entry.why = {"disagreement": {"score": 0.3, "labels": 2}}
        assert wording.why_of(queue, entry) == ""
        entry.state = "done"
        assert wording.why_of(queue, entry) != ""


def test_review_over_labels_leaves_out_what_is_hidden(
    tenant: Tenant, calls: list[ToolCall], make_queue: MakeQueue, ada: User, bob: User
) -> None:
    make_queue(calls[:2], labels_needed=2, is_blind=True)
    with tenant_scope(tenant):
        hidden, mine, open_one = [item_of_call(call.pk) for call in calls[:3]]
        for item in (hidden, mine, open_one):
            record_label(item=item, reviewer=ada, label=Label.WRONG_TOOL)
        bobs = FilterSource(tenant.slug, QueryDict("label=wrong_tool"), bob)
        assert bobs.first() == open_one
        assert bobs.rail(open_one).before == []
        adas = FilterSource(tenant.slug, QueryDict("label=wrong_tool"), ada)
        assert adas.first() == hidden
        assert [stop.item for stop in adas.rail(hidden).after] == [mine, open_one]
