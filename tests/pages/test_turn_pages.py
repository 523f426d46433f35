"""Turns: the list of all sources, and the page of one that we run."""

import re

import pytest

from quality.calls import CallFilter
from quality.models import DecisionKind, TurnRun
from quality.pages.turns import still_may_watch
from quality.review import items
from quality.turns.decide import Verdict, decide
from tenants.models import Membership
from tests.factories import ToolCallFactory, TurnFactory
from tests.pages.conftest import HTMX
from tests.pages.own_turns import events, own_turn, reply, waiting_call

PAGE = "/t/acme/turns/"


def rows(text):
    return [int(pk) for pk in re.findall(r'data-row\s+href="/t/acme/turns/(\d+)/"', text)]


@pytest.fixture
def turns(inside):
    """Newest first: two of ours, one imported."""
    with inside():
        return [
            own_turn("awaiting", channel="page", model="big", conversation_id="talk", asked="Hello there"),
            own_turn("failed", channel="schedule", end_reason="no_model"),
            TurnFactory(style_id="plain"),
        ]


def test_turns_of_all_sources_are_listed_newest_first(browse, turns):
    text = browse("viewer").get(PAGE).text
    assert rows(text) == [turn.pk for turn in turns]
    assert "Hello there" in text
    assert "ours, page" in text
    assert "openai_chat" in text


def test_the_filter_is_the_address(browse, turns):
    client = browse("viewer")
    first, second, third = (turn.pk for turn in turns)
    for query, expected in {
        "state=awaiting": [first], "state=failed": [second], "channel=page": [first], "ours=1": [first, second],
        "source=openai_chat": [third], "style=plain": [third], "model=big": [first], "conversation=talk": [first],
        "from=2100-01-01": [], "to=2100-01-01": [first, second, third], "source=nobody": [],
    }.items():  # fmt: skip
        assert rows(client.get(f"{PAGE}?{query}").text) == expected, query


@pytest.mark.parametrize("query", ["state=happy", "channel=pigeon", "from=soon", "cursor=x", "page_size=1000"])
def test_a_bad_filter_is_told_back_and_shows_no_rows(browse, turns, query):
    text = browse("viewer").get(f"{PAGE}?{query}").text
    assert 'class="notice error"' in text
    assert rows(text) == []


def test_pages_follow_one_another_without_a_gap(browse, inside):
    with inside():
        wanted = [TurnFactory().pk for _ in range(5)]
    client, seen, address = browse("viewer"), [], "?page_size=2"
    while address:
        text = client.get(f"{PAGE}{address}").text
        seen.append(rows(text))
        found = re.search(r'href="(\?[^"]*)"\s+data-key="n"', text)
        address = f"{found[1]}&page_size=2".replace("&amp;", "&") if found else ""
    assert seen == [wanted[:2], wanted[2:4], wanted[4:]]


def test_htmx_gets_the_list_alone_and_a_clean_address(browse, turns):
    response = browse("viewer").get(f"{PAGE}?state=failed&model=", headers=HTMX)
    assert "<html" not in response.text
    assert response.headers["HX-Push-Url"] == f"{PAGE}?state=failed"


def test_an_empty_list_says_what_to_do_next(browse, tenant):
    assert "No turns yet" in browse("operator").get(PAGE).text


def test_words_of_any_length_and_shape_stay_one_line(browse, inside):
    with inside():
        TurnFactory(messages='[{"role":"user","content":"' + "long <b>word</b> " * 500 + '"}]')
        TurnFactory(messages=None)
        TurnFactory(messages="[7]")
    text = browse("viewer").get(PAGE).text
    assert "long &lt;b&gt;word" in text
    assert len(rows(text)) == 3


