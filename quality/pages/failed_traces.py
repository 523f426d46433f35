"""Traces over OTLP that could not be read, on the page of imports: read once more, or deleted."""

from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from quality.ingest import otlp_failures
from quality.models import OtlpTrace
from quality.pages.access import TenantRequest, tenant_view
from tenants.models import Role


@require_POST
@tenant_view(Role.OPERATOR)
def trace_retry(request: TenantRequest, pk: int) -> HttpResponse:
    """Read a trace once more."""
    get_object_or_404(OtlpTrace.objects.all(), pk=pk)
    again = otlp_failures.retry(pk)
    return _back(request, _("It is being read once more.") if again else _("It was read meanwhile."))


@require_POST
@tenant_view(Role.OPERATOR)
def trace_delete(request: TenantRequest, pk: int) -> HttpResponse:
    """Delete a trace that cannot be read."""
    get_object_or_404(OtlpTrace.objects.all(), pk=pk)
    gone = otlp_failures.forget(pk, actor=request.user)
    return _back(request, _("Its spans were deleted.") if gone else _("It was read meanwhile."))


def _back(request: TenantRequest, told: str) -> HttpResponse:
    messages.info(cast(HttpRequest, request), told)
    return redirect("import-list", slug=request.tenant.slug)
