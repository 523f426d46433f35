"""The list of calls."""

import re

import pytest

from quality.models import Label
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tests.pages.conftest import HTMX


def tools(response):
    return re.findall(r"data-row[^>]*><bdi>([^<]*)</bdi>", response.text)


def test_calls_are_listed_newest_first_with_what_tells_them_apart(browse, make_call):
    make_call(tool_name="newest", args='{"city":"Zürich","n":1.50,"a":1,"b":2,"c":3}')
    make_call(tool_name="older", is_error=True)
    response = browse("viewer").get("/t/acme/calls/")
    assert tools(response) == ["newest", "older"]
    assert "Zürich" in response.text
    assert "1.50" in response.text
    assert "<bdi>c</bdi>" not in response.text  # four pairs at most
    assert response.text.count('class="tag error"') == 1
    assert "unlabelled" in response.text


def test_the_filter_is_the_address(browse, make_call, inside):
    operator = browse("operator")
    good = make_call(tool_name="get_weather", model="a")
    make_call(tool_name="get_weather", is_error=True, model="b")
    make_call(tool_name="get_time", conversation_id="talk-1")
    with inside():
        record_label(item=item_of_call(good.pk), reviewer=operator.member.user, label=Label.WRONG_TOOL)
    for query, expected in {
        "tool=get_time": 1, "tool=get_weather": 2, "tool=get_weather&tool=get_time": 3, "error=yes": 1,
        "error=no": 2, "label=wrong_tool": 1, "label=none": 2, "conversation=talk-1": 1, "model=b": 1,
        "from=2100-01-01": 0, "to=2100-01-01": 3, "source=openai_chat": 3, "source=other": 0,
    }.items():  # fmt: skip
        response = operator.get(f"/t/acme/calls/?{query}")
        assert len(tools(response)) == expected, query
    assert "Wrong tool" in operator.get("/t/acme/calls/?label=wrong_tool").text


def test_each_condition_can_be_taken_away(browse, make_call):
    make_call()
    response = browse("viewer").get("/t/acme/calls/?tool=get_weather&error=no&tool=other")
    for rest in ("tool=other&amp;error=no", "tool=get_weather&amp;error=no", "tool=get_weather&amp;tool=other"):
        assert f'href="?{rest}"' in response.text


def test_pages_follow_one_another_without_a_gap(browse, make_call):
    for number in range(5):
        make_call(tool_name=f"tool-{number}")
    client = browse("viewer")
    seen, address = [], "?page_size=2"
    while address:
        response = client.get(f"/t/acme/calls/{address}")
        seen.append(tools(response))
        found = re.search(r'href="(\?[^"]*)"\s+data-key="n"', response.text)
        address = f"{found[1]}&page_size=2".replace("&amp;", "&") if found else ""
    assert seen == [["tool-0", "tool-1"], ["tool-2", "tool-3"], ["tool-4"]]


def test_htmx_gets_the_list_alone_and_a_clean_address(browse, make_call):
    make_call()
    response = browse("viewer").get("/t/acme/calls/?tool=get_weather&label=&error=", headers=HTMX)
    assert "<html" not in response.text
    assert 'id="list"' in response.text
    assert response.headers["HX-Push-Url"] == "/t/acme/calls/?tool=get_weather"
    assert "HX-Request" in response.headers["Vary"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("error=perhaps", "error: Select a valid choice"),
        ("label=splendid", "label: &#x27;splendid&#x27; is no label"),
        ("from=yesterday", "from: &#x27;yesterday&#x27; is no time"),
        ("cursor=nonsense", "cursor: This cursor is not one of ours"),
        ("page_size=100000", "page_size:"),
    ],
)
def test_a_bad_filter_is_told_back_and_shows_no_rows(browse, make_call, query, words):
    make_call()
    response = browse("viewer").get(f"/t/acme/calls/?{query}")
    assert response.status_code == 200
    assert words in response.text.replace("<bdi>", "")
    assert tools(response) == []


def test_a_misspelled_filter_is_told(browse, make_call):
    make_call()
    assert "Not a filter, and not used: <bdi>tols</bdi>" in browse("viewer").get("/t/acme/calls/?tols=x").text


def test_an_empty_list_says_what_to_do_next(browse, make_call):
    operator, viewer = browse("operator"), browse("viewer")
    assert "No calls yet" in operator.get("/t/acme/calls/").text
    assert "Import traces" in operator.get("/t/acme/calls/").text
    assert "Import traces" not in viewer.get("/t/acme/calls/").text
    make_call()
    assert "No call matches" in operator.get("/t/acme/calls/?tool=nobody").text


def test_a_list_takes_as_many_queries_for_twenty_rows_as_for_one(
    browse, make_call, django_assert_max_num_queries, django_assert_num_queries
):
    client = browse("viewer")
    make_call()
    with django_assert_max_num_queries(27) as first:
        client.get("/t/acme/calls/")
    for _ in range(19):
        make_call()
    with django_assert_num_queries(len(first.captured_queries)) as again:
        assert len(tools(client.get("/t/acme/calls/"))) == 20
    payload = [query["sql"] for query in again.captured_queries if '."result"' in query["sql"]]
    assert payload == []


def test_what_models_wrote_is_inert_in_a_line(browse, make_call):
    make_call(tool_name="<img src=x>", args='{"a":"<script>alert(1)</script>","b\\u202e":"x\\u200b"}')
    page = browse("viewer").get("/t/acme/calls/").text
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert 'title="U+202E right-to-left override">RLO</span>' in page
    assert ">ZWSP</span>" in page


def test_a_call_whose_source_gave_no_time_says_so(browse, make_call):
    call = make_call(time_recorded=False, turn__time_recorded=False)
    client = browse("viewer")
    assert "no time" in client.get("/t/acme/calls/").text
    assert "no time" in client.get(f"/t/acme/calls/{call.pk}/").text
