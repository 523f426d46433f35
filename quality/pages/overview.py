"""The overview of a tenant: how much came in, what failed, what reviewers say."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from django import forms
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from quality import calls, rollups
from quality.calls import CallFilter
from quality.filters import PeriodForm
from quality.models import ACTIONABLE, Label, ToolCall, Turn
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.call_filter import chips
from quality.pages.charts import BY
from quality.pages.conditions import conditions
from quality.review import rates
from quality.review.blind import seen_by
from quality.review.rates import LabelRate
from quality.review.summary import HintSummary, ToolSummary, hints_in, in_period, last_imports, summarise

PERIODS = (7, 30, 90, 365)
DEFAULT_DAYS = 30
CHART_WIDTH, CHART_HEIGHT = 720, 96


@dataclass(frozen=True, kw_only=True)
class Day:
    """One bar of the chart, in the SVG's units."""

    date: dt.date
    calls: int
    errors: int
    x: float
    width: float
    y: float
    height: float
    error_y: float
    error_height: float


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One label's part of a tool's bar, in per cent."""

    label: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, kw_only=True)
class TrendPoint:
    """One piece of the trend, in the SVG's units; `url` leads to its labelled calls."""

    first: dt.date
    last: dt.date
    rate: LabelRate
    url: str
    x: float
    y: float
    top: float
    bottom: float


class OverviewForm(PeriodForm):
    """Which calls the numbers are of, and by what the rates are told apart."""

    days = forms.TypedChoiceField(
        required=False, choices=[(days, days) for days in PERIODS], coerce=int, empty_value=None
    )
    by = forms.ChoiceField(required=False, choices=[(name, name) for name in rates.DIMENSIONS])

    @property
    def wanted(self) -> CallFilter:
        data = self.cleaned_data
        return CallFilter(**{name: data[name] for name in ("tools", "style", "model", "source", "toolset")})


@require_GET
@tenant_view()
def overview(request: TenantRequest) -> HttpResponse:
    """Numbers of the last days, whole days of the viewer's zone. What of the address is no filter is told back, and
    the numbers are of all calls then."""
    form = OverviewForm(request.GET)
    faults = form.faults()
    if faults:
        form = OverviewForm({})
        form.is_valid()
    days, wanted = form.cleaned_data["days"] or DEFAULT_DAYS, seen_by(form.wanted, request.user)
    today = timezone.localdate()
    first = today - dt.timedelta(days=days - 1)
    period = in_period(replace(wanted, since=timezone.make_aware(dt.datetime.combine(first, dt.time()))))
    counts = rollups.by_day(period, by="tool_name")
    summary = summarise(period, counts)
    labelled_calls = sum(tool.num_labelled for tool in summary.tools)
    query = conditions(QueryDict() if faults else request.GET, ("tool", "style", "model", "source", "toolset"))
    context = {
        "days": days,
        "periods": PERIODS,
        "first": first.isoformat(),
        "tool_link": _tool_link(request, query, first),
        "summary": summary,
        "num_turns": Turn.objects.filter(replace(period, tools=()).context()).count(),
        "num_outcomes": sum(tool.num_outcomes for tool in summary.tools),
        "labelled_calls": labelled_calls,
        "unlabelled_calls": summary.num_calls - labelled_calls,
        "tools": [(tool, segments(tool)) for tool in summary.tools[:50]],
        "hidden_tools": max(0, len(summary.tools) - 50),
        "labels": Label.choices,
        "chart": chart(_per_day(counts), first, today),
        "hints": _hints(request, period, query, first),
        "imports": last_imports(),
        "has_older": summary.num_calls == 0 and ToolCall.objects.order_by().exists(),
        "faults": faults,
        "unknown": form.unknown(),
        "filter": query.urlencode(),
        "chips": chips(query),
        "values": {name: query.get(name, "") for name in ("tool", "style", "model", "source")},
        "tool_names": calls.tool_names(),
        "sources": calls.sources(),
    } | _rates(request, form.cleaned_data["by"] or "tool", period, query, (first, today))
    return render(cast(HttpRequest, request), "quality/overview.html", context)


def _tool_link(request: TenantRequest, query: QueryDict, first: dt.date) -> str:
    """Where a tool's calls are, up to its name."""
    rest = query.copy()
    rest.pop("tool", None)
    rest["from"] = first.isoformat()
    return f"{reverse('call-list', args=[request.tenant.slug])}?{rest.urlencode()}&tool="


