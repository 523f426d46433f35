"""Numbers and dates in what people and tools write, to be compared across spellings.

A spelling that can mean two things means both: `1.299` is 1299 and 1.299, `03/04/2026` is a day in March and one in
April. What is compared with it fits if it fits any reading, so a doubt is never a contradiction. Numbers are compared
without sign, unit and currency, to the digits that are written; a per cent also as its fraction; thousands may be told
apart by point, comma, apostrophe or a space. Dates are read in ISO form, with strokes, points or hyphens, and with
names of months in English, Italian and Spanish; without a year they stand for that day of any year. Times of a day are
passed over: zones make them differ.
"""

import datetime as dt
import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_BASE = 60  # numbers that others are worked out from; of more, almost any number can be
MAX_SHIFT_DAYS = 92
SMALL = 12  # counts, ordinals, numbers of a list: they prove nothing
SUBSTRING_DIGITS = 4  # a piece of an id or a telephone number

_MONTHS = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "jan feb mar apr may jun jul aug sep oct nov dec",
    )
    for number, name in enumerate(names.split(), start=1)
} | {"sept": 9, "setiembre": 9}
_NAME = "|".join(sorted(_MONTHS, key=len, reverse=True))

_NOT_SAID = re.compile(
    r"```.*?```|`[^`\n]*`|https?://\S+|\bwww\.\S+|[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}", re.DOTALL
)
_TIME = re.compile(
    r"\b\d{1,2}(?::\d{2}){1,2}\b|\b\d{1,2}h\d{2}\b|\b\d{1,2}(?:[.:]\d{2})?\s?[ap]\.?m\b"
    r"|\b(?:ore|alle|dalle|las|at|until|from)\s\d{1,2}(?:[.:]\d{2})?\b",
    re.IGNORECASE,
)
_ISO = re.compile(r"(?<!\d)(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?!\d)(?P<clock>[T ]\d{1,2}:)?")
_STROKES = re.compile(r"(?<![\d.,])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})(?![\d])")
_DAY_FIRST = re.compile(
    rf"(?<!\d)(\d{{1,2}})(?:st|nd|rd|th|º|°)?\s+(?:de\s+|of\s+)?({_NAME})\b\.?(?:,?\s+(?:de\s+|del\s+)?(\d{{4}}))?",
    re.IGNORECASE,
)
_MONTH_FIRST = re.compile(r"\b([A-Z][a-z]+)\.?\s+(\d{1,2})(?:st|nd|rd|th)?(?![\d:])(?:,?\s+(\d{4}))?")
_COMPACT_DAY = re.compile(r"(?<!\d)(20\d{2})(\d{2})(\d{2})(?!\d)")
_UNIX = re.compile(r"(?<![\d.])(1\d{9}|1\d{12})(?![\d.])")

_NUMBER = re.compile(
    r"(?<![\w.,'’])(?<![A-Za-z]-)"
    r"(?:\d{1,3}(?:[ \u00a0\u202f\u2009]\d{3}(?!\d))+(?:[.,]\d+)?|\d+(?:[.,'’]\d+)*)"
)
_KNOWN_NUMBER = re.compile(
    r"\d{1,3}(?:[ \u00a0\u202f\u2009]\d{3}(?!\d))+(?:[.,]\d+)?|\d+(?:[.,'’]\d+)*(?:[eE][-+]?\d+)?"
)
_MARK_BEFORE = re.compile(r"(?:[$€£¥₹₿]|\b[A-Z]{3})\s?$")
_MARK_AFTER = re.compile(r"\s?(?:%|[$€£¥₹₿]|(?:[A-Z]{3}|euros?|dollars?|pounds?|dólares)\b)")
_IN_A_NAME = re.compile(r"[^\W\d_]*[\d_]|[-/]?[A-Za-z]*\d|[^\W\d_]{5,}")
_ABOUT = re.compile(
    r"(?:~|≈|\b(?:about|around|approximately|roughly|nearly|almost|over|under|circa|quasi|oltre"
    r"|unos|unas|casi|cerca de|aproximadamente|alrededor de))\s?(?:[$€£¥]\s?)?$",
    re.IGNORECASE,
)
_MULTIPLES = (
    (re.compile(r"\s?(?:k|thousand|mila|mil)\b", re.IGNORECASE), 1e3),
    (re.compile(r"\s?(?:m|mn|million|milion[ei]|mill[oó]n(?:es)?)\b", re.IGNORECASE), 1e6),
    (re.compile(r"\s?(?:bn|billion|miliard[oi])\b", re.IGNORECASE), 1e9),
)
_SCALES = (7, 12, 24, 60, 100, 1000, 1024, 3600, 86_400, 1e6, 1024**2)

