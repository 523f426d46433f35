"""Agreement: how far reviewers agree, how far machines agree with them, and what two people disagree on."""

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final, cast

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from quality import calls
from quality.calls import PAGE_SIZE, BadCursor
from quality.filters import ListField, QueryForm
from quality.improve import keyset
from quality.models import JudgeVote, Label, ReviewQueue
from quality.pages import agreement_sheets
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import chips, conditions
from quality.pages.render import render_page
from quality.pages.sheet import sheet
from quality.review.agreement import FEW, MAX_PAIRED, RESAMPLES, Measure, Pair
from quality.review.agreement_data import (
    LABELS,
    MAX_LABELS,
    Answer,
    AnswerFilter,
    Figures,
    answers,
    apart,
    figures,
    judge_figures,
    names_of,
    place_of,
)

PERIODS: Final = (7, 30, 90, 365)
DEFAULT_DAYS: Final = 30
MAX_MATRIX: Final = 12  # reviewers side by side; of more there is the list alone
MAX_PAIRS: Final = 60  # in the list; the file has all of them
MAX_QUEUES: Final = 200
WORDS: Final = {"tool": gettext_lazy("tool"), "style": gettext_lazy("style"), "queue": gettext_lazy("queue")}
# Krippendorff, Content Analysis: what a variable can carry, by the lower end of its interval.
RELIABLE: Final = 0.8
TENTATIVE: Final = 0.667


class AgreementForm(QueryForm):
    """Whose answers are measured."""

    days = forms.TypedChoiceField(
        required=False, choices=[(days, days) for days in PERIODS], coerce=int, empty_value=None
    )
    tools = ListField(required=False)
    style = forms.CharField(required=False, max_length=512)
    queue = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)

    def clean_queue(self) -> int | None:
        pk: int | None = self.cleaned_data["queue"]
        if pk is not None and not ReviewQueue.objects.filter(pk=pk, deleted_at=None).exists():
            raise ValidationError(_("There is no such queue."), code="no_such_queue")
        return pk

    @property
    def days_or_default(self) -> int:
        return self.cleaned_data["days"] or DEFAULT_DAYS

    @property
    def wanted(self) -> AnswerFilter:
        """The filter; only of a valid form. Whole days of the viewer's zone, up to now."""
        data = self.cleaned_data
        return AnswerFilter(
            since=beginning(self.days_or_default), tools=data["tools"], style=data["style"], queue=data["queue"]
        )


class ApartForm(AgreementForm):
    """Two people whose answers differ."""

    left = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    right = forms.IntegerField(min_value=1, max_value=2**63 - 1)
    cursor = forms.CharField(required=False, max_length=400)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A place in the matrix of pairs: what two reviewers agree on; without a pair they share nothing."""

    pair: Pair | None
    url: str = ""
    is_self: bool = False


def beginning(days: int) -> dt.datetime:
    """The first moment of a period of so many days that ends today, in the viewer's zone."""
    first = timezone.localdate() - dt.timedelta(days=days - 1)
    return timezone.make_aware(dt.datetime.combine(first, dt.time()))


@require_GET
@tenant_view()
def agreement(request: TenantRequest) -> HttpResponse:
    """All figures of a period. What of the address is no filter is told back, and the figures are of all labels."""
    form, faults = _read(request)
    found = figures(form.wanted)
    query = _query(request, faults)
    dated = _with_days(query, form)
    queues = list(ReviewQueue.objects.filter(deleted_at=None).order_by("name").values_list("pk", "name")[:MAX_QUEUES])
    context: dict[str, Any] = {
        "days": form.days_or_default,
        "periods": PERIODS,
        "faults": faults,
        "unknown": form.unknown(),
        "filter": query.urlencode(),
        "query": dated.urlencode(),
        "values": {name: query.get(name, "") for name in WORDS},
        "chips": chips(query, WORDS, {"queue": {str(pk): name for pk, name in queues}}),
        "tool_names": calls.tool_names(),
        "queues": queues,
        "figures": found,
        "people": found.people,
        "reading": reading(found.people.alpha),
        "labels": Label.choices,
        "confusion": _confusion(found),
        "matrix": _matrix(request, found, dated),
        "pairs": _pairs(request, found, dated),
        "num_pairs": len(found.people.pairs),
        "has_votes": JudgeVote.objects.order_by().exists(),
        "few": FEW,
        "max_labels": MAX_LABELS,
        "max_paired": MAX_PAIRED,
        "max_pairs": MAX_PAIRS,
        "resamples": RESAMPLES,
    }
    return render(cast(HttpRequest, request), "quality/agreement.html", context)


@require_GET
@tenant_view()
def agreement_sheet(request: TenantRequest, name: str) -> HttpResponse:
    """One table of the page as CSV, with all its rows."""
    form, _faults = _read(request)
    columns, rows = agreement_sheets.SHEETS[name](figures(form.wanted))
    return sheet(f"agreement-{name}.csv", columns, rows)


