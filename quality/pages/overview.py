"""The overview of a tenant: how much came in, what failed, what reviewers say."""

import datetime as dt
from dataclasses import dataclass
from typing import Any, cast

from django.db.models import Count, Q
from django.db.models.functions import TruncDate
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from quality.models import Label, ToolCall, Turn
from quality.pages.access import TenantRequest, tenant_view
from quality.review.summary import ToolSummary, last_imports, summarise

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


@require_GET
@tenant_view()
def overview(request: TenantRequest) -> HttpResponse:
    """Numbers of the last days, whole days of the viewer's zone."""
    given = request.GET.get("days", "")
    days = int(given) if given.isdigit() and int(given) in PERIODS else DEFAULT_DAYS
    today = timezone.localdate()
    first = today - dt.timedelta(days=days - 1)
    since = timezone.make_aware(dt.datetime.combine(first, dt.time()))
    summary = summarise(since=since)
    labelled_calls = sum(tool.num_labelled for tool in summary.tools)
    context = {
        "days": days,
        "periods": PERIODS,
        "first": first.isoformat(),
        "summary": summary,
        "num_turns": Turn.objects.filter(started_at__gte=since).count(),
        "num_outcomes": sum(tool.num_outcomes for tool in summary.tools),
        "labelled_calls": labelled_calls,
        "unlabelled_calls": summary.num_calls - labelled_calls,
        "tools": [(tool, segments(tool)) for tool in summary.tools[:50]],
        "hidden_tools": max(0, len(summary.tools) - 50),
        "labels": Label.choices,
        "chart": chart(_per_day(since), first, today),
        "imports": last_imports(),
        "has_older": summary.num_calls == 0 and ToolCall.objects.order_by().exists(),
    }
    return render(cast(HttpRequest, request), "quality/overview.html", context)


def _per_day(since: dt.datetime) -> dict[dt.date, tuple[int, int]]:
    """Calls and errors of each day on which there were some."""
    rows = (
        ToolCall.objects.filter(started_at__gte=since)
        .order_by()
        .annotate(day=TruncDate("started_at"))
        .values("day")
        .annotate(calls=Count("pk"), errors=Count("pk", filter=Q(is_error=True)))
        .values_list("day", "calls", "errors")
    )
    return {day: (calls, errors) for day, calls, errors in rows}


def chart(per_day: dict[dt.date, tuple[int, int]], first: dt.date, last: dt.date) -> dict[str, Any]:
    """Bars for each day from `first` to `last`, errors at their foot; `top` is the highest number of calls."""
    dates = [first + dt.timedelta(days=number) for number in range((last - first).days + 1)]
    top = max((calls for calls, _ in per_day.values()), default=0)
    step = CHART_WIDTH / len(dates)
    bars = []
    for number, date in enumerate(dates):
        calls, errors = per_day.get(date, (0, 0))
        height, error_height = (CHART_HEIGHT * count / top if top else 0 for count in (calls, errors))
        bars.append(
            Day(
                date=date,
                calls=calls,
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
