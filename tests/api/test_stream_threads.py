"""How a long answer behaves under ASGI: one thread of its own, ended whatever happens."""

import asyncio
import gc
import time
from collections.abc import Generator
from concurrent.futures import thread

import psycopg
import pytest
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import StreamingHttpResponse
from django.test import AsyncRequestFactory

from quality import streaming
from quality.streaming import Busy, stream
from tenants.models import Tenant
from tenants.scope import TenantScopeError, current_tenant_id, tenant_scope
from tests import environment

type Chunks = Generator[bytes, None, None]


def answer(chunks: Chunks) -> StreamingHttpResponse:
    request: ASGIRequest = AsyncRequestFactory().get("/")  # type: ignore[assignment]
    return stream(request, chunks, content_type="text/plain", filename="a.txt")


async def read(response: StreamingHttpResponse) -> list[bytes]:
    return [piece async for piece in response]  # type: ignore[union-attr]


def sessions_in_use() -> list[str]:
    """What the application's sessions of this database are at."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:
        found = admin.execute(
            "SELECT state || ': ' || query FROM pg_stat_activity WHERE datname = current_database() AND usename = %s "
            "AND (state = 'active' OR xact_start IS NOT NULL)",
            [environment.PREFIX + "app"],
        ).fetchall()
    return [told for (told,) in found]


def in_scope(tenant: Tenant, ended: list[str], *, sleep_s: float = 0, fail: bool = False) -> Chunks:
    try:
        with tenant_scope(tenant) as tenant_id, connection.cursor() as cursor:
            for number in range(3):
                assert current_tenant_id() == tenant_id
                cursor.execute("SELECT current_setting('app.tenant'), pg_sleep(%s)", [sleep_s * number])
                yield f"{number}:{cursor.fetchone()[0]} ".encode()
            if fail:
                raise RuntimeError("half-way")
    finally:
        ended.append("ended")


def test_the_scope_holds_from_the_first_piece_to_the_last(tenant: Tenant) -> None:
    ended: list[str] = []
    response = answer(in_scope(tenant, ended))
    assert b"".join(asyncio.run(read(response))) == f"0:{tenant.pk} 1:{tenant.pk} 2:{tenant.pk} ".encode()
    assert ended == ["ended"]
    response.close()
    assert sessions_in_use() == []
    with pytest.raises(TenantScopeError):
        current_tenant_id()


def test_a_scope_that_is_open_where_the_answer_is_made_is_not_taken_along(tenant: Tenant) -> None:
    ended: list[str] = []
    with tenant_scope(tenant):
        response = answer(in_scope(tenant, ended))
    assert b"".join(asyncio.run(read(response))).count(f":{tenant.pk} ".encode()) == 3
    response.close()


def test_a_fault_half_way_ends_the_transaction(tenant: Tenant) -> None:
    ended: list[str] = []
    response = answer(in_scope(tenant, ended, fail=True))
    with pytest.raises(RuntimeError, match="half-way"):
        asyncio.run(read(response))
    assert ended == ["ended"]
    assert sessions_in_use() == []


def test_a_running_query_is_cancelled_when_the_client_goes_away(tenant: Tenant) -> None:
    ended: list[str] = []

    async def leave(response: StreamingHttpResponse) -> None:
        reading = asyncio.create_task(read(response))
        await asyncio.sleep(0.5)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    response = answer(in_scope(tenant, ended, sleep_s=30))
    asyncio.run(leave(response))
    assert len(sessions_in_use()) == 1
    start = time.monotonic()
    response.close()
    assert time.monotonic() - start < 3
    assert ended == ["ended"]
    assert sessions_in_use() == []


def test_an_answer_that_never_began_ends_too(tenant: Tenant) -> None:
    ended: list[str] = []
    answer(in_scope(tenant, ended)).close()
    assert ended == []


def test_an_answer_that_nobody_holds_is_ended(tenant: Tenant) -> None:
    """Also where Python collects it in the middle of handing work to a thread, whose locks are held then."""
    ended: list[str] = []
    pieces = streaming.InThread(in_scope(tenant, ended))
    next(pieces)
    pieces.kept = pieces  # type: ignore[attr-defined]  (a cycle: only the collector finds it)
    with thread._global_shutdown_lock:  # type: ignore[attr-defined]
        del pieces
        gc.collect()
    deadline = time.monotonic() + 30
    while ended != ["ended"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended == ["ended"]


def test_pages_keep_half_of_the_connections(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_slots", streaming.BoundedSemaphore(2))
    responses = [answer(in_scope(tenant, [])) for _ in range(2)]
    with pytest.raises(Busy):
        answer(in_scope(tenant, []))
    asyncio.run(read(responses[0]))
    responses[0].close()
    responses[0].close()
    answer(in_scope(tenant, [])).close()
    responses[1].close()
