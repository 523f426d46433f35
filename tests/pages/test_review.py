"""Review: labels by one key each, bound to what was on the screen."""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test import Client

from quality.models import Feedback, FeedbackEvent, Label
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import AuditEvent
from tests.factories import TurnFactory
from tests.pages.conftest import HTMX

LABEL, UNDO = "/t/acme/review/label/", "/t/acme/review/undo/"


def form(call, **fields):
    return {"call": call.pk, "version": 0, "nonce": str(uuid.uuid4()), "label": "good_reply", **fields}


def shown(response):
    """The call or turn on the screen, by the fields of its form."""
    found = re.search(r'id="label-form".*?name="(call|turn)"\s+value="(\d+)"', response.text, re.DOTALL)
    return (found[1], int(found[2])) if found else None


def hidden(response, form_id="label-form"):
    """Hidden fields of a form, as a browser would send them."""
    part = response.text.split(f'id="{form_id}"')[1].split("</form>")[0]
    return dict(re.findall(r'type="hidden"\s+name="(\w+)"\s+value="([^"]*)"', part))


@pytest.fixture
def ada(browse):
    return browse("operator", user__name="Ada")


@pytest.fixture
def bob(browse):
    return browse("operator", user__name="Bob")


@pytest.fixture
def label(inside):
    """`label(client, call, label)`: as if this member had labelled the call before."""

    def give(client, call, label=Label.GOOD_REPLY, **more):
        with inside():
            return record_label(item=item_of_call(call.pk), reviewer=client.member.user, label=label, **more)

    return give


@pytest.fixture
def labels(inside):
    """Labels there are, by call and reviewer."""

    def read():
        with inside():
            return {(one.call_id, str(one.reviewer)): one.label for one in Feedback.objects.select_related("reviewer")}

    return read


def test_the_newest_item_without_a_label_comes_first(ada, make_call, label):
    newest, older = make_call(), make_call()
    assert shown(ada.get("/t/acme/review/")) == ("call", newest.pk)
    label(ada, newest)
    assert shown(ada.get("/t/acme/review/")) == ("call", older.pk)


def test_turns_without_a_call_are_items_too(ada, make_call, inside):
    make_call()
    with inside():
        turn = TurnFactory()
    response = ada.get(f"/t/acme/review/?turn={turn.pk}")
    assert shown(response) == ("turn", turn.pk)
    data = hidden(response) | {"label": "missing_tool"}
    assert ada.post(LABEL, data).status_code == 302
    with inside():
        feedback = Feedback.objects.get()
        assert (feedback.turn_id, feedback.call_id, feedback.label) == (turn.pk, None, "missing_tool")


def test_one_label_is_saved_and_the_next_item_shown(ada, make_call, labels):
    first, second = make_call(), make_call()
    page = ada.get("/t/acme/review/")
    response = ada.post(LABEL, hidden(page) | {"label": "wrong_tool", "note": "get_time"})
    assert response.url == f"/t/acme/review/?call={second.pk}"
    assert labels() == {(first.pk, "Ada"): "wrong_tool"}
    following = ada.get(response.url).text
    assert "Wrong tool" in following
    assert "Undo" in following


def test_htmx_gets_the_next_item_and_its_address(ada, make_call, labels):
    make_call()
    second = make_call()
    page = ada.get("/t/acme/review/?source=openai_chat")
    response = ada.post(LABEL, hidden(page) | {"label": "bad_args"}, headers=HTMX)
    assert "<html" not in response.text
    assert shown(response) == ("call", second.pk)
    assert response.headers["HX-Push-Url"] == f"/t/acme/review/?source=openai_chat&call={second.pk}"


def test_moving_and_skipping_obey_the_filter(ada, make_call, label):
    calls = [make_call(tool_name="get_time" if number % 2 else "get_weather") for number in range(6)]
    label(ada, calls[2])
    page = ada.get(f"/t/acme/review/?tool=get_weather&call={calls[0].pk}").text

    def target(key):
        found = re.search(r'href="([^"]+)"\s+data-key="' + key + '"', page)
        return found and found[1].replace("&amp;", "&")

    assert target("j") == f"/t/acme/review/?tool=get_weather&call={calls[2].pk}"  # next, labelled or not
    assert target("s") == f"/t/acme/review/?tool=get_weather&call={calls[4].pk}"  # next without a label
    assert target("k") is None
    assert str(calls[1].pk) not in re.findall(r"call=(\d+)", page.split("<aside")[1].split("</aside>")[0])


def test_other_calls_of_the_turn_are_reached_inside_review(ada, make_call):
    call = make_call()
    other = make_call(turn=call.turn, tool_name="get_time")
    page = ada.get(f"/t/acme/review/?source=openai_chat&call={call.pk}").text
    pills = page.split('class="siblings"')[1].split("</nav>")[0]
    assert f'href="/t/acme/review/?source=openai_chat&amp;call={other.pk}"' in pills


