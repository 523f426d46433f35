"""Saved views over a list: tabs, what is done with the open one, and the page of all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from quality.filters import CallFilterForm, QueryForm
from quality.models import SavedView, ViewPage
from quality.pages import call_filter
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import chips as in_words
from quality.pages.conditions import conditions
from quality.review import views
from quality.review.views import NoSuchView

ALL = "none"  # the view of everything, where a page begins with another one


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A page that has views: its address, the form that reads its filter, and what of an address the filter is."""

    url: str
    form: type[QueryForm]
    query: Callable[[QueryDict], QueryDict]
    chips: Callable[[QueryDict], list[dict[str, str]]]


def _listed(page: str) -> Listed:
    if page != ViewPage.TURNS:
        url = "call-list" if page == ViewPage.CALLS else "review"
        return Listed(url=url, form=CallFilterForm, query=call_filter.filter_query, chips=call_filter.chips)
    from quality.pages import turns

    return Listed(
        url="turn-list",
        form=turns.TurnFilterForm,
        query=lambda data: conditions(data, turns.FILTER_WORDS),
        chips=lambda query: in_words(query, turns.FILTER_WORDS, turns.SHOWN),
    )


# --- over a list ------------------------------------------------------------------------------------------------------
def opened(request: TenantRequest, page: str) -> HttpResponseBase | None:
    """Where an address that only names a view leads: to its filter, spelled out. So does the bare address, for whom the
    page begins with a view. None: the address is the list itself."""
    named = request.GET.get("view", "")
    if request.htmx or set(request.GET) - {"view"} or named == ALL:
        return None
    if not named:
        view = views.default_of(request.user, page)
        return _spelled_out(request, view, page) if view else None
    view = _found(request, named, page)
    if view is None:
        messages.warning(request, _("There is no such view. It was deleted, or it is somebody else's."))
        return redirect(f"{reverse(_listed(page).url, args=[request.tenant.slug])}?view={ALL}")
    return _spelled_out(request, view, page) if view.query else None


def _found(request: TenantRequest, named: str, page: str) -> SavedView | None:
    if not (named.isascii() and named.isdecimal() and len(named) < 19):
        return None
    try:
        view = views.view_of(int(named), request.user)
    except NoSuchView:
        return None
    return view if view.page == page else None


def _spelled_out(request: TenantRequest, view: SavedView, page: str) -> HttpResponse | None:
    """To the filter of a view. None: nothing of it is understood any more, and the address is the view's already."""
    query, dropped = usable(view.query, page)
    is_here = not query and request.GET.get("view") == str(view.pk)
    if dropped and (query or is_here):
        said = ", ".join(dropped)
        words = ngettext(
            "The view asks for something that is no filter any more, and goes without it: %(said)s.",
            "The view asks for some things that are no filter any more, and goes without them: %(said)s.",
            len(dropped),
        )
        messages.warning(request, words % {"said": said})
    if is_here:
        return None
    query["view"] = str(view.pk)
    return redirect(f"{reverse(_listed(page).url, args=[request.tenant.slug])}?{query.urlencode()}")


def usable(text: str, page: str) -> tuple[QueryDict, list[str]]:
    """What of a kept filter the page still understands, and what it does not, as `name=value`."""
    listed = _listed(page)
    kept, dropped = QueryDict(mutable=True), []
    for name, values in QueryDict(text).lists():
        for value in values:
            alone = QueryDict(mutable=True)
            alone[name] = value
            form = listed.form(alone)
            if form.is_valid() and not form.unknown():
                kept.appendlist(name, value)
            else:
                dropped.append(f"{name}={value}")
    return kept, dropped


def with_view(query: QueryDict, request: TenantRequest) -> QueryDict:
    """A query string with the view that is open, so that its tab stays where it is while the filter changes."""
    query = query.copy()
    if view := request.GET.get("view", ""):
        query["view"] = view
    return query


def views_context(request: TenantRequest, page: str, query: QueryDict) -> dict[str, Any]:
    """What the component of views shows over a list; two queries."""
    found = views.visible(request.user, page)
    open_one = next((view for view in found if str(view.pk) == request.GET.get("view")), None)
    default = views.default_of(request.user, page)
    address = reverse(_listed(page).url, args=[request.tenant.slug])
    return {
        "views": {
            "page": page,
            "tabs": [(view, f"{address}?view={view.pk}") for view in found if view.is_pinned or view == open_one],
            "has_more": any(not view.is_pinned for view in found),
            "all_url": f"{address}?view={ALL}" if default else address,
            "open": open_one,
            "is_default": default is not None and default == open_one,
            "is_changed": open_one is not None and not _same(query, open_one.query),
            "may_change": open_one is not None and views.may_change(open_one, request.membership),
            "query": query.urlencode(),
        }
    }


