"""How many requests of one tenant may be under way at once in this process."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from engine.net.codes import Code, Refused

PER_TENANT = 50


class Slots:
    """A cap per key. Who finds it reached is refused at once: waiting would eat the deadline of the call."""

    def __init__(self, limit: int = PER_TENANT) -> None:
        self._limit = limit
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()  # one process may run several event loops

    @contextmanager
    def one(self, key: str) -> Iterator[None]:
        with self._lock:
            if self._taken[key] >= self._limit:
                raise Refused(Code.BUSY, f"{self._limit} requests are under way already; try again in a moment")
            self._taken[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[key] -= 1
                if not self._taken[key]:
                    del self._taken[key]
