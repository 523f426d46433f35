"""PostgreSQL's NOTIFY for a whole process: one connection listens, however many wait.

`Bell` belongs to one event loop. A notification is a hint like any message: who waits looks at the rows, and looks
again every few seconds whatever was heard.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from django.db import connections

logger = logging.getLogger(__name__)

RETRY_S = 1.0


def dsn() -> str:
    """The runtime role's own DSN, for a connection beside Django's pool."""
    params = connections["default"].get_connection_params()
    wanted = ("host", "port", "dbname", "user", "password", "sslmode", "sslrootcert")
    return psycopg.conninfo.make_conninfo("", **{name: params[name] for name in wanted if params.get(name)})


class Bell:
    """Rings `heard(channel, payload)` for each notification on its channels, and those who wait for a topic: what
    stands before the colon of a payload."""

    def __init__(
        self, channels: Sequence[str], heard: Callable[[str, str], None] = lambda _channel, _payload: None
    ) -> None:
        self._channels = channels
        self._heard = heard
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen, in the running loop; does nothing if it does already."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @contextmanager
    def waiting_for(self, topic: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the topic rings."""
        event = asyncio.Event()
        self._waiting[topic].add(event)
        try:
            yield event
        finally:
            self._waiting[topic].discard(event)
            if not self._waiting[topic]:
                del self._waiting[topic]

    async def _listen(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(dsn(), autocommit=True) as connection:
                    for channel in self._channels:
                        await connection.execute(f"LISTEN {channel}")
                    self._ring_all()  # what was said while nobody listened
                    async for notification in connection.notifies():
                        self._ring(notification.channel, notification.payload)
            except psycopg.Error as error:
                logger.warning("Notifications are not heard (%s); listening again soon", str(error).strip())
            await asyncio.sleep(RETRY_S)

    def _ring(self, channel: str, payload: str) -> None:
        self._heard(channel, payload)
        for event in self._waiting.get(payload.partition(":")[0], ()):
            event.set()

    def _ring_all(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()
