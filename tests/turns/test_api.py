"""Turns through the API: run, follow, answer, call off."""

import json

import pytest

from quality.models import TurnRun, TurnState
from tenants.scope import tenant_scope
from tests.turns.conftest import Lab

TURNS = "/api/turns"


@pytest.fixture
def client(api):
    return api("turns:write", "read")


def body(**more) -> dict:
    return {"text": "Weather in Rome?", "model": "one_call,plain_text", "styleId": "approve", **more}


def created(client, **more) -> int:
    response = client.post(TURNS, body(**more))
    assert response.status_code == 201, response.content
    return response.json()["id"]


def test_a_turn_is_run_answered_and_read(lab: Lab, client) -> None:
    response = client.post(TURNS, body(conversationId="c-1", externalId="e-1"))
    assert response.status_code == 201
    told = response.json()
    assert (told["state"], told["externalId"], told["channel"], told["calls"], told["reply"]) == (
        "queued", "e-1", "api", [], None,
    )  # fmt: skip
    lab.worker()
    with tenant_scope(lab.tenant):
        turn = TurnRun.objects.select_related("turn").get().turn
    lab.rests(turn)
    (call,) = client.get(f"{TURNS}/{told['id']}").json()["calls"]
    assert (call["state"], call["mode"], call["name"]) == ("pending", "approve", "send_note")
    answer = {"results": [{"callId": call["callId"], "decision": "approve", "arguments": {"city": "Oslo"}}]}
    sent = client.post(f"{TURNS}/{told['id']}/tool-results", answer)
    assert sent.status_code == 200, sent.content
    assert sent.json()["state"] == "queued"
    assert lab.rests(turn).state == TurnState.DONE
    end = client.get(f"{TURNS}/{told['id']}").json()
    assert (end["state"], end["endReason"]) == ("done", "answered")
    assert end["reply"].startswith("The weather in Paris")
    (call,) = end["calls"]
    assert call["argumentsRun"] == {"city": "Oslo"}
    assert call["result"] == {"degrees": 21}
    assert (call["decisions"][0]["decision"], call["decisions"][0]["decidedBy"]["email"]) == (
        "approve",
        client.user.email,
    )


def test_the_same_external_id_gives_the_first_turn(lab: Lab, client) -> None:
    first = client.post(TURNS, body(externalId="e-1"))
    again = client.post(TURNS, body(externalId="e-1"))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = client.post(TURNS, body(externalId="e-1", text="Something else"))
    assert other.status_code == 409
    assert other.json()["errors"][0]["path"] == "externalId"


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ({"text": "  "}, "text"),
        ({}, "text"),
        ({"text": "x", "surprise": 1}, "surprise"),
        ({"text": "x", "externalId": "e" * 501}, "externalId"),
        ({"text": "x", "contactId": "e" * 501}, "contactId"),
        ({"text": "x", "model": "e" * 501}, "model"),
        ({"text": "x", "styleId": "e" * 501}, "styleId"),
        ({"text": "x", "history": ["no object"]}, "history.0"),
        ({"text": "x", "history": [{"content": "nobody says it"}]}, "history"),
        ({"text": "x", "history": [{"role": "user", "content": 7}]}, "history"),
        ({"text": "x", "history": [{"role": "tool", "content": "of no call"}]}, "history"),
        ({"text": "x", "history": [{"role": "assistant", "tool_calls": "all"}]}, "history"),
        ({"text": "x", "history": [{"role": "assistant", "tool_calls": ["one"]}]}, "history"),
        ({"text": "x", "history": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]}, "history"),
    ],
)
def test_what_cannot_be_a_turn_is_refused_with_the_field(lab: Lab, client, sent: dict, path: str) -> None:
    response = client.post(TURNS, sent)
    assert response.status_code == 400
    assert path in [error["path"] for error in response.json()["errors"]]


def test_results_that_do_not_fit_are_refused_and_none_is_recorded(lab: Lab, client) -> None:
    turn_id = created(client)
    lab.worker()
    with tenant_scope(lab.tenant):
        turn = TurnRun.objects.select_related("turn").get().turn
    lab.rests(turn)
    call_id = client.get(f"{TURNS}/{turn_id}").json()["calls"][0]["id"]
    path = f"{TURNS}/{turn_id}/tool-results"
    for item, member in [
        ({"callId": 999_999, "decision": "approve"}, "callId"),
        ({"callId": call_id, "decision": "happened"}, "decision"),
        ({"callId": call_id}, ""),
        ({"callId": call_id, "decision": "answer"}, "result"),
        ({"callId": True, "decision": "approve"}, "callId"),
        ({"callId": call_id, "decision": "approve", "arguments": {"city": 1}}, "arguments"),
        ({"callId": call_id, "decision": "approve", "result": "21"}, "result"),
        ({"callId": call_id, "decision": "decline", "arguments": {"city": "Oslo"}}, "arguments"),
        ({"callId": call_id, "result": "21", "reason": "known"}, "reason"),
    ]:
        good = {"callId": call_id, "decision": "decline"}
        response = client.post(path, {"results": [item, good] if item["callId"] == 999_999 else [item]})
        assert response.status_code == 400, item
        assert response.json()["errors"][0]["path"].removeprefix("results[0]").removeprefix(".") == member
    assert client.get(f"{TURNS}/{turn_id}").json()["calls"][0]["decisions"] == []
    assert (
        client.post(path, {"results": [{"callId": call_id, "result": {"ok": True}}], "autoSend": False}).json()["state"]
        == "awaiting"
    )
    assert client.post(path, {"results": [{"callId": call_id, "decision": "approve"}]}).status_code == 409


def test_a_turn_is_called_off(lab: Lab, client) -> None:
    turn_id = created(client)
    for _ in range(2):
        told = client.post(f"{TURNS}/{turn_id}/cancel").json()
        assert (told["state"], told["endReason"]) == ("cancelled", "cancelled")


def test_turns_of_others_and_turns_that_were_imported_do_not_exist(lab: Lab, client, other_tenant) -> None:
    theirs = lab.turn(tenant=other_tenant)
    for path in (f"{TURNS}/{theirs.pk}", f"{TURNS}/{theirs.pk}/events", f"{TURNS}/999999"):
        assert client.get(path).status_code == 404
    assert client.post(f"{TURNS}/{theirs.pk}/cancel").status_code == 404
    assert client.post(f"{TURNS}/{theirs.pk}/tool-results", {"results": []}).status_code == 404


def test_a_process_that_cannot_stream_says_so(lab: Lab, client) -> None:
    turn_id = created(client)
    response = client.get(f"{TURNS}/{turn_id}/events")
    assert response.status_code == 503
    assert json.loads(response.content)["type"].endswith(":not_live")
