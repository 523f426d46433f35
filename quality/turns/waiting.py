"""Calls that wait for a person, over all turns, those that wait longest first. Needs an open tenant scope."""

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from engine.records import OPEN
from quality.models import CallDecision, ToolCall, TurnRun, TurnState

PAGE_SIZE = 50
COUNT_CAP = 99


def waiting() -> QuerySet[ToolCall]:
    """Open calls of parked turns on which nothing is decided yet; `waits_since` is when the turn was parked."""
    parked = TurnRun.objects.filter(state=TurnState.AWAITING)
    decided = CallDecision.objects.filter(call=OuterRef("pk"), opening=OuterRef("opening"))
    return (
        ToolCall.objects.filter(turn__in=parked.values("turn"), state__in=OPEN)
        .filter(~Exists(decided))
        .annotate(waits_since=Subquery(parked.filter(turn=OuterRef("turn_id")).values("queued_at")[:1]))
        .order_by("waits_since", "turn_id", "cycle", "index")
    )


def num_waiting() -> int:
    """How many wait; COUNT_CAP + 1 stands for more than COUNT_CAP."""
    return waiting().order_by().values("pk")[: COUNT_CAP + 1].count()
