"""The factories give what the database accepts, and tenants cannot reach each other's."""

import pytest

from quality.models import ToolCall, Turn
from tenants.models import Tenant
from tenants.scope import TenantScopeError, tenant_scope
from tenants.tokens import find_token
from tests.factories import (
    CaseFactory,
    FeedbackFactory,
    ImportFactory,
    MembershipFactory,
    ProposalFactory,
    ToolCallFactory,
    TurnFactory,
    make_token,
)


def test_each_factory_gives_a_valid_row_with_nothing_said(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        call, turn, job = ToolCallFactory(), TurnFactory(), ImportFactory()
        feedback, on_turn = FeedbackFactory(), FeedbackFactory(call=None, label="missing_tool")
        fixes = (feedback, on_turn, ProposalFactory(), CaseFactory(), CaseFactory())
        for row in (call, call.turn, turn, job, *fixes):
            row.validate_constraints()
            assert row.tenant_id == tenant.pk
        assert turn.started_at < call.started_at


def test_calls_of_one_turn_take_the_next_index(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        turn = TurnFactory()
        calls = [ToolCallFactory(turn=turn), ToolCallFactory(turn=turn), ToolCallFactory(turn=turn, cycle=1)]
        assert [(call.cycle, call.index) for call in calls] == [(0, 0), (0, 1), (1, 0)]
        assert Turn.objects.get(pk=turn.pk).num_calls == 3


def test_a_made_token_is_found_again(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        token, text = make_token(MembershipFactory(), "read")
    found = find_token(text)
    assert found == token
    assert found.scopes == ["read"]


def test_rows_belong_to_the_open_scope(tenant: Tenant, other_tenant: Tenant) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
    with tenant_scope(other_tenant):
        assert not ToolCall.objects.exists()
    with pytest.raises(TenantScopeError):
        ToolCallFactory()
