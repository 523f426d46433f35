"""What the tests of a tenant's configuration share."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tenants.models import Membership, Role, Tenant
from tenants.scope import tenant_scope


@pytest.fixture
def browse(member: Callable[..., Membership]) -> Callable[..., Client]:
    """`browse("viewer")`: a client signed in as a member of acme with this role; `.member` is the membership."""

    def make(role: str = Role.ADMIN, **fields: Any) -> Client:
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
def inside(tenant: Tenant) -> Callable[[], Any]:
    """`with inside():` queries of acme."""
    return lambda: tenant_scope(tenant)
