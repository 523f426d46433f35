"""One case in a replay: what is expected, what each sample did, both sides beside each other, what people say of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality.cases.attempt import BadAttempt
from quality.cases.record import Case as CaseRecord
from quality.models import Case, CaseVersion, Replay, ReplayCase, ReplayFinding, ReplaySample, ReplaySide
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.replays import filter_of, replay_at, sides_of
from quality.replay import findings, judging, matrix, sample_view
from quality.replay.findings import FAILING, FindingConflict
from quality.replay.matrix import Cell, Row, RowFilter
from quality.replay.sample_view import SampleView, Sent
from tenants.models import Role

_FAILING: Final = {str(verdict) for verdict in FAILING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One side of the page: its samples, and the one that is shown (None: there is none yet). `votes` are what a judge
    model said of it."""

    side: ReplaySide
    cell: Cell
    links: list[dict[str, Any]]
    sample: ReplaySample | None
    view: SampleView | None
    sent: Sent | None
    votes: list[dict[str, Any]]


@require_GET
@tenant_view()
def replay_case(request: TenantRequest, pk: int, number: int) -> HttpResponse:
    return _page(request, pk, number)


def _page(
    request: TenantRequest,
    pk: int,
    number: int,
    *,
    note: str = "",
    settle_note: str = "",
    fault: str = "",
    status: int = 200,
) -> HttpResponse:
    """The page; of a form that was refused with what it held, in the place that it was sent from."""
    replay = replay_at(pk)
    place = request.GET if request.method == "GET" else QueryDict(request.POST.get("back", ""))
    case = _case_of(replay, number)
    wanted, query = filter_of(place)
    row = matrix.row_of(replay, case, sides=[side.name for side in sides_of(replay)])
    record = _record(case)
    around = matrix.neighbours(replay, wanted if query else RowFilter(show=(matrix.TROUBLE,)), number)
    columns = _columns(replay, row, record, place)
    failing = next((column.sample for column in reversed(columns) if _is_failing(column.sample)), None)
    context = {
        "replay": replay,
        "row": row,
        "case": case,
        "now": Case.objects.only("number", "version", "status").get(pk=case.case_id),
        "expected": sample_view.expected_of(record) if record else None,
        "columns": columns,
        "judge": judging.told(replay, [record]) if record and record.expectation.needs_judge else None,
        "query": query,
        "around": around,
        "is_filtered": bool(query),
        "failing": failing,
        "may_confirm": failing is not None or case.standing == "failed",
        "note": note,
        "settle_note": settle_note,
        "fault": fault,
        "back": place.urlencode(),
    } | _said(replay, case)
    return render(cast(HttpRequest, request), "quality/replay_case.html", context, status=status)


def _said(replay: Replay, case: ReplayCase) -> dict[str, Any]:
    """What was said of it here, and the dispute that stands open, wherever it was raised."""
    here = findings.of_replay(replay, case.number)
    standing = findings.open_dispute(case.case_id)
    elsewhere = standing if standing is not None and all(one.pk != standing.pk for one in here) else None
    return {"findings": here, "dispute": standing, "elsewhere": elsewhere, "outcomes": ReplayFinding.Outcome.choices}


def _case_of(replay: Replay, number: int) -> ReplayCase:
    return get_object_or_404(ReplayCase, replay=replay, number=number)


def _record(case: ReplayCase) -> CaseRecord | None:
    """The case as it was when it was replayed."""
    version = CaseVersion.objects.filter(case_id=case.case_id, number=case.version).first()
    return sample_view.case_of(version.data) if version else None


def _columns(replay: Replay, row: Row, record: CaseRecord | None, place: QueryDict) -> list[Column]:
    """Each side with the sample that the address names; the other side shows its own of the same number."""
    sides, (_, query) = sides_of(replay), filter_of(place)
    named, index = place.get("side", ""), _index(place.get("sample", ""))
    other = _index(place.get("other", ""))
    chosen: dict[str, int | None] = {}
    for side, cell in zip(sides, row.cells, strict=True):
        there = [mark.index for mark in (*cell.marks, *cell.fresh)]
        is_named = side.name == named or not named
        asked = index if is_named or other is None else other
        chosen[side.name] = asked if asked in there else _first_failing(cell)
    return [
        _column(replay, row.case, record, side=side, cell=cell, links=_links(side.name, cell, chosen, query))
        for side, cell in zip(sides, row.cells, strict=True)
    ]


def _links(side: str, cell: Cell, chosen: dict[str, int | None], query: str) -> list[dict[str, Any]]:
    return [
        {
            "mark": mark,
            "is_shown": mark.index == chosen[side],
            "is_first_fresh": mark in cell.fresh[:1],
            "url": _address(side, mark.index, chosen, query),
        }
        for mark in (*cell.marks, *cell.fresh)
    ]


