"""Webhooks: who is told of what, and what became of each message."""

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_http_methods, require_POST

from quality.filters import MomentField
from quality.models import Webhook, WebhookDelivery
from quality.pages.access import TenantRequest, tenant_view
from quality.review.blind import Place, hidden_places
from quality.webhooks import events, hooks, tries
from quality.webhooks.hooks import Wanted
from quality.webhooks.sending import Answer
from tenants.models import Role
from tenants.scope import tenant_scope


class WebhookForm(forms.Form):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=120)
    url = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=hooks.MAX_URL_CHARS,
        help_text=gettext_lazy("Called with POST and JSON, signed by the Standard Webhooks specification."),
        widget=forms.TextInput(
            attrs={"placeholder": "https://hooks.example.com/…", "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    events = forms.MultipleChoiceField(
        label=gettext_lazy("Events"),
        required=False,
        choices=lambda: [
            (events.EVERY, gettext_lazy("All events, those to come included")),
            *((kind.name, kind.label) for kind in events.KINDS),
        ],
        widget=forms.CheckboxSelectMultiple,
    )
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)

    @property
    def wanted(self) -> Wanted:
        """Only of a valid form."""
        return Wanted(**{**self.cleaned_data, "events": tuple(self.cleaned_data["events"])})

    def take(self, error: ValidationError) -> None:
        """Faults that only the store finds, each at its field."""
        for name, found in error.error_dict.items():
            self.add_error(name if name in self.fields else None, found)


class SinceForm(forms.Form):
    since = MomentField()


@require_http_methods(["GET", "POST"])
@tenant_view(Role.ADMIN)
def webhook_list(request: TenantRequest) -> HttpResponse:
    """All webhooks, and the form of a new one."""
    form = WebhookForm(request.POST or None, initial={"events": [events.EVERY], "is_enabled": True})
    if request.method == "POST" and (saved := _saved(request, form, None)):
        return saved
    context = {"webhooks": hooks.every(), "form": form}
    status = 400 if form.errors else 200
    return render(cast(HttpRequest, request), "settings/webhooks.html", context, status=status)


@require_http_methods(["GET", "POST"])
@tenant_view(Role.ADMIN)
def webhook_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """One webhook with its messages; a POST changes it."""
    hook = _hook(pk)
    if request.method == "GET":
        return _shown(request, hook)
    form = WebhookForm(request.POST)
    return _saved(request, form, hook) or _shown(request, hook, form=form, status=400)


@require_POST
@tenant_view(Role.ADMIN, scope=False)
def webhook_test(request: TenantRequest, pk: int) -> HttpResponse:
    """Call it with a message that says that it is a test. No transaction is open while it answers."""
    with tenant_scope(request.tenant):
        _hook(pk)
    answer = hooks.send_test(pk, tenant_id=request.tenant.pk, by=request.user)
    with tenant_scope(request.tenant):
        return _shown(request, _hook(pk), answer=answer)


@require_POST
@tenant_view(Role.ADMIN)
def webhook_step(request: TenantRequest, pk: int, step: str) -> HttpResponse:
    """Delete it, give it another secret, or send its messages since a moment again."""
    return _STEPS[step](request, _hook(pk))


@require_POST
@tenant_view(Role.ADMIN)
def webhook_again(request: TenantRequest, pk: int) -> HttpResponse:
    """One message once more."""
    row = get_object_or_404(WebhookDelivery.objects.select_related("webhook"), pk=pk)
    try:
        hooks.send_again(row, actor=request.user)
    except (tries.OnItsWay, ValidationError) as error:
        messages.error(cast(HttpRequest, request), _words(error))
    else:
        messages.success(cast(HttpRequest, request), _("It is on its way again."))
    return redirect("webhook-detail", slug=request.tenant.slug, pk=row.webhook_id)


def _delete(request: TenantRequest, hook: Webhook) -> HttpResponse:
    hooks.delete(hook, actor=request.user)
    messages.success(cast(HttpRequest, request), _("%(name)s is deleted, with its messages.") % {"name": hook.name})
    return redirect("webhook-list", slug=request.tenant.slug)


