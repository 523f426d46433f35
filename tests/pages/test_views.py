"""Saved views: tabs over a list, shared or one's own."""

import pytest

from quality.models import SavedView
from tests.pages.conftest import HTMX


def save(client, name, query="tool=get_weather", page="calls", **more):
    return client.post("/t/acme/views/save/", {"page": page, "name": name, "query": query, **more})


def pk_of(inside, name):
    with inside():
        return SavedView.objects.get(name=name).pk


def test_a_filter_is_saved_opened_and_spelled_out_in_the_address(browse, make_call, inside):
    make_call(tool_name="get_weather")
    make_call(tool_name="get_time")
    ada = browse("viewer")
    response = save(ada, "Weather", "tool=get_weather&error=no&cursor=abc&view=9")
    pk = pk_of(inside, "Weather")
    assert response["Location"] == f"/t/acme/calls/?view={pk}"
    opened = ada.get(f"/t/acme/calls/?view={pk}")
    assert opened["Location"] == f"/t/acme/calls/?tool=get_weather&error=no&view={pk}"
    page = ada.get(opened["Location"])
    assert "get_weather</bdi></a>" in page.text
    assert "get_time</bdi></a>" not in page.text
    assert "Update to this filter" not in page.text
    changed = ada.get(f"/t/acme/calls/?tool=get_time&view={pk}")
    assert "Update to this filter" in changed.text
    ada.post(f"/t/acme/views/{pk}/update/", {"query": "tool=get_time"})
    assert ada.get(f"/t/acme/calls/?view={pk}")["Location"] == f"/t/acme/calls/?tool=get_time&view={pk}"


def test_the_tab_stays_while_the_filter_changes(browse, make_call, inside):
    make_call()
    ada = browse("viewer")
    save(ada, "Weather")
    pk = pk_of(inside, "Weather")
    page = ada.get(f"/t/acme/calls/?tool=get_weather&view={pk}")
    assert f'<input type="hidden" name="view" value="{pk}">' in page.text
    assert f'href="?view={pk}"' in page.text  # the chip without its condition
    part = ada.get(f"/t/acme/calls/?error=no&view={pk}", headers=HTMX)
    assert part["HX-Push-Url"] == f"/t/acme/calls/?error=no&view={pk}"
    assert "Update to this filter" in part.text


def test_a_view_of_its_owner_is_nobody_elses_until_it_is_shared(browse, make_call, inside, outsider):
    make_call()
    ada, bob, admin = browse("operator", user__name="Ada"), browse("operator"), browse("admin")
    save(ada, "Mine")
    pk = pk_of(inside, "Mine")
    gone = bob.get(f"/t/acme/calls/?view={pk}", follow=True)
    assert "There is no such view" in gone.text
    assert "Mine" not in bob.get("/t/acme/calls/").text
    assert bob.post(f"/t/acme/views/{pk}/rename/", {"name": "Theirs"}).status_code == 404
    ada.post(f"/t/acme/views/{pk}/share/")
    page = bob.get(f"/t/acme/calls/?view={pk}", follow=True)
    assert "Shared by Ada" in page.text
    assert bob.post(f"/t/acme/views/{pk}/rename/", {"name": "Theirs"}).status_code == 403
    assert bob.post(f"/t/acme/views/{pk}/delete/").status_code == 403
    assert outsider.post(f"/t/acme/views/{pk}/delete/").status_code == 404
    assert admin.post(f"/t/acme/views/{pk}/rename/", {"name": "Ours"}).status_code == 302
    assert "Ours" in bob.get("/t/acme/calls/").text


def test_viewers_keep_views_and_share_none(browse, inside):
    viewer = browse("viewer")
    assert save(viewer, "Own").status_code == 302
    assert save(viewer, "All", shared="1").status_code == 403
    assert viewer.post(f"/t/acme/views/{pk_of(inside, 'Own')}/share/").status_code == 403


def test_deleting_is_undone(browse, make_call, inside):
    make_call()
    ada = browse("operator")
    save(ada, "Weather", shared="1")
    pk = pk_of(inside, "Weather")
    page = ada.post(f"/t/acme/views/{pk}/delete/", follow=True)
    assert "was deleted" in page.text
    assert "Weather" not in ada.get("/t/acme/calls/").text
    save(ada, "Weather", "tool=other")  # the name is free again
    ada.post(f"/t/acme/views/{pk}/restore/")
    with inside():
        assert sorted(SavedView.objects.filter(deleted_at=None).values_list("name", flat=True)) == [
            "Weather",
            "Weather (2)",
        ]


