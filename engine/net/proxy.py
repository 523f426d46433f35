"""An operator's egress proxy as a second fence: connections go through it, to addresses that were judged here."""

import re

import httpcore

from engine.net.codes import Code, Refused
from engine.net.dial import Dialler
from engine.net.urls import parse_url

MAX_HEAD = 8_192  # bytes of the proxy's answer

_TAKEN = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9][ \r]")


class EgressProxy:
    """A dialler that asks a proxy for a tunnel to the address, for http and https alike.

    The proxy is asked for the address and not for the name: it judges what will be dialled, and cannot be led to look
    the name up again and find another one. Raises `Refused` for a URL that is none of an http proxy.
    """

    def __init__(self, url: str, dialler: Dialler | None = None) -> None:
        self._proxy = parse_url(url)
        if self._proxy.scheme != "http":
            raise Refused(Code.SCHEME_NOT_ALLOWED, "the egress proxy is called by http, like http://proxy:4750")
        self._dialler = dialler or httpcore.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None) -> httpcore.AsyncNetworkStream:
        stream = await self._dialler.connect_tcp(self._proxy.host, self._proxy.port, timeout)
        try:
            target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            await stream.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode(), timeout)
            head = await _read_head(stream, timeout)
        except BaseException:
            await stream.aclose()
            raise
        if not _TAKEN.match(head):
            await stream.aclose()
            raise httpcore.ConnectError("the egress proxy does not let this connection through")
        return stream


async def _read_head(stream: httpcore.AsyncNetworkStream, timeout: float | None) -> bytes:
    """The head of the proxy's answer; nothing may follow it, for the client speaks first."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        chunk = await stream.read(MAX_HEAD, timeout)
        head += chunk
        if not chunk or len(head) > MAX_HEAD:
            raise httpcore.ConnectError("the egress proxy gave no answer to CONNECT")
    return head
