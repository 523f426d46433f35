"""The life of a bulk action: looked at, confirmed, done batch by batch, undone.

Few calls are done at once, many by a worker. What waits is written down with the confirmation, and each batch with
what came of it is one transaction: a worker that is lost costs time, and nothing is done twice.
"""

import datetime as dt
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.core.exceptions import ValidationError
from django.db import OperationalError, connection, models, transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import tasks
from quality.ingest.jsontext import storable
from quality.languages import number
from quality.models import LIVE_BULK, BulkAction, BulkItem, BulkKind, BulkState, Label, ReviewQueue
from quality.review import tags
from quality.review.bulk import scope
from quality.review.bulk.preview import note_seen
from quality.review.bulk.steps import STEPS, batch_of
from quality.review.labelling import MAX_NOTE_CHARS
from tenants import audit
from tenants.models import ApiToken, Membership, Role, Tenant, User
from tenants.scope import current_tenant_id, tenant_scope

logger = logging.getLogger(__name__)

LEASE = dt.timedelta(seconds=90)
BATCH = 200  # some hundred milliseconds, in which nobody else labels these calls
AT_ONCE = 100  # more is left to a worker
MAX_ATTEMPTS = 5
MAX_TRIES = 3  # of one batch, where two actions lock the same reviews in different orders
MAX_REASON_CHARS = 500
UNDECIDED_FOR = dt.timedelta(days=1)
UNDO_LIFE = dt.timedelta(hours=24)

