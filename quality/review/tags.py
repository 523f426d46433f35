"""Tags: words that people put on items to find them again. All functions need an open tenant scope.

They are set-wise: of one item or of a thousand it is the same statement, and one row of the audit log.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.ingest.jsontext import storable
from quality.models import ItemTag
from quality.review.items import Item
from tenants import audit
from tenants.models import ApiToken, User

MAX_TAG_CHARS = 60
MAX_TAGS = 20  # of one item: more would be a sentence


def cleaned(text: str) -> str:
    """A tag as it is kept: white space runs are one blank each; raises ValidationError."""
    tag = " ".join(text.split())
    if not tag:
        raise ValidationError({"tag": ValidationError(_("Say a word for the tag."), code="required")})
    if len(tag) > MAX_TAG_CHARS:
        message = _("The tag has %(count)s characters; the limit is %(limit)s.")
        message %= {"count": len(tag), "limit": MAX_TAG_CHARS}
        raise ValidationError({"tag": ValidationError(message, code="too_long")})
    if tag != storable(tag) or not tag.isprintable():
        message = "The tag holds characters that cannot be seen. Take them out."
        raise ValidationError({"tag": ValidationError(message, code="unstorable")})
    return tag


def of_items(items: Iterable[Item]) -> Q:
    """The rows of a table of items that hang on these."""
    items = list(items)
    calls = Q(call_id__in=[item.call_id for item in items if item.call_id])
    alone = Q(pk=None)
    for item in items:
        if item.call_id is None:
            alone |= Q(turn_id=item.turn_id, cycle=item.cycle, call_id=None)
    return calls | alone


def key_of(row: Any) -> tuple[int, int, int | None]:
    """What tells the item of a row, or an item itself, from others: the cycle of a call may change."""
    return (row.turn_id, 0 if row.call_id else row.cycle, row.call_id)


def tags_of(item: Item) -> list[ItemTag]:
    """The tags of an item in the order of the alphabet, with `by` loaded."""
    return list(ItemTag.objects.filter(**item.key).select_related("by").order_by("tag"))


@transaction.atomic
def add(
    items: Sequence[Item], tag: str, *, by: User, token: ApiToken | None = None, at: dt.datetime | None = None
) -> tuple[list[Item], list[Item]]:
    """Tag items: those that did not have the tag, and those that have too many to take another. Raises
    ValidationError for the tag."""
    tag, now = cleaned(tag), at or timezone.now()
    having: dict[tuple[int, int, int | None], set[str]] = {}
    for row in ItemTag.objects.filter(of_items(items)):
        having.setdefault(key_of(row), set()).add(row.tag)
    wanting = [item for item in items if tag not in having.get(key_of(item), ())]
    full = [item for item in wanting if len(having.get(key_of(item), ())) >= MAX_TAGS]
    new = [item for item in wanting if item not in full]
    rows = [ItemTag(**item.columns, tag=tag, started_at=item.started_at, by=by, at=now) for item in new]
    ItemTag.objects.bulk_create(rows, ignore_conflicts=True)
    _record("item.tagged", new, tag, by, token)
    return new, full


@transaction.atomic
def remove(items: Sequence[Item], tag: str, *, by: User, token: ApiToken | None = None) -> list[ItemTag]:
    """Take a tag off items; the rows that were there."""
    rows = list(ItemTag.objects.select_for_update().filter(of_items(items), tag=tag).order_by("pk"))
    ItemTag.objects.filter(pk__in=[row.pk for row in rows]).delete()
    gone = {key_of(row) for row in rows}
    _record("item.untagged", [item for item in items if key_of(item) in gone], tag, by, token)
    return rows


def _record(action: str, items: Sequence[Item], tag: str, by: User, token: ApiToken | None) -> None:
    if not items:
        return
    first, detail = items[0], {"tag": tag}
    if len(items) > 1:
        detail |= {"items": str(len(items))}
    audit.record(
        action,
        object_type="tool_call" if first.call_id else "turn",
        object_id=(first.call_id or first.turn_id) if len(items) == 1 else "",
        actor=by,
        token=token,
        detail=detail,
    )
