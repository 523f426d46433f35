"""What the charts show, as series over whole days of the viewer's zone. Needs an open tenant scope.

A chart is a table first: pieces of time down, series across. Drawing it, and spelling it as CSV, are others' work.
"""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from django.db import connection
from django.db.models import Count, F
from django.db.models.functions import TruncDate
from django.utils import timezone

from quality import rollups
from quality.calls import CallFilter
from quality.improve.rates import Rates, rates_of
from quality.models import ACTIONABLE, Label, Proposal, ProposalState, QueueEntry, ReviewQueue
from quality.review import agreement, agreement_data, rates
from quality.review.agreement_data import AnswerFilter
from tenants.scope import current_tenant_id

MAX_PIECES: Final = 31  # of a chart: a day each, or several days where there are more
MAX_WEEKS: Final = 13  # of a figure that needs more labels than a day has
MAX_SERIES: Final = 6
MAX_FIXES: Final = 20
REST: Final = ""  # the series of all that have none of their own


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Whole days, both included."""

    first: dt.date
    last: dt.date


@dataclass(frozen=True, kw_only=True)
class Series:
    """One value for each piece; None where there is nothing to tell. `key` is for programs, `ns` says of how many the
    values are."""

    key: str
    values: tuple[float | None, ...]
    ns: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Chart:
    """`unit` is `count`, `share`, `hours` or `alpha`. `stacked`: the series are parts of a whole."""

    pieces: tuple[Piece, ...]
    series: tuple[Series, ...]
    unit: str = "count"
    stacked: bool = False

    @property
    def is_empty(self) -> bool:
        return not any(value for one in self.series for value in one.values) and not any(
            number for one in self.series for number in one.ns
        )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What charts are asked of: days of the viewer's zone, both included, and which calls. `by` tells rates apart."""

    first: dt.date
    last: dt.date
    calls: CallFilter
    by: str = "tool"

    @property
    def period(self) -> CallFilter:
        return replace(self.calls, since=_midnight(self.first), until=_midnight(self.last + dt.timedelta(days=1)))

    @cached_property
    def counts(self) -> Sequence[rollups.Count]:
        """The calls by day and tool, counted once for all charts."""
        return rollups.by_day(self.period, by="tool_name")


