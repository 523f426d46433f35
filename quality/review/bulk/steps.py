"""What a bulk action does to a batch of its items, and how that is taken back. Needs an open tenant scope.

Each item goes through the use case that a single one goes through. What was done, or why it was not, is said on the
row of the item; the caller saves it. A step is done again after a crash only for items that still wait.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quality.models import (
    Assignment,
    BulkAction,
    BulkItem,
    BulkKind,
    ItemTag,
    QueueEntry,
    Review,
    ToolCall,
)
from quality.review import archive, labelling, tags
from quality.review.bulk import labels
from quality.review.items import UNFINISHED, Item
from quality.review.queues import adding
from tenants.models import ApiToken

State = BulkItem.State


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some rows of an action with the calls that they are for."""

    action: BulkAction
    rows: Sequence[BulkItem]
    items: dict[int, Item]
    states: dict[int, str]
    token: ApiToken | None
    now: dt.datetime

    def item(self, row: BulkItem) -> Item:
        return self.items[row.pk]

    def of(self, rows: Sequence[BulkItem]) -> list[Item]:
        return [self.items[row.pk] for row in rows]


def batch_of(action: BulkAction, rows: Sequence[BulkItem], now: dt.datetime) -> Batch:
    """Read what a batch needs of its calls: one query, two with a token."""
    columns = ("pk", "turn_id", "cycle", "started_at", "tool_name", "state")
    calls = {row["pk"]: row for row in ToolCall.objects.filter(pk__in=[row.call_id for row in rows]).values(*columns)}
    items, states = {}, {}
    for row in rows:
        call = calls[row.call_id]
        states[row.pk] = call["state"]
        place = {"turn_id": call["turn_id"], "cycle": call["cycle"], "started_at": call["started_at"]}
        items[row.pk] = Item(call_id=row.call_id, tool_name=call["tool_name"], **place)
    token = ApiToken.objects.filter(pk=action.token_id).first() if action.token_id else None
    return Batch(action=action, rows=rows, items=items, states=states, token=token, now=now)


def done(row: BulkItem, batch: Batch, **before: Any) -> None:
    row.state, row.done_at, row.before = State.DONE, batch.now, before


def told(row: BulkItem, state: str, code: str, message: str) -> None:
    """Say why nothing was done to an item."""
    row.state, row.code, row.message = state, code, message


# --- labels -----------------------------------------------------------------------------------------------------------
def label(batch: Batch) -> None:
    action = batch.action
    ready = [row for row in batch.rows if batch.states[row.pk] not in UNFINISHED]
    said = labelling.Verdict(label=str(action.label), note=note_of(action))
    given = labels.give(batch.of(ready), reviewer=action.created_by, said=said, token=batch.token)
    for row in batch.rows:
        if row.call_id in given:
            done(row, batch)
            row.version = given[row.call_id]
        elif batch.states[row.pk] in UNFINISHED:
            told(row, State.SKIPPED, "unfinished", "The call has not come to its end.")
        else:
            told(row, State.SKIPPED, "labelled", "You had labelled it already.")


def note_of(action: BulkAction) -> str:
    """The note of each label: its own words, and why so many were given at once."""
    return f"{action.note}\n\nBulk action {action.pk}: {action.reason}".strip()


def unlabel(batch: Batch) -> None:
    """All that is plain at once, the rest one by one."""
    action = batch.action
    items: dict[int | None, Item] = {row.call_id: batch.item(row) for row in batch.rows}
    versions: dict[int | None, int] = {row.call_id: row.version or 0 for row in batch.rows}
    plain = labels.take_back(items, versions, reviewer=action.created_by, token=batch.token)
    for row in batch.rows:
        if row.call_id in plain:
            row.state = State.UNDONE
        else:
            _unlabel_one(row, batch)


def _unlabel_one(row: BulkItem, batch: Batch) -> None:
    try:
        outcome = labelling.undo(
            item=batch.item(row), reviewer=batch.action.created_by, seen_version=row.version, token=batch.token
        )
    except labelling.StaleLabel:
        told(row, State.LEFT, "newer", "You gave it another label since.")
    except labelling.NothingToUndo as nothing:
        told(row, State.LEFT, "too_old", str(nothing))
    else:
        row.state = State.UNDONE
        if not outcome.created or outcome.event.undoes != row.version:
            told(row, State.LEFT, "taken_back", "You took it back before.")


# --- tags -------------------------------------------------------------------------------------------------------------
def tag(batch: Batch) -> None:
    action = batch.action
    new, full = tags.add(batch.of(batch.rows), action.tag, by=action.created_by, token=batch.token, at=batch.now)
    added, refused = {item.call_id for item in new}, {item.call_id for item in full}
    for row in batch.rows:
        if row.call_id in added:
            done(row, batch)
        elif row.call_id in refused:
            told(row, State.FAILED, "too_many", f"It has {tags.MAX_TAGS} tags already. Take one off first.")
        else:
            told(row, State.SKIPPED, "tagged", "It had the tag already.")


def take_tag_back(batch: Batch) -> None:
    """Only where the tag is still the one that this action put on."""
    action = batch.action
    times = {row.call_id: row.done_at for row in batch.rows}
    found = ItemTag.objects.filter(call_id__in=list(times), tag=action.tag, by=action.created_by)
    ours = {one.call_id for one in found if one.at == times[one.call_id]}
    mine = [row for row in batch.rows if row.call_id in ours]
    tags.remove(batch.of(mine), action.tag, by=action.undone_by or action.created_by, token=None)
    _undone(batch, ours, "retagged", "It was taken off, or put on again, since.")


