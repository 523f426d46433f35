"""A turn as it runs, told to those who watch: an event stream that can be taken up again where it broke off.

Streams cost no thread and no connection while nothing happens: all of a process wait on one bell. Who may see the turn
is the caller's to have checked; with `still_allowed` it is asked again while the stream is open, for a stream outlives
tokens, sessions and memberships.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from weakref import WeakKeyDictionary

from django.core.handlers.asgi import ASGIRequest
from django.db import OperationalError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from quality.models import ENDED, TurnRun
from quality.turns import events
from quality.turns.bell import Bell
from quality.turns.events import Told
from tenants.masking import reading
from tenants.masking.masker import Masker
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

LOOK_S = 15.0  # a look at the rows although nothing rang, for notifications are hints; and a word to keep alive
RECHECK_S = 15.0  # so long may who was shut out go on reading
RETRY_S = 1.0  # while the database does not answer
MAX_STREAM_S = 3600.0  # then the client comes back, and is judged anew
NUM_THREADS = 4

_threads = ThreadPoolExecutor(NUM_THREADS, "live")
_bells: "WeakKeyDictionary[asyncio.AbstractEventLoop, Bell]" = WeakKeyDictionary()


class NotLive(Exception):
    """This process serves no streams: it answers request by request (WSGI)."""


def last_event_id(request: HttpRequest) -> int:
    """After which event to begin; 0 where the client names none that can be."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def stream_turn(
    request: HttpRequest, *, tenant_id: int, turn_id: int, still_allowed: Callable[[], bool] | None = None
) -> HttpResponseBase:
    """The answer that follows a turn to its end; 204 (which ends a browser's reconnecting) if there is nothing more.
    It ends early once `still_allowed` says no. Raises NotLive."""
    if not isinstance(request, ASGIRequest):
        raise NotLive("Event streams are served by the live process (ASGI), not by this one.")
    after = last_event_id(request)
    if after and is_over(tenant_id, turn_id, after):
        return HttpResponse(status=204)
    connection.close()  # else this request would keep it until the stream ends
    return StreamingHttpResponse(
        _lines(tenant_id, turn_id, after, still_allowed, _eyes()),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-store, private", "X-Accel-Buffering": "no"},
    )


async def follow(
    tenant_id: int,
    turn_id: int,
    after: int = 0,
    *,
    still_allowed: Callable[[], bool] | None = None,
    masker: Masker | None = None,
) -> AsyncIterator[Told | None]:
    """Events of a turn as they come, to its end, read through `masker`; None now and then while nothing happens.

    `still_allowed` is called in a thread, outside any scope, every RECHECK_S; once it gives False nothing more is told.
    """
    began = asked = time.monotonic()
    with _bell().waiting_for(str(turn_id)) as rung:
        while time.monotonic() - began < MAX_STREAM_S:
            rung.clear()
            try:
                if still_allowed and time.monotonic() - asked >= RECHECK_S:
                    if not await aside(still_allowed):
                        return
                    asked = time.monotonic()
                told, over = await aside(partial(_look, tenant_id, turn_id, after, masker))
            except OperationalError as error:
                logger.warning("The events of turn %s cannot be read (%s); reading again soon", turn_id, error)
                yield None
                await asyncio.sleep(RETRY_S)
                continue
            for one in told:
                yield one
                after = one.seq
            if over:
                return
            wait_s = min(LOOK_S, asked + RECHECK_S - time.monotonic()) if still_allowed else LOOK_S
            try:
                async with asyncio.timeout(wait_s):
                    await rung.wait()
            except TimeoutError:
                yield None


async def aside[T](asks_database: Callable[[], T]) -> T:
    """Off the event loop, in one of few threads; its connection goes back at once."""

    def ask() -> T:
        try:
            return asks_database()
        finally:
            connection.close()

    return await asyncio.get_running_loop().run_in_executor(_threads, copy_context().run, ask)


def is_over(tenant_id: int, turn_id: int, after: int) -> bool:
    """Has the turn ended, with no event left after this one?"""
    with tenant_scope(tenant_id):
        run = TurnRun.objects.filter(turn=turn_id).only("state", "last_seq").first()
        return run is None or (run.state in ENDED and after >= run.last_seq)


async def _lines(
    tenant_id: int, turn_id: int, after: int, still_allowed: Callable[[], bool] | None, masker: Masker | None
) -> AsyncIterator[bytes]:
    yield b": following\n\n"  # headers go out at once
    async for told in follow(tenant_id, turn_id, after, still_allowed=still_allowed, masker=masker):
        yield b": still here\n\n" if told is None else events.sse(told)


def _eyes() -> Masker | None:
    """Whose eyes the open request reads with: its answer is made after it has ended."""
    reader = reading.current()
    return reader.masker if reader else None


def _look(tenant_id: int, turn_id: int, after: int, masker: Masker | None) -> tuple[list[Told], bool]:
    with reading.reading_as(masker), tenant_scope(tenant_id):
        told = events.read(turn_id, after)
        reached = told[-1].seq if told else after
        run = TurnRun.objects.filter(turn=turn_id).only("state", "last_seq").first()
        return told, run is None or (run.state in ENDED and reached >= run.last_seq)


def _bell() -> Bell:
    """The bell of this event loop, listening."""
    loop = asyncio.get_running_loop()
    if loop not in _bells:
        _bells[loop] = Bell([events.CHANNEL])
    _bells[loop].start()
    return _bells[loop]
