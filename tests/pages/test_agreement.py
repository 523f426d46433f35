"""The page of agreement: figures, what leads where, who may see what."""

import csv
import io
import re
import uuid

import pytest
from django.utils import timezone

from quality.models import Hint, QueueEntry, ReviewQueue, Suggestion, SuggestionRun
from quality.pages.agreement import reading
from quality.pages.agreement_sheets import SHEETS
from quality.review.agreement import Measure
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tests.factories import FeedbackFactory, ToolCallFactory, TurnFactory
from tests.pages.conftest import HTMX

LABELS = ("good_reply", "wrong_tool", "missing_tool", "bad_args", "other")


def words(response):
    return " ".join(re.sub("<[^>]*>", " ", response.text).split())


@pytest.fixture
def people(member):
    """Ada, Bob and Cyd, who label."""
    found = [member("operator").user for _ in range(3)]
    for user, name in zip(found, ("Ada", "Bob", "Cyd"), strict=True):
        user.name = name
        user.save()
    return found


@pytest.fixture
def say(inside, people):
    """`say("good_reply", "other", None)`: what Ada, Bob and Cyd say of a new call."""

    def given(*labels, call=None, **fields):
        with inside():
            call = call or ToolCallFactory(**fields)
            for user, label in zip(people, labels, strict=False):
                if label:
                    record_label(item=item_of_call(call.pk), reviewer=user, label=label, nonce=uuid.uuid4())
        return call

    return given


def rows_of(response):
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(response.content.decode("utf-8-sig"))))


def test_an_empty_tenant_is_told_how_to_start(browse, say):
    page = words(browse("viewer").get("/t/acme/agreement/"))
    assert "Nobody has labelled anything in this time" in page
    say("good_reply")
    page = words(browse("viewer").get("/t/acme/agreement/"))
    assert "No call has two answers yet" in page
    assert "Two reviewers need to label the same call: make a queue with 2 labels per call" in page


def test_figures_of_pairs_and_labels_are_shown_with_their_intervals(browse, say):
    for _ in range(3):
        say("good_reply", "good_reply", "good_reply")
    say("bad_args", "good_reply", None)
    say("bad_args", "bad_args", "other")
    page = words(browse("viewer").get("/t/acme/agreement/"))
    assert "Calls with two answers or more 5 of 5 labelled" in page
    assert "Labels 14 by 3 reviewers" in page
    assert "Ada · Bob 5 1 0.55 −0.42 to 0.92 few 80 %" in page
    assert "Wrong tool 0 nobody gave it" in page
    assert "Of 5 calls: too few to lean on." in page
    sheet = rows_of(browse("viewer").get("/t/acme/agreement/pairs.csv"))
    pair = next(row for row in sheet if (row["reviewer"], row["other"]) == ("Ada", "Bob"))
    assert (pair["items"], pair["apart"], float(pair["kappa"])) == ("5", "1", pytest.approx(0.5455, abs=0.001))
    assert (pair["kappa_interval"], pair["kappa_n"], pair["kappa_other_why_not"]) == ("wilson", "5", "one_answer")


def test_each_table_is_a_file_with_the_filter_of_the_page(browse, say, inside, people):
    call = say("bad_args", "wrong_tool")
    say("good_reply", "good_reply", tool_name="get_time")
    with inside():
        run = SuggestionRun.objects.create(endpoint_label="expert", max_items=1, created_by=people[0])
        Suggestion.objects.create(run=run, turn=call.turn, cycle=0, call=call, model="expert", label="other")
        Hint.objects.create(turn=call.turn, call=call, rule="unknown_tool", sentence="…", started_at=call.started_at)
    client = browse("viewer")
    for name in SHEETS:
        found = rows_of(client.get(f"/t/acme/agreement/{name}.csv"))
        assert found, name
    (summary,) = rows_of(client.get("/t/acme/agreement/summary.csv?tool=get_time"))
    assert (summary["labels"], summary["items"], summary["alpha"], summary["alpha_why_not"]) == (
        "2", "1", "", "one_answer",
    )  # fmt: skip
    assert rows_of(client.get("/t/acme/agreement/judge.csv")) == []
    confusion = rows_of(client.get("/t/acme/agreement/confusion.csv"))
    assert [row["pairs_of_answers"] for row in confusion] == ["1", "1"]


def test_a_pair_leads_to_the_calls_it_disagrees_on_and_they_are_as_many(browse, say):
    apart = [say("bad_args", "good_reply") for _ in range(3)]
    say("good_reply", "good_reply")
    client = browse("viewer")
    page = client.get("/t/acme/agreement/").text
    link = next(link for link in re.findall(r'href="(/t/acme/agreement/apart/[^"]+)"', page))
    listed = client.get(link.replace("&amp;", "&"))
    assert "Ada · Bob · 3 calls" in words(listed)
    assert re.findall(r'href="/t/acme/calls/(\d+)/"', listed.text) == [str(call.pk) for call in reversed(apart)]
    assert "Bad arguments Good reply" in words(listed)


