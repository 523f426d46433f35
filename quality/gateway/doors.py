"""Who may come in, and to which models: kept in each process for seconds, so that no request waits for the database.

What was read less than FRESH_S ago holds. Older, it is read anew: beside the request until STALE_S, before it after
that; so a revoked token is out within STALE_S. While the database is away, callers that are known stay known for
GRACE_S: traffic does not stop with it.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseFault
from django.db import connection
from rest_framework.exceptions import PermissionDenied

from quality.api.auth import bearer, require_scope
from quality.gateway.errors import AUTHENTICATION, INVALID, OURS, PERMISSION, GatewayError
from tenants import endpoints
from tenants.endpoints import ChosenModel
from tenants.envelope import SecretInvalid
from tenants.models import ModelEndpoint, Scope
from tenants.scope import tenant_scope
from tenants.versions import current_version

logger = logging.getLogger(__name__)

FRESH_S = 2.0
STALE_S = 5.0
GRACE_S = 900.0
KEY_S = 60.0  # a key is read once in so long, which the audit log tells
PATIENCE_S = 1.0  # for the database, where what is known would do
REST_S = 3.0  # a database that failed is left alone for so long
NUM_THREADS = 4
MAX_KNOWN = 5_000


@dataclass(frozen=True, slots=True)
class Route:
    """A model that requests may go to."""

    model: ChosenModel
    repairs_text_calls: bool
    asks_again_when_empty: bool
    checks_arguments: bool


@dataclass(frozen=True, slots=True)
class Pass:
    """What a token opens. `version` is that of the tenant's settings which `routes` were read under."""

    tenant_id: int
    token_id: int
    rate_per_minute: int
    version: int
    routes: tuple[Route, ...]

    def route(self, name: str) -> Route | None:
        """The model with this label, else the first with this name on its server."""
        by_label = [route for route in self.routes if route.model.label == name]
        by_name = [route for route in self.routes if route.model.name == name]
        return next(iter(by_label or by_name), None)


@dataclass(slots=True)
class _Known[T]:
    """A value, when it was read, and the reading that is under way."""

    value: T | None = None
    read_at: float = -GRACE_S
    reading: "asyncio.Future[T] | None" = None


class _Shelf[T]:
    """Values by name, each read in a thread: one reading at a time of each, nobody waits longer than need be."""

    def __init__(self, fresh_s: float, stale_s: float, threads: ThreadPoolExecutor) -> None:
        self._fresh_s, self._stale_s = fresh_s, stale_s
        self._known: OrderedDict[Any, _Known[T]] = OrderedDict()
        self._threads = threads
        self._away_until = 0.0

    async def get(self, name: Any, read: Callable[[], T], *, holds: Callable[[T], bool] = lambda value: True) -> T:
        """The value under `name`; `holds` says whether one that is known is good still. Raises what `read` raises."""
        known: _Known[T] = self._known.setdefault(name, _Known())
        self._known.move_to_end(name)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        now = time.monotonic()
        age_s = now - known.read_at
        value = known.value
        if value is None or age_s >= GRACE_S:
            return await asyncio.shield(self._reading(name, known, read))
        good = holds(value)
        if good and age_s < self._fresh_s:
            return value
        if now < self._away_until:
            return value
        reading = self._reading(name, known, read)
        if good and age_s < self._stale_s:
            return value
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(reading)
        except (TimeoutError, DatabaseFault):
            return value  # the database is away: who was known is known

    def _reading(self, name: Any, known: _Known[T], read: Callable[[], T]) -> "asyncio.Future[T]":
        if known.reading is None:
            loop = asyncio.get_running_loop()
            known.reading = loop.run_in_executor(self._threads, copy_context().run, _returning_connection(read))
            known.reading.add_done_callback(lambda done: self._done(name, known, done))
        return known.reading

    def _done(self, name: Any, known: _Known[T], reading: "asyncio.Future[T]") -> None:
        known.reading = None
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            known.value, known.read_at = reading.result(), time.monotonic()
        elif isinstance(error, DatabaseFault):
            self._away_until = time.monotonic() + REST_S
            logger.warning("The database cannot be asked about callers of the gateway (%s)", str(error).strip())
        elif self._known.get(name) is known:
            del self._known[name]  # it does not hold any more


