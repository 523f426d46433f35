"""Calls that wait for a person or the caller, and calls whose outcome is unknown."""

import json

import pytest

from quality.models import CallDecision, CallState, DecisionKind, ToolCall, Turn, TurnState
from quality.turns.create import cancel_turn
from quality.turns.decide import AlreadyDecided, CannotDecide, Verdict, decide
from tenants.models import AuditEvent
from tenants.scope import tenant_scope
from tests.turns.conftest import Lab, eventually


def call_of(lab: Lab, turn: Turn) -> ToolCall:
    with tenant_scope(lab.tenant):
        return ToolCall.objects.get(turn=turn)


def parked(lab: Lab, tools: str = "approve", script: str = "one_call,plain_text", **fields) -> tuple[Turn, ToolCall]:
    turn = lab.turn(script, tools, **fields)
    worker = lab.worker()
    assert lab.rests(turn).state == TurnState.AWAITING
    eventually(lambda: worker.num_turns == 0)  # nobody is kept busy by it
    return turn, call_of(lab, turn)


def say(
    lab: Lab, turn: Turn, kind: DecisionKind, call: ToolCall | None = None, *, auto_send: bool = True, by=None, **more
):
    with tenant_scope(lab.tenant):
        call = call or ToolCall.objects.filter(turn=turn, state__in=["pending", "unknown"]).first()
        return decide(turn.pk, [Verdict(call.pk, kind, **more)], auto_send=auto_send, by=by)


def test_an_approved_call_runs_and_the_turn_goes_on_by_itself(lab: Lab, member) -> None:
    turn, call = parked(lab)
    assert (call.state, call.mode, lab.tools.count()) == (CallState.PENDING, "approve", 0)
    user = member().user
    say(lab, turn, DecisionKind.APPROVE, by=user)
    assert lab.rests(turn).state == TurnState.DONE
    assert lab.tools.count() == 1
    with tenant_scope(lab.tenant):
        decision = CallDecision.objects.get()
        assert (decision.kind, decision.decided_by, decision.call_id) == ("approve", user, call.pk)
        assert AuditEvent.objects.get(action="call.decided").actor == user
    assert call_of(lab, turn).state == CallState.RESULT


def test_edited_arguments_run_and_the_models_own_stay_on_record(lab: Lab) -> None:
    turn, call = parked(lab)
    say(lab, turn, DecisionKind.APPROVE, arguments={"city": "Oslo"})
    lab.rests(turn)
    assert lab.tools.asked[0][3] == {"city": "Oslo"}
    after = call_of(lab, turn)
    assert json.loads(after.args_run) == {"city": "Oslo"}
    assert after.args == call.args


def test_edited_arguments_must_fit_the_schema_that_the_model_read(lab: Lab) -> None:
    turn, _ = parked(lab)
    with pytest.raises(CannotDecide, match="city"):
        say(lab, turn, DecisionKind.APPROVE, arguments={"city": 7})
    assert lab.run_of(turn).state == TurnState.AWAITING


def test_a_declined_call_does_not_run_and_the_model_reads_why(lab: Lab) -> None:
    turn, _ = parked(lab)
    say(lab, turn, DecisionKind.DECLINE, text="not today")
    assert lab.rests(turn).state == TurnState.DONE
    assert lab.tools.count() == 0
    told = [message for message in lab.model.asked[-1].body["messages"] if message["role"] == "tool"]
    assert "not today" in told[0]["content"]
    assert call_of(lab, turn).error == "refused"


def test_a_callers_answer_is_the_result(lab: Lab) -> None:
    turn, call = parked(lab, "client")
    assert call.mode == "client"
    with pytest.raises(CannotDecide, match="answer"):
        say(lab, turn, DecisionKind.APPROVE)
    say(lab, turn, DecisionKind.ANSWER, text='{"n": 1.10}')
    assert lab.rests(turn).state == TurnState.DONE
    assert call_of(lab, turn).result == '{"n": 1.10}'


def test_the_turn_goes_on_with_the_last_answer_only(lab: Lab) -> None:
    turn = lab.turn("parallel_calls:2,plain_text", "mixed_approve")
    lab.worker()
    lab.rests(turn)
    with tenant_scope(lab.tenant):
        first, second = ToolCall.objects.filter(turn=turn).order_by("index")
    assert say(lab, turn, DecisionKind.APPROVE, first).num_undecided == 1
    assert lab.run_of(turn).state == TurnState.AWAITING
    say(lab, turn, DecisionKind.DECLINE, second, text="no")
    assert lab.rests(turn).state == TurnState.DONE
    assert lab.tools.count() == 1


def test_answers_may_be_put_on_record_only(lab: Lab) -> None:
    turn, _ = parked(lab)
    say(lab, turn, DecisionKind.APPROVE, auto_send=False)
    assert lab.run_of(turn).state == TurnState.AWAITING
    with tenant_scope(lab.tenant):
        decide(turn.pk, [])
    assert lab.rests(turn).state == TurnState.DONE


def test_a_second_decision_on_the_same_call_is_refused(lab: Lab) -> None:
    turn, _ = parked(lab)
    say(lab, turn, DecisionKind.APPROVE, auto_send=False)
    with pytest.raises(AlreadyDecided, match="before"):
        say(lab, turn, DecisionKind.DECLINE)
    with tenant_scope(lab.tenant):
        assert CallDecision.objects.count() == 1


