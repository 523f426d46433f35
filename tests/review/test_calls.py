"""Lists of calls: filters, pages, counts."""

import datetime as dt
from collections.abc import Callable

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from quality import calls
from quality.calls import CallFilter, Cursor
from quality.filters import CallFilterForm, CallListForm
from quality.models import ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.factories import LATEST, ToolCallFactory, TurnFactory


def ids(wanted: CallFilter) -> list[int]:
    return [row.id for row in calls.find(wanted).rows]


def read_all(wanted: CallFilter, page_size: int) -> list[list[int]]:
    pages, cursor = [], None
    while len(pages) < 20:
        page = calls.find(wanted, cursor=cursor, page_size=page_size)
        pages.append([row.id for row in page.rows])
        if page.next is None:
            return pages
        cursor = Cursor.read(page.next)
    raise AssertionError("The pages do not end.")


def test_pages_show_each_call_once_newest_first(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        made = [ToolCallFactory(started_at=LATEST - dt.timedelta(seconds=n // 3)) for n in range(7)]
        expected = [call.pk for call in sorted(made, key=lambda call: (call.started_at, call.pk), reverse=True)]
        assert read_all(CallFilter(), 3) == [expected[0:3], expected[3:6], expected[6:]]
        assert read_all(CallFilter(), 7) == [expected]


def test_previous_pages_lead_back_to_the_first(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        ToolCallFactory.create_batch(7)
        first = calls.find(CallFilter(), page_size=3)
        assert first.previous is None
        assert first.next
        second = calls.find(CallFilter(), cursor=Cursor.read(first.next), page_size=3)
        assert second.next
        third = calls.find(CallFilter(), cursor=Cursor.read(second.next), page_size=3)
        assert third.next is None
        assert third.previous
        back = calls.find(CallFilter(), cursor=Cursor.read(third.previous), page_size=3)
        assert back.rows == second.rows
        assert back.previous
        start = calls.find(CallFilter(), cursor=Cursor.read(back.previous), page_size=3)
        assert (start.rows, start.previous, start.next) == (first.rows, None, first.next)


def test_new_calls_do_not_shift_the_pages(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        made = ToolCallFactory.create_batch(4)
        first = calls.find(CallFilter(), page_size=2)
        ToolCallFactory(started_at=LATEST + dt.timedelta(hours=1))
        assert first.next
        second = calls.find(CallFilter(), cursor=Cursor.read(first.next), page_size=2)
        assert [row.id for row in second.rows] == [made[2].pk, made[3].pk]


@pytest.mark.parametrize(
    "text", ["", "x", "!!", "MW4=", "MW4yMDI2LTAzLTAxLzE", "Mm4yMDI2LTAzLTAxVDAwOjAwOjAwKzAwOjAwLzE", "ü"]
)
def test_a_cursor_of_somebody_elses_making_is_refused(text: str) -> None:
    with pytest.raises(calls.BadCursor):
        Cursor.read(text)


def test_each_filter_keeps_what_it_names(tenant: Tenant, member: Callable[..., Membership]) -> None:
    reviewer = member().user
    with tenant_scope(tenant):
        turn = TurnFactory(source="otlp", model="big", style_id="terse", contact_id="c-9", conversation_id="conv")
        wanted = ToolCallFactory(
            turn=turn, tool_name="book", is_error=True, message_id="m-1", outbound_message_id="o-1"
        )
        worked, unknown = ToolCallFactory(), ToolCallFactory(is_error=None)
        record_label(item=item_of_call(wanted.pk), reviewer=reviewer, label="bad_args")
        record_label(item=item_of_call(worked.pk), reviewer=reviewer, label="good_reply")
        only = [
            CallFilter(source="otlp"),
            CallFilter(model="big"),
            CallFilter(style="terse"),
            CallFilter(contact="c-9"),
            CallFilter(conversation="conv"),
            CallFilter(message="m-1"),
            CallFilter(outbound_message="o-1"),
            CallFilter(tools=("book", "cancel")),
            CallFilter(error="yes"),
            CallFilter(labels=("bad_args",)),
            CallFilter(since=turn.started_at),
            CallFilter(tools=("book",), error="yes", labels=("bad_args",), source="otlp"),
        ]
        for one in only:
            assert ids(one) == [wanted.pk], one
        assert ids(CallFilter(error="no")) == [worked.pk]
        assert ids(CallFilter(error="none")) == [unknown.pk]
        assert ids(CallFilter(labels=("none",))) == [unknown.pk]
        assert ids(CallFilter(labels=("none", "good_reply"))) == [worked.pk, unknown.pk]
        assert ids(CallFilter(until=turn.started_at)) == [worked.pk, unknown.pk]
        assert ids(CallFilter(tools=("book",), error="no")) == []


def test_rows_carry_the_label_and_a_bounded_preview(tenant: Tenant, member: Callable[..., Membership]) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory(args='{"text": "' + "ü" * 5000 + '"}')
        record_label(item=item_of_call(call.pk), reviewer=member().user, label="bad_args")
        (row,) = calls.find(CallFilter()).rows
        assert (row.label, row.num_labels) == ("bad_args", 1)
        assert row.args_preview == call.args[:200]


def test_lists_never_read_evidence_and_take_four_queries(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
        with CaptureQueriesContext(connection) as for_one:
            calls.find(CallFilter())
        ToolCallFactory.create_batch(19)
        with CaptureQueriesContext(connection) as for_twenty:
            assert len(calls.find(CallFilter()).rows) == 20
    assert len(for_one) == len(for_twenty) == 4
    for query in for_twenty.captured_queries:
        assert '"result"' not in query["sql"]
        assert query["sql"].count('"args"') <= 1


def test_counts_stop_at_the_cap(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "COUNT_CAP", 3)
    with tenant_scope(tenant):
        ToolCallFactory.create_batch(3)
        assert calls.count(CallFilter()) == 3
        ToolCallFactory.create_batch(5)
        assert calls.count(CallFilter()) == 4
        assert calls.count(CallFilter(tools=("nothing",))) == 0


def test_names_of_tools_and_sources_come_from_this_tenant_alone(tenant: Tenant, other_tenant: Tenant) -> None:
    with tenant_scope(other_tenant):
        ToolCallFactory(tool_name="secret")
    with tenant_scope(tenant):
        assert calls.tool_names() == []
        for name in ("b", "a", "b"):
            ToolCallFactory(tool_name=name, turn__source=f"from-{name}")
        assert calls.tool_names() == ["a", "b"]
        assert calls.sources() == ["from-a", "from-b"]


def test_the_list_walks_an_index_of_its_tenant(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        ToolCallFactory.create_batch(30)
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_bitmapscan = off")
            cursor.execute("SET LOCAL enable_sort = off")  # any plan is cheap for thirty rows
        page = calls.find(CallFilter(), page_size=10)
        assert page.next
        queryset = calls.matching(CallFilter()).filter(Cursor.read(page.next).position.older())
        plan = queryset.order_by("-started_at", "-id").values("pk")[:10].explain()
    assert "agent_tool_calls_newest_idx" in plan
    assert "Sort" not in plan


def form(query: str) -> CallListForm:
    return CallListForm(QueryDict(query))


def test_a_query_string_becomes_a_filter() -> None:
    filled = form(
        "conversation=c&message=m&outbound_message=o&contact=p&tool=a&tool=b&tool=a&error=yes&source=s&style=t&model=x"
        "&label=none&label=other&from=2026-03-01&to=2026-03-02&page_size=7"
    )
    assert filled.is_valid(), filled.errors
    assert filled.wanted == CallFilter(
        conversation="c",
        message="m",
        outbound_message="o",
        contact="p",
        tools=("a", "b"),
        error="yes",
        source="s",
        style="t",
        model="x",
        labels=("none", "other"),
        since=dt.datetime(2026, 3, 1, tzinfo=dt.UTC),
        until=dt.datetime(2026, 3, 3, tzinfo=dt.UTC),
    )
    assert filled.page_size_or_default == 7
    assert form("").is_valid()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T14:30:00Z", dt.datetime(2026, 3, 1, 14, 30, tzinfo=dt.UTC)),
        ("2026-03-01T14:30:00+02:00", dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.UTC)),
        ("2026-03-01T14:30", dt.datetime(2026, 3, 1, 13, 30, tzinfo=dt.UTC)),
        ("2026-03-01 14:30", dt.datetime(2026, 3, 1, 13, 30, tzinfo=dt.UTC)),
        ("2026-03-01", dt.datetime(2026, 2, 28, 23, 0, tzinfo=dt.UTC)),
    ],
)
def test_times_without_a_zone_are_the_viewers(text: str, moment: dt.datetime) -> None:
    with timezone.override("Europe/Zurich"):
        filled = form(f"from={text}")
        assert filled.is_valid(), filled.errors
        assert filled.wanted.since == moment


@pytest.mark.parametrize(
    ("query", "path", "code"),
    [
        ("page_size=1000000000", "page_size", "max_value"),
        ("page_size=0", "page_size", "min_value"),
        ("page_size=x", "page_size", "invalid"),
        ("label=nice", "label", "unknown_label"),
        ("error=maybe", "error", "invalid_choice"),
        ("from=yesterday", "from", "invalid_time"),
        ("to=2026-02-30", "to", "invalid_time"),
        ("to=9999-12-31", "to", "invalid_time"),
        ("cursor=x", "cursor", "bad_cursor"),
        ("tool=a%00b", "tool", "null_characters_not_allowed"),
        ("conversation=%00", "conversation", "null_characters_not_allowed"),
    ],
)
def test_what_a_filter_cannot_read_is_refused_by_name(query: str, path: str, code: str) -> None:
    (fault,) = form(query).faults()
    assert (fault["path"], fault["code"]) == (path, code)
    assert fault["message"]


def test_a_misspelled_parameter_is_noticed() -> None:
    assert CallFilterForm(QueryDict("tools=a&tool=b&colour=red")).unknown() == ["colour", "tools"]


def test_lists_end_at_the_tenant(tenant: Tenant, other_tenant: Tenant) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory()
        assert ids(CallFilter()) == [call.pk]
    with tenant_scope(other_tenant):
        assert ids(CallFilter()) == []
        assert calls.count(CallFilter()) == 0
        assert not ToolCall.objects.filter(pk=call.pk).exists()
