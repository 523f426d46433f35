"""What the coach is given to read. Needs an open tenant scope; the reading itself is plain values, good outside it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count
from django.db.models.functions import Left
from django.utils.translation import gettext as _

from quality.models import ACTIONABLE, Feedback, Label, ToolCall, Turn
from quality.review.conversation import read_conversation
from tenants.models import Skill, Style, StyleVersion
from tenants.styles import StyleText, text_of

MAX_FEEDBACK = 60
MAX_TEXT = 600  # characters of one question, one note, one call's arguments
MESSAGES_START = 8_000


class NoSuchStyle(LookupError):
    """The tenant has no style of this id."""


@dataclass(frozen=True, kw_only=True)
class Remark:
    """One reviewer's actionable label. `args` is JSON text and may be cut; `question` is what the user had said."""

    feedback_id: int
    turn_id: int
    call_id: int | None
    label: str
    tool_name: str
    faults: tuple[str, ...] = ()
    note: str = ""
    correction: Mapping[str, Any] = field(default_factory=dict)
    args: str = ""
    question: str = ""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A style as it is, and what reviewers said of its calls, newest first. `skills` are all of the tenant, by name;
    `good` counts calls that reviewers found right, by tool."""

    style_id: str
    style_version: int
    text: StyleText
    skills: Mapping[str, tuple[str, ...]]
    remarks: tuple[Remark, ...]
    good: Mapping[str, int] = field(default_factory=dict)


def read(style_id: str, *, feedback_ids: Iterable[int] | None = None) -> Reading:
    """The style's newest actionable feedback, or what is left of the given one. Raises NoSuchStyle."""
    style = Style.objects.filter(style_id=style_id).first()
    if style is None:
        raise NoSuchStyle(
            _("There is no style %(style_id)s here. Make it first, then ask the coach.") % {"style_id": repr(style_id)}
        )
    said = Feedback.objects.filter(style_id=style_id, label__in=ACTIONABLE)
    if feedback_ids is not None:
        said = said.filter(pk__in=list(feedback_ids))
    rows = list(said.order_by("-updated_at", "-pk")[:MAX_FEEDBACK])
    return Reading(
        style_id=style_id,
        style_version=style.version,
        text=text_of(StyleVersion.objects.get(style=style, number=style.version)),
        skills={skill.name: tuple(skill.tools) for skill in Skill.objects.order_by("name")},
        remarks=tuple(_remarks(rows)),
        good=_good(style_id),
    )


def _remarks(rows: list[Feedback]) -> Iterable[Remark]:
    calls = ToolCall.objects.filter(pk__in={row.call_id for row in rows if row.call_id})
    args = dict(calls.annotate(start=Left("args", MAX_TEXT)).values_list("pk", "start"))
    questions = _questions({row.turn_id for row in rows})
    for row in rows:
        yield Remark(
            feedback_id=row.pk,
            turn_id=row.turn_id,
            call_id=row.call_id,
            label=row.label,
            tool_name=row.tool_name,
            faults=tuple(row.faults),
            note=row.note[:MAX_TEXT],
            correction=json.loads(row.correction) if row.correction else {},
            args=args.get(row.call_id or 0) or "",
            question=questions.get(row.turn_id, ""),
        )


def _questions(turn_ids: set[int]) -> dict[int, str]:
    turns = Turn.objects.filter(pk__in=turn_ids).annotate(start=Left("messages", MESSAGES_START))
    found = {}
    for pk, start in turns.values_list("pk", "start"):
        said = read_conversation(start, max_text=MAX_TEXT).messages
        found[pk] = next((one.text for one in said if one.role == "user"), "")
    return found


def _good(style_id: str) -> Mapping[str, int]:
    labels = Feedback.objects.filter(style_id=style_id, label=Label.GOOD_REPLY)
    return Counter(dict(labels.values_list("tool_name").annotate(Count("pk")).order_by()))
