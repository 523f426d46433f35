"""The judgement beside an item: its form, what was said so far, and the answer to a write that came too late."""

import uuid
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import F

from quality.models import Feedback, FeedbackEvent, Label, ToolCall
from quality.pages.access import TenantRequest
from quality.pages.correction_form import ASKED
from quality.review.evidence import ItemEvidence
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn
from quality.review.labelling import MAX_NOTE_CHARS, last_event_of
from tenants.models import Role

HELP = {
    Label.GOOD_REPLY: "Right tool, right arguments, right moment",
    Label.WRONG_TOOL: "Another tool, or none, was called for",
    Label.MISSING_TOOL: "A call was needed and not made",
    Label.BAD_ARGS: "Right tool, wrong arguments",
    Label.OTHER: "Something else: say it in the note",
}


class ItemForm(forms.Form):
    """Which item was on the screen, in which version, and the form's own nonce: every write is bound to them."""

    call = forms.IntegerField(required=False, min_value=1)
    turn = forms.IntegerField(required=False, min_value=1)
    cycle = forms.IntegerField(required=False, min_value=0)
    version = forms.IntegerField(min_value=0)
    nonce = forms.UUIDField()

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if not data.get("call") and not data.get("turn"):
            raise ValidationError("Say which item this is for: a call, or a turn and its cycle.")
        return data

    def item(self) -> Item:
        """The item it names; raises NoSuchItem."""
        call, turn = self.cleaned_data["call"], self.cleaned_data["turn"]
        return item_of_call(call) if call else item_of_turn(turn, self.cleaned_data["cycle"])


class LabelForm(ItemForm):
    label = forms.ChoiceField(
        choices=Label.choices,
        error_messages={"invalid_choice": f"%(value)s is no label. Use one of {', '.join(Label.values)}."},
    )
    note = forms.CharField(required=False, max_length=MAX_NOTE_CHARS)
    correction = forms.CharField(required=False, strip=False)


HELP_NO_CALL = {
    **HELP,
    Label.GOOD_REPLY: "Right: no call was needed",
    Label.WRONG_TOOL: "It names a tool in words, a wrong one",
    Label.BAD_ARGS: "It describes a call, with wrong arguments",
}
HELP_AFTER_CALLS = {
    **HELP_NO_CALL,
    Label.GOOD_REPLY: "Right: no further call was needed",
    Label.MISSING_TOOL: "A further call was needed and not made",
}


def buttons(mine: Feedback | None, item: Item, *, had_calls: bool) -> list[dict[str, Any]]:
    """The labels in their order; the key is the place in it. Those that take a correction or ask for a note say so.
    `had_calls` says of a reply without a call whether the turn made calls before it."""
    words = HELP if item.call_id else HELP_AFTER_CALLS if had_calls else HELP_NO_CALL
    return [
        {
            "key": str(key),
            "value": label.value,
            "name": label.label,
            "help": words[label],
            "is_mine": bool(mine and mine.label == label),
            "asks": label in ASKED and (label != Label.BAD_ARGS or item.call_id is not None),
        }
        for key, label in enumerate(Label, start=1)
    ]


def label_context(request: TenantRequest, found: ItemEvidence, *, note: str | None = None) -> dict[str, Any]:
    """What the judgement component shows. `note` is one that was sent and could not be saved."""
    mine = next((label for label in found.labels if label.reviewer_id == request.user.pk), None)
    return {
        "buttons": buttons(mine, found.item, had_calls=bool(found.siblings)),
        "mine": mine,
        "actual": found.call.args.text if found.call and found.call.args and not found.call.args.cut else None,
        "agree_with": _to_agree_with(found, mine),
        "note": note if note is not None else (mine.note if mine else ""),
        "version": found.events[-1].version if found.events else 0,
        "nonce": uuid.uuid4(),
        "last": last_label(request, found.item),
    }


def _to_agree_with(found: ItemEvidence, mine: Feedback | None) -> Feedback | None:
    """The newest label of somebody else that says something else than one's own."""
    theirs = next((label for label in found.labels if label is not mine), None)
    if theirs and mine and (theirs.label, theirs.correction) == (mine.label, mine.correction):
        return None
    return theirs


def last_label(request: TenantRequest, shown: Item | None = None) -> dict[str, Any] | None:
    """The label that `u` takes back, what it was given to, and whether that is `shown`; None for who may not label."""
    if not request.membership.may(Role.OPERATOR):
        return None
    event = last_event_of(request.user)
    if event is None:
        return None
    key = {"turn_id": event.turn_id, "cycle": event.cycle, "call_id": event.call_id}
    is_here = shown is not None and shown.key == key
    can_correct = event.label in ASKED and (event.label != Label.BAD_ARGS or event.call_id is not None)
    return {
        "event": event,
        "item": describe(event),
        "is_here": is_here,
        "can_correct": can_correct,
        "nonce": uuid.uuid4(),
    }


def describe(event: FeedbackEvent) -> str:
    """What an event's item is called in a line."""
    if event.call_id is None:
        return "reply without a call"
    name = ToolCall.objects.filter(pk=event.call_id).values_list(F("tool_name"), flat=True).first()
    return str(name or "call")


__all__ = ["ItemForm", "LabelForm", "NoSuchItem", "buttons", "describe", "label_context", "last_label"]
