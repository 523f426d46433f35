"""The export page: what would go out, how much of it, and the file itself; at once, or made in the background."""

import json
from dataclasses import replace
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.serializers.json import DjangoJSONEncoder
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality import export, export_jobs
from quality.calls import tool_names
from quality.export import FILE_NAMES, Order, Reader
from quality.export_fields import FIELDS
from quality.export_http import send
from quality.filters import EXPORT_FORMS, CallListForm, ExportForm, QueryForm
from quality.models import CaseStatus, Export, ExportState, Label, ProposalState
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.call_filter import filter_context, filter_query
from quality.pages.render import render_page
from quality.streaming import stream
from tenants.models import Role
from tenants.scope import tenant_scope

KINDS = {
    "calls": gettext_lazy("Calls"),
    "feedback": gettext_lazy("Feedback"),
    "cases": gettext_lazy("Cases"),
    "proposals": gettext_lazy("Proposals"),
}
TITLES = {
    "calls": gettext_lazy("Export of calls"),
    "feedback": gettext_lazy("Export of feedback"),
    "cases": gettext_lazy("Export of cases"),
    "proposals": gettext_lazy("Export of proposals"),
}
WORDS = {
    "calls": gettext_lazy("with arguments, results and labels"),
    "feedback": gettext_lazy("each current label of each reviewer, with note, correction and the call it is on"),
    "cases": gettext_lazy("what a replay reads: input, observed and expected"),
    "proposals": gettext_lazy("tracked improvements and what became of them"),
}
STATUSES = {"cases": CaseStatus.choices, "proposals": ProposalState.choices}
NAMES = {"feedback": ("label", "from", "to"), "cases": ("status", "label", "tool")}
NAMES["proposals"] = NAMES["cases"]
NUM_JOBS = 20
EXAMPLE_CHARS = 1_500


@require_GET
@tenant_view(Role.ADMIN)
def export_page(request: TenantRequest) -> HttpResponse:
    """The filter, the count, and what a record holds."""
    kind = request.GET.get("what", "calls")
    if kind not in KINDS:
        raise Http404(_("No such export."))
    form, query, context = _filter(request, kind)
    context |= {
        "kind": kind,
        "kinds": [
            {"name": name, "word": word, "key": str(at), "is_current": name == kind}
            for at, (name, word) in enumerate(KINDS.items(), 1)
        ],
        "words": WORDS[kind],
        "filename": f"{request.tenant.slug}-{FILE_NAMES[kind]}.jsonl",
        "file_url": f"export-{kind}",
        "fields": FIELDS[kind].items(),
        "threshold": settings.EXPORT_JOB_ROWS,
    }
    if form.is_valid():
        order = export.as_seen(Order(wanted=form.wanted), request.user)
        count = export.count(order, cap=settings.EXPORT_JOB_ROWS)
        line = export.example(order, Reader(actor=request.user))
        context |= {
            "count": count,
            "is_large": count > settings.EXPORT_JOB_ROWS,
            "example": line and line[:EXAMPLE_CHARS],
            "example_rest": max(0, len(line or "") - EXAMPLE_CHARS),
        }
    context |= _jobs()
    template = "quality/export.html"
    response = render_page(cast(HttpRequest, request), template, context, partial="list")
    if request.htmx:
        if kind != "calls":
            query["what"] = kind
        response["HX-Push-Url"] = f"{request.path}?{query.urlencode()}".removesuffix("?")
    return response


def _filter(request: TenantRequest, kind: str) -> tuple[CallListForm | ExportForm, QueryDict, dict[str, Any]]:
    """The form of this kind's filter, the filter as a query string, and what its fields show."""
    if kind == "calls":
        form = CallListForm(_without(request.GET, "what"))
        query = filter_query(request.GET)
        return form, query, filter_context(form, query)
    query = QueryDict(mutable=True)
    for name in NAMES[kind]:
        if values := [value for value in request.GET.getlist(name) if value.strip()]:
            query.setlist(name, values)
    form_of_kind = EXPORT_FORMS[kind](_without(request.GET, "what"))
    context = {
        "form": form_of_kind,
        "query": query.urlencode(),
        "values": {name: query.get(name, "") for name in NAMES[kind]},
        "names": NAMES[kind],
        "labels": Label.choices,
        "statuses": STATUSES.get(kind, []),
        "tools": tool_names(),
    }
    return form_of_kind, query, context


def _without(data: QueryDict, name: str) -> QueryDict:
    rest = data.copy()
    rest.pop(name, None)
    return rest


def _jobs() -> dict[str, Any]:
    """The newest files; one query."""
    jobs = list(Export.objects.select_related("created_by").order_by("-created_at", "-id")[:NUM_JOBS])
    return {"jobs": [_shown(job) for job in jobs]}


