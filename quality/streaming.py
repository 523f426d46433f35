"""Long answers in constant memory, under WSGI and ASGI alike.

Each answer gets one thread of its own: database connections belong to threads, and the generator's transaction lives
from its first piece to its last. (Under ASGI Django would also read a plain generator to its end.) When the client goes
away, the generator is closed and a query that still runs is cancelled. Such answers take at most half of the process's
database connections: however many are asked for, pages are served.
"""

import asyncio
import contextvars
import logging
import os
import weakref
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Any

import psycopg
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse

from tenants.masking import reading

logger = logging.getLogger(__name__)

type Chunks = Generator[bytes, None, None]

_CANCEL_TIMEOUT_S = 2.0
_slots = BoundedSemaphore(max(1, settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] // 2))


class Busy(Exception):
    """As many long answers run as this process may have at once."""


def stream(
    request: HttpRequest, chunks: Chunks, *, content_type: str, filename: str, headers: Mapping[str, str] | None = None
) -> StreamingHttpResponse:
    """An answer that sends `chunks` as they come, to be saved as `filename`.

    The generator starts after the view has returned, so it opens its tenant scope itself. Raises Busy.
    """
    return answer(request, InThread(chunks), content_type=content_type, filename=filename, headers=headers)


def answer(
    request: HttpRequest,
    pieces: "InThread",
    *,
    content_type: str,
    filename: str,
    headers: Mapping[str, str] | None = None,
) -> StreamingHttpResponse:
    """The same of pieces that were begun already."""
    content: Any = _Awaited(pieces) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(
        content,
        content_type=content_type,
        headers={
            "Content-Disposition": f'attachment; filename="{filename}"',
            "X-Accel-Buffering": "no",
            **(headers or {}),
        },
    )


class InThread:
    """A generator that runs in one thread and in one context of its own. It ends when nobody holds this any more: a
    client that goes away before the view has returned leaves an answer that nobody was given."""

    def __init__(self, chunks: Chunks) -> None:
        slots = _slots
        if not slots.acquire(blocking=False):
            raise Busy("Too many exports run at this moment. Try again when one has ended.")
        self._work = _Work(chunks, slots)
        _start_closing(os.getpid())
        # Python may collect this in the middle of anything: putting into this queue is all that is safe then.
        weakref.finalize(self, _left.put, self._work).atexit = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = self.step().result()
        except Exception:
            self.close()
            raise
        if chunk is None:
            raise StopIteration
        return chunk

    def step(self) -> Future[bytes | None]:
        """The next piece, on its way; None at the end."""
        return self._work.step()

    def close(self) -> None:
        """End it, in its own thread. Django calls this when the answer was sent, and when the client went away."""
        self._work.close()


class _Work:
    """The thread and what runs in it. Held by its finalizer too: a generator that Python collects by itself would be
    closed in a thread that knows nothing of its transaction."""

    def __init__(self, chunks: Chunks, slots: BoundedSemaphore) -> None:
        self._chunks = chunks
        reader = reading.current()  # of the view that answers so, which has ended when the first piece is made
        self._masker = reader.masker if reader else None
        self._slots = slots
        self._open = True
        self._thread = ThreadPoolExecutor(1, "stream")
        self._context: contextvars.Context | None = None
        self._running: Future[bytes | None] | None = None
        self._session: psycopg.Connection[Any] | None = None

    def step(self) -> Future[bytes | None]:
        if self._context is None:
            self._context = contextvars.copy_context()
        self._running = self._thread.submit(self._context.run, self._next)
        return self._running

    def _next(self) -> bytes | None:
        if self._session is None:
            connection.ensure_connection()
            self._session = connection.connection
        with reading.reading_as(self._masker):
            return next(self._chunks, None)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._running and self._running.running():
            self._cancel()
        self._thread.submit(self._context.run if self._context else contextvars.Context().run, self._end)
        self._thread.shutdown(wait=True)

    def _cancel(self) -> None:
        try:
            if self._session:
                self._session.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
        except psycopg.Error as error:
            logger.warning("A query of a client that went away could not be cancelled: %s", error)

    def _end(self) -> None:
        try:
            self._chunks.close()
        finally:
            connection.close()
            self._slots.release()


_left: SimpleQueue[_Work] = SimpleQueue()


@cache
def _start_closing(pid: int) -> None:
    """A thread that ends what nobody holds any more; one for each process, since threads do not survive a fork."""
    Thread(target=_close_what_is_left, name="stream-end", daemon=True).start()


def _close_what_is_left() -> None:
    while True:
        work = _left.get()
        try:
            work.close()
        except Exception:
            logger.exception("An answer that nobody was given could not be ended")
        del work


class _Awaited:
    """Pieces as ASGI reads them."""

    def __init__(self, pieces: InThread) -> None:
        self._pieces = pieces
        self.close = pieces.close

    def __aiter__(self) -> "_Awaited":
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await asyncio.wrap_future(self._pieces.step())
        except Exception:
            self._pieces.close()
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk
