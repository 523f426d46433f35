"""A circuit breaker for each model server of a tenant: one that is down makes no turn wait for it, again and again.

After `MODEL_BREAKER_FAILURES` failures in a row (not reached, no answer, cut off, status 5xx) requests fail at once for
`MODEL_BREAKER_OPEN_S`. Then one request tries the server, all others still fail; its success closes the breaker, its
failure opens it for twice as long.

What processes share is in the cache: a count, and until when it is open. Each looks there once a second at most. With
the cache away a process goes by what it sees itself; that is never a fault of a turn.
"""

import hashlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import redis
from django.conf import settings
from django.core.cache import cache
from django.db import Error as DatabaseFailure

from engine.providers.outage import is_outage
from engine.providers.protocol import Answer, ChatModel, Listen, ModelError, Request, unheard
from tenants.models import ModelEndpoint

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)

CODE = "paused"
REFRESH_S = 1.0
PROBE_S = 60.0  # after which a try that told nothing is given up, and another one made
LONGEST_S = 600.0
FORGET_S = 3600  # what is shared is gone an hour after it last mattered
MAX_BREAKERS = 1_000  # that a process remembers
AWAY = (redis.RedisError, OSError, DatabaseFailure)

type InThread = Callable[..., "asyncio.Future[Any]"]


@dataclass(frozen=True, slots=True)
class Standing:
    """`until` is 0 while it is closed, else a time as `time.time()` tells it, from which on one request may try."""

    num_failures: int = 0
    until: float = 0.0
    num_opened: int = 0

    @property
    def is_open(self) -> bool:
        return self.until > 0

    @property
    def is_paused(self) -> bool:
        return time.time() < self.until

    @property
    def until_at(self) -> datetime | None:
        return datetime.fromtimestamp(self.until, UTC) if self.is_open else None

    def opened(self) -> "Standing":
        pause_s = min(settings.MODEL_BREAKER_OPEN_S * 2**self.num_opened, LONGEST_S)
        return Standing(self.num_failures, time.time() + pause_s, self.num_opened + 1)


CLOSED = Standing()


class Breaker:
    """One server for one tenant, as this process knows it. What asks the cache blocks: it is called in threads."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.standing = CLOSED
        self._looked_at = -math.inf
        self._has_looked = False
        self._try_key = ""
        self._tries_until = 0.0  # of a try while the cache is away

    def is_stale(self) -> bool:
        """True for the first that asks in a second, and for all until something is known."""
        now = time.monotonic()
        if now - self._looked_at < REFRESH_S:
            return not self._has_looked
        self._looked_at = now
        return True

    def look(self) -> None:
        try:
            self.standing = _read([self._place])[self._place]
        except AWAY as error:
            _log_away(error)
        self._has_looked = True

    def take_try(self) -> bool:
        """May the caller try the server, alone? Also true if it turns out to be closed."""
        self.look()
        if not self.standing.is_open:
            return True
        if self.standing.is_paused:
            return False
        try:
            # A key for each stretch of time: what ran out is never taken over, which two could do at once.
            stretch = int((time.time() - self.standing.until) // PROBE_S)
            self._try_key = f"{self._place}:try:{self.standing.until:.3f}:{stretch}"
            return bool(cache.add(self._try_key, 1, FORGET_S))
        except AWAY as error:
            _log_away(error)
            if time.monotonic() < self._tries_until:
                return False
            self._tries_until = time.monotonic() + PROBE_S
            return True

    def give_back_try(self) -> None:
        """The try told nothing: its turn was called off, or its worker stops."""
        self._tries_until = 0.0
        try:
            cache.delete(self._try_key)
        except AWAY as error:
            _log_away(error)

    def failed(self, *, was_try: bool) -> None:
        known = self.standing
        num_failures = known.num_failures + 1
        try:
            cache.add(f"{self._place}:failures", 0, FORGET_S)
            num_failures = cache.incr(f"{self._place}:failures")
        except (*AWAY, ValueError) as error:
            _log_away(error)
        standing = Standing(num_failures, known.until, known.num_opened)
        if was_try or (not known.is_open and num_failures >= settings.MODEL_BREAKER_FAILURES):
            standing = standing.opened()
            self._share(standing, is_first=not was_try)
        self.standing = standing
        self._tries_until = 0.0

    def answered(self) -> None:
        self.standing = CLOSED
        self._tries_until = 0.0
        try:
            cache.delete_many([f"{self._place}:failures", f"{self._place}:open"])
        except AWAY as error:
            _log_away(error)

    def _share(self, standing: Standing, *, is_first: bool) -> None:
        """Of those who open it at the same time the first counts."""
        store = cache.add if is_first else cache.set
        text = f"{standing.until}|{standing.num_failures}|{standing.num_opened}"
        try:
            store(f"{self._place}:open", text, FORGET_S)
        except AWAY as error:
            _log_away(error)


class Guarded:
    """A model behind a breaker: a `ChatModel` as well."""

    def __init__(self, model: ChatModel, breaker: Breaker, in_thread: InThread) -> None:
        self._model = model
        self._breaker = breaker
        self._in_thread = in_thread

    @property
    def name(self) -> str:
        return self._model.name

    async def answer(self, request: Request, listen: Listen = unheard) -> Answer:
        was_try = await self._enter()
        try:
            answer = await self._model.answer(request, listen)
        except ModelError as error:
            if is_outage(error, request):
                await self._in_thread(partial(self._breaker.failed, was_try=was_try))
            elif request.exchanges and request.exchanges[-1].status is not None:
                await self._all_is_well()  # it answered, if only to refuse
            elif was_try:
                self._in_thread(self._breaker.give_back_try)
            raise
        except BaseException:
            if was_try:
                self._in_thread(self._breaker.give_back_try)  # not awaited: whoever cancels us does not wait
            raise
        await self._all_is_well()
        return answer

    async def _enter(self) -> bool:
        """Raises ModelError while it is open. True: this request is the one that tries the server."""
        breaker = self._breaker
        if breaker.is_stale():
            await self._in_thread(breaker.look)
        if not breaker.standing.is_open:
            return False
        if breaker.standing.is_paused or not await self._in_thread(breaker.take_try):
            raise _paused(breaker.standing)
        return breaker.standing.is_open

    async def _all_is_well(self) -> None:
        if self._breaker.standing != CLOSED:
            await self._in_thread(self._breaker.answered)


def breaker_of(tenant_id: int, base_url: str, model: str) -> Breaker:
    """This process's breaker for a server."""
    place = _place(tenant_id, base_url, model)
    with _lock:
        breaker = _breakers.setdefault(place, Breaker(place))
        _breakers.move_to_end(place)
        while len(_breakers) > MAX_BREAKERS:
            _breakers.popitem(last=False)
        return breaker


