"""The models of a tenant: where they are, which one answers whom, and whether they work."""

import asyncio
import json
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST

from engine.strict_json import JsonError, read_json
from quality.gateway import days
from quality.pages.access import TenantRequest, tenant_view
from quality.turns import breaker
from tenants import endpoints, outbound
from tenants.envelope import NoKeys, SecretInvalid
from tenants.models import ModelEndpoint, Role
from tenants.probe import ProbeReport, probe_endpoint
from tenants.scope import tenant_scope

MAX_SHOWN = 100
SWITCHES = ("repairs_text_calls", "asks_again_when_empty", "checks_arguments")  # of the gateway


class EndpointForm(forms.Form):
    """Fields as `EndpointData` has them; an empty key leaves the one there is."""

    label = forms.CharField(
        label=gettext_lazy("Label"),
        max_length=40,
        help_text=gettext_lazy("Turns choose the model by it, such as “expert”."),
    )
    base_url = forms.CharField(
        label=gettext_lazy("Base URL"),
        max_length=2000,
        help_text=gettext_lazy("Up to /chat/completions."),
        widget=forms.URLInput(attrs={"placeholder": "https://llm.example.com/v1", "spellcheck": "false"}),
    )
    model = forms.CharField(
        label=gettext_lazy("Model"), max_length=200, help_text=gettext_lazy("The model’s name, as the server knows it.")
    )
    key = forms.CharField(
        label=gettext_lazy("Key"),
        required=False,
        max_length=4000,
        help_text=gettext_lazy("Kept sealed. Left empty: stays as it is. With another host it has to be given again."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    drop_key = forms.BooleanField(label=gettext_lazy("Take the key away"), required=False)
    parameters = forms.CharField(
        label=gettext_lazy("Parameters"),
        required=False,
        max_length=endpoints.MAX_PARAMETERS,
        help_text=gettext_lazy("JSON, sent along as it is: temperature, max_tokens, …"),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "mono", "placeholder": "{}"}),
    )
    price_prompt = forms.FloatField(label=gettext_lazy("Price of a million prompt tokens"), required=False, min_value=0)
    price_completion = forms.FloatField(
        label=gettext_lazy("Price of a million completion tokens"), required=False, min_value=0
    )
    sources = forms.CharField(
        label=gettext_lazy("Answers turns of these sources"),
        required=False,
        max_length=1000,
        help_text=gettext_lazy("Comma-separated, such as api, schedule. Empty: of all that no other model names."),
    )
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)
    repairs_text_calls = forms.BooleanField(
        required=False,
        initial=True,
        help_text=gettext_lazy(
            "Servers whose tool parser does not fit the model send calls as text. Only for requests with tools."
        ),
    )
    asks_again_when_empty = forms.BooleanField(
        required=False,
        initial=True,
        help_text=gettext_lazy("For servers that cannot stream a call: the same request, once, in one piece."),
    )
    checks_arguments = forms.BooleanField(
        required=False,
        initial=True,
        help_text=gettext_lazy("Noted on the call; what the program reads is never changed by it."),
    )

    def clean_parameters(self) -> dict[str, Any]:
        try:
            value = read_json(self.cleaned_data["parameters"].strip() or "{}")
        except JsonError as error:
            raise ValidationError(_("This is not JSON: %(why)s.") % {"why": error}) from error
        if not isinstance(value, dict):
            raise ValidationError(_("Parameters are a JSON object."))
        return value

    def data_of(self) -> endpoints.EndpointData:
        cleaned = self.cleaned_data
        return endpoints.EndpointData(
            label=cleaned["label"],
            base_url=cleaned["base_url"],
            model=cleaned["model"],
            key="" if cleaned["drop_key"] else cleaned["key"] or None,
            parameters=cleaned["parameters"],
            price_prompt=cleaned["price_prompt"] or 0.0,
            price_completion=cleaned["price_completion"] or 0.0,
            sources=tuple(cleaned["sources"].split(",")),
            is_enabled=cleaned["is_enabled"],
            **{name: cleaned[name] for name in SWITCHES},
        )

    @classmethod
    def of(cls, endpoint: ModelEndpoint) -> "EndpointForm":
        names = ("label", "base_url", "model", "price_prompt", "price_completion", "is_enabled", *SWITCHES)
        initial = {name: getattr(endpoint, name) for name in names}
        parameters = json.dumps(endpoint.parameters, ensure_ascii=False) if endpoint.parameters else ""
        return cls(initial=initial | {"parameters": parameters, "sources": ", ".join(endpoint.sources)})


