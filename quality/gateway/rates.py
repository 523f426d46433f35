"""Requests a minute of a token, over all processes.

Nobody waits for the shared cache: a request is let in by what is known, and counted there beside it. So several
processes together may let a few more in than the rate says; and without the cache each counts for itself.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from django.db import connection

from quality.gateway.errors import RATE, GatewayError
from tenants import shared

WINDOW_S = 60
TELL_S = 1.0  # between two words to the shared cache about one token


@dataclass(slots=True)
class _Window:
    """A token's minute for one kind of requests: `known` is the sum of all processes when it was last told, `untold`
    ours since then."""

    number: int
    known: int = 0
    untold: int = 0
    told_at: float = 0.0
    telling: bool = False


class Rates:
    """The counts of one event loop."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], _Window] = {}
        self._threads = ThreadPoolExecutor(1, "gateway-rates")
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, token_id: int, per_minute: int, *, kind: str = "turns") -> None:
        """Count a request, or raise GatewayError: 429, with the seconds until the next minute begins. Each kind is
        counted for itself: a client that only looks around leaves its turns their rate."""
        now = time.time()
        number = int(now) // WINDOW_S
        place = (kind, token_id)
        window = self._windows.get(place)
        if window is None or window.number != number:
            window = self._windows[place] = _Window(number)
            self._forget(number)
        if window.known + window.untold >= per_minute:
            message = f"This token may send {per_minute} requests a minute. An admin can make one with another rate."
            wait = str(WINDOW_S - int(now) % WINDOW_S)
            raise GatewayError(429, RATE, "rate_limit_exceeded", message, headers={"Retry-After": wait})
        window.untold += 1
        if not window.telling and time.monotonic() - window.told_at >= TELL_S:
            window.telling = True
            task = asyncio.create_task(self._tell(place, window))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, place: tuple[str, int], window: _Window) -> None:
        number, window.untold = window.untold, 0
        window.known += number  # ours count at once, also while the cache is away
        kind, token_id = place
        key = f"gateway:{kind}:{token_id}:{window.number}"
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, _count, key, number)
            if found is not None:
                window.known = max(window.known, found)
        finally:
            window.told_at = time.monotonic()
            window.telling = False

    def _forget(self, number: int) -> None:
        for place in [place for place, window in self._windows.items() if window.number < number]:
            del self._windows[place]


def _count(key: str, number: int) -> int | None:
    try:
        return shared.count(key, number, 2 * WINDOW_S)
    finally:
        connection.close()
