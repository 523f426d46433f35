"""Pending: every call that waits for a person, to be decided one by one or several at once."""

from dataclasses import dataclass
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from quality.models import DecisionKind, ModelReply, ToolCall, Turn, TurnRun
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.decisions import DECLINE_LABELS, DecisionForm, card_of, label_with, meanwhile, veiled
from quality.pages.render import render_page
from quality.review.conversation import Said, read_conversation
from quality.starts import Start
from quality.turns.decide import AlreadyDecided, CannotDecide, Verdict, decide
from quality.turns.transcript import TurnCall, said_in, senders, waiting_calls
from quality.turns.waiting import PAGE_SIZE, num_waiting
from tenants.models import Role

MAX_MESSAGES_CHARS = 64 * 1024
MAX_REPLY_CHARS = 16 * 1024
MAX_SHOWN = 1_000
MAX_OTHERS = 10
TOGETHER = (DecisionKind.APPROVE, DecisionKind.DECLINE)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What was said around a waiting call: the user's words, the reply that asked for the call, the turn's other
    calls."""

    turn: Turn
    asked: Said | None
    reply: str
    sent_by: str
    others: list[ToolCall]


@require_GET
@tenant_view()
def pending(request: TenantRequest) -> HttpResponse:
    """The calls that wait, the oldest first."""
    found = veiled(waiting_calls(PAGE_SIZE), request.user)
    around = _contexts(found)
    entries = [{"card": card_of(one, "pending"), "around": around[one.call.pk]} for one in found]
    count = num_waiting()
    context = {
        "entries": entries,
        "count": count,
        "more": count - len(found),
        "may_decide": request.membership.may(Role.OPERATOR),
        "place": "pending",
        "decline_labels": DECLINE_LABELS,
    }
    return render_page(cast(HttpRequest, request), "quality/pending.html", context, partial="list")


def _contexts(found: list[TurnCall]) -> dict[int, Context]:
    """The context of each call, in a fixed number of queries."""
    turn_ids = {one.call.turn_id for one in found}
    columns = ("conversation_id", "style_id")
    turns = (
        Turn.objects.filter(pk__in=turn_ids).only(*columns).annotate(start=Start(Turn, "messages", MAX_MESSAGES_CHARS))
    )
    by_turn = {turn.pk: turn for turn in turns}
    sent_by = senders(TurnRun.objects.select_related("created_by").filter(turn__in=turn_ids))
    replies = ModelReply.objects.filter(turn__in=turn_ids, error_code="")
    said = {
        (turn_id, cycle): said_in(start or "{}")[0][:MAX_SHOWN]
        for turn_id, cycle, start in replies.values_list(
            "turn_id", "cycle", Start(ModelReply, "reply", MAX_REPLY_CHARS)
        )
    }
    around: dict[int, list[ToolCall]] = {}
    calls = ToolCall.objects.filter(turn__in=turn_ids).order_by("turn_id", "cycle", "index")
    for call in calls.only("turn_id", "tool_name", "state").annotate(args_preview=Start(ToolCall, "args", 200)):
        around.setdefault(call.turn_id, []).append(call)
    contexts = {}
    for one in found:
        turn = by_turn[one.call.turn_id]
        messages_of_turn = read_conversation(turn.start, max_text=MAX_SHOWN).messages
        contexts[one.call.pk] = Context(
            turn=turn,
            asked=next((message for message in messages_of_turn if message.role == "user"), None),
            reply=said.get((turn.pk, one.call.cycle), ""),
            sent_by=sent_by[turn.pk],
            others=[other for other in around[turn.pk] if other.pk != one.call.pk][:MAX_OTHERS],
        )
    return contexts


@require_POST
@tenant_view(Role.OPERATOR)
def pending_decide(request: TenantRequest) -> HttpResponse:
    """Approve or decline several calls at once. Asked for without `confirmed` it shows first which ones they are."""
    form = DecisionForm(request.POST)
    ids = [int(text) for text in request.POST.getlist("call") if text.isascii() and text.isdigit() and len(text) < 19]
    if not form.is_valid() or form.cleaned_data["decision"] not in TOGETHER:
        return _told(request, _("Several calls can be approved or declined together."))
    if not ids:
        return _told(request, _("Choose calls first: x on a call, or its checkbox."))
    if "confirmed" not in request.POST:
        context = {
            "calls": [one for one in waiting_calls(PAGE_SIZE) if one.call.pk in ids],
            "decision": form.cleaned_data["decision"],
            "decline_labels": DECLINE_LABELS,
        }
        return render(cast(HttpRequest, request), "quality/pending_confirm.html", context)
    rows = ToolCall.objects.filter(pk__in=ids[:PAGE_SIZE]).order_by("turn_id", "cycle", "index")
    done = 0
    # By turn, so that two who decide on the same calls at once wait for one another in one order.
    for call in rows.only("pk", "turn_id", "tool_name", "tool_call_id"):
        fault = _decided(request, call, form.cleaned_data)
        if fault:
            told = _("%(tool)s, call %(number)s: %(why)s")
            messages.warning(request, told % {"tool": call.tool_name, "number": call.pk, "why": fault})
        done += not fault
    if done:
        told = ngettext("%(count)s call declined.", "%(count)s calls declined.", done)
        if form.cleaned_data["decision"] == DecisionKind.APPROVE:
            told = ngettext("%(count)s call approved.", "%(count)s calls approved.", done)
        messages.success(request, told % {"count": done})
    return redirect("pending", slug=request.tenant.slug)


def _decided(request: TenantRequest, call: ToolCall, sent: dict[str, Any]) -> str:
    """Record the decision on one of several calls; why it was not, or nothing."""
    kind = DecisionKind(sent["decision"])
    verdict = Verdict(call.pk, kind, None, sent["reason"] if kind == DecisionKind.DECLINE else None)
    try:
        with transaction.atomic():
            decide(call.turn_id, [verdict], by=request.user)
            label_with(request, call.pk, sent, verdict)
    except AlreadyDecided as error:
        return meanwhile(error, call)
    except (CannotDecide, ValidationError) as error:
        return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)
    return ""


def _told(request: TenantRequest, words: str) -> HttpResponse:
    messages.warning(request, words)
    return redirect("pending", slug=request.tenant.slug)
