"""Which calls a bulk action is for: a frozen filter, or calls chosen one by one. Needs an open tenant scope."""

import datetime as dt
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from django.db import connection
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import RawSQL
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.calls import WITH_ARCHIVED, CallFilter, matching
from quality.filters import CallFilterForm, query_of
from quality.models import BulkAction, Review, ToolCall
from quality.review.blind import seen_by

MAX_ITEMS = 50_000  # of one action: what it does can still be read through, and undone within minutes
MAX_CHOSEN = 1_000  # calls that are named one by one


class FilterBroken(ValueError):
    """The filter of an action is not understood any more."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The calls of an action as they are at one moment, newest first; `sha256` changes with them and their labels."""

    ids: Sequence[int]
    sha256: str
    is_capped: bool

    @property
    def count(self) -> int:
        return len(self.ids)


def frozen(wanted: CallFilter, now: dt.datetime | None = None) -> str:
    """A filter as a query string that means what is there now: what comes in later does not match."""
    now = now or timezone.now()
    return query_of(replace(wanted, arrived_until=min(wanted.arrived_until or now, now)))


def filter_of(action: BulkAction) -> CallFilter:
    """The filter of an action, as who began it may apply it; raises FilterBroken."""
    form = CallFilterForm(QueryDict(action.query))
    if not form.is_valid() or form.unknown():
        raise FilterBroken(_("The filter of this action is not understood any more. Choose the calls again."))
    return seen_by(form.wanted, action.created_by)


def calls_of(action: BulkAction) -> QuerySet[ToolCall]:
    """The calls of an action, in no order yet; raises FilterBroken."""
    if action.call_ids:
        return matching(CallFilter(archived=WITH_ARCHIVED)).filter(among("pk", action.call_ids))
    return matching(filter_of(action))


def among(column: str, ids: Sequence[int]) -> Q:
    """Is the column one of these ids? As one array: fifty thousand parameters would be a statement of megabytes."""
    return Q(**{f"{column}__in": RawSQL("SELECT unnest(%s::bigint[])", [list(ids)])})


@contextmanager
def _by_index() -> Iterator[None]:
    """So many rows of a small table read faster as a whole; but there lie the rows of all tenants."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        yield
        cursor.execute("SET LOCAL enable_seqscan TO DEFAULT")


def look(action: BulkAction) -> Seen:
    """The calls of an action now, in one query, which stops past MAX_ITEMS. Raises FilterBroken."""
    version = Subquery(Review.objects.filter(call_id=OuterRef("pk")).values("version")[:1])
    rows = calls_of(action).order_by("-started_at", "-id").annotate(seen=version).values_list("pk", "seen")
    with _by_index():
        found = list(rows[: MAX_ITEMS + 1])
    text = ",".join(f"{pk}/{seen or 0}" for pk, seen in found)
    return Seen(
        ids=[pk for pk, _ in found[:MAX_ITEMS]],
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        is_capped=len(found) > MAX_ITEMS,
    )
