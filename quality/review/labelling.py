"""Giving and taking back labels. All functions need an open tenant scope.

Each step of an item is an event that nothing changes afterwards; the reviewer's current label and the item's state are
kept beside the events. A write says which version of the item its author saw: an older one is refused with what is
there now (`StaleLabel`), unless it only repeats what the same reviewer did already.

With the label stands what groups are read from: tool, style and kinds of faults, and the guidelines it was given under.
"""

import datetime as dt
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from quality.improve.faults import faults_of
from quality.improve.guidelines import newest_number
from quality.ingest.jsontext import storable
from quality.models import ACTIONABLE, Feedback, FeedbackEvent, Label, Review, ToolCall, Turn
from quality.review import blind
from quality.review.corrections import Subject, checked
from quality.review.items import Item
from quality.review.queues import labelled
from quality.review.suggesting import deciding
from quality.stored import json_sent, on_stored, prose_sent
from tenants import audit
from tenants.masking import reading
from tenants.models import ApiToken, User

MAX_NOTE_CHARS = 10_000
UNDO_LIFE = dt.timedelta(hours=24)
Action = FeedbackEvent.Action


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a reviewer says: a label, a note, and the correction as JSON text."""

    label: str
    note: str = ""
    correction: str | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a write came to. `created` is false if it repeated an earlier one, whose `event` this then is."""

    event: FeedbackEvent
    created: bool


class StaleLabel(Exception):
    """The item has changed since its author saw it: `current` labels at `version`, those that `reviewer` may see, and
    what was `sent` (None: undo)."""

    def __init__(self, *, item: Item, reviewer: User, version: int, sent: Verdict | None) -> None:
        super().__init__(f"The {item} was labelled meanwhile. Look at the labels there now, then send yours again.")
        self.version = version
        self.current = blind.veiled_labels(reviewer, item, current_labels(item))
        self.sent = sent


class NothingToUndo(Exception):
    """The reviewer has no event on the item, or it is too old to be taken back."""


def current_labels(item: Item) -> list[Feedback]:
    """The reviewers' current labels, newest first, with `reviewer` loaded."""
    return list(Feedback.objects.filter(**item.key).select_related("reviewer").order_by("-version"))


def version_of(item: Item) -> int:
    """The item's version; 0 before its first label."""
    return Review.objects.filter(**item.key).values_list("version", flat=True).first() or 0


def history(item: Item) -> list[FeedbackEvent]:
    """All that happened to an item, oldest first, with `reviewer` loaded."""
    return list(FeedbackEvent.objects.filter(**item.key).select_related("reviewer").order_by("version"))


def last_event_of(reviewer: User) -> FeedbackEvent | None:
    """The label that this reviewer's `u` takes back: his newest that he did not take back or replace since."""
    later = FeedbackEvent.objects.filter(
        turn_id=OuterRef("turn_id"), reviewer=reviewer, version__gt=OuterRef("version")
    )
    mine = FeedbackEvent.objects.filter(
        reviewer=reviewer, action=Action.LABEL, created_at__gte=timezone.now() - UNDO_LIFE
    ).order_by("-id")
    on_calls = mine.filter(~Exists(later.filter(call_id=OuterRef("call_id"))), call_id__isnull=False)
    on_turns = mine.filter(~Exists(later.filter(cycle=OuterRef("cycle"), call_id=None)), call_id=None)
    newest = [event for event in (on_calls.first(), on_turns.first()) if event]
    return max(newest, key=lambda event: event.pk, default=None)


@transaction.atomic
def record_label(
    *,
    item: Item,
    reviewer: User,
    label: str,
    note: str = "",
    correction: str | None = None,
    seen_version: int | None = None,
    nonce: uuid.UUID | None = None,
    token: ApiToken | None = None,
    at: dt.datetime | None = None,
) -> Outcome:
    """Give an item this reviewer's label, in place of the one he gave before.

    `correction` is JSON text: see quality.review.corrections. `seen_version` None skips the check for changes
    meanwhile; `nonce` names the form, so that sending it twice is one event. `at` is for labels that were given
    elsewhere before they are stored here. Raises ValidationError and StaleLabel.
    """
    said = Verdict(label=label, note=note.strip(), correction=correction)
    sent = _put_back(item, said)
    with _seen_again(item, reviewer, said), on_stored():
        outcome = _recorded(item, reviewer, sent, seen_version=seen_version, nonce=nonce, token=token, at=at)
    return _as_read(outcome)


