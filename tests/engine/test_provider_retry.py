import random
from datetime import UTC, datetime

import pytest

from engine.providers.retry import RetryPolicy, is_retried, parse_retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_passing_troubles_are_tried_again(status: int) -> None:
    assert is_retried(status)


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 413, 422, 600])
def test_other_answers_are_final(status: int) -> None:
    assert not is_retried(status)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        (" 1.5 ", 1.5),
        ("0", 0.0),
        ("Mon, 30 Nov 2026 12:00:07 GMT", 7.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("99999999999999999999", 86_400.0),
        ("soon", None),
        ("-3", None),
        ("inf", None),
        ("²", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_thirty_turns_told_to_wait_two_seconds_wait_at_least_that_and_spread() -> None:
    policy = RetryPolicy(uniform=random.Random(7).uniform)
    delays = [policy.delay_s(1, 2.0, 60.0) for _ in range(30)]
    assert all(delay is not None and delay > 2.0 for delay in delays)
    assert max(filter(None, delays)) - min(filter(None, delays)) > 1.0


def test_without_retry_after_the_window_doubles_up_to_the_cap() -> None:
    policy = RetryPolicy(tries=9, base_s=1.0, cap_s=8.0, uniform=lambda low, high: high)
    assert [policy.delay_s(tried, None, 60.0) for tried in range(1, 7)] == [1, 2, 4, 8, 8, 8]
    assert RetryPolicy(uniform=lambda low, high: low).delay_s(1, None, 60.0) == 0.0


def test_the_third_try_is_the_last() -> None:
    assert RetryPolicy().delay_s(2, None, 60.0) is not None
    assert RetryPolicy().delay_s(3, None, 60.0) is None


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    assert RetryPolicy().delay_s(1, 30.0, 29.0) is None
