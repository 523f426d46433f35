"""Single requests through the guard, against servers that behave badly."""

import asyncio
import gzip
import socket
import time
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpcore
import pytest

from engine import net
from engine.net.dial import GuardedBackend
from tests.engine.loopback import Answer, FakeResolver, RecordingDialler, Server, authority, serving

PUBLIC = "93.184.215.14"


def guard(server: Server | None = None, *answers: Any, policy: net.Policy | None = None, **extra: Any) -> net.Guard:
    """A tenant's guard whose public addresses lead to `server`."""
    ports = dict.fromkeys(net.PORTS, server.port if server else 1)
    return net.Guard(
        policy or net.Policy.tenant(ca_file=authority().ca_file),
        resolver=FakeResolver(*(answers or [[PUBLIC]])),
        dialler=RecordingDialler(ports),
        **extra,
    )


def fetch(
    one: net.Guard, url: str = "http://a.example/", *, timeout_s: float = 5.0, method: str = "GET", **extra: Any
) -> net.Response:
    request = net.Request(method, net.parse_url(url), extra.pop("headers", ()), extra.pop("body", None))
    return asyncio.run(one.fetch(request, deadline=time.monotonic() + timeout_s, **extra))


def refusal(one: net.Guard, url: str = "http://a.example/", **extra: Any) -> net.Refused:
    with pytest.raises(net.Refused) as refused:
        fetch(one, url, **extra)
    return refused.value


def test_a_request_goes_out_as_it_was_built() -> None:
    with serving(Answer(201, b'{"id": 1}', {"X-Trace": "t"})) as server:
        response = fetch(
            guard(server), "http://A.example:8080/a%20b?c=d", method="PUT", headers=(("X-A", "José"),), body=b"{}"
        )

    seen = server.seen[0]
    assert (seen.method, seen.target, seen.body) == ("PUT", "/a%20b?c=d", b"{}")
    assert seen.header("host") == "a.example:8080"
    assert seen.header("accept-encoding") == "identity"
    assert (seen.header("x-a") or "").encode("latin-1").decode("utf-8") == "José"
    assert (response.status, response.body, response.header("x-trace")) == (201, b'{"id": 1}', "t")


def test_every_connection_is_a_new_one_and_no_cookie_comes_back() -> None:
    with serving(Answer(headers={"Set-Cookie": "s=1"})) as server:
        one = guard(server, [PUBLIC], [PUBLIC])
        fetch(one)
        fetch(one)

    assert [seen.header("cookie") for seen in server.seen] == [None, None]
    assert len(one._dialler.dialled) == 2  # type: ignore[attr-defined]


def test_proxies_and_netrc_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine a.example login u password canary")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving() as canary, serving() as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        fetch(guard(server))

    assert canary.seen == []
    assert server.seen[0].header("authorization") is None


@pytest.mark.parametrize("answer", [[], OSError("NXDOMAIN"), socket.gaierror(-3, "SERVFAIL"), UnicodeError("label")])
def test_a_name_without_an_answer_is_not_called(answer: Any) -> None:
    one = guard(None, answer)

    assert refusal(one).code == net.Code.DNS_FAILED
    assert one._dialler.dialled == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "answer", [[PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], [PUBLIC, "fe80::1%eth0"], [PUBLIC, "x"]]
)
def test_one_bad_address_spoils_the_answer_wherever_it_stands(answer: list[str]) -> None:
    one = guard(None, answer)

    assert refusal(one).code == net.Code.ADDRESS_NOT_ALLOWED
    assert one._dialler.dialled == []  # type: ignore[attr-defined]


def test_a_resolver_that_hangs_costs_two_seconds_and_nobody_else_waits() -> None:
    async def resolver(host: str) -> Sequence[str]:
        if host == "slow.example":
            await asyncio.sleep(60)
        return [PUBLIC]

    async def scene(server: Server) -> tuple[float, float]:
        one = net.Guard(net.Policy.tenant(), resolver=resolver, dialler=RecordingDialler({80: server.port}))
        slow = asyncio.create_task(_timed(_get(one, "http://slow.example/", 10)))
        quick = await _timed(_get(one, "http://a.example/", 10))
        return await slow, quick

    with serving() as server:
        slow_s, quick_s = asyncio.run(scene(server))

    assert 1.8 < slow_s < 3
    assert quick_s < 1