type Reading = tuple[float, int]  # a value, and how many decimals were written
type Day = tuple[int | None, int, int]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it was written, with all that it can mean."""

    text: str
    readings: tuple[Reading, ...]
    is_about: bool = False
    proves: bool = True  # not a small count, not a bare year


@dataclass(frozen=True, slots=True)
class Date:
    """A date as it was written, with all that it can mean."""

    text: str
    days: frozenset[Day]


@dataclass(slots=True)
class Known:
    """All that a reply may have its figures from. `base` are numbers of the turn itself, from which others can be
    worked out; it is None where there are too many of them to tell."""

    values: set[float] = field(default_factory=set)
    base: set[float] | None = field(default_factory=set)
    days: set[Day] = field(default_factory=set)
    compact: str = ""
    _derived: list[float] | None = None
    _reached: dict[tuple[int, int], set[int | None]] | None = None  # years by month and day

    def add_text(self, text: str, *, is_base: bool = False) -> None:
        found = _values(text)
        self._derived = self._reached = None
        self.values |= found
        self.days |= _known_days(text)
        self.compact += " " + re.sub(r"[^0-9a-z]+", "", text.casefold())
        if is_base and self.base is not None:
            rest = _TIME.sub(" ", _STROKES.sub(" ", _ISO.sub(" ", text)))
            self.base |= _values(rest)
            if len(self.base) > MAX_BASE:
                self.base = None

    def add_json(self, text: str, *, is_base: bool = False) -> None:
        """A JSON text: its strings as text, with sums, means and numbers of members that it does not spell out."""
        try:
            value = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, strict=False)
        except (ValueError, RecursionError):
            self.add_text(text, is_base=is_base)
            return
        leaves: list[str] = []
        columns: dict[str, list[float]] = {}
        _walk(value, "", leaves, columns, self.values)
        self.add_text("\n".join(leaves), is_base=is_base)
        for numbers in columns.values():
            if len(numbers) > 1:
                self.values |= {sum(numbers), sum(numbers) / len(numbers), max(numbers) - min(numbers)}

    def add_day(self, day: dt.date, *, around: int = 0) -> None:
        self._reached = None
        self.days |= {_day(day + dt.timedelta(days=shift)) for shift in range(-around, around + 1)}

    def missing(self, figures: Iterable[Figure], dates: Iterable[Date]) -> list[str]:
        """Those that are not held, each once, as they are written."""
        found = [figure.text for figure in figures if not self.holds(figure)]
        return list(dict.fromkeys([*found, *(date.text for date in dates if not self.holds_date(date))]))

    def holds(self, figure: Figure) -> bool:
        """Is it here, rounded to the digits written, or can it be worked out from what is here?"""
        digits = re.sub(r"\D", "", figure.text)
        if len(digits) >= SUBSTRING_DIGITS and digits in self.compact:
            return True
        if self.base is None:
            return True
        if self._derived is None:
            numbers = {*self.values, *_scaled(self.base), *_paired(sorted(self.base))}
            self._derived = sorted(abs(number) for number in numbers)
        return any(_near(value, decimals, self._derived, about=figure.is_about) for value, decimals in figure.readings)

    def holds_date(self, date: Date) -> bool:
        """Is it here, or as many days from one that is here as a number here says?"""
        if self._reached is None:
            self._reached = {}
            for year, month, day in self.days | self._moved():
                self._reached.setdefault((month, day), set()).add(year)
        years = [(year, self._reached.get((month, day), set())) for year, month, day in date.days]
        return any(not known.isdisjoint((year, None)) if year else known for year, known in years)

    def _moved(self) -> set[Day]:
        """The days that are as far from a known one as a number says."""
        shifts = {int(value) for value in self.base or () if value == int(value) and 0 < value <= MAX_SHIFT_DAYS}
        whole = {dt.date(year, *day).toordinal() for year, *day in self.days if year and 1900 <= year <= 2200}
        moved: set[int] = set()
        for shift in shifts:
            moved.update(place + step for place in whole for step in (shift, -shift))
        return {_day(dt.date.fromordinal(place)) for place in moved}


def stated(text: str) -> tuple[list[Figure], list[Date]]:
    """The numbers and dates that a reply states, in order; those in code, addresses and times of a day are left out."""
    text = _NOT_SAID.sub(" ", text)
    dates: list[tuple[int, Date]] = []
    for start, written, days, _ in _dates(text):
        dates.append((start, Date(written.rstrip(".,"), days)))
    for start, date in sorted(dates, key=lambda found: found[0]):
        text = f"{text[:start]}{' ' * len(date.text)}{text[start + len(date.text) :]}"
    text = _TIME.sub(lambda match: " " * len(match[0]), text)
    figures = [figure for match in _NUMBER.finditer(text) if (figure := _figure(text, match))]
    return figures, [date for _, date in sorted(dates, key=lambda found: found[0])]


def _figure(text: str, match: re.Match[str]) -> Figure | None:
    before, after = text[max(0, match.start() - 24) : match.start()], text[match.end() : match.end() + 24]
    if _IN_A_NAME.match(after) and after[:1].strip():
        return None
    if re.match(r"[.)]\s", after) and not before.rpartition("\n")[2].strip(" *-#"):
        return None  # the number of a list's item
    readings = _readings(match[0])
    if not readings:
        return None
    is_marked = bool(_MARK_BEFORE.search(before) or _MARK_AFTER.match(after))
    for unit, factor in _MULTIPLES:
        if unit.match(after):
            readings += [(value * factor, decimals - round(math.log10(factor))) for value, decimals in readings]
    if re.match(r"\s?%", after):
        readings += [(value / 100, decimals + 2) for value, decimals in readings]
    value, decimals = readings[0]
    is_year = not decimals and len(match[0]) == 4 and 1900 <= value <= 2100
    proves = is_marked or ((bool(decimals) or value > SMALL) and not is_year)
    return Figure(match[0], tuple(readings), bool(_ABOUT.search(before)), proves)


def _values(text: str) -> set[float]:
    readings = (reading for match in _KNOWN_NUMBER.finditer(text) for reading in _readings(match[0]))
    return {value for value, _ in readings if math.isfinite(value)}


def _readings(text: str) -> list[Reading]:
    """All values that a spelling can have; none for what is no number, such as a version or an address."""
    text, _, exponent = re.sub(r"[ \u00a0\u202f\u2009'’]", "", text).lower().partition("e")
    if exponent:
        return [(_float(f"{text}e{exponent}"), 0)] if text.count(".") <= 1 and "," not in text else []
    marks = re.findall(r"[.,]", text)
    parts = re.split(r"[.,]", text)
    grouped = all(len(part) == 3 for part in parts[1:]) and len(parts[0]) <= 3
    if not marks:
        return [(_float(text), 0)]
    if len(set(marks)) == 1:
        whole = [(_float("".join(parts)), 0)] if grouped else []
        return whole + ([(_float(".".join(parts)), len(parts[1]))] if len(marks) == 1 else [])
    if marks.count(marks[-1]) == 1 and len(set(marks[:-1])) == 1:
        return [(_float("".join(parts[:-1]) + "." + parts[-1]), len(parts[-1]))]
    return []


def _float(text: str) -> float:
    return float(text) if len(text) < 300 else math.inf


def _walk(value: Any, name: str, leaves: list[str], columns: dict[str, list[float]], counts: set[float]) -> None:
    if isinstance(value, dict):
        counts.add(float(len(value)))
        for key, item in value.items():
            leaves.append(key)
            _walk(item, key, leaves, columns, counts)
    elif isinstance(value, list):
        counts.add(float(len(value)))
        for item in value:
            _walk(item, name, leaves, columns, counts)
    elif isinstance(value, str):
        leaves.append(value)
        if re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", value):
            columns.setdefault(name, []).append(abs(float(value)))


def _scaled(values: Iterable[float]) -> Iterator[float]:
    """The same amounts in other units: minutes for seconds, cents, per cent, kilobytes, degrees."""
    for value in values:
        for scale in _SCALES:
            yield value * scale
            yield value / scale
        yield value * 9 / 5 + 32
        yield (value - 32) * 5 / 9


def _paired(base: list[float]) -> Iterator[float]:
    """Sums, differences, products, quotients and shares of two numbers."""
    for number, one in enumerate(base):
        for other in base[number + 1 :]:
            yield one + other
            yield other - one
            yield one * other
            for upper, lower in ((one, other), (other, one)):
                if lower:
                    yield upper / lower
                    yield 100 * upper / lower
                    yield 100 * (upper - lower) / lower


def _near(value: float, decimals: int, known: list[float], *, about: bool) -> bool:
    """Does a known number come to this value at its decimals, rounded or cut?"""
    unit = 10.0**-decimals
    slack = max(value * 0.1 if about else unit, abs(value) * 1e-9)
    low, high = value - slack, value + slack
    if not math.isfinite(value):
        return value in known
    place = bisect_right(known, low)
    return place < len(known) and known[place] < high


def _dates(text: str) -> Iterator[tuple[int, str, frozenset[Day], bool]]:
    """Place, spelling, readings, and whether a time of the day follows; none overlaps another."""
    taken = 0
    found = []
    for match in _ISO.finditer(text):
        written = match[0] if not match["clock"] else match[0][: -len(match["clock"])]
        found.append((match.start(), written, _days((match[1], match[3], match[4])), bool(match["clock"])))
    for match in _STROKES.finditer(text):
        year = match[4] if len(match[4]) == 4 else f"20{match[4]}"
        found.append((match.start(), match[0], _days((year, match[3], match[1]), (year, match[1], match[3])), False))
    found += [
        (match.start(), match[0], _days((match[3], str(_MONTHS[match[2].lower()]), match[1])), False)
        for match in _DAY_FIRST.finditer(text)
    ]
    found += [
        (match.start(), match[0], _days((match[3], str(month), match[2])), False)
        for match in _MONTH_FIRST.finditer(text)
        if (month := _MONTHS.get(match[1].lower()))
    ]
    for start, written, days, has_clock in sorted(found, key=lambda one: (one[0], -len(one[1]))):
        if days and start >= taken:
            taken = start + len(written)
            yield start, written, days, has_clock


def _days(*readings: tuple[str | None, str, str]) -> frozenset[Day]:
    found = set()
    for year, month, day in readings:
        try:
            dt.date(int(year or 2000), int(month), int(day))  # 2000 has a 29 February
        except ValueError:
            continue
        found.add((int(year) if year else None, int(month), int(day)))
    return frozenset(found)


def _known_days(text: str) -> set[Day]:
    known: set[Day] = set()
    for _, _, days, has_clock in _dates(text):
        known |= days
        if has_clock:  # in another zone it is the day before or after
            for year, month, day in days:
                if year and dt.MINYEAR < year < dt.MAXYEAR:
                    here = dt.date(year, month, day)
                    known |= {_day(here - dt.timedelta(days=1)), _day(here + dt.timedelta(days=1))}
    for match in _COMPACT_DAY.finditer(text):
        known |= _days((match[1], match[2], match[3]))
    for match in _UNIX.finditer(text):
        moment = dt.datetime.fromtimestamp(int(match[1][:10]), dt.UTC).date()
        known |= {_day(moment + dt.timedelta(days=shift)) for shift in (-1, 0, 1)}
    return known


def _day(date: dt.date) -> Day:
    return date.year, date.month, date.day
