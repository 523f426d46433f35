"""Choosing calls in the list, the preview, the report, the undo."""

import re

import pytest

from quality.models import BulkAction, Feedback, ItemTag, Review
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tests.pages.conftest import HTMX


def begin(client, kind, **chosen):
    """The preview of an action, as the buttons of the list order it; the address and the page."""
    response = client.post("/t/acme/bulk/look/", {"kind": kind, **chosen})
    assert response.status_code == 302, response.text
    return response["Location"], client.get(response["Location"])


def seen(page):
    return re.search(r'name="seen"\s+value="([0-9a-f]{64})"', page.text)[1]


def test_calls_are_chosen_looked_at_labelled_and_the_whole_is_undone(browse, make_call, inside):
    made = [make_call(tool_name=f"tool-{number}") for number in range(4)]
    operator = browse("operator")
    listed = operator.get("/t/acme/calls/")
    assert listed.text.count("data-select-row") == 4
    assert 'action="/t/acme/bulk/look/"' in listed.text
    with inside():
        record_label(item=item_of_call(made[3].pk), reviewer=operator.member.user, label="good_reply")
    address, page = begin(operator, "label", call=[call.pk for call in made[1:]])
    assert '<strong class="bulk-number">3</strong>' in page.text
    assert "1 labelled by you already" in page.text
    assert "Label: 2 calls" in page.text
    assert "tool-1" in page.text
    sent = {"seen": seen(page), "label": "wrong_tool", "reason": "Route 7 was switched off", "note": "See the log"}
    done = operator.post(f"{address}confirm/", sent, follow=True)
    assert "Undo all of it" in done.text
    assert "You had labelled it already." in done.text
    with inside():
        assert sorted(Feedback.objects.filter(label="wrong_tool").values_list("call_id", flat=True)) == sorted(
            call.pk for call in made[1:3]
        )
    assert "Route 7 was switched off" in operator.get("/t/acme/bulk/").text
    undone = operator.post(f"{address}undo/", follow=True)
    assert "Undone by" in undone.text
    with inside():
        assert set(Feedback.objects.values_list("label", flat=True)) == {"good_reply"}


def test_all_that_match_is_told_in_words_and_frozen(browse, make_call, inside):
    for name in ("get_weather", "get_weather", "get_time"):
        make_call(tool_name=name)
    operator = browse("operator")
    address, page = begin(operator, "tag", all="1", query="tool=get_weather&cursor=x&view=3")
    assert '<strong class="bulk-number">2</strong>' in page.text
    assert re.search(r"tool</span>\s*<bdi>get_weather</bdi>", page.text)
    assert "what comes in later is not meant" in page.text
    make_call(tool_name="get_weather")
    response = operator.post(f"{address}confirm/", {"seen": seen(page), "tag": "rain"}, follow=True)
    assert response.status_code == 200
    with inside():
        assert ItemTag.objects.filter(tag="rain").count() == 2
    assert "rain" in operator.get("/t/acme/calls/?tag=rain").text
    assert operator.get("/t/acme/calls/?tag=rain").text.count("data-select-row") == 2


def test_a_preview_that_has_gone_stale_is_shown_afresh(browse, make_call, inside, member):
    calls = [make_call() for _ in range(2)]
    operator = browse("operator")
    address, page = begin(operator, "label", all="1", query="label=none")
    with inside():
        record_label(item=item_of_call(calls[0].pk), reviewer=member().user, label="other")
    sent = {"seen": seen(page), "label": "bad_args", "reason": "because"}
    refused = operator.post(f"{address}confirm/", sent)
    assert refused.status_code == 409
    assert "there were 2 calls, there are 1 now" in refused.text
    assert 'value="because"' in refused.text
    assert operator.post(f"{address}confirm/", sent | {"seen": seen(refused)}).status_code == 302
    with inside():
        assert Feedback.objects.filter(label="bad_args").count() == 1


