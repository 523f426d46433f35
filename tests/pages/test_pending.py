"""Pending: what waits, in its order, with what is needed to decide; several at once."""

import re

import pytest

from quality.models import CallDecision, Feedback, TurnRun
from quality.turns.decide import Verdict, decide
from tests.factories import ToolsetFactory, make_token
from tests.pages.conftest import HTMX
from tests.pages.own_turns import own_turn, waiting_call

PAGE = "/t/acme/pending/"


def shown(text):
    return [int(pk) for pk in re.findall(r'id="call-(\d+)"', text)]


def test_calls_of_all_turns_wait_there_the_oldest_first(browse, inside):
    with inside():
        younger, older = waiting_call(own_turn()), waiting_call(own_turn())
        TurnRun.objects.filter(turn=older.turn).update(queued_at="2026-01-01T00:00Z")
        second = waiting_call(older.turn)
        waiting_call(own_turn("running"))
        waiting_call(own_turn("cancelled"))
        waiting_call(own_turn(), state="result", is_error=False)
    text = browse("viewer").get(PAGE).text
    assert shown(text) == [older.pk, second.pk, younger.pk]
    assert "<strong>3</strong> calls wait" in text


def test_a_card_has_all_that_it_takes_to_decide(browse, inside, member):
    admin = member("admin", user__name="Ada")
    with inside():
        token, _ = make_token(admin, name="shop")
        turn = own_turn(asked="Is it warm in Rome?", created_by=admin.user, token_id=token.pk, style_id="friendly")
        waiting_call(turn, args='{"city": 7, "street": "x"}')
        waiting_call(turn, tool_name="other_tool", args="{}")
    text = browse("operator").get(PAGE).text
    for words in ("Is it warm in Rome?", "I look it up.", "Current weather of a city.", "not of type",
                  "not in the schema", "API: Ada, token shop", "friendly", "changes something",
                  "other_tool"):  # fmt: skip
        assert words in text, words


def test_the_navigation_counts_them(browse, inside, make_call):
    make_call()
    client = browse("viewer")
    assert 'class="count"' not in client.get("/t/acme/calls/").text
    with inside():
        waiting_call()
        waiting_call()
    assert re.search(r'class="count"[^>]*>2<', client.get("/t/acme/calls/").text)


def test_who_may_not_decide_reads(browse, inside):
    with inside():
        call = waiting_call()
    viewer = browse("viewer")
    text = viewer.get(PAGE).text
    assert shown(text) == [call.pk]
    assert "decide/" not in text
    assert "ask an admin for the role Operator" in text
    for path in ("pending/decide/", f"turns/{call.turn_id}/decide/", f"turns/{call.turn_id}/stop/"):
        assert viewer.post(f"/t/acme/{path}", {"call": call.pk, "decision": "approve"}).status_code == 403
    with inside():
        assert not CallDecision.objects.exists()


def test_nothing_waits_says_where_calls_come_from(browse, tenant):
    assert "Nothing waits" in browse("viewer").get(PAGE).text


def test_htmx_gets_the_calls_alone(browse, inside):
    with inside():
        waiting_call()
    text = browse("operator").get(PAGE, headers=HTMX).text
    assert "<html" not in text
    assert 'id="list"' in text


def test_other_tenants_calls_are_not_there(browse, outsider, inside, other_tenant):
    with inside():
        call = waiting_call()
    assert outsider.get(PAGE).status_code == 404
    assert shown(outsider.get("/t/globex/pending/").text) == []
    outsider.post("/t/globex/pending/decide/", {"decision": "approve", "confirmed": "1", "call": call.pk})
    with inside():
        assert not CallDecision.objects.exists()


def test_the_page_costs_the_same_for_one_call_and_for_twenty(browse, inside, django_assert_num_queries):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client = browse("operator")
    with inside():
        waiting_call()
    client.get(PAGE)
    with CaptureQueriesContext(connection) as one:
        client.get(PAGE)
    with inside():
        for _ in range(19):
            waiting_call()
    with django_assert_num_queries(len(one)):
        assert len(shown(client.get(PAGE).text)) == 20


class TestTogether:
    @pytest.fixture
    def calls(self, inside):
        with inside():
            return [waiting_call() for _ in range(3)]

    def test_what_was_chosen_is_shown_before_it_is_done(self, browse, calls, inside):
        chosen = [calls[0].pk, calls[2].pk]
        response = browse("operator").post(f"{PAGE}decide/", {"decision": "approve", "call": chosen})
        assert "Approve 2 calls?" in response.text
        assert f"call {chosen[0]} of turn" in response.text
        assert f"call {calls[1].pk} of turn" not in response.text
        with inside():
            assert not CallDecision.objects.exists()

    def test_then_all_of_it_is_done(self, browse, calls, inside):
        data = {"decision": "approve", "confirmed": "1", "call": [calls[0].pk, calls[2].pk]}
        response = browse("operator").post(f"{PAGE}decide/", data, follow=True)
        assert "2 calls approved." in response.text
        assert shown(response.text) == [calls[1].pk]
        with inside():
            assert sorted(TurnRun.objects.values_list("state", flat=True)) == ["awaiting", "queued", "queued"]

    def test_declined_calls_are_labelled_too(self, browse, calls, inside):
        data = {"decision": "decline", "confirmed": "1", "reason": "no", "label_too": "on", "label": "wrong_tool"}
        browse("operator").post(f"{PAGE}decide/", data | {"call": [call.pk for call in calls]})
        with inside():
            assert set(Feedback.objects.values_list("label", "note")) == {("wrong_tool", "no")}
            assert Feedback.objects.count() == CallDecision.objects.filter(kind="decline").count() == 3

    def test_what_was_decided_meanwhile_is_said_and_the_rest_is_done(self, browse, calls, inside, member):
        bob = member(user__name="Bob").user
        with inside():
            decide(calls[0].turn_id, [Verdict(calls[0].pk, "decline")], by=bob)
            unknown = waiting_call(state="unknown")
        chosen = [calls[0].pk, calls[1].pk, unknown.pk]
        data = {"decision": "approve", "confirmed": "1", "call": chosen}
        text = browse("operator").post(f"{PAGE}decide/", data, follow=True).text
        assert "1 call approved." in text
        assert "Bob decided at" in text
        assert "A call that is unknown takes" in text
        with inside():
            assert CallDecision.objects.filter(kind="approve").count() == 1

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ({"decision": "approve"}, "Choose calls first"),
            ({"decision": "answer", "call": "1"}, "approved or declined together"),
            ({}, "approved or declined together"),
        ],
    )
    def test_nothing_chosen_is_told(self, browse, calls, data, words):
        assert words in browse("operator").post(f"{PAGE}decide/", data, follow=True).text


def test_a_tool_without_a_schema_can_be_edited_as_json(browse, inside):
    with inside():
        waiting_call(toolset=ToolsetFactory(tools="[]"))
        waiting_call(args='"no object"')
        waiting_call(args=None)
    response = browse("operator").get(PAGE)
    assert response.status_code == 200
    assert len(shown(response.text)) == 3