def untag(batch: Batch) -> None:
    action = batch.action
    gone: dict[Any, Any] = {
        one.call_id: one
        for one in tags.remove(batch.of(batch.rows), action.tag, by=action.created_by, token=batch.token)
    }
    for row in batch.rows:
        if one := gone.get(row.call_id):
            done(row, batch, by=one.by_id, at=one.at.isoformat())
        else:
            told(row, State.SKIPPED, "not_tagged", "It did not have the tag.")


def put_tag_back(batch: Batch) -> None:
    """As it was: with who put it on, and when."""
    action = batch.action
    again = ItemTag.objects.filter(call_id__in=[row.call_id for row in batch.rows], tag=action.tag)
    there = set(again.values_list("call_id", flat=True))
    rows = [row for row in batch.rows if row.call_id not in there]
    fresh = [
        ItemTag(
            **batch.item(row).columns,
            tag=action.tag,
            started_at=batch.item(row).started_at,
            by_id=row.before["by"],
            at=dt.datetime.fromisoformat(row.before["at"]),
        )
        for row in rows
    ]
    ItemTag.objects.bulk_create(fresh, ignore_conflicts=True)
    _undone(batch, {row.call_id for row in rows}, "tagged_again", "It was tagged again since.")


# --- the archive ------------------------------------------------------------------------------------------------------
def put_away(batch: Batch) -> None:
    action = batch.action
    new = archive.archive(batch.of(batch.rows), by=action.created_by, token=batch.token, at=batch.now)
    changed = {item.call_id for item in new}
    for row in batch.rows:
        if row.call_id in changed:
            done(row, batch)
        else:
            told(row, State.SKIPPED, "archived", "It was in the archive already.")


def take_out_again(batch: Batch) -> None:
    times: dict[Any, Any] = {row.call_id: row.done_at for row in batch.rows}
    found = Review.objects.filter(call_id__in=list(times)).values_list("call_id", "archived_at")
    ours = {call_id for call_id, archived_at in found if archived_at and archived_at == times[call_id]}
    mine = [row for row in batch.rows if row.call_id in ours]
    archive.restore(batch.of(mine), by=batch.action.undone_by or batch.action.created_by)
    _undone(batch, ours, "moved", "It was taken out of the archive since.")


def bring_back(batch: Batch) -> None:
    action = batch.action
    rows = archive.restore(batch.of(batch.rows), by=action.created_by, token=batch.token)
    times: dict[Any, Any] = {one.call_id: one.archived_at for one in rows}
    for row in batch.rows:
        if at := times.get(row.call_id):
            done(row, batch, at=at.isoformat())
        else:
            told(row, State.SKIPPED, "not_archived", "It was not in the archive.")


def put_away_again(batch: Batch) -> None:
    """With the time at which each was archived, so that an undo of that finds it again."""
    by = batch.action.undone_by or batch.action.created_by
    changed: set[int | None] = set()
    for row in batch.rows:
        at = dt.datetime.fromisoformat(row.before["at"])
        changed |= {item.call_id for item in archive.archive([batch.item(row)], by=by, at=at)}
    _undone(batch, changed, "archived_again", "It was archived again since.")


# --- queues -----------------------------------------------------------------------------------------------------------
def enqueue(batch: Batch) -> None:
    action = batch.action
    if action.queue is None:
        for row in batch.rows:
            told(row, State.FAILED, "no_queue", "The queue is gone.")
        return
    ids = [row.call_id for row in batch.rows]
    entries = QueueEntry.objects.filter(queue=action.queue, call_id__in=ids)
    there = set(entries.exclude(state=QueueEntry.State.REMOVED).values_list("call_id", flat=True))
    rows = [row for row in batch.rows if row.call_id not in there]
    try:
        adding.add_items(action.queue, batch.of(rows), actor=action.created_by, token=batch.token)
    except (adding.QueueFull, adding.QueueClosed) as refused:
        for row in rows:
            told(row, State.FAILED, "refused", " ".join(getattr(refused, "messages", [str(refused)])))
    else:
        made: dict[Any, int] = dict(entries.values_list("call_id", "pk"))
        for row in rows:
            done(row, batch, entry=made[row.call_id])
    for row in batch.rows:
        if row.call_id in there:
            told(row, State.SKIPPED, "in_queue", "It was in the queue already.")


def take_out_of_queue(batch: Batch) -> None:
    """Only what nobody has begun: work that was done there stays."""
    entries = {row.before.get("entry"): row for row in batch.rows}
    begun = set(Assignment.objects.filter(entry_id__in=list(entries)).values_list("entry_id", flat=True))
    open_ones = (
        QueueEntry.objects.select_for_update(of=("self",))
        .select_related("queue")
        .filter(pk__in=list(entries), state=QueueEntry.State.OPEN)
    )
    ours = set()
    for entry in open_ones.order_by("pk"):
        if entry.pk not in begun:
            adding.take_out(entry, actor=batch.action.undone_by or batch.action.created_by)
            ours.add(entry.call_id)
    _undone(batch, ours, "begun", "Somebody has begun with it, or it is done.")


def _undone(batch: Batch, ours: set[Any], code: str, message: str) -> None:
    for row in batch.rows:
        if row.call_id in ours:
            row.state = State.UNDONE
        else:
            told(row, State.LEFT, code, message)


type Step = Callable[[Batch], None]

STEPS: Final[dict[str, tuple[Step, Step]]] = {
    BulkKind.LABEL: (label, unlabel),
    BulkKind.TAG: (tag, take_tag_back),
    BulkKind.UNTAG: (untag, put_tag_back),
    BulkKind.ENQUEUE: (enqueue, take_out_of_queue),
    BulkKind.ARCHIVE: (put_away, take_out_again),
    BulkKind.RESTORE: (bring_back, put_away_again),
}
"""What each kind does to a batch, and what takes it back."""
