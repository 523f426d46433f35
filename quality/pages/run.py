"""The console: write to the agent, watch the turn, decide on its calls where they stand."""

import os
import uuid
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from quality.models import ENDED, Channel, Turn, TurnRun
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.calls import page_of_call, placed
from quality.pages.turns import live_context
from quality.review.conversation import read_conversation
from quality.review.evidence import siblings, turn_without_payload
from quality.turns.create import MAX_TEXT_CHARS, SOURCE, TurnConflict, create_turn
from quality.turns.transcript import transcript_of
from tenants.models import ModelEndpoint, Role, Style

MAX_EARLIER = 10  # turns of the conversation that are laid out above the newest one
MAX_CHOICES = 200


class RunForm(forms.Form):
    """One message. `nonce` is the form's own: the same form sent twice is one turn."""

    text = forms.CharField(
        label=gettext_lazy("Message"),
        strip=False,
        max_length=MAX_TEXT_CHARS,
        error_messages={"required": gettext_lazy("Write a message first.")},
        widget=forms.Textarea(attrs={"rows": 3, "dir": "auto", "placeholder": gettext_lazy("Write to the agent")}),
    )
    model = forms.ChoiceField(required=False)
    style = forms.ChoiceField(required=False)
    contact = forms.CharField(
        required=False,
        max_length=200,
        help_text=gettext_lazy("Id of a customer. Exchange tools are offered to one that is known."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    conversation = forms.CharField(required=False, max_length=200, widget=forms.HiddenInput)
    nonce = forms.UUIDField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(forms.ChoiceField, self.fields["model"]).choices = [("", _("default")), *models()]
        styles = [(style.style_id, style.name or style.style_id) for style in Style.objects.order_by("style_id")]
        default = next((one.style_id for one in Style.objects.filter(is_default=True)), "")
        first = _("default")
        if default in dict(styles):
            first = _("default: %(style)s") % {"style": dict(styles)[default]}
        cast(forms.ChoiceField, self.fields["style"]).choices = [("", first), *styles[:MAX_CHOICES]]


def models() -> list[tuple[str, str]]:
    """Label and name of each model that turns may choose."""
    enabled = ModelEndpoint.objects.filter(is_enabled=True).order_by("label")[:MAX_CHOICES]
    return [(one.label, f"{one.label} · {one.model}") for one in enabled]


def _has_model() -> bool:
    """The service may have a model for those that have none of their own."""
    return bool(os.environ.get("MODEL_URL")) or ModelEndpoint.objects.filter(is_enabled=True).exists()


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_view(Role.OPERATOR)
def run(request: TenantRequest) -> HttpResponse:
    """A new conversation, or (`?conversation=`) the newest turn of one; a message that is sent."""
    if request.method == "POST":
        return _send(request)
    if name := request.GET.get("conversation", ""):
        newest = _newest(name)
        if newest is None:
            raise Http404(_("There is no turn of ours in this conversation."))
        return redirect("run-turn", slug=request.tenant.slug, pk=newest.pk)
    return _page(request, _blank(f"console-{uuid.uuid4().hex[:12]}"))


@require_GET
@tenant_view(Role.OPERATOR)
def run_turn(request: TenantRequest, pk: int) -> HttpResponse:
    """The conversation of a turn, its newest turn live."""
    payload = ("turn__messages", "turn__system", "turn__history")
    asked = TurnRun.objects.select_related("turn").defer(*payload).filter(turn=pk).first()
    if asked is None:
        raise Http404(_("We do not run such a turn."))
    newest = asked.turn
    if asked.conversation_id:
        newest = _newest(asked.conversation_id) or newest
    text = ""
    if "again" in request.GET:
        again = read_conversation(turn_without_payload(pk).messages_start)  # type: ignore[attr-defined]
        text = next((one.text for one in again.messages if one.role == "user"), "")
    form = _blank(
        asked.conversation_id or f"console-{uuid.uuid4().hex[:12]}",
        text=text,
        model=asked.model_label,
        style=asked.turn.style_id,
        contact=asked.turn.contact_id,
    )
    return _page(request, form, newest=newest)


def _newest(conversation: str) -> Turn | None:
    """The newest turn of a conversation of ours, without its payload."""
    turns = Turn.objects.filter(source=SOURCE, conversation_id=conversation)
    return turns.order_by("-pk").only("conversation_id", "state").first()


def _blank(conversation: str, **values: str) -> RunForm:
    return RunForm(initial={"conversation": conversation, "nonce": uuid.uuid4(), **values})


def _send(request: TenantRequest) -> HttpResponse:
    form = RunForm(request.POST)
    if form.is_valid():
        sent = form.cleaned_data
        try:
            turn = create_turn(
                text=sent["text"].replace("\r\n", "\n"),
                channel=Channel.PAGE,
                conversation_id=sent["conversation"] or f"console-{sent['nonce'].hex[:12]}",
                contact_id=sent["contact"],
                external_id=f"page-{sent['nonce'].hex}",
                model_label=sent["model"],
                style_id=sent["style"],
                by=request.user,
            )
            return redirect("run-turn", slug=request.tenant.slug, pk=turn.pk)
        except TurnConflict:
            told = _("This form was sent already with other words. Open the page again to send these.")
            form.add_error(None, told)
        except ValidationError as error:
            form.add_error(None, error if not hasattr(error, "error_dict") else " ".join(error.messages))
    name = str(form.data.get("conversation", ""))[:200]
    newest = _newest(name) if name else None
    return _page(request, form, newest=newest, status=422)


def _page(request: TenantRequest, form: RunForm, *, newest: Turn | None = None, status: int = 200) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "has_model": _has_model(), "newest": newest}
    if newest is not None:
        context |= live_context(request, transcript_of(newest.pk), "run")
        context["earlier"], context["has_more"] = _earlier(request, newest)
        context["is_running"] = newest.state not in ENDED
    return render(cast(HttpRequest, request), "quality/run.html", context, status=status)


def _earlier(request: TenantRequest, newest: Turn) -> tuple[list[dict[str, Any]], bool]:
    """The turns before the newest one of its conversation, oldest first, and whether there are more."""
    if not newest.conversation_id:
        return [], False
    before = (
        Turn.objects.filter(source=SOURCE, conversation_id=newest.conversation_id, pk__lt=newest.pk)
        .order_by("-pk")
        .values_list("pk", flat=True)[: MAX_EARLIER + 1]
    )
    pks = list(before)
    earlier = []
    for pk in reversed(pks[:MAX_EARLIER]):
        turn = turn_without_payload(pk)
        conversation = read_conversation(turn.messages_start)  # type: ignore[attr-defined]
        said = placed(conversation, siblings(pk), page_of_call(request))
        earlier.append({"turn": turn, "conversation": conversation, "said": said})
    return earlier, len(pks) > MAX_EARLIER
