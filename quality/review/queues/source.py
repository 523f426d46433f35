"""A queue as the review screen goes through it (quality.review.sources.Source), for one reviewer and one request.

What is served is claimed; what is only looked at is not. A label takes its item on the way, if a place is left there.
"""

from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.models import Assignment, QueueEntry, ReviewQueue
from quality.review.items import Item
from quality.review.queues import adjudication, claiming, wording
from quality.review.queues.claiming import item_of
from quality.review.queues.people import may_label, reviewers_of
from quality.review.queues.sql import HOLDS, rows
from quality.review.sources import PARTS, Action, Desk, Lost, Rail, Standing, Stop
from tenants.models import User

RAIL_BEFORE, RAIL_AFTER = 6, 16
COUNT_CAP = 10_000
State = Assignment.State

_STANDING = f"""
SELECT
    (SELECT count(*) FROM (SELECT FROM review_queue_entries e WHERE e.tenant_id = %(tenant)s
        AND e.queue_id = %(queue)s AND e.state = 'open' LIMIT %(cap)s) s),
    (SELECT count(*) FROM (SELECT FROM review_queue_entries e WHERE e.tenant_id = %(tenant)s
        AND e.queue_id = %(queue)s AND e.state = 'done' LIMIT %(cap)s) s),
    (SELECT count(*) FROM review_assignments a WHERE a.tenant_id = %(tenant)s AND a.queue_id = %(queue)s
        AND a.reviewer_id = %(me)s AND a.state = 'labelled'),
    (SELECT count(*) FROM review_assignments a WHERE a.tenant_id = %(tenant)s AND a.queue_id = %(queue)s
        AND a.reviewer_id = %(me)s AND a.state = 'labelled' AND a.updated_at >= %(midnight)s),
    (SELECT count(DISTINCT a.entry_id) FROM review_assignments a WHERE a.tenant_id = %(tenant)s
        AND a.queue_id = %(queue)s AND a.reviewer_id = ANY(%(others)s) AND a.state IN ('claimed', 'handed')
        AND {HOLDS})
"""  # noqa: S608  (no input)


