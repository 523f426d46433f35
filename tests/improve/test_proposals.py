"""From a group to a decision: each step once, each in the history, and the second of two is told the first."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quality.calls import BadCursor
from quality.improve import groups, proposals
from quality.improve.groups import GroupKey, NoSuchGroup
from quality.improve.proposals import (
    AlreadyDecided,
    NoSuchProposal,
    NotDecided,
    Overtaken,
    ProposalConflict,
    ProposalFilter,
    StaleProposal,
)
from quality.models import Proposal, ProposalEvent
from tenants.models import AuditEvent, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, FeedbackFactory, ProposalFactory, UserFactory

CITY = GroupKey(label="bad_args", tool_name="get_weather", style_id="friendly", fault="arg:/city")


@pytest.fixture
def scope(tenant: Tenant) -> Iterator[None]:
    with tenant_scope(tenant):
        yield


@pytest.fixture
def ada(db: None) -> User:
    return UserFactory(name="Ada")


@pytest.fixture
def bob(db: None) -> User:
    return UserFactory(name="Bob")


pytestmark = pytest.mark.usefixtures("scope")


def test_tracking_makes_a_proposal_that_new_feedback_joins(ada: User) -> None:
    first = FeedbackFactory()
    proposal = proposals.track(CITY, by=ada)
    assert (proposal.state, proposal.version, proposal.created_by, proposal.covers_since) == ("pending", 1, ada, None)
    assert proposal.title == "Wrong argument city of get_weather"
    assert proposal.suggested_kind == "tool_schema_patch"
    second = FeedbackFactory()
    assert set(groups.feedback_of(proposal)) == {first, second}
    found = proposals.detail(proposal.pk)
    assert (found.num_items, found.num_feedback, len(found.examples)) == (2, 2, 2)
    (event,) = found.events
    assert (event.action, event.version, event.by) == ("track", 1, ada)
    logged = AuditEvent.objects.get(action="proposal.tracked")
    assert (logged.actor, logged.object_id) == (ada, str(proposal.pk))


def test_tracking_again_gives_the_pending_one(ada: User, bob: User) -> None:
    FeedbackFactory()
    first, is_new = proposals.ensure_tracked(CITY, by=ada)
    again, is_new_again = proposals.ensure_tracked(CITY, by=bob)
    assert (first, is_new, is_new_again) == (again, True, False)
    assert ProposalEvent.objects.count() == 1


def test_what_nobody_says_cannot_be_tracked(ada: User) -> None:
    with pytest.raises(NoSuchGroup):
        proposals.track(CITY, by=ada)


def test_a_decided_group_is_tracked_again_only_when_it_is_said_again(ada: User) -> None:
    old = FeedbackFactory()
    first = proposals.dismiss(proposals.track(CITY, by=ada).pk, reason="not worth it", by=ada)
    with pytest.raises(NoSuchGroup):
        proposals.track(CITY, by=ada)
    new = FeedbackFactory()
    second = proposals.track(CITY, by=ada)
    assert second.covers_since == first.decided_at
    assert list(groups.feedback_of(first)) == [old]
    assert list(groups.feedback_of(second)) == [new]


def test_a_second_decision_is_told_the_first(ada: User, bob: User) -> None:
    FeedbackFactory()
    proposal = proposals.track(CITY, by=ada)
    proposals.apply(proposal.pk, kind="pull_request", ref="https://example.com/pull/7", note="n", by=ada)
    for second in (
        lambda: proposals.apply(proposal.pk, kind="other", note="mine", by=bob),
        lambda: proposals.dismiss(proposal.pk, reason="no", by=bob),
        lambda: proposals.dismiss(proposal.pk, reason="no", by=bob, seen_version=1),
    ):
        with pytest.raises(AlreadyDecided) as caught:
            second()
        first = caught.value.proposal
        assert (first.state, first.decided_by, first.resolution_kind) == ("applied", ada, "pull_request")
        assert "applied by Ada" in str(caught.value)
    assert [event.action for event in proposals.detail(proposal.pk).events] == ["track", "apply"]


def test_a_decision_is_taken_back_and_stays_in_the_history(ada: User, bob: User) -> None:
    FeedbackFactory()
    pk = proposals.track(CITY, by=ada).pk
    proposals.apply(pk, kind="prompt_patch", note="Said so in the prompt.", by=ada)
    again = proposals.reopen(pk, by=bob, reason="did not help")
    assert (again.state, again.version, again.decided_by, again.decided_at, again.resolution_kind) == (
        "pending", 3, None, None, "",
    )  # fmt: skip
    with pytest.raises(NotDecided):
        proposals.reopen(pk, by=bob)
    with pytest.raises(StaleProposal) as caught:
        proposals.dismiss(pk, reason="no", by=ada, seen_version=1)
    assert caught.value.proposal.version == 3
    proposals.dismiss(pk, reason="no", by=ada, seen_version=3)
    events = [(event.action, event.version, str(event.by)) for event in proposals.detail(pk).events]
    assert events == [("track", 1, "Ada"), ("apply", 2, "Ada"), ("reopen", 3, "Bob"), ("dismiss", 4, "Ada")]
    logged = AuditEvent.objects.filter(object_type="proposal").order_by("pk").values_list("action", flat=True)
    assert [*logged] == ["proposal.tracked", "proposal.applied", "proposal.reopened", "proposal.dismissed"]


def test_only_the_newest_proposal_of_a_group_is_reopened(ada: User) -> None:
    FeedbackFactory()
    first = proposals.dismiss(proposals.track(CITY, by=ada).pk, reason="no", by=ada)
    FeedbackFactory()
    second = proposals.track(CITY, by=ada)
    with pytest.raises(Overtaken) as caught:
        proposals.reopen(first.pk, by=ada)
    assert caught.value.other == second


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"kind": "magic", "note": "x"}, "kind", "unknown_kind"),
        ({"kind": "pull_request", "note": "x"}, "ref", "required"),
        ({"kind": "other"}, "note", "required"),
        ({"kind": "other", "note": "  "}, "note", "required"),
        ({"kind": "other", "note": "x" * 10_001}, "note", "too_long"),
        ({"kind": "other", "ref": "x" * 501}, "ref", "too_long"),
        ({"kind": "other", "note": "a\x00"}, "note", "unstorable"),
        ({"kind": "regression_case", "ref": "REG-9"}, "ref", "no_such_case"),
        ({"kind": "regression_case", "ref": "nine"}, "ref", "no_such_case"),
        ({"kind": "regression_case", "ref": "REG-²"}, "ref", "no_such_case"),
        ({"kind": "regression_case"}, "ref", "required"),
    ],
)
def test_a_resolution_says_what_it_is(ada: User, fields: dict[str, str], field: str, code: str) -> None:
    proposal = ProposalFactory()
    with pytest.raises(ValidationError) as caught:
        proposals.apply(proposal.pk, by=ada, **fields)
    assert caught.value.error_dict[field][0].code == code
    assert Proposal.objects.get().state == "pending"


def test_an_existing_case_is_a_resolution(ada: User) -> None:
    CaseFactory(number=12)
    applied = proposals.apply(ProposalFactory().pk, kind="regression_case", ref="12", by=ada)
    assert applied.resolution_ref == "REG-12"


def test_dismissing_needs_a_reason(ada: User) -> None:
    with pytest.raises(ValidationError):
        proposals.dismiss(ProposalFactory().pk, reason=" ", by=ada)


def test_a_proposal_that_is_not_there(ada: User) -> None:
    for step in (proposals.get, proposals.detail, lambda pk: proposals.reopen(pk, by=ada)):
        with pytest.raises(NoSuchProposal):
            step(999)
    with pytest.raises(NoSuchProposal):
        proposals.dismiss(999, reason="no", by=ada)


STEPS: dict[str, Callable[[int, User], Any]] = {
    "dismiss": lambda pk, by: proposals.dismiss(pk, reason="no", by=by),
    "apply": lambda pk, by: proposals.apply(pk, kind="other", note="done", by=by),
    "reopen": lambda pk, by: proposals.reopen(pk, by=by),
}
NEXT = {
    ("pending", "dismiss"): "dismissed",
    ("pending", "apply"): "applied",
    ("dismissed", "reopen"): "pending",
    ("applied", "reopen"): "pending",
}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=8))
def test_any_order_of_steps_keeps_the_rules(ada: User, steps: list[str]) -> None:
    """State, version and history follow the table; what it does not name is refused and changes nothing."""
    proposal = ProposalFactory(fault=f"arg:/{Proposal.objects.count()}")
    state, taken = "pending", 1
    for step in steps:
        if following := NEXT.get((state, step)):
            state, taken = following, taken + 1
            assert STEPS[step](proposal.pk, ada).state == state
        else:
            with pytest.raises(ProposalConflict) as caught:
                STEPS[step](proposal.pk, ada)
            assert caught.value.proposal.state == state
    now = Proposal.objects.get(pk=proposal.pk)
    assert (now.state, now.version) == (state, taken)
    now.validate_constraints()
    assert [event.version for event in now.events.order_by("version")] == list(range(2, taken + 1))


def test_pages_of_proposals_show_each_once(ada: User, django_assert_num_queries: Any) -> None:
    at = timezone.now()
    for number in range(5):
        ProposalFactory(fault=f"arg:/{number}", updated_at=at - dt.timedelta(minutes=number // 2))
    FeedbackFactory(faults=["arg:/0"])
    with django_assert_num_queries(2):
        whole = proposals.find(ProposalFilter()).rows
    assert {row.proposal.fault: row.num_items for row in whole}["arg:/0"] == 1
    paged, cursor = [], None
    while True:
        page = proposals.find(ProposalFilter(), cursor=cursor, page_size=2)
        paged += page.rows
        if not (cursor := page.next):
            break
    assert [row.proposal for row in paged] == [row.proposal for row in whole]
    with pytest.raises(BadCursor):
        proposals.find(ProposalFilter(), cursor="WzFd")


def test_proposals_are_filtered(ada: User) -> None:
    proposals.dismiss(ProposalFactory().pk, reason="no", by=ada)
    ProposalFactory(label="wrong_tool", tool_name="other", style_id="formal", fault="tool:")
    for wanted, number in (
        (ProposalFilter(), 2),
        (ProposalFilter(states=("dismissed",)), 1),
        (ProposalFilter(states=("dismissed", "pending")), 2),
        (ProposalFilter(states=("applied",)), 0),
        (ProposalFilter(labels=("wrong_tool",)), 1),
        (ProposalFilter(tool="get_weather"), 1),
        (ProposalFilter(style="formal"), 1),
        (ProposalFilter(fault="arg:/city"), 1),
    ):
        assert len(proposals.find(wanted).rows) == number, wanted