@require_GET
@tenant_view()
def agreement_judge(request: TenantRequest) -> HttpResponse:
    """The judge of replays against people. Apart from the page: it reads many cases."""
    context = {"judges": judge_figures()}
    return render_page(cast(HttpRequest, request), "quality/agreement_judge.html", context, partial="judge")


@require_GET
@tenant_view()
def agreement_judge_sheet(request: TenantRequest) -> HttpResponse:
    columns, rows = agreement_sheets.judge(judge_figures())
    return sheet("agreement-judge.csv", columns, rows)


@require_GET
@tenant_view()
def agreement_apart(request: TenantRequest) -> HttpResponse:
    """The items on which two reviewers disagree, newest first."""
    form = ApartForm(request.GET)
    faults = form.faults()
    context: dict[str, Any] = {"faults": faults, "rows": [], "next": None, "num": 0}
    if not faults:
        data = form.cleaned_data
        differing = apart(answers(form.wanted), data["left"], data["right"])
        back = conditions(request.GET, ("days", *WORDS))
        try:
            rows, cursor = _page(differing, data["cursor"])
        except BadCursor as error:
            faults.append({"path": "cursor", "code": "bad_cursor", "message": str(error)})
            rows, cursor = _page(differing, "")
        names = names_of((data["left"], data["right"])) if differing else {}
        context |= {
            "names": [names.get(data[side], "") for side in ("left", "right")],
            "num": len(differing),
            "days": form.days_or_default,
            "rows": rows,
            "back": back.urlencode(),
            "query": conditions(request.GET, ("days", *WORDS, "left", "right")).urlencode(),
            "next": cursor,
            "is_later": bool(data["cursor"]),
        }
    return render(cast(HttpRequest, request), "quality/agreement_apart.html", context)


def reading(alpha: Measure) -> str:
    """What labels can carry, by the lower end of alpha's interval: `reliable`, `tentative`, `weak`, or empty."""
    if alpha.low is None:
        return ""
    return "reliable" if alpha.low >= RELIABLE else "tentative" if alpha.low >= TENTATIVE else "weak"


def _read(request: TenantRequest) -> tuple[AgreementForm, list[dict[str, str]]]:
    form = AgreementForm(request.GET)
    faults = form.faults()
    if faults:
        form = AgreementForm(QueryDict())
        form.is_valid()
    return form, faults


def _query(request: TenantRequest, faults: list[dict[str, str]]) -> QueryDict:
    return conditions(QueryDict() if faults else request.GET, WORDS)


def _with_days(query: QueryDict, form: AgreementForm) -> QueryDict:
    found = query.copy()
    found["days"] = str(form.days_or_default)
    return found


def _confusion(found: Figures) -> list[tuple[str, list[tuple[str, int | None]]]]:
    """Rows and columns by label; the half below the diagonal says nothing new."""
    counts = found.people.confusion
    return [
        (one, [(other, counts.get((one, other), 0) if place >= row else None) for place, other in enumerate(LABELS)])
        for row, one in enumerate(LABELS)
    ]


def _apart_url(request: TenantRequest, pair: Pair, query: QueryDict) -> str:
    target = query.copy()
    target["left"], target["right"] = str(pair.left), str(pair.right)
    return f"{reverse('agreement-apart', args=[request.tenant.slug])}?{target.urlencode()}"


def _pairs(request: TenantRequest, found: Figures, query: QueryDict) -> list[dict[str, Any]]:
    """The pairs with most items in common first."""
    ranked = sorted(found.people.pairs, key=lambda pair: -pair.num_items)
    return [
        {
            "pair": pair,
            "names": [_name(found, pair.left), _name(found, pair.right)],
            "labels": [(label, pair.labels[label]) for label in LABELS],
            "url": _apart_url(request, pair, query),
        }
        for pair in ranked[:MAX_PAIRS]
    ]


def _matrix(request: TenantRequest, found: Figures, query: QueryDict) -> list[tuple[str, list[Cell]]]:
    """Every reviewer against every other; empty where there are too many, or no three of them."""
    pairs = found.people.pairs
    people = list(dict.fromkeys(one for pair in pairs for one in (pair.left, pair.right)))
    if not 2 < len(people) <= MAX_MATRIX:
        return []
    by_two = {frozenset((pair.left, pair.right)): pair for pair in pairs}

    def cell(one: Any, other: Any) -> Cell:
        pair = by_two.get(frozenset((one, other)))
        return Cell(pair=pair, url=_apart_url(request, pair, query) if pair else "", is_self=one == other)

    return [(_name(found, one), [cell(one, other) for other in people]) for one in people]


def _name(found: Figures, reviewer: Any) -> str:
    return found.names.get(reviewer, "")


def _page(differing: list[tuple[Answer, Answer]], cursor: str) -> tuple[list[tuple[Answer, Answer]], str | None]:
    """The disagreements after a cursor, and the cursor of those after them. Raises BadCursor."""
    if cursor:
        at, pk = keyset.read(cursor, keyset.moment, keyset.number)
        differing = [two for two in differing if place_of(two) < (at, pk)]
    shown = differing[:PAGE_SIZE]
    return shown, keyset.write(*place_of(shown[-1])) if len(differing) > PAGE_SIZE else None