def test_look_ups_that_hang_do_not_hold_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def lookup(host: str, *args: Any, **kwargs: Any) -> Any:
        if host.startswith("slow"):
            time.sleep(3)
        return (
            [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, 0))]
            if "example" in str(host)
            else real(host, *args, **kwargs)
        )

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    async def scene(server: Server) -> list[float]:
        one = net.Guard(net.Policy.tenant(), dialler=RecordingDialler({80: server.port}))
        slow = [asyncio.create_task(_timed(_get(one, f"http://slow{i}.example/", 10))) for i in range(8)]
        await asyncio.sleep(0.1)
        quick = await _timed(_get(one, "http://a.example/", 10))
        return [quick, *await asyncio.gather(*slow)]

    with serving() as server:
        quick_s, *slow_s = asyncio.run(scene(server))

    assert quick_s < 1
    assert max(slow_s) < 3


def test_the_systems_resolver_is_asked_for_the_absolute_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def lookup(host: str, *_args: Any, **_kwargs: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 0))] * 2

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    assert asyncio.run(net.system_resolver("a.example")) == ["10.1.2.3"]
    assert asyncio.run(net.system_resolver("vllm")) == ["10.1.2.3"]
    assert asked == ["a.example.", "vllm"]


def test_a_person_reaches_the_names_of_their_own_hosts_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, *_args: Any, **_kwargs: Any) -> Any:
        assert host == "api.dev.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with serving() as server:
        assert fetch(net.Guard(net.Policy.local()), f"http://api.dev.example:{server.port}/").status == 200


def test_a_connection_for_another_name_than_the_judged_one_fails_closed() -> None:
    backend = GuardedBackend(
        net.Policy.tenant(), net.parse_url("http://a.example/"), FakeResolver(), RecordingDialler({})
    )

    for host, port in (("b.example", 80), ("a.example", 443), ("A.example", 80)):
        with pytest.raises(net.Refused):
            asyncio.run(backend.connect_tcp(host, port))
    with pytest.raises(net.Refused):
        asyncio.run(backend.connect_unix_socket("/var/run/docker.sock"))


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    class Picky(RecordingDialler):
        async def connect_tcp(self, host: str, port: int, timeout: float | None = None) -> Any:
            if host != "1.1.1.1":
                self.dialled.append((host, port))
                await asyncio.sleep(timeout or 0)
                raise httpcore.ConnectTimeout
            return await super().connect_tcp(host, port, timeout)

    with serving() as server:
        dialler = Picky({80: server.port})
        one = net.Guard(net.Policy.tenant(), resolver=FakeResolver([PUBLIC, "1.1.1.1"]), dialler=dialler)
        response = fetch(one, timeout_s=1)

    assert response.status == 200
    assert [host for host, _ in dialler.dialled] == [PUBLIC, "1.1.1.1"]


def _drip(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1000):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.2)


