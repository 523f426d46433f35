"""Cron expressions: their slots in a time zone, what they mean in words, and what is wrong with one.

Five fields as Debian's cron reads them. When clocks go forward a slot inside the gap is right after it; when they go
back, a slot inside the repeated hour is there once.
"""

import datetime as dt
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from cronsim import CronSim, CronSimError
from django.core.exceptions import ValidationError
from django.utils.translation import get_language, gettext_lazy
from django.utils.translation import gettext as _

from quality.turns.cron_words import cron_words

# What the fields are, in their order: how cronsim calls them, what they are, what may stand in them.
FIELDS = (
    ("minute", gettext_lazy("minute"), "0–59"),
    ("hour", gettext_lazy("hour"), "0–23"),
    (
        "day-of-month",
        gettext_lazy("day of the month"),
        gettext_lazy("1–31, if a month named has it, or L for the last day"),
    ),
    ("month", gettext_lazy("month"), gettext_lazy("1–12, or JAN–DEC")),
    ("day-of-week", gettext_lazy("weekday"), gettext_lazy("0–7 (0 and 7 are Sunday), or MON–SUN")),
)
ALL = gettext_lazy("minute, hour, day of the month, month, weekday")

CATCH_UP = dt.timedelta(hours=1)
MAX_MISSED = 1_000  # slots looked through after a long rest


@dataclass(frozen=True, slots=True)
class Passed:
    """What has come of a schedule's slots up to a moment: the one that fires (None: it is too late for all of them),
    those that were missed, the oldest first, and the one that comes next (None: there is none)."""

    fires: dt.datetime | None
    missed: list[dt.datetime]
    following: dt.datetime | None


def passed_slots(cron: str, zone: str, first: dt.datetime, now: dt.datetime) -> Passed:
    """The slots from `first`, which has passed, to `now`. One fires late if it is at most an hour old; of several the
    latest fires. After a long rest the oldest are told, and those of the last hour. Raises ValidationError as
    `next_slot` does."""

    def from_slot(slot: dt.datetime, number: int) -> list[dt.datetime]:
        following = islice(slots_after(cron, zone, slot), number)
        return list(takewhile(lambda slot: slot <= now, following))

    passed = [first, *from_slot(first, MAX_MISSED)]
    if len(passed) > MAX_MISSED:
        passed += from_slot(max(passed[-1], now - CATCH_UP), MAX_MISSED)
    following = next_slot(cron, zone, max(now, passed[-1]))
    if now - passed[-1] > CATCH_UP:
        return Passed(None, passed, following)
    return Passed(passed[-1], passed[:-1], following)


def next_slot(cron: str, zone: str, after: dt.datetime) -> dt.datetime | None:
    """The first slot after a moment, in UTC; None if there is none. Raises ValidationError with the field at fault."""
    return next(slots_after(cron, zone, after), None)


def next_slots(cron: str, zone: str, after: dt.datetime, number: int) -> list[dt.datetime]:
    """The next slots, in UTC. Raises ValidationError as `next_slot` does."""
    return list(islice(slots_after(cron, zone, after), number))


def slots_after(cron: str, zone: str, after: dt.datetime) -> Iterator[dt.datetime]:
    """All slots after a moment, in UTC. Raises ValidationError with the field at fault, at the first of them."""
    local = after.astimezone(zone_of(zone))
    for slot in _read(cron, local):
        found = slot.astimezone(dt.UTC)
        if found > after:  # in the second of two like hours, slots of the first one are told again
            yield found


def in_words(cron: str) -> str:
    """“At 08:00 on Monday through Friday”, in the active language. Raises ValidationError."""
    found = _read(cron, dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    return found.explain() if get_language() == "en" else cron_words(cron)


def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """Raises ValidationError."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        text = _("There is no time zone %(zone)s. Zones are named like Europe/Berlin or America/New_York; UTC is one.")
        text %= {"zone": repr(name)}
        raise ValidationError({"zone": ValidationError(text, "no_such_zone")}) from error


def _read(cron: str, start: dt.datetime) -> CronSim:
    parts = cron.split()
    if len(parts) != len(FIELDS):
        text = _("Five fields are needed (%(fields)s), such as “30 8 * * MON-FRI”; this has %(count)s.")
        text %= {"fields": ALL, "count": len(parts)}
        raise ValidationError({"cron": ValidationError(text, "invalid_cron")})
    try:
        return CronSim(cron, start)
    except CronSimError as error:
        raise ValidationError({"cron": ValidationError(_reason(parts, str(error)), "invalid_cron")}) from error


def _reason(parts: list[str], told: str) -> str:
    for part, (known_as, name, values) in zip(parts, FIELDS, strict=True):
        if told.lower() == f"bad {known_as}":
            text = _(
                "“%(part)s” cannot stand for the %(field)s: %(values)s; also *, lists (1,15), ranges (1-5), "
                "steps (*/10)."
            )
            return text % {"part": part, "field": name, "values": values}
    return _("This is no cron expression: %(why)s.") % {"why": told}
