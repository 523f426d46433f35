"""A reply on its way from the model's server to the client: as it came, or repaired by the switches of the model."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import httpx

from engine.errors import OutboundError
from engine.redaction import Redactor
from quality.bodies import Send
from quality.gateway.asked import Asked
from quality.gateway.doors import Route
from quality.gateway.errors import UPSTREAM, GatewayError
from quality.gateway.exchange import ASKED_AGAIN, CALLS_IN_TEXT, Exchange
from quality.gateway.repair import StreamRepair, repaired_whole, streamed_out
from quality.gateway.upstream import content_type, fault, passed_on

MAX_WHOLE = 8 * 1024 * 1024  # bytes of an answer that is looked at in one piece
EVENT_STREAM = "text/event-stream"

type AskAgain = Callable[[], AbstractAsyncContextManager[httpx.Response]]
type RawHeaders = list[tuple[bytes, bytes]]


class Cut(Exception):
    """The reply ended before its end: the client's connection has to end so, too."""


@dataclass(slots=True)
class Client:
    """The way to the client. What is sent is kept for the record."""

    send: Send
    exchange: Exchange
    has_begun: bool = False

    async def begin(self, status: int, headers: RawHeaders) -> None:
        self.has_begun = True
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, piece: bytes) -> None:
        if piece:
            self.exchange.keep(piece)
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        self.exchange.keep(body)
        self.has_begun = True
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


@dataclass(slots=True)
class Relay:
    """One reply. `key` is taken out of what comes back: no error of a server tells it to who was not given it."""

    asked: Asked
    route: Route
    key: str | None
    client: Client
    ask_again: AskAgain

    async def run(self, response: httpx.Response) -> None:
        """Raises GatewayError before anything was sent, Cut after."""
        exchange = self.client.exchange
        exchange.status = response.status_code
        exchange.is_stream = content_type(response.headers) == EVENT_STREAM
        is_looked_at = response.status_code == httpx.codes.OK and self.asked.offers_tools and self.asked.is_single
        if response.status_code >= 400:
            await self._error(response)
        elif (
            is_looked_at and exchange.is_stream and (self.route.repairs_text_calls or self.route.asks_again_when_empty)
        ):
            await self._repaired_stream(response)
        elif is_looked_at and not exchange.is_stream and self.route.repairs_text_calls:
            await self._repaired_whole(response)
        else:
            await self._as_it_comes(response)

    async def _as_it_comes(self, response: httpx.Response) -> None:
        await self.client.begin(response.status_code, passed_on(response.headers))
        try:
            async for chunk in self._chunks(response):
                await self.client.write(chunk)
        except GatewayError as error:
            await self._cut(error)
        await self.client.end()

    async def _error(self, response: httpx.Response) -> None:
        body = await self._read(response)
        await self._send_whole(response, body)

    async def _repaired_whole(self, response: httpx.Response) -> None:
        body = await self._read(response)
        repaired = repaired_whole(body, self.asked.tools)
        if repaired is not None:
            self.client.exchange.warnings.append(CALLS_IN_TEXT)
        await self._send_whole(response, body if repaired is None else repaired)

    async def _send_whole(self, response: httpx.Response, body: bytes) -> None:
        headers = [(name, value) for name, value in passed_on(response.headers) if name != b"content-length"]
        await self.client.whole(response.status_code, [*headers, (b"content-length", str(len(body)).encode())], body)

    async def _repaired_stream(self, response: httpx.Response) -> None:
        tools, route = self.asked.tools, self.route
        repair = StreamRepair(tools, repairs=route.repairs_text_calls, asks_again=route.asks_again_when_empty)
        headers = [(name, value) for name, value in passed_on(response.headers) if name != b"content-length"]
        await self.client.begin(response.status_code, headers)
        try:
            async for chunk in self._chunks(response):
                await self.client.write(repair.feed(chunk))
        except GatewayError as error:
            await self.client.write(repair.finish(is_cut=True))
            await self._cut(error)
        await self.client.write(repair.finish())
        if repair.num_calls:
            self.client.exchange.warnings.append(CALLS_IN_TEXT)
        if repair.is_empty:
            await self.client.write(await self._said_after_all(repair) or repair.ending)
        await self.client.end()

    async def _said_after_all(self, repair: StreamRepair) -> bytes:
        """The answer to the same request in one piece, as a stream; nothing if that is none either."""
        try:
            async with self.ask_again() as response:
                if response.status_code != httpx.codes.OK:
                    return b""
                body = await self._read(response)
        except GatewayError:
            return b""
        out, num_calls = streamed_out(
            body,
            self.asked.tools,
            repairs=self.route.repairs_text_calls,
            has_role=repair.has_role,
            wants_usage=self.asked.wants_usage,
        )
        if out:
            self.client.exchange.warnings += [ASKED_AGAIN, *([CALLS_IN_TEXT] if num_calls else [])]
        return out

    async def _read(self, response: httpx.Response) -> bytes:
        """The whole body; raises GatewayError."""
        body = bytearray()
        async for chunk in self._chunks(response):
            body += chunk
            if len(body) > MAX_WHOLE:
                message = f"The server of model {self.route.model.label} sent more than {MAX_WHOLE:,} bytes."
                raise GatewayError(502, UPSTREAM, "too_large", message)
        whole = bytes(body)
        return self._redactor.data(whole) if self.key else whole

    async def _chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The body as it comes; raises GatewayError where it breaks off."""
        key = self.key.encode() if self.key else None
        try:
            async for chunk in response.aiter_raw():
                yield self._redactor.data(chunk) if key and key in chunk else chunk
        except (OutboundError, httpx.TransportError) as error:
            raise fault(error, self.route.model, has_begun=True) from error

    @property
    def _redactor(self) -> Redactor:
        return Redactor({"MODEL_KEY": self.key or ""})

    async def _cut(self, error: GatewayError) -> None:
        """Tell clients of an event stream what happened, and break off as the server did. Raises Cut."""
        self.client.exchange.fault = error.code
        if self.client.exchange.is_stream:
            await self.client.send({"type": "http.response.body", "body": error.event, "more_body": True})
        raise Cut from error
