"""Lists, counts, looks and similar calls read by index: the table of calls holds the rows of all tenants."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality import calls, rollups
from quality.calls import CallFilter
from quality.models import ToolCall
from quality.review import charts, items, similar
from quality.review.bulk import preview, scope
from quality.review.summary import hints_in, in_period
from tenants.models import Membership, Tenant, User
from tenants.scope import tenant_scope
from tests import environment
from tests.bulk import labelled_calls
from tests.conftest import _administrator

NUMBER = 20_000
FILTERS = [
    CallFilter(),
    CallFilter(tags=("rare",)),
    CallFilter(tags=("common",), tools=("tool-3",)),
    CallFilter(tags=("absent",)),
    CallFilter(archived="yes"),
    CallFilter(archived="any"),
    CallFilter(labels=("none",)),
    CallFilter(contact="contact-7"),
    CallFilter(contact="nobody"),
    CallFilter(message="none"),
    CallFilter(outbound_message="none"),
    CallFilter(error="none"),
]


@pytest.fixture
def crowded(tenant: Tenant, member: Callable[..., Membership]) -> User:
    """Many calls, every fourth with a review, some archived, some tagged; with statistics."""
    ada = member().user
    with tenant_scope(tenant):
        labelled_calls(NUMBER, ada, result_bytes=32)
        with connection.cursor() as cursor:
            asked = {"tenant": tenant.pk, "ada": ada.pk}
            cursor.execute(
                "INSERT INTO agent_tool_call_reviews (tenant_id, turn_id, cycle, call_id, version, label, num_labels, "
                "tool_name, started_at, updated_at, archived_at) SELECT tenant_id, turn_id, cycle, id, 1, "
                "CASE WHEN id %% 3 = 0 THEN 'other' END, 1, tool_name, started_at, now(), "
                "CASE WHEN id %% 40 = 0 THEN now() END FROM agent_tool_calls "
                "WHERE tenant_id = %(tenant)s AND id %% 4 = 0",
                asked,
            )
            for tag, share in (("rare", NUMBER // 4), ("common", 5)):
                cursor.execute(
                    "INSERT INTO agent_tool_call_tags (tenant_id, turn_id, cycle, call_id, tag, started_at, by_id, at) "
                    "SELECT tenant_id, turn_id, cycle, id, %(tag)s, started_at, %(ada)s, now() FROM agent_tool_calls "
                    "WHERE tenant_id = %(tenant)s AND id %% %(share)s = 0",
                    asked | {"tag": tag, "share": share},
                )
    with _administrator(environment.DATABASE) as admin:
        admin.execute("VACUUM ANALYZE")
    return ada


def whole_reads(asked: Callable[[], Any]) -> list[str]:
    """Plans, of what this asks, that read the table of calls from end to end."""
    with CaptureQueriesContext(connection) as seen:
        asked()
    plans = []
    for query in seen.captured_queries:
        if query["sql"].lstrip().startswith(("SELECT", "WITH")):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {query['sql']}")
                plans.append("\n".join(line for (line,) in cursor.fetchall()))
    return [plan for plan in plans if "Seq Scan on agent_tool_calls" in plan]


def test_no_list_reads_the_table_of_calls_from_end_to_end(tenant: Tenant, crowded: User) -> None:
    with tenant_scope(tenant):
        newest = ToolCall.objects.order_by("-started_at").values_list("pk", flat=True)[0]
        looks: list[Callable[[], Any]] = [
            lambda: similar.find(newest, user=crowded),
            calls.tag_names,
            calls.hint_counts,
        ]
        period = in_period(CallFilter(since=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), tools=("tool-3",)))
        looks += [lambda: hints_in(period)]
        for wanted in FILTERS:
            looks += [
                lambda wanted=wanted: calls.find(wanted),
                lambda wanted=wanted: calls.count(wanted),
                lambda wanted=wanted: items.items_after(None, wanted, limit=16),
            ]
        for asked in looks:
            assert whole_reads(asked) == []


@pytest.mark.parametrize("wanted", [CallFilter(style="nobody's"), CallFilter(model="none"), CallFilter(source="none")])
def test_of_a_name_that_no_call_has_no_call_is_read(tenant: Tenant, crowded: User, wanted: CallFilter) -> None:
    with tenant_scope(tenant):
        while rollups.count_marked():
            pass
        with CaptureQueriesContext(connection) as seen:
            assert calls.find(wanted).rows == []
            assert calls.count(wanted) == 0
        for query in seen.captured_queries:
            if '"agent_tool_calls"' in query["sql"]:
                with connection.cursor() as cursor:
                    cursor.execute(f"EXPLAIN (ANALYZE) {query['sql']}")
                    plan = "\n".join(line for (line,) in cursor.fetchall())
                scans = [line for line in plan.splitlines() if "on agent_tool_calls" in line]
                assert all("never executed" in line for line in scans), plan


def test_a_look_at_all_calls_goes_by_the_index(tenant: Tenant, crowded: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with tenant_scope(tenant):
        action = preview.make(kind="label", by=crowded, wanted=CallFilter())
        with CaptureQueriesContext(connection) as seen:
            assert scope.look(action).count == NUMBER - NUMBER // 40
        (look,) = [
            query["sql"] for query in seen.captured_queries if query["sql"].startswith('SELECT "agent_tool_calls"')
        ]
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {look}")
            assert "Seq Scan on agent_tool_calls" not in "\n".join(line for (line,) in cursor.fetchall())
        off, on = [query["sql"] for query in seen.captured_queries if "enable_seqscan" in query["sql"]]
        assert off.endswith("off")
        assert on.endswith("DEFAULT")


def test_a_call_counted_by_the_hour_is_read_by_the_hour(tenant: Tenant, crowded: User) -> None:
    """A period that ends within an hour counts the calls of that hour alone, whatever the planner knows of it."""
    with tenant_scope(tenant):
        newest = ToolCall.objects.order_by("-started_at").values_list("started_at", flat=True)[0]
        while rollups.count_marked():
            pass
        period = CallFilter(since=newest - dt.timedelta(hours=5), until=newest - dt.timedelta(minutes=7))
        with CaptureQueriesContext(connection) as seen:
            rollups.by_day(period, by="tool_name")
        assert len(seen) == 1
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN {seen.captured_queries[0]['sql']}")
            assert "Seq Scan on agent_tool_calls" not in "\n".join(line for (line,) in cursor.fetchall())


def test_charts_count_calls_once(tenant: Tenant, crowded: User) -> None:
    with tenant_scope(tenant):
        day = ToolCall.objects.order_by("started_at").values_list("started_at", flat=True)[0].date()
        asked = charts.Asked(first=day, last=day, calls=CallFilter())
        with CaptureQueriesContext(connection) as seen:
            volume, errors = charts.volume(asked), charts.errors(asked)
        assert len(seen) == 1
        assert {one.key for one in errors.series} <= {f"tool-{number}" for number in range(7)}
        assert sum(sum(one.values) for one in volume.series) == NUMBER  # type: ignore[arg-type]


def test_time_to_label_is_one_query_however_many_pieces(tenant: Tenant, crowded: User) -> None:
    with tenant_scope(tenant):
        day = ToolCall.objects.order_by("started_at").values_list("started_at", flat=True)[0].date()
        asked = charts.Asked(first=day - dt.timedelta(days=29), last=day, calls=CallFilter())
        with CaptureQueriesContext(connection) as seen:
            chart = charts.time_to_label(asked)
        assert len(seen) == 1
        assert [one.ns for one in chart.series] == [(*[0] * 29, NUMBER // 4)] * 2
