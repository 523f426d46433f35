"""From a judged URL to a socket: look a name up once, judge every answer, dial what was judged.

`GuardedBackend` plugs into httpcore below the request, so that URL, Host, SNI and certificate checks keep the name.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import certifi
import httpcore

from engine.net.codes import Code, Refused
from engine.net.names import is_internal, literal_address
from engine.net.policy import Policy
from engine.net.urls import Url

DNS_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_S = 5.0
MAX_ADDRESSES = 4  # tried in turn; a name with hundreds of addresses is no way to hold a call

type Resolver = Callable[[str], Awaitable[Sequence[str]]]
type SocketOptions = Iterable[httpcore.SOCKET_OPTION] | None


class Dialler(Protocol):
    """Opens a connection to an address. `httpcore.AnyIOBackend` is one; tests hand in others."""

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None) -> httpcore.AsyncNetworkStream: ...


_deadline: ContextVar[float | None] = ContextVar("outbound_deadline", default=None)


@contextmanager
def until(deadline: float | None) -> Iterator[None]:
    """Every network step inside ends at `deadline` (a reading of `time.monotonic()`), whatever its own timeout."""
    token = _deadline.set(deadline)
    try:
        yield
    finally:
        _deadline.reset(token)


def time_left(step_s: float | None) -> float | None:
    """Seconds that a step may take. Raises `Refused` when the deadline has passed."""
    deadline = _deadline.get()
    if deadline is None:
        return step_s
    left = deadline - time.monotonic()
    if left <= 0:
        raise Refused(Code.TIMED_OUT, "no complete answer within the time limit")
    return left if step_s is None else min(step_s, left)


@cache
def _lookup_threads() -> ThreadPoolExecutor:
    """A look-up that hangs keeps its thread, so look-ups have threads of their own, more than hang at any one time."""
    return ThreadPoolExecutor(max_workers=32, thread_name_prefix="dns")


os.register_at_fork(after_in_child=_lookup_threads.cache_clear)  # threads do not come along


async def system_resolver(host: str) -> Sequence[str]:
    """The addresses of a canonical host by the system's resolver. Raises OSError."""
    # The root dot keeps search domains out. Internal names, which only an operator's ranges let through, may well
    # stand in a hosts file, and there they have no dot.
    return await local_resolver(host if is_internal(host) else f"{host}.")


async def local_resolver(name: str) -> Sequence[str]:
    """The same as other programs of this machine would have it, with hosts file and search domains."""
    found = await asyncio.get_running_loop().run_in_executor(
        _lookup_threads(), lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    )
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@cache
def ssl_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """One context a process and operator's CA file: making one reads some 150 certificates."""
    context = ssl.create_default_context(cafile=certifi.where())
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to the host of one URL and to nothing else."""

    def __init__(self, policy: Policy, url: Url, resolver: Resolver, dialler: Dialler) -> None:
        self._policy = policy
        self._url = url
        self._resolver = resolver
        self._dialler = dialler

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions = None,
    ) -> httpcore.AsyncNetworkStream:
        if (host, port) != (self._url.host, self._url.port):
            raise Refused(Code.HOST_NOT_ALLOWED, "the connection is for another host than the one that was judged")
        self._policy.check_url(self._url)
        if literal_address(host) is not None:
            answer: Sequence[str] = [host]
        else:
            answer = await self._look_up(host)
        return await self._dial(self._policy.check_answer(host, answer), port, timeout)

    async def _look_up(self, host: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(time_left(DNS_TIMEOUT_S)):
                return await self._resolver(host)
        except (OSError, UnicodeError) as exc:  # TimeoutError is an OSError, too
            raise Refused(Code.DNS_FAILED, "the host could not be looked up") from exc

    async def _dial(self, addresses: list[str], port: int, timeout: float | None) -> httpcore.AsyncNetworkStream:
        candidates = addresses[:MAX_ADDRESSES]
        step_s = min(timeout or CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S)
        for last, address in enumerate(candidates, start=1 - len(candidates)):
            left = time_left(step_s)
            try:
                # An address that swallows packets must leave time for the next one.
                stream = await self._dialler.connect_tcp(address, port, timeout=left if last == 0 else (left or 0) / 2)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if last == 0:
                    raise
            else:
                return GuardedStream(stream)
        raise Refused(Code.DNS_FAILED, "the host has no address")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions = None
    ) -> httpcore.AsyncNetworkStream:
        raise Refused(Code.SCHEME_NOT_ALLOWED, "sockets of this machine are never dialled")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class GuardedStream(httpcore.AsyncNetworkStream):
    """A connection on which each step also ends at the deadline of the request that uses it."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, time_left(timeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, time_left(timeout))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            return GuardedStream(await self._stream.start_tls(ssl_context, server_hostname, time_left(timeout)))
        except httpcore.ConnectError as exc:
            raise Refused(Code.TLS_FAILED, "no trusted TLS connection for the name of the host") from exc

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


@contextmanager
def as_refusals() -> Iterator[None]:
    """httpcore's errors as ours; their texts may name addresses, so they stay behind as the cause."""
    try:
        yield
    except httpcore.ConnectTimeout as exc:
        time_left(None)  # the deadline, where it was the one that ended the step
        raise Refused(Code.CONNECT_FAILED, "the host did not take the connection") from exc
    except httpcore.ConnectError as exc:
        raise Refused(Code.CONNECT_FAILED, "the host did not take the connection") from exc
    except httpcore.TimeoutException as exc:
        raise Refused(Code.TIMED_OUT, "no complete answer within the time limit") from exc
    except (httpcore.ProtocolError, httpcore.NetworkError) as exc:
        raise Refused(Code.PROTOCOL_ERROR, "the connection was cut, or what came back is not HTTP") from exc
