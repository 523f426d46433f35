"""The console: who may use it, what is sent from it, what it shows without JavaScript."""

import re
import uuid

import pytest

from quality.models import Turn, TurnRun
from tenants import endpoints
from tests.pages.own_turns import own_turn, reply, waiting_call

PAGE = "/t/acme/run/"


@pytest.fixture
def model(inside, member):
    with inside():
        data = endpoints.EndpointData(label="expert", base_url="https://llm.example.com/v1", model="tiny")
        return endpoints.save_endpoint(data, actor=member("admin").user)


def form(text="Hello", **fields):
    return {"text": text, "nonce": str(uuid.uuid4()), "conversation": "console-1", "model": "", "style": ""} | fields


def test_operators_alone_may_run(browse, outsider, model):
    assert browse("operator").get(PAGE).status_code == 200
    viewer = browse("viewer")
    assert viewer.get(PAGE).status_code == 403
    assert viewer.post(PAGE, form()).status_code == 403
    assert PAGE not in viewer.get("/t/acme/calls/").text
    assert outsider.get(PAGE).status_code == 404
    assert outsider.post(PAGE, form()).status_code == 404


def test_a_message_becomes_a_turn_of_its_sender(browse, model, inside):
    client = browse("operator")
    response = client.post(PAGE, form("Two\r\nlines", model="expert", contact="c-7"))
    with inside():
        turn = Turn.objects.get()
        run = TurnRun.objects.get()
        assert turn.messages == '[{"role":"user","content":"Two\\nlines"}]'
        assert (turn.conversation_id, turn.contact_id, run.channel, run.model_label) == (
            "console-1",
            "c-7",
            "page",
            "expert",
        )
        assert run.created_by == client.member.user
    assert response.url == f"{PAGE}{turn.pk}/"
    assert "Waits for a worker." in client.get(response.url).text


def test_a_form_sent_twice_is_one_turn(browse, model, inside):
    client, sent = browse("operator"), form()
    assert client.post(PAGE, sent).url == client.post(PAGE, sent).url
    assert "sent already with other words" in client.post(PAGE, sent | {"text": "Other"}).text
    with inside():
        assert Turn.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"text": " "}, "Say something."),
        ({"text": ""}, "Write a message first."),
        ({"model": "none"}, "Select a valid choice"),
        ({"style": "none"}, "Select a valid choice"),
    ],
)
def test_what_cannot_be_sent_is_told_back_with_what_was_written(browse, model, inside, fields, words):
    response = browse("operator").post(PAGE, form(**{"text": "Keep this", **fields}))
    assert response.status_code == 422
    assert words in response.text
    assert fields.get("text", "Keep this").strip() in response.text
    with inside():
        assert not Turn.objects.exists()


def test_without_a_model_the_page_says_where_to_add_one(browse, tenant, monkeypatch):
    monkeypatch.delenv("MODEL_URL", raising=False)
    operator, admin = browse("operator").get(PAGE).text, browse("admin").get(PAGE).text
    for text in (operator, admin):
        assert "No model is enabled" in text
        assert "/t/acme/models/" in text
        assert "<textarea" not in text
    assert "Add a model" in admin
    assert "An admin can add one" in operator


def test_a_conversation_is_shown_whole_from_any_of_its_turns(browse, model, inside):
    with inside():
        first = own_turn("done", conversation_id="talk", asked="How are you?", end_reason="answered")
        newest = own_turn("running", conversation_id="talk", asked="And then?")
        own_turn("done", conversation_id="other", asked="Not this")
    client = browse("operator")
    for turn in (first, newest):
        text = client.get(f"{PAGE}{turn.pk}/").text
        assert text.index("How are you?") < text.index("And then?")
        assert "Not this" not in text
        assert f'data-events="/t/acme/turns/{newest.pk}/events"' in text
    assert client.get(f"{PAGE}?conversation=talk").url == f"{PAGE}{newest.pk}/"
    assert client.get(f"{PAGE}?conversation=none").status_code == 404
    assert client.get(f"{PAGE}999999/").status_code == 404


def test_a_failed_turn_says_what_to_do_and_can_be_written_again(browse, model, inside):
    with inside():
        turn = own_turn("failed", end_reason="provider_error", error="No answer from <b>host</b>.", asked="Say it")
        reply(turn, "", reply=None, error_code="unreachable", error="Nobody there.")
    client = browse("operator")
    text = client.get(f"{PAGE}{turn.pk}/").text
    assert "No answer from &lt;b&gt;host&lt;/b&gt;." in text
    assert "Nobody there." in text
    assert "Test the model" in text
    again = client.get(f"{PAGE}{turn.pk}/?again").text
    assert re.search(r"<textarea[^>]*>Say it</textarea>", again)


def test_the_end_tells_tokens_and_time(browse, model, inside):
    with inside():
        turn = own_turn("done", end_reason="answered")
        reply(turn, "It is warm.", warnings=["odd_thing"])
    text = " ".join(browse("operator").get(f"{PAGE}{turn.pk}/").text.split())
    assert "7 + 3 tokens" in text
    assert "1.2 s" in text
    assert "odd_thing" in text
    assert "data-over" in text


def test_a_message_while_calls_wait_closes_them(browse, model, inside):
    with inside():
        call = waiting_call(own_turn(conversation_id="console-1"))
    client = browse("operator")
    assert "closes the calls that wait as not answered" in client.get(f"{PAGE}{call.turn_id}/").text
    client.post(PAGE, form("Never mind"))
    with inside():
        assert TurnRun.objects.get(turn=call.turn_id).state == "done"


def test_a_page_costs_the_same_for_one_call_and_for_twenty(browse, model, inside, django_assert_num_queries):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with inside():
        turn = own_turn()
        waiting_call(turn)
    client = browse("operator")
    client.get(f"{PAGE}{turn.pk}/")
    with CaptureQueriesContext(connection) as one:
        client.get(f"{PAGE}{turn.pk}/")
    with inside():
        for _ in range(19):
            waiting_call(turn)
    with django_assert_num_queries(len(one)):
        client.get(f"{PAGE}{turn.pk}/")
