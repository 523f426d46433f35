"""Connections to model servers, kept for each tenant, and the names of what goes wrong on the way."""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from django.conf import settings

from engine.errors import OutboundError
from engine.net import Client, Code, Guard
from engine.net import Refused as NotSent
from quality.gateway.errors import UPSTREAM, GatewayError
from tenants import outbound
from tenants.endpoints import ChosenModel

CONNECT_S = 10.0
LONGEST_S = 3600.0  # one answer, from the request to its last byte
MAX_CLIENTS = 200

# Of this hop alone, or ours to say. The guard asks for answers that are not compressed.
NOT_SENT = frozenset(
    (
        "host", "content-length", "authorization", "cookie", "accept-encoding", "expect", "forwarded", "via",
        "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-real-ip",
    )
)  # fmt: skip
HOP_BY_HOP = frozenset(
    (
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "trailers", "transfer-encoding", "upgrade",
    )
)  # fmt: skip
# Of the other server's own address: for ours they would be lies.
NOT_PASSED = frozenset(("alt-svc", "strict-transport-security", "set-cookie", "content-encoding"))
OURS = "x-qlab-"
NOT_ALLOWED = frozenset(
    (
        Code.INVALID_URL, Code.SCHEME_NOT_ALLOWED, Code.PORT_NOT_ALLOWED, Code.HOST_NOT_ALLOWED,
        Code.ADDRESS_NOT_ALLOWED,
    )
)  # fmt: skip

type Headers = list[tuple[str, str]]


@dataclass(slots=True, eq=False)
class _Kept:
    client: Client
    in_use: int = 0


class Upstreams:
    """The clients of one event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], _Kept] = OrderedDict()

    @asynccontextmanager
    async def send(
        self, tenant_id: int, model: ChosenModel, key: str | None, headers: Headers, body: bytes
    ) -> AsyncIterator[httpx.Response]:
        """The server's answer, its body not read yet; closed at the end. Raises GatewayError."""
        kept = self._client(tenant_id, model)
        kept.in_use += 1
        try:
            request = kept.client.build_request(
                "POST",
                f"{model.base_url}/chat/completions",
                content=body,
                headers=[*headers, ("Authorization", f"Bearer {key}")] if key else headers,
                timeout=httpx.Timeout(settings.MODEL_TIMEOUT_S, connect=CONNECT_S),
            )
            request.extensions["deadline"] = time.monotonic() + LONGEST_S
            try:
                response = await kept.client.send(request, stream=True)
            except (OutboundError, httpx.TransportError) as error:
                raise fault(error, model) from error
            try:
                yield response
            finally:
                await response.aclose()
        finally:
            kept.in_use -= 1
            await self._close_idle()

    def _client(self, tenant_id: int, model: ChosenModel) -> _Kept:
        name = (tenant_id, model.base_url)
        if name not in self._kept:
            try:
                client = Guard(outbound.policy(), tenant=str(tenant_id)).client(model.base_url)
            except NotSent as error:
                raise fault(error, model) from error
            self._kept[name] = _Kept(client)
        self._kept.move_to_end(name)
        return self._kept[name]

    async def _close_idle(self) -> None:
        oldest = list(self._kept.items())[: max(len(self._kept) - MAX_CLIENTS, 0)]
        idle = [(name, kept) for name, kept in oldest if not kept.in_use]
        for name, _ in idle:
            del self._kept[name]  # before the first of them is waited for: others come here meanwhile
        for _, kept in idle:
            await kept.client.aclose()


def fault(error: OutboundError | httpx.TransportError, model: ChosenModel, *, has_begun: bool = False) -> GatewayError:
    """What the way to the server did, by name."""
    code = error.code if isinstance(error, OutboundError) else type(error).__name__
    where = f"The server of model {model.label}"
    if code == Code.TIMED_OUT or isinstance(error, httpx.TimeoutException):
        message = f"{where} did not answer in time. Check that it is not overloaded; MODEL_TIMEOUT_S is the limit."
        return GatewayError(504, UPSTREAM, "timed_out", message)
    if code == Code.TOO_LARGE:
        return GatewayError(502, UPSTREAM, code, f"{where} sent too much in one answer.")
    if has_begun:
        message = f"{where} broke off the connection in the middle of an answer. Look into its log."
        return GatewayError(502, UPSTREAM, "cut", message)
    if isinstance(error, NotSent) and code in NOT_ALLOWED:
        return GatewayError(502, UPSTREAM, code, f"{where} may not be called: {outbound.reason(error)}.")
    told = error.message if isinstance(error, OutboundError) else str(error)
    message = f"{where} cannot be reached ({code}: {told}). Check its base URL, and that it runs."
    return GatewayError(502, UPSTREAM, code, message)


def sent_on(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The client's headers that the model's server gets."""
    told = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    named = _named_by_connection(told)
    return [
        (name, value)
        for name, value in told
        if name not in NOT_SENT and name not in HOP_BY_HOP and name not in named and not name.startswith(OURS)
    ]


def passed_on(headers: httpx.Headers) -> list[tuple[bytes, bytes]]:
    """The server's headers that the client gets."""
    named = _named_by_connection([(name.lower(), value) for name, value in headers.multi_items()])
    return [
        (name.lower(), value)
        for name, value in headers.raw
        if (plain := name.decode("latin-1").lower()) not in HOP_BY_HOP
        and plain not in NOT_PASSED
        and plain not in named
    ]


def _named_by_connection(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Headers that are of this hop because `Connection` says so."""
    values = (value for name, value in headers if name == "connection")
    return frozenset(part.strip().lower() for value in values for part in value.split(","))


def content_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()
