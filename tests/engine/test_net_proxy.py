"""The operator's egress proxy: a tunnel to the judged address, or no connection."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from engine import net
from tests.engine.loopback import FakeResolver, authority, serving

PUBLIC = "93.184.215.14"


@contextmanager
def proxy(port: int, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> Iterator[tuple[str, list[bytes]]]:
    """A CONNECT proxy whose every tunnel ends at `port` of this machine: its URL, and what it was asked."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def start(work: Callable[..., None], *args: socket.socket) -> None:
        threads.append(threading.Thread(target=work, args=args, daemon=True))
        threads[-1].start()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def tunnel(client: socket.socket) -> None:
        with client:
            asked.append(client.recv(4096))
            client.sendall(answer)
            if b" 200 " in answer:
                with socket.create_connection(("127.0.0.1", port)) as server:
                    back = threading.Thread(target=pump, args=(server, client))
                    back.start()
                    pump(client, server)
                    back.join()

    def serve() -> None:
        with suppress(OSError):
            while True:
                start(tunnel, listener.accept()[0])

    start(serve)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join()


def fetch(proxy_url: str, url: str, answer: list[str]) -> net.Response:
    guard = net.Guard(
        net.Policy.tenant(ca_file=authority().ca_file),
        resolver=FakeResolver(answer),
        dialler=net.EgressProxy(proxy_url),
    )
    request = net.Request("GET", net.parse_url(url))
    return asyncio.run(guard.fetch(request, deadline=time.monotonic() + 5))


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("address", "target"), [(PUBLIC, PUBLIC), ("2606:4700::1", "[2606:4700::1]")])
def test_the_proxy_is_asked_for_the_judged_address(scheme: str, address: str, target: str) -> None:
    with serving(tls=authority() if scheme == "https" else None) as server, proxy(server.port) as (url, asked):
        response = fetch(url, f"{scheme}://a.example/x", [address])

    port = 443 if scheme == "https" else 80
    assert response.body == b"ok"
    assert asked == [f"CONNECT {target}:{port} HTTP/1.1\r\nHost: {target}:{port}\r\n\r\n".encode()]
    assert server.seen[0].header("host") == "a.example"


def test_what_is_refused_here_never_reaches_the_proxy() -> None:
    with proxy(1) as (url, asked), pytest.raises(net.Refused) as refused:
        fetch(url, "http://a.example/", ["10.0.0.1"])

    assert refused.value.code == net.Code.ADDRESS_NOT_ALLOWED
    assert asked == []


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 407 Denied by policy\r\n\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 403", b"x" * 10_000]
)
def test_a_tunnel_that_the_proxy_does_not_give_is_no_connection(answer: bytes) -> None:
    with proxy(1, answer) as (url, _), pytest.raises(net.Refused) as refused:
        fetch(url, "http://a.example/", [PUBLIC])

    assert refused.value.code == net.Code.CONNECT_FAILED


@pytest.mark.parametrize("url", ["https://proxy.example/", "socks5://proxy.example/", "proxy:4750"])
def test_only_an_http_proxy_can_be_set(url: str) -> None:
    with pytest.raises(net.Refused):
        net.EgressProxy(url)
