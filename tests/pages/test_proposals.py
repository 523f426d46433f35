"""Proposals on the page: grouped, tracked, decided once."""

import datetime as dt

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from quality.improve import proposals
from quality.models import Proposal
from tenants.models import Role
from tenants.scope import tenant_scope
from tests.factories import FeedbackFactory, ProposalFactory, ToolCallFactory, TurnFactory

KEY = {"label": "bad_args", "tool_name": "get_weather", "style_id": "friendly", "fault": "arg:/city"}


@pytest.fixture
def browse(member):
    def make(role=Role.OPERATOR):
        client = Client()
        client.force_login(member(role).user)
        return client

    return make


@pytest.fixture
def two_labels(tenant):
    with tenant_scope(tenant):
        return [FeedbackFactory(correction='{"arguments":{"city":"Zürich"}}', note="Misspelled") for _ in range(2)]


def address(name="proposal-list", *args):
    return reverse(name, args=["acme", *args])


def track(client):
    return client.post(address("proposal-track"), KEY)


def test_a_group_is_listed_with_its_calls_and_tracked(tenant, browse, two_labels):
    client = browse()
    page = client.get(address()).content.decode()
    assert "not tracked" in page
    assert "<strong>2</strong> calls" in page
    assert address("call-detail", two_labels[0].call_id) in page
    response = track(client)
    with tenant_scope(tenant):
        proposal = Proposal.objects.get()
    assert response.url == address("proposal-detail", proposal.pk)
    assert response.url in client.get(address()).content.decode()
    assert track(client).url == response.url  # a second click finds it
    assert proposal.title.split()[0] in client.get(address("proposal-history")).content.decode()


def test_new_feedback_of_the_group_joins_the_proposal(tenant, browse, two_labels):
    client = browse()
    detail = track(client).url
    assert "2 calls" in client.get(detail).content.decode()
    with tenant_scope(tenant):
        FeedbackFactory()
    assert "3 calls" in client.get(detail).content.decode()


def test_it_is_dismissed_with_a_reason_and_reopened(tenant, browse, two_labels):
    client = browse()
    detail = track(client).url
    with tenant_scope(tenant):
        proposal = Proposal.objects.get()
    refused = client.post(address("proposal-dismiss", proposal.pk), {"version": 1, "reason": " "})
    assert refused.status_code == 400
    client.post(address("proposal-dismiss", proposal.pk), {"version": 1, "reason": "Twice is no pattern."})
    page = client.get(detail).content.decode()
    assert "dismissed" in page
    assert "Twice is no pattern." in page
    client.post(address("proposal-reopen", proposal.pk), {"version": 2, "reason": "It came again."})
    page = client.get(detail).content.decode()
    assert "It came again." in page
    assert 'value="3"' in page


def test_a_second_decision_is_told_the_first_and_keeps_what_was_written(tenant, browse, two_labels):
    client = browse()
    track(client)
    with tenant_scope(tenant):
        proposal = Proposal.objects.get()
    form = {"version": 1, "kind": "pull_request", "ref": "https://example.com/pr/7", "note": "Better schema"}
    assert client.post(address("proposal-apply", proposal.pk), form).status_code == 302
    late = client.post(address("proposal-dismiss", proposal.pk), {"version": 1, "reason": "Mine"})
    page = late.content.decode()
    assert late.status_code == 409
    assert "https://example.com/pr/7" in page
    assert "was applied" in page


def test_an_apply_that_names_nothing_is_refused_beside_the_field(tenant, browse, two_labels):
    client = browse()
    track(client)
    with tenant_scope(tenant):
        proposal = Proposal.objects.get()
    response = client.post(address("proposal-apply", proposal.pk), {"version": 1, "kind": "pull_request"})
    assert response.status_code == 400
    assert "which pull request it is" in response.content.decode()


def test_rates_stand_before_and_after_with_counts_or_say_too_few(tenant, browse, member):
    decided = timezone.now() - dt.timedelta(days=5)
    with tenant_scope(tenant):
        admin = member(Role.ADMIN)
        for number in range(24):
            turn = TurnFactory(started_at=decided - dt.timedelta(days=1, minutes=number))
            FeedbackFactory(
                call=ToolCallFactory(turn=turn), label="bad_args" if number < 6 else "good_reply", created_at=decided
            )
        proposal = ProposalFactory(created_by=admin.user)
        proposals.apply(proposal.pk, kind="other", note="New schema", by=admin.user)
        Proposal.objects.filter(pk=proposal.pk).update(decided_at=decided)
    page = browse(Role.VIEWER).get(address("proposal-detail", proposal.pk)).content.decode()
    assert "25 %" in page
    assert "12 – 45 %" in page.replace("\n", " ").replace("  ", " ") or "12" in page
    assert "too few calls yet: 0 of 20 labelled" in page


def test_viewers_read_and_decide_nothing(tenant, browse, two_labels):
    assert track(browse()).status_code == 302
    viewer = browse(Role.VIEWER)
    with tenant_scope(tenant):
        proposal = Proposal.objects.get()
    page = viewer.get(address("proposal-detail", proposal.pk)).content.decode()
    assert "Operators and admins decide" in page
    assert viewer.post(address("proposal-dismiss", proposal.pk), {"version": 1, "reason": "x"}).status_code == 403
    assert track(viewer).status_code == 403


def test_filters_narrow_and_bad_ones_are_told(tenant, browse, two_labels):
    client = browse()
    assert "Nothing matches" in client.get(address() + "?tool=nobody").content.decode()
    assert "is no label" in client.get(address() + "?label=nonsense").content.decode()
    assert "not one of ours" in client.get(address() + "?cursor=AAAA").content.decode()
    assert "Not a filter" in client.get(address() + "?who=x").content.decode()


def test_an_empty_list_says_the_next_step(tenant, browse):
    assert "Review calls" in browse().get(address()).content.decode()
    assert "Nothing is tracked yet" in browse().get(address("proposal-history")).content.decode()


def test_what_reviewers_and_models_wrote_is_inert(tenant, browse):
    with tenant_scope(tenant):
        call = ToolCallFactory(turn=TurnFactory(), tool_name="<b>x</b>", args='{"a":"<script>1</script>"}')
        FeedbackFactory(call=call, note="<img src=x onerror=alert(1)>")
    page = browse().get(address()).content.decode()
    assert "<b>x</b>" not in page
    assert "<script>1" not in page
    assert "<img src=x" not in page
