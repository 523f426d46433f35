"""What a bulk action would do: how many calls, which come first, and what would be skipped. Needs an open tenant scope.

A preview is a row of its own, so that it has an address and what is confirmed is what was looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import calls
from quality.calls import WITH_ARCHIVED, CallFilter, CallRow, matching
from quality.languages import number
from quality.models import BulkAction, BulkKind, Feedback, ItemTag, QueueEntry, Review, ReviewQueue, ToolCall
from quality.review.bulk import scope
from quality.review.bulk.scope import MAX_CHOSEN, MAX_ITEMS, Seen, among
from quality.review.items import UNFINISHED
from tenants.models import ApiToken, User

SAMPLE = 10


@dataclass(frozen=True, kw_only=True)
class Skip:
    """How many of the calls an action would leave as they are, by a word for why: see `quality.review.bulk.steps`."""

    code: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Preview:
    """`sample` are the first calls; `skips` speak of all of them. `is_capped`: there are more than one action takes."""

    seen: Seen
    sample: Sequence[CallRow]
    skips: Sequence[Skip]

    @property
    def num_left(self) -> int:
        """How many calls it would do something to. A call that is skipped for two reasons is counted once too often,
        so this is never less than nothing."""
        return max(0, self.seen.count - sum(skip.number for skip in self.skips))


def make(
    *,
    kind: str,
    by: User,
    wanted: CallFilter | None = None,
    call_ids: Sequence[int] = (),
    token: ApiToken | None = None,
) -> BulkAction:
    """Begin an action: the calls named, or all that a filter lets through now. Raises ValidationError."""
    if kind not in BulkKind.values:
        _refuse("kind", "unknown_kind", f"{kind!r} is no bulk action. Use one of {', '.join(BulkKind.values)}.")
    if len(call_ids) > MAX_CHOSEN:
        words = _("%(n)s calls are named; the limit is %(most)s. Use a filter.")
        _refuse("callIds", "too_many", words % {"n": number(len(call_ids)), "most": number(MAX_CHOSEN)})
    if wanted is None and not call_ids:
        _refuse("callIds", "required", _("Choose calls, or take all that match."))
    ids = list(matching(CallFilter(archived=WITH_ARCHIVED)).filter(among("pk", call_ids)).values_list("pk", flat=True))
    if call_ids and not ids:
        _refuse("callIds", "no_such_call", _("None of these calls is there."))
    action = BulkAction(
        kind=kind,
        query=scope.frozen(wanted) if wanted is not None and not ids else "",
        call_ids=sorted(ids),
        created_by=by,
        token_id=token.pk if token else None,
    )
    note_seen(action, scope.look(action))
    action.save(force_insert=True)
    return action


def _refuse(field: str, code: str, message: str) -> None:
    raise ValidationError({field: ValidationError(message, code=code)})


def note_seen(action: BulkAction, seen: Seen) -> None:
    """Keep what was looked at; the caller saves it."""
    action.seen_count, action.seen_sha256, action.seen_at = seen.count, seen.sha256, timezone.now()


def of_action(action: BulkAction, *, tag: str = "", queue: ReviewQueue | None = None) -> Preview:
    """What the action would do now, with this tag or queue. Some six queries. Raises FilterBroken."""
    seen = scope.look(action)
    sample = calls.rows_of(seen.ids[:SAMPLE])
    return Preview(seen=seen, sample=sample, skips=_skips(action, seen.ids, tag=tag, queue=queue))


def _skips(action: BulkAction, ids: Sequence[int], *, tag: str, queue: ReviewQueue | None) -> list[Skip]:
    on_calls = among("call_id", ids)
    found: dict[str, int] = {}
    match action.kind:
        case BulkKind.LABEL:
            mine = Feedback.objects.filter(on_calls, reviewer=action.created_by)
            found["labelled"] = mine.count()
            found["unfinished"] = ToolCall.objects.filter(among("pk", ids), state__in=UNFINISHED).count()
        case BulkKind.TAG | BulkKind.UNTAG if tag:
            having = ItemTag.objects.filter(on_calls, tag=tag).count()
            is_on = action.kind == BulkKind.TAG
            found["tagged" if is_on else "not_tagged"] = having if is_on else len(ids) - having
        case BulkKind.ENQUEUE if queue:
            there = QueueEntry.objects.filter(on_calls, queue=queue).exclude(state=QueueEntry.State.REMOVED)
            found["in_queue"] = there.count()
        case BulkKind.ARCHIVE | BulkKind.RESTORE:
            away = Review.objects.filter(on_calls, archived_at__isnull=False).count()
            is_away = action.kind == BulkKind.ARCHIVE
            found["archived" if is_away else "not_archived"] = away if is_away else len(ids) - away
    return [Skip(code=code, number=number) for code, number in found.items() if number]


__all__ = ["MAX_CHOSEN", "MAX_ITEMS", "Preview", "Skip", "make", "note_seen", "of_action"]
