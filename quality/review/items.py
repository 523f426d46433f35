"""What can be reviewed: a call, or the last reply of a turn that made no call. All functions need an open tenant scope.

The queue is both kinds merged, newest first. A place in it is an item, so skipping is to ask for what follows it.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from heapq import merge
from typing import Any

from django.db.models import OuterRef, Q, QuerySet
from django.utils import timezone

from quality.calls import COUNT_CAP, UNLABELLED, CallFilter, Position, marked_as, matching, nearest
from quality.models import ENDED, CallState, FeedbackEvent, ToolCall, Turn
from tenants.models import User

UNFINISHED = (CallState.STREAMING, CallState.PENDING, CallState.RUNNING)


class NoSuchItem(LookupError):
    """The tenant has no such call, turn or cycle."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """What a label hangs on. `call_id` is None where no call was made in that cycle of the turn."""

    turn_id: int
    cycle: int
    call_id: int | None
    started_at: dt.datetime
    tool_name: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """What tells this item from all others. The cycle of a call may change, as more of its trace comes in."""
        if self.call_id is None:
            return self.columns
        return {"turn_id": self.turn_id, "call_id": self.call_id}

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a new row that hangs on this item."""
        return {"turn_id": self.turn_id, "cycle": self.cycle, "call_id": self.call_id}

    @property
    def kind(self) -> str:
        return "turn" if self.call_id is None else "call"

    @property
    def name(self) -> str:
        """The item in a word, as addresses and writes name it: `call:12`, `turn:5:0`."""
        return f"turn:{self.turn_id}:{self.cycle}" if self.call_id is None else f"call:{self.call_id}"

    def __str__(self) -> str:
        return f"turn {self.turn_id}, cycle {self.cycle}" if self.call_id is None else f"call {self.call_id}"

    @property
    def _place(self) -> tuple[float, bool, int]:
        """Sorts newest first; calls before turns of the same instant."""
        return (-self.started_at.timestamp(), self.call_id is None, -(self.call_id or self.turn_id))


def item_of_call(call_id: int) -> Item:
    """The item of a call; raises NoSuchItem."""
    row = ToolCall.objects.filter(pk=call_id).values("turn_id", "cycle", "started_at", "tool_name").first()
    if row is None:
        raise NoSuchItem(f"There is no call {call_id}.")
    return Item(call_id=call_id, **row)


def item_of_turn(turn_id: int, cycle: int | None = None) -> Item:
    """The item of a reply of a turn, of the last one unless `cycle` says otherwise; raises NoSuchItem."""
    row = Turn.objects.filter(pk=turn_id).values("num_cycles", "started_at").first()
    if row is None:
        raise NoSuchItem(f"There is no turn {turn_id}.")
    last = max(row["num_cycles"] - 1, 0)
    if cycle is not None and not 0 <= cycle <= last:
        raise NoSuchItem(f"Turn {turn_id} has no cycle {cycle}; its last one is {last}.")
    return Item(turn_id=turn_id, cycle=last if cycle is None else cycle, call_id=None, started_at=row["started_at"])


def item_of_name(name: str) -> Item:
    """The item that `Item.name` names; raises NoSuchItem."""
    kind, _, rest = name.partition(":")
    numbers = [int(part) for part in rest.split(":") if part.isdecimal() and len(part) < 19]
    if kind == "call" and len(numbers) == 1:
        return item_of_call(numbers[0])
    if kind == "turn" and len(numbers) == 2:
        return item_of_turn(*numbers)
    raise NoSuchItem(f"{name} names no item.")


def unlabelled(wanted: CallFilter) -> CallFilter:
    """The same filter, for items without a label: the usual queue."""
    return replace(wanted, labels=(UNLABELLED,))


def items_after(item: Item | None, wanted: CallFilter, *, limit: int = 1) -> list[Item]:
    """The items that follow `item` (None: from the newest on), newest first."""
    return _merged(item, wanted, limit=limit, newer=False)