class QueueSource:
    """One queue, for one reviewer."""

    def __init__(self, slug: str, queue: ReviewQueue, user: User) -> None:
        self.slug, self.queue, self.user = slug, queue, user
        self.name = queue.name
        self.faults: list[dict[str, Any]] = []
        self._rails: dict[Item | None, Rail] = {}
        self._entries: dict[Item, QueueEntry | None] = {}

    # --- addresses ----------------------------------------------------------------------------------------------------
    @property
    def fields(self) -> dict[str, str]:
        return {"queue": str(self.queue.pk)}

    def address(self, item: Item | None = None, **more: str) -> str:
        query = urlencode(_query(item) | more)
        return f"{reverse('queue-review', args=[self.slug, self.queue.pk])}?{query}".removesuffix("?")

    def following_address(self, item: Item) -> str:
        return self.address(after=_name(item))

    # --- what is next -------------------------------------------------------------------------------------------------
    def first(self) -> Item | None:
        """What this reviewer holds, else the next entry for him, claimed."""
        held = claiming.held(self.queue, self.user)
        entry = held[0] if held else claiming.claim_next(self.queue, self.user)
        return self._seen(entry)

    def following(self, item: Item | None) -> Item | None:
        """The next entry for this reviewer after `item`: one that he took after it and holds, else one that is claimed
        now. What he took before it may have its label on the way: it is not served again."""
        if item is None:
            return self.first()
        claiming.touch(self.queue, self.user, item)
        here = self.entry(item)
        held = [entry for entry in claiming.held(self.queue, self.user, after=here) if entry != here]
        if held:
            return self._seen(held[0])
        return self._seen(claiming.claim_next(self.queue, self.user, beside=[here.pk] if here else ()))

    def check(self, item: Item) -> None:
        """Raises Lost where this reviewer may not label the item here: others have it, or it is not there."""
        entry = claiming.entry_of(self.queue, item)
        if entry is None or entry.state == QueueEntry.State.REMOVED:
            raise Lost(_("This item is not in the queue any more, so nothing was saved. Go on to the next one."))
        if self.queue.state == ReviewQueue.State.CLOSED:
            raise Lost(_("The queue is closed, so nothing was saved. Ask whoever leads it to open it again."))
        if not may_label(self.queue, self.user):
            raise Lost(_("You are not a reviewer of this queue, so nothing was saved."))
        mine = Assignment.objects.filter(entry=entry, reviewer=self.user).values_list("state", flat=True).first()
        if mine != State.LABELLED and not claiming.take(self.queue, self.user, item, keep=True):
            raise Lost(_("Others took this one while you were away, so nothing was saved. Go on to the next one."))

    # --- what a reviewer does beside labelling ------------------------------------------------------------------------
    def skip(self, item: Item, *, note: str = "") -> None:
        claiming.skip(self.queue, self.user, item, note=note)

    def unskip(self, item: Item | None = None) -> Item | None:
        return self._seen(claiming.unskip(self.queue, self.user, item))

    def send_back(self, item: Item, *, note: str = "") -> None:
        claiming.send_back(self.queue, self.user, item, note=note)

    def hand_over(self, item: Item, *, to: User, note: str = "") -> None:
        claiming.hand_over(self.queue, self.user, item, to=to, note=note)

    def actions(self, item: Item | None) -> list[Action]:
        if self.queue.state == ReviewQueue.State.CLOSED or not self._may_label:
            return []
        possible = []
        mine = self._mine(item)
        entry = self.entry(item) if item else None
        if entry is not None and entry.state == QueueEntry.State.OPEN and mine != State.LABELLED:
            possible += ["skip", "send_back"] if mine != State.SKIPPED else []
            possible += ["hand_over"] if len(reviewers_of(self.queue)) > 1 else []
        # A screen that is asked for ahead is older than the skip that leads to it: the key is there in any case.
        skipped = Assignment.objects.filter(queue=self.queue, reviewer=self.user, state=State.SKIPPED)
        if item is not None or skipped.exists():
            possible.append("unskip")
        return [self._action(name) for name in possible]

    # --- what is shown ------------------------------------------------------------------------------------------------
    def rail(self, item: Item | None) -> Rail:
        if item not in self._rails:
            self._rails[item] = self._read_rail(item)
        return self._rails[item]

    def standing(self) -> Standing:
        return self._standing

    def desk(self, item: Item | None) -> Desk:
        entry = self.entry(item) if item else None
        is_open = entry is not None and entry.state == QueueEntry.State.OPEN
        return Desk(
            parts=frozenset(part for part in PARTS if part in self.queue.fields)
            if self.queue.fields
            else frozenset(PARTS),
            why=self._why(entry),
            is_blind=bool(entry and entry.is_blind and is_open),
            guidelines=self.queue.guidelines,
            is_adjudication=self.queue.kind == ReviewQueue.Kind.ADJUDICATION,
        )

    def answers(self, item: Item) -> list[adjudication.Answer]:
        """Of a disagreement: what the reviewers said, side by side. Of any other queue nothing."""
        entry = self.entry(item)
        if entry is None or self.queue.kind != ReviewQueue.Kind.ADJUDICATION:
            return []
        return adjudication.answers(entry)

    def entry(self, item: Item) -> QueueEntry | None:
        """The item's entry in this queue."""
        if item not in self._entries:
            self._entries[item] = claiming.entry_of(self.queue, item)
        return self._entries[item]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _action(self, name: str) -> Action:
        url = reverse(f"queue-{name.replace('_', '-')}", args=[self.slug, self.queue.pk])
        if name == "hand_over":
            others = [user for user in reviewers_of(self.queue) if user.pk != self.user.pk]
            return Action(name=name, url=url, choices=[(str(user.pk), str(user)) for user in others], asks_note=True)
        return Action(name=name, url=url, asks_note=name == "send_back")

    @cached_property
    def _may_label(self) -> bool:
        return may_label(self.queue, self.user)

    @cached_property
    def _standing(self) -> Standing:
        midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
        others = [pk for (pk,) in rows(_REVIEWERS, {"queue": self.queue.pk}) if pk != self.user.pk]
        asked = {"queue": self.queue.pk, "me": self.user.pk, "midnight": midnight, "now": timezone.now()}
        ((left, done, mine, today, held),) = rows(_STANDING, asked | {"others": others, "cap": COUNT_CAP + 1})
        capped = left > COUNT_CAP or done > COUNT_CAP
        return Standing(
            left=min(left, COUNT_CAP),
            capped=left > COUNT_CAP,
            total=None if capped else left + done,
            done=min(done, COUNT_CAP),
            mine=mine,
            mine_today=today,
            held=held,
        )

    def _seen(self, entry: QueueEntry | None) -> Item | None:
        if entry is None:
            return None
        item = item_of(entry)
        self._entries[item] = entry
        return item

    def _mine(self, item: Item | None) -> str | None:
        entry = self.entry(item) if item else None
        if entry is None:
            return None
        return Assignment.objects.filter(entry=entry, reviewer=self.user).values_list("state", flat=True).first()

    def _why(self, entry: QueueEntry | None) -> str:
        if entry is None:
            return ""
        handed = (
            Assignment.objects.filter(entry=entry, reviewer=self.user, handed_by__isnull=False)
            .select_related("handed_by")
            .first()
        )
        if handed is None:
            return wording.why_of(self.queue, entry)
        told = _("Handed over by %(name)s") % {"name": handed.handed_by}
        return f"{told}: {handed.note}" if handed.note else told

    def _read_rail(self, item: Item | None) -> Rail:
        """Before: what this reviewer labelled last. After: what he holds, and what would be his next."""
        labelled = Assignment.objects.filter(queue=self.queue, reviewer=self.user, state=State.LABELLED)
        here = self.entry(item) if item else None
        mine = labelled.filter(entry=here).first() if here else None
        earlier, later = labelled, []
        if mine is not None:
            earlier = labelled.filter(Q(updated_at__lt=mine.updated_at) | Q(updated_at=mine.updated_at, pk__lt=mine.pk))
            after = labelled.filter(Q(updated_at__gt=mine.updated_at) | Q(updated_at=mine.updated_at, pk__gt=mine.pk))
            later = list(after.select_related("entry").order_by("updated_at", "pk")[:RAIL_AFTER])
        before = list(earlier.select_related("entry").order_by("-updated_at", "-pk")[:RAIL_BEFORE])[::-1]
        return Rail(
            before=[Stop(item=item_of(one.entry), label=one.label) for one in before],
            here=Stop(item=item, label=mine.label if mine else None) if item else None,
            after=[
                *[Stop(item=item_of(one.entry), label=one.label) for one in later],
                *self._upcoming(here, RAIL_AFTER - len(later)),
            ][:RAIL_AFTER],
        )

    def _upcoming(self, here: QueueEntry | None, limit: int) -> list[Stop]:
        if not self._may_label or self.queue.state == ReviewQueue.State.CLOSED or limit <= 0:
            return []
        held = [entry for entry in claiming.held(self.queue, self.user) if here is None or entry.pk != here.pk]
        beside = [entry.pk for entry in held] + ([here.pk] if here else [])
        ahead = claiming.upcoming(self.queue, self.user, limit=limit, beside=beside)
        skipped = set(
            Assignment.objects.filter(
                reviewer=self.user, state=State.SKIPPED, entry__in=[entry.pk for entry in ahead]
            ).values_list("entry_id", flat=True)
        )
        return [
            Stop(item=item_of(entry), word=_("skipped") if entry.pk in skipped else "") for entry in [*held, *ahead]
        ]


_REVIEWERS = """
SELECT m.user_id FROM memberships m WHERE m.tenant_id = %(tenant)s AND m.role IN ('operator', 'admin')
"""


def _query(item: Item | None) -> dict[str, str]:
    if item is None:
        return {}
    if item.call_id:
        return {"call": str(item.call_id)}
    return {"turn": str(item.turn_id), "cycle": str(item.cycle)}


def _name(item: Item) -> str:
    """An item in a word, as Review's addresses say it after which one to go on."""
    return f"call:{item.call_id}" if item.call_id else f"turn:{item.turn_id}:{item.cycle}"
