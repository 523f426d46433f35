"""Pending: every call that waits for a person, to be decided one by one or several at once."""

from dataclasses import dataclass
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from quality.models import DecisionKind, ModelReply, ToolCall, Turn, TurnRun
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.decisions import DECLINE_LABELS, DecisionForm, card_of, label_with, meanwhile
from quality.pages.render import render_page
from quality.review.conversation import Said, read_conversation
from quality.review.evidence import Sibling, siblings, turn_without_payload
from quality.turns.decide import AlreadyDecided, CannotDecide, Verdict, decide
from quality.turns.transcript import MAX_REPLY_CHARS, TurnCall, said_in, sender, waiting_calls
from quality.turns.waiting import PAGE_SIZE, num_waiting
from tenants.models import Role

TOGETHER = (DecisionKind.APPROVE, DecisionKind.DECLINE)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What was said around a waiting call: the user's words, the reply that asked for the call, its other calls."""

    turn: Turn
    asked: Said | None
    reply: str
    sent_by: str
    others: list[Sibling]


@require_GET
@tenant_view()
def pending(request: TenantRequest) -> HttpResponse:
    """The calls that wait, the oldest first."""
    found = waiting_calls(PAGE_SIZE)
    around = _contexts(found)
    entries = [
        {"card": card_of(one, "pending"), "one": one, "around": around[one.call.turn_id, one.call.cycle]}
        for one in found
    ]
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


def _contexts(found: list[TurnCall]) -> dict[tuple[int, int], Context]:
    """The context of each reply that asked for one of these calls."""
    contexts: dict[tuple[int, int], Context] = {}
    runs = {
        run.turn_id: run
        for run in TurnRun.objects.select_related("created_by").filter(turn__in={one.call.turn_id for one in found})
    }
    for one in found:
        key = (one.call.turn_id, one.call.cycle)
        if key in contexts:
            continue
        turn = turn_without_payload(key[0])
        asked = read_conversation(turn.messages_start, max_text=1_000).messages  # type: ignore[attr-defined]
        reply = ModelReply.objects.filter(turn=key[0], cycle=key[1], error_code="").values_list("reply", flat=True)
        text, _, _ = said_in((reply.first() or "{}")[:MAX_REPLY_CHARS])
        contexts[key] = Context(
            turn=turn,
            asked=next((message for message in asked if message.role == "user"), None),
            reply=text[:1_000],
            sent_by=sender(runs[key[0]]),
            others=[other for other in siblings(key[0]) if other.id != one.call.pk],
        )
    return contexts


@require_POST
@tenant_view(Role.OPERATOR)
def pending_decide(request: TenantRequest) -> HttpResponse:
    """Approve or decline several calls at once. Asked for without `confirmed` it shows first which ones they are."""
    form = DecisionForm(request.POST)
    ids = [int(text) for text in request.POST.getlist("call") if text.isascii() and text.isdigit() and len(text) < 19]
    if not form.is_valid() or form.cleaned_data["decision"] not in TOGETHER:
        return _told(request, "Several calls can be approved or declined together.")
    if not ids:
        return _told(request, "Choose calls first: x on a call, or its checkbox.")
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
            messages.warning(request, f"{call.tool_name}, call {call.pk}: {fault}")
        done += not fault
    if done:
        word = "approved" if form.cleaned_data["decision"] == DecisionKind.APPROVE else "declined"
        messages.success(request, f"{done} call{'' if done == 1 else 's'} {word}.")
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