def _same(query: QueryDict, text: str) -> bool:
    return {name: sorted(values) for name, values in query.lists()} == {
        name: sorted(values) for name, values in QueryDict(text).lists()
    }


# --- pages ------------------------------------------------------------------------------------------------------------
@require_GET
@tenant_view()
def view_list(request: TenantRequest) -> HttpResponse:
    """All views that this person sees, with what they ask for in words."""
    defaults = {view.pk for page in ViewPage.values if (view := views.default_of(request.user, page))}
    rows = [
        {
            "view": view,
            "url": f"{reverse(_listed(view.page).url, args=[request.tenant.slug])}?view={view.pk}",
            "chips": _listed(view.page).chips(QueryDict(view.query)),
            "may_change": views.may_change(view, request.membership),
            "is_default": view.pk in defaults,
        }
        for view in views.visible(request.user)
    ]
    deleted = request.session.pop("deleted_view", None)
    context = {"rows": rows, "deleted": deleted if deleted and deleted["tenant"] == request.tenant.pk else None}
    return render(cast(HttpRequest, request), "quality/view_list.html", context)


class SaveForm(forms.Form):
    page = forms.ChoiceField(choices=ViewPage.choices)
    name = forms.CharField(required=False, max_length=400)
    query = forms.CharField(required=False, max_length=views.MAX_QUERY_CHARS)
    shared = forms.BooleanField(required=False)


@require_POST
@tenant_view()
def view_save(request: TenantRequest) -> HttpResponse:
    """Keep the filter of a list under a name, and open it."""
    form = SaveForm(request.POST)
    if not form.is_valid():
        raise Http404("There is no such list.")
    data = form.cleaned_data
    query = _listed(data["page"]).query(QueryDict(data["query"]))
    try:
        view = views.save(
            page=data["page"],
            name=data["name"],
            query=query.urlencode(),
            is_shared=data["shared"],
            by=request.membership,
        )
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return redirect(f"{reverse(_listed(data['page']).url, args=[request.tenant.slug])}?{query.urlencode()}")
    messages.success(request, _("The view %(name)s is saved.") % {"name": view.name})
    return redirect(_address(request, view))


def _address(request: TenantRequest, view: SavedView) -> str:
    return f"{reverse(_listed(view.page).url, args=[request.tenant.slug])}?view={view.pk}"


STEPS = ("update", "rename", "share", "unshare", "pin", "unpin", "begin", "not-begin", "delete", "restore")
_FIELDS: dict[str, dict[str, Any]] = {
    "share": {"is_shared": True},
    "unshare": {"is_shared": False},
    "pin": {"is_pinned": True},
    "unpin": {"is_pinned": False},
}


@require_POST
@tenant_view()
def view_step(request: TenantRequest, pk: int, step: str) -> HttpResponse:
    """Change, delete or restore one view."""
    try:
        if step == "restore":
            return redirect(_address(request, views.restore(pk, by=request.membership)))
        view = views.view_of(pk, request.user)
    except NoSuchView as error:
        raise Http404(str(error)) from error
    try:
        return _carried_out(request, view, step)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return redirect(_back(request, view))


def _carried_out(request: TenantRequest, view: SavedView, step: str) -> HttpResponse:
    by = request.membership
    if step == "delete":
        views.delete(view, by=by)
        request.session["deleted_view"] = {"tenant": request.tenant.pk, "pk": view.pk, "name": view.name}
        return redirect("view-list", slug=request.tenant.slug)
    if step in ("begin", "not-begin"):
        views.begin_with(view, request.user, is_default=step == "begin")
    elif step == "update":
        views.change(view, by=by, query=_listed(view.page).query(QueryDict(request.POST.get("query", ""))).urlencode())
    elif step == "rename":
        views.change(view, by=by, name=request.POST.get("name", ""))
    else:
        views.change(view, by=by, **_FIELDS[step])
    return redirect(_back(request, view))


def _back(request: TenantRequest, view: SavedView) -> str:
    """To where it was pressed: the page of all views, or the list."""
    return reverse("view-list", args=[request.tenant.slug]) if request.POST.get("listed") else _address(request, view)