def _recorded(
    item: Item,
    reviewer: User,
    sent: Verdict,
    *,
    seen_version: int | None,
    nonce: uuid.UUID | None,
    token: ApiToken | None,
    at: dt.datetime | None,
) -> Outcome:
    label, correction = sent.label, sent.correction
    _check(sent)
    subject = Subject(item)
    sent = replace(sent, correction=checked(label, correction, subject))
    review = locked(item)
    if repeated := _repeated(item, reviewer, nonce):
        return Outcome(event=repeated, created=False)
    mine = Feedback.objects.filter(**item.key, reviewer=reviewer).first()
    if mine and _said(mine) == sent:
        event = FeedbackEvent.objects.get(**item.key, version=mine.version)
        labelled.after(event, item, timezone.now())  # a queue may ask for what was said before it
        return Outcome(event=event, created=False)
    if seen_version is not None and _is_stale(item, reviewer, review, seen_version):
        raise StaleLabel(item=item, reviewer=reviewer, version=review.version, sent=sent)
    event = FeedbackEvent(**item.columns, reviewer=reviewer, action=Action.LABEL, **asdict(sent), nonce=nonce)
    event.guideline_version = newest_number()
    event.created_at = at or event.created_at
    return _written(event, subject=subject, review=review, mine=mine, token=token)


def _put_back(item: Item, said: Verdict) -> Verdict:
    """What a reviewer says, with what stands behind the marks in it: those of the item's evidence and labels."""
    if reading.current() is None:
        return said
    list(ToolCall.objects.filter(turn_id=item.turn_id, cycle=item.cycle).values_list("args", "result", "error"))
    Turn.objects.filter(pk=item.turn_id).values_list("messages", "system", "history").first()
    history(item)
    correction = said.correction and json_sent("correction", said.correction)
    return replace(said, note=prose_sent(said.note), correction=correction)


@contextmanager
def _seen_again(item: Item, reviewer: User, said: Verdict | None) -> Iterator[None]:
    """What a conflict tells is read by the reviewer, and what they sent is told as they sent it."""
    try:
        yield
    except StaleLabel as stale:
        if reading.current() is None:
            raise
        raise StaleLabel(item=item, reviewer=reviewer, version=stale.version, sent=said) from None


def _as_read(outcome: Outcome) -> Outcome:
    if reading.current() is not None:
        outcome.event.refresh_from_db(fields=["note", "correction"])
    return outcome


@transaction.atomic
def undo(
    *,
    item: Item,
    reviewer: User,
    seen_version: int | None = None,
    step: int | None = None,
    nonce: uuid.UUID | None = None,
    token: ApiToken | None = None,
) -> Outcome:
    """Take back the reviewer's last event on an item: his label before it, or none, holds again.

    `step` is the version of an earlier event of his, where those after it have been taken back already: who goes back
    through a sitting goes through an item more than once (quality.review.sitting). To take back an undo is a redo; it
    needs `seen_version`, so that an undo sent twice is not one. The version is the
    item's, or that of the event, as the author saw it: what other reviewers did since is no conflict, what this one did
    is. Raises NothingToUndo and StaleLabel.
    """
    with _seen_again(item, reviewer, None), on_stored():
        outcome = _undone(item, reviewer, seen_version=seen_version, step=step, nonce=nonce, token=token)
    return _as_read(outcome)


def _undone(
    item: Item,
    reviewer: User,
    *,
    seen_version: int | None,
    step: int | None,
    nonce: uuid.UUID | None,
    token: ApiToken | None,
) -> Outcome:
    review = locked(item)
    if repeated := _repeated(item, reviewer, nonce):
        return Outcome(event=repeated, created=False)
    mine = FeedbackEvent.objects.filter(**item.key, reviewer=reviewer).order_by("-version")
    last = mine.first()
    taken = last if step is None else mine.filter(version=step).first()
    if last is None or taken is None:
        raise NothingToUndo(f"You gave no label to the {item}.")
    earlier = mine.filter(version__lt=taken.version).first()
    if last.undoes is not None and (seen_version is None or last.undoes <= seen_version < last.version):
        return Outcome(event=last, created=False)  # the same undo, sent twice
    if seen_version is not None and seen_version < last.version:
        raise StaleLabel(item=item, reviewer=reviewer, version=review.version, sent=None)
    if taken.created_at < timezone.now() - UNDO_LIFE:
        raise NothingToUndo(f"Your last label of the {item} is older than 24 hours. Give it another label instead.")
    event = FeedbackEvent(**item.columns, reviewer=reviewer, action=Action.UNDO, undoes=taken.version, nonce=nonce)
    if earlier:
        event.label, event.note, event.correction = earlier.label, earlier.note, earlier.correction
        event.guideline_version = earlier.guideline_version
    current = Feedback.objects.filter(**item.key, reviewer=reviewer).first()
    return _written(event, subject=Subject(item), review=review, mine=current, token=token)


