"""What people have to decide on after replays: expectations in dispute, and cases that are flaky by themselves."""

from typing import cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from quality.improve import cases
from quality.improve.cases import CaseConflict, NoSuchCase
from quality.models import QuarantineProposal, ReplayFinding
from quality.pages.access import TenantRequest, tenant_view
from quality.replay import findings, quarantine
from quality.replay.quarantine import QuarantineConflict
from tenants.models import Role


@require_GET
@tenant_view()
def finding_list(request: TenantRequest) -> HttpResponse:
    """Disputes that wait for an operator, and those that were settled last."""
    context = {
        "disputes": findings.open_disputes(),
        "settled": findings.with_changes(findings.settled_disputes()),
        "outcomes": ReplayFinding.Outcome.choices,
    }
    return render(cast(HttpRequest, request), "quality/replay_disputes.html", context)


@require_GET
@tenant_view()
def quarantine_list(request: TenantRequest) -> HttpResponse:
    """What is proposed, what is in quarantine and since when, and what was decided last."""
    context = {
        "proposals": quarantine.pending(),
        "quarantined": quarantine.quarantined(),
        "decided": quarantine.decided(),
    }
    return render(cast(HttpRequest, request), "quality/replay_quarantine.html", context)


@require_POST
@tenant_view(Role.OPERATOR)
def quarantine_step(request: TenantRequest, pk: int, step: str) -> HttpResponse:
    """Accept a proposal, or dismiss it with a reason."""
    proposal = get_object_or_404(QuarantineProposal.objects.select_related("case"), pk=pk)
    ref = proposal.case.ref
    try:
        if step == "accept":
            quarantine.accept(proposal, request.user)
            told = _("%(ref)s is in quarantine: it is run, and gates nothing.") % {"ref": ref}
        else:
            quarantine.dismiss(proposal, request.user, request.POST.get("reason", ""))
            told = _("%(ref)s gates as before. This version of it is not proposed again.") % {"ref": ref}
    except (QuarantineConflict, CaseConflict) as conflict:
        messages.error(cast(HttpRequest, request), str(conflict))
    except ValidationError as error:
        messages.error(cast(HttpRequest, request), " ".join(error.messages))
    else:
        messages.success(cast(HttpRequest, request), told)
    return redirect("quarantine-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.OPERATOR)
def quarantine_release(request: TenantRequest, number: int) -> HttpResponse:
    """Let a case gate again."""
    try:
        case = quarantine.release(cases.get(number), request.user)
    except NoSuchCase as error:
        raise Http404(str(error)) from error
    except CaseConflict as conflict:
        messages.error(cast(HttpRequest, request), str(conflict))
    else:
        told = _("%(ref)s gates again, as version %(version)s.") % {"ref": case.ref, "version": case.version}
        messages.success(cast(HttpRequest, request), told)
    return redirect("quarantine-list", slug=request.tenant.slug)
