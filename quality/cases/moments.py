"""Days and instants, absolute or told from the `now` of a case."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"(?:[0-9]{1,6}[smhdw])+")
_RELATIVE = re.compile(r"(now|today|tomorrow|yesterday)((?:[+-][0-9]{1,6}[smhdw])*)")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}")
_DAYS_AWAY = {"today": 0, "tomorrow": 1, "yesterday": -1}

FORMS = (
    'a day ("2026-12-01"), an instant ("2026-12-01T10:00:00Z"), or told from the case\'s now '
    '("now+2h", "today", "tomorrow", "today+7d"; units s, m, h, d, w)'
)


@dataclass(frozen=True, slots=True)
class Moment:
    """A day, or an instant. `relative` ones need the case's now."""

    text: str
    relative: bool

    def at(self, now: datetime | None) -> datetime | date | None:
        """The value; None where it needs a now and there is none, or lies outside the calendar."""
        if not self.relative:
            return read(self.text)
        found = _RELATIVE.fullmatch(self.text)
        if now is None or found is None:
            return None
        away = sum((_signed(part) for part in re.findall(r"[+-][0-9]+[smhdw]", found[2])), timedelta())
        try:
            if found[1] == "now":
                return now + away
            return (now + timedelta(days=_DAYS_AWAY[found[1]])).date() + away
        except OverflowError:
            return None


def moment(text: str) -> Moment | None:
    if found := _RELATIVE.fullmatch(text):
        if found[1] != "now" and re.search(r"[smh]", found[2]):
            return None  # a day has no hours
        return Moment(text, relative=True)
    return Moment(text, relative=False) if read(text) is not None else None


def _signed(part: str) -> timedelta:
    size = span(part[1:])
    assert size is not None
    return -size if part[0] == "-" else size


def span(text: str) -> timedelta | None:
    """`90s`, `2h`, `1d12h` as a duration."""
    if not _SPAN.fullmatch(text):
        return None
    try:
        return sum(
            (timedelta(**{_UNITS[unit]: int(size)}) for size, unit in re.findall(r"([0-9]+)([smhdw])", text)),
            timedelta(),
        )
    except OverflowError:
        return None


def read(text: str) -> datetime | date | None:
    """An ISO 8601 day or instant; None for what is neither."""
    text = text.strip()
    if len(text) > 40 or not text.isascii():
        return None
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
        return datetime.fromisoformat(text.upper())
    except ValueError:
        return None


def near(
    got: datetime | date, expected: datetime | date, tolerance: timedelta, now: datetime | None
) -> Literal[True, False]:
    """A day is met by any instant on it (by the instant's own clock), an instant only by an instant. What names no
    offset is read in that of the case's now, else as UTC."""
    zone = now.tzinfo if now is not None and now.tzinfo is not None else UTC
    if not isinstance(expected, datetime):
        day = got.date() if isinstance(got, datetime) else got
        return abs(day - expected) <= tolerance
    if not isinstance(got, datetime):
        if not tolerance:
            return False
        got = datetime.combine(got, time(), zone)
    try:
        return abs(_aware(got, zone) - _aware(expected, zone)) <= tolerance
    except OverflowError:
        return False


def _aware(value: datetime, zone: object) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=zone)  # type: ignore[arg-type]
