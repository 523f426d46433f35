"""The door of every page of a tenant: who may enter, the scope that is open while they are in, and what they are spared
of evidence."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django_htmx.http import HttpResponseClientRefresh
from django_htmx.middleware import HtmxDetails

from quality.stored import is_unknown_mark
from tenants import masks
from tenants.access import membership_in
from tenants.masking.reading import reading_as
from tenants.models import Membership, Role, Tenant, User
from tenants.scope import tenant_scope


class TenantRequest(HttpRequest):
    """A request that came through the door."""

    tenant: Tenant
    membership: Membership
    user: User
    htmx: HtmxDetails


type TenantView = Callable[..., HttpResponseBase]


def tenant_view(role: Role = Role.VIEWER, *, scope: bool = True) -> Callable[[TenantView], TenantView]:
    """Resolve `slug` to a membership of the signed-in user and run the view inside the tenant's scope.

    No membership is 404, as if there were no such tenant; a lesser role than `role` is 403. The scope is one database
    transaction: a view that streams or calls out takes `scope=False` and opens short scopes of its own.
    """

    def decorate(view: TenantView) -> TenantView:
        @wraps(view)
        def guarded(request: Any, slug: str, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                # htmx would follow a redirect and put the sign-in form into the middle of the page.
                return HttpResponseClientRefresh() if request.htmx else redirect_to_login(request.get_full_path())
            membership = membership_in(slug, request.user)
            if membership is None:
                raise Http404("No such page.")
            request.membership, request.tenant = membership, membership.tenant
            if not membership.may(role):
                told = _("This needs the role %(role)s; yours is %(yours)s.")
                raise PermissionDenied(told % {"role": role.label, "yours": Role(membership.role).label})
            try:
                with reading_as(masks.for_member(membership)):
                    return _answered(view, request, kwargs, scope=scope)
            except ValidationError as error:
                if not is_unknown_mark(error):
                    raise
                return render(request, "400.html", {"exception": " ".join(error.messages)}, status=400)

        return guarded

    return decorate


def _answered(view: TenantView, request: TenantRequest, kwargs: Mapping[str, Any], *, scope: bool) -> HttpResponseBase:
    if not scope:
        return view(request, **kwargs)
    with tenant_scope(request.tenant):
        response = view(request, **kwargs)
        if isinstance(response, TemplateResponse):
            response.render()  # lazy queries of the template belong to the scope
        return response