def items_before(item: Item, wanted: CallFilter, *, limit: int = 1) -> list[Item]:
    """The items that precede `item`, nearest first."""
    return _merged(item, wanted, limit=limit, newer=True)


def next_item(item: Item | None, wanted: CallFilter) -> Item | None:
    return next(iter(items_after(item, wanted)), None)


def previous_item(item: Item, wanted: CallFilter) -> Item | None:
    return next(iter(items_before(item, wanted)), None)


def _merged(item: Item | None, wanted: CallFilter, *, limit: int, newer: bool) -> list[Item]:
    """Up to `limit` items beside `item`, from one index scan over the calls and one over the turns."""
    order = ("started_at", "pk") if newer else ("-started_at", "-pk")
    beside = partial(_beside, item, newer=newer)

    def take(calls: QuerySet[ToolCall]) -> list[tuple[Any, ...]]:
        ended = calls.exclude(state__in=UNFINISHED).filter(beside("call")).order_by(*order)
        return list(ended.values_list("pk", "turn_id", "cycle", "started_at", "tool_name")[:limit])

    calls = nearest(wanted, take, at=item.started_at if item else None, newer=newer, limit=limit)
    turns = turns_without_call(wanted).filter(beside("turn")).order_by(*order)
    streams: list[Iterable[Item]] = [
        [
            Item(call_id=pk, turn_id=turn_id, cycle=cycle, started_at=started_at, tool_name=tool_name)
            for pk, turn_id, cycle, started_at, tool_name in calls
        ],
        [
            Item(call_id=None, turn_id=pk, cycle=max(num_cycles - 1, 0), started_at=started_at)
            for pk, num_cycles, started_at in turns.values_list("pk", "num_cycles", "started_at")[:limit]
        ],
    ]
    return list(merge(*streams, key=lambda found: found._place, reverse=newer))[:limit]


def _beside(item: Item | None, kind: str, *, newer: bool) -> Q:
    """The rows of one kind that lie on one side of an item of any kind."""
    if item is None:
        return Q()
    if item.kind == kind:
        position = Position(at=item.started_at, id=item.call_id or item.turn_id)
        return position.newer() if newer else position.older()
    # Of the same instant, calls come before turns.
    inclusive = (kind == "call") == newer
    return Q(**{f"started_at__{'g' if newer else 'l'}t{'e' if inclusive else ''}": item.started_at})


def ended_calls(wanted: CallFilter) -> QuerySet[ToolCall]:
    """The calls that a filter lets through and that have come to an end: before there is nothing to judge."""
    return matching(wanted).exclude(state__in=UNFINISHED)


def turns_without_call(wanted: CallFilter) -> QuerySet[Turn]:
    """The turns without a call that a filter lets through: none if it asks for a tool or an outcome."""
    if wanted.tools or wanted.error:
        return Turn.objects.none()
    turns = Turn.objects.filter(wanted.context(), num_calls=0, state__in=ENDED)
    return turns.filter(marked_as(wanted, turn_id=OuterRef("pk"), call_id=None))


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the queue is. `left` beyond COUNT_CAP is not counted on: then `capped` is true."""

    left: int
    capped: bool
    mine_today: int


def progress(wanted: CallFilter, reviewer: User) -> Progress:
    """What is left without a label, and what this reviewer labelled since midnight of the viewer's zone."""
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    queue = unlabelled(wanted)
    left = _capped(ended_calls(queue))
    if left <= COUNT_CAP:
        left += _capped(turns_without_call(queue))
    mine = FeedbackEvent.objects.filter(reviewer=reviewer, action=FeedbackEvent.Action.LABEL, created_at__gte=midnight)
    return Progress(left=min(left, COUNT_CAP), capped=left > COUNT_CAP, mine_today=_capped(mine))


def _capped(rows: QuerySet[Any]) -> int:
    return rows.order_by().values("pk")[: COUNT_CAP + 1].count()
