"""Long answers in constant memory, under WSGI and ASGI alike.

Under WSGI the server pulls our generator in the thread of the request. Under ASGI Django would first read a plain
generator to its end, so there each answer gets one thread of its own: database connections belong to threads, and the
generator's transaction lives from its first piece to its last. When the client goes away, the generator is closed and a
query that still runs is cancelled. Such answers take at most half of the process's database connections: however many
are asked for, pages are served.
"""

import asyncio
import contextvars
import logging
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Any

import psycopg
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse

logger = logging.getLogger(__name__)

type Chunks = Generator[bytes, None, None]

_CANCEL_TIMEOUT_S = 2.0
_slots = BoundedSemaphore(max(1, settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"] // 2))


class Busy(Exception):
    """As many long answers run as this process may have at once."""


def stream(request: HttpRequest, chunks: Chunks, *, content_type: str, filename: str) -> StreamingHttpResponse:
    """An answer that sends `chunks` as they come, to be saved as `filename`.

    The generator starts after the view has returned, so it opens its tenant scope itself. Raises Busy.
    """
    content: Any = _InThread(chunks) if isinstance(request, ASGIRequest) else chunks
    return StreamingHttpResponse(
        content,
        content_type=content_type,
        headers={"Content-Disposition": f'attachment; filename="{filename}"', "X-Accel-Buffering": "no"},
    )


class _InThread:
    """A generator as an asynchronous iterator that runs in one thread and in one context of its own."""

    def __init__(self, chunks: Chunks) -> None:
        if not _slots.acquire(blocking=False):
            raise Busy("Too many exports run at this moment. Try again when one has ended.")
        self._chunks = chunks
        self._open = True
        self._thread = ThreadPoolExecutor(1, "stream")
        self._context: contextvars.Context | None = None
        self._step: Future[bytes | None] | None = None
        self._session: psycopg.Connection[Any] | None = None

    def __aiter__(self) -> "_InThread":
        return self

    async def __anext__(self) -> bytes:
        if self._context is None:
            self._context = contextvars.copy_context()
        self._step = self._thread.submit(self._context.run, self._next)
        try:
            chunk = await asyncio.wrap_future(self._step)
        except Exception:
            self.close()
            raise
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def _next(self) -> bytes | None:
        if self._session is None:
            connection.ensure_connection()
            self._session = connection.connection
        return next(self._chunks, None)

    def close(self) -> None:
        """End it, in its own thread. Django calls this when the answer was sent, and when the client went away."""
        if not self._open:
            return
        self._open = False
        try:
            if self._step and self._step.running():
                self._cancel()
            if self._context:
                self._thread.submit(self._context.run, self._end)
            self._thread.shutdown(wait=True)
        finally:
            _slots.release()

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