def _shown(job: Export) -> dict[str, Any]:
    expected = job.num_expected or 0
    return {
        "job": job,
        "kind": KINDS[job.kind],
        "title": TITLES[job.kind],
        "cap": export_jobs.COUNT_CAP,
        "is_live": job.state in export_jobs.LIVE,
        "is_there": export_jobs.is_there(job),
        "filter": [(name, value) for name, values in QueryDict(job.query).lists() for value in values],
        "percent": min(100, 100 * job.num_written // expected) if expected else 0,
        "filename": export_jobs.order_of(job).filename,
        "capped": expected > export_jobs.COUNT_CAP,
    }


@require_GET
@tenant_view(Role.ADMIN, scope=False)
def export_file(request: TenantRequest, kind: str, *, as_csv: bool = False) -> HttpResponseBase:
    """What matches, as JSON lines with a trailer or, of feedback, as CSV."""
    form = EXPORT_FORMS[kind](request.GET)
    if not form.is_valid():
        return _refused(request, form)
    order = replace(form.order, as_csv=as_csv)
    name = f"{request.tenant.slug}-{order.filename}"
    return send(request, order, tenant=request.tenant, reader=Reader(actor=request.user), filename=name)


def _refused(request: TenantRequest, form: QueryForm) -> HttpResponse:
    """A slip in the address must not widen an export, so it is told back."""
    faults = " ".join(f"{fault['path']}: {fault['message']}" for fault in form.faults())
    return render(cast(HttpRequest, request), "400.html", {"exception": faults}, status=400)


@require_POST
@tenant_view(Role.ADMIN)
def export_order(request: TenantRequest) -> HttpResponse:
    """Have the file made in the background, and go where it can be followed."""
    kind, as_csv = request.POST.get("what", ""), request.POST.get("format") == "csv"
    if kind not in KINDS or (as_csv and kind != "feedback"):
        raise Http404(_("No such export."))
    form = EXPORT_FORMS[kind](QueryDict(request.POST.get("query")))
    if not form.is_valid():
        return _refused(request, form)
    try:
        job = export_jobs.order_export(Order(wanted=form.wanted, as_csv=as_csv), actor=request.user)
    except export_jobs.TooManyExports as refusal:
        messages.error(cast(HttpRequest, request), str(refusal))
        return redirect("export", slug=request.tenant.slug)
    return redirect("export-detail", slug=request.tenant.slug, pk=job.pk)


@require_GET
@tenant_view(Role.ADMIN)
def export_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """One file: progress while it is made, then what it is."""
    return render(cast(HttpRequest, request), "quality/export_detail.html", _shown(_job(pk)))


@require_GET
@tenant_view(Role.ADMIN)
def export_progress(request: TenantRequest, pk: int) -> HttpResponse:
    """The part of the page that changes; asked for again and again until the file is made."""
    template = "quality/export_detail.html#progress" if request.htmx else "quality/export_detail.html"
    return render(cast(HttpRequest, request), template, _shown(_job(pk)))


@require_POST
@tenant_view(Role.ADMIN)
def export_cancel(request: TenantRequest, pk: int) -> HttpResponse:
    """Stop the making of a file."""
    if not export_jobs.cancel_export(_job(pk), actor=request.user):
        messages.info(cast(HttpRequest, request), _("It had ended already."))
    return redirect("export-detail", slug=request.tenant.slug, pk=pk)


@require_GET
@tenant_view(Role.ADMIN, scope=False)
def export_fetch(request: TenantRequest, pk: int) -> HttpResponseBase:
    """The file, to be saved."""
    with tenant_scope(request.tenant):
        job = _job(pk)
        if not export_jobs.is_there(job):
            raise Http404(_("This file is not there: it is not made yet, or its week is over. Order the export again."))
        if not export_jobs.may_fetch(job, request.user):
            told = _("In this file are labels that a blind queue keeps from you. Order a file of your own.")
            raise PermissionDenied(told)
        order = export_jobs.order_of(job)
        try:
            file = export_jobs.stored_path(job.stored_as).open("rb")
        except OSError as error:
            raise Http404(_("The file of this export is gone. Order the export again.")) from error
        export_jobs.downloaded(job, actor=request.user)
    return stream(
        request,
        export_jobs.pieces_of(file),
        content_type=order.media_type,
        filename=f"{request.tenant.slug}-{order.filename}",
        headers={"Content-Length": str(job.num_bytes)},
    )


@require_GET
@tenant_view(Role.ADMIN)
def export_manifest(request: TenantRequest, pk: int) -> HttpResponse:
    """What the file is: filter, rows, checksum, form."""
    job = _job(pk)
    if job.state not in (ExportState.DONE, ExportState.EXPIRED):
        raise Http404(_("There is no manifest before the file is made."))
    text = json.dumps(export_jobs.manifest(job), indent=2, ensure_ascii=False, cls=DjangoJSONEncoder)
    response = HttpResponse(f"{text}\n".encode(), content_type="application/json; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{request.tenant.slug}-export-{pk}-manifest.json"'
    return response


def _job(pk: int) -> Export:
    return get_object_or_404(Export.objects.select_related("created_by"), pk=pk)
