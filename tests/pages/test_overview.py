"""The overview."""

import datetime as dt
import re

import pytest
from django.utils import timezone

from quality.models import Label
from quality.pages.overview import chart, segments
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.summary import ToolSummary
from tests.factories import ImportFactory


def words(response):
    return " ".join(re.sub("<[^>]*>", " ", response.text).split())


@pytest.fixture
def recent(make_call):
    """`recent(days=1, …)`: a call of some days ago."""
    return lambda days=1, **fields: make_call(turn__started_at=timezone.now() - dt.timedelta(days=days), **fields)


def test_an_empty_tenant_is_told_how_to_start(browse):
    assert "Import traces" in browse("operator").get("/t/acme/").text
    assert "An operator or admin can import." in browse("viewer").get("/t/acme/").text


def test_numbers_are_those_of_the_period_and_lead_to_their_calls(browse, recent, inside):
    operator = browse("operator")
    call = recent(tool_name="get_weather")
    recent(tool_name="get_weather", is_error=True)
    recent(tool_name="get_time")
    recent(days=60, tool_name="long_ago")
    with inside():
        record_label(item=item_of_call(call.pk), reviewer=operator.member.user, label=Label.WRONG_TOOL)
    response = operator.get("/t/acme/")
    text = words(response)
    for expected in ("Calls 3 ", "Turns 3 ", "Errors 1 33 %", "Labelled calls 1 33 %", "Still to judge 2 "):
        assert expected in text
    assert "long_ago" not in text.partition("Calls per day")[2]  # its filter offers every tool
    assert "get_weather 2 1 50 % 50 %" in text
    first = (timezone.localdate() - dt.timedelta(days=29)).isoformat()
    for query in ("error=yes", "label=none", "tool=get_weather", "tool=get_weather&amp;label=wrong_tool"):
        assert f'href="/t/acme/calls/?from={first}&amp;{query}"' in response.text.replace("&tool", "&amp;tool")


def test_a_number_and_the_list_behind_it_agree(browse, recent):
    recent()
    recent(is_error=True)
    client = browse("viewer")
    page = client.get("/t/acme/").text
    for link, number in re.findall(r'<dd>\s*<a href="([^"]+)">(\d+)</a>', page):
        rows = len(re.findall(r"data-row\s", client.get(link.replace("&amp;", "&")).text))
        assert rows == int(number), link


def test_a_longer_period_has_more(browse, recent):
    recent(days=60)
    client = browse("viewer")
    assert "Nothing in the last 30 days" in client.get("/t/acme/").text
    assert "Calls 1 " in words(client.get("/t/acme/?days=90"))
    assert "Nothing in the last 30 days" in client.get("/t/acme/?days=9999999").text


def test_last_imports_are_listed(browse, inside):
    with inside():
        ImportFactory(filename="friday.jsonl")
    assert "friday.jsonl" in browse("viewer").get("/t/acme/").text


def test_it_takes_as_many_queries_for_twenty_tools_as_for_one(
    browse, recent, django_assert_max_num_queries, django_assert_num_queries
):
    client = browse("viewer")
    recent()
    with django_assert_max_num_queries(26) as first:
        client.get("/t/acme/")
    for number in range(19):
        recent(tool_name=f"tool-{number}")
    with django_assert_num_queries(len(first.captured_queries)):
        assert "tool-18" in client.get("/t/acme/").text


def test_bars_fill_the_chart_by_their_share_of_the_highest_day():
    first = dt.date(2026, 3, 1)
    drawn = chart({first: (10, 5), first + dt.timedelta(days=2): (5, 0)}, first, first + dt.timedelta(days=3))
    assert [(bar.height, bar.error_height) for bar in drawn["bars"]] == [(96, 48), (0, 0), (48, 0), (0, 0)]
    assert drawn["top"] == 10
    assert drawn["bars"][-1].x + drawn["bars"][-1].width <= drawn["width"]


def test_an_empty_chart_has_no_bars():
    day = dt.date(2026, 3, 1)
    assert [bar.height for bar in chart({}, day, day)["bars"]] == [0]


def test_segments_of_a_tool_fill_its_bar():
    parts = segments(ToolSummary(tool_name="t", labels={"good_reply": 3, "bad_args": 1}))
    assert [(part.label, part.x, part.width) for part in parts if part.width] == [
        ("good_reply", 0, 75), ("bad_args", 75, 25),
    ]  # fmt: skip
    assert not any(part.width for part in segments(ToolSummary(tool_name="t")))
