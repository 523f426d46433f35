"""Deciding on a call from a page: what its card shows, what is sent from it, and what came of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from engine.strict_json import JsonError, read_json
from quality.ingest.jsontext import dump
from quality.models import CallState, DecisionKind, Label, ToolCall, TurnRun
from quality.pages.access import TenantRequest
from quality.pages.argument_form import ArgumentForm, argument_form
from quality.review.blind import hidden_calls
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.turns.decide import AlreadyDecided, CannotDecide, Verdict, decide
from quality.turns.transcript import TurnCall, decisions_on, turn_call
from tenants.models import User

MAX_REASON_CHARS = 2_000
MAX_RESULT_CHARS = 100_000
MAX_ARGUMENTS_CHARS = 200_000
DECLINE_LABELS = (Label.WRONG_TOOL, Label.BAD_ARGS, Label.OTHER)
PLACES = {"run": "run-turn", "turn": "turn-detail", "pending": "pending"}
CODE = {"rows": 6, "class": "mono", "spellcheck": "false"}

_KINDS = [kind for kind in DecisionKind.values if kind != DecisionKind.NOT_ANSWERED]


class DecisionForm(forms.Form):
    """What is sent from a call's card. `form` names which of its forms it was: it is shown open again after a fault."""

    decision = forms.ChoiceField(choices=[(kind, kind) for kind in _KINDS])
    opening = forms.IntegerField(required=False, min_value=1)
    form = forms.CharField(required=False, max_length=10)
    reason = forms.CharField(required=False, max_length=MAX_REASON_CHARS)
    result = forms.CharField(required=False, max_length=MAX_RESULT_CHARS, strip=False)
    is_error = forms.BooleanField(required=False)
    arguments = forms.CharField(required=False, max_length=MAX_ARGUMENTS_CHARS, strip=False)
    label_too = forms.BooleanField(required=False)
    label = forms.ChoiceField(required=False, choices=[(label, label) for label in Label.values])


@dataclass(frozen=True, kw_only=True)
class Card:
    """A call with its forms. `opened` is the one that is open, `sent` what it sent, `faults` what was wrong with it."""

    one: TurnCall
    place: str
    fields: ArgumentForm | None = None
    raw: str = ""
    opened: str = ""
    faults: tuple[str, ...] = ()
    sent: Mapping[str, Any] | None = None
    meanwhile: str = ""

    @property
    def takes(self) -> dict[str, bool]:
        """Which decisions the call takes now, by their names."""
        return {kind: kind in self.one.kinds for kind in _KINDS}


def veiled(calls: Sequence[TurnCall], user: User) -> list[TurnCall]:
    """These calls, without the labels that this user must not see."""
    hidden = hidden_calls(user, [one.call.pk for one in calls])
    return [replace(one, label=None) if one.call.pk in hidden else one for one in calls]


def place_of(request: TenantRequest) -> str:
    """On which page a card stands."""
    place = request.POST.get("place") or request.GET.get("place") or ""
    return place if place in PLACES else "turn"


def address(request: TenantRequest, place: str, turn_id: int) -> str:
    """The page that a card stands on."""
    parts = [request.tenant.slug] if place == "pending" else [request.tenant.slug, turn_id]
    return reverse(PLACES[place], args=parts)


def card_of(one: TurnCall, place: str, **more: Any) -> Card:
    """A call with its forms, filled with the model's arguments."""
    if DecisionKind.APPROVE not in one.kinds:
        return Card(one=one, place=place, **more)
    values = _arguments(one)
    given = {
        "fields": argument_form(parameters_of(one), values=values, auto_id=f"call-{one.call.pk}-%s")
        if values is not None
        else None,
        "raw": json.dumps(values, ensure_ascii=False, indent=2) if values is not None else "{}",
    }
    return Card(one=one, place=place, **(given | more))


def parameters_of(one: TurnCall) -> Mapping[str, Any]:
    """The schema that the model read."""
    return (one.evidence.tool.parameters if one.evidence.tool else None) or {}


def _arguments(one: TurnCall) -> dict[str, Any] | None:
    """The model's arguments, if they are an object that a page can hold."""
    args = one.evidence.args
    if args is None or args.cut:
        return None
    try:
        value = read_json(args.text)
    except JsonError:
        return None
    return value if isinstance(value, dict) else None


def find_call(turn_id: int, call_id: int) -> TurnCall:
    """A call of a turn of ours; raises Http404."""
    try:
        return turn_call(turn_id, call_id)
    except (TurnRun.DoesNotExist, ToolCall.DoesNotExist) as error:
        raise Http404(_("There is no such call.")) from error


@dataclass(frozen=True, kw_only=True)
class Came:
    """What came of a decision that was sent: the card as it is now, an HTTP status, and words where it was made."""

    card: Card
    status: int
    words: str = ""


