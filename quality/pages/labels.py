"""The judgement beside an item: its form, what was said so far, and the answer to a write that came too late."""

import uuid
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import F
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from quality.models import Feedback, FeedbackEvent, Label, ToolCall
from quality.pages.access import TenantRequest
from quality.pages.correction_form import ASKED
from quality.review.evidence import ItemEvidence
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn
from quality.review.keys import goes_on
from quality.review.labelling import MAX_NOTE_CHARS
from quality.review.sitting import Step, sitting_of
from quality.review.suggesting.shown import suggestion_for
from tenants.models import Role

HELP: dict[Label, Promise] = {
    Label.GOOD_REPLY: _("Right tool, right arguments, right moment"),
    Label.WRONG_TOOL: _("Another tool, or none, was called for"),
    Label.MISSING_TOOL: _("A call was needed and not made"),
    Label.BAD_ARGS: _("Right tool, wrong arguments"),
    Label.OTHER: _("Something else: say it in the note"),
}
MAX_ANSWERS = 4  # that have a key each


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
            raise ValidationError(_("Say which item this is for: a call, or a turn and its cycle."))
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


class StepForm(ItemForm):
    """Which of one's own steps on the item is taken back: the version of its event; none: the last one."""

    step = forms.IntegerField(required=False, min_value=1)


HELP_NO_CALL = {
    **HELP,
    Label.GOOD_REPLY: _("Right: no call was needed"),
    Label.WRONG_TOOL: _("It names a tool in words, a wrong one"),
    Label.BAD_ARGS: _("It describes a call, with wrong arguments"),
}
HELP_AFTER_CALLS = {
    **HELP_NO_CALL,
    Label.GOOD_REPLY: _("Right: no further call was needed"),
    Label.MISSING_TOOL: _("A further call was needed and not made"),
}


def buttons(mine: Feedback | None, item: Item, *, had_calls: bool) -> list[dict[str, Any]]:
    """The labels in their order. Those that take a correction or ask for a note say so. `had_calls` says of a reply
    without a call whether the turn made calls before it."""
    words = HELP if item.call_id else HELP_AFTER_CALLS if had_calls else HELP_NO_CALL
    return [
        {
            "value": label.value,
            "name": label.label,
            "help": words[label],
            "is_mine": bool(mine and mine.label == label),
            "asks": label in ASKED and (label != Label.BAD_ARGS or item.call_id is not None),
        }
        for label in Label
    ]


def label_context(request: TenantRequest, found: ItemEvidence, *, note: str | None = None) -> dict[str, Any]:
    """What the judgement component shows. `note` is one that was sent and could not be saved."""
    mine = next((label for label in found.labels if label.reviewer_id == request.user.pk), None)
    return {
        "item_name": found.item.name,
        "goes_on": goes_on(request.user),
        "buttons": buttons(mine, found.item, had_calls=bool(found.siblings)),
        "mine": mine,
        "actual": found.call.args.text if found.call and found.call.args and not found.call.args.cut else None,
        "agree_with": _to_agree_with(found, mine),
        "answers": _answers(found, mine),
        "suggestion": suggestion_for(found.item, request.user),
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


def _answers(found: ItemEvidence, mine: Feedback | None) -> list[dict[str, Any]]:
    """What reviewers answered, to be seen side by side, oldest first: each with the action whose key takes it. None
    where fewer than two did."""
    if len(found.labels) < 2:
        return []
    num_others = sum(label is not mine for label in found.labels)
    answers: list[dict[str, Any]] = []
    for label in reversed(found.labels):
        number = 1 + sum(not one["is_mine"] for one in answers)
        takes = f"answer_{number}" if label is not mine and number <= MAX_ANSWERS else ""
        if takes and mine and (label.label, label.correction) == (mine.label, mine.correction):
            takes = ""  # he says so already
        elif takes and num_others == 1:
            takes = "agree"
        answers.append({"label": label, "is_mine": label is mine, "takes": takes})
    return answers


def last_label(request: TenantRequest, shown: Item | None = None) -> dict[str, Any] | None:
    """The steps that undo and redo take, what they are about, and whether that is `shown`; None for who may not label,
    or did nothing."""
    if not request.membership.may(Role.OPERATOR):
        return None
    sitting = sitting_of(request.user)
    if sitting.undo is None and sitting.redo is None:
        return None
    return {
        "event": sitting.undo,
        "item": describe(sitting.undo) if sitting.undo else "",
        "seen": sitting.undo_seen,
        "is_here": _is_of(sitting.undo, shown),
        "can_correct": sitting.undo is not None and _can_correct(sitting.undo),
        "nonce": uuid.uuid4(),
        "redo": sitting.redo,
        "redo_item": describe(sitting.redo) if sitting.redo else "",
        "redo_seen": sitting.redo_seen,
        "redo_is_here": _is_of(sitting.redo, shown),
        "redo_nonce": uuid.uuid4(),
    }


def _is_of(step: Step | None, shown: Item | None) -> bool:
    if step is None or shown is None:
        return False
    return (step.turn_id, step.call_id) == (shown.turn_id, shown.call_id) and (
        step.call_id is not None or step.cycle == shown.cycle
    )


def _can_correct(step: Step) -> bool:
    return step.label in ASKED and (step.label != Label.BAD_ARGS or step.call_id is not None)


def describe(event: FeedbackEvent | Step) -> str:
    """What an event's item is called in a line."""
    if event.call_id is None:
        return gettext("reply without a call")
    name = ToolCall.objects.filter(pk=event.call_id).values_list(F("tool_name"), flat=True).first()
    return str(name or gettext("call"))


__all__ = ["ItemForm", "LabelForm", "NoSuchItem", "StepForm", "buttons", "describe", "label_context", "last_label"]
