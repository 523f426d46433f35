"""API tokens of a tenant: made, shown once, revoked."""

import datetime as dt
from typing import cast

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality.pages.access import TenantRequest, tenant_view
from tenants.models import ApiToken, Role, Scope
from tenants.tokens import issue_token, revoke_token

LIVES = {
    "7": gettext_lazy("7 days"),
    "30": gettext_lazy("30 days"),
    "90": gettext_lazy("90 days"),
    "365": gettext_lazy("1 year"),
    "": gettext_lazy("no expiry"),
}


class TokenForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=120,
        help_text=gettext_lazy("Where it will be used, such as “CI of the shop agent”."),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"), choices=Scope.choices, widget=forms.CheckboxSelectMultiple
    )
    life = forms.ChoiceField(
        label=gettext_lazy("Expires after"), choices=list(LIVES.items()), initial="90", required=False
    )

    rate_per_minute = forms.IntegerField(
        label=gettext_lazy("Requests a minute through the gateway"),
        required=False,
        min_value=1,
        max_value=100_000,
        help_text=gettext_lazy("For the scope gateway. Empty: as the service is set."),
    )

    def expires_at(self) -> dt.datetime | None:
        days = self.cleaned_data["life"]
        return timezone.now() + dt.timedelta(days=int(days)) if days else None


def _page(request: TenantRequest, form: TokenForm, *, text: str = "") -> HttpResponse:
    context = {
        "tokens": ApiToken.objects.select_related("created_by").order_by("revoked_at", "-created_at")[:200],
        "form": form,
        "text": text,
        "now": timezone.now(),
    }
    return render(cast(HttpRequest, request), "people/tokens.html", context)


@require_GET
@tenant_view(Role.ADMIN)
def token_list(request: TenantRequest) -> HttpResponse:
    return _page(request, TokenForm())


@require_POST
@tenant_view(Role.ADMIN)
def token_create(request: TenantRequest) -> HttpResponse:
    """Makes a token and shows its text, this once."""
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, form)
    _, text = issue_token(
        name=form.cleaned_data["name"],
        scopes=form.cleaned_data["scopes"],
        created_by=request.user,
        expires_at=form.expires_at(),
        rate_per_minute=form.cleaned_data["rate_per_minute"],
    )
    return _page(request, TokenForm(), text=text)


@require_POST
@tenant_view(Role.ADMIN)
def token_revoke(request: TenantRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(ApiToken.objects.all(), pk=pk)
    if revoke_token(token=token, actor=request.user):
        messages.success(request, _("Token “%(name)s” is revoked.") % {"name": token.name})
    return redirect("token-list", slug=request.tenant.slug)