def test_disagreements_are_paged(browse, say, monkeypatch):
    monkeypatch.setattr("quality.pages.agreement.PAGE_SIZE", 2)
    calls = [say("bad_args", "good_reply") for _ in range(5)]
    client = browse("viewer")
    link = re.search(r'href="(/t/acme/agreement/apart/[^"]+)"', client.get("/t/acme/agreement/").text)[1]
    seen, address = [], link.replace("&amp;", "&")
    while address:
        page = client.get(address).text
        seen += map(int, re.findall(r'href="/t/acme/calls/(\d+)/"', page))
        older = re.search(r'href="(\?[^"]+)"\s+data-key="n"', page)
        address = older and f"/t/acme/agreement/apart/{older[1]}".replace("&amp;", "&")
    assert seen == [call.pk for call in reversed(calls)]
    assert "not one of ours" in client.get(f"{link.replace('&amp;', '&')}&cursor=x").text


def test_a_filter_narrows_and_a_slip_is_told(browse, say, inside, people):
    say("bad_args", "good_reply", tool_name="get_time")
    say("good_reply", "good_reply", turn__style_id="support")
    with inside():
        queue = ReviewQueue.objects.create(name="Night shift", created_by=people[0])
        call = ToolCallFactory()
        QueueEntry.objects.create(queue=queue, turn=call.turn, cycle=0, call=call, started_at=call.started_at)
    say("other", "other", call=call)
    client = browse("viewer")

    def number(query):
        return re.search(r"answers or more (\d+)", words(client.get(f"/t/acme/agreement/?{query}")))

    assert number("")[1] == "3"
    assert number("tool=get_time")[1] == "1"
    assert number("style=support")[1] == "1"
    assert number(f"queue={queue.pk}")[1] == "1"
    assert number("tool=nobody") is None
    for slip in ("queue=999999", "days=5", "queue=x"):
        page = client.get(f"/t/acme/agreement/?{slip}").text
        assert "The figures below are of all labels." in page, slip
    assert "Not a filter, and not used" in client.get("/t/acme/agreement/?tol=x").text


def test_a_blind_queue_keeps_its_labels_out_until_it_is_complete(browse, say, inside, people):
    call = say("bad_args", "good_reply")
    with inside():
        queue = ReviewQueue.objects.create(name="Blind", created_by=people[0], is_blind=True, labels_needed=3)
        entry = QueueEntry.objects.create(
            queue=queue, turn=call.turn, cycle=0, call=call, started_at=call.started_at, is_blind=True
        )
    client = browse("viewer")
    page = words(client.get("/t/acme/agreement/"))
    assert "2 labels wait in blind queues until all answers are in" in page
    assert "Ada" not in page
    pair = f"left={people[0].pk}&right={people[1].pk}"
    assert "Bad arguments" not in client.get(f"/t/acme/agreement/apart/?{pair}").text
    assert rows_of(client.get("/t/acme/agreement/pairs.csv")) == []
    with inside():
        QueueEntry.objects.filter(pk=entry.pk).update(state="done")
    assert "Bad arguments" in client.get(f"/t/acme/agreement/apart/?{pair}").text


def test_the_matrix_is_there_for_three_and_names_are_inert(browse, say, people):
    people[0].name = "<b>Ada</b>"
    people[0].save()
    say("bad_args", "good_reply", "good_reply")
    page = browse("viewer").get("/t/acme/agreement/").text
    assert "Matrix of pairs" in page
    assert "&lt;b&gt;Ada&lt;/b&gt;" in page
    assert "<b>Ada</b>" not in page


def test_the_judge_is_a_part_of_its_own(browse):
    client = browse("viewer")
    assert "No judge was asked yet" in client.get("/t/acme/agreement/judge/").text
    part = client.get("/t/acme/agreement/judge/", headers=HTMX).text
    assert part.lstrip().startswith("<section")
    assert "hx-get" not in client.get("/t/acme/agreement/").text.partition('id="judge"')[2]


def test_outsiders_find_no_page(browse, outsider, client):
    for path in ("", "apart/?left=1&right=2", "judge/", "judge.csv", "pairs.csv"):
        assert outsider.get(f"/t/acme/agreement/{path}").status_code == 404
        assert client.get(f"/t/acme/agreement/{path}").status_code == 302
        assert browse("viewer").post(f"/t/acme/agreement/{path}").status_code == 405


def test_alpha_is_read_by_the_lower_end_of_its_interval():
    def measured(low):
        return Measure(value=0.9, n=50, low=low, high=1)

    assert [reading(measured(low)) for low in (0.81, 0.7, 0.6, None)] == ["reliable", "tentative", "weak", ""]


def test_queries_do_not_grow_with_labels(browse, say, django_assert_max_num_queries, django_assert_num_queries):
    client = browse("viewer")
    say("bad_args", "wrong_tool")
    with django_assert_max_num_queries(20) as first:
        client.get("/t/acme/agreement/")
    for _ in range(6):
        say("bad_args", "good_reply", "other")
    with django_assert_num_queries(len(first)):
        client.get("/t/acme/agreement/")


def test_turns_without_a_call_are_part_of_it(browse, inside, people):
    with inside():
        turn = TurnFactory()
        for user, label in zip(people, ("missing_tool", "good_reply"), strict=False):
            FeedbackFactory(call=None, turn=turn, reviewer=user, label=label, created_at=timezone.now())
    pair = f"left={people[0].pk}&right={people[1].pk}"
    page = browse("viewer").get(f"/t/acme/agreement/apart/?{pair}").text
    assert f'href="/t/acme/turns/{turn.pk}/"' in page
    assert "Reply without a call" in page
