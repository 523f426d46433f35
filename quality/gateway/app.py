"""The ASGI application of the gateway, in front of the pages and the API: one request from head to end."""

import asyncio
import datetime as dt
import io
import logging
import time
import uuid
from typing import Any

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest

from engine.net import Refused, Slots
from quality.bodies import App, Receive, Send
from quality.gateway.asked import read_asked
from quality.gateway.doors import Doors, Pass, Route
from quality.gateway.errors import INVALID, OURS, PERMISSION, GatewayError
from quality.gateway.exchange import CLIENT_GONE, Exchange, read_said
from quality.gateway.rates import Rates
from quality.gateway.recorder import Recorder, process_recorder
from quality.gateway.relay import Client, Cut, Relay
from quality.gateway.upstream import Upstreams, sent_on
from quality.gateway.wire import json_bytes
from tenants.context import request_id

logger = logging.getLogger(__name__)

COMPLETIONS = "/v1/chat/completions"
MODELS = "/v1/models"
BODY_S = 60.0  # for a client to send its request
AT_ONCE = 500  # requests of one tenant under way in this process

type Scope = dict[str, Any]


class Gateway:
    """`Gateway(app)` answers under /v1 what is the gateway's, and hands all else to `app`."""

    def __init__(self, app: App, recorder: Recorder | None = None) -> None:
        self.app = app
        self._recorder = recorder
        self._slots = Slots(AT_ONCE)
        self._rates = Rates()
        self._doors = Doors()
        self._upstreams = Upstreams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path in (COMPLETIONS, MODELS) or path.startswith(f"{MODELS}/")):
            await self.app(scope, receive, send)
            return
        request_id.set(uuid.uuid4().hex)
        try:
            await self._serve(scope, receive, send)
        except GatewayError as error:
            await _send_error(send, error)
        except _Gone:
            pass  # the client left while it was still sending
        except Exception:
            logger.exception("A request through the gateway failed")
            await _send_error(send, GatewayError(500, OURS, "internal_error", "Something went wrong in the gateway."))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        _refuse_foreign(scope)
        is_completion = scope["path"] == COMPLETIONS
        allowed = ("POST",) if is_completion else ("GET", "HEAD")
        if scope["method"] not in allowed:
            message = f"{scope['method']} does nothing here."
            raise GatewayError(405, INVALID, "method_not_allowed", message, headers={"Allow": ", ".join(allowed)})
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        authorization = headers.get("authorization", "")
        given = await self._doors.enter(authorization)
        if not is_completion:
            self._rates.admit(given.token_id, given.rate_per_minute, kind="models")
            name = scope["path"].removeprefix(MODELS).strip("/")
            routes = [await self._doors.route(authorization, given, name)] if name else list(given.routes)
            models = [_model(route) for route in routes]
            await _send_json(send, models[0] if name else {"object": "list", "data": models})
            return
        self._rates.admit(given.token_id, given.rate_per_minute)
        try:
            with self._slots.one(str(given.tenant_id)):
                await self._complete(scope, headers, given, receive, send)
        except Refused as error:
            raise GatewayError(503, OURS, error.code, error.message, headers={"Retry-After": "1"}) from error

    async def _complete(self, scope: Scope, headers: dict[str, str], given: Pass, receive: Receive, send: Send) -> None:
        body = await _read_body(headers, receive)
        asked = read_asked(body)
        said = read_said(headers)
        route = await self._doors.route(headers.get("authorization", ""), given, asked.model)
        key = await self._doors.key(given, route.model)
        exchange = Exchange(
            id=uuid.uuid4().hex,
            tenant_id=given.tenant_id,
            label=route.model.label,
            model=route.model.name,
            said=said,
            request=body,
            checks_arguments=route.checks_arguments,
            started_at=dt.datetime.now(dt.UTC),
            key=key,
        )
        passed = sent_on(scope["headers"])
        client = Client(send, exchange)

        def ask(*, streamed: bool | None = None) -> Any:
            sent = asked.body_for(route.model.name, route.model.parameters, streamed=streamed)
            return self._upstreams.send(given.tenant_id, route.model, key, passed, sent)

        async def converse() -> None:
            async with ask() as response:
                await Relay(asked, route, key, client, lambda: ask(streamed=False)).run(response)

        started = time.monotonic()
        try:
            await _while_there(converse(), receive)
        except _Gone:
            exchange.fault = CLIENT_GONE
        except Cut:
            pass  # an answer without its end makes the server close the connection, as the model's server did
        except GatewayError as error:
            exchange.fault = error.code
            if client.has_begun:
                raise RuntimeError("an error came after the answer had begun") from error
            raise
        except Exception as error:
            exchange.fault = type(error).__name__
            if not client.has_begun:
                raise
            logger.exception("A reply through the gateway broke off")
        finally:
            exchange.duration_ms = round((time.monotonic() - started) * 1000)
            (self._recorder or process_recorder()).take(exchange)


class _Gone(Exception):
    """The client has left."""


async def _while_there(work: Any, receive: Receive) -> None:
    """Await `work`, or cancel it as soon as the client leaves; then raises _Gone."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.wait({working, leaving})
            leaving.exception()  # a server may say in this way, too, that the client has left
            raise _Gone
        working.result()
    finally:
        leaving.cancel()
        working.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refuse_foreign(scope: Scope) -> None:
    """The host and the scheme, as Django judges them elsewhere."""
    try:
        request = ASGIRequest(scope, io.BytesIO())
        request.get_host()
    except (DisallowedHost, UnicodeDecodeError) as error:
        message = "This host is not served here. The operator names hosts in ALLOWED_HOSTS."
        raise GatewayError(400, INVALID, "bad_host", message) from error
    if settings.SECURE_SSL_REDIRECT and not request.is_secure():
        raise GatewayError(403, PERMISSION, "insecure", "Only https is served here.")


async def _read_body(headers: dict[str, str], receive: Receive) -> bytes:
    """Raises GatewayError for a body that is too large or does not come, _Gone where the client leaves."""
    limit = settings.GATEWAY_MAX_BYTES
    stated = headers.get("content-length", "")
    if stated.isdecimal() and stated.isascii() and int(stated[:18]) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                piece = await receive()
                if piece["type"] == "http.disconnect":
                    raise _Gone
                body += piece.get("body", b"")
                if len(body) > limit:
                    raise _too_large(limit)
                if not piece.get("more_body"):
                    return bytes(body)
    except TimeoutError as error:
        message = f"The request did not come within {BODY_S:.0f} s."
        raise GatewayError(408, INVALID, "timed_out", message) from error


def _too_large(limit: int) -> GatewayError:
    message = f"The request is larger than the {limit:,} bytes that are taken here (GATEWAY_MAX_BYTES)."
    return GatewayError(413, INVALID, "too_large", message, headers={"Connection": "close"})


def _model(route: Route) -> dict[str, Any]:
    return {"id": route.model.label, "object": "model", "created": 0, "owned_by": "quality-lab"}


async def _send_json(send: Send, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
    body = value if isinstance(value, bytes) else json_bytes(value)
    told = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Request-ID": request_id.get(),
        **(headers or {}),
    }
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def _send_error(send: Send, error: GatewayError) -> None:
    await _send_json(send, error.body, error.status, error.headers)
