"""Making and changing queues. A queue that is deleted was closed before, and can be brought back for a while."""

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.filters import CallFilterForm
from quality.models import Assignment, QueueEntry, QueueReviewer, ReviewQueue
from quality.models.queues import MAX_LABELS_NEEDED
from quality.review.queues import counting, ordering
from quality.review.queues.sql import changed
from quality.review.sources import PARTS
from tenants import audit
from tenants.models import ApiToken, User
from tenants.scope import tenant_scope

MAX_QUEUES = 500  # of one tenant
MAX_GUIDELINES_CHARS = 20_000
KEPT_DAYS = 30  # that a deleted queue can be brought back
State = ReviewQueue.State
Kind = ReviewQueue.Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """What a person says of a queue. `query` is the filter of Calls as a query string, of a rule alone. `reviewers`
    are ids of members; with none named, everyone who may label is a reviewer. `fields` are of PARTS; none: all."""

    name: str
    kind: str = Kind.FIXED
    query: str = ""
    sample_rate: float = 1.0
    ordering: str = ReviewQueue.Order.NEWEST
    labels_needed: int = 1
    is_blind: bool = False
    counts_earlier: bool = True
    guidelines: str = ""
    fields: tuple[str, ...] = ()
    reviewers: tuple[int, ...] = field(default=())


class NotClosed(Exception):
    """A queue is closed before it is deleted."""


def queues() -> list[ReviewQueue]:
    """All queues, by name; deleted ones are not told."""
    return list(ReviewQueue.objects.filter(deleted_at__isnull=True).order_by("name", "pk"))


def queue_of(pk: int) -> ReviewQueue:
    """The queue; raises ReviewQueue.DoesNotExist."""
    queue: ReviewQueue = ReviewQueue.objects.get(pk=pk, deleted_at__isnull=True)
    return queue


@transaction.atomic
def keep_queue(
    data: QueueData, *, actor: User, token: ApiToken | None = None, pk: int | None = None, of_queue: int | None = None
) -> ReviewQueue:
    """Make a queue, or change the one with this `pk`; its kind stays. Raises ValidationError with each field at fault,
    ReviewQueue.DoesNotExist."""
    if pk is None and ReviewQueue.objects.filter(deleted_at__isnull=True).count() >= MAX_QUEUES:
        told = _("A tenant keeps %(limit)s queues at most. Delete one that is not needed.")
        raise ValidationError(told % {"limit": MAX_QUEUES})
    queue = (
        ReviewQueue(created_by=actor, kind=data.kind, of_queue_id=of_queue)
        if pk is None
        else ReviewQueue.objects.select_for_update(no_key=True).get(pk=pk, deleted_at__isnull=True)
    )
    before = None if pk is None else _state(queue)
    _take_over(queue, data)
    _check(queue)
    queue.updated_at = timezone.now()
    queue.save()
    _name_reviewers(queue, data.reviewers)
    if before is not None:
        _bring_up(queue, before)
        _let_go(queue, data.reviewers)
    _record("queue.created" if pk is None else "queue.changed", queue, actor, token, before=before)
    return queue


def _take_over(queue: ReviewQueue, data: QueueData) -> None:
    is_adjudication = queue.kind == Kind.ADJUDICATION
    queue.name = " ".join(data.name.split())
    queue.query = data.query if queue.kind == Kind.RULE else ""
    queue.sample_rate = data.sample_rate if queue.kind == Kind.RULE else 1.0
    queue.ordering = data.ordering
    queue.labels_needed = data.labels_needed
    # To decide between answers is to see them, and only what is said here decides.
    queue.is_blind = data.is_blind and not is_adjudication
    queue.counts_earlier = data.counts_earlier and not is_adjudication
    queue.for_everyone = not data.reviewers
    queue.guidelines = data.guidelines.strip()
    queue.fields = [part for part in PARTS if part in data.fields]


def _check(queue: ReviewQueue) -> None:
    """Raises ValidationError with each field at fault."""
    faults: dict[str, str] = {}
    if not 1 <= queue.labels_needed <= MAX_LABELS_NEEDED:
        faults["labels_needed"] = f"Between 1 and {MAX_LABELS_NEEDED} labels can be asked for."
    if not 0 < queue.sample_rate <= 1:
        faults["sample_rate"] = "The share that is taken is more than 0 and at most 1."
    if len(queue.guidelines) > MAX_GUIDELINES_CHARS:
        faults["guidelines"] = f"Guidelines have {MAX_GUIDELINES_CHARS:,} characters at most."
    if ReviewQueue.objects.filter(name=queue.name, deleted_at__isnull=True).exclude(pk=queue.pk).exists():
        faults["name"] = f"There is a queue named {queue.name!r}. Choose another name."
    form = CallFilterForm(QueryDict(queue.query))
    if not form.is_valid():
        faults["query"] = " ".join(f"{fault['path']}: {fault['message']}" for fault in form.faults())
    if faults:
        raise ValidationError({name: [text] for name, text in faults.items()})
    queue.clean_fields(exclude=["created_by", "of_queue", "tenant", "deleted_at", "backfill"])


def _name_reviewers(queue: ReviewQueue, ids: tuple[int, ...]) -> None:
    named = QueueReviewer.objects.filter(queue=queue)
    named.exclude(reviewer__in=ids).delete()
    have = set(named.values_list("reviewer_id", flat=True))
    QueueReviewer.objects.bulk_create([QueueReviewer(queue=queue, reviewer_id=pk) for pk in ids if pk not in have])