def _form_page(request: TenantRequest, form: EndpointForm, endpoint: ModelEndpoint | None) -> HttpResponse:
    context = {"form": form, "endpoint": endpoint}
    return render(cast(HttpRequest, request), "settings/model_form.html", context)


def _list_page(
    request: TenantRequest, report: ProbeReport | None = None, tried: ModelEndpoint | None = None
) -> HttpResponse:
    rows = list(ModelEndpoint.objects.select_related("key").order_by("label")[:MAX_SHOWN])
    standings = breaker.standings({row.pk: breaker.server_of(row) for row in rows})
    context = {
        "endpoints": [(row, standings[row.pk]) for row in rows],
        "report": report,
        "tried": tried,
        "gateway_days": days.last_days(),
        "gateway_gaps": days.last_gaps(),
        "gateway_url": request.build_absolute_uri("/v1"),
        "shown_days": days.SHOWN_DAYS,
    }
    return render(cast(HttpRequest, request), "settings/models.html", context)


def _save(request: TenantRequest, endpoint: ModelEndpoint | None) -> HttpResponse:
    form = EndpointForm(request.POST)
    if form.is_valid():
        try:
            saved = endpoints.save_endpoint(
                form.data_of(), actor=request.user, pk=endpoint.pk if endpoint is not None else None
            )
        except (ValidationError, NoKeys) as error:
            form.add_error(None, error if isinstance(error, ValidationError) else str(error))
        else:
            told = _("%(name)s is saved; turns that begin from now on use it.")
            messages.success(request, told % {"name": saved.label})
            return redirect("model-list", slug=request.tenant.slug)
    return _form_page(request, form, endpoint)


@require_GET
@tenant_view()
def model_list(request: TenantRequest) -> HttpResponse:
    return _list_page(request)


@require_GET
@tenant_view(Role.ADMIN)
def model_new(request: TenantRequest) -> HttpResponse:
    return _form_page(request, EndpointForm(), None)


@require_POST
@sensitive_post_parameters("key")
@tenant_view(Role.ADMIN)
def model_create(request: TenantRequest) -> HttpResponse:
    return _save(request, None)


@require_GET
@tenant_view(Role.ADMIN)
def model_edit(request: TenantRequest, pk: int) -> HttpResponse:
    endpoint = get_object_or_404(ModelEndpoint.objects.select_related("key"), pk=pk)
    return _form_page(request, EndpointForm.of(endpoint), endpoint)


@require_POST
@sensitive_post_parameters("key")
@tenant_view(Role.ADMIN)
def model_save(request: TenantRequest, pk: int) -> HttpResponse:
    return _save(request, get_object_or_404(ModelEndpoint.objects.select_related("key"), pk=pk))


@require_POST
@tenant_view(Role.ADMIN)
def model_delete(request: TenantRequest, pk: int) -> HttpResponse:
    endpoint = get_object_or_404(ModelEndpoint.objects.select_related("key"), pk=pk)
    endpoints.delete_endpoint(endpoint=endpoint, actor=request.user)
    messages.success(request, _("%(name)s is deleted.") % {"name": endpoint.label})
    return redirect("model-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN, scope=False)
def model_test(request: TenantRequest, pk: int) -> HttpResponse:
    """Asks the model twice. No transaction is open while it answers. An answer ends a pause of its turns."""
    with tenant_scope(request.tenant):
        endpoint = get_object_or_404(ModelEndpoint.objects.all(), pk=pk)
        guard = outbound.guard()
        try:
            key = endpoints.read_key(endpoint.pk, run=f"test by {request.user.email}")
        except SecretInvalid as error:
            return _list_page(request, ProbeReport.not_asked(str(error)), endpoint)
    report = asyncio.run(probe_endpoint(endpoints.chosen(endpoint), guard, key))
    if report.answers:
        breaker.close(*breaker.server_of(endpoint))
    with tenant_scope(request.tenant):
        return _list_page(request, report, endpoint)