def test_after_the_last_one_it_says_so(ada, make_call, label):
    first, last = make_call(), make_call()
    response = ada.post(LABEL, form(last), follow=True)
    assert response.redirect_chain[-1][0] == "/t/acme/review/?done=1"
    assert "That was the last one" in response.text  # the first was passed over
    assert "Start again" in response.text
    label(ada, first)
    assert "All reviewed" in ada.get("/t/acme/review/").text
    assert "Nothing left to review with this filter" in ada.get("/t/acme/review/?tool=get_weather").text


def test_an_empty_tenant_has_nothing_to_review(ada):
    assert "Nothing to review yet" in ada.get("/t/acme/review/").text


def test_items_with_a_certain_label_can_be_gone_through(ada, make_call, label):
    first, second, third = make_call(), make_call(), make_call()
    label(ada, first, Label.WRONG_TOOL)
    label(ada, third, Label.WRONG_TOOL)
    page = ada.get("/t/acme/review/?label=wrong_tool")
    assert shown(page) == ("call", first.pk)
    response = ada.post(LABEL, hidden(page) | {"label": "bad_args"})
    assert response.url == f"/t/acme/review/?label=wrong_tool&call={third.pk}"
    assert second.pk


def test_a_bad_filter_is_told_back(ada, make_call):
    make_call()
    page = ada.get("/t/acme/review/?error=perhaps")
    assert "This filter cannot be read" in page.text
    assert shown(page) is None


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"label": "splendid"}, "splendid is no label. Use one of good_reply, wrong_tool"),
            ({"label": ""}, "label: This field is required."),
            ({"note": "x" * 10_001}, "note: Ensure this value has at most 10000 characters"),
            ({"nonce": "abc"}, "nonce: Enter a valid UUID."),
            ({"version": "-1"}, "version:"),
        ],
    )
    def test_it_is_told_back_beside_the_item_and_stores_nothing(self, ada, make_call, labels, change, words):
        call = make_call()
        response = ada.post(LABEL, form(call) | change)
        assert response.status_code == 400
        assert words in response.text
        assert shown(response) == ("call", call.pk)
        part = ada.post(LABEL, form(call) | change, headers=HTMX)
        assert words in part.text
        assert part.headers["HX-Retarget"] == "#judgement"
        assert labels() == {}

    def test_no_item_at_all_is_a_bad_request(self, ada, make_call):
        make_call()
        response = ada.post(LABEL, {"label": "good_reply"})
        assert response.status_code == 400
        assert "Say which item this is for" in response.text

    def test_an_item_that_is_gone_is_404(self, ada, make_call):
        call = make_call()
        assert ada.post(LABEL, form(call) | {"call": 999}).status_code == 404

    def test_a_nonce_of_another_item_is_refused(self, ada, make_call, labels):
        first, second = make_call(), make_call()
        data = form(first)
        ada.post(LABEL, data)
        response = ada.post(LABEL, data | {"call": second.pk})
        assert response.status_code == 400
        assert "used for another item already" in response.text
        assert labels() == {(first.pk, "Ada"): "good_reply"}


class TestConflict:
    def test_a_stale_label_is_409_with_both_values(self, ada, bob, make_call, label, labels):
        call = make_call()
        data = hidden(ada.get("/t/acme/review/")) | {"label": "bad_args", "note": "the date is wrong"}
        label(bob, call, Label.GOOD_REPLY, note="fine for me")
        for headers in (HTMX, {}):
            response = ada.post(LABEL, data, headers=headers)
            assert response.status_code == 409
            text = response.text.split('class="conflict"')[1].split("</div>")[0]
            for value in ("Bob", "Good reply", "fine for me", "You, just now", "Bad arguments", "the date is wrong"):
                assert value in text
        assert labels() == {(call.pk, "Bob"): "good_reply"}

    def test_mine_can_be_kept_and_nothing_is_lost(self, ada, bob, make_call, label, labels):
        call = make_call()
        data = hidden(ada.get("/t/acme/review/")) | {"label": "bad_args"}
        label(bob, call)
        answer = ada.post(LABEL, data, headers=HTMX)
        conflict = answer.text.split('class="conflict"')[1]
        again = dict(re.findall(r'type="hidden"\s+name="(\w+)"\s+value="([^"]*)"', conflict.split("</form>")[0]))
        assert again["label"] == "bad_args"
        assert ada.post(LABEL, again, headers=HTMX).status_code == 200
        assert labels() == {(call.pk, "Bob"): "good_reply", (call.pk, "Ada"): "bad_args"}

    def test_theirs_can_be_kept_by_going_on(self, ada, bob, make_call, label):
        call, following = make_call(), make_call()
        data = hidden(ada.get("/t/acme/review/")) | {"label": "bad_args"}
        label(bob, call)
        answer = ada.post(LABEL, data, headers=HTMX).text
        assert re.search(rf'href="/t/acme/review/\?call={following.pk}"\s+data-key="t"', answer)

    def test_the_same_label_twice_is_no_conflict(self, ada, make_call, label, labels):
        call = make_call()
        data = hidden(ada.get("/t/acme/review/")) | {"label": "good_reply"}
        label(ada, call)
        assert ada.post(LABEL, data).status_code == 302
        assert labels() == {(call.pk, "Ada"): "good_reply"}


