"""Which way through items an address of Review means, and the way by a filter."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from django.db.models import Q
from django.http import Http404, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse

from quality.calls import ANY_HINT, CallFilter
from quality.filters import CallFilterForm
from quality.models import Review, ReviewQueue
from quality.pages.access import TenantRequest
from quality.pages.call_filter import filter_query
from quality.review import blind, items
from quality.review.items import Item, NoSuchItem
from quality.review.queues.source import QueueSource
from quality.review.sources import Action, Desk, Rail, Source, Standing, Stop
from tenants.models import User

RAIL_BEFORE, RAIL_AFTER = 6, 16


class FilterSource:
    """The filter of the address, newest first; of it what has no label, unless labels are asked for."""

    name = ""

    def __init__(self, slug: str, data: QueryDict, user: User) -> None:
        form = CallFilterForm(data)
        self.slug, self.user = slug, user
        self.faults: list[dict[str, Any]] = [] if form.is_valid() else list(form.faults())
        self.query = filter_query(data)
        self.wanted = blind.seen_by(form.wanted if not self.faults else CallFilter(), user)
        self.open = self.wanted if self.wanted.labels else items.unlabelled(self.wanted)
        self._rails: dict[Item | None, Rail] = {}
        self._labelled: set[Item] = set()  # of those in rails; which label it is may be hidden

    @property
    def browses(self) -> bool:
        """Are items with a label gone through, too?"""
        return bool(self.wanted.labels)

    @property
    def fields(self) -> dict[str, str]:
        return {"filter": self.query.urlencode()}

    def hints_address(self) -> str:
        """The same way, of what has a hint alone; of that, all of it."""
        query = self.query.copy()
        if query.pop("hint", None) is None:
            query["hint"] = ANY_HINT
        return f"{reverse('review', args=[self.slug])}?{query.urlencode()}".removesuffix("?")

    def address(self, item: Item | None = None, **more: str) -> str:
        query = self.query.copy()
        for name, value in (item_query(item) | more).items():
            query[name] = value
        return f"{reverse('review', args=[self.slug])}?{query.urlencode()}".removesuffix("?")

    def following_address(self, item: Item) -> str:
        following = self.following(item)
        return self.address(following) if following else self.address(done="1")

    def first(self) -> Item | None:
        return None if self.faults else self._next(None)

    def following(self, item: Item | None) -> Item | None:
        if item is None:
            return self.first()
        if item not in self._rails:
            return self._next(item)
        after = self._rails[item].after
        is_open = (stop.item for stop in after if self.browses or stop.item not in self._labelled)
        # Beyond the rail's end only a query knows.
        return next(is_open, None) or (self._next(after[-1].item) if after else None)

    def rail(self, item: Item | None) -> Rail:
        if item not in self._rails:
            self._rails[item] = self._read_rail(item)
        return self._rails[item]

    @cached_property
    def _standing(self) -> Standing:
        found = items.progress(replace(self.wanted, labels=()), self.user)
        return Standing(left=found.left, capped=found.capped, mine_today=found.mine_today)

    def standing(self) -> Standing:
        return self._standing

    def desk(self, item: Item | None) -> Desk:
        return Desk()

    def actions(self, item: Item | None) -> list[Action]:
        return []

    def check(self, item: Item) -> None:
        """Whoever may label may label what a filter finds."""

    def _next(self, item: Item | None) -> Item | None:
        return items.next_item(item, self.open)

    def _read_rail(self, item: Item | None) -> Rail:
        if item is None:
            return Rail()
        before = items.items_before(item, self.wanted, limit=RAIL_BEFORE)[::-1]
        after = items.items_after(item, self.wanted, limit=RAIL_AFTER)
        labels = _labels_of([*before, item, *after])
        hidden = blind.hidden_from(self.user, labels)
        self._labelled |= labels.keys()

        def stop(one: Item) -> Stop:
            return Stop(item=one, label=None if one in hidden else labels.get(one))

        return Rail(before=[stop(one) for one in before], here=stop(item), after=[stop(one) for one in after])


def _labels_of(around: Iterable[Item]) -> dict[Item, str]:
    """The newest label of each item that has one."""
    around = list(around)
    calls = Q(call_id__in=[item.call_id for item in around if item.call_id])
    turns = Q(call_id=None, turn_id__in=[item.turn_id for item in around if not item.call_id])
    rows = Review.objects.filter(calls | turns, label__isnull=False).values_list("turn_id", "cycle", "call_id", "label")
    labels = {(turn, 0 if call else cycle, call): label for turn, cycle, call, label in rows if label}
    keyed = {item: (item.turn_id, 0 if item.call_id else item.cycle, item.call_id) for item in around}
    return {item: labels[key] for item, key in keyed.items() if key in labels}


def item_query(item: Item | None) -> dict[str, str]:
    """An item as addresses name it."""
    if item is None:
        return {}
    if item.call_id:
        return {"call": str(item.call_id)}
    return {"turn": str(item.turn_id), "cycle": str(item.cycle)}


def item_of(data: QueryDict) -> Item | None:
    """The item that an address names, None if none; raises Http404."""
    call, turn, cycle = (str(data.get(name) or "") for name in ("call", "turn", "cycle"))
    try:
        if call:
            return items.item_of_call(int(call))
        if turn:
            return items.item_of_turn(int(turn), int(cycle) if cycle else None)
    except (ValueError, NoSuchItem) as error:
        raise Http404(f"{error}") from error
    return None


def queue_source(request: TenantRequest, pk: int | str) -> QueueSource:
    """The queue as this reviewer goes through it; raises Http404."""
    number = int(pk) if str(pk).isdecimal() and len(str(pk)) < 19 else 0
    queue = get_object_or_404(ReviewQueue, pk=number, deleted_at__isnull=True)
    return QueueSource(request.tenant.slug, queue, request.user)


def source_of(request: TenantRequest, data: QueryDict) -> Source:
    """The way that hidden fields name: `queue`, else the filter in `filter`. Raises Http404 of a queue that is none."""
    if data.get("queue"):
        return queue_source(request, str(data["queue"]))
    return FilterSource(request.tenant.slug, QueryDict(data.get("filter", "")), request.user)
