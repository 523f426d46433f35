"""Who may come in, and to which models: kept in each process for seconds, so that no request waits for the database.

What was read less than FRESH_S ago holds. Older, it is read anew: beside the request until STALE_S, before it after
that; so a revoked token is out within STALE_S. While the database is away, callers that are known stay known for
GRACE_S: traffic does not stop with it.

Who is not known yet is looked up in threads of their own, so that callers with wrong tokens make nobody wait. What has
not even the form of a token is refused at once, what was refused is so again for a moment, and nobody new is looked up
in a database that has just failed.
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

from quality.api.auth import bearer, may_open, require_scope
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
FIRST_PATIENCE_S = 4.0  # where nothing is known
REST_S = 3.0  # a database that failed is left alone for so long
NUM_THREADS = 4
NUM_FOR_STRANGERS = 2
MAX_KNOWN = 5_000
MAX_ASKING = 500  # callers that are being looked up for the first time
MAX_REFUSED = 5_000


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
    """A value, when it was read, and the reading that is under way since `asked_at`."""

    value: T
    read_at: float
    reading: "asyncio.Future[T] | None" = None
    asked_at: float = 0.0


class _Shelf[T]:
    """Values by name, each read in a thread: one reading at a time of each, nobody waits longer than need be. A name
    is looked up for the first time in one of `first`."""

    def __init__(
        self, fresh_s: float, stale_s: float, threads: ThreadPoolExecutor, *, first: ThreadPoolExecutor
    ) -> None:
        self._fresh_s, self._stale_s = fresh_s, stale_s
        self._known: OrderedDict[Any, _Known[T]] = OrderedDict()
        self._asking: dict[Any, asyncio.Future[T]] = {}
        self._asked_at: dict[Any, float] = {}  # of these, the oldest first
        self._refused: OrderedDict[Any, tuple[float, GatewayError]] = OrderedDict()
        self._threads = threads
        self._first_threads = first
        self._away_until = 0.0

    async def get(self, name: Any, read: Callable[[], T], *, holds: Callable[[T], bool] = lambda value: True) -> T:
        """The value under `name`; `holds` says whether one that is known is good still. Raises what `read` raises."""
        now = time.monotonic()
        known = self._known.get(name)
        if known is None or now - known.read_at >= GRACE_S:
            return await self._met_in_time(self._first(name, read, now))
        self._known.move_to_end(name)
        age_s = now - known.read_at
        value = known.value
        good = holds(value)
        if good and age_s < self._fresh_s:
            return value
        if now < self._away_until:
            return value
        reading = self._reading(name, known, read)
        if (good and age_s < self._stale_s) or now - known.asked_at >= PATIENCE_S:  # another has waited in vain
            return value
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(reading)
        except (TimeoutError, DatabaseFault):
            return value  # the database is away: who was known is known

    def _first(self, name: Any, read: Callable[[], T], now: float) -> "asyncio.Future[T]":
        """The reading of what is not known; raises what is to be said without one."""
        until, refusal = self._refused.get(name, (0.0, None))
        if refusal is not None and now < until:
            raise refusal.with_traceback(None)
        if now < self._away_until or now - next(iter(self._asked_at.values()), now) >= FIRST_PATIENCE_S:
            raise _Away
        if name not in self._asking:
            if len(self._asking) >= MAX_ASKING:
                message = "Too many callers that are not known here wait to be looked up. Try again in a moment."
                raise GatewayError(503, OURS, "busy", message, headers={"Retry-After": "1"})
            self._asked_at[name] = now
            self._asking[name] = self._in_thread(self._first_threads, read)
            self._asking[name].add_done_callback(lambda done: self._met(name, done))
        return self._asking[name]

    async def _met_in_time(self, reading: "asyncio.Future[T]") -> T:
        """What is read for the first time. A database that does not say it soon is taken to be away."""
        try:
            async with asyncio.timeout(FIRST_PATIENCE_S):
                return await asyncio.shield(reading)
        except TimeoutError:
            self._away_until = time.monotonic() + REST_S
            raise _Away from None

    def _met(self, name: Any, reading: "asyncio.Future[T]") -> None:
        del self._asking[name], self._asked_at[name]
        error = None if reading.cancelled() else reading.exception()
        if isinstance(error, DatabaseFault):
            self._rest(error)
        elif isinstance(error, GatewayError):
            _keep(self._refused, name, (time.monotonic() + self._fresh_s, error), MAX_REFUSED)
        elif error is None and not reading.cancelled():
            _keep(self._known, name, _Known(reading.result(), time.monotonic()), MAX_KNOWN)

    def _reading(self, name: Any, known: _Known[T], read: Callable[[], T]) -> "asyncio.Future[T]":
        if known.reading is None:
            known.asked_at = time.monotonic()
            known.reading = self._in_thread(self._threads, read)
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
            self._rest(error)
        elif self._known.get(name) is known:
            del self._known[name]  # it does not hold any more

    def _in_thread(self, threads: ThreadPoolExecutor, read: Callable[[], T]) -> "asyncio.Future[T]":
        def unless_away() -> T:
            if time.monotonic() < self._away_until:  # it failed while this waited for a thread
                raise _Away
            return read()

        loop = asyncio.get_running_loop()
        return loop.run_in_executor(threads, copy_context().run, _returning_connection(unless_away))

    def _rest(self, error: DatabaseFault) -> None:
        """Leave the database alone for a while."""
        if not isinstance(error, _Away):
            self._away_until = time.monotonic() + REST_S
            logger.warning("The database cannot be asked about callers of the gateway (%s)", str(error).strip())


class _Away(DatabaseFault):
    """The database failed a moment ago, and was not asked."""


def _keep[K, V](shelf: OrderedDict[K, V], name: K, value: V, most: int) -> None:
    """Put a value on a shelf, as its newest; the oldest make room."""
    shelf[name] = value
    shelf.move_to_end(name)
    while len(shelf) > most:
        shelf.popitem(last=False)


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
        strangers = ThreadPoolExecutor(NUM_FOR_STRANGERS, "gateway-strangers")
        self._passes: _Shelf[Pass] = _Shelf(FRESH_S, STALE_S, threads, first=strangers)
        self._keys: _Shelf[tuple[int, str]] = _Shelf(KEY_S, 2 * KEY_S, threads, first=threads)
        self._routes: dict[int, tuple[int, tuple[Route, ...]]] = {}

    async def enter(self, header: str, *, newer_than: Pass | None = None) -> Pass:
        """What the `Authorization` header opens; raises GatewayError."""
        if not header:
            raise _unauthenticated("Send a token of scope gateway: `Authorization: Bearer qlab_…`.")
        if not may_open(header):
            raise _unauthenticated(_NOT_VALID)
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
            raise _unauthenticated(_NOT_VALID)
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


_NOT_VALID = "This token is not valid: unknown, mistyped, expired or revoked."


def _unauthenticated(message: str) -> GatewayError:
    headers = {"WWW-Authenticate": 'Bearer realm="quality-lab"'}
    return GatewayError(401, AUTHENTICATION, "invalid_api_key", message, headers=headers)


def _away() -> GatewayError:
    message = "The database does not answer, and this token is not known here yet. Try again in a moment."
    return GatewayError(503, OURS, "unavailable", message, headers={"Retry-After": "3"})
