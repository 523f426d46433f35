"""Exports from a served process, ASGI and WSGI: constant memory, and no work for a client that went away."""

import hashlib
import json
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import psycopg
import pytest

from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests import environment
from tests.api.client import Api
from tests.bulk import labelled_calls
from tests.service import Service

FEEDBACK = "/api/admin/quality/tool-call-feedback/export.jsonl"
CALLS = "/api/admin/quality/tool-calls/export.jsonl"
SHEET = "/api/admin/quality/tool-call-feedback/export.csv"
ROWS = 10_000
MIB = 1024 * 1024

pytestmark = pytest.mark.slow


@pytest.fixture(params=["asgi", "wsgi"])
def service(request: pytest.FixtureRequest) -> Service:
    served: Service = request.getfixturevalue("live_service" if request.param == "asgi" else "live_wsgi_service")
    return served


@pytest.fixture
def reader(tenant: Tenant, member: Callable[..., Membership], api: Callable[..., Api]) -> Api:
    """An admin's client of a tenant whose export has some 35 MB."""
    boss = member("admin")
    with tenant_scope(tenant):
        labelled_calls(ROWS, boss.user, result_bytes=3000)
    client: Api = api("export:read", "read", member=boss)
    return client


def streamed(service: Service, reader: Api, path: str) -> AbstractContextManager[httpx.Response]:
    return httpx.stream("GET", service.url + path, headers=reader.headers, timeout=30)


def read(service: Service, reader: Api, path: str) -> httpx.Response:
    return httpx.get(service.url + path, headers=reader.headers, timeout=30)


def open_transactions() -> int:
    """Transactions that the service has open on the test's database."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:
        found = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = %s "
            "AND xact_start IS NOT NULL",
            [environment.PREFIX + "app"],
        ).fetchone()
    assert found
    number: int = found[0]
    return number


def seconds_until(condition: Callable[[], bool], limit_s: float) -> float:
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit_s:
            pytest.fail(f"Not within {limit_s} s.")
        time.sleep(0.1)
    return time.monotonic() - start


def check_complete(body: bytes) -> None:
    head, _, last = body.rstrip(b"\n").rpartition(b"\n")
    trailer: dict[str, Any] = json.loads(last)
    assert trailer["count"] == ROWS
    assert trailer["sha256"] == hashlib.sha256(head + b"\n").hexdigest()


@pytest.mark.parametrize("path", [FEEDBACK, CALLS, SHEET])
def test_a_large_export_takes_no_more_memory_than_a_small_one(service: Service, reader: Api, path: str) -> None:
    read(service, reader, path + "?limit=500")
    before = peak = service.memory_bytes()
    body = []
    with streamed(service, reader, path) as response:
        for piece in response.iter_bytes(64 * 1024):
            body.append(piece)
            if len(body) % 20 == 0:
                peak = max(peak, service.memory_bytes())
    whole = b"".join(body)
    assert len(whole) > 30 * MIB
    if path == SHEET:
        assert whole.count(b"\r\n") == ROWS + 1
    else:
        check_complete(whole)
    assert peak - before < 12 * MIB, f"{(peak - before) / MIB:.1f} MiB more"


def test_a_slow_reader_holds_the_export_back(service: Service, reader: Api) -> None:
    read(service, reader, FEEDBACK + "?limit=500")
    before = service.memory_bytes()
    with streamed(service, reader, FEEDBACK) as response:
        pieces = response.iter_bytes(64 * 1024)
        body = next(pieces)
        time.sleep(2)
        assert service.memory_bytes() - before < 12 * MIB
        assert open_transactions() == 1
        check_complete(body + b"".join(pieces))


@pytest.mark.parametrize("path", [FEEDBACK, SHEET])
def test_a_client_that_goes_away_ends_the_work(service: Service, reader: Api, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {reader.text}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as raw:
        raw.sendall(head.encode())
        assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        seconds_until(lambda: open_transactions() == 1, 5)
    seconds_until(lambda: open_transactions() == 0, 5)
    assert read(service, reader, "/api/admin/quality/tool-calls").status_code == 200


def test_a_client_that_goes_away_before_the_first_row_ends_the_query(live_service: Service, reader: Api) -> None:
    """Its query waits for a lock here; under WSGI nobody hears of a client that has gone before something is sent."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    head = f"GET {FEEDBACK} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {reader.text}\r\n\r\n"
    with psycopg.connect(url) as admin:
        admin.execute("LOCK TABLE agent_tool_call_feedback IN ACCESS EXCLUSIVE MODE")
        with socket.create_connection(("127.0.0.1", live_service.port), timeout=30) as raw:
            raw.sendall(head.encode())
            seconds_until(lambda: open_transactions() == 1, 30)
        seconds_until(lambda: open_transactions() == 0, 5)


def test_other_requests_are_served_during_an_export(service: Service, reader: Api) -> None:
    with streamed(service, reader, FEEDBACK) as response:
        next(response.iter_bytes(1000))
        answer = read(service, reader, "/api/admin/quality/tool-calls?page_size=1")
        assert len(answer.json()["items"]) == 1
