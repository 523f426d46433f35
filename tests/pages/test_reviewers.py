"""The lead's pages: how reviewers work, and one reviewer's labels to read."""

import csv
import datetime as dt
import io
import re
import uuid

import pytest
from django.utils import timezone

from quality.models import QueueEntry, ReviewQueue
from quality.pages.reviewers import segments
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.reviewers import HIDDEN, Work
from tests.factories import ToolCallFactory
from tests.pages.conftest import HTMX


def words(response):
    return " ".join(re.sub("<[^>]*>", " ", response.text).split())


@pytest.fixture
def label(inside):
    """`label(user, "other", ago=60)`: a label on a new call, so many seconds ago."""

    def give(user, word, *, ago=60, call=None, **fields):
        with inside():
            call = call or ToolCallFactory()
            at = timezone.now() - dt.timedelta(seconds=ago)
            record_label(item=item_of_call(call.pk), reviewer=user, label=word, nonce=uuid.uuid4(), at=at, **fields)
        return call

    return give


def test_an_admin_sees_everybody_and_an_operator_the_own_line(browse, label):
    admin, ada, bob = browse("admin"), browse("operator"), browse("operator")
    label(ada.member.user, "other")
    label(bob.member.user, "other")
    page = words(admin.get("/t/acme/reviewers/"))
    for client in (admin, ada, bob):
        assert str(client.member.user) in page
    own = words(ada.get("/t/acme/reviewers/"))
    assert f"{ada.member.user} 1 " in own
    assert str(bob.member.user) not in own
    assert "You see your own line" in own
    assert browse("viewer").get("/t/acme/reviewers/").status_code == 403


def test_pace_and_spread_are_told(browse, label):
    admin, ada = browse("admin"), browse("operator").member.user
    for ago, word in ((400, "other"), (390, "good_reply"), (370, "good_reply"), (20, "bad_args")):
        label(ada, word, ago=ago, note="odd" if word == "other" else "")
    page = words(admin.get("/t/acme/reviewers/"))
    # Each label is made a moment after the one before, so that seconds are a little longer than said.
    assert re.search(rf"{ada} 4 Good reply: 2 Bad arguments: 1 Other: 1 2[34]\d 3\d s 15\.\d s 0 25 %", page)
    (row, *_) = csv.DictReader(io.StringIO(admin.get("/t/acme/reviewers.csv").content.decode("utf-8-sig")))
    assert (row["reviewer"], row["labels"], row["good_reply"], row["hidden"]) == (str(ada), "4", "2", "0")
    assert float(row["median_seconds"]) == pytest.approx(15, abs=0.9)
    assert float(row["labels_per_active_hour"]) == pytest.approx(240, abs=15)
    assert float(row["notes"]) == 0.25


def test_a_period_narrows(browse, label):
    admin, ada = browse("admin"), browse("operator").member.user
    label(ada, "other", ago=40 * 86_400)
    assert f"{ada} 0 " in words(admin.get("/t/acme/reviewers/"))
    assert f"{ada} 1 Other: 1" in words(admin.get("/t/acme/reviewers/?days=90"))
    assert "Select a valid choice" in admin.get("/t/acme/reviewers/?days=3").text


def test_work_is_read_only_and_says_whose_it_is(browse, label):
    admin, ada = browse("admin"), browse("operator")
    call = label(ada.member.user, "bad_args", note="wrong <b>city</b>", correction='{"arguments": {"city": "Bern"}}')
    response = admin.get(f"/t/acme/reviewers/{ada.member.user.pk}/")
    page = words(response)
    assert f"You are looking at {ada.member.user} 's answers. Read only." in page
    assert "get_weather Bad arguments corrected wrong &lt;b&gt;city&lt;/b&gt;" in page
    assert f'href="/t/acme/calls/{call.pk}/"' in response.text
    assert 'method="post"' not in response.text.partition("<main")[2]
    assert "You are looking at your own answers. Read only." in words(
        ada.get(f"/t/acme/reviewers/{ada.member.user.pk}/")
    )


