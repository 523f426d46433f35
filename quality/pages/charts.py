"""Charts of a tenant: what came in, what failed, what reviewers say, how the work goes. Each has its table and CSV."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from django import forms
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from quality import calls
from quality.calls import CallFilter
from quality.filters import PeriodForm
from quality.languages import number
from quality.models import Label
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import chips, conditions
from quality.pages.plot import Plot, plot
from quality.pages.sheet import Cell, sheet
from quality.review import charts, rates
from quality.review.blind import seen_by
from quality.review.charts import REST, Asked, Chart, Fix, Piece, Series
from quality.templatetags.replays import percent

PERIODS: Final = (7, 30, 90, 365)
DEFAULT_DAYS: Final = 30
WORDS: Final = {
    "tool": gettext_lazy("Tool"),
    "style": gettext_lazy("Style"),
    "model": gettext_lazy("Model"),
    "source": gettext_lazy("Source"),
    "toolset": gettext_lazy("Toolset"),
}
BY: Final = {
    "tool": gettext_lazy("tool"),
    "style": gettext_lazy("style"),
    "model": gettext_lazy("model"),
    "toolset": gettext_lazy("toolset"),
}


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a chart is called, and what it says."""

    title: Any
    help: Any
    empty: Any


SAID: Final[Mapping[str, Said]] = {
    "volume": Said(
        title=gettext_lazy("Calls"),
        help=gettext_lazy("By tool; the rest of the tools together."),
        empty=gettext_lazy("No call in this period."),
    ),
    "errors": Said(
        title=gettext_lazy("Errors"),
        help=gettext_lazy("Share of failed calls among those whose outcome was recorded, of the busiest tools."),
        empty=gettext_lazy("No outcome was recorded in this period."),
    ),
    "labels": Said(
        title=gettext_lazy("Labels"),
        help=gettext_lazy("Labelled items by their newest label, by when the call was made."),
        empty=gettext_lazy("Nothing is labelled in this period. Review is where labels come from."),
    ),
    "wrong": Said(
        title=gettext_lazy("Found wrong"),
        help=gettext_lazy("Share of labelled items with wrong tool, missing tool or bad arguments."),
        empty=gettext_lazy("Nothing is labelled in this period. Review is where labels come from."),
    ),
    "burn-down": Said(
        title=gettext_lazy("Queues"),
        help=gettext_lazy("Entries open at the end of each day, of the busiest queues that are not closed."),
        empty=gettext_lazy("No queue has entries. Make one under Queues."),
    ),
    "agreement": Said(
        title=gettext_lazy("Agreement"),
        help=gettext_lazy("Krippendorff’s alpha and the raw agreement of reviewers, by when they labelled."),
        empty=gettext_lazy("No item has labels of two reviewers. A queue with two labels per call brings them."),
    ),
    "time-to-label": Said(
        title=gettext_lazy("Time to the first label"),
        help=gettext_lazy("Hours from a call to its first label: the middle, and what nine of ten stay under."),
        empty=gettext_lazy("Nothing was labelled in this period."),
    ),
}


