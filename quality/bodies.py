"""How many bytes a request may carry, decided before they are read.

Under ASGI Django spools the whole body to disk before any view or sign-in is asked, so the limit stands around the
application: anybody could fill the disk otherwise. Under WSGI the middleware refuses by Content-Length; bodies are read
by the views there.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestAborted
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from quality.api import otlp
from quality.api.problems import problem

type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]
type App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

_FRAME = 1024 * 1024  # what a form adds around a file
_UPLOAD = re.compile(r"/t/[^/]+/(?:imports/upload|cases/import)/")
_INGEST = ("/api/ingest/",)
_SPANS = "/v1/traces"


def allowed_bytes(path: str, *, has_session: bool, has_token: bool) -> int:
    """Trace files are large, from who at least shows a session or a token; everything else is small."""
    if (has_session and _UPLOAD.fullmatch(path)) or (has_token and path.startswith(_INGEST)):
        return settings.IMPORT_MAX_BYTES + _FRAME
    if has_token and path == _SPANS:
        return settings.OTLP_MAX_BYTES
    return settings.DATA_UPLOAD_MAX_MEMORY_SIZE + _FRAME


def _refusal(path: str, limit: int, content_type: str) -> HttpResponse:
    """The 413, in the API's shape for its own paths, in OTLP's for spans."""
    detail = f"The request is larger than the {limit // (1024 * 1024)} MiB that are taken here. Send less at once."
    if path == _SPANS:
        return otlp.refusal(413, detail, content_type)
    if path.startswith(("/api/", "/v1/")):
        return problem(413, "too_large", detail)
    return HttpResponse(detail, status=413, content_type="text/plain; charset=utf-8")


class BodyLimit:
    """An ASGI application that refuses bodies over the limit, by their stated length or as they come."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        path = scope["path"]
        limit = allowed_bytes(
            path,
            has_session=settings.SESSION_COOKIE_NAME.encode() in headers.get(b"cookie", b""),
            has_token=headers.get(b"authorization", b"").lower().startswith(b"bearer ") or b"x-api-key" in headers,
        )
        content_type = headers.get(b"content-type", b"").decode("latin-1")
        if _stated_length(headers.get(b"content-length", b"").decode("latin-1")) > limit:
            await _send_refusal(send, _refusal(path, limit, content_type))
            return
        left = limit
        refused = False

        async def counted() -> dict[str, Any]:
            nonlocal left, refused
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                refused = True
                raise RequestAborted  # Django drops what it has read and answers nothing
            return message

        await self.app(scope, counted, send)
        if refused:
            await _send_refusal(send, _refusal(path, limit, content_type))


async def _send_refusal(send: Send, refusal: HttpResponse) -> None:
    headers = [
        (b"content-type", refusal["Content-Type"].encode()),
        (b"content-length", str(len(refusal.content)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.content})


def _stated_length(header: str) -> int:
    """The Content-Length; 0 where there is none, or no number."""
    return int(header[:15]) if header.isascii() and header.isdecimal() else 0


class BodyLimitMiddleware:
    """The same by Content-Length, for servers that hand the body on unread."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        limit = allowed_bytes(
            request.path,
            has_session=settings.SESSION_COOKIE_NAME in request.COOKIES,
            has_token=request.headers.get("Authorization", "").lower().startswith("bearer ")
            or "X-Api-Key" in request.headers,
        )
        if _stated_length(request.headers.get("Content-Length", "")) > limit:
            return _refusal(request.path, limit, request.headers.get("Content-Type", ""))
        return self.get_response(request)