def _returning_connection[T](read: Callable[[], T]) -> Callable[[], T]:
    def run() -> T:
        try:
            return read()
        finally:
            connection.close()

    return run


class Doors:
    """The doorkeeper of one event loop."""

    def __init__(self) -> None:
        threads = ThreadPoolExecutor(NUM_THREADS, "gateway-doors")
        self._passes: _Shelf[Pass] = _Shelf(FRESH_S, STALE_S, threads)
        self._keys: _Shelf[tuple[int, str]] = _Shelf(KEY_S, 2 * KEY_S, threads)
        self._routes: dict[int, tuple[int, tuple[Route, ...]]] = {}

    async def enter(self, header: str, *, newer_than: Pass | None = None) -> Pass:
        """What the `Authorization` header opens; raises GatewayError."""
        if not header:
            raise _unauthenticated("Send a token of scope gateway: `Authorization: Bearer qlab_…`.")
        name = hashlib.sha256(header.encode()).digest()
        try:
            return await self._passes.get(
                name, lambda: self._judge(header), holds=lambda known: known is not newer_than
            )
        except DatabaseFault as error:
            raise _away() from error

    async def route(self, header: str, given: Pass, name: str) -> Route:
        """The model that a request names; one that was added just now is looked for. Raises GatewayError."""
        found = given.route(name)
        if found is None:
            given = await self.enter(header, newer_than=given)
            found = given.route(name)
        if found is None:
            there = ", ".join(route.model.label for route in given.routes) or "none: add one under Models"
            message = f"There is no enabled model {name!r}. These are there: {there}."
            raise GatewayError(404, INVALID, "model_not_found", message, param="model")
        return found

    async def key(self, given: Pass, model: ChosenModel) -> str | None:
        """The key of a model's server; raises GatewayError."""
        if not model.has_key:
            return None

        def read() -> tuple[int, str]:
            with tenant_scope(given.tenant_id):
                version = current_version()
                key = endpoints.read_key(model.endpoint_id, run=f"gateway, for {KEY_S:.0f} s")
                return version, key or ""

        try:
            _, key = await self._keys.get(
                (given.tenant_id, model.endpoint_id), read, holds=lambda known: known[0] >= given.version
            )
        except DatabaseFault as error:
            raise _away() from error
        except SecretInvalid as error:
            raise GatewayError(502, OURS, error.code, f"The key of model {model.label}: {error}") from error
        return key or None

    def _judge(self, header: str) -> Pass:
        token = bearer(header)
        if token is None:
            raise _unauthenticated("This token is not valid: unknown, mistyped, expired or revoked.")
        try:
            require_scope(token, Scope.GATEWAY)
        except PermissionDenied as error:
            raise GatewayError(403, PERMISSION, str(error.get_codes()), str(error.detail)) from error
        with tenant_scope(token.tenant) as tenant_id:
            version = current_version()
            known = self._routes.get(tenant_id)
            if known is None or known[0] != version:
                known = version, tuple(_routes())
                self._routes[tenant_id] = known
        rate = settings.GATEWAY_RATE_PER_MINUTE if token.rate_per_minute is None else token.rate_per_minute
        return Pass(tenant_id, token.pk, rate, version, known[1])


def _routes() -> list[Route]:
    return [
        Route(
            replace(endpoints.chosen(row), base_url=row.base_url.rstrip("/")),
            row.repairs_text_calls,
            row.asks_again_when_empty,
            row.checks_arguments,
        )
        for row in ModelEndpoint.objects.filter(is_enabled=True).order_by("pk")
    ]


def _unauthenticated(message: str) -> GatewayError:
    headers = {"WWW-Authenticate": 'Bearer realm="quality-lab"'}
    return GatewayError(401, AUTHENTICATION, "invalid_api_key", message, headers=headers)


def _away() -> GatewayError:
    message = "The database does not answer, and this token is not known here yet. Try again in a moment."
    return GatewayError(503, OURS, "unavailable", message, headers={"Retry-After": "3"})
