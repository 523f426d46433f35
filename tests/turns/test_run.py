"""A turn through a worker, from its row to its end."""

import json

from quality.calls import CallFilter
from quality.models import CallState, ModelReply, ToolCall, Turn, TurnEvent, TurnState
from quality.review.items import turns_without_call
from tenants.scope import tenant_scope
from tests.turns.conftest import Lab


def events_of(turn: Turn) -> list[dict]:
    with tenant_scope(turn.tenant_id):
        return [
            json.loads(data)
            for data in TurnEvent.objects.filter(turn=turn).order_by("seq").values_list("data", flat=True)
        ]


def test_a_turn_calls_its_tool_and_answers(lab: Lab) -> None:
    turn = lab.turn(conversation_id="c-1", contact_id="anna", message_id="m-1")
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.state, run.turn.end_reason, run.error) == ("done", "done", "answered", "")
    assert (run.turn.num_calls, run.turn.num_cycles, run.turn.prompt_version) == (1, 2, "7")
    assert run.lease_token is None
    messages = json.loads(run.turn.messages)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    with tenant_scope(lab.tenant):
        call = ToolCall.objects.get(turn=turn)
        replies = list(ModelReply.objects.filter(turn=turn).order_by("cycle"))
        assert json.loads(call.toolset.tools)[0]["function"]["name"] == "get_weather"
    assert (call.state, call.is_error, call.tool_name, call.mode, call.safety) == (
        CallState.RESULT, False, "get_weather", "auto", "safe",
    )  # fmt: skip
    assert json.loads(call.result) == {"degrees": 21}
    assert (call.conversation_id, call.contact_id, call.source, call.style_id) == ("c-1", "anna", "engine", "safe")
    assert [reply.cycle for reply in replies] == [0, 1]
    assert all(reply.prompt_tokens for reply in replies)
    assert "data:" in json.loads(replies[0].exchanges)[0]["body"]
    assert call.outbound_message_id == run.turn.outbound_message_id != ""
    assert lab.tools.count("/weather") == 1


def test_its_events_come_in_order_and_the_end_is_last(lab: Lab) -> None:
    turn = lab.turn()
    lab.worker()
    lab.rests(turn)
    events = events_of(turn)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "turn_state"
    assert kinds[-1] == "assistant_end"
    assert kinds.count("assistant_end") == 1
    states = [event["state"] for event in events if event["type"] == "tool_call"]
    assert states == ["streaming", "running", "result"]
    text = "".join(event["text"] for event in events if event["type"] == "assistant_delta")
    assert text == events[-1]["content"]
    assert kinds.index("tool_call") < kinds.index("assistant_delta")
    with tenant_scope(lab.tenant):
        seqs = list(TurnEvent.objects.filter(turn=turn).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))


def test_the_next_turn_of_a_conversation_is_told_what_was_said(lab: Lab) -> None:
    first = lab.turn("plain_text", "", conversation_id="c-1", text="Hello")
    second = lab.turn("plain_text", "", conversation_id="c-1", text="And now?")
    lab.worker()
    lab.rests(second)
    assert lab.run_of(first).state == TurnState.DONE
    asked = [message["content"] for message in lab.model.asked[-1].body["messages"]]
    assert (asked[0], asked[1], asked[-1]) == ("You help.", "Hello", "And now?")
    assert len(asked) == 4


def test_a_caller_may_give_the_history_itself(lab: Lab) -> None:
    turn = lab.turn("plain_text", "", history=[{"role": "user", "content": "I live in Rome."}])
    lab.worker()
    lab.rests(turn)
    asked = [message["content"] for message in lab.model.asked[-1].body["messages"]]
    assert asked == ["You help.", "I live in Rome.", "Weather in Rome?"]


def test_a_turn_that_cannot_be_set_up_fails_and_says_why(lab: Lab) -> None:
    turn = lab.turn(tools="refused")
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason, run.error) == ("failed", "no_model", "No model is set up.")
    assert events_of(turn)[-1]["error"] == "No model is set up."


def test_a_model_that_fails_ends_the_turn_with_its_reply_kept(lab: Lab) -> None:
    turn = lab.turn("html")
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == ("failed", "provider_error")
    with tenant_scope(lab.tenant):
        (reply,) = ModelReply.objects.filter(turn=turn)
    assert reply.error_code
    assert json.loads(reply.exchanges)[-1]["body"]


def test_an_answer_that_takes_too_long_is_given_up_and_the_setting_is_named(lab: Lab, monkeypatch, settings) -> None:
    monkeypatch.setenv("TEST_MODEL_DELAY_S", "60")
    settings.MODEL_TIMEOUT_S = 0.2
    turn = lab.turn("plain_text", "")
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == ("failed", "provider_error")
    assert "did not finish its answer" in run.error
    assert "MODEL_TIMEOUT_S" in run.error


def test_a_turn_that_takes_too_long_ends_as_timed_out(lab: Lab, monkeypatch) -> None:
    monkeypatch.setenv("TEST_WALL_TIME_S", "0.5")
    lab.tools.hold.clear()
    turn = lab.turn()
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == ("failed", "timed_out")
    with tenant_scope(lab.tenant):
        assert ToolCall.objects.get(turn=turn).error == "timed_out"


def test_secrets_of_the_model_are_not_in_any_row(lab: Lab) -> None:
    turn = lab.turn("echoed_key")
    lab.worker()
    lab.rests(turn)
    with tenant_scope(lab.tenant):
        assert not any("sk-test-1234" in reply.exchanges for reply in ModelReply.objects.filter(turn=turn))


def test_a_turn_that_has_not_ended_is_nothing_to_review(lab: Lab) -> None:
    turn = lab.turn("plain_text", "")
    with tenant_scope(lab.tenant):
        assert not turns_without_call(CallFilter()).exists()
    lab.worker()
    lab.rests(turn)
    with tenant_scope(lab.tenant):
        assert turns_without_call(CallFilter()).get() == turn