def _check(sent: Verdict) -> None:
    if sent.label not in Label.values:
        _refuse("label", "unknown_label", f"{sent.label!r} is no label. Use one of {', '.join(Label.values)}.")
    if len(sent.note) > MAX_NOTE_CHARS:
        _refuse("note", "too_long", f"The note has {len(sent.note):,} characters; the limit is {MAX_NOTE_CHARS:,}.")
    if sent.note != storable(sent.note):
        _refuse("note", "unstorable", "The note holds a NUL character or half a surrogate pair. Take it out.")


def _refuse(field: str, code: str, message: str) -> NoReturn:
    raise ValidationError({field: ValidationError(message, code=code)})


def locked(item: Item) -> Review:
    """The item's state, locked until the transaction ends: of parallel writes one goes first, the others see it. Who
    locks an entry of a queue and then labels its item takes this lock first, as labelling itself does."""
    fresh = Review(**item.columns, tool_name=item.tool_name, started_at=item.started_at)
    Review.objects.bulk_create([fresh], ignore_conflicts=True)
    return Review.objects.select_for_update().get(**item.key)


def _repeated(item: Item, reviewer: User, nonce: uuid.UUID | None) -> FeedbackEvent | None:
    """The event that the same form made before."""
    event = FeedbackEvent.objects.filter(nonce=nonce).first() if nonce else None
    if event and (event.reviewer_id != reviewer.pk or any(getattr(event, key) != item.key[key] for key in item.key)):
        _refuse_nonce()
    return event


def _refuse_nonce() -> NoReturn:
    _refuse("nonce", "nonce_reused", "This form was used for another item already. Reload the page.")


def _is_stale(item: Item, reviewer: User, review: Review, seen_version: int) -> bool:
    """Has the item changed since? Where others' answers are hidden, what they said is no change."""
    if seen_version == review.version:
        return False
    if not blind.hides(reviewer, item):
        return True
    mine = FeedbackEvent.objects.filter(**item.key, reviewer=reviewer).order_by("-version")
    return (mine.values_list("version", flat=True).first() or 0) > seen_version


def _said(row: Feedback | FeedbackEvent | None) -> Verdict | None:
    """What the reviewer says by this label, or said after this event; None: nothing."""
    if row is None or row.label is None:
        return None
    return Verdict(label=row.label, note=row.note, correction=row.correction)


def _written(
    event: FeedbackEvent, *, subject: Subject, review: Review, mine: Feedback | None, token: ApiToken | None
) -> Outcome:
    """Store the event as the item's next version, and bring the reviewer's label `mine`, the item's state and the audit
    log up to it."""
    item = subject.item
    before, after = _said(mine), _said(event)
    event.version = review.version + 1
    event.token_id = token.pk if token else None
    try:
        event.save(force_insert=True)
    except IntegrityError:  # the same nonce came in on another item at the same time
        _refuse_nonce()
    if after:
        current = {
            **asdict(after),
            **_derived(after, subject),
            "guideline_version": event.guideline_version,
            "version": event.version,
            "updated_at": event.created_at,
        }
        first = {**current, "cycle": item.cycle, "created_at": event.created_at}
        mine_by = {**item.key, "reviewer_id": event.reviewer_id}
        Feedback.objects.update_or_create(**mine_by, defaults=current, create_defaults=first)
    elif mine:
        mine.delete()
    _bring_up(review, event, item)
    deciding.after(event, item)  # before queues: the last answer of a blind one uncovers what its author did not see
    labelled.after(event, item, timezone.now())
    audit.record(
        "feedback.labelled" if event.action == Action.LABEL else "feedback.undone",
        object_type="turn" if item.call_id is None else "tool_call",
        object_id=item.call_id or item.turn_id,
        actor=event.reviewer,
        token=token,
        before=asdict(before) if before else None,
        after=asdict(after) if after else None,
        detail={"from": before and before.label, "to": event.label, "cycle": item.cycle, "version": event.version},
    )
    return Outcome(event=event, created=True)


def _derived(said: Verdict, subject: Subject) -> dict[str, Any]:
    """What a label speaks of, as groups are read."""
    faults: tuple[str, ...] = ()
    if said.label in ACTIONABLE:
        args = subject.args if said.label == Label.BAD_ARGS else None
        tools = subject.tools if said.label == Label.BAD_ARGS else ()
        faults = faults_of(said.label, subject.tool_name, args, said.correction, tools)
    return {"tool_name": subject.tool_name, "style_id": subject.style_id, "faults": list(faults)}


def _bring_up(review: Review, event: FeedbackEvent, item: Item) -> None:
    """The item's label is the newest of its reviewers' current ones."""
    newest_first = list(Feedback.objects.filter(**item.key).order_by("-version").values_list("label", flat=True))
    review.version, review.updated_at = event.version, event.created_at
    review.label, review.num_labels = next(iter(newest_first), None), len(newest_first)
    review.save(update_fields=["version", "updated_at", "label", "num_labels"])