def test_the_same_form_sent_ten_times_at_once_is_one_label(ada, make_call, inside):
    data = form(make_call())

    def send(_):
        client = Client()
        client.cookies = ada.cookies
        try:
            return client.post(LABEL, data).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(send, range(10))) == {302}
    with inside():
        assert FeedbackEvent.objects.count() == 1
        assert AuditEvent.objects.filter(action="feedback.labelled").count() == 1


class TestUndo:
    def undo_form(self, response):
        part = response.text.split('action="/t/acme/review/undo/"')[1].split("</form>")[0]
        return dict(re.findall(r'type="hidden"\s+name="(\w+)"\s+value="([^"]*)"', part))

    def test_it_takes_back_the_last_label_and_goes_to_its_item(self, ada, make_call, labels):
        first = make_call()
        make_call()
        following = ada.post(LABEL, form(first, label="wrong_tool"), headers=HTMX)
        response = ada.post(UNDO, self.undo_form(following), headers=HTMX)
        assert shown(response) == ("call", first.pk)
        assert "Undone: Wrong tool on get_weather" in response.text
        assert response.headers["HX-Push-Url"] == f"/t/acme/review/?call={first.pk}"
        assert labels() == {}

    def test_it_goes_back_through_all_labels_one_by_one(self, ada, make_call, labels):
        calls = [make_call() for _ in range(3)]
        for call in calls:
            page = ada.post(LABEL, form(call), headers=HTMX)
        for left in (2, 1, 0):
            page = ada.post(UNDO, self.undo_form(page), headers=HTMX)
            assert len(labels()) == left
        assert "Undone:" in page.text
        assert 'action="/t/acme/review/undo/"' not in page.text

    def test_the_label_before_it_holds_again(self, ada, make_call, labels):
        call = make_call()
        ada.post(LABEL, form(call, label="good_reply"))
        page = ada.post(LABEL, form(call, label="bad_args", version=1), headers=HTMX)
        response = ada.post(UNDO, self.undo_form(page), headers=HTMX)
        assert "Undone: Bad arguments on get_weather, Good reply again" in response.text
        assert labels() == {(call.pk, "Ada"): "good_reply"}

    def test_nobody_takes_back_another_ones_label(self, ada, bob, make_call, label, labels):
        call = make_call()
        label(bob, call)
        assert 'action="/t/acme/review/undo/"' not in ada.get("/t/acme/review/").text
        response = ada.post(UNDO, form(call, version=1), follow=True)
        assert "You gave no label to the call" in response.text
        assert labels() == {(call.pk, "Bob"): "good_reply"}

    def test_sent_twice_it_is_one(self, ada, make_call, inside):
        page = ada.post(LABEL, form(make_call()), headers=HTMX)
        data = self.undo_form(page)
        assert ada.post(UNDO, data).status_code == 302
        assert ada.post(UNDO, data).status_code == 302
        with inside():
            assert FeedbackEvent.objects.count() == 2


def test_on_a_calls_own_page_a_label_stays_there(ada, make_call, labels):
    call = make_call()
    address = f"/t/acme/calls/{call.pk}/"
    data = hidden(ada.get(address)) | {"label": "other", "note": "odd"}
    part = ada.post(LABEL, data, headers=HTMX)
    assert part.text.lstrip().startswith("<section") or 'id="judgement"' in part.text
    assert part.headers["HX-Retarget"] == "#judgement"
    assert "<html" not in part.text
    assert "odd" in part.text
    response = ada.post(LABEL, hidden(ada.get(address)) | {"label": "bad_args"})
    assert response.url == address
    assert labels() == {(call.pk, "Ada"): "bad_args"}


def test_a_correction_from_elsewhere_stays_with_its_label(ada, make_call, label, inside):
    call = make_call()
    label(ada, call, Label.WRONG_TOOL, correction='{"tool":"get_time","offered":false}')
    ada.post(LABEL, form(call, label="wrong_tool", note="now with a note", version=1))
    with inside():
        assert Feedback.objects.get().correction == '{"tool":"get_time","offered":false}'
    ada.post(LABEL, form(call, label="good_reply", version=2))
    with inside():
        assert Feedback.objects.get().correction is None


def test_review_takes_as_many_queries_for_twenty_items_as_for_one(
    ada, make_call, django_assert_max_num_queries, django_assert_num_queries
):
    middle = make_call()
    make_call()
    ada.get(f"/t/acme/review/?call={middle.pk}")  # today's tools are read once for each version of the settings
    with django_assert_max_num_queries(45) as first:
        ada.get(f"/t/acme/review/?call={middle.pk}")
    for _ in range(19):
        make_call()
    with django_assert_num_queries(len(first.captured_queries)):
        ada.get(f"/t/acme/review/?call={middle.pk}")
