"""Two at once, for real: one decides, the other is told; each number is given once and none is left out."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from quality.improve import proposals
from quality.improve.groups import GroupFilter, GroupKey, find
from quality.improve.proposals import AlreadyDecided
from quality.models import Proposal, ProposalEvent
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.factories import FeedbackFactory, ProposalFactory, UserFactory

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
