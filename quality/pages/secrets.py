"""Secrets of a tenant: set, replaced, deleted. No page, and no answer of the API, ever shows a value."""

from typing import cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST

from quality.pages.access import TenantRequest, tenant_view
from tenants import secrets, tools
from tenants.envelope import NoKeys
from tenants.models import Purpose, Role, Secret, SecretUse

MAX_SHOWN = 200


class SecretForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=64,
        help_text=gettext_lazy("Tools refer to it as {secret:NAME} in a header. Letters, digits and _ only."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    value = forms.CharField(
        label=gettext_lazy("Value"),
        strip=False,
        max_length=secrets.MAX_VALUE,
        help_text=gettext_lazy("Shown to nobody from here on, you included."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


def _page(request: TenantRequest, form: SecretForm) -> HttpResponse:
    uses = SecretUse.objects.order_by("tool_name", "origin")
    context = {
        "secrets": Secret.objects.filter(purpose=Purpose.TOOL)
        .select_related("set_by")
        .prefetch_related(Prefetch("uses", queryset=uses))
        .order_by("name")[:MAX_SHOWN],
        "form": form,
    }
    return render(cast(HttpRequest, request), "settings/secrets.html", context)


@require_GET
@tenant_view(Role.ADMIN)
def secret_list(request: TenantRequest) -> HttpResponse:
    """`?name=` fills in the name: a tool that lacks a secret links to it."""
    return _page(request, SecretForm(initial={"name": request.GET.get("name", "")}))


@require_POST
@sensitive_post_parameters("value")
@tenant_view(Role.ADMIN)
def secret_set(request: TenantRequest) -> HttpResponse:
    """Sets a new secret, or gives one that exists another value."""
    form = SecretForm(request.POST)
    if not form.is_valid():
        return _page(request, form)
    name = form.cleaned_data["name"]
    try:
        tools.set_tool_secret(name=name, value=form.cleaned_data["value"], actor=request.user)
    except ValidationError as error:
        form.add_error(None, error)
        return _page(request, form)
    except NoKeys as error:
        form.add_error(None, str(error))
        return _page(request, form)
    messages.success(request, _("%(name)s is set.") % {"name": name})
    return redirect("secret-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def secret_delete(request: TenantRequest, pk: int) -> HttpResponse:
    secret = get_object_or_404(Secret.objects.filter(purpose=Purpose.TOOL), pk=pk)
    secrets.delete_secret(secret=secret, actor=request.user)
    told = _("%(name)s is deleted. Tools that refer to it fail until it is set again.")
    messages.success(request, told % {"name": secret.name})
    return redirect("secret-list", slug=request.tenant.slug)
