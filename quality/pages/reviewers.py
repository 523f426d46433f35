"""Reviewers: how each works in a period, and one reviewer's labels to read. Admins see all, operators themselves."""

from dataclasses import dataclass
from typing import Any, Final, cast

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from quality.calls import BadCursor
from quality.filters import LabelsField, QueryForm
from quality.models import FeedbackEvent, Label
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.agreement import DEFAULT_DAYS, PERIODS, beginning
from quality.pages.agreement_sheets import cells_of, columns_of
from quality.pages.conditions import chips, conditions
from quality.pages.render import render_page
from quality.pages.sheet import Cell, sheet
from quality.review.agreement import Measure
from quality.review.reviewers import GAP, HIDDEN, Crew, SaidPage, Work, crew, said_by
from tenants.models import Membership, Role, User

WORDS: Final = {"label": gettext_lazy("label")}


class PeriodForm(QueryForm):
    days = forms.TypedChoiceField(
        required=False, choices=[(days, days) for days in PERIODS], coerce=int, empty_value=None
    )


class WorkForm(QueryForm):
    """Which of a reviewer's labels, and the place in them."""

    labels = LabelsField(required=False, unlabelled=False)
    cursor = forms.CharField(required=False, max_length=400)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One label's part of a reviewer's bar, in per cent; `word` says it."""

    label: str
    word: str
    count: int
    x: float
    width: float


@require_GET
@tenant_view(Role.OPERATOR)
def reviewers(request: TenantRequest) -> HttpResponse:
    """How each reviewer works. An operator sees one line: the own."""
    form = PeriodForm(request.GET)
    faults, days = form.faults(), _days(form)
    found = _crew(request, days)
    context = {
        "faults": faults,
        "unknown": form.unknown(),
        "days": days,
        "query": f"days={days}",
        "periods": PERIODS,
        "crew": found,
        "works": [(work, segments(work)) for work in found.works],
        "labels": Label.choices,
        "gap_minutes": int(GAP.total_seconds() // 60),
        "sees_all": request.membership.may(Role.ADMIN),
        "is_pace_capped": any(work.pace.is_capped for work in found.works),
        "has_hidden": any(HIDDEN in work.labels for work in found.works),
    }
    return render(cast(HttpRequest, request), "quality/reviewers.html", context)


@require_GET
@tenant_view(Role.OPERATOR)
def reviewers_sheet(request: TenantRequest) -> HttpResponse:
    form = PeriodForm(request.GET)
    columns = ["reviewer", "labels", *Label.values, HIDDEN, "undone", "active_seconds", "labels_per_active_hour"]
    columns += ["median_seconds", *columns_of("notes"), *columns_of("kappa"), *columns_of("raw"), *columns_of("taken")]
    return sheet("reviewers.csv", columns, [_row(work) for work in _crew(request, _days(form)).works])


@require_GET
@tenant_view(Role.OPERATOR)
def reviewer(request: TenantRequest, pk: int) -> HttpResponse:
    """One reviewer's labels as they stand, newest first; nothing can be changed here."""
    shown = _reviewer(request, pk)
    form = WorkForm(request.GET)
    faults = form.faults()
    data: dict[str, Any] = {"labels": (), "cursor": ""} if faults else form.cleaned_data
    page = SaidPage(rows=[], next=None)
    try:
        page = said_by(shown, viewer=request.user, labels=data["labels"], cursor=data["cursor"])
    except BadCursor as error:
        faults = [*faults, {"path": "cursor", "code": "bad_cursor", "message": str(error)}]
    query = conditions(request.GET, WORDS)
    context: dict[str, Any] = {
        "reviewer": shown,
        "is_self": shown == request.user,
        "page": page,
        "is_later": bool(data["cursor"]),
        "faults": faults,
        "unknown": form.unknown(),
        "query": query.urlencode(),
        "value": query.get("label", ""),
        "chips": chips(query, WORDS, {"label": dict(Label.choices)}),
        "labels": Label.choices,
    }
    return render_page(cast(HttpRequest, request), "quality/reviewer.html", context, partial="list")


def segments(work: Work) -> list[Segment]:
    """The bar of a reviewer's labels, in the order of the labels; what waits in blind queues last."""
    words = {**dict(Label.choices), HIDDEN: _("Waits in a blind queue")}
    found, x = [], 0.0
    for label, word in words.items():
        count = work.labels.get(label, 0)
        width = 100 * count / work.num_labels if work.num_labels else 0.0
        found.append(Segment(label=label, word=str(word), count=count, x=round(x, 2), width=round(width, 2)))
        x += width
    return found


def _days(form: PeriodForm) -> int:
    return form.cleaned_data["days"] or DEFAULT_DAYS if form.is_valid() else DEFAULT_DAYS


def _crew(request: TenantRequest, days: int) -> Crew:
    only = None if request.membership.may(Role.ADMIN) else request.user
    return crew(beginning(days), viewer=request.user, only=only)


def _reviewer(request: TenantRequest, pk: int) -> User:
    """Somebody who may label here, or once did; raises Http404, and PermissionDenied for another one's work."""
    belongs = Membership.objects.filter(user_id=pk).exists() or FeedbackEvent.objects.filter(reviewer_id=pk).exists()
    if not belongs:
        raise Http404("No such reviewer.")
    if pk != request.user.pk and not request.membership.may(Role.ADMIN):
        raise PermissionDenied(_("Another reviewer's work is for admins to see. Yours is on your own page."))
    return User.objects.get(pk=pk)


def _row(work: Work) -> list[Cell]:
    pace, rest = work.pace, work.rest
    nothing = Measure(value=None, n=0)
    counts = [work.labels.get(label, 0) for label in (*Label.values, HIDDEN)]
    measures = (work.notes, rest.kappa if rest else nothing, rest.raw if rest else nothing, work.taken)
    return [
        str(work.user),
        work.num_labels,
        *counts,
        pace.num_undone,
        pace.active.total_seconds(),
        pace.per_hour,
        pace.median_s,
        *(cell for measure in measures for cell in cells_of(measure)),
    ]