class TestLive:
    def test_a_turn_that_waits_is_shown_with_its_forms_and_is_not_judged(self, browse, inside):
        with inside():
            call = waiting_call(own_turn(duration_ms=5000))
        text = browse("operator").get(f"{PAGE}{call.turn_id}/").text
        assert "Waits for a decision on 1 call." in text
        assert text.count('<span class="tag awaiting">') == 1  # its state stands where it is kept up to date
        assert "<dt>took</dt>" not in text
        assert 'data-key="a"' in text
        assert 'data-key="s"' in text  # stop
        assert 'id="judgement"' not in text
        assert f'href="/t/acme/run/{call.turn_id}/"' in text

    def test_a_viewer_sees_it_and_no_forms(self, browse, inside):
        with inside():
            call = waiting_call()
        text = browse("viewer").get(f"{PAGE}{call.turn_id}/").text
        assert "Waits for a decision on 1 call." in text
        assert "I look it up." in text
        assert "/decide/" not in text
        assert "/stop/" not in text
        assert "/run/" not in text

    def test_what_the_model_says_right_now_is_there(self, browse, inside):
        with inside():
            turn = own_turn("running")
            reply(turn, "First.")
            delta = {"type": "assistant_delta", "cycle": 0, "text": "First."}
            call = {"type": "tool_call", "state": "streaming", "cycle": 1, "index": 0, "callId": "c", "name": "look",
                    "argumentsDelta": '{"ci'}  # fmt: skip
            events(
                turn,
                {"type": "turn_state", "state": "running"},
                delta,
                delta | {"cycle": 1, "text": "Sec\u202eond "},
                delta | {"cycle": 1, "text": "<b>"},
                call,
                call | {"name": None, "argumentsDelta": 'ty": "R'},
            )
        text = browse("viewer").get(f"{PAGE}{turn.pk}/live/").text
        assert "<html" not in text
        assert text.count("First.") == 1
        assert re.search(r'Sec<span class="hidden-char"[^>]*>RLO</span>ond &lt;b&gt;', text)
        assert "{&quot;city&quot;: &quot;R" in text
        assert 'data-seq="6"' in text
        assert 'data-cycles="1"' in text

    def test_what_was_said_before_another_worker_took_over_is_void(self, browse, inside):
        with inside():
            turn = own_turn("running")
            delta = {"type": "assistant_delta", "cycle": 0, "text": "void"}
            events(turn, delta, {"type": "turn_state", "state": "running"}, delta | {"text": "anew"})
        text = browse("viewer").get(f"{PAGE}{turn.pk}/live/").text
        assert "anew" in text
        assert "void" not in text

    def test_a_process_without_streams_sends_the_page_to_polling(self, browse, inside, other_tenant):
        with inside():
            turn = own_turn("running")
            imported = TurnFactory()
        client = browse("viewer")
        assert client.get(f"{PAGE}{turn.pk}/events").status_code == 204
        assert client.get(f"{PAGE}{imported.pk}/events").status_code == 404
        assert client.get(f"{PAGE}{imported.pk}/live/").status_code == 404

    def test_who_signs_out_or_leaves_may_not_watch_on(self, browse, inside):
        client = browse("viewer")
        key = client.session.session_key
        assert still_may_watch("acme", key)
        assert not still_may_watch("other", key)
        with inside():
            Membership.objects.filter(pk=client.member.pk).delete()
        assert not still_may_watch("acme", key)
        again = browse("viewer")
        key = again.session.session_key
        assert still_may_watch("acme", key)
        again.logout()
        assert not still_may_watch("acme", key)

    @pytest.mark.parametrize(
        ("state", "after"), [("awaiting", "cancelled"), ("queued", "cancelled"), ("running", "running")]
    )
    def test_it_is_stopped(self, browse, inside, state, after):
        with inside():
            turn = own_turn(state)
        response = browse("operator").post(f"{PAGE}{turn.pk}/stop/", {"place": "run"})
        assert response.url == f"/t/acme/run/{turn.pk}/"
        with inside():
            run = TurnRun.objects.get()
            assert run.state == after
            assert (run.cancel_requested_at is None) is (after == "cancelled")

    def test_calls_decided_for_the_record_only_leave_a_turn_that_is_told_to_go_on(self, browse, inside):
        with inside():
            call = waiting_call()
            decide(call.turn_id, [Verdict(call.pk, DecisionKind.DECLINE)], auto_send=False)
        page = f"{PAGE}{call.turn_id}/"
        assert "It goes on once it is told to." in browse("viewer").get(page).text
        assert browse("viewer").post(f"{page}go-on/").status_code == 403
        client = browse("operator")
        assert f'action="{page}go-on/"' in client.get(page).text
        assert client.post(f"{page}go-on/").url == page
        with inside():
            assert TurnRun.objects.get().state == "queued"

    def test_a_turn_with_an_open_call_does_not_go_on(self, browse, inside):
        with inside():
            call = waiting_call()
        client = browse("operator")
        assert "/go-on/" not in client.get(f"{PAGE}{call.turn_id}/").text
        client.post(f"{PAGE}{call.turn_id}/go-on/")
        with inside():
            assert TurnRun.objects.get().state == "awaiting"
        assert client.post(f"{PAGE}999999/go-on/").status_code == 404

    def test_an_ended_turn_tells_how_it_ended_and_what_to_do(self, browse, inside):
        with inside():
            turn = own_turn("failed", end_reason="no_model", error="No model is set up.", asked="Hi")
        text = browse("operator").get(f"{PAGE}{turn.pk}/").text
        assert "No model is set up." in text
        assert "Add a model, or enable one." in text
        assert 'id="judgement"' in text


@pytest.mark.parametrize("path", ["turns/{pk}/live/", "turns/{pk}/events", "turns/{pk}/", "run/{pk}/"])
def test_anothers_turn_is_404(browse, outsider, inside, other_tenant, path):
    with inside():
        turn = own_turn("running")
    for slug in ("acme", "globex"):
        assert outsider.get(f"/t/{slug}/{path.format(pk=turn.pk)}").status_code == 404
    for action in ("stop", "decide"):
        data = {"call": 1, "decision": "approve"}
        assert outsider.post(f"/t/globex/turns/{turn.pk}/{action}/", data).status_code == 404


def test_calls_that_have_not_ended_are_shown_as_such_and_not_reviewed(browse, inside):
    with inside():
        ended = ToolCallFactory(turn=own_turn("running"), tool_name="has_ended")
        declined = ToolCallFactory(turn=own_turn("done"), is_error=True, error="refused")
        lost = ToolCallFactory(turn=own_turn("done"), is_error=None, result=None)
        for state in ("pending", "running", "streaming"):
            waiting_call(own_turn("running"), state=state)
        queue = items.unlabelled(CallFilter())
        found = items.items_after(None, queue, limit=10)
        assert {item.call_id for item in found if item.call_id} == {ended.pk, declined.pk, lost.pk}
        from tests.factories import UserFactory

        assert items.progress(CallFilter(), UserFactory()).left == len(found)
    text = browse("viewer").get("/t/acme/calls/").text
    for state in ("pending", "running", "streaming"):
        assert f'<span class="tag {state}">{state}</span>' in text
