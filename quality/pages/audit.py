"""The audit log of a tenant: who did what, when, to what."""

from collections.abc import Collection, Sequence
from typing import Any, cast

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import pgettext_lazy
from django.views.decorators.http import require_GET

from quality.filters import MomentField, QueryForm
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import chips, conditions
from quality.pages.render import render_page
from quality.review.blind import Place, hidden_places
from tenants import audit_log
from tenants.models import AuditEvent, Membership, Role

WORDS = {
    "subject": pgettext_lazy("condition", "about"),
    "action": pgettext_lazy("condition", "action"),
    "actor": pgettext_lazy("condition", "by"),
    "object_type": pgettext_lazy("condition", "kind of object"),
    "object_id": pgettext_lazy("condition", "object"),
    "request": pgettext_lazy("condition", "request"),
    "from": pgettext_lazy("condition", "from"),
    "to": pgettext_lazy("condition", "until"),
}
HIDDEN = ("action", "object_type", "object_id", "request")  # conditions that come by links
LABELS = ("from", "to")  # details of an event that tell a label
PAGES = {
    "tool_call": "call-detail",
    "turn": "turn-detail",
    "import": "import-detail",
    "proposal": "proposal-detail",
    "coach_run": "coach-run",
    "export": "export-detail",
}


class AuditForm(QueryForm):
    """The filter with the place in the log."""

    subject = forms.ChoiceField(required=False, choices=list(audit_log.SUBJECTS.items()))
    action = forms.CharField(required=False, max_length=80)
    actor = forms.IntegerField(required=False, min_value=1)
    object_type = forms.CharField(required=False, max_length=80)
    object_id = forms.CharField(required=False, max_length=200)
    request = forms.CharField(required=False, max_length=80)
    since = MomentField(required=False)
    until = MomentField(required=False, end=True)
    before = forms.IntegerField(required=False, min_value=1)
    after = forms.IntegerField(required=False, min_value=1)

    @property
    def wanted(self) -> audit_log.AuditFilter:
        data = self.cleaned_data
        return audit_log.AuditFilter(
            subject=data["subject"],
            action=data["action"],
            actor_id=data["actor"],
            object_type=data["object_type"],
            object_id=data["object_id"],
            request_id=data["request"],
            since=data["since"],
            until=data["until"],
        )


@require_GET
@tenant_view(Role.ADMIN)
def audit_list(request: TenantRequest) -> HttpResponse:
    form = AuditForm(request.GET)
    query = conditions(request.GET, WORDS)
    people = [each.user for each in Membership.objects.select_related("user").order_by("user__name", "user__email")]
    context: dict[str, Any] = {
        "form": form,
        "unknown": form.unknown(),
        "query": query.urlencode(),
        "values": {name: query.get(name, "") for name in WORDS},
        "chips": chips(query, WORDS, {"subject": audit_log.SUBJECTS, "actor": {str(one.pk): one for one in people}}),
        "subjects": audit_log.SUBJECTS.items(),
        "people": people,
        "hidden": [(name, query[name]) for name in HIDDEN if name in query],
        "page": None,
    }
    if form.is_valid():
        page = audit_log.find(form.wanted, before=form.cleaned_data["before"], after=form.cleaned_data["after"])
        context["page"] = page
        hidden = _hidden(request, page.events)
        context["rows"] = [
            (event, _address(request, event), _details(event, without=LABELS if event.pk in hidden else ()))
            for event in page.events
        ]
        context["last_pk"] = page.events[-1].pk if page.events else None
    return render_page(cast(HttpRequest, request), "people/audit.html", context, partial="list")


def _address(request: TenantRequest, event: AuditEvent) -> str:
    """The page of what was acted on; empty where it has none of its own."""
    if event.object_type == "case" and event.object_id.startswith("REG-"):
        return f"{reverse('case-list', args=[request.tenant.slug])}{event.object_id}/"
    name = PAGES.get(event.object_type)
    if name is None or not event.object_id.isdigit():
        return ""
    return reverse(name, args=[request.tenant.slug, int(event.object_id)])


def _hidden(request: TenantRequest, events: Sequence[AuditEvent]) -> set[int]:
    """Ids of those events that tell of others' labels which a blind queue keeps from this person."""
    places: dict[int, Place] = {
        event.pk: (pk, 0, 0) if event.object_type == "tool_call" else (None, pk, event.detail.get("cycle") or 0)
        for event in events
        if event.action in ("feedback.labelled", "feedback.undone") and event.actor_id != request.user.pk
        for pk in [int(event.object_id)]
    }
    hidden = hidden_places(request.user, places.values())
    return {pk for pk, place in places.items() if place in hidden}


def _details(event: AuditEvent, *, without: Collection[str] = ()) -> list[tuple[str, str]]:
    return [
        (name, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in event.detail.items()
        if value not in (None, "", [], {}) and name not in without
    ]