def _silence(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(3)


def _drip_headers(handler: BaseHTTPRequestHandler) -> None:
    for _ in range(100):
        handler.wfile.write(b"X")
        handler.wfile.flush()
        time.sleep(0.2)


@pytest.mark.parametrize("send", [_drip, _silence, _drip_headers])
@pytest.mark.parametrize("tls", [False, True])
def test_the_deadline_is_for_the_whole_call(send: Callable[[BaseHTTPRequestHandler], None], tls: bool) -> None:
    with serving(Answer(send=send), tls=authority() if tls else None) as server:
        one = guard(server)
        started = time.monotonic()
        refused = refusal(one, f"{'https' if tls else 'http'}://a.example/", timeout_s=1.0)
        took_s = time.monotonic() - started

    assert refused.code == net.Code.TIMED_OUT
    assert 0.9 <= took_s <= 1.15


def test_a_bomb_is_stopped_in_constant_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    assert len(bomb) < 250_000
    with serving(Answer(body=bomb, headers={"Content-Encoding": "gzip"})) as server:
        one = guard(server)
        tracemalloc.start()
        refused = refusal(one)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert refused.code == net.Code.TOO_LARGE
    assert peak < 4 << 20


@pytest.mark.parametrize("size", [1000, 1001])
@pytest.mark.parametrize(
    ("encoding", "pack"), [("identity", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_the_cap_is_exact_on_the_wire_and_decoded(size: int, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    body = bytes(size)
    with serving(Answer(body=pack(body), headers={"Content-Encoding": encoding})) as server:
        if size == 1000:
            assert fetch(guard(server), max_bytes=1000).body == body
        else:
            assert refusal(guard(server), max_bytes=1000).code == net.Code.TOO_LARGE


def test_bare_deflate_is_read_and_a_false_encoding_is_an_error() -> None:
    packer = zlib.compressobj(wbits=-15)
    bare = packer.compress(b"hello") + packer.flush()
    with serving(
        Answer(body=bare, headers={"Content-Encoding": "deflate"}),
        Answer(body=b"hello", headers={"Content-Encoding": "gzip"}),
        Answer(body=b"as it came", headers={"Content-Encoding": "br"}),
    ) as server:
        one = guard(server, [PUBLIC], [PUBLIC], [PUBLIC])
        assert fetch(one).body == b"hello"
        assert refusal(one).code == net.Code.PROTOCOL_ERROR
        assert fetch(one).body == b"as it came"


def _endless_header(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000)


def _not_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n")
    handler.close_connection = True


def _cut(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
    handler.close_connection = True


@pytest.mark.parametrize("send", [_endless_header, _not_http, _cut])
def test_what_is_not_whole_http_is_a_protocol_error(send: Callable[[BaseHTTPRequestHandler], None]) -> None:
    with serving(Answer(send=send)) as server:
        assert refusal(guard(server)).code == net.Code.PROTOCOL_ERROR


def test_redirects_are_the_answer_unless_they_are_asked_for() -> None:
    with serving(Answer(302, b"moved", {"Location": "/b"}), Answer()) as server:
        response = fetch(guard(server))

    assert (response.status, response.body, len(server.seen)) == (302, b"moved", 1)


def test_only_get_and_head_follow_redirects() -> None:
    for method in ("POST", "PUT", "DELETE"):
        with serving(Answer(307, headers={"Location": "/b"}), Answer()) as server:
            assert fetch(guard(server), method=method, body=b"{}", follow_redirects=True).status == 307


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://127.0.0.1/", net.Code.ADDRESS_NOT_ALLOWED),
        ("http://a.example:6379/", net.Code.PORT_NOT_ALLOWED),
        ("http://user:pw@a.example/", net.Code.INVALID_URL),
        ("http://[::1/", net.Code.REDIRECT_NOT_ALLOWED),
        ("ftp://a.example/", net.Code.SCHEME_NOT_ALLOWED),
        ("http://other.example/", net.Code.HOST_NOT_ALLOWED),
    ],
)
def test_a_hop_is_judged_like_the_first_request(location: str, code: net.Code) -> None:
    policy = net.Policy.tenant(allow_hosts=["a.example", "127.0.0.1"])
    with serving(Answer(302, headers={"Location": location}), Answer()) as server:
        refused = refusal(guard(server, policy=policy), follow_redirects=True)

    assert refused.code == code
    assert len(server.seen) == 1


def test_headers_stay_with_their_origin_port_included() -> None:
    headers = (("X-Api-Key", "canary"), ("Authorization", "Bearer canary"))
    with serving(
        Answer(302, headers={"Location": "/same"}),
        Answer(302, headers={"Location": "http://a.example:8080/o#f"}),
        Answer(),
    ) as server:
        fetch(guard(server, [PUBLIC], [PUBLIC], [PUBLIC]), headers=headers, follow_redirects=True)

    assert [seen.header("x-api-key") for seen in server.seen] == ["canary", "canary", None]
    assert server.seen[2].header("authorization") is None
    assert server.seen[2].target == "/o"


def test_certificates_are_checked_for_the_name_and_not_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = authority()
    with serving(tls=wrong) as server:
        assert fetch(guard(server), "https://a.example/").status == 200
        untrusting = guard(server, policy=net.Policy.tenant())  # does not know the operator's authority
        assert refusal(untrusting, "https://a.example/").code == net.Code.TLS_FAILED
        assert fetch(guard(server), "https://8.8.8.8/").status == 200

    monkeypatch.setattr(type(wrong), "server_context", lambda self: self._context("b.example"))
    with serving(tls=wrong) as server:
        assert refusal(guard(server), "https://a.example/").code == net.Code.TLS_FAILED


def test_a_refusal_says_nothing_about_the_inside() -> None:
    with serving() as server:
        inside = guard(None, ["127.0.0.1"], ["10.0.0.1"], policy=net.Policy.tenant(allow_ports=[server.port, 9]))
        open_port = refusal(inside, f"http://a.example:{server.port}/")
        closed_port = refusal(inside, "http://a.example:9/")
        missing = refusal(guard(None, OSError("Name or service not known")))

    assert str(open_port) == str(closed_port)
    assert str(missing) == "dns_failed: the host could not be looked up"
    assert server.seen == []


def test_a_dead_host_is_told_without_its_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dialler = RecordingDialler({80: taken.getsockname()[1]})  # bound, but nobody listens
        one = net.Guard(net.Policy.tenant(), resolver=FakeResolver([PUBLIC]), dialler=dialler)
        refused = refusal(one)

    assert refused.code == net.Code.CONNECT_FAILED
    assert "127.0.0.1" not in str(refused)
    assert PUBLIC not in str(refused)


def test_one_tenants_rush_does_not_touch_the_others() -> None:
    async def scene(server: Server) -> list[net.Code | int]:
        slots = net.Slots(50)
        dialler = RecordingDialler({80: server.port})

        async def resolver(_host: str) -> Sequence[str]:
            return [PUBLIC]

        def tenant(name: str) -> net.Guard:
            return net.Guard(net.Policy.tenant(), tenant=name, resolver=resolver, dialler=dialler, slots=slots)

        busy, calm = tenant("busy"), tenant("calm")
        first = [asyncio.create_task(_get(busy, "http://a.example/", 10)) for _ in range(50)]
        await asyncio.sleep(0.3)
        rest = [await _get(busy, "http://a.example/", 10), await _get(calm, "http://a.example/", 10)]
        done = await asyncio.gather(*first)
        return [*rest, *done, await _get(busy, "http://a.example/", 10)]

    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(1)
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with serving(Answer(send=slow)) as server:
        refused, calm, *others = asyncio.run(scene(server))

    assert refused == net.Code.BUSY
    assert calm == 200
    assert others == [200] * 51


def test_cancellation_closes_the_connection() -> None:
    closed = []

    def watch(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.settimeout(3)
        closed.append(handler.connection.recv(1))

    async def scene(server: Server) -> None:
        task = asyncio.create_task(_get(guard(server), "http://a.example/", 10))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.2)

    with serving(Answer(send=watch)) as server:
        asyncio.run(scene(server))

    assert closed == [b""]


def test_the_local_policy_lets_a_person_call_their_own_machine() -> None:
    with serving() as server:
        one = net.Guard(net.Policy.local())
        assert fetch(one, f"http://127.0.0.1:{server.port}/").status == 200
        assert fetch(one, f"http://localhost:{server.port}/").status == 200
        assert refusal(one, f"http://a.invalid:{server.port}/").code == net.Code.DNS_FAILED


def test_an_operators_range_lets_a_tenant_reach_that_server_only() -> None:
    with serving() as server:
        policy = net.Policy.tenant(allow_cidrs=["127.0.0.1/32"], allow_ports=[server.port])
        assert fetch(net.Guard(policy), f"http://127.0.0.1:{server.port}/").status == 200
        assert refusal(net.Guard(policy), f"http://127.0.0.2:{server.port}/").code == net.Code.ADDRESS_NOT_ALLOWED
        assert (
            refusal(net.Guard(net.Policy.tenant()), f"http://127.0.0.1:{server.port}/").code
            == net.Code.PORT_NOT_ALLOWED
        )


async def _get(one: net.Guard, url: str, timeout_s: float) -> net.Code | int:
    try:
        response = await one.fetch(net.Request("GET", net.parse_url(url)), deadline=time.monotonic() + timeout_s)
    except net.Refused as refused:
        return net.Code(refused.code)
    return response.status


async def _timed(work: Awaitable[Any]) -> float:
    started = time.monotonic()
    await work
    return time.monotonic() - started
