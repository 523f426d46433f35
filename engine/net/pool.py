"""Connections to one model server, kept and shared by all turns of an event loop."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import httpcore
import httpx

from engine.net.codes import Code, Refused
from engine.net.dial import Dialler, GuardedBackend, Resolver, as_refusals, ssl_context, time_left, until
from engine.net.policy import Policy
from engine.net.urls import Url

POOL_SIZE = 16  # httpcore looks through all connections for each request, so one large pool is slow
KEEP_ALIVE_S = 30.0
MAX_STREAM = 64 << 20  # bytes of one answer; a stream that never ends must end somewhere


@dataclass(slots=True, eq=False)
class _Shard:
    pool: httpcore.AsyncConnectionPool
    under_way: int = 0


class PooledTransport(httpx.AsyncBaseTransport):
    """As many pools of 16 as there are requests under way; the first ones are filled first, idle ones are closed."""

    def __init__(self, policy: Policy, url: Url, resolver: Resolver, dialler: Dialler) -> None:
        self._ssl_context = ssl_context(policy.ca_file) if url.scheme == "https" else None
        self._backend = GuardedBackend(policy, url, resolver, dialler)
        self._shards: list[_Shard] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        deadline = request.extensions.get("deadline")
        shard = self._shard()
        shard.under_way += 1
        try:
            with until(deadline), as_refusals():
                response = await shard.pool.handle_async_request(_as_httpcore(request))
        except BaseException:
            await self._release(shard)
            raise

        async def close() -> None:
            await response.aclose()
            await self._release(shard)

        assert isinstance(response.stream, AsyncIterable)
        headers = [(name, value) for name, value in response.headers if name.lower() != b"set-cookie"]
        if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in headers):
            await close()
            raise Refused(Code.PROTOCOL_ERROR, "the server compressed its answer, though it was asked not to")
        return httpx.Response(
            response.status,
            headers=headers,
            stream=_Stream(response.stream, deadline, close),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        shards, self._shards = self._shards, []
        for shard in shards:
            await shard.pool.aclose()

    def _shard(self) -> _Shard:
        for shard in self._shards:
            if shard.under_way < POOL_SIZE:
                return shard
        pool = httpcore.AsyncConnectionPool(
            ssl_context=self._ssl_context,
            max_connections=POOL_SIZE,
            keepalive_expiry=KEEP_ALIVE_S,
            network_backend=self._backend,
        )
        self._shards.append(_Shard(pool))
        return self._shards[-1]

    async def _release(self, shard: _Shard) -> None:
        shard.under_way -= 1
        if not shard.under_way and shard in self._shards[1:]:
            self._shards.remove(shard)
            await shard.pool.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(
        self, chunks: AsyncIterable[bytes], deadline: float | None, close: Callable[[], Awaitable[None]]
    ) -> None:
        self._chunks = chunks
        self._deadline = deadline
        self._close = close
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        chunks = aiter(self._chunks)
        while True:
            with until(self._deadline), as_refusals():
                try:
                    chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
            size += len(chunk)
            if size > MAX_STREAM:
                raise Refused(Code.TOO_LARGE, f"the answer is larger than {MAX_STREAM} bytes")
            yield chunk

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._close()


def _as_httpcore(request: httpx.Request) -> httpcore.Request:
    timeouts = request.extensions.get("timeout", {})
    assert isinstance(request.stream, httpx.AsyncByteStream)
    return httpcore.Request(
        request.method,
        httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        ),
        headers=request.headers.raw,
        content=request.stream,
        extensions={"timeout": {**timeouts, "pool": time_left(timeouts.get("pool"))}},
    )