State = BulkItem.State


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be done to the calls, as it was confirmed."""

    label: str = ""
    note: str = ""
    tag: str = ""
    queue: ReviewQueue | None = None
    reason: str = ""


class Stale(Exception):
    """The calls are not those that were looked at: there were `before`, and there are `now`."""

    def __init__(self, *, before: int, now: int) -> None:
        same = "as many, but not the same ones or with other labels" if before == now else f"{now:,} now"
        super().__init__(
            f"The calls have changed since you looked: there were {before:,}, there are {same}. Look again."
        )
        self.before, self.now = before, now


class Decided(Exception):
    """The action was confirmed, stopped or undone before, or there is nothing to undo."""


class NotYours(PermissionError):
    """Only who began the action may do this."""


# --- confirming -------------------------------------------------------------------------------------------------------
def confirm(action_id: int, *, by: User, wanted: Wanted, seen_sha256: str, token: ApiToken | None = None) -> BulkAction:
    """Have done what was looked at. Raises ValidationError, Decided, NotYours, FilterBroken, and Stale: then what is
    there now is kept as what was looked at, and can be confirmed after another look."""
    action = BulkAction.objects.select_for_update(of=("self",)).get(pk=action_id)
    if action.created_by_id != by.pk:
        raise NotYours(_("This preview is somebody else’s. Make one of your own."))
    if action.state != BulkState.PREVIEW:
        raise Decided(_("That was confirmed before."))
    _check(action.kind, wanted)
    seen = scope.look(action)
    if seen.is_capped:
        words = _("More than %(most)s calls match; one action takes no more. Narrow the filter.")
        _refuse("", "too_many", words % {"most": number(scope.MAX_ITEMS)})
    if not seen.count:
        _refuse("", "nothing", _("No call matches any more."))
    if seen_sha256 != seen.sha256:
        before = action.seen_count
        note_seen(action, seen)
        action.save(update_fields=["seen_count", "seen_sha256", "seen_at"])
        raise Stale(before=before, now=seen.count)
    with transaction.atomic():
        _begin(action, wanted, seen, token)
    return action


def _check(kind: str, wanted: Wanted) -> None:
    """Is all said that this kind needs? Raises ValidationError."""
    if kind == BulkKind.LABEL:
        if wanted.label not in Label.values:
            _refuse("label", "unknown_label", f"{wanted.label!r} is no label. Use one of {', '.join(Label.values)}.")
        if not wanted.reason.strip():
            _refuse("reason", "required", _("Say why all of these get the same label: it is kept with each of them."))
        if f"{wanted.note}{wanted.reason}" != storable(f"{wanted.note}{wanted.reason}"):
            _refuse("note", "unstorable", _("The note holds a NUL character or half a surrogate pair. Take it out."))
        if len(wanted.note) > MAX_NOTE_CHARS - MAX_REASON_CHARS - 100:
            words = _("The note has %(n)s characters; that is too many.")
            _refuse("note", "too_long", words % {"n": number(len(wanted.note))})
    if len(wanted.reason) > MAX_REASON_CHARS:
        words = _("The reason has %(n)s characters; the limit is %(most)s.")
        _refuse("reason", "too_long", words % {"n": number(len(wanted.reason)), "most": MAX_REASON_CHARS})
    if kind in (BulkKind.TAG, BulkKind.UNTAG):
        tags.cleaned(wanted.tag)
    if kind == BulkKind.ENQUEUE and wanted.queue is None:
        _refuse("queue", "required", _("Choose a queue."))


def _refuse(field: str, code: str, message: str) -> None:
    error = ValidationError(message, code=code)
    raise ValidationError({field: error} if field else [error])


def _begin(action: BulkAction, wanted: Wanted, seen: scope.Seen, token: ApiToken | None) -> None:
    now = timezone.now()
    action.label = wanted.label if action.kind == BulkKind.LABEL else None
    action.note = wanted.note.strip() if action.kind == BulkKind.LABEL else ""
    action.tag = tags.cleaned(wanted.tag) if action.kind in (BulkKind.TAG, BulkKind.UNTAG) else ""
    action.queue = wanted.queue if action.kind == BulkKind.ENQUEUE else None
    action.reason = wanted.reason.strip()
    action.state, action.confirmed_at, action.lease_until = BulkState.QUEUED, now, now + LEASE
    action.num_items, action.token_id = seen.count, token.pk if token else None
    action.save()
    _write_items(action, seen)
    _record(action, "bulk.confirmed", action.created_by, token, items=seen.count, query=action.query)
    _go(action)


def _write_items(action: BulkAction, seen: scope.Seen) -> None:
    """The calls of the action as rows that wait, in the order of the list."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO bulk_action_items (tenant_id, action_id, turn_id, cycle, call_id, state, code, message, "
            "before) SELECT c.tenant_id, %(action)s, c.turn_id, c.cycle, c.id, 'waiting', '', '', '{}' "
            "FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY i(id, place) "
            "JOIN agent_tool_calls c ON c.tenant_id = %(tenant)s AND c.id = i.id ORDER BY i.place",
            {"action": action.pk, "ids": list(seen.ids), "tenant": current_tenant_id()},
        )


def _go(action: BulkAction) -> None:
    """Do it now if it is little, else have a worker do it."""
    tenant_id, pk = current_tenant_id(), action.pk
    if action.num_items <= AT_ONCE:
        run(pk, tenant=tenant_id)
        action.refresh_from_db()
    else:
        transaction.on_commit(lambda: tasks.publish(tasks.run_bulk_action, tenant_id, pk))


# --- doing ------------------------------------------------------------------------------------------------------------
def run(action_id: int, *, tenant: Tenant | int) -> bool:
    """Do, or undo, what is left of it; False if another worker has it, or there is nothing to do."""
    token = uuid.uuid4()
    with tenant_scope(tenant):
        if not _claim(action_id, token):
            return False
    while True:
        with tenant_scope(tenant):
            mine = BulkAction.objects.filter(pk=action_id, lease_token=token, state__in=LIVE_BULK)
            if not mine.update(lease_until=timezone.now() + LEASE):
                logger.warning("bulk action %s: stopped, or another worker has it", action_id)
                return False
            action = BulkAction.objects.select_related("created_by", "undone_by", "queue").get(pk=action_id)
            if not _step(action):
                _finish(action)
                return True


