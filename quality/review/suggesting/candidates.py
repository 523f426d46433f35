"""Which items a run judges next: those of its queue or filter that nobody labelled and no model judged.

Needs an open tenant scope.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.http import QueryDict

from quality.calls import COUNT_CAP, CallFilter
from quality.filters import CallFilterForm
from quality.models import QueueEntry, Suggestion, SuggestionRun
from quality.review import items
from quality.review.items import Item, NoSuchItem

SCANNED = 200  # items of a filter that are looked at for the next few


@dataclass(frozen=True, kw_only=True)
class Next:
    """The items to judge now, and the place to go on from. No items: there are no more."""

    items: list[Item]
    place: dict[str, Any]


def following(run: SuggestionRun, limit: int) -> Next:
    """The next items of a run, at most `limit`."""
    return _of_queue(run, limit) if run.queue_id else _of_filter(run, limit)


def waiting(run: SuggestionRun) -> int:
    """How many items of its queue or filter have no label; COUNT_CAP + 1 stands for more."""
    if run.queue_id:
        return _unjudged(run).values("pk")[: COUNT_CAP + 1].count()
    wanted = items.unlabelled(filter_of(run))
    calls = items.ended_calls(wanted).order_by().values("pk")[: COUNT_CAP + 1].count()
    return calls + items.turns_without_call(wanted).order_by().values("pk")[: COUNT_CAP + 1].count()


def filter_of(run: SuggestionRun) -> CallFilter:
    """Of a run without a queue: what of its filter can still be read."""
    form = CallFilterForm(QueryDict(run.query))
    return form.wanted if form.is_valid() else CallFilter()


def _unjudged(run: SuggestionRun) -> Any:
    same = {"turn_id": OuterRef("turn_id"), "cycle": OuterRef("cycle")}
    on_call = Suggestion.objects.filter(call_id=OuterRef("call_id"))
    on_reply = Suggestion.objects.filter(**same, call_id=None)
    rows = QueueEntry.objects.filter(queue=run.queue_id, state=QueueEntry.State.OPEN, num_labels=0)
    return rows.filter(Q(call_id__isnull=False) & ~Exists(on_call) | Q(call_id=None) & ~Exists(on_reply))


def _of_queue(run: SuggestionRun, limit: int) -> Next:
    """In the order in which people are served. What failed is passed over: `place` holds the items' names."""
    failed = run.place.get("failed", [])
    rows = _unjudged(run).exclude(_named(failed)).order_by("-priority", "-started_at", "-pk")[:limit]
    found = [
        Item(
            turn_id=row.turn_id,
            cycle=row.cycle,
            call_id=row.call_id,
            started_at=row.started_at,
            tool_name=row.tool_name,
        )
        for row in rows
    ]
    return Next(items=found, place={"failed": failed})


def _named(names: list[str]) -> Q:
    calls = [int(name.partition(":")[2]) for name in names if name.startswith("call:")]
    turns = [int(name.split(":")[1]) for name in names if name.startswith("turn:")]
    return Q(call_id__in=calls) | Q(call_id=None, turn_id__in=turns)


def _of_filter(run: SuggestionRun, limit: int) -> Next:
    """Newest first, from the place on that was looked at last."""
    try:
        at = items.item_of_name(run.place["at"]) if "at" in run.place else None
    except NoSuchItem:  # it was deleted meanwhile
        at = None
    wanted = items.unlabelled(filter_of(run))
    while scanned := items.items_after(at, wanted, limit=SCANNED):
        known = judged(scanned)
        found = [item for item in scanned if item not in known][:limit]
        if found:
            return Next(items=found, place={"at": found[-1].name})
        at = scanned[-1]
    return Next(items=[], place=run.place)


def judged(found: Sequence[Item], by: SuggestionRun | None = None) -> set[Item]:
    """Those of these items that have a suggestion, of this run or of any."""
    calls = Q(call_id__in=[item.call_id for item in found if item.call_id])
    turns = Q(call_id=None, turn_id__in=[item.turn_id for item in found if not item.call_id])
    rows = Suggestion.objects.filter(calls | turns, **({"run": by} if by else {}))
    said = {_key(*row) for row in rows.values_list("turn_id", "cycle", "call_id")}
    return {item for item in found if _key(item.turn_id, item.cycle, item.call_id) in said}


def _key(turn_id: int, cycle: int, call_id: int | None) -> tuple[int, int, int | None]:
    """A call is the same item in whatever cycle of its turn it is found to be."""
    return (0, 0, call_id) if call_id else (turn_id, cycle, None)


def passing_over(place: dict[str, Any], left: Iterable[Item]) -> dict[str, Any]:
    """The place, where these items cannot be judged: a queue is told their names, a filter has gone past them."""
    names = [item.name for item in left]
    return place | {"failed": [*place["failed"], *names]} if "failed" in place else place