@pytest.mark.parametrize(
    "query", ["hint=gone_rule&tool=get_weather", "colour=red&tool=get_weather", "from=x&tool=get_weather"]
)
def test_what_is_no_filter_any_more_is_told_and_the_rest_works(browse, make_call, inside, query):
    make_call(tool_name="get_weather")
    make_call(tool_name="get_time")
    ada = browse("viewer")
    save(ada, "Old")
    with inside():
        SavedView.objects.update(query=query)
    page = ada.get(f"/t/acme/calls/?view={pk_of(inside, 'Old')}", follow=True)
    assert query.partition("&")[0] in page.text.replace("&#x27;", "'")
    assert "no filter any more" in page.text
    assert "get_weather</bdi></a>" in page.text
    assert "get_time</bdi></a>" not in page.text


def test_a_list_begins_with_the_view_that_each_chose(browse, make_call, inside):
    make_call(tool_name="get_weather")
    ada, bob = browse("operator"), browse("operator")
    save(ada, "Weather", shared="1")
    pk = pk_of(inside, "Weather")
    ada.post(f"/t/acme/views/{pk}/begin/")
    assert ada.get("/t/acme/calls/")["Location"] == f"/t/acme/calls/?tool=get_weather&view={pk}"
    assert bob.get("/t/acme/calls/").status_code == 200
    page = ada.get(f"/t/acme/calls/?tool=get_weather&view={pk}")
    assert 'href="/t/acme/calls/?view=none"' in page.text
    assert ada.get("/t/acme/calls/?view=none").status_code == 200
    bob.post(f"/t/acme/views/{pk}/begin/")
    ada.post(f"/t/acme/views/{pk}/unshare/")
    assert bob.get("/t/acme/calls/").status_code == 200
    ada.post(f"/t/acme/views/{pk}/not-begin/")
    assert ada.get("/t/acme/calls/").status_code == 200


def test_names_are_asked_for_and_told_apart(browse, inside):
    ada, bob = browse("operator"), browse("operator")
    save(ada, "Weather")
    assert "You have a view of this name already" in ada.get(save(ada, " Weather ")["Location"]).text
    assert "Give the view a name" in ada.get(save(ada, "  ")["Location"]).text
    assert "Weather" in bob.get(save(bob, "Weather")["Location"], follow=True).text


def test_turns_and_review_have_views_of_their_own(browse, make_call, inside):
    make_call()
    ada = browse("operator")
    save(ada, "Ours", "ours=1&tool=x", page="turns")
    save(ada, "Failed", "error=yes", page="review")
    turns, review = pk_of(inside, "Ours"), pk_of(inside, "Failed")
    assert ada.get(f"/t/acme/turns/?view={turns}")["Location"] == f"/t/acme/turns/?ours=1&view={turns}"
    assert "Ours" in ada.get("/t/acme/turns/").text
    assert ada.get(f"/t/acme/review/?view={review}")["Location"] == f"/t/acme/review/?error=yes&view={review}"
    assert "Failed</bdi>" in ada.get("/t/acme/review/").text
    listed = ada.get("/t/acme/views/").text
    assert "Ours" in listed
    assert "Failed" in listed
    assert save(ada, "x", page="cases").status_code == 404


def test_a_view_of_which_nothing_is_understood_any_more_shows_the_list_and_says_so(browse, make_call, inside):
    make_call(tool_name="get_weather")
    ada = browse("viewer")
    save(ada, "Weather")
    pk = pk_of(inside, "Weather")
    ada.post(f"/t/acme/views/{pk}/begin/")
    with inside():
        SavedView.objects.filter(pk=pk).update(query="was_a_filter=1")
    for address in (f"/t/acme/calls/?view={pk}", "/t/acme/calls/"):
        page = ada.get(address, follow=True)
        assert page.status_code == 200
        assert "get_weather</bdi></a>" in page.text
        assert page.text.count("is no filter any more") == 1
