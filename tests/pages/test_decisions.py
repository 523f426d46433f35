"""Deciding on calls from pages: every kind, with a label in the same click, told back where it does not fit."""

import json
import re

import pytest

from quality.models import CallDecision, CallState, Feedback, FeedbackEvent, TurnRun
from quality.turns.decide import Verdict, decide
from tests.pages.conftest import HTMX
from tests.pages.own_turns import own_turn, waiting_call


@pytest.fixture
def call(inside):
    with inside():
        return waiting_call()


@pytest.fixture
def send(browse, inside):
    """`send(call, decision=…)` as an operator; `.client` is who sends."""
    client = browse("operator")

    def post(call, *, htmx=False, **fields):
        address = f"/t/acme/turns/{call.turn_id}/decide/"
        return client.post(address, {"call": call.pk, "place": "pending", **fields}, headers=HTMX if htmx else {})

    post.client = client
    return post


def decisions(inside):
    with inside():
        return [(one.kind, one.arguments, one.text) for one in CallDecision.objects.order_by("pk")]


def test_an_approval_leads_back_to_the_page_and_the_turn_goes_on(send, call, inside):
    response = send(call, decision="approve")
    assert (response.status_code, response.url) == (302, "/t/acme/pending/")
    assert decisions(inside) == [("approve", None, None)]
    with inside():
        assert CallDecision.objects.get().decided_by == send.client.member.user
        assert TurnRun.objects.get().state == "queued"
        assert not Feedback.objects.exists()
    assert "get_weather: approved" in send.client.get(response.url).text


@pytest.mark.parametrize(
    ("place", "page"),
    [("run", "run/{turn}/"), ("turn", "turns/{turn}/"), ("pending", "pending/"), ("//evil", "turns/{turn}/")],
)
def test_a_browser_is_sent_back_to_where_it_came_from(send, call, place, page):
    response = send(call, decision="approve", place=place)
    assert response.url == f"/t/acme/{page.format(turn=call.turn_id)}"


def test_a_declined_call_is_labelled_in_the_same_click(send, call, inside):
    send(call, decision="decline", form="decline", reason="not today", label_too="on", label="other")
    assert decisions(inside) == [("decline", None, '"not today"')]
    with inside():
        label = Feedback.objects.get()
        assert (label.label, label.note, label.call_id) == ("other", "not today", call.pk)
        assert label.reviewer == send.client.member.user


def test_the_label_can_be_left_away(send, call, inside):
    send(call, decision="decline", form="decline", reason="", label="wrong_tool")
    with inside():
        assert CallDecision.objects.get().kind == "decline"
        assert not Feedback.objects.exists()


def test_edited_arguments_are_the_correction(send, call, inside):
    send(
        call,
        decision="approve",
        form="edit",
        label_too="on",
        label="bad_args",
        **{"argument-0": "Oslo", "argument-1": ""},
    )
    assert decisions(inside) == [("approve", '{"city":"Oslo"}', None)]
    with inside():
        label = Feedback.objects.get()
        assert (label.label, json.loads(label.correction)) == ("bad_args", {"arguments": {"city": "Oslo"}})


def test_what_was_not_changed_is_no_edit_and_no_label(send, call, inside):
    send(call, decision="approve", form="edit", label_too="on", label="bad_args", **{"argument-0": "Rome"})
    assert decisions(inside) == [("approve", None, None)]
    with inside():
        assert not Feedback.objects.exists()


def test_raw_json_is_taken_too(send, call, inside):
    send(call, decision="approve", form="json", arguments='{"city": "Oslo", "unit": "celsius"}')
    assert decisions(inside) == [("approve", '{"city":"Oslo","unit":"celsius"}', None)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city": 7}', "$.city: 7 is not of type &#x27;string&#x27;"),
        ("{", "This is not JSON"),
        ("[]", "Arguments are a JSON object"),
        ("{}", "is a required property"),
    ],
)
@pytest.mark.parametrize("htmx", [False, True])
def test_arguments_that_do_not_fit_are_told_back_with_what_was_written(send, call, inside, arguments, words, htmx):
    response = send(call, decision="approve", form="json", arguments=arguments, htmx=htmx)
    assert response.status_code == (200 if htmx else 422)
    assert words in response.text
    assert f">{arguments.replace(chr(34), '&quot;')}</textarea>" in response.text
    assert ("<html" in response.text) is not htmx
    assert decisions(inside) == []