def pieces(asked: Asked, most: int = MAX_PIECES) -> tuple[Piece, ...]:
    """The days in at most `most` pieces of the same length; the last one may be shorter."""
    days = (asked.last - asked.first).days + 1
    step = -(-days // most)
    starts = (asked.first + dt.timedelta(days=at) for at in range(0, days, step))
    return tuple(Piece(first=start, last=min(asked.last, start + dt.timedelta(days=step - 1))) for start in starts)


def volume(asked: Asked) -> Chart:
    """Calls by tool."""
    return _stacked(asked, ((one.day, one.key, one.num_calls) for one in asked.counts))


def errors(asked: Asked) -> Chart:
    """Share of failed calls among those whose outcome was recorded, of the tools with most of them."""
    found: dict[str, dict[Any, tuple[int, int]]] = defaultdict(dict)
    for one in asked.counts:
        found[one.key][one.day] = (one.num_errors, one.num_outcomes)
    return _shares(pieces(asked), found)


def labels(asked: Asked) -> Chart:
    """Labelled items by label, by when the call was made."""
    rows = rates.labelled(asked.period).annotate(day=TruncDate("started_at")).values_list("day", "label")
    counts = rows.annotate(number=Count("pk"))
    return _stacked(asked, counts, keys=Label.values)


def wrong(asked: Asked) -> Chart:
    """Share of labelled items that were found wrong, by one of the dimensions of rates."""
    rows = rates.labelled(asked.period).annotate(day=TruncDate("started_at"), key=rates.DIMENSIONS[asked.by])
    found: dict[str, dict[Any, tuple[int, int]]] = defaultdict(dict)
    for day, key, label, number in rows.values_list("day", "key", "label").annotate(number=Count("pk")):
        bad, of = found[key or ""].get(day, (0, 0))
        found[key or ""][day] = (bad + (number if label in ACTIONABLE else 0), of + number)
    return _shares(pieces(asked, MAX_WEEKS), found)


def burn_down(asked: Asked) -> Chart:
    """What was open in each queue at the end of each piece, of the queues with most entries."""
    queues = ReviewQueue.objects.filter(deleted_at=None).exclude(state=ReviewQueue.State.CLOSED)
    names = dict(queues.values_list("pk", "name"))
    entries = QueueEntry.objects.filter(queue__in=list(names)).exclude(state=QueueEntry.State.REMOVED).order_by()
    came, went = (
        entries.filter(**{f"{column}__isnull": False})
        .annotate(day=TruncDate(column))
        .values_list("queue_id", "day")
        .annotate(number=Count("pk"))
        for column in ("added_at", "done_at")
    )
    changes: dict[int, Counter[dt.date]] = defaultdict(Counter)
    for sign, rows in ((1, came), (-1, went)):
        for queue, day, number in rows:
            changes[queue][day] += sign * number
    largest = sorted(changes, key=lambda pk: (-sum(map(abs, changes[pk].values())), pk))[:MAX_SERIES]
    cut = pieces(asked)
    return Chart(
        pieces=cut,
        series=tuple(
            Series(
                key=names[pk],
                values=tuple(sum(n for day, n in changes[pk].items() if day <= one.last) for one in cut),
                ns=(sum(map(abs, changes[pk].values())),),
            )
            for pk in largest
        ),
    )


def agreed(asked: Asked) -> Chart:
    """Krippendorff's alpha and the raw agreement, by when labels were given."""
    cut = pieces(asked, MAX_WEEKS)
    said = agreement_data.answers(
        AnswerFilter(
            since=asked.period.since, until=asked.period.until, tools=asked.calls.tools, style=asked.calls.style
        )
    )
    place = _placer(cut)
    by_piece: dict[int, list[Any]] = defaultdict(list)
    for row in said.rows:
        at = place(timezone.localtime(row.at).date())
        if at is not None:
            by_piece[at].append((row.item, row.reviewer_id, row.label))
    alphas, raws = [], []
    for number in range(len(cut)):
        sheet = agreement.sheet_of(by_piece.get(number, ()))
        patterns = Counter(tuple(sorted(given.values())) for given in sheet.values() if len(given) > 1)
        alpha, raw = agreement.alpha_and_raw(patterns)
        alphas.append((alpha.value, alpha.n))
        raws.append((raw.value, raw.n))
    return Chart(
        pieces=cut,
        unit="alpha",
        series=tuple(
            Series(key=key, values=tuple(value for value, _ in found), ns=tuple(n for _, n in found))
            for key, found in (("alpha", alphas), ("raw", raws))
        ),
    )


# The first label of an item is that of its first version, unless it was taken back and never given again.
_TIME_TO_LABEL: Final = """
SELECT piece, percentile_cont(0.5) WITHIN GROUP (ORDER BY hours), percentile_cont(0.9) WITHIN GROUP (ORDER BY hours),
    count(*)
FROM (
    SELECT width_bucket(f.created_at, %(starts)s::timestamptz[]) - 1 AS piece,
        extract(epoch FROM f.created_at - r.started_at)::float / 3600 AS hours
    FROM agent_tool_call_feedback f
    JOIN agent_tool_call_reviews r ON r.tenant_id = f.tenant_id AND r.turn_id = f.turn_id AND r.cycle = f.cycle
        AND r.call_id IS NOT DISTINCT FROM f.call_id
    WHERE f.tenant_id = %(tenant)s AND f.created_at >= %(since)s AND f.created_at < %(until)s {narrowed}
        AND f.updated_at >= %(since)s AND f.created_at >= r.started_at
        AND NOT EXISTS (SELECT FROM agent_tool_call_feedback e
            WHERE e.tenant_id = f.tenant_id AND e.turn_id = f.turn_id AND e.cycle = f.cycle
                AND e.call_id IS NOT DISTINCT FROM f.call_id AND (e.created_at, e.id) < (f.created_at, f.id))
) t GROUP BY piece
"""


def time_to_label(asked: Asked) -> Chart:
    """Hours from a call to its first label, by when it was labelled: the middle and the ninth of ten. Labels that were
    brought along from elsewhere, before the call came in, are left out."""
    cut = pieces(asked)
    told = _hours_to_label(asked, cut)
    found = [told.get(at, (None, None, 0)) for at in range(len(cut))]
    ns = tuple(n for _, _, n in found)
    return Chart(
        pieces=cut,
        unit="hours",
        series=(
            Series(key="p50", values=tuple(middle for middle, _, _ in found), ns=ns),
            Series(key="p90", values=tuple(nine for _, nine, _ in found), ns=ns),
        ),
    )


def _hours_to_label(asked: Asked, cut: Sequence[Piece]) -> dict[int, tuple[float | None, float | None, int]]:
    """The middle, the ninth of ten and the number of labels, by the number of the piece."""
    narrowed = "AND f.tool_name = ANY(%(tools)s)" if asked.calls.tools else ""
    narrowed += " AND f.style_id = %(style)s" if asked.calls.style else ""
    ends: dict[str, Any] = {
        "starts": [_midnight(piece.first) for piece in cut],
        "since": _midnight(cut[0].first),
        "until": _midnight(cut[-1].last + dt.timedelta(days=1)),
        "tenant": current_tenant_id(),
        "tools": list(asked.calls.tools),
        "style": asked.calls.style,
    }
    with connection.cursor() as cursor:
        cursor.execute(_TIME_TO_LABEL.format(narrowed=narrowed), ends)
        return {piece: (middle, nine, n) for piece, middle, nine, n in cursor.fetchall()}


@dataclass(frozen=True, kw_only=True)
class Fix:
    """An applied proposal, and how often its fault was found before and after."""

    proposal: Proposal
    rates: Rates


def fixes(asked: Asked) -> list[Fix]:
    """The newest fixes of the period."""
    rows = Proposal.objects.filter(
        state=ProposalState.APPLIED, decided_at__gte=asked.period.since, decided_at__lt=asked.period.until
    )
    if asked.calls.tools:
        rows = rows.filter(tool_name__in=asked.calls.tools)
    if asked.calls.style:
        rows = rows.filter(style_id=asked.calls.style)
    newest = rows.order_by(F("decided_at").desc(), "-pk")[:MAX_FIXES]
    return [Fix(proposal=one, rates=rates_of(one, viewer=asked.calls.viewer)) for one in newest]


CHARTS: Final[Mapping[str, Callable[[Asked], Chart]]] = {
    "volume": volume,
    "errors": errors,
    "labels": labels,
    "wrong": wrong,
    "burn-down": burn_down,
    "agreement": agreed,
    "time-to-label": time_to_label,
}


# --- cutting time into pieces ----------------------------------------------------------------------------------------


def _midnight(day: dt.date) -> dt.datetime:
    return timezone.make_aware(dt.datetime.combine(day, dt.time()))


def _placer(cut: Sequence[Piece]) -> Callable[[dt.date], int | None]:
    """The number of the piece that a day is in."""
    first, step = cut[0].first, (cut[0].last - cut[0].first).days + 1

    def place(day: dt.date) -> int | None:
        at = (day - first).days // step
        return at if 0 <= at < len(cut) else None

    return place


def _stacked(asked: Asked, rows: Iterable[tuple[Any, str, int]], *, keys: Sequence[str] = ()) -> Chart:
    """Counts by key; without `keys` those with most get a series, all others share one."""
    cut = pieces(asked)
    place = _placer(cut)
    found: dict[str, list[int]] = {key: [0] * len(cut) for key in keys}
    for day, key, number in rows:
        at = place(day)
        if at is not None:
            found.setdefault(key, [0] * len(cut))[at] += number
    if not keys:
        found = _largest(found)
    return Chart(
        pieces=cut,
        stacked=True,
        series=tuple(Series(key=key, values=tuple(map(float, values))) for key, values in found.items()),
    )


def _largest(found: dict[str, list[int]]) -> dict[str, list[int]]:
    order = sorted(found, key=lambda key: (-sum(found[key]), key))
    kept = {key: found[key] for key in order[:MAX_SERIES]}
    if rest := order[MAX_SERIES:]:
        kept[REST] = [sum(column) for column in zip(*(found[key] for key in rest), strict=True)]
    return kept


def _shares(cut: tuple[Piece, ...], found: Mapping[str, Mapping[Any, tuple[int, int]]]) -> Chart:
    """Shares by key, of the keys with most cases."""
    place = _placer(cut)
    series = []
    order = sorted(found, key=lambda key: (-sum(of for _, of in found[key].values()), key))
    for key in order[:MAX_SERIES]:
        parts, wholes = [0] * len(cut), [0] * len(cut)
        for day, (part, whole) in found[key].items():
            at = place(day)
            if at is not None:
                parts[at] += part
                wholes[at] += whole
        values = tuple(part / whole if whole else None for part, whole in zip(parts, wholes, strict=True))
        series.append(Series(key=key, values=values, ns=tuple(wholes)))
    return Chart(pieces=cut, series=tuple(series), unit="share")
