"""The list of calls: filter, saved views, and what is chosen of it for a bulk action."""

from typing import Any, cast

from django import forms
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.views.decorators.http import require_GET

from quality import calls
from quality.filters import CallListForm
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.call_filter import filter_context, filter_query
from quality.pages.render import render_page
from quality.pages.views import opened, views_context, with_view
from quality.review.blind import seen_by, veiled_page
from quality.review.bulk.scope import MAX_ITEMS


class CallPageForm(CallListForm):
    """The filter and the place, on a page that knows saved views."""

    view = forms.CharField(required=False, max_length=20)


@require_GET
@tenant_view()
def call_list(request: TenantRequest) -> HttpResponseBase:
    """Calls newest first. Bad filters are told back with no rows: a wider list would be taken for the answer."""
    if elsewhere := opened(request, "calls"):
        return elsewhere
    form = CallPageForm(request.GET)
    query = filter_query(request.GET)
    context = filter_context(form, query) | {"unknown": form.unknown(), "page": None, "count": 0}
    context |= views_context(request, "calls", query)
    context["kept"] = [("view", request.GET["view"])] if request.GET.get("view") else []
    context["here"] = with_view(query, request).urlencode()
    for chip in context["chips"]:
        chip["without"] = with_view(QueryDict(chip["without"]), request).urlencode()
    if form.is_valid():
        context |= _found(request, form)
        context["has_any"] = bool(context["page"].rows) or bool(context["tools"])
    response = render_page(cast(HttpRequest, request), "quality/call_list.html", context, partial="list")
    if request.htmx:
        response["HX-Push-Url"] = f"{request.path}?{_address(request)}".removesuffix("?")
    return response


def _found(request: TenantRequest, form: CallPageForm) -> dict[str, Any]:
    wanted = seen_by(form.wanted, request.user)
    page = calls.find(wanted, cursor=form.cleaned_data["cursor"], page_size=form.page_size_or_default)
    count = calls.count(wanted)
    return {
        "page": veiled_page(page, request.user),
        "hints_asked": wanted.hints,
        "count": count,
        "capped": count > calls.COUNT_CAP,
        "count_cap": calls.COUNT_CAP,
        "max_items": MAX_ITEMS,
    }


def _address(request: TenantRequest) -> str:
    """The query string without empty fields, with the view that is open."""
    query = QueryDict(mutable=True)
    for name, values in request.GET.lists():
        if kept := [value for value in values if value]:
            query.setlist(name, kept)
    return with_view(query, request).urlencode()