def _claim(action_id: int, token: uuid.UUID) -> bool:
    now = timezone.now()
    free = Q(lease_token=None) | Q(lease_until__lt=now)
    candidates = BulkAction.objects.filter(free, pk=action_id, state__in=LIVE_BULK)
    if not candidates.filter(attempt__lt=MAX_ATTEMPTS).update(
        attempt=F("attempt") + 1, lease_token=token, lease_until=now + LEASE
    ):
        candidates.filter(attempt__gte=MAX_ATTEMPTS).update(
            state=BulkState.STOPPED,
            failure=f"The worker was lost {MAX_ATTEMPTS} times. What was done is told below and can be undone.",
            finished_at=now,
        )
        return False
    BulkAction.objects.filter(pk=action_id, state=BulkState.QUEUED).update(state=BulkState.RUNNING)
    action = BulkAction.objects.get(pk=action_id)
    who = action.undone_by_id if action.state == BulkState.UNDOING else action.created_by_id
    member = Membership.objects.filter(user=who).first()
    if member and member.may(Role.OPERATOR):
        return True
    BulkAction.objects.filter(pk=action_id).update(
        state=BulkState.STOPPED, failure="Who ordered it may not do this any more.", finished_at=now
    )
    return False


def _step(action: BulkAction) -> int:
    """Do, or undo, one batch; how many items that were. Two actions that lock the same reviews in another order may
    refuse each other: then it is tried again."""
    for attempt in range(MAX_TRIES):
        try:
            with transaction.atomic():
                return _batch(action)
        except OperationalError:
            if attempt == MAX_TRIES - 1:
                raise
            logger.warning("bulk action %s: a batch is tried again", action.pk, exc_info=True)
    return 0


def _batch(action: BulkAction) -> int:
    is_undo = action.state == BulkState.UNDOING
    waiting = State.DONE if is_undo else State.WAITING
    rows = list(BulkItem.objects.filter(action=action, state=waiting).order_by("pk")[:BATCH])
    if not rows:
        return 0
    do, undo = STEPS[action.kind]
    (undo if is_undo else do)(batch_of(action, rows, timezone.now()))
    _keep(rows)
    counted = {state: sum(row.state == state for row in rows) for state in State}
    BulkAction.objects.filter(pk=action.pk).update(
        **(
            {"num_undone": F("num_undone") + counted[State.UNDONE], "num_left": F("num_left") + counted[State.LEFT]}
            if is_undo
            else {
                "num_done": F("num_done") + counted[State.DONE],
                "num_skipped": F("num_skipped") + counted[State.SKIPPED],
                "num_failed": F("num_failed") + counted[State.FAILED],
            }
        )
    )
    return len(rows)


_KEEP: Final = """
UPDATE bulk_action_items i
SET state = v.state, code = v.code, message = v.message, version = v.version, before = v.before, done_at = v.done_at
FROM unnest(%(ids)s::bigint[], %(states)s::text[], %(codes)s::text[], %(messages)s::text[], %(versions)s::int[],
    %(befores)s::jsonb[], %(times)s::timestamptz[]) v(id, state, code, message, version, before, done_at)
WHERE i.tenant_id = %(tenant)s AND i.id = v.id
"""


def _keep(rows: Sequence[BulkItem]) -> None:
    """Save what became of items; as arrays, for Django's way to update many rows takes longer than the labels."""
    with connection.cursor() as cursor:
        cursor.execute(
            _KEEP,
            {
                "tenant": current_tenant_id(),
                "ids": [row.pk for row in rows],
                "states": [str(row.state) for row in rows],
                "codes": [row.code for row in rows],
                "messages": [row.message for row in rows],
                "versions": [row.version for row in rows],
                "befores": [json.dumps(row.before) for row in rows],
                "times": [row.done_at for row in rows],
            },
        )