def _let_go(queue: ReviewQueue, ids: tuple[int, ...]) -> None:
    """Who is no reviewer any more holds nothing: what was handed to him would wait for him for ever."""
    if ids:
        held = Assignment.objects.filter(queue=queue, state__in=(Assignment.State.CLAIMED, Assignment.State.HANDED))
        held.exclude(reviewer__in=ids).delete()


def _bring_up(queue: ReviewQueue, before: dict[str, Any]) -> None:
    """Entries that are open follow their queue; those that are done stay done."""
    from quality.review.queues import adjudication

    now = timezone.now()
    is_open = QueueEntry.objects.filter(queue=queue, state=QueueEntry.State.OPEN)
    if before["is_blind"] != queue.is_blind:
        QueueEntry.objects.filter(queue=queue).update(is_blind=queue.is_blind)  # done ones may be opened again
    if before["labels_needed"] != queue.labels_needed:
        is_open.update(labels_needed=queue.labels_needed)
        adjudication.collect(counting.recount(list(is_open.values_list("pk", flat=True)), now))
    if before["ordering"] != queue.ordering:
        ordering.put_in_order(queue)


def _state(queue: ReviewQueue) -> dict[str, Any]:
    names = [name for name in QueueData.__slots__ if name != "reviewers"]
    return {name: getattr(queue, name) for name in names} | {"reviewers": sorted(_named(queue)), "state": queue.state}


def _named(queue: ReviewQueue) -> list[int]:
    return list(QueueReviewer.objects.filter(queue=queue).values_list("reviewer_id", flat=True))


def data_of(queue: ReviewQueue) -> QueueData:
    """What was said of a queue, to be changed in part."""
    state = _state(queue)
    state.pop("state")
    return QueueData(**{**state, "fields": tuple(queue.fields), "reviewers": tuple(state["reviewers"])})


@transaction.atomic
def set_state(queue: ReviewQueue, state: str, *, actor: User, token: ApiToken | None = None) -> ReviewQueue:
    """Open, pause or close a queue. What comes in while a rule is paused or closed is not taken later, either."""
    queue = ReviewQueue.objects.select_for_update(no_key=True).get(pk=queue.pk, deleted_at__isnull=True)
    if queue.state == state:
        return queue
    before = _state(queue)
    if state == State.OPEN:
        queue.fills_from = timezone.now()
    queue.state, queue.updated_at = State(state), timezone.now()
    if state == State.CLOSED:
        queue.backfill = {}
    queue.save(update_fields=["state", "fills_from", "backfill", "updated_at"])
    _record(f"queue.{state}", queue, actor, token, before=before)
    return queue


@transaction.atomic
def delete_queue(queue: ReviewQueue, *, actor: User, token: ApiToken | None = None) -> None:
    """Put a closed queue out of sight; the labels given in it stay. Raises NotClosed."""
    gone = ReviewQueue.objects.filter(pk=queue.pk, state=State.CLOSED, deleted_at__isnull=True)
    if not gone.update(deleted_at=timezone.now()):
        raise NotClosed(f"The queue {queue.name} is {queue.get_state_display().lower()}. Close it, then delete it.")
    _record("queue.deleted", queue, actor, token)


@transaction.atomic
def restore_queue(pk: int, *, actor: User, token: ApiToken | None = None) -> ReviewQueue:
    """Bring a deleted queue back, closed as it was. Raises ValidationError where its name is taken, and
    ReviewQueue.DoesNotExist."""
    queue: ReviewQueue = ReviewQueue.objects.select_for_update(no_key=True).get(pk=pk, deleted_at__isnull=False)
    if ReviewQueue.objects.filter(name=queue.name, deleted_at__isnull=True).exists():
        told = _("Another queue is named %(name)s by now. Rename that one first.")
        raise ValidationError(told % {"name": repr(queue.name)})
    queue.deleted_at = None
    queue.save(update_fields=["deleted_at"])
    _record("queue.restored", queue, actor, token)
    return queue


_PURGE = "DELETE FROM review_queues WHERE tenant_id = %(tenant)s AND id = %(id)s AND deleted_at < %(before)s"


def purge(now: dt.datetime | None = None) -> int:
    """Delete for good what was deleted KEPT_DAYS ago; how many queues. One whose disagreements another queue still
    decides stays as long as that one. Asks as the janitor, opens scopes."""
    before = (now or timezone.now()) - dt.timedelta(days=KEPT_DAYS)
    with connections["janitor"].cursor() as cursor:
        cursor.execute("SELECT tenant_id, id FROM review_queues WHERE deleted_at < %s ORDER BY id LIMIT 200", [before])
        due = cursor.fetchall()
    number = 0
    for tenant_id, pk in due:
        with tenant_scope(tenant_id):
            if not ReviewQueue.objects.filter(of_queue_id=pk, deleted_at__isnull=True).exists():
                # Entries and assignments go by the keys of the database: there may be very many.
                number += changed(_PURGE, {"id": pk, "before": before})
    return number


def _record(
    action: str,
    queue: ReviewQueue,
    actor: User,
    token: ApiToken | None,
    *,
    before: dict[str, Any] | None = None,
) -> None:
    audit.record(
        action,
        object_type="review_queue",
        object_id=queue.pk,
        actor=actor,
        token=token,
        before=before,
        after=_state(queue),
        detail={"name": queue.name, "kind": queue.kind},
    )