class ChartsForm(PeriodForm):
    """A period in days up to today, which calls, and by what rates are told apart."""

    days = forms.TypedChoiceField(
        required=False, choices=[(days, days) for days in PERIODS], coerce=int, empty_value=None
    )
    by = forms.ChoiceField(required=False, choices=[(name, name) for name in rates.DIMENSIONS])

    @property
    def asked(self) -> Asked:
        """Only of a valid form. Whole days of the viewer's zone."""
        data = self.cleaned_data
        last = timezone.localdate()
        first = last - dt.timedelta(days=(data["days"] or DEFAULT_DAYS) - 1)
        wanted = CallFilter(**{name: data[name] for name in ("tools", "style", "model", "source", "toolset")})
        return Asked(first=first, last=last, calls=wanted, by=data["by"] or "tool")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart as the page shows it: `rows` are (piece, cells), the newest first; `keys` name the columns."""

    name: str
    said: Said
    chart: Chart
    plot: Plot
    keys: list[str]
    rows: list[tuple[Piece, list[str]]]
    top: str


@require_GET
@tenant_view()
def chart_page(request: TenantRequest) -> HttpResponse:
    """All charts of a period. What of the address is no filter is told back, and the charts are of all calls then."""
    form, faults = _read(request)
    asked = _asked(request, form)
    query = conditions(QueryDict() if faults else request.GET, tuple(WORDS))
    days = form.cleaned_data["days"] or DEFAULT_DAYS
    dated = query.copy()
    dated["days"], dated["by"] = str(days), asked.by
    context = {
        "days": days,
        "periods": PERIODS,
        "by": asked.by,
        "dimensions": list(BY.items()),
        "faults": faults,
        "unknown": form.unknown(),
        "filter": query.urlencode(),
        "query": dated.urlencode(),
        "values": {name: query.get(name, "") for name in WORDS},
        "chips": chips(query, WORDS, {}),
        "tool_names": calls.tool_names(),
        "sources": calls.sources(),
        "figures": [figure(name, draw(asked), by=asked.by) for name, draw in charts.CHARTS.items()],
        "fixes": charts.fixes(asked),
    }
    return render(cast(HttpRequest, request), "quality/charts.html", context)


@require_GET
@tenant_view()
def chart_sheet(request: TenantRequest, name: str) -> HttpResponse:
    """The table of one chart as CSV: numbers as they are, times as ISO dates."""
    form, _faults = _read(request)
    asked = _asked(request, form)
    if name == "fixes":
        return sheet("charts-fixes.csv", FIX_COLUMNS, [_fix_row(one) for one in charts.fixes(asked)])
    chart = charts.CHARTS[name](asked)
    columns, rows = _table(chart)
    return sheet(f"charts-{name}.csv", columns, rows)


SHEETS: Final = (*charts.CHARTS, "fixes")


def _read(request: TenantRequest) -> tuple[ChartsForm, list[dict[str, str]]]:
    form = ChartsForm(request.GET)
    faults = form.faults()
    if faults:
        form = ChartsForm({})
        form.is_valid()
    return form, faults


def _asked(request: TenantRequest, form: ChartsForm) -> Asked:
    """What is asked, of what this person may see."""
    return replace(form.asked, calls=seen_by(form.asked.calls, request.user))


def figure(name: str, chart: Chart, *, by: str = "tool") -> Figure:
    spell = _SPELLED[chart.unit]
    drawn = plot(chart)
    rows = [
        (piece, [_cell(one, at, spell) for one in chart.series])
        for at, piece in reversed(list(enumerate(chart.pieces)))
        if any(one.values[at] for one in chart.series)
    ]
    return Figure(
        name=name,
        said=SAID[name],
        chart=chart,
        plot=drawn,
        keys=[_named(name, one.key, by) for one in chart.series],
        rows=rows,
        top=spell(drawn.top),
    )


def _cell(series: Series, at: int, spell: Callable[[float], str]) -> str:
    value = series.values[at]
    if value is None:
        return "–"
    n = series.ns[at] if len(series.ns) == len(series.values) else None
    return spell(value) if n is None else _("%(value)s of %(n)s") % {"value": spell(value), "n": number(n)}


_SPELLED: Final[Mapping[str, Callable[[float], str]]] = {
    "count": number,
    "share": percent,
    "hours": lambda value: number(value, 1),
    "alpha": lambda value: number(value, 2),
}


def _named(name: str, key: str, by: str) -> str:
    """What a series is called."""
    if name == "labels":
        return str(Label(key).label)
    if name == "agreement":
        return {"alpha": _("alpha"), "raw": _("agreed")}[key]
    if name == "time-to-label":
        return {"p50": _("middle"), "p90": _("nine of ten")}[key]
    if key == REST:
        if name == "wrong":
            return _("no call") if by == "tool" else _("not recorded")
        return _("others")
    return key[:12] if len(key) == 64 else key  # a toolset is named by its SHA-256


def _table(chart: Chart) -> tuple[list[str], list[list[Cell]]]:
    """Days and values; where a value is a share of some, a column says of how many."""
    columns, rows = ["from", "to"], [[str(piece.first), str(piece.last)] for piece in chart.pieces]
    table: list[list[Cell]] = [list(row) for row in rows]
    for one in chart.series:
        with_ns = len(one.ns) == len(one.values)
        columns += [one.key or "others", *([f"{one.key or 'others'} n"] if with_ns else [])]
        for at, row in enumerate(table):
            value = one.values[at]
            row.append(int(value) if value is not None and chart.unit == "count" else value)
            if with_ns:
                row.append(one.ns[at])
    return columns, table


FIX_COLUMNS: Final = [
    "proposal", "tool", "style", "label", "fault", "applied", "kind", "ref",
    "before", "before low", "before high", "before n", "after", "after low", "after high", "after n",
]  # fmt: skip


def _fix_row(fix: Fix) -> list[Cell]:
    one = fix.proposal
    row: list[Cell] = [one.pk, one.tool_name, one.style_id, one.label, one.fault]
    row += [one.decided_at.isoformat() if one.decided_at else None, one.resolution_kind, one.resolution_ref]
    for rate in (fix.rates.before, fix.rates.after):
        row += [rate.share, rate.low, rate.high, rate.num_items] if rate else [None, None, None, None]
    return row
