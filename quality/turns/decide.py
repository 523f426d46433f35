"""What people and callers decide on calls that wait, and on calls whose outcome is unknown.

Decisions are rows that are never changed. With the last open call decided the turn goes on by itself, unless it was
only to be put on record.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from engine.schema import compiled
from engine.strict_json import read_json
from engine.tools import Mode
from quality.ingest.jsontext import dump
from quality.models import CallDecision, CallState, DecisionKind, ToolCall, TurnRun, TurnState
from quality.stored import json_sent, prose_sent
from quality.turns.create import hint
from quality.turns.endings import undecided
from quality.turns.events import append
from tenants import audit
from tenants.masking import reading
from tenants.models import ApiToken, User

FOR_PENDING = frozenset({DecisionKind.APPROVE, DecisionKind.DECLINE, DecisionKind.ANSWER})
FOR_UNKNOWN = frozenset({DecisionKind.HAPPENED, DecisionKind.DID_NOT_HAPPEN, DecisionKind.RUN_AGAIN})


class NoSuchTurn(LookupError):
    """There is no such turn of ours in the open scope."""


class CannotDecide(ValueError):
    """A decision that does not fit its call. `index` is its place among those sent, `member` the field at fault."""

    def __init__(self, index: int, member: str, code: str, message: str) -> None:
        super().__init__(message)
        self.index = index
        self.member = member
        self.code = code


class AlreadyDecided(Exception):
    """Somebody decided on this call before; `decision` is what."""

    def __init__(self, decision: CallDecision | None, call: ToolCall) -> None:
        super().__init__(
            _("The call %(call)s is %(state)s already.")
            % {"call": repr(call.tool_call_id), "state": call.get_state_display().lower()}
            if decision is None
            else _("On the call %(call)s was decided before: %(decision)s.")
            % {"call": repr(call.tool_call_id), "decision": decision.get_kind_display().lower()}
        )
        self.decision = decision


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision as it is sent. `call_id` is the row's id or the model's own id of the call; `opening` is the opening
    that was looked at: a decision meant for an earlier one, sent late or twice, decides nothing about a later one."""

    call_id: int | str
    kind: DecisionKind
    arguments: Mapping[str, Any] | None = None
    text: str | None = None
    is_error: bool = False
    opening: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a turn stands after a decision."""

    run: TurnRun
    decisions: Sequence[CallDecision]
    num_undecided: int


@transaction.atomic
def decide(
    turn_id: int,
    verdicts: Sequence[Verdict],
    *,
    auto_send: bool = True,
    by: User | None = None,
    token: ApiToken | None = None,
) -> Standing:
    """Record decisions on open calls of a turn, all or none, in the open scope; with none left undecided the turn goes
    on, unless `auto_send` is false. Raises NoSuchTurn, CannotDecide, AlreadyDecided, and ValidationError for marks of
    masked values that are not of the turn's calls."""
    sent = [_put_back(turn_id, verdict) for verdict in verdicts]
    reader = reading.current()
    with reading.as_stored():
        try:
            return _decided_on(turn_id, sent, auto_send=auto_send, by=by, token=token)
        except CannotDecide as error:
            if reader is None:
                raise
            told = reader.refusal(str(error), _("What is masked in it does not fit here."))
            raise CannotDecide(error.index, error.member, error.code, told) from None


def _put_back(turn_id: int, verdict: Verdict) -> Verdict:
    """What a person sent, with what stands behind the marks in it: those of the turn's calls."""
    if reading.current() is None or (verdict.arguments is None and verdict.text is None):
        return verdict
    list(ToolCall.objects.filter(turn=turn_id).values_list("args", "result"))
    if verdict.arguments is not None:
        verdict = replace(verdict, arguments=read_json(json_sent("arguments", dump(dict(verdict.arguments)))))
    if verdict.text is not None:
        verdict = replace(verdict, text=prose_sent(verdict.text))
    return verdict


def _decided_on(
    turn_id: int, verdicts: Sequence[Verdict], *, auto_send: bool, by: User | None, token: ApiToken | None
) -> Standing:
    run = TurnRun.objects.select_for_update().filter(turn=turn_id).first()
    if run is None:
        raise NoSuchTurn
    calls = {call.pk: call for call in ToolCall.objects.select_related("toolset").filter(turn=turn_id)}
    found = [_judge(index, verdict, calls) for index, verdict in enumerate(verdicts)]
    made = [_record(run, verdict, call, by=by, token=token) for verdict, call in zip(verdicts, found, strict=True)]
    if made:
        append(turn_id, [dump(_decided(decision)) for decision in made])  # who watches sees at once that it is taken
    num_undecided = len(undecided(turn_id))
    if auto_send and run.state == TurnState.AWAITING and num_undecided == 0:
        go_on(run)
    return Standing(run, made, num_undecided)