def test_a_new_message_closes_open_calls_as_not_answered(lab: Lab, member) -> None:
    turn, _ = parked(lab, conversation_id="c-1")
    user = member().user
    following = lab.turn("plain_text", "approve", conversation_id="c-1", text="Never mind", by=user)
    run = lab.run_of(turn)
    assert (run.state, run.turn.end_reason) == (TurnState.DONE, "not_answered")
    assert call_of(lab, turn).error == "not_answered"
    with tenant_scope(lab.tenant):
        decision = CallDecision.objects.get()
    assert (decision.kind, decision.decided_by) == ("not_answered", user)
    lab.rests(following)
    told = [message for message in lab.model.asked[-1].body["messages"] if message["role"] == "tool"]
    assert "not answered" in told[0]["content"]
    assert lab.tools.count() == 0


def test_a_message_that_came_while_the_turn_ran_closes_its_calls_too(lab: Lab, monkeypatch) -> None:
    monkeypatch.setenv("TEST_MODEL_DELAY_S", "0.5")
    first = lab.turn("one_call,plain_text", "approve", conversation_id="c-1")
    lab.worker()
    lab.until(first, lambda run: run.state == TurnState.RUNNING)
    second = lab.turn("plain_text", "approve", conversation_id="c-1")
    assert lab.rests(second).state == TurnState.DONE
    assert lab.run_of(first).turn.end_reason == "not_answered"


@pytest.mark.parametrize(
    ("kind", "told"),
    [(DecisionKind.HAPPENED, "confirmed that it took effect"), (DecisionKind.DID_NOT_HAPPEN, "took no effect")],
)
def test_what_became_of_an_unknown_call_is_said_by_a_person(lab: Lab, kind: DecisionKind, told: str) -> None:
    turn, call = unknown(lab)
    say(lab, turn, kind)
    assert lab.rests(turn).state == TurnState.DONE
    assert lab.tools.count() == 1
    read = [message for message in lab.model.asked[-1].body["messages"] if message["role"] == "tool"]
    assert told in read[0]["content"]


def test_an_unknown_call_runs_again_only_if_a_person_says_so(lab: Lab) -> None:
    turn, _ = unknown(lab)
    with pytest.raises(CannotDecide):
        say(lab, turn, DecisionKind.APPROVE)
    say(lab, turn, DecisionKind.RUN_AGAIN)
    assert lab.rests(turn).state == TurnState.DONE
    keys = [key for _, _, key, _ in lab.tools.asked]
    assert len(keys) == 2
    assert len(set(keys)) == 1  # the same key: a server that knows it does nothing twice


def test_a_decision_that_is_sent_again_decides_nothing_about_a_later_opening(lab: Lab) -> None:
    turn, call = unknown(lab)
    lab.stop()
    say(lab, turn, DecisionKind.RUN_AGAIN, opening=call.opening)
    with tenant_scope(lab.tenant):  # the second run is lost, too
        ToolCall.objects.filter(pk=call.pk).update(opening=call.opening + 1)
    with pytest.raises(AlreadyDecided, match="run again"):
        say(lab, turn, DecisionKind.RUN_AGAIN, opening=call.opening)
    say(lab, turn, DecisionKind.HAPPENED, opening=call.opening + 1)


def unknown(lab: Lab) -> tuple[Turn, ToolCall]:
    """A turn whose unsafe call was under way when its worker had to stop."""
    lab.tools.hold.clear()
    turn = lab.turn(tools="unsafe")
    worker = lab.worker()
    eventually(lambda: lab.tools.count() == 1)
    worker.stop(0.1)
    lab.tools.hold.set()
    lab.worker()
    assert lab.rests(turn).state == TurnState.AWAITING
    call = call_of(lab, turn)
    assert call.state == CallState.UNKNOWN
    return turn, call


def test_a_running_turn_is_called_off_from_another_process(lab: Lab) -> None:
    lab.tools.hold.clear()
    turn = lab.turn(tools="safe")
    lab.worker()
    eventually(lambda: lab.tools.count("/weather") == 1)
    with tenant_scope(lab.tenant):
        cancel_turn(turn.pk)
    run = lab.rests(turn, 2)  # told, not found by the next heartbeat
    assert (run.state, run.turn.end_reason) == (TurnState.CANCELLED, "cancelled")
    assert call_of(lab, turn).error == "cancelled"


def test_a_waiting_turn_is_called_off_at_once(lab: Lab) -> None:
    turn, _ = parked(lab)
    with tenant_scope(lab.tenant):
        cancel_turn(turn.pk)
        cancel_turn(turn.pk)
    assert lab.run_of(turn).turn.end_reason == "cancelled"
    with tenant_scope(lab.tenant):
        assert AuditEvent.objects.filter(action="turn.cancelled").count() == 1


def test_a_turn_that_is_called_off_leaves_no_call_waiting(lab: Lab) -> None:
    lab.tools.hold.clear()
    turn = lab.turn("parallel_calls:2,plain_text", "mixed")
    lab.worker()
    eventually(lambda: lab.tools.count("/weather") == 1)
    with tenant_scope(lab.tenant):
        cancel_turn(turn.pk)
    assert lab.rests(turn).state == TurnState.CANCELLED
    with tenant_scope(lab.tenant):
        states = {call.tool_name: (call.state, call.error) for call in ToolCall.objects.filter(turn=turn)}
    assert states == {"get_weather": ("error", "cancelled"), "send_note": ("error", "cancelled")}
