"""The guard: single requests of tools, and pooled clients for model servers. Nothing else opens a connection."""

import re
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urljoin

import httpcore
import httpx

from engine.net.body import read_body
from engine.net.codes import Code, Refused
from engine.net.dial import (
    Dialler,
    GuardedBackend,
    Resolver,
    as_refusals,
    local_resolver,
    ssl_context,
    system_resolver,
    until,
)
from engine.net.policy import Policy
from engine.net.pool import PooledTransport
from engine.net.slots import Slots
from engine.net.urls import Url, parse_url

MAX_BODY = 1 << 20  # bytes
MAX_REDIRECTS = 3
USER_AGENT = "quality-lab"

type Headers = tuple[tuple[str, str], ...]

_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Z-]{1,32}")
_REDIRECTS = (301, 302, 303, 307, 308)
_all_slots = Slots()


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `headers` are the configured ones, the guard adds its own."""

    method: str
    url: Url
    headers: Headers = ()
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """`body` is decompressed where the server compressed it; header names are in lower case."""

    status: int
    headers: Headers
    body: bytes
    url: Url

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class Guard:
    """Sends what a policy lets through. `tenant` is the key under which requests at once are counted."""

    def __init__(
        self,
        policy: Policy,
        *,
        tenant: str = "",
        resolver: Resolver | None = None,
        dialler: Dialler | None = None,
        slots: Slots = _all_slots,
    ) -> None:
        self.policy = policy
        self._tenant = tenant
        self._resolver = resolver or (system_resolver if policy.strict else local_resolver)
        self._dialler = dialler or httpcore.AnyIOBackend()
        self._slots = slots

    async def fetch(
        self, request: Request, *, deadline: float, max_bytes: int = MAX_BODY, follow_redirects: bool = False
    ) -> Response:
        """Send one request on a connection of its own and read the whole answer. Raises `Refused`.

        `deadline` is a reading of `time.monotonic()`. Redirects are followed for GET and HEAD only, each hop judged
        like the first; with another origin all configured headers are dropped.
        """
        if not is_method(request.method):
            raise Refused(Code.PROTOCOL_ERROR, "the method is not valid")
        follow = follow_redirects and request.method in ("GET", "HEAD")
        with self._slots.one(self._tenant), until(deadline), as_refusals():
            for _ in range(MAX_REDIRECTS + 1):
                response = await self._send(request, max_bytes)
                location = response.header("location")
                if not (follow and response.status in _REDIRECTS and location):
                    return response
                request = _next_hop(request, location)
        raise Refused(Code.REDIRECT_NOT_ALLOWED, f"more than {MAX_REDIRECTS} redirects")

    async def _send(self, request: Request, max_bytes: int) -> Response:
        url = request.url
        self.policy.check_url(url)
        async with httpcore.AsyncConnectionPool(
            ssl_context=ssl_context(self.policy.ca_file) if url.scheme == "https" else None,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=GuardedBackend(self.policy, url, self._resolver, self._dialler),
        ) as pool:
            raw = httpcore.Request(
                request.method.encode(),
                httpcore.URL(
                    scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode()
                ),
                headers=_wire_headers(request),
                content=request.body,
            )
            response = await pool.handle_async_request(raw)
            headers = tuple(
                (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers
            )
            answer = Response(response.status, headers, b"", url)
            assert isinstance(response.stream, AsyncIterable)
            try:
                body = await read_body(response.stream, answer.header("content-encoding").strip().lower(), max_bytes)
            finally:
                await response.aclose()
            return replace(answer, body=body)

    def client(
        self, base_url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> httpx.AsyncClient:
        """A client for one model server, with connections that are kept. Raises `Refused` for a bad base URL.

        `timeout_s` is for each step; `extensions={"deadline": …}` (`time.monotonic()`) ends a request as a whole.
        What goes wrong on the way raises `Refused`. Redirects are not followed. The caller closes the client.
        """
        url = parse_url(base_url)
        self.policy.check_url(url)
        return httpx.AsyncClient(
            base_url=str(url),
            headers={"accept-encoding": "identity", "user-agent": USER_AGENT, **(headers or {})},
            timeout=timeout_s,
            transport=PooledTransport(self.policy, url, self._resolver, self._dialler),
            trust_env=False,
            follow_redirects=False,
        )


def is_method(method: str) -> bool:
    """A verb that can be sent. CONNECT is none: it opens a tunnel."""
    return _METHOD.fullmatch(method) is not None and method != "CONNECT"


def _wire_headers(request: Request) -> list[tuple[bytes, bytes]]:
    own: Headers = (
        ("Accept", "*/*"),
        ("User-Agent", USER_AGENT),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    )
    if request.body is not None:
        own += (("Content-Length", str(len(request.body))),)
    configured = {name.lower() for name, _ in request.headers}
    headers = (
        ("Host", request.url.authority),
        *(header for header in own if header[0].lower() not in configured),
        *request.headers,
    )
    return [(name.encode(), value.encode()) for name, value in headers]


def _next_hop(request: Request, location: str) -> Request:
    try:
        joined = urljoin(str(request.url), location.partition("#")[0])
        url = parse_url(joined)
    except ValueError as exc:
        raise Refused(Code.REDIRECT_NOT_ALLOWED, "the redirect leads to no valid URL") from exc
    if request.url.scheme == "https" and url.scheme != "https":
        raise Refused(Code.REDIRECT_NOT_ALLOWED, "the redirect leads from https to http")
    return replace(request, url=url, headers=request.headers if url.origin == request.url.origin else ())