def _hints(
    request: TenantRequest, period: CallFilter, query: QueryDict, first: dt.date
) -> list[tuple[HintSummary, str, str]]:
    """What rules noticed; each with where its calls are, and where Review goes through them."""

    def link(page: str, rule: str) -> str:
        target = query.copy()
        target["from"], target["hint"] = first.isoformat(), rule
        return f"{reverse(page, args=[request.tenant.slug])}?{target.urlencode()}"

    found = hints_in(period)
    return [(one, link("call-list", one.rule.name), link("review", one.rule.name)) for one in found]


def _rates(
    request: TenantRequest, by: str, period: CallFilter, query: QueryDict, ends: tuple[dt.date, dt.date]
) -> dict[str, Any]:
    """How often calls were found wrong: as a whole, by one dimension, over time. Each number links to its calls."""
    address = reverse("call-list", args=[request.tenant.slug])

    def link(**more: str | list[str]) -> str:
        target = query.copy()
        target["from"] = ends[0].isoformat()
        for name, value in more.items():
            target.setlist(
                {"since": "from", "until": "to"}.get(name, name), value if isinstance(value, list) else [value]
            )
        return f"{address}?{target.urlencode()}"

    wrong = [label.value for label in ACTIONABLE]
    rows = [
        {
            "rate": rate,
            "label": rate.key[:12] if by == "toolset" else rate.key,
            "url": link(**{by: rate.key}, label=list(Label.values)) if rate.key else "",
            "wrong_url": link(**{by: rate.key}, label=wrong) if rate.key else "",
        }
        for rate in rates.by(by, period)
    ]
    points = [
        _placed(point, number, link(since=f"{point.first}", until=f"{point.last}", label=list(Label.values)))
        for number, point in enumerate(rates.trend(period, *ends))
    ]
    step = CHART_WIDTH / len(points)
    return {
        "by": by,
        "by_word": BY[by],
        "dimensions": list(BY.items()),
        "total": rates.total(period),
        "wrong_url": link(label=wrong),
        "rates": rows,
        "trend": [replace(point, x=round(point.x * step + step / 2, 2)) for point in points],
        "trend_width": CHART_WIDTH,
        "trend_height": CHART_HEIGHT,
    }


def _placed(point: rates.Point, number: int, url: str) -> TrendPoint:
    def height(share: float) -> float:
        return round(CHART_HEIGHT * (1 - share), 2)

    rate = point.rate
    return TrendPoint(
        first=point.first,
        last=point.last,
        rate=rate,
        url=url,
        x=number,
        y=height(rate.rate or 0),
        top=height(rate.high),
        bottom=height(rate.low),
    )


def _per_day(counts: Iterable[rollups.Count]) -> dict[dt.date, tuple[int, int]]:
    """Calls and errors of each day on which there were some."""
    found: dict[dt.date, tuple[int, int]] = {}
    for one in counts:
        if one.day:
            calls, errors = found.get(one.day, (0, 0))
            found[one.day] = (calls + one.num_calls, errors + one.num_errors)
    return found


def chart(per_day: dict[dt.date, tuple[int, int]], first: dt.date, last: dt.date) -> dict[str, Any]:
    """Bars for each day from `first` to `last`, errors at their foot; `top` is the highest number of calls."""
    dates = [first + dt.timedelta(days=number) for number in range((last - first).days + 1)]
    top = max((number for number, _ in per_day.values()), default=0)
    step = CHART_WIDTH / len(dates)
    bars = []
    for number, date in enumerate(dates):
        count, errors = per_day.get(date, (0, 0))
        height, error_height = (CHART_HEIGHT * part / top if top else 0 for part in (count, errors))
        bars.append(
            Day(
                date=date,
                calls=count,
                errors=errors,
                x=round(number * step + step * 0.1, 2),
                width=round(step * 0.8, 2),
                y=round(CHART_HEIGHT - height, 2),
                height=round(height, 2),
                error_y=round(CHART_HEIGHT - error_height, 2),
                error_height=round(error_height, 2),
            )
        )
    return {"bars": bars, "top": top, "width": CHART_WIDTH, "height": CHART_HEIGHT}


def segments(tool: ToolSummary) -> list[Segment]:
    """A tool's labels as parts of one bar; the gaps between them are the background's."""
    found, x = [], 0.0
    for label in Label.values:
        count = tool.labels.get(label, 0)
        width = 100 * count / tool.num_labelled if tool.num_labelled else 0
        found.append(Segment(label=label, count=count, x=round(x, 2), width=round(width, 2)))
        x += width
    return found