def test_what_is_missing_is_told_where_it_is_asked_for(browse, make_call):
    make_call()
    operator = browse("operator")
    address, page = begin(operator, "label", all="1", query="")
    refused = operator.post(f"{address}confirm/", {"seen": seen(page), "label": "bad_args"})
    assert refused.status_code == 400
    assert "Say why all of these get the same label" in refused.text
    assert operator.post(f"{address}confirm/", {"label": "bad_args", "reason": "x"}).status_code == 400


def test_nothing_chosen_is_told_in_the_list(browse, make_call):
    make_call()
    operator = browse("operator")
    response = operator.post("/t/acme/bulk/look/", {"kind": "archive", "query": "tool=get_weather"}, follow=True)
    assert response.redirect_chain == [("/t/acme/calls/?tool=get_weather", 302)]
    assert "Choose calls" in response.text


def test_the_archive_leaves_the_list_and_comes_back(browse, make_call, inside):
    call = make_call(tool_name="old_tool")
    make_call(tool_name="new_tool")
    operator = browse("operator")
    address, page = begin(operator, "archive", call=[call.pk])
    operator.post(f"{address}confirm/", {"seen": seen(page)})
    assert "old_tool</bdi></a>" not in operator.get("/t/acme/calls/").text
    shown = operator.get("/t/acme/calls/?archived=yes")
    assert "old_tool</bdi></a>" in shown.text
    assert "new_tool</bdi></a>" not in shown.text
    address, page = begin(operator, "restore", all="1", query="archived=yes")
    operator.post(f"{address}confirm/", {"seen": seen(page)})
    with inside():
        assert not Review.objects.filter(archived_at__isnull=False).exists()


def test_a_tag_changes_what_the_preview_says(browse, make_call):
    call = make_call()
    make_call()
    operator = browse("operator")
    address, page = begin(operator, "tag", call=[call.pk])
    operator.post(f"{address}confirm/", {"seen": seen(page), "tag": "rain"})
    address, page = begin(operator, "tag", all="1")
    part = operator.get(f"{address}progress/?tag=rain", headers=HTMX)
    assert "<html" not in part.text
    assert "1 with the tag already" in part.text
    assert "Tag: 1 call" in part.text


def test_who_may_what(browse, make_call, outsider):
    call = make_call()
    viewer, operator, other, admin = browse("viewer"), browse("operator"), browse("operator"), browse("admin")
    assert "data-select-row" not in viewer.get("/t/acme/calls/").text
    assert viewer.post("/t/acme/bulk/look/", {"kind": "archive", "call": [call.pk]}).status_code == 403
    address, page = begin(operator, "archive", call=[call.pk])
    for client in (viewer, other, admin, outsider):
        assert client.get(address).status_code == 404
    assert other.post(f"{address}confirm/", {"seen": seen(page)}).status_code == 404
    operator.post(f"{address}confirm/", {"seen": seen(page)})
    assert viewer.get(address).status_code == 200
    assert "Undo all of it" not in viewer.get(address).text
    assert "Undo all of it" not in other.get(address).text
    assert "Undo all of it" in admin.get(address).text
    assert outsider.get(address).status_code == 404
    assert outsider.post(f"{address}undo/").status_code == 404


@pytest.mark.parametrize("kind", ["delete", ""])
def test_another_kind_does_not_exist(browse, make_call, kind):
    call = make_call()
    assert browse("operator").post("/t/acme/bulk/look/", {"kind": kind, "call": [call.pk]}).status_code == 404


def test_the_empty_page_teaches(browse):
    assert "Choose calls in the list" in browse("operator").get("/t/acme/bulk/").text


def test_a_preview_waits_in_the_list_of_its_maker(browse, make_call, inside):
    make_call()
    operator, other = browse("operator"), browse("operator")
    begin(operator, "archive", all="1")
    assert "a preview of 1 call waits for you" in operator.get("/t/acme/bulk/").text
    assert "waits for you" not in other.get("/t/acme/bulk/").text
    with inside():
        assert BulkAction.objects.count() == 1
