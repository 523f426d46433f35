"""The archive: items that lists, Review and queues leave out. Nothing is deleted, labels and figures stay. All
functions need an open tenant scope and are set-wise.
"""

import datetime as dt
from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from quality.models import Review
from quality.review.items import Item
from quality.review.queues import adding
from quality.review.tags import key_of, of_items
from tenants import audit
from tenants.models import ApiToken, User


def is_archived(item: Item) -> bool:
    return Review.objects.filter(**item.key, archived_at__isnull=False).exists()


@transaction.atomic
def archive(
    items: Sequence[Item], *, by: User, token: ApiToken | None = None, at: dt.datetime | None = None
) -> list[Item]:
    """Put items into the archive; those that were not in it."""
    fresh = [Review(**item.columns, tool_name=item.tool_name, started_at=item.started_at) for item in items]
    Review.objects.bulk_create(fresh, ignore_conflicts=True)
    rows = list(Review.objects.select_for_update().filter(of_items(items), archived_at=None).order_by("pk"))
    Review.objects.filter(pk__in=[row.pk for row in rows]).update(archived_at=at or timezone.now())
    changed = {key_of(row) for row in rows}
    new = [item for item in items if key_of(item) in changed]
    adding.set_aside(new)
    _record("item.archived", new, by, token)
    return new


@transaction.atomic
def restore(items: Sequence[Item], *, by: User, token: ApiToken | None = None) -> list[Review]:
    """Take items out of the archive; their reviews as they were, with the time at which each was archived."""
    there = Review.objects.select_for_update().filter(of_items(items), archived_at__isnull=False)
    rows = list(there.order_by("pk"))
    Review.objects.filter(pk__in=[row.pk for row in rows]).update(archived_at=None)
    changed = {key_of(row) for row in rows}
    back = [item for item in items if key_of(item) in changed]
    adding.bring_back(back)
    _record("item.restored", back, by, token)
    return rows


def _record(action: str, items: Sequence[Item], by: User, token: ApiToken | None) -> None:
    if not items:
        return
    first = items[0]
    audit.record(
        action,
        object_type="tool_call" if first.call_id else "turn",
        object_id=(first.call_id or first.turn_id) if len(items) == 1 else "",
        actor=by,
        token=token,
        detail={"items": len(items)} if len(items) > 1 else {},
    )