def test_nobody_but_admins_sees_anothers_work(browse, outsider, label):
    ada, bob = browse("operator"), browse("operator")
    label(bob.member.user, "other")
    assert ada.get(f"/t/acme/reviewers/{bob.member.user.pk}/").status_code == 403
    assert browse("viewer").get(f"/t/acme/reviewers/{bob.member.user.pk}/").status_code == 403
    assert outsider.get(f"/t/acme/reviewers/{bob.member.user.pk}/").status_code == 404
    assert outsider.get("/t/acme/reviewers/").status_code == 404
    admin = browse("admin")
    assert admin.get("/t/acme/reviewers/999999/").status_code == 404
    assert admin.get(f"/t/acme/reviewers/{outsider.session['_auth_user_id']}/").status_code == 404
    assert admin.post("/t/acme/reviewers/").status_code == 405


def test_a_label_filters_and_htmx_gets_the_list(browse, label):
    admin, ada = browse("admin"), browse("operator").member.user
    other, bad = label(ada, "other"), label(ada, "bad_args")
    address = f"/t/acme/reviewers/{ada.pk}/"
    part = admin.get(f"{address}?label=bad_args", headers=HTMX).text
    assert f"/calls/{bad.pk}/" in part
    assert f"/calls/{other.pk}/" not in part
    assert "<html" not in part
    assert "is no label" in admin.get(f"{address}?label=nonsense").text
    assert "None with this label" in admin.get(f"{address}?label=wrong_tool").text


def test_work_is_paged(browse, label, monkeypatch):
    monkeypatch.setattr("quality.review.reviewers.said_by.__kwdefaults__", {"labels": (), "cursor": "", "page_size": 2})
    admin, ada = browse("admin"), browse("operator").member.user
    calls = [label(ada, "other") for _ in range(5)]
    seen, address = [], f"/t/acme/reviewers/{ada.pk}/?label=other"
    while address:
        page = admin.get(address).text
        seen += map(int, re.findall(r'href="/t/acme/calls/(\d+)/"', page))
        older = re.search(r'href="(\?[^"]+)"\s+data-key="n"', page)
        address = older and f"/t/acme/reviewers/{ada.pk}/{older[1]}".replace("&amp;", "&")
    assert seen == [call.pk for call in reversed(calls)]
    assert "not one of ours" in admin.get(f"/t/acme/reviewers/{ada.pk}/?cursor=x").text


def test_what_waits_in_a_blind_queue_is_hidden_from_others(browse, label, inside):
    admin, ada = browse("admin"), browse("operator")
    call = label(ada.member.user, "bad_args", note="telltale")
    with inside():
        queue = ReviewQueue.objects.create(name="Blind", created_by=ada.member.user, is_blind=True, labels_needed=2)
        QueueEntry.objects.create(
            queue=queue, turn=call.turn, cycle=0, call=call, started_at=call.started_at, is_blind=True
        )
    address = f"/t/acme/reviewers/{ada.member.user.pk}/"
    page = admin.get(address).text
    assert "hidden: blind queue" in page
    assert "telltale" not in page
    assert "telltale" in ada.get(address).text
    assert "Waits in a blind queue: 1" in words(admin.get("/t/acme/reviewers/"))


def test_the_parts_of_a_bar_add_up():
    work = Work(user=None, labels={"other": 1, HIDDEN: 3})
    parts = segments(work)
    assert [(part.label, part.x, part.width) for part in parts if part.count] == [("other", 0, 25), (HIDDEN, 25, 75)]
    assert sum(part.width for part in segments(Work(user=None))) == 0


def test_queries_do_not_grow_with_reviewers(browse, label, django_assert_max_num_queries, django_assert_num_queries):
    admin, ada = browse("admin"), browse("operator").member.user
    label(ada, "other")
    with django_assert_max_num_queries(20) as first:
        admin.get("/t/acme/reviewers/")
    for _ in range(3):
        user = browse("operator").member.user
        label(user, "other")
        label(user, "bad_args")
    with django_assert_num_queries(len(first)):
        admin.get("/t/acme/reviewers/")