def go_on(run: TurnRun) -> None:
    """Queue a turn again whose calls are all decided."""
    run.state, run.attempt = TurnState.QUEUED, 0
    TurnRun.objects.filter(pk=run.pk).update(state=run.state, attempt=0, lease_token=None, queued_at=Now())
    run.turn.state = TurnState.QUEUED
    run.turn.save(update_fields=["state"])
    hint(run.turn_id)


def kinds_for(call: ToolCall) -> frozenset[DecisionKind]:
    """What may be decided on an open call. What the caller carries out nobody can approve."""
    allowed = FOR_PENDING if call.state == CallState.PENDING else FOR_UNKNOWN | {DecisionKind.ANSWER}
    return allowed - {DecisionKind.APPROVE, DecisionKind.RUN_AGAIN} if call.mode == Mode.CLIENT else allowed


def _decided(decision: CallDecision) -> dict[str, Any]:
    """The live event of a decision."""
    call = decision.call
    return {
        "type": "tool_decision",
        "cycle": call.cycle,
        "index": call.index,
        "callId": call.tool_call_id,
        "name": call.tool_name,
        "decision": decision.kind,
    }


def _judge(index: int, verdict: Verdict, calls: Mapping[int, ToolCall]) -> ToolCall:
    """The call that is meant; raises CannotDecide where the decision does not fit it."""
    matching = [call for call in calls.values() if verdict.call_id in (call.pk, call.tool_call_id)]
    matching.sort(key=lambda call: (call.cycle, call.index))
    if not matching:
        raise CannotDecide(
            index, "callId", "no_such_call", _("This turn has no call %(call)s.") % {"call": repr(verdict.call_id)}
        )
    call = next((call for call in matching if call.state in (CallState.PENDING, CallState.UNKNOWN)), matching[-1])
    is_meant = verdict.opening in (None, call.opening)
    if call.state not in (CallState.PENDING, CallState.UNKNOWN) or not is_meant:
        raise AlreadyDecided(CallDecision.objects.filter(call=call).order_by("-opening").first(), call)
    allowed = kinds_for(call)
    if verdict.kind not in allowed:
        words = ", ".join(sorted(allowed))
        raise CannotDecide(
            index,
            "decision",
            "not_for_this_call",
            _("A call that is %(state)s takes: %(decisions)s.") % {"state": call.state, "decisions": words},
        )
    if verdict.arguments is not None and (reason := _arguments_fault(call, verdict.arguments)):
        raise CannotDecide(index, "arguments", "invalid_arguments", reason)
    return call


def _arguments_fault(call: ToolCall, arguments: Mapping[str, Any]) -> str | None:
    """Why edited arguments do not fit the contract that the model read, if they do not."""
    offered = json.loads(call.toolset.tools) if call.toolset else []
    for tool in offered:
        function = tool.get("function") or {}
        if function.get("name") == call.tool_name:
            fault = compiled(function.get("parameters") or {}).fault(dict(arguments))
            return f"{fault.path}: {fault.reason}" if fault else None
    return None


def _record(run: TurnRun, verdict: Verdict, call: ToolCall, *, by: User | None, token: ApiToken | None) -> CallDecision:
    before = CallDecision.objects.filter(call=call, opening=call.opening).first()
    if before is not None:
        raise AlreadyDecided(before, call)
    decision = CallDecision.objects.create(
        turn_id=run.turn_id,
        call=call,
        opening=call.opening,
        kind=verdict.kind,
        arguments=None if verdict.arguments is None else dump(dict(verdict.arguments)),
        text=None if verdict.text is None else dump(verdict.text),
        is_error=verdict.is_error,
        decided_by=by,
        token_id=token.pk if token else None,
    )
    audit.record(
        "call.decided",
        object_type="tool_call",
        object_id=call.pk,
        actor=by,
        token=token,
        detail={"decision": verdict.kind, "tool": call.tool_name, "edited": verdict.arguments is not None},
    )
    return decision
