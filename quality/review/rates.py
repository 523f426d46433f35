"""How often reviewers find a call wrong, by tool, style, model, toolset and time. Needs an open tenant scope.

The share is of labelled items (by their newest label): those labelled wrong tool, missing tool or bad arguments, of
those with any label. With it goes its 95 % interval (Wilson), for few labels say little.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Coalesce, TruncDate

from quality.calls import CallFilter
from quality.cases.statistics import Interval, wilson
from quality.models import ACTIONABLE, Label, Review
from quality.review.queues.waiting import waits_blind

TOP = 50
MAX_POINTS = 31  # of a trend: a day each, or several days where there are more

DIMENSIONS: dict[str, Any] = {
    "tool": F("tool_name"),
    "style": F("turn__style_id"),
    "model": F("turn__model"),
    "toolset": Coalesce("call__toolset__sha256", "turn__toolset__sha256"),
}
"""By what rates are told apart, each as an expression over Review; a name is a parameter of the calls' filter, too."""


@dataclass(frozen=True, kw_only=True)
class LabelRate:
    """Labels on the items of one value (`key`; empty: none was recorded) of a dimension. Absent labels count 0."""

    key: str = ""
    labels: dict[str, int] = field(default_factory=dict)

    @property
    def num_labelled(self) -> int:
        return sum(self.labels.values())

    @property
    def num_actionable(self) -> int:
        return sum(self.labels.get(label, 0) for label in ACTIONABLE)

    @property
    def rate(self) -> float | None:
        """None where nothing is labelled."""
        return self.num_actionable / self.num_labelled if self.num_labelled else None

    @property
    def interval(self) -> Interval:
        return wilson(self.num_actionable, self.num_labelled)

    @property
    def low(self) -> float:
        return self.interval.low

    @property
    def high(self) -> float:
        return self.interval.high


@dataclass(frozen=True, kw_only=True)
class Point:
    """A piece of a trend: whole days of the viewer's zone, both included."""

    first: dt.date
    last: dt.date
    rate: LabelRate


def labelled(period: CallFilter) -> QuerySet[Review]:
    """Items with a label that a filter lets through; of it tools, style, model, source, toolset and time count. What a
    blind queue keeps from its viewer is in no figure of his."""
    columns = {
        "tool_name__in": period.tools,
        "turn__style_id": period.style,
        "turn__model": period.model,
        "turn__source": period.source,
        "started_at__gte": period.since,
        "started_at__lt": period.until,
    }
    items = Review.objects.filter(label__isnull=False).order_by()
    items = items.filter(**{column: value for column, value in columns.items() if value})
    if period.toolset:
        items = items.filter(
            Q(call__toolset__sha256=period.toolset) | Q(call=None, turn__toolset__sha256=period.toolset)
        )
    return items if period.viewer is None else items.exclude(waits_blind(period.viewer))


def total(period: CallFilter) -> LabelRate:
    """All items of the period together."""
    return LabelRate(labels=dict(labelled(period).values_list("label").annotate(Count("pk"))))


def by(dimension: str, period: CallFilter) -> list[LabelRate]:
    """The period's items by one of DIMENSIONS, those with most wrong ones first."""
    rows = labelled(period).annotate(key=DIMENSIONS[dimension]).values_list("key", "label").annotate(Count("pk"))
    found: dict[str, dict[str, int]] = {}
    for key, label, number in rows:
        found.setdefault(key or "", {})[label] = number
    rates = [LabelRate(key=key, labels=labels) for key, labels in found.items()]
    return sorted(rates, key=lambda rate: (-rate.num_actionable, -rate.num_labelled, rate.key))[:TOP]


def trend(period: CallFilter, first: dt.date, last: dt.date) -> list[Point]:
    """The rate over time, by when the calls were made, from `first` to `last` in at most MAX_POINTS pieces."""
    rows = labelled(period).annotate(day=TruncDate("started_at")).values_list("day", "label").annotate(Count("pk"))
    days = (last - first).days + 1
    step = -(-days // MAX_POINTS)
    pieces = [dict.fromkeys(Label.values, 0) for _ in range(-(-days // step))]
    for day, label, number in rows:
        place = (day - first).days // step
        if 0 <= place < len(pieces):
            pieces[place][label] += number
    return list(_points(pieces, first, last, step))


def _points(pieces: list[dict[str, int]], first: dt.date, last: dt.date, step: int) -> Iterable[Point]:
    for number, labels in enumerate(pieces):
        begin = first + dt.timedelta(days=number * step)
        end = min(last, begin + dt.timedelta(days=step - 1))
        yield Point(first=begin, last=end, rate=LabelRate(labels=labels))
