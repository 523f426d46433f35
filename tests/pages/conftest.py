"""Pages are tried by three people: a member with some role, one of another tenant, and nobody."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from quality.models import ToolCall
from tenants.models import Membership, Role, Tenant
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory

HTMX = {"HX-Request": "true"}


@pytest.fixture
def browse(member: Callable[..., Membership]) -> Callable[..., Client]:
    """`browse("viewer")`: a client signed in as a member of acme with this role; `.member` is the membership."""

    def make(role: str = Role.OPERATOR, **fields: Any) -> Client:
        client = Client()
        client.member = member(role, **fields)
        client.force_login(client.member.user)
        return client

    return make


@pytest.fixture
def outsider(member: Callable[..., Membership], other_tenant: Tenant) -> Client:
    client = Client()
    client.force_login(member(Role.ADMIN, tenant=other_tenant).user)
    return client


@pytest.fixture
def make_call(tenant: Tenant) -> Callable[..., ToolCall]:
    """`make_call(tool_name=…)`: a call of acme."""

    def make(**fields: Any) -> ToolCall:
        with tenant_scope(tenant):
            return ToolCallFactory(**fields)

    return make


@pytest.fixture
def inside(tenant: Tenant) -> Callable[[], Any]:
    """`with inside():` queries of acme."""
    return lambda: tenant_scope(tenant)
