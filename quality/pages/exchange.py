"""The exchange desk: rates, payment details, what is told of the desk, who is verified, and orders."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from engine.tools.exchange import OrderState, Verification
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.tool_form import pretty, read
from tenants import exchange
from tenants.models import ExchangeCustomer, ExchangeOrder, ExchangeRate, ExchangeRequisites, Role
from tenants.models.exchange import IDENTITIES, ORDER_STATES

MAX_SHOWN = 100
JSON = forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"})


class RateForm(forms.ModelForm):
    class Meta:
        model = ExchangeRate
        fields = ("give", "get", "rate", "min_amount", "max_amount", "verify_from", "get_digits", "is_active")
        labels = {
            "give": gettext_lazy("Customer gives"),
            "get": gettext_lazy("Customer gets"),
            "rate": gettext_lazy("Rate"),
            "min_amount": gettext_lazy("Smallest amount"),
            "max_amount": gettext_lazy("Largest amount"),
            "verify_from": gettext_lazy("Verified customers only, from"),
            "get_digits": gettext_lazy("Digits after the point, paid out"),
            "is_active": gettext_lazy("Active"),
        }
        help_texts = {"verify_from": gettext_lazy("0: always. Empty: never.")}

    def _post_clean(self) -> None:
        """`exchange.save_rate` judges the row, once its currencies are in capital letters."""


class DetailsForm(forms.Form):
    """Names and values as JSON, the way they are told to customers."""

    currency = forms.CharField(label=gettext_lazy("Currency"), max_length=12, required=False)
    details = forms.CharField(label=gettext_lazy("Details"), required=False, max_length=20_000, widget=JSON)

    def clean_details(self) -> dict[str, Any]:
        value = read(self.cleaned_data["details"].strip() or "{}")
        if not isinstance(value, dict):
            raise ValidationError(_("A JSON object is needed."))
        return value


class CustomerForm(forms.Form):
    contact_id = forms.CharField(label=gettext_lazy("Contact"), max_length=200)
    verification = forms.ChoiceField(label=gettext_lazy("Identity"), choices=IDENTITIES)


def _page(request: TenantRequest, **faulty: forms.BaseForm) -> HttpResponse:
    """`faulty` are forms that were refused, in the place of empty ones."""
    info = exchange.desk().info
    context: dict[str, Any] = {
        "rates": ExchangeRate.objects.order_by("give", "get"),
        "requisites": [(one, pretty(one.details)) for one in ExchangeRequisites.objects.order_by("currency")],
        "orders": ExchangeOrder.objects.order_by("-pk")[:MAX_SHOWN],
        "customers": ExchangeCustomer.objects.order_by("-updated_at")[:MAX_SHOWN],
        "rate_form": RateForm(initial={"max_amount": 10_000, "min_amount": 0, "verify_from": 0}),
        "requisites_form": DetailsForm(),
        "info_form": DetailsForm(initial={"details": pretty(info) if info else ""}),
        "customer_form": CustomerForm(),
    }
    return render(cast(HttpRequest, request), "settings/exchange.html", context | faulty)


def _back(request: TenantRequest, message: str) -> HttpResponse:
    messages.success(request, message)
    return redirect("exchange", slug=request.tenant.slug)


@require_GET
@tenant_view()
def exchange_page(request: TenantRequest) -> HttpResponse:
    return _page(request)


@require_POST
@tenant_view(Role.ADMIN)
def rate_save(request: TenantRequest) -> HttpResponse:
    """Makes a rate, or changes the one of this pair."""
    pair = {name: request.POST.get(name, "").strip().upper() for name in ("give", "get")}
    form = RateForm(request.POST)
    if not form.is_valid():
        return _page(request, rate_form=form)
    rate = ExchangeRate.objects.filter(**pair).first() or ExchangeRate()
    for name, value in form.cleaned_data.items():
        setattr(rate, name, value)
    try:
        exchange.save_rate(rate, actor=request.user)
    except ValidationError as error:
        form.add_error(None, error)
        return _page(request, rate_form=form)
    return _back(request, _("%(rate)s is saved; turns that begin from now on quote it.") % {"rate": rate})


@require_POST
@tenant_view(Role.ADMIN)
def rate_delete(request: TenantRequest, pk: int) -> HttpResponse:
    rate = get_object_or_404(ExchangeRate.objects.all(), pk=pk)
    exchange.delete_rate(rate, actor=request.user)
    return _back(request, _("%(rate)s is offered no more.") % {"rate": rate})


@require_POST
@tenant_view(Role.ADMIN)
def requisites_save(request: TenantRequest) -> HttpResponse:
    form = DetailsForm(request.POST)
    if form.is_valid():
        try:
            exchange.set_requisites(form.cleaned_data["currency"], form.cleaned_data["details"], actor=request.user)
        except ValidationError as error:
            form.add_error(None, error)
        else:
            return _back(request, _("The payment details are saved."))
    return _page(request, requisites_form=form)


@require_POST
@tenant_view(Role.ADMIN)
def info_save(request: TenantRequest) -> HttpResponse:
    form = DetailsForm(request.POST)
    if not form.is_valid():
        return _page(request, info_form=form)
    exchange.set_info(form.cleaned_data["details"], actor=request.user)
    return _back(request, _("What is told of the desk is saved."))


@require_POST
@tenant_view(Role.OPERATOR)
def customer_save(request: TenantRequest) -> HttpResponse:
    form = CustomerForm(request.POST)
    if not form.is_valid():
        return _page(request, customer_form=form)
    verification = Verification(form.cleaned_data["verification"])
    exchange.set_verification(form.cleaned_data["contact_id"], verification, actor=request.user)
    return _back(request, f"{form.cleaned_data['contact_id']}: {dict(IDENTITIES)[verification]}.")


@require_POST
@tenant_view(Role.OPERATOR)
def order_paid(request: TenantRequest, pk: int) -> HttpResponse:
    return _move(request, pk, OrderState.PAID)


@require_POST
@tenant_view(Role.OPERATOR)
def order_cancel(request: TenantRequest, pk: int) -> HttpResponse:
    return _move(request, pk, OrderState.CANCELLED)


def _move(request: TenantRequest, pk: int, to: OrderState) -> HttpResponse:
    order = get_object_or_404(ExchangeOrder.objects.all(), pk=pk)
    if exchange.move_order(order, to=to, actor=request.user):
        return _back(request, _("Order %(number)s is %(state)s.") % {"number": pk, "state": dict(ORDER_STATES)[to]})
    told = _("Order %(number)s is %(state)s and cannot become %(wanted)s.")
    states = {"state": order.get_state_display(), "wanted": dict(ORDER_STATES)[to]}
    messages.error(request, told % (states | {"number": pk}))
    return redirect("exchange", slug=request.tenant.slug)
