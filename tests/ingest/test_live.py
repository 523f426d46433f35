"""Records sent to the running service, as clients send them: in one piece or in chunks, more than it should hold."""

import json
from collections.abc import Iterator

import httpx
import pytest

from quality.models import ToolCall
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL
from tests.service import Service

PATH = "/api/ingest/tool-calls"
MEGABYTE = 1024 * 1024


@pytest.fixture(params=["asgi", "wsgi"])
def send(request, api):
    """`send(content)`: the answer of a running server to an NDJSON body, and the server."""
    service: Service = request.getfixturevalue("live_service" if request.param == "asgi" else "live_wsgi_service")
    client = api("ingest:write")

    def post(content: bytes | Iterator[bytes]) -> tuple[httpx.Response, Service]:
        headers = {**client.headers, "Content-Type": "application/x-ndjson"}
        return httpx.post(service.url + PATH, content=content, headers=headers, timeout=300, trust_env=False), service

    return post


def record(number: int, size: int = 100) -> bytes:
    return json.dumps({**NEUTRAL, "external_id": f"run-{number}", "result": "x" * size}).encode() + b"\n"


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_body_is_stored_however_it_is_sent(send, tenant, in_chunks):
    pieces = (record(number) for number in range(1_200))
    answer, _ = send(pieces if in_chunks else b"".join(pieces))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1_200)
    with tenant_scope(tenant):
        assert ToolCall.objects.count() == 1_200


@pytest.mark.slow
def test_a_large_body_is_never_held_as_a_whole(send):
    _, service = send(record(0))
    before = service.memory_bytes()
    answer, _ = send(b"".join(record(number, 100_000) for number in range(1, 600)))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 599)
    assert service.memory_bytes() - before < 45 * MEGABYTE