def _column(
    replay: Replay,
    case: ReplayCase,
    record: CaseRecord | None,
    *,
    side: ReplaySide,
    cell: Cell,
    links: list[dict[str, Any]],
) -> Column:
    index = next((link["mark"].index for link in links if link["is_shown"]), None)
    sample = None
    if index is not None:
        sample = ReplaySample.objects.filter(replay_case=case, side=side.name, index=index).first()
    tools = ReplaySide.objects.filter(pk=side.pk).values_list("tools", flat=True).first()
    if tools is None and record:
        tools = json.dumps(record.tools)
    return Column(
        side=side,
        cell=cell,
        links=links,
        sample=sample,
        view=sample_view.sample_of(sample.data, sample.verdict, sample.reasons, tools) if sample else None,
        sent=sample_view.sent_of(record, side.system_prompt) if record else None,
        votes=_votes(replay, record, sample, tools) if sample and record else [],
    )


def _votes(replay: Replay, record: CaseRecord, sample: ReplaySample, tools: str | None) -> list[dict[str, Any]]:
    try:
        return judging.votes_on(replay, record, sample, tools)
    except BadAttempt:  # the view says so
        return []


def _address(side: str, index: int, chosen: dict[str, int | None], query: str) -> str:
    """The same page with another sample on this side; the other side stays."""
    found = QueryDict(query, mutable=True)
    found["side"], found["sample"] = side, str(index)
    rest = [at for name, at in chosen.items() if name != side and at is not None]
    if rest:
        found["other"] = str(rest[0])
    return found.urlencode()


def _index(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _first_failing(cell: Cell) -> int | None:
    marks = [*cell.marks, *cell.fresh]
    failing = [mark.index for mark in marks if mark.verdict in _FAILING]
    return failing[0] if failing else marks[0].index if marks else None


def _is_failing(sample: ReplaySample | None) -> bool:
    return sample is not None and sample.verdict in _FAILING


# What people say of it.

_SAY: Final[dict[str, Callable[..., ReplayFinding]]] = {"dispute": findings.dispute, "confirm": findings.confirm}
_SAID: Final[dict[str, str | Promise]] = {
    "dispute": gettext_lazy("%(ref)s: the expectation is disputed. It stands open until somebody settles it."),
    "confirm": gettext_lazy("%(ref)s: the failure is confirmed."),
}


@require_POST
@tenant_view(Role.OPERATOR)
def replay_finding(request: TenantRequest, pk: int, number: int, kind: str) -> HttpResponse:
    """Say that the expectation is what is wrong, or that the failure is one."""
    replay = replay_at(pk)
    case = _case_of(replay, number)
    note, sample = request.POST.get("note", ""), request.POST.get("sample", "")
    try:
        _SAY[kind](replay, number, sample_id=int(sample) if _is_id(sample) else None, note=note, by=request.user)
    except FindingConflict as conflict:
        return _page(request, pk, number, note=note, fault=str(conflict), status=409)
    except ValidationError as error:
        return _page(request, pk, number, note=note, fault=" ".join(error.messages), status=400)
    messages.success(cast(HttpRequest, request), str(_SAID[kind]) % {"ref": case.ref})
    return redirect(_back(request, replay, number))


@require_POST
@tenant_view(Role.OPERATOR)
def finding_settle(request: TenantRequest, pk: int) -> HttpResponse:
    """Close a dispute: the expectation was changed, it holds, or the dispute is withdrawn."""
    finding = ReplayFinding.objects.select_related("case", "replay").filter(pk=pk).first()
    if finding is None:
        raise Http404(_("There is no such finding."))
    note, number = request.POST.get("note", ""), finding.case.number
    try:
        findings.settle(finding, outcome=request.POST.get("outcome", ""), note=note, by=request.user)
    except FindingConflict as conflict:
        return _page(request, finding.replay_id, number, settle_note=note, fault=str(conflict), status=409)
    except ValidationError as error:
        return _page(request, finding.replay_id, number, settle_note=note, fault=" ".join(error.messages), status=400)
    messages.success(cast(HttpRequest, request), _("The dispute is settled."))
    return redirect(_back(request, finding.replay, number))


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _back(request: TenantRequest, replay: Replay, number: int) -> str:
    """The page of the case, with the sample and the filter that the form was sent from."""
    address = reverse("replay-case", args=[request.tenant.slug, replay.pk, number])
    query = request.POST.get("back", "")
    return f"{address}?{QueryDict(query).urlencode()}" if query else address
