"""Two at once, for real: one decides, the other is told; each number is given once and none is left out."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection

from quality.improve import cases, proposals
from quality.improve.cases import case_from_feedback, import_cases, record_of
from quality.improve.groups import GroupFilter, GroupKey, find
from quality.improve.proposals import AlreadyDecided
from quality.models import Case, Proposal, ProposalEvent
from tenants.models import AuditEvent, Tenant
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, FeedbackFactory, ProposalFactory, UserFactory

CITY = GroupKey(label="bad_args", tool_name="get_weather", style_id="friendly", fault="arg:/city")


def at_once(tenant: Tenant, *steps: Callable[[], Any]) -> list[Any]:
    """What each step gives or raises, all begun together, each in a transaction of its own."""
    barrier = threading.Barrier(len(steps))

    def run(step: Callable[[], Any]) -> Any:
        try:
            with tenant_scope(tenant):
                barrier.wait(60)
                return step()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(steps)) as pool:
        return list(pool.map(run, steps))


def test_of_two_parallel_decisions_one_holds_and_the_other_is_told(tenant: Tenant) -> None:
    ada, bob = UserFactory(name="Ada"), UserFactory(name="Bob")
    for number in range(5):
        with tenant_scope(tenant):
            pk = ProposalFactory(fault=f"arg:/{number}").pk
        found = at_once(
            tenant,
            lambda pk=pk: proposals.apply(pk, kind="other", note="done", by=ada),
            lambda pk=pk: proposals.dismiss(pk, reason="no", by=bob),
        )
        (held,) = [one for one in found if isinstance(one, Proposal)]
        (told,) = [one for one in found if isinstance(one, AlreadyDecided)]
        assert told.proposal.state == held.state
        assert told.proposal.decided_by == held.decided_by
        with tenant_scope(tenant):
            assert ProposalEvent.objects.filter(proposal_id=pk).count() == 1


def test_two_who_track_one_group_get_the_same_proposal(tenant: Tenant) -> None:
    ada = UserFactory()
    with tenant_scope(tenant):
        FeedbackFactory()
    found = at_once(tenant, *[lambda: proposals.track(CITY, by=ada)] * 3)
    assert len({proposal.pk for proposal in found}) == 1
    with tenant_scope(tenant):
        assert (Proposal.objects.count(), ProposalEvent.objects.count()) == (1, 1)


def test_reopening_and_tracking_anew_at_once_leave_one_pending(tenant: Tenant) -> None:
    ada = UserFactory()
    with tenant_scope(tenant):
        FeedbackFactory()
        pk = proposals.dismiss(proposals.track(CITY, by=ada).pk, reason="no", by=ada).pk
        FeedbackFactory()
    at_once(tenant, lambda: proposals.reopen(pk, by=ada), lambda: proposals.track(CITY, by=ada))
    with tenant_scope(tenant):
        assert Proposal.objects.filter(state="pending").count() == 1


def test_parallel_cases_are_numbered_without_gap_or_double(tenant: Tenant, other_tenant: Tenant) -> None:
    ada = UserFactory()
    with tenant_scope(tenant):
        *labels, last = [FeedbackFactory(correction='{"arguments": {"city": "Bern"}}') for _ in range(7)]
        refused = FeedbackFactory(label="other")
    with tenant_scope(other_tenant):
        CaseFactory(number=40)
    steps = [lambda label=label: case_from_feedback(label, by=ada).number for label in labels]
    found = at_once(tenant, *steps, lambda: case_from_feedback(refused, by=ada, behavior="x"))
    assert sorted(number for number in found if isinstance(number, int)) == [1, 2, 3, 4, 5, 6]
    assert sum(isinstance(one, ValidationError) for one in found) == 1
    with tenant_scope(tenant):
        assert case_from_feedback(last, by=ada).number == 7


def test_a_case_that_is_sent_many_times_at_once_is_made_once(tenant: Tenant) -> None:
    ada, bob = UserFactory(), UserFactory()
    with tenant_scope(tenant):
        label = FeedbackFactory(correction='{"arguments": {"city": "Bern"}}')
        proposal = proposals.track(CITY, by=ada)
    once = at_once(tenant, *[lambda: case_from_feedback(label, by=ada)] * 5)
    assert [case.number for case in once] == [1] * 5
    closing = at_once(tenant, *[lambda: case_from_feedback(label, by=ada, proposal=proposal, seen_version=1)] * 5)
    assert [case.number for case in closing] == [2] * 5
    with tenant_scope(tenant):
        assert Proposal.objects.get().version == 2
        assert AuditEvent.objects.filter(action="case.created").count() == 2
        assert case_from_feedback(label, by=bob).number == 3
        assert case_from_feedback(label, by=ada, behavior="Something else.").number == 4
        proposals.reopen(proposal.pk, by=ada)
        assert case_from_feedback(label, by=ada, proposal=proposal).number == 2
        assert Proposal.objects.get().resolution_ref == "REG-2"


def test_of_two_cases_for_one_proposal_one_is_made(tenant: Tenant) -> None:
    ada, bob = UserFactory(), UserFactory()
    with tenant_scope(tenant):
        label = FeedbackFactory(correction='{"arguments": {"city": "Bern"}}')
        proposal = proposals.track(CITY, by=ada)
    steps = [lambda by=by: case_from_feedback(label, by=by, proposal=proposal) for by in (ada, bob)]
    found = at_once(tenant, *steps)
    assert sorted(type(one).__name__ for one in found) == ["AlreadyDecided", "Case"]
    with tenant_scope(tenant):
        assert [*Case.objects.values_list("number", flat=True)] == [1]
        assert Proposal.objects.get().resolution_ref == "REG-1"


def test_one_file_imported_twice_at_once_makes_its_cases_once(tenant: Tenant, other_tenant: Tenant) -> None:
    ada = UserFactory()
    with tenant_scope(other_tenant):
        lines = [record_of(CaseFactory()).encode() + b"\n" for _ in range(3)]
    with tenant_scope(tenant):
        CaseFactory()
    found = at_once(tenant, *[lambda: import_cases(lines, by=ada)] * 2)
    assert sorted((report.num_created, report.num_unchanged) for report in found) == [(0, 3), (3, 0)]
    with tenant_scope(tenant):
        assert sorted(Case.objects.values_list("number", flat=True)) == [1, 2, 3, 4]


def test_of_two_parallel_edits_one_is_stale(tenant: Tenant) -> None:
    ada = UserFactory()
    with tenant_scope(tenant):
        CaseFactory()
    found = at_once(
        tenant,
        lambda: cases.edit(1, by=ada, seen_version=1, behavior="One."),
        lambda: cases.edit(1, by=ada, seen_version=1, behavior="Two."),
    )
    assert sorted(type(one).__name__ for one in found) == ["Case", "StaleCase"]


def test_two_who_merge_crosswise_wait_for_each_other(tenant: Tenant) -> None:
    ada = UserFactory()
    with tenant_scope(tenant):
        for _ in range(2):
            CaseFactory(same_sha256=b"s" * 32)
    found = at_once(tenant, lambda: cases.merge(1, 2, by=ada), lambda: cases.merge(2, 1, by=ada))
    assert sorted(type(one).__name__ for one in found) == ["AlreadyArchived", "Case"]


def test_another_tenants_feedback_and_proposals_are_not_seen(tenant: Tenant, other_tenant: Tenant) -> None:
    ada = UserFactory()
    with tenant_scope(tenant):
        FeedbackFactory()
        pk = proposals.track(CITY, by=ada).pk
    with tenant_scope(other_tenant):
        assert find(GroupFilter()).groups == []
        assert proposals.find(proposals.ProposalFilter()).rows == []
        for step in (proposals.get, lambda pk: proposals.dismiss(pk, reason="no", by=ada)):
            with pytest.raises(proposals.NoSuchProposal):
                step(pk)
    with tenant_scope(tenant):
        assert Proposal.objects.get().state == "pending"
