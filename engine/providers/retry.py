"""When a request to a model is made again, and after how long.

Again only after 408, 409, 429, 5xx or a connection that was never made: in all these the server has not begun an
answer. Waiting times have full jitter, so that turns that failed together do not come back together; `Retry-After` is a
floor under a jitter that is always positive, for the same reason.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED = frozenset({408, 409, 429})
LONGEST_RETRY_AFTER_S = 86_400.0


def is_retried(status: int) -> bool:
    return status in RETRIED or 500 <= status <= 599


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds from `Retry-After`, which holds seconds or an HTTP date; None where it holds neither."""
    text = (value or "").strip()
    if not text.isascii():
        return None
    if text.replace(".", "", 1).isdigit():
        return min(float(text), LONGEST_RETRY_AFTER_S)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max(0.0, (when - (now or datetime.now(UTC))).total_seconds()), LONGEST_RETRY_AFTER_S)


@dataclass(frozen=True)
class RetryPolicy:
    """`tries` counts the first one. The jitter's window starts at `base_s` and doubles up to `cap_s`."""

    tries: int = 3
    base_s: float = 1.0
    cap_s: float = 8.0
    uniform: Callable[[float, float], float] = random.uniform

    def delay_s(self, tried: int, retry_after_s: float | None, left_s: float) -> float | None:
        """Seconds to wait after `tried` tries; None: give up, for tries or time would be used up."""
        if tried >= self.tries:
            return None
        window = min(self.cap_s, self.base_s * 2.0 ** (tried - 1))
        if retry_after_s is not None:
            window = min(self.cap_s, max(window, retry_after_s))
        delay = (retry_after_s or 0.0) + self.uniform(0.0, window)
        return delay if delay < left_s else None
