"""The same label for many calls, and its undo, in a few statements for all of them.

What is written is what `quality.review.labelling` writes for each alone: event, the reviewer's label with its faults,
the state of the review, the audit log, and word to queues and suggestions. Here are only the plain cases; what is not
plain goes through labelling itself. All functions need an open tenant scope.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from quality.improve.faults import faults_of
from quality.improve.guidelines import newest_number
from quality.models import ACTIONABLE, Feedback, FeedbackEvent, Label, QueueEntry, Review, Suggestion, ToolCall, Toolset
from quality.review.bulk.scope import among
from quality.review.items import Item
from quality.review.labelling import UNDO_LIFE, Action, Verdict
from quality.review.offered import OfferedTool, offered_tools
from quality.review.queues import labelled
from quality.review.suggesting import deciding
from tenants import audit
from tenants.context import request_id
from tenants.models import ApiToken, AuditEvent, User


@transaction.atomic
def give(
    items: Sequence[Item], *, reviewer: User, said: Verdict, token: ApiToken | None = None
) -> dict[int | None, int]:
    """Label calls that this reviewer has no label on. The version that each got, by call: those that he labelled
    meanwhile are left out. A correction, which is of one call, is not taken."""
    assert said.correction is None
    reviews = _locked(items)
    mine = Feedback.objects.filter(call_id__in=[item.call_id for item in items], reviewer=reviewer)
    had = set(mine.values_list("call_id", flat=True))
    fresh = [item for item in items if item.call_id not in had]
    derived, now, guidelines = _derived(fresh, said), timezone.now(), newest_number()
    events, labels = [], []
    for item in fresh:
        common = {
            **item.columns,
            **asdict(said),
            "reviewer": reviewer,
            "guideline_version": guidelines,
            "version": reviews[item.call_id].version + 1,
        }
        by_token = token.pk if token else None
        events.append(FeedbackEvent(**common, action=Action.LABEL, token_id=by_token, created_at=now))
        labels.append(Feedback(**common, **derived[item.call_id], created_at=now, updated_at=now))
    FeedbackEvent.objects.bulk_create(events)
    Feedback.objects.bulk_create(labels)
    Review.objects.filter(pk__in=[reviews[item.call_id].pk for item in fresh]).update(
        version=F("version") + 1, num_labels=F("num_labels") + 1, label=said.label, updated_at=now
    )
    _tell(events, fresh)
    _record("feedback.labelled", events, before=None, after=said, token=token)
    return {event.call_id: event.version for event in events}


@transaction.atomic
def take_back(
    items: Mapping[int | None, Item], versions: Mapping[int | None, int], *, reviewer: User, token: ApiToken | None
) -> set[int | None]:
    """Take back the labels that got these versions, where that is plain: it is this reviewer's last word on the call,
    he had said nothing before, and nobody else has a label there. Those calls; the others are for labelling."""
    reviews = _locked(list(items.values()))
    now = timezone.now()
    words: dict[int | None, list[FeedbackEvent]] = {}
    for event in FeedbackEvent.objects.filter(call_id__in=list(items), reviewer=reviewer).order_by("-version"):
        words.setdefault(event.call_id, []).append(event)
    plain = [
        events[0]
        for call_id, events in words.items()
        if _is_plain(events, versions.get(call_id), reviews[call_id], now)
    ]
    if not plain:
        return set()
    said = Verdict(label=str(plain[0].label), note=plain[0].note, correction=plain[0].correction)
    undone = [
        FeedbackEvent(
            **items[event.call_id].columns,
            reviewer=reviewer,
            action=Action.UNDO,
            undoes=event.version,
            version=reviews[event.call_id].version + 1,
            token_id=token.pk if token else None,
            created_at=now,
        )
        for event in plain
    ]
    FeedbackEvent.objects.bulk_create(undone)
    Feedback.objects.filter(call_id__in=[event.call_id for event in plain], reviewer=reviewer).delete()
    Review.objects.filter(pk__in=[reviews[event.call_id].pk for event in plain]).update(
        version=F("version") + 1, num_labels=0, label=None, updated_at=now
    )
    _tell(undone, [items[event.call_id] for event in plain])
    _record("feedback.undone", undone, before=said, after=None, token=token)
    return {event.call_id for event in plain}


def _is_plain(events: Sequence[FeedbackEvent], version: int | None, review: Review, now: dt.datetime) -> bool:
    last, *earlier = events
    return (
        last.version == version
        and last.action == Action.LABEL
        and last.created_at >= now - UNDO_LIFE
        and (not earlier or earlier[0].label is None)
        and review.num_labels == 1
    )


def _locked(items: Sequence[Item]) -> dict[int | None, Review]:
    """The reviews of calls, made where there are none, locked until the transaction ends in an order of their own."""
    fresh = [Review(**item.columns, tool_name=item.tool_name, started_at=item.started_at) for item in items]
    Review.objects.bulk_create(fresh, ignore_conflicts=True)
    rows = Review.objects.select_for_update().filter(call_id__in=[item.call_id for item in items]).order_by("pk")
    return {row.call_id: row for row in rows}


def _derived(items: Sequence[Item], said: Verdict) -> dict[int | None, dict[str, Any]]:
    """What the label speaks of on each call, as groups are read."""
    asks_args = said.label == Label.BAD_ARGS
    columns = ["pk", "tool_name", "style_id", "toolset_id", "turn__toolset_id", *(["args"] if asks_args else [])]
    calls = list(
        ToolCall.objects.filter(among("pk", [item.call_id for item in items if item.call_id])).values(*columns)
    )
    tools = _tools([call["toolset_id"] or call["turn__toolset_id"] for call in calls]) if asks_args else {}
    found: dict[int | None, dict[str, Any]] = {}
    for call in calls:
        offered = tools.get(call["toolset_id"] or call["turn__toolset_id"], ())
        faults: tuple[str, ...] = ()
        if said.label in ACTIONABLE:
            faults = faults_of(said.label, call["tool_name"], call.get("args"), None, offered)
        found[call["pk"]] = {"tool_name": call["tool_name"], "style_id": call["style_id"], "faults": list(faults)}
    return found


def _tools(ids: Iterable[int | None]) -> dict[int | None, tuple[OfferedTool, ...]]:
    """The tools of toolsets, by id. Calls of one agent share a few."""
    rows = Toolset.objects.filter(pk__in={pk for pk in ids if pk}).values_list("pk", "tools")
    return {pk: offered_tools(text) for pk, text in rows}


def _tell(events: Sequence[FeedbackEvent], items: Sequence[Item]) -> None:
    """Word to queues and suggestions, for the calls that any of them knows."""
    ids = [item.call_id for item in items]
    queued = set(QueueEntry.objects.filter(call_id__in=ids).values_list("call_id", flat=True))
    suggested = set(Suggestion.objects.filter(call_id__in=ids).values_list("call_id", flat=True))
    now = timezone.now()
    for event, item in zip(events, items, strict=True):
        if item.call_id in suggested:
            deciding.after(event, item)  # before queues, as in labelling
        if item.call_id in queued:
            labelled.after(event, item, now)


def _record(
    action: str,
    events: Sequence[FeedbackEvent],
    *,
    before: Verdict | None,
    after: Verdict | None,
    token: ApiToken | None,
) -> None:
    hashes = {
        "before_sha256": audit.fingerprint(asdict(before) if before else None),
        "after_sha256": audit.fingerprint(asdict(after) if after else None),
    }
    rows = [
        AuditEvent(
            action=action,
            object_type="tool_call",
            object_id=str(event.call_id),
            actor=event.reviewer,
            token_id=token.pk if token else None,
            request_id=request_id.get(),
            detail={
                "from": before and before.label,
                "to": after and after.label,
                "cycle": event.cycle,
                "version": event.version,
            },
            **hashes,
        )
        for event in events
    ]
    if rows:
        audit.recorded.send(AuditEvent, rows=AuditEvent.objects.bulk_create(rows))
