"""What all processes share through the cache. A cache that is away stops nobody: rows are the truth, this is not.

A read falls back on what this process read last, and for a while the cache is not asked again, so that one which hangs
does not hold up turn after turn. A write says that it failed.
"""

import logging
import time
from collections import OrderedDict
from threading import Lock
from typing import Any

import redis
from django.core.cache import cache
from django.db import Error as DatabaseFault

logger = logging.getLogger(__name__)

REST_S = 5.0  # how long a cache that failed is left alone
MAX_KNOWN = 1_000

_lock = Lock()
_known: OrderedDict[str, str | None] = OrderedDict()
_away_until = 0.0


class OnePool(redis.ConnectionPool):
    """One pool a process: Django makes its cache anew for each thread, and under ASGI threads come and go."""

    _made: dict[str, redis.ConnectionPool] = {}
    _making = Lock()

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Any:
        with cls._making:
            if url not in cls._made:
                cls._made[url] = super().from_url(url, **options)
            return cls._made[url]


class CacheAway(Exception):
    """The shared cache did not take a write."""

    def __init__(self) -> None:
        super().__init__("The shared cache is away, so nothing was changed. Try again in a moment.")


def is_away() -> bool:
    """Did the cache fail just now? What was worked out meanwhile is not to be kept."""
    return time.monotonic() < _away_until


def read(key: str) -> str | None:
    """The text under `key`; while the cache is away, what was there when this process looked last."""
    if not is_away():
        try:
            found = cache.get(key)
        except (redis.RedisError, OSError) as error:
            _failed(error)
        else:
            _note(key, found if isinstance(found, str) else None)
    with _lock:
        return _known.get(key)


def settle(key: str, text: str) -> str | None:
    """The text under `key`, which is `text` if there was none; None while the cache is away."""
    try:
        settled = str(cache.get_or_set(key, text, timeout=None))
    except (redis.RedisError, OSError) as error:
        _failed(error)
        return None
    _note(key, settled)
    return settled


def write(key: str, text: str | None, timeout_s: float | None = None) -> None:
    """Put `text` under `key`, for ever if no time is said; None takes it away. Raises CacheAway."""
    try:
        if text is None:
            cache.delete(key)
        else:
            cache.set(key, text, timeout=timeout_s)
    except (redis.RedisError, OSError) as error:
        raise CacheAway from error
    _note(key, text)


def count(key: str, number: int, timeout_s: float) -> int | None:
    """Add to the count under `key`, which is forgotten after a time, and give the sum; None while the cache is away."""
    if is_away():
        return None
    try:
        cache.add(key, 0, timeout=timeout_s)
        return int(cache.incr(key, number))
    except (redis.RedisError, OSError, DatabaseFault) as error:
        _failed(error)
    except ValueError:
        pass  # it was forgotten in between
    return None


def _note(key: str, text: str | None) -> None:
    with _lock:
        _known[key] = text
        _known.move_to_end(key)
        while len(_known) > MAX_KNOWN:
            _known.popitem(last=False)


def _failed(error: Exception) -> None:
    global _away_until  # noqa: PLW0603  (one cache a process)
    _away_until = time.monotonic() + REST_S
    logger.warning("The shared cache is away (%s); going on with what is known", str(error).strip())
