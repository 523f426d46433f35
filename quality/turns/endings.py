"""A turn ended by another hand than its runner's: cancelled while nobody ran it, lost for good, overtaken by the user.

All of it runs in the open tenant scope.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from engine.events import AssistantEnd
from engine.history import NOT_ANSWERED
from engine.records import OPEN
from engine.tools import Safety
from quality.ingest.jsontext import dump
from quality.models import CallDecision, CallState, DecisionKind, ToolCall, Turn, TurnRun, TurnState
from quality.privacy.ended import mask_ended
from quality.turns.events import append
from tenants.models import ApiToken, User

WORKER_LOST = "The worker that ran this turn was lost"


def end_lost_turn(turn_id: int, error: str) -> None:
    """A turn whose worker was lost too often. What was running is put on record as what is known of it."""
    calls = ToolCall.objects.filter(turn=turn_id)
    running = calls.filter(state=CallState.RUNNING)
    running.filter(safety=Safety.UNSAFE).update(state=CallState.UNKNOWN)
    _close(running.exclude(safety=Safety.UNSAFE), code="worker_lost", text=error)
    _close(calls.filter(state=CallState.PENDING), code="worker_lost", text=error)
    _end(turn_id, state=TurnState.FAILED, end_reason="worker_lost", error=error)


def cancel_parked_turn(turn_id: int) -> None:
    """A turn that nobody runs: its calls that wait are not run any more; what is unknown stays unknown."""
    _close(ToolCall.objects.filter(turn=turn_id, state=CallState.PENDING), code="cancelled", text="Error: cancelled")
    _end(turn_id, state=TurnState.CANCELLED, end_reason="cancelled", error="")


def close_overtaken(
    conversation_id: str, *, before: int | None = None, by: User | None = None, token: ApiToken | None = None
) -> None:
    """The user wrote on: open calls of the conversation's earlier turns are closed as not answered."""
    if not conversation_id:
        return
    runs = TurnRun.objects.select_for_update().filter(conversation_id=conversation_id, state=TurnState.AWAITING)
    for run in runs if before is None else runs.filter(pk__lt=before):
        calls = ToolCall.objects.filter(turn=run.turn_id, state__in=OPEN)
        decided = set(CallDecision.objects.filter(turn=run.turn_id).values_list("call_id", "opening"))
        CallDecision.objects.bulk_create(
            CallDecision(
                turn_id=run.turn_id,
                call=call,
                opening=call.opening,
                kind=DecisionKind.NOT_ANSWERED,
                decided_by=by,
                token_id=token.pk if token else None,
            )
            for call in calls
            if (call.pk, call.opening) not in decided
        )
        _close(calls, code="not_answered", text=NOT_ANSWERED)
        _end(run.turn_id, state=TurnState.DONE, end_reason="not_answered", error="")


def _close(calls: QuerySet[Any], *, code: str, text: str) -> None:
    calls.update(state=CallState.ERROR, is_error=True, error=code, result=dump(text))


def _end(turn_id: int, *, state: TurnState, end_reason: str, error: str) -> None:
    now = timezone.now()
    TurnRun.objects.filter(turn=turn_id).update(
        state=state, error=error, lease_token=None, lease_until=None, finished_at=now
    )
    num_calls = ToolCall.objects.filter(turn=turn_id).count()
    Turn.objects.filter(pk=turn_id).update(state=state, end_reason=end_reason, num_calls=num_calls, hints_version=0)
    append(turn_id, [dump(AssistantEnd(None, False, end_reason, error or None).as_dict())])
    mask_ended([turn_id])


def undecided(turn_id: int) -> Sequence[ToolCall]:
    """Open calls of a turn on which nothing is decided yet."""
    return [call for call in open_calls(turn_id) if not call.decision_made]


def open_calls(turn_id: int) -> list[Any]:
    """Open calls in the model's order; `decision_made` tells whether their present opening was decided."""
    made = set(CallDecision.objects.filter(turn=turn_id).values_list("call_id", "opening"))
    calls: list[Any] = list(ToolCall.objects.filter(Q(turn=turn_id) & Q(state__in=OPEN)).order_by("cycle", "index"))
    for call in calls:
        call.decision_made = (call.pk, call.opening) in made
    return calls
