"""The booking link: the one address that `offer_booking_link` gives out."""

from typing import cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from engine.tools.booking import MAX_URL
from quality.pages.access import TenantRequest, tenant_view
from tenants import booking
from tenants.envelope import NoKeys, SecretInvalid
from tenants.models import Role


class BookingForm(forms.Form):
    url = forms.CharField(
        label=gettext_lazy("Booking link"),
        max_length=MAX_URL + 1,
        help_text=gettext_lazy("An https page on the public internet: Calendly, Cal.com, TidyCal, or your own."),
        widget=forms.URLInput(attrs={"placeholder": "https://calendly.com/your-team/30min"}),
    )


def _page(request: TenantRequest, form: BookingForm) -> HttpResponse:
    context: dict[str, object] = {"form": form, "secret": booking.secret()}
    if context["secret"]:  # sealed in the row, and no secret from members: agents give it to whoever asks
        try:
            context["url"] = booking.url(run=f"page of {request.user.email}")
        except SecretInvalid as error:
            context["fault"] = str(error)
    return render(cast(HttpRequest, request), "settings/booking.html", context)


@require_GET
@tenant_view()
def booking_page(request: TenantRequest) -> HttpResponse:
    return _page(request, BookingForm())


@require_POST
@tenant_view(Role.ADMIN)
def booking_set(request: TenantRequest) -> HttpResponse:
    form = BookingForm(request.POST)
    if form.is_valid():
        try:
            booking.set_url(form.cleaned_data["url"], actor=request.user)
        except (ValidationError, NoKeys) as error:
            form.add_error(None, error if isinstance(error, ValidationError) else str(error))
        else:
            messages.success(request, _("The booking link is set; turns that begin from now on offer it."))
            return redirect("booking", slug=request.tenant.slug)
    return _page(request, form)


@require_POST
@tenant_view(Role.ADMIN)
def booking_remove(request: TenantRequest) -> HttpResponse:
    if booking.remove(actor=request.user):
        messages.success(request, _("The booking link is removed; it is offered no more."))
    return redirect("booking", slug=request.tenant.slug)
