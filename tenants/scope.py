"""The only way to a tenant's data: `with tenant_scope(tenant): …`.

Inside, the manager of every tenant model filters by the tenant and PostgreSQL's row security does so again. Outside,
managers raise and raw SQL sees no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from django.db import connection, transaction

if TYPE_CHECKING:
    from tenants.models import Tenant

_current: ContextVar[int | None] = ContextVar("tenant", default=None)


class TenantScopeError(RuntimeError):
    """Data of a tenant was asked for outside its scope."""


def current_tenant_id() -> int:
    """Id of the tenant whose scope is open; raises TenantScopeError if none is."""
    tenant_id = _current.get()
    if tenant_id is None:
        raise TenantScopeError("No tenant scope is open. Wrap the query in `with tenant_scope(tenant):`.")
    return tenant_id


@contextmanager
def tenant_scope(tenant: Tenant | int) -> Iterator[int]:
    """Open a transaction in which only this tenant's rows exist. Nests for the same tenant, refuses another one."""
    tenant_id = tenant if isinstance(tenant, int) else tenant.pk
    outer = _current.get()
    if outer == tenant_id:
        with transaction.atomic():
            yield tenant_id
        return
    if outer is not None:
        raise TenantScopeError(f"The scope of tenant {outer} is open; leave it before you open that of {tenant_id}.")
    inside_transaction = connection.in_atomic_block
    with transaction.atomic():
        _set(str(tenant_id))
        token = _current.set(tenant_id)
        try:
            yield tenant_id
        finally:
            _current.reset(token)
        if inside_transaction:
            # `atomic` was a savepoint here, and releasing one keeps the setting. After an error its rollback takes
            # the setting back by itself, as the end of a transaction does.
            _set("")


def _set(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.tenant', %s, true)", [value])
