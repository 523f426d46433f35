"""The entries of a queue, page by page, in its own order."""

import base64
import binascii
import datetime as dt
import json
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from quality.models import Assignment, QueueEntry, ReviewQueue

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
AGREED = ("yes", "no")


class BadCursor(ValueError):
    """A cursor that we did not make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Which entries: of a state (open, done, removed), of tools, agreed on (yes, no), of a reviewer who did anything
    there, in one of the states of an assignment if `assignment` names one."""

    state: str = QueueEntry.State.OPEN
    tools: tuple[str, ...] = ()
    agreed: str = ""
    reviewer: int | None = None
    assignment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage:
    """Entries with their assignments as `given`, and the cursor of the page after (None: there is none)."""

    rows: list[QueueEntry]
    next: str | None


def find(queue: ReviewQueue, wanted: EntryFilter, *, cursor: str = "", page_size: int = PAGE_SIZE) -> EntryPage:
    """One page of entries, in the queue's order; two queries. Raises BadCursor."""
    entries = matching(queue, wanted)
    if cursor:
        # A row comparison, which the index answers; spelled out in ORs it would read all rows before the place.
        entries = entries.extra(
            where=["(review_queue_entries.priority, review_queue_entries.started_at, review_queue_entries.id) "
                   "< (%s, %s, %s)"],
            params=list(_read(cursor)),
        )  # fmt: skip
    found = list(entries.order_by("-priority", "-started_at", "-pk")[: page_size + 1])
    shown = found[:page_size]
    _with_assignments(shown)
    return EntryPage(rows=shown, next=_cursor(shown[-1]) if len(found) > page_size else None)


def matching(queue: ReviewQueue, wanted: EntryFilter) -> QuerySet[QueueEntry]:
    """The entries that a filter lets through, in no order yet."""
    entries = QueueEntry.objects.filter(queue=queue, state=wanted.state)
    if wanted.tools:
        entries = entries.filter(tool_name__in=wanted.tools)
    if wanted.agreed:
        entries = entries.filter(agreed=wanted.agreed == "yes")
    if wanted.reviewer or wanted.assignment:
        theirs = Assignment.objects.filter(entry=OuterRef("pk"))
        if wanted.reviewer:
            theirs = theirs.filter(reviewer=wanted.reviewer)
        if wanted.assignment:
            theirs = theirs.filter(state=wanted.assignment)
        entries = entries.filter(Exists(theirs))
    return entries


def _with_assignments(entries: list[Any]) -> None:
    by_entry: dict[int, list[Assignment]] = {entry.pk: [] for entry in entries}
    for one in Assignment.objects.filter(entry__in=list(by_entry)).select_related("reviewer").order_by("updated_at"):
        by_entry[one.entry_id].append(one)
    for entry in entries:
        entry.given = by_entry[entry.pk]


def _cursor(entry: QueueEntry) -> str:
    place = json.dumps([entry.priority, entry.started_at.isoformat(), entry.pk], separators=(",", ":"))
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _read(text: str) -> tuple[int, dt.datetime, int]:
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        priority, moment, pk = json.loads(plain)
        at = dt.datetime.fromisoformat(moment)
        if at.tzinfo is None or not -(2**31) <= int(priority) < 2**31 or not 0 <= int(pk) < 2**63:
            raise ValueError
        return int(priority), at, int(pk)
    except (ValueError, TypeError, binascii.Error) as error:
        raise BadCursor("This cursor is not one of ours. Start again without it.") from error