def carry_out(request: TenantRequest, one: TurnCall, place: str) -> Came:
    """Record what was sent from a card, and the label with it; in one transaction."""
    form = DecisionForm(request.POST)
    if not form.is_valid():
        faults = [str(text) for texts in form.errors.values() for text in texts]
        return _refused(one, place, request.POST.get("form", ""), faults, request.POST)
    sent = form.cleaned_data
    fields = None
    try:
        arguments = None
        if sent["form"] == "edit":
            fields = argument_form(parameters_of(one), request.POST, auto_id=f"call-{one.call.pk}-%s")
            if not fields.is_valid():
                return _refused(one, place, "edit", [], request.POST, fields=fields)
            arguments = fields.arguments()
        elif sent["form"] == "json":
            arguments = _object(sent["arguments"])
        is_edited = arguments is not None and arguments != _arguments(one)
        kind = DecisionKind(sent["decision"])
        text = {DecisionKind.DECLINE: sent["reason"], DecisionKind.ANSWER: sent["result"]}.get(kind)
        text = text and text.replace("\r\n", "\n")  # as it was typed: forms send line ends of their own
        edited = arguments if is_edited else None
        verdict = Verdict(one.call.pk, kind, edited, text, sent["is_error"], opening=sent["opening"])
        with transaction.atomic():  # the label with the decision, or neither
            decide(one.call.turn_id, [verdict], by=request.user)
            label = label_with(request, one.call.pk, sent, verdict)
    except CannotDecide as error:
        return _refused(one, place, sent["form"], [str(error)], request.POST, fields=fields)
    except ValidationError as error:
        return _refused(one, place, sent["form"], error.messages, request.POST, fields=fields)
    except AlreadyDecided as error:
        now = find_call(one.call.turn_id, one.call.pk)
        return Came(card=card_of(now, place, meanwhile=meanwhile(error, one.call)), status=409)
    now = find_call(one.call.turn_id, one.call.pk)
    told = {"tool": one.call.tool_name, "decision": now.decisions[-1].word.lower(), "label": label}
    words = _("%(tool)s: %(decision)s, labelled %(label)s") if label else _("%(tool)s: %(decision)s")
    return Came(card=card_of(now, place), status=200, words=words % told)


def label_with(request: TenantRequest, call_id: int, sent: Mapping[str, Any], verdict: Verdict) -> str:
    """Give the call the label that was sent along with a decision; the label's name, empty if there was none.

    Edited arguments say what was wrong with those of the model: they are the correction."""
    if not sent["label_too"]:
        return ""
    correction = None
    if verdict.kind == DecisionKind.DECLINE:
        label = Label(sent["label"] or Label.WRONG_TOOL)
    elif verdict.arguments is not None:
        label, correction = Label.BAD_ARGS, dump({"arguments": dict(verdict.arguments)})
    else:
        return ""
    note = sent["reason"] if verdict.kind == DecisionKind.DECLINE else ""
    record_label(item=item_of_call(call_id), reviewer=request.user, label=label, note=note, correction=correction)
    return str(label.label).lower()


def meanwhile(error: AlreadyDecided, call: ToolCall) -> str:
    """Who decided on a call before us, what and when."""
    made = list(decisions_on([call.pk]).get(call.pk, {}).values())
    if not made:
        state = ToolCall.objects.filter(pk=call.pk).values_list("state", flat=True).first() or ""
        told = _("Nothing was changed: the call has ended meanwhile (%(state)s).")
        return told % {"state": str(CallState(state).label).lower()}
    last = made[-1]
    at = timezone.localtime(last.at).strftime("%H:%M:%S")
    told = _("Nothing was changed: %(person)s decided at %(time)s already: %(decision)s.")
    return told % {"person": last.by, "time": at, "decision": last.word.lower()}


def _object(text: str) -> dict[str, Any]:
    try:
        value = read_json(text.strip() or "{}")
    except JsonError as error:
        raise ValidationError(_("This is not JSON: %(why)s.") % {"why": error}) from error
    if not isinstance(value, dict):
        raise ValidationError(_("Arguments are a JSON object."))
    return value


def _refused(
    one: TurnCall,
    place: str,
    opened: str,
    faults: list[str],
    sent: Mapping[str, Any],
    *,
    fields: ArgumentForm | None = None,
) -> Came:
    """The card again, with what was sent still in it."""
    more: dict[str, Any] = {"opened": opened, "faults": tuple(faults), "sent": sent}
    if fields is not None:
        more["fields"] = fields
    if opened == "json":
        more["raw"] = sent.get("arguments", "")
    return Came(card=card_of(one, place, **more), status=422)
