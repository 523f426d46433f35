"""Proposals: groups of feedback that ask for the same fix, and what was decided on those that are tracked."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality import calls
from quality.calls import BadCursor
from quality.filters import LabelsField, QueryForm
from quality.improve import groups, proposals
from quality.improve.groups import GroupFilter, GroupKey, NoSuchGroup
from quality.improve.proposals import NoSuchProposal, ProposalConflict, ProposalFilter
from quality.improve.rates import MIN_ITEMS
from quality.models import ACTIONABLE, ArtifactKind, Label, Proposal, ProposalState
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import Words, chips, conditions
from quality.pages.render import render_page
from quality.review.queues.waiting import viewer_of
from tenants.models import Role

STATES = {"untracked": gettext_lazy("Not tracked"), **dict(ProposalState.choices)}
WORDS = {
    "label": gettext_lazy("label"),
    "tool": gettext_lazy("tool"),
    "style": gettext_lazy("style"),
    "fault": gettext_lazy("fault"),
    "state": gettext_lazy("state"),
    "order": gettext_lazy("order"),
}
ORDERS = {"newest": gettext_lazy("Newest first"), "largest": gettext_lazy("Largest first")}
SHOWN: Words = {"state": STATES, "order": ORDERS, "label": dict(Label.choices)}


class ProposalForm(QueryForm):
    """The filter of both lists, with the place in them."""

    labels = LabelsField(required=False, unlabelled=False)
    tool = forms.CharField(required=False, max_length=512)
    style = forms.CharField(required=False, max_length=512)
    fault = forms.CharField(required=False, max_length=2_000)
    state = forms.ChoiceField(required=False, choices=list(STATES.items()))
    order = forms.ChoiceField(required=False, choices=list(ORDERS.items()))
    cursor = forms.CharField(required=False, max_length=8_000)

    def _shared(self) -> dict[str, Any]:
        data = self.cleaned_data
        states = (data["state"],) if data["state"] else ()
        return {"labels": data["labels"], "tool": data["tool"], "style": data["style"], "fault": data["fault"]} | {
            "states": states
        }

    @property
    def groups(self) -> GroupFilter:
        return GroupFilter(**self._shared())

    @property
    def proposals(self) -> ProposalFilter:
        return ProposalFilter(**self._shared())


class KeyForm(forms.Form):
    """Which group."""

    label = forms.ChoiceField(choices=[(label, label) for label in ACTIONABLE])
    tool_name = forms.CharField(required=False, max_length=512, strip=False)
    style_id = forms.CharField(required=False, max_length=512, strip=False)
    fault = forms.CharField(max_length=4_000, strip=False)

    @property
    def key(self) -> GroupKey:
        return GroupKey(**self.cleaned_data)


class VersionForm(forms.Form):
    """Which version of the proposal was on the screen."""

    version = forms.IntegerField(min_value=1)


class DismissForm(VersionForm):
    reason = forms.CharField(
        label=gettext_lazy("Why nothing is done"),
        max_length=proposals.MAX_REASON_CHARS,
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class ApplyForm(VersionForm):
    kind = forms.ChoiceField(label=gettext_lazy("What mended it"), choices=ArtifactKind.choices)
    ref = forms.CharField(
        label=gettext_lazy("Reference"),
        required=False,
        max_length=proposals.MAX_REF_CHARS,
        help_text=gettext_lazy("An address, a commit, style@version, REG-12."),
    )
    note = forms.CharField(
        label=gettext_lazy("Note"),
        required=False,
        max_length=proposals.MAX_NOTE_CHARS,
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class ReopenForm(VersionForm):
    reason = forms.CharField(
        label=gettext_lazy("Why again"),
        required=False,
        max_length=proposals.MAX_REASON_CHARS,
        widget=forms.Textarea(attrs={"rows": 2}),
    )


@require_GET
@tenant_view()
def proposal_list(request: TenantRequest) -> HttpResponse:
    """Open groups, newest and largest first."""
    return _listed(request, "groups")


@require_GET
@tenant_view()
def proposal_history(request: TenantRequest) -> HttpResponse:
    """All that was ever tracked, what changed last first."""
    return _listed(request, "tracked")


def _listed(request: TenantRequest, view: str) -> HttpResponse:
    form = ProposalForm(request.GET)
    query = conditions(request.GET, WORDS)
    context: dict[str, Any] = {
        "view": view,
        "form": form,
        "unknown": form.unknown(),
        "faults": form.faults(),
        "query": query.urlencode(),
        "values": {name: query.get(name, "") for name in WORDS},
        "chips": chips(query, WORDS, SHOWN),
        "labels": [(label.value, label.label) for label in map(Label, ACTIONABLE)],
        "states": [(value, word) for value, word in STATES.items() if view == "groups" or value != "untracked"],
        "orders": ORDERS.items(),
        "tools": calls.tool_names(),
        "page": None,
        "totals": _totals(),
    }
    if not context["faults"]:
        try:
            context["page"] = _page(form, view, viewer_of(request.user))
        except BadCursor as error:
            context["faults"] = [{"path": "cursor", "message": str(error)}]
    return render_page(cast(HttpRequest, request), "quality/proposals.html", context, partial="list")


def _page(form: ProposalForm, view: str, viewer: int | None) -> Any:
    cursor = form.cleaned_data["cursor"] or None
    if view == "tracked":
        return proposals.find(form.proposals, cursor=cursor, viewer=viewer)
    return groups.find(form.groups, cursor=cursor, order=form.cleaned_data["order"] or "newest", viewer=viewer)


def _totals() -> dict[str, int]:
    return Proposal.objects.aggregate(**{state.value: Count("pk", filter=Q(state=state)) for state in ProposalState})


@require_POST
@tenant_view(Role.OPERATOR)
def proposal_track(request: TenantRequest) -> HttpResponse:
    """Make a group a proposal, and go to it."""
    form = KeyForm(request.POST)
    if not form.is_valid():
        raise Http404(_("There is no such group."))
    try:
        proposal, is_new = proposals.ensure_tracked(form.key, by=request.user)
    except NoSuchGroup as error:
        messages.error(request, _("%(why)s The list is fresh now.") % {"why": error})
        return redirect("proposal-list", slug=request.tenant.slug)
    messages.success(request, _("Tracked.") if is_new else _("Somebody tracked it before: here it is."))
    return redirect("proposal-detail", slug=request.tenant.slug, pk=proposal.pk)


@require_GET
@tenant_view()
def proposal_detail(request: TenantRequest, pk: int) -> HttpResponse:
    return _shown(request, pk)


@require_POST
@tenant_view(Role.OPERATOR)
def proposal_dismiss(request: TenantRequest, pk: int) -> HttpResponse:
    return _step(request, pk, "dismiss", DismissForm(request.POST))


@require_POST
@tenant_view(Role.OPERATOR)
def proposal_apply(request: TenantRequest, pk: int) -> HttpResponse:
    return _step(request, pk, "apply", ApplyForm(request.POST))


@require_POST
@tenant_view(Role.OPERATOR)
def proposal_reopen(request: TenantRequest, pk: int) -> HttpResponse:
    return _step(request, pk, "reopen", ReopenForm(request.POST))


_STEPS = {"dismiss": proposals.dismiss, "apply": proposals.apply, "reopen": proposals.reopen}
_DONE = {
    "dismiss": gettext_lazy("Dismissed."),
    "apply": gettext_lazy("Applied."),
    "reopen": gettext_lazy("Open again."),
}


def _step(request: TenantRequest, pk: int, step: str, form: forms.Form) -> HttpResponse:
    """One decision. A second one is refused and told the first; what was written stays in the form."""
    if form.is_valid():
        data = dict(form.cleaned_data)
        seen = data.pop("version")
        try:
            _STEPS[step](pk, **data, by=request.user, seen_version=seen)  # type: ignore[operator]
        except NoSuchProposal as error:
            raise Http404(str(error)) from error
        except ProposalConflict as conflict:
            return _shown(request, pk, conflict=conflict, sent={step: form}, status=409)
        except ValidationError as error:
            form.add_error(None, error)
        else:
            messages.success(request, str(_DONE[step]))
            return redirect("proposal-detail", slug=request.tenant.slug, pk=pk)
    return _shown(request, pk, sent={step: form}, status=400)


def _shown(
    request: TenantRequest,
    pk: int,
    *,
    conflict: ProposalConflict | None = None,
    sent: dict[str, forms.Form] | None = None,
    status: int = 200,
) -> HttpResponse:
    try:
        found = proposals.detail(pk, viewer=viewer_of(request.user))
    except NoSuchProposal as error:
        raise Http404(str(error)) from error
    proposal = found.proposal
    sent = sent or {}
    context = {
        "found": found,
        "proposal": proposal,
        "is_pending": proposal.state == ProposalState.PENDING,
        "conflict": conflict,
        "open_form": next(iter(sent), ""),
        "dismiss_form": sent.get("dismiss") or DismissForm(),
        "apply_form": sent.get("apply") or ApplyForm(initial={"kind": proposal.suggested_kind}),
        "reopen_form": sent.get("reopen") or ReopenForm(),
        "rates": [each for each in _rates(found) if each[1] is not None],
        "min_items": MIN_ITEMS,
        "calls_url": _calls_url(request, proposal),
    }
    return render(cast(HttpRequest, request), "quality/proposal_detail.html", context, status=status)


def _rates(found: proposals.ProposalDetail) -> list[tuple[str, Any, bool]]:
    """(word, rate, is it the one since the decision)"""
    if found.rates.after is None:
        return [(_("So far"), found.rates.before, False)]
    return [(_("Before"), found.rates.before, False), (_("After"), found.rates.after, True)]


def _calls_url(request: TenantRequest, proposal: Proposal) -> str:
    """The items behind it, as near as a filter comes: in Calls, or in Review where no call was made."""
    query = QueryDict(mutable=True)
    for name, value in (("tool", proposal.tool_name), ("label", proposal.label), ("style", proposal.style_id)):
        if value:
            query[name] = value
    page = "call-list" if proposal.tool_name else "review"
    return f"{reverse(page, args=[request.tenant.slug])}?{query.urlencode()}"