def _finish(action: BulkAction) -> None:
    is_undo = action.state == BulkState.UNDOING
    BulkAction.objects.filter(pk=action.pk).update(
        state=BulkState.UNDONE if is_undo else BulkState.DONE,
        lease_until=None,
        lease_token=None,
        attempt=0,
        finished_at=timezone.now(),
    )
    action.refresh_from_db()
    if is_undo:
        _record(action, "bulk.undone", action.undone_by, None, undone=action.num_undone, left=action.num_left)
    else:
        numbers = {"done": action.num_done, "skipped": action.num_skipped, "failed": action.num_failed}
        _record(action, "bulk.finished", action.created_by, None, **numbers)


# --- stopping and undoing ---------------------------------------------------------------------------------------------
def stop(action: BulkAction, *, by: User, may_any: bool) -> None:
    """Let it end after the batch under way; what was done stays, and can be undone. Raises Decided and NotYours."""
    if action.created_by_id != by.pk and not may_any:
        raise NotYours(_("Only who began it, or an admin, stops it."))
    live = BulkAction.objects.filter(pk=action.pk, state__in=(BulkState.QUEUED, BulkState.RUNNING))
    if not live.update(
        state=BulkState.STOPPED, finished_at=timezone.now(), lease_until=None, lease_token=None, attempt=0
    ):
        raise Decided(_("It has ended already."))
    _record(action, "bulk.stopped", by, None)


def may_undo(action: BulkAction, user: User, *, may_any: bool) -> bool:
    """May this person undo it now? Labels are their reviewer's; the rest an admin may take back, too."""
    if action.state not in (BulkState.DONE, BulkState.STOPPED) or not action.num_done:
        return False
    if action.kind == BulkKind.LABEL and action.confirmed_at and timezone.now() - action.confirmed_at > UNDO_LIFE:
        return False
    return action.created_by_id == user.pk or (may_any and action.kind != BulkKind.LABEL)


def undo(action: BulkAction, *, by: User, may_any: bool, token: ApiToken | None = None) -> BulkAction:
    """Take back what it did, wherever nothing newer happened. Raises Decided and NotYours."""
    if action.created_by_id != by.pk and (not may_any or action.kind == BulkKind.LABEL):
        raise NotYours(
            _("Labels are taken back by who gave them.") if may_any else _("Only who did it, or an admin, undoes it.")
        )
    if not may_undo(action, by, may_any=may_any):
        raise Decided(
            _("There is nothing to undo: it is at work, was undone, did nothing, or its labels are a day old.")
        )
    now = timezone.now()
    ended = BulkAction.objects.filter(pk=action.pk, state__in=(BulkState.DONE, BulkState.STOPPED))
    if not ended.update(
        state=BulkState.UNDOING, undone_by=by, undone_at=now, attempt=0, lease_token=None, lease_until=now + LEASE
    ):
        raise Decided(_("It was undone before."))
    action.refresh_from_db()
    _record(action, "bulk.undoing", by, token)
    _go(action)
    return action


def _record(action: BulkAction, what: str, by: User | None, token: ApiToken | None, **detail: object) -> None:
    said = {name: getattr(action, name) for name in ("kind", "label", "tag", "reason") if getattr(action, name)}
    if action.queue_id:
        said["queue"] = action.queue_id
    audit.record(what, object_type="bulk_action", object_id=action.pk, actor=by, token=token, detail={**said, **detail})


# --- the sweep --------------------------------------------------------------------------------------------------------
def lost() -> models.QuerySet[BulkAction]:
    """Actions whose message or worker was lost, in every tenant the `janitor` may see."""
    rows: models.QuerySet[BulkAction] = models.QuerySet(BulkAction).using("janitor")
    return rows.filter(state__in=LIVE_BULK, lease_until__lt=timezone.now())


def forget_previews() -> None:
    """Forget previews that nobody confirmed for a day, in every tenant."""
    rows: models.QuerySet[BulkAction] = models.QuerySet(BulkAction).using("janitor")
    old = rows.filter(state=BulkState.PREVIEW, created_at__lt=timezone.now() - UNDECIDED_FOR)
    for tenant_id, pk in old.values_list("tenant_id", "pk"):
        with tenant_scope(tenant_id):
            BulkAction.objects.filter(pk=pk, state=BulkState.PREVIEW).delete()