def test_a_label_that_cannot_be_kept_leaves_the_call_undecided(send, call, inside):
    fields = {"argument-0": "x" * 70_000}
    response = send(call, decision="approve", form="edit", label_too="on", label="bad_args", **fields)
    with inside():
        assert CallDecision.objects.exists() == FeedbackEvent.objects.exists() == (response.status_code == 302)


def test_a_result_is_given_as_it_was_typed(send, call, inside):
    send(call, decision="answer", form="answer", result="two\r\nlines", is_error="on")
    assert decisions(inside) == [("answer", None, '"two\\nlines"')]
    with inside():
        assert CallDecision.objects.get().is_error


@pytest.mark.parametrize("kind", ["happened", "did_not_happen", "run_again"])
def test_what_became_of_an_unknown_call_is_said(send, inside, kind):
    with inside():
        call = waiting_call(state=CallState.UNKNOWN)
    page = send.client.get("/t/acme/pending/").text
    assert "Look where it would show" in page
    assert 'data-key="a"' not in page  # nobody approves what was sent already
    send(call, decision=kind)
    assert [one[0] for one in decisions(inside)] == [kind]


def test_what_the_caller_answers_cannot_be_approved(send, inside):
    with inside():
        call = waiting_call(mode="client")
    page = send.client.get("/t/acme/pending/").text
    assert 'data-key="a"' not in page
    assert 'data-key="v"' in page
    response = send(call, decision="approve")
    assert response.status_code == 422
    assert "takes: answer, decline" in response.text
    assert decisions(inside) == []


@pytest.mark.parametrize("htmx", [False, True])
def test_a_decision_made_meanwhile_is_said_with_who_and_what(send, call, inside, member, htmx):
    bob = member(user__name="Bob").user
    with inside():
        decide(call.turn_id, [Verdict(call.pk, "decline", None, "no")], by=bob)
    response = send(call, decision="approve", htmx=htmx)
    assert response.status_code == 409
    assert re.search(r"Nothing was changed: Bob decided at \d\d:\d\d:\d\d already: declined\.", response.text)
    assert len(decisions(inside)) == 1


def test_a_form_of_an_earlier_opening_decides_nothing(send, inside):
    with inside():
        call = waiting_call(state=CallState.UNKNOWN, opening=2)
    page = " ".join(send.client.get(f"/t/acme/turns/{call.turn_id}/").text.split())
    assert f'name="opening" value="{call.opening}"' in page
    assert send(call, decision="run_again", opening=1).status_code == 409
    assert decisions(inside) == []
    send(call, decision="run_again", opening=2)
    assert decisions(inside) == [("run_again", None, None)]


def test_nonsense_is_refused(send, call, inside):
    assert send(call, decision="splendid").status_code == 422
    assert send(call, decision="not_answered").status_code == 422
    for number in ("", "x", "9" * 30, "-1", "٣"):
        response = send.client.post(f"/t/acme/turns/{call.turn_id}/decide/", {"call": number, "decision": "approve"})
        assert response.status_code == 404
    with inside():
        other = own_turn()
    response = send.client.post(f"/t/acme/turns/{other.pk}/decide/", {"call": call.pk, "decision": "approve"})
    assert response.status_code == 404
    assert decisions(inside) == []


class TestForm:
    """The form of the arguments begins with what the model wrote, and gives it back unchanged."""

    SCHEMA = {
        "type": "object",
        "properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
            "loud": {"type": "boolean"}, "unit": {"enum": ["c", "f", 3]}, "list": {"type": "array"},
        },
    }  # fmt: skip

    @pytest.mark.parametrize(
        "values",
        [
            {},
            {"text": "a b"},
            {"text": " two\nlines "},
            {"text": 7, "count": 1.5, "loud": "yes", "unit": "k"},
            {"count": -3, "ratio": 2.25, "loud": False, "unit": 3, "list": [1, {"a": None}]},
            {"unknown": {"deep": ["ü"]}, "ratio": 4},
        ],
    )
    def test_sent_as_it_is_it_changes_nothing(self, values):
        from quality.pages.argument_form import argument_form

        form = argument_form(self.SCHEMA, values=values)
        sent = {field.html_name: str(field.initial or "").replace("\n", "\r\n") for field in form}
        again = argument_form(self.SCHEMA, sent)
        assert again.is_valid(), again.errors
        assert again.arguments() == values
