"""Clients for model servers: the same guard, with connections that are kept."""

import asyncio
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from engine import net
from engine.net import pool
from tests.engine.loopback import Answer, FakeResolver, RecordingDialler, Server, authority, serving

PUBLIC = "93.184.215.14"


def guard(server: Server, *answers: Sequence[str]) -> net.Guard:
    dialler = RecordingDialler(dict.fromkeys(net.PORTS, server.port))
    policy = net.Policy.tenant(ca_file=authority().ca_file)
    return net.Guard(policy, resolver=FakeResolver(*(answers or [[PUBLIC]])), dialler=dialler)


def test_a_tenant_cannot_name_an_inner_server_and_the_operator_can() -> None:
    with pytest.raises(net.Refused) as refused:
        net.Guard(net.Policy.tenant(allow_ports=[11434])).client("http://127.0.0.1:11434/v1")
    assert refused.value.code == net.Code.ADDRESS_NOT_ALLOWED

    async def scene(server: Server) -> int:
        policy = net.Policy.tenant(allow_cidrs=["127.0.0.0/8"], allow_ports=[server.port])
        async with net.Guard(policy).client(f"http://127.0.0.1:{server.port}/v1") as client:
            return (await client.post("/chat/completions", json={})).status_code

    with serving() as server:
        assert asyncio.run(scene(server)) == 200
        assert server.seen[0].target == "/v1/chat/completions"


def test_a_name_that_leads_inside_is_refused_when_it_is_called() -> None:
    async def scene(server: Server) -> None:
        async with guard(server, [PUBLIC, "10.0.0.1"]).client("https://llm.example/v1") as client:
            await client.get("/models")

    with serving() as server, pytest.raises(net.Refused) as refused:
        asyncio.run(scene(server))
    assert refused.value.code == net.Code.ADDRESS_NOT_ALLOWED


def test_one_connection_serves_request_after_request_and_is_looked_up_once() -> None:
    async def scene(server: Server) -> list[Any]:
        one = guard(server)
        async with one.client("https://llm.example/v1", headers={"Authorization": "Bearer k"}) as client:
            for _ in range(5):
                assert (await client.post("/chat/completions", json={"a": 1})).text == "ok"
        return one._dialler.dialled  # type: ignore[attr-defined]

    with serving(tls=authority()) as server:
        dialled = asyncio.run(scene(server))

    assert dialled == [(PUBLIC, 443)]
    assert {seen.header("authorization") for seen in server.seen} == {"Bearer k"}
    assert {seen.header("accept-encoding") for seen in server.seen} == {"identity"}


def test_another_host_is_not_reached_through_the_client_of_this_one() -> None:
    async def scene(server: Server) -> None:
        async with guard(server).client("http://llm.example/v1") as client:
            await client.get("http://127.0.0.1/latest/meta-data")

    with serving() as server, pytest.raises(net.Refused) as refused:
        asyncio.run(scene(server))
    assert refused.value.code == net.Code.HOST_NOT_ALLOWED
    assert server.seen == []


def test_redirects_cookies_and_the_environment_play_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(server: Server) -> list[int]:
        async with guard(server).client("http://llm.example/") as client:
            return [(await client.get("/")).status_code for _ in range(2)]

    with serving() as canary, serving(Answer(302, headers={"Location": "/b", "Set-Cookie": "s=1"})) as server:
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{canary.port}")
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{canary.port}")
        assert asyncio.run(scene(server)) == [302, 302]
    assert canary.seen == []
    assert [seen.header("cookie") for seen in server.seen] == [None, None]


def _endless(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        handler.wfile.write(b": ping\n\n")
        time.sleep(0.05)


def test_a_deadline_ends_a_stream_that_keeps_talking() -> None:
    async def scene(server: Server) -> tuple[str, float]:
        started = time.monotonic()
        async with guard(server).client("http://llm.example/") as client:
            request = client.build_request("GET", "/", extensions={"deadline": started + 0.6})
            response = await client.send(request, stream=True)
            try:
                async for _ in response.aiter_bytes():
                    pass
            except net.Refused as refused:
                return refused.code, time.monotonic() - started
            finally:
                await response.aclose()
        return "none", 0

    with serving(Answer(send=_endless)) as server:
        code, took_s = asyncio.run(scene(server))

    assert code == net.Code.TIMED_OUT
    assert 0.5 < took_s < 0.9


def test_a_stream_without_end_is_cut_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_STREAM", 100)

    async def scene(server: Server) -> None:
        async with guard(server).client("http://llm.example/") as client:
            await client.get("/")

    with serving(Answer(send=_endless)) as server, pytest.raises(net.Refused) as refused:
        asyncio.run(scene(server))
    assert refused.value.code == net.Code.TOO_LARGE


def test_an_answer_compressed_unasked_is_refused() -> None:
    async def scene(server: Server) -> None:
        async with guard(server).client("http://llm.example/") as client:
            await client.get("/")

    with serving(Answer(headers={"Content-Encoding": "gzip"})) as server, pytest.raises(net.Refused) as refused:
        asyncio.run(scene(server))
    assert refused.value.code == net.Code.PROTOCOL_ERROR


def test_a_dead_server_is_a_refusal_that_can_be_retried() -> None:
    async def scene() -> None:
        one = net.Guard(net.Policy.tenant(), resolver=FakeResolver([PUBLIC]), dialler=RecordingDialler({80: 1}))
        async with one.client("http://llm.example/") as client:
            await client.get("/")

    with pytest.raises(net.Refused) as refused:
        asyncio.run(scene())
    assert refused.value.code == net.Code.CONNECT_FAILED


def test_forty_requests_at_once_run_side_by_side_and_idle_pools_are_closed() -> None:
    gate = threading.Barrier(41)

    def wait(handler: BaseHTTPRequestHandler) -> None:
        gate.wait(timeout=10)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def scene(server: Server) -> int:
        one = net.Guard(
            net.Policy.tenant(),
            resolver=FakeResolver(*[[PUBLIC]] * 40),
            dialler=RecordingDialler({80: server.port}),
        )
        async with one.client("http://llm.example/") as client:
            waiting = [asyncio.create_task(client.get("/")) for _ in range(40)]
            await asyncio.to_thread(gate.wait, 10)  # passes only when all forty have arrived
            answers = await asyncio.gather(*waiting)
            assert [answer.text for answer in answers] == ["ok"] * 40
            transport = client._transport
            assert isinstance(transport, pool.PooledTransport)
            return len(transport._shards)

    with serving(Answer(send=wait)) as server:
        assert asyncio.run(scene(server)) == 1


def test_all_clients_of_a_process_share_one_set_of_certificates() -> None:
    one, two = (net.Guard(net.Policy.tenant()).client(f"https://{name}.example/") for name in "ab")

    contexts = []
    for client in (one, two):
        transport = client._transport
        assert isinstance(transport, pool.PooledTransport)
        contexts.append(transport._ssl_context)
    assert contexts[0] is contexts[1]
    assert isinstance(one, httpx.AsyncClient)