def _rotate(request: TenantRequest, hook: Webhook) -> HttpResponse:
    try:
        secret = hooks.rotate_secret(hook, actor=request.user)
    except ValidationError as error:
        messages.error(cast(HttpRequest, request), _words(error))
        return redirect("webhook-detail", slug=request.tenant.slug, pk=hook.pk)
    return _shown(request, hook, secret=secret)


def _repeat(request: TenantRequest, hook: Webhook) -> HttpResponse:
    form = SinceForm(request.POST)
    if not form.is_valid():
        return _shown(request, hook, since=form, status=400)
    try:
        number = hooks.send_all_again(hook, form.cleaned_data["since"], actor=request.user)
    except ValidationError as error:
        messages.error(cast(HttpRequest, request), _words(error))
    else:
        told = ngettext("%(count)d message is on its way again.", "%(count)d messages are on their way again.", number)
        messages.success(cast(HttpRequest, request), told % {"count": number})
    return redirect("webhook-detail", slug=request.tenant.slug, pk=hook.pk)


_STEPS: dict[str, Callable[[TenantRequest, Webhook], HttpResponse]] = {
    "delete": _delete,
    "rotate": _rotate,
    "repeat": _repeat,
}
STEPS = tuple(_STEPS)


def _hook(pk: int) -> Webhook:
    found: Webhook = get_object_or_404(Webhook.objects.select_related("secret", "created_by"), pk=pk)
    return found


def _saved(request: TenantRequest, form: WebhookForm, hook: Webhook | None) -> HttpResponse | None:
    """The answer to what was saved; None where the form has faults. A new secret is shown in the answer itself."""
    if not form.is_valid():
        return None
    try:
        kept = hooks.keep(form.wanted, actor=request.user, pk=hook.pk if hook else None)
    except ValidationError as error:
        form.take(error)
        return None
    if kept.secret:
        return _shown(request, kept.webhook, secret=kept.secret)
    messages.success(cast(HttpRequest, request), _("%(name)s is saved.") % {"name": kept.webhook.name})
    return redirect("webhook-detail", slug=request.tenant.slug, pk=kept.webhook.pk)


def _hidden(request: TenantRequest, rows: Sequence[WebhookDelivery]) -> set[int]:
    """Ids of those messages that tell of others' labels which a blind queue keeps from this person."""
    places: dict[int, Place] = {}
    for row in rows:
        if row.event in ("label.given", "label.undone"):
            said = json.loads(row.body).get("data")
            if said and said["reviewer"]["id"] != request.user.pk:
                places[row.pk] = (said["callId"], 0, 0) if said["callId"] else (None, said["turnId"], said["cycle"])
    hidden = hidden_places(request.user, places.values())
    return {pk for pk, place in places.items() if place in hidden}


def _words(error: Exception) -> str:
    return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)


def _shown(
    request: TenantRequest,
    hook: Webhook,
    *,
    form: WebhookForm | None = None,
    since: SinceForm | None = None,
    secret: str = "",
    answer: Answer | None = None,
    status: int = 200,
) -> HttpResponse:
    state, event = request.GET.get("state", ""), request.GET.get("event", "")
    before = request.GET.get("before", "")
    rows, following = hooks.deliveries(
        hook,
        state=state,
        event=event,
        before=int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None,
    )
    initial = {name: getattr(hook, name) for name in ("name", "url", "events", "is_enabled")}
    context: dict[str, Any] = {
        "webhook": hook,
        "form": form or WebhookForm(initial=initial),
        "since": since or SinceForm(),
        "deliveries": rows,
        "hidden": _hidden(request, rows),
        "next": following,
        "state": state,
        "event": event,
        "states": WebhookDelivery.State.choices,
        "kinds": events.KINDS,
        "secret": secret,
        "answer": answer,
        "keep_days": settings.WEBHOOK_KEEP_DAYS,
    }
    return render(cast(HttpRequest, request), "settings/webhook.html", context, status=status)
