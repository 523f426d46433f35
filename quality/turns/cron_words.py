"""A cron expression in words, for the languages that its library does not speak: short parts that need no grammar."""

import re
from collections.abc import Callable

from django.utils.dates import MONTHS, WEEKDAYS
from django.utils.translation import gettext as _

_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_TOKEN = re.compile(r"(?<![#/\dA-Z])(?:[A-Z]{3}|\d+)")  # no step, and not the n-th of a month
MAX_TIMES = 6


def cron_words(cron: str) -> str:
    """“Time: 08:30 · weekday: Monday–Friday”, in the active language. The expression has been found right before."""
    minute, hour, day, month, weekday = cron.upper().split()
    parts = [_time(minute, hour)]
    if day != "*":
        parts.append(_("day of the month: %(days)s") % {"days": _listed(day.replace("L", _("the last")))})
    if month != "*":
        parts.append(_("month: %(months)s") % {"months": _named(month, _month)})
    if weekday not in ("*", "?"):
        parts.append(_("weekday: %(days)s") % {"days": _named(weekday, _weekday)})
    return " · ".join(parts)


def _time(minute: str, hour: str) -> str:
    minutes, hours = minute.split(","), hour.split(",")
    if all(one.isdigit() for one in minutes + hours) and len(minutes) * len(hours) <= MAX_TIMES:
        times = [f"{int(h):02}:{int(m):02}" for h in hours for m in minutes]
        return _("at %(times)s") % {"times": ", ".join(times)}
    if hour == "*" and minute == "*":
        return _("every minute")
    if hour == "*" and re.fullmatch(r"\*/\d+", minute):
        return _("every %(count)s min") % {"count": minute[2:]}
    told = _("minute: %(minutes)s") % {"minutes": _listed(minute)}
    return told if hour == "*" else f"{told} · {_('hour: %(hours)s') % {'hours': _listed(hour)}}"


def _listed(field: str) -> str:
    return field.replace(",", ", ").replace("-", "–")


def _named(field: str, name: Callable[[str], str]) -> str:
    return _listed(_TOKEN.sub(lambda match: name(match[0]), field))


def _month(token: str) -> str:
    number = _MONTH_NAMES.index(token) + 1 if token in _MONTH_NAMES else int(token)
    return str(MONTHS.get(number, token))


def _weekday(token: str) -> str:
    number = _DAY_NAMES.index(token) if token in _DAY_NAMES else int(token)
    return str(WEEKDAYS.get((number - 1) % 7, token))  # cron's week begins on Sunday, Django's on Monday
