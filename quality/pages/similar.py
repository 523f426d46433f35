"""Calls like one: why each is there, and what is done with them in bulk."""

from typing import Any, cast

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET

from quality.calls import CallPage, CallRow
from quality.filters import CursorField
from quality.improve.faults import describe_fault, spoken
from quality.models import ToolCall
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.render import render_page
from quality.review import similar
from quality.review.blind import veiled_page
from quality.review.hints import BY_NAME
from quality.review.similar import BY, Likeness, Similar
from tenants.models import User


class SimilarForm(forms.Form):
    """Which likeness counts (by default any), and how far back."""

    unlabelled = forms.BooleanField(required=False)
    cursor = CursorField(required=False, max_length=200)


class Line:
    """A call of the list with what it is there for: all that a row has, and `why`."""

    def __init__(self, row: CallRow, why: str) -> None:
        self.row, self.why = row, why

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, name)


@require_GET
@tenant_view()
def call_similar(request: TenantRequest, pk: int) -> HttpResponse:
    """Calls like this one, the most similar first."""
    call = ToolCall.objects.filter(pk=pk).values("pk", "tool_name").first()
    if call is None:
        raise Http404("There is no such call.")
    form = SimilarForm(request.GET)
    data: dict[str, Any] = form.cleaned_data if form.is_valid() else {"unlabelled": False, "cursor": None}
    asked = [name for name in request.GET.getlist("by") if name in BY] or list(BY)
    found = similar.find(pk, user=request.user, by=asked, unlabelled=data["unlabelled"], cursor=data["cursor"])
    query = QueryDict(mutable=True)
    query.setlist("by", asked if asked != list(BY) else [])
    if data["unlabelled"]:
        query["unlabelled"] = "1"
    context: dict[str, Any] = {
        "call": call,
        "found": found,
        "rows": _lines(found.calls, call["tool_name"], request.user),
        "asked": asked,
        "unlabelled": data["unlabelled"],
        "query": query.urlencode(),
        "values": {},
        "window": similar.WINDOW,
        "max_shown": similar.MAX_SHOWN,
    }
    return render_page(cast(HttpRequest, request), "quality/call_similar.html", context, partial="list")


def _lines(found: Any, tool: str, user: User) -> list[Line]:
    whole = list(found)
    rows = veiled_page(CallPage(rows=[one.row for one in whole], next=None, previous=None), user).rows
    return [Line(row, explained(one, tool)) for row, one in zip(rows, whole, strict=True)]


def explained(one: Similar, tool: str) -> str:
    """Why a call is similar, in a line: same tool · same fault … · 9 of 10 arguments equal."""
    like = one.likeness
    parts = [_("same tool"), *(_fault(fault, tool) for fault in like.faults)]
    if like.error:
        parts.append(_("same kind of error"))
    if like.same_shape and not like.whole:
        parts.append(_("no arguments in either"))
    elif like.equal:
        parts.append(_arguments(like))
    elif like.same_shape:
        parts.append(_("same arguments with other values"))
    return " · ".join(parts)


def _fault(fault: str, tool: str) -> str:
    kind, _colon, rest = fault.partition(":")
    if kind != "hint":
        label = {"arg": "bad_args", "tool": "wrong_tool", "missing": "missing_tool"}.get(kind, "other")
        return _("same fault: %(fault)s") % {"fault": describe_fault(label, tool, fault)}
    rule, _colon, path = rest.partition(":")
    word = str(BY_NAME[rule].word)
    where = spoken(path)
    if where:
        return _("same hint: %(word)s, %(where)s") % {"word": word, "where": where}
    return _("same hint: %(word)s") % {"word": word}


def _arguments(like: Likeness) -> str:
    words = ngettext("%(equal)s of %(whole)s argument equal", "%(equal)s of %(whole)s arguments equal", like.whole)
    return words % {"equal": like.equal, "whole": like.whole}
