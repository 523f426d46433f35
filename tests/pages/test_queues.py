"""Pages of queues: made, changed, looked at, and closed, by who may."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from quality.models import Assignment, QueueEntry, ReviewQueue, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, making
from tenants.models import User
from tests.pages.conftest import HTMX

type Browse = Callable[..., Client]
LIST = "/t/acme/queues/"


@pytest.fixture
def lead(browse: Browse) -> Any:
    return browse("admin", user__name="Lea")


@pytest.fixture
def ada(browse: Browse) -> Any:
    return browse("operator", user__name="Ada")


@pytest.fixture
def bob(browse: Browse) -> Any:
    return browse("operator", user__name="Bob")


@pytest.fixture
def make_queue(inside: Callable[[], Any], lead: Any) -> Callable[..., ReviewQueue]:
    def make(*calls: ToolCall, **said: Any) -> ReviewQueue:
        with inside():
            data = making.QueueData(**{"name": f"Queue {ReviewQueue.objects.count()}", **said})
            queue = making.keep_queue(data, actor=lead.member.user)
            adding.add_items(queue, [item_of_call(call.pk) for call in calls], actor=lead.member.user)
            return queue

    return make


def sent(**fields: Any) -> dict[str, Any]:
    """The form as it comes with nothing changed."""
    return {
        "name": "Failures",
        "kind": "rule",
        "share": "100",
        "ordering": "newest",
        "labels_needed": "1",
        "counts_earlier": "on",
        "everyone": "1",
        "fields_shown": ["facts", "result"],
        **fields,
    }


def label(inside: Callable[[], Any], call: ToolCall, user: User, word: str) -> None:
    with inside():
        record_label(item=item_of_call(call.pk), reviewer=user, label=word)


def test_the_list_without_a_queue_says_what_one_is_for(lead: Any, ada: Any) -> None:
    assert "Make a queue of calls with a hint" in lead.get(LIST).text
    page = ada.get(LIST).text
    assert "Admins make them" in page
    assert "Make a queue" not in page


def test_an_admin_makes_a_queue_with_what_matches_now(lead: Any, make_call: Any, inside: Any) -> None:
    failed, worked = make_call(is_error=True), make_call()
    page = lead.get("/t/acme/queues/new/?error=yes").text
    assert "1 call matches now." in page
    response = lead.post("/t/acme/queues/new/", sent(error="yes", share="50", existing="1"))
    with inside():
        queue = ReviewQueue.objects.get()
        assert (queue.query, queue.sample_rate, queue.fields) == ("error=yes", 0.5, ["facts", "result"])
        assert [entry.call_id for entry in QueueEntry.objects.all()] == [failed.pk]
        assert worked.pk != failed.pk
    assert response.url == f"/t/acme/queues/{queue.pk}/"
    page = lead.get(response.url).text
    assert "50 % of it" in page
    assert "1 call is added." in page


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": " "}, "This field is required."),
        ({"labels_needed": "10"}, "less than or equal to 9"),
        ({"share": "0"}, "greater than or equal to 0.01"),
        ({"everyone": ""}, "Choose at least one member"),
        ({"everyone": "", "reviewers": ["999"]}, "not one of the available choices"),
        ({"error": "maybe"}, "maybe"),
    ],
)
def test_bad_input_is_told_back(lead: Any, inside: Any, fields: dict[str, Any], told: str) -> None:
    response = lead.post("/t/acme/queues/new/", sent(**fields))
    assert response.status_code == 400
    assert told in response.text
    with inside():
        assert not ReviewQueue.objects.exists()


def test_two_queues_never_share_a_name(lead: Any, make_queue: Any) -> None:
    make_queue(name="Failures")
    response = lead.post("/t/acme/queues/new/", sent())
    assert response.status_code == 400
    assert "There is a queue named" in response.text


def test_a_queue_is_changed_and_its_open_entries_follow(
    lead: Any, ada: Any, make_call: Any, make_queue: Any, inside: Any
) -> None:
    calls = [make_call(), make_call()]
    queue = make_queue(*calls)
    label(inside, calls[0], ada.member.user, "good_reply")
    address = f"/t/acme/queues/{queue.pk}/edit/"
    assert f'value="{queue.name}"' in lead.get(address).text
    reviewers = [str(ada.member.user.pk)]
    changed = sent(name="Two each", labels_needed="2", is_blind="on", everyone="", reviewers=reviewers)
    assert lead.post(address, changed).status_code == 302
    with inside():
        queue.refresh_from_db()
        assert (queue.kind, queue.for_everyone, queue.labels_needed) == ("fixed", False, 2)
        done, waits = (QueueEntry.objects.get(call=call) for call in calls)
        assert (done.state, done.labels_needed, done.is_blind) == ("done", 1, True)
        assert (waits.state, waits.labels_needed, waits.is_blind) == ("open", 2, True)


def test_a_queue_is_closed_deleted_and_brought_back(lead: Any, make_queue: Any, inside: Any) -> None:
    queue = make_queue(name="Failures")
    page = f"/t/acme/queues/{queue.pk}/"
    lead.post(f"{page}delete/")
    assert "Close it, then delete it" in lead.get(page).text
    lead.post(f"{page}state/", {"state": "closed"})
    lead.post(f"{page}delete/")
    assert lead.get(page).status_code == 404
    assert "1 deleted queue" in lead.get(LIST).text
    make_queue(name="Failures")  # the name is free meanwhile
    lead.post(f"{page}restore/")
    assert "Rename that one first" in lead.get(LIST).text
    with inside():
        ReviewQueue.objects.filter(deleted_at=None).update(name="Others")
    lead.post(f"{page}restore/")
    assert lead.get(page).status_code == 200


def test_the_page_tells_how_far_it_is_and_who_did_what(
    lead: Any, ada: Any, bob: Any, make_call: Any, make_queue: Any, inside: Any
) -> None:
    calls = [make_call(tool_name=name) for name in ("get_weather", "get_order", "get_time")]
    queue = make_queue(*calls, labels_needed=2)
    for call, word in ((calls[0], "good_reply"), (calls[1], "bad_args")):
        label(inside, call, ada.member.user, word)
        label(inside, call, bob.member.user, "good_reply")
    page = lead.get(f"/t/acme/queues/{queue.pk}/").text
    assert 'aria-label="2 of 3 done"' in page
    assert "Reviewers disagree on 1 call so far." in page
    assert "get_time" in page
    assert 'class="mono">get_order' not in page
    found = lead.get(f"/t/acme/queues/{queue.pk}/?state=done&agreed=no", headers=HTMX).text
    assert "get_order" in found
    assert "get_time" not in found.split("<tbody>")[1]
    assert "<html" not in found
    assert (
        "get_weather"
        in lead.get(f"/t/acme/queues/{queue.pk}/?state=done&agreed=yes&reviewer={bob.member.user.pk}").text
    )
    assert "No call of the queue matches" in lead.get(f"/t/acme/queues/{queue.pk}/?state=removed").text


def test_disagreements_are_collected_with_one_press_and_decided(
    lead: Any, ada: Any, bob: Any, make_call: Any, make_queue: Any, inside: Any
) -> None:
    calls = [make_call(), make_call()]
    queue = make_queue(*calls, labels_needed=2)

    def disagree(call: ToolCall) -> None:
        label(inside, call, ada.member.user, "bad_args")
        label(inside, call, bob.member.user, "good_reply")

    disagree(calls[0])
    response = lead.post(f"/t/acme/queues/{queue.pk}/adjudicate/")
    assert lead.post(f"/t/acme/queues/{queue.pk}/adjudicate/").url == response.url  # there is one
    disagree(calls[1])
    with inside():
        made = ReviewQueue.objects.get(kind="adjudication")
        entries = list(QueueEntry.objects.filter(queue=made).order_by("pk"))
    assert [entry.call_id for entry in entries] == [call.pk for call in calls]
    page = lead.get(f"{response.url}entries/{entries[0].pk}/").text
    assert page.index("Ada") < page.index("Bob")
    assert "Bad arguments" in page
    label(inside, calls[0], lead.member.user, "bad_args")
    label(inside, calls[1], bob.member.user, "bad_args")  # he was persuaded: nothing is left to decide
    with inside():
        states = dict(QueueEntry.objects.filter(queue=made).values_list("call_id", "state"))
    assert states == {calls[0].pk: "done", calls[1].pk: "removed"}


def test_a_blind_queue_shows_others_answers_once_all_are_in(
    lead: Any, ada: Any, bob: Any, make_call: Any, make_queue: Any, inside: Any
) -> None:
    call = make_call()
    people = (ada.member.user.pk, bob.member.user.pk)
    queue = make_queue(call, labels_needed=2, is_blind=True, reviewers=people)
    label(inside, call, ada.member.user, "missing_tool")
    with inside():
        entry = QueueEntry.objects.get(queue=queue)
    page = f"/t/acme/queues/{queue.pk}/entries/{entry.pk}/"
    blind = [f"/t/acme/queues/{queue.pk}/", page, f"/t/acme/calls/{call.pk}/", "/t/acme/calls/"]
    row = 'class="badge label-missing_tool"'
    for address in blind:
        assert row not in bob.get(address).text, address
        assert row in lead.get(address).text, address
        assert (row in ada.get(address).text) == (address != page), address
    assert "1 of 2 labels are in" in bob.get(page).text
    assert row not in bob.get("/t/acme/calls/?label=missing_tool").text
    label(inside, call, bob.member.user, "good_reply")
    for address in (page, f"/t/acme/calls/{call.pk}/"):
        assert row in bob.get(address).text
        assert 'class="badge label-good_reply"' in ada.get(address).text


def test_calls_are_added_by_their_ids_and_single_ones_taken_out(
    lead: Any, make_call: Any, make_queue: Any, inside: Any
) -> None:
    calls = [make_call(), make_call()]
    queue = make_queue(calls[0])
    page = f"/t/acme/queues/{queue.pk}/"
    lead.post(f"{page}add/", {"calls": f"{calls[0].pk}, {calls[1].pk} 999999"})
    told = lead.get(page).text
    assert "1 call is added. 1 was in the queue already." in told
    assert "Not found: call 999999." in told
    lead.post(f"{page}add/", {"calls": "twelve"})
    assert "Give ids of calls" in lead.get(page).text
    with inside():
        entry = QueueEntry.objects.get(call=calls[1])
    steps = f"{page}entries/{entry.pk}/"
    for step, state in (("take-out", "removed"), ("put-back", "open")):
        lead.post(f"{steps}{step}/")
        with inside():
            entry.refresh_from_db()
        assert entry.state == state


def test_the_review_of_a_queue_serves_claims_and_says_when_it_is_over(
    ada: Any, bob: Any, make_call: Any, make_queue: Any, inside: Any
) -> None:
    calls = [make_call(tool_name="get_first"), make_call(tool_name="get_second")]
    queue = make_queue(*calls, guidelines="Read the *units*.")
    address = f"/t/acme/queues/{queue.pk}/review/"
    assert f'value="{calls[0].pk}"' in ada.get(address).text
    assert f'value="{calls[1].pk}"' in bob.get(address).text
    assert f'value="{calls[0].pk}"' in ada.get(address).text  # it is still his
    response = ada.post(f"{address}send-back/", {"call": calls[0].pk, "note": "German"}, headers=HTMX)
    assert "done=1" in response["HX-Location"]
    with inside():
        assert Assignment.objects.get(reviewer=ada.member.user).state == "sent_back"
    assert "Nothing more for you here now" in ada.get(f"{address}?done=1").text


@pytest.mark.parametrize("path", ["", "new/", "1/", "1/edit/", "1/review/", "1/entries/1/", "preview/"])
def test_outsiders_get_404(make_call: Any, make_queue: Any, outsider: Client, path: str) -> None:
    make_queue(make_call())
    assert outsider.get(f"{LIST}{path}").status_code == 404


@pytest.mark.parametrize("path", ["new/", "1/edit/", "1/state/", "1/delete/", "1/add/", "1/adjudicate/"])
def test_operators_label_and_admins_lead(ada: Any, make_queue: Any, path: str) -> None:
    make_queue()
    assert ada.post(f"{LIST}{path}", {"state": "closed"}).status_code == 403
