"""Queries of tools: short, in a thread of their own, with the connection given back at once."""

import asyncio
from collections.abc import Callable

from django.db import connection

from tenants.scope import tenant_scope


async def in_scope[T](tenant_id: int, work: Callable[[], T]) -> T:
    """Run `work` in a thread, in one short transaction of the tenant's scope."""

    def run() -> T:
        try:
            with tenant_scope(tenant_id):
                return work()
        finally:
            connection.close()

    return await asyncio.to_thread(run)
