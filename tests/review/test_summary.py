"""What reviewers found, in numbers."""

import datetime as dt
from collections.abc import Callable

from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality.calls import CallFilter
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label
from quality.review.summary import last_imports, summarise
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import LATEST, ImportFactory, ToolCallFactory, TurnFactory

PERIOD = CallFilter(since=LATEST - dt.timedelta(days=1), until=LATEST + dt.timedelta(days=1))


def seed(member: Callable[..., Membership]) -> None:
    """get_weather: 4 calls, 1 error, one outcome unknown, labels good and bad; book: 1 call, 1 error; a silent turn."""
    ada, bob = member().user, member().user
    weather = [ToolCallFactory(is_error=outcome, turn__started_at=LATEST) for outcome in (False, False, True, None)]
    ToolCallFactory(tool_name="book", is_error=True, turn__started_at=LATEST)
    ToolCallFactory(tool_name="old", is_error=True, turn__started_at=LATEST - dt.timedelta(days=60))
    record_label(item=item_of_call(weather[0].pk), reviewer=ada, label="good_reply")
    record_label(item=item_of_call(weather[1].pk), reviewer=ada, label="good_reply")
    record_label(item=item_of_call(weather[1].pk), reviewer=bob, label="bad_args")
    record_label(item=item_of_turn(TurnFactory(started_at=LATEST).pk), reviewer=ada, label="missing_tool")


def test_calls_errors_and_labels_are_counted_by_tool(tenant: Tenant, member: Callable[..., Membership]) -> None:
    with tenant_scope(tenant):
        seed(member)
        summary = summarise(PERIOD)
    assert (summary.num_calls, summary.num_errors, summary.num_turns_without_call, summary.num_labelled) == (5, 2, 1, 3)
    assert summary.labels == {"good_reply": 1, "wrong_tool": 0, "missing_tool": 1, "bad_args": 1, "other": 0}
    weather, book = summary.tools
    assert (weather.tool_name, weather.num_calls, weather.num_errors, weather.error_rate) == (
        "get_weather",
        4,
        1,
        1 / 3,
    )
    assert weather.labels == {"good_reply": 1, "bad_args": 1}
    assert (weather.num_actionable, weather.actionable_rate) == (1, 0.5)
    assert (book.tool_name, book.error_rate, book.actionable_rate) == ("book", 1.0, None)
    assert [tool.tool_name for tool in summary.top_failing] == ["get_weather", "book"]


def test_a_period_without_calls_is_all_zero(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        summary = summarise()
    assert (summary.num_calls, summary.num_labelled, summary.tools, summary.top_failing) == (0, 0, [], [])
    assert summary.until - summary.since == dt.timedelta(days=30)


def test_the_summary_takes_as_many_queries_for_many_tools_as_for_one(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
        with CaptureQueriesContext(connection) as for_one:
            summarise(PERIOD)
        for number in range(20):
            ToolCallFactory(tool_name=f"tool-{number}")
        with CaptureQueriesContext(connection) as for_many:
            assert len(summarise(PERIOD).tools) > 1
    assert len(for_one) == len(for_many) == 3


def test_the_last_imports_are_the_newest(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        made = ImportFactory.create_batch(7)
        assert [job.pk for job in last_imports()] == [job.pk for job in reversed(made[2:])]


def test_the_api_says_the_same(tenant: Tenant, member: Callable[..., Membership], api: Callable[..., Api]) -> None:
    with tenant_scope(tenant):
        seed(member)
        job = ImportFactory()
    path = "/api/admin/quality/tool-call-feedback/summary"
    body = api("read").get(path, {"from": "2026-02-28", "to": "2026-03-01"}).json()
    assert (body["numCalls"], body["numErrors"], body["numTurnsWithoutCall"], body["numLabelled"]) == (5, 2, 1, 3)
    assert body["labels"] == {"good_reply": 1, "wrong_tool": 0, "missing_tool": 1, "bad_args": 1, "other": 0}
    assert body["tools"][0] == {
        "toolName": "get_weather",
        "numCalls": 4,
        "numErrors": 1,
        "errorRate": 1 / 3,
        "numLabelled": 2,
        "numActionable": 1,
        "actionableRate": 0.5,
        "labels": {"good_reply": 1, "wrong_tool": 0, "missing_tool": 0, "bad_args": 1, "other": 0},
    }
    assert [tool["toolName"] for tool in body["topFailing"]] == ["get_weather", "book"]
    assert [found["filename"] for found in body["lastImports"]] == [job.filename]
    assert api("read").get(path, {"from": "x"}).status_code == 400
