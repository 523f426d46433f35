"""The export page: what would go out, how much of it, and the file itself."""

from typing import Any, cast

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_GET

from quality import calls, export
from quality.filters import CallListForm, FeedbackExportForm, QueryForm
from quality.models import Label
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.calls import filter_context, filter_query
from quality.streaming import stream
from tenants.models import Role
from tenants.scope import tenant_scope


@require_GET
@tenant_view(Role.ADMIN)
def export_page(request: TenantRequest) -> HttpResponse:
    """The filter, the count, and what a record holds."""
    form = CallListForm(request.GET)
    query = filter_query(request.GET)
    context: dict[str, Any] = filter_context(form, query) | {"label_choices": Label.choices}
    if form.is_valid():
        count = calls.count(form.wanted)
        context |= {"count": count, "capped": count > calls.COUNT_CAP, "count_cap": calls.COUNT_CAP}
    response = render(
        cast(HttpRequest, request), "quality/export.html#list" if request.htmx else "quality/export.html", context
    )
    if request.htmx:
        response["HX-Push-Url"] = f"{request.path}?{query.urlencode()}".removesuffix("?")
    return response


@require_GET
@tenant_view(Role.ADMIN, scope=False)
def export_calls(request: TenantRequest) -> HttpResponseBase:
    """The calls that match, as JSON lines with a trailer."""
    form = CallListForm(request.GET)
    if not form.is_valid():
        return _refused(request, form)
    with tenant_scope(request.tenant):
        lines = export.export_calls(wanted=form.wanted, part=export.Part(), actor=request.user)
    return stream(request, lines, content_type=export.MEDIA_TYPE, filename=f"{request.tenant.slug}-tool-calls.jsonl")


def _refused(request: TenantRequest, form: QueryForm) -> HttpResponse:
    """A slip in the address must not widen an export, so it is told back."""
    faults = " ".join(f"{fault['path']}: {fault['message']}" for fault in form.faults())
    return render(cast(HttpRequest, request), "400.html", {"exception": faults}, status=400)


@require_GET
@tenant_view(Role.ADMIN, scope=False)
def export_feedback(request: TenantRequest) -> HttpResponseBase:
    """Every current label with its call, as JSON lines with a trailer."""
    form = FeedbackExportForm(request.GET)
    if not form.is_valid():
        return _refused(request, form)
    with tenant_scope(request.tenant):
        lines = export.export_feedback(wanted=form.wanted, part=form.part, actor=request.user)
    name = f"{request.tenant.slug}-tool-call-feedback.jsonl"
    return stream(request, lines, content_type=export.MEDIA_TYPE, filename=name)
