"""Fills queues by their rules as calls arrive: chained to the making of hints, in its transaction.

A turn is read once it has ended and its hints are made, again whenever it changes. What passes is sampled by a hash of
queue and item, so that a repeat changes nothing. There is no watermark: transactions commit out of order.
"""

import logging
from collections.abc import Sequence
from hashlib import blake2b

from django.db import transaction
from django.http import QueryDict

from quality.filters import CallFilterForm
from quality.models import ENDED, ReviewQueue
from quality.review.items import Item, ended_calls, turns_without_call
from quality.review.queues import adding

logger = logging.getLogger(__name__)


def fill(turn_ids: Sequence[int]) -> int:
    """Put the ended items of these turns into the open queues whose rule they pass; how many entries that made. A
    queue that trips costs itself alone."""
    added = 0
    for queue in ReviewQueue.objects.filter(
        kind=ReviewQueue.Kind.RULE, state=ReviewQueue.State.OPEN, deleted_at__isnull=True
    ):
        try:
            with transaction.atomic():
                added += _fill(queue, turn_ids)
        except Exception:
            logger.exception("queue %s was not filled from turns %s", queue.pk, turn_ids)
    return added


def _fill(queue: ReviewQueue, turn_ids: Sequence[int]) -> int:
    form = CallFilterForm(QueryDict(queue.query))
    if not form.is_valid():
        logger.error("queue %s is not filled: its filter %r is not understood", queue.pk, queue.query)
        return 0
    calls = ended_calls(form.wanted).filter(
        turn_id__in=turn_ids, turn__state__in=ENDED, created_at__gte=queue.fills_from
    )
    turns = turns_without_call(form.wanted).filter(pk__in=turn_ids, created_at__gte=queue.fills_from)
    items = [
        Item(call_id=pk, turn_id=turn_id, cycle=cycle, started_at=started_at, tool_name=tool_name)
        for pk, turn_id, cycle, started_at, tool_name in calls.values_list(
            "pk", "turn_id", "cycle", "started_at", "tool_name"
        )
    ] + [
        Item(call_id=None, turn_id=pk, cycle=max(num_cycles - 1, 0), started_at=started_at)
        for pk, num_cycles, started_at in turns.values_list("pk", "num_cycles", "started_at")
    ]
    taken = [item for item in items if is_sampled(queue.pk, item, queue.sample_rate)]
    return adding.put_in(queue, taken[: max(adding.room_in(queue), 0)], actor=None) if taken else 0


def is_sampled(queue_id: int, item: Item, rate: float) -> bool:
    """Is the item in the share `rate` of a queue? The same answer each time it is asked."""
    name = f"{queue_id}:{item.kind}:{item.call_id or item.turn_id}"
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) < rate * 2**64