def server_of(endpoint: ModelEndpoint) -> tuple[int, str, str]:
    """What names the server of an endpoint here: tenant, base URL, model."""
    return int(endpoint.tenant_id or 0), endpoint.base_url, endpoint.model


def standings[K](servers: Mapping[K, tuple[int, str, str]]) -> dict[K, Standing]:
    """How the breakers of servers (tenant, base URL, model) stand, for people; closed where the cache is away."""
    places = {key: _place(*server) for key, server in servers.items()}
    try:
        found = _read(places.values())
    except AWAY as error:
        _log_away(error)
        found = {}
    return {key: found.get(place, CLOSED) for key, place in places.items()}


def close(tenant_id: int, base_url: str, model: str) -> None:
    """Somebody saw the server answer: turns ask it again."""
    breaker_of(tenant_id, base_url, model).answered()


_breakers: OrderedDict[str, Breaker] = OrderedDict()
_lock = Lock()


def _place(tenant_id: int, base_url: str, model: str) -> str:
    """Of the server as it is set: another address or another model begins anew."""
    digest = hashlib.sha256(f"{base_url.rstrip('/')}\n{model}".encode()).hexdigest()[:16]
    return f"breaker:{tenant_id}:{digest}"


def _read(places: Collection[str]) -> dict[str, Standing]:
    found = cache.get_many([f"{place}:{part}" for place in places for part in ("failures", "open")])
    standing = {}
    for place in places:
        until, num_failures, num_opened = (str(found.get(f"{place}:open") or "0|0|0")).split("|")
        counted = int(found.get(f"{place}:failures") or num_failures)
        standing[place] = Standing(counted, float(until), int(num_opened))
    return standing


def _paused(standing: Standing) -> ModelError:
    when = f"until {standing.until_at:%H:%M:%S} UTC" if standing.is_paused else "while one request tries it"
    text = (
        f"The model server is paused {when}: it failed {standing.num_failures} times in a row. "
        "See Models; a test that succeeds there ends the pause."
    )
    return ModelError(CODE, text)


def _log_away(error: Exception) -> None:
    logger.warning("The shared cache is away (%s); a breaker goes by what this process sees", str(error).strip())
