"""Counts by the hour: exact whatever the writers do and whether the counting keeps up, in any zone."""

import datetime as dt
import threading
import zoneinfo

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.models import Count, Q
from django.db.models.functions import TruncDate
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quality import rollups, tasks
from quality.calls import CallFilter
from quality.models import CallHour, ToolCall, TouchedHour, Turn
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory, ToolsetFactory, TurnFactory

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def period(**fields) -> CallFilter:
    return CallFilter(**{"since": START, "until": START + dt.timedelta(days=3)} | fields)


def call(hours: float = 0, **fields) -> ToolCall:
    at = START + dt.timedelta(hours=hours)
    return ToolCallFactory(
        **{"turn": TurnFactory(started_at=at, toolset=None), "started_at": at, "toolset": None} | fields
    )


def direct(wanted: CallFilter) -> dict[str, tuple[int, int, int]]:
    rows = ToolCall.objects.filter(started_at__gte=wanted.since, started_at__lt=wanted.until).order_by()
    counted = rows.values_list("tool_name").annotate(
        calls=Count("pk"), errors=Count("pk", filter=Q(is_error=True)), outcomes=Count("is_error")
    )
    return {tool: tuple(rest) for tool, *rest in counted}


def read(wanted: CallFilter) -> dict[str, tuple[int, int, int]]:
    return {one.key: (one.num_calls, one.num_errors, one.num_outcomes) for one in rollups.by_tool(wanted)}


def count_all() -> None:
    while rollups.count_marked():
        pass


@pytest.fixture
def scope(tenant):
    with tenant_scope(tenant):
        yield tenant


def test_what_is_read_is_exact_before_and_after_the_counting(scope) -> None:
    for number in range(6):
        call(number * 7.3, tool_name=f"t{number % 2}", is_error=[True, False, None][number % 3])
    before = read(period())
    assert before == direct(period()) == {"t0": (3, 1, 2), "t1": (3, 1, 2)}
    assert TouchedHour.objects.exists()
    assert not CallHour.objects.exists()
    count_all()
    assert not TouchedHour.objects.exists()
    assert CallHour.objects.exists()
    assert read(period()) == before
    call(0.5, tool_name="t0")  # into an hour that is counted
    assert read(period())["t0"] == (4, 1, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: ToolCall.objects.filter(pk=one.pk).update(is_error=True),
        lambda one: ToolCall.objects.filter(pk=one.pk).update(tool_name="other"),
        lambda one: ToolCall.objects.filter(pk=one.pk).update(started_at=START + dt.timedelta(hours=30)),
        lambda one: ToolCall.objects.filter(pk=one.pk)._raw_delete("default"),
        lambda one: Turn.objects.filter(pk=one.turn_id)._raw_delete("default"),  # by the key of the database
    ],
)
def test_each_kind_of_change_is_noticed(scope, change) -> None:
    one = call(1, tool_name="t", is_error=False)
    call(2, tool_name="t")
    count_all()
    change(one)
    assert TouchedHour.objects.exists()
    assert read(period()) == direct(period())
    count_all()
    assert read(period()) == direct(period())
    assert rollups.differences() == []


def test_a_change_of_what_is_not_counted_marks_nothing(scope) -> None:
    one = call(1)
    count_all()
    ToolCall.objects.filter(pk=one.pk).update(result='{"x": 1}', state="result")
    assert not TouchedHour.objects.exists()


def test_ends_within_an_hour_are_exact(scope) -> None:
    for minutes in (10, 20, 40, 70, 110):
        call(minutes / 60, tool_name="t")
    count_all()
    wanted = period(since=START + dt.timedelta(minutes=15), until=START + dt.timedelta(minutes=100))
    assert read(wanted) == direct(wanted)
    within = period(since=START + dt.timedelta(minutes=15), until=START + dt.timedelta(minutes=35))
    assert read(within)["t"][0] == 1


def test_filters_narrow(scope) -> None:
    toolset = ToolsetFactory()
    call(1, tool_name="a", style_id="s", model="m", source="x", toolset=toolset)
    call(1, tool_name="b")
    for counted in (False, True):
        if counted:
            count_all()
        for fields in ({"tools": ("a",)}, {"style": "s"}, {"model": "m"}, {"source": "x"}, {"toolset": toolset.sha256}):
            assert {tool: number for tool, (number, *_) in read(period(**fields)).items()} == {"a": 1}, fields


@pytest.mark.parametrize("zone", ["UTC", "Europe/Rome", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu"])
def test_days_are_those_of_the_viewer(scope, zone) -> None:
    for number in range(40):
        call(number * 1.9, tool_name="t", is_error=number % 5 == 0)
    count_all()
    with timezone.override(zoneinfo.ZoneInfo(zone)):
        rows = ToolCall.objects.filter(started_at__gte=START, started_at__lt=START + dt.timedelta(days=3)).order_by()
        actual = dict(rows.annotate(day=TruncDate("started_at")).values_list("day").annotate(Count("pk")))
        assert {one.day: one.num_calls for one in rollups.by_day(period())} == actual
        by_tool = {(one.day, one.key): one.num_calls for one in rollups.by_day(period(), by="tool_name")}
        assert by_tool == {(day, "t"): number for day, number in actual.items()}


def test_a_change_of_summer_time_is_kept(scope) -> None:
    """The night of 29 March 2026 has one hour less in Rome."""
    since = dt.datetime(2026, 3, 27, 23, tzinfo=dt.UTC)
    for number in range(60):
        at = since + dt.timedelta(hours=number)
        ToolCallFactory(turn=TurnFactory(started_at=at), started_at=at)
    count_all()
    with timezone.override(zoneinfo.ZoneInfo("Europe/Rome")):
        wanted = CallFilter(since=since, until=since + dt.timedelta(hours=60))
        counts = [one.num_calls for one in rollups.by_day(wanted)]
    assert counts == [24, 23, 13]


def test_a_writer_that_commits_amid_the_counting_is_not_lost(tenant) -> None:
    with tenant_scope(tenant):
        call(1, tool_name="t")
    began, go = threading.Event(), threading.Event()

    def write() -> None:
        with tenant_scope(tenant):
            call(1.2, tool_name="t")
            began.set()
            go.wait(60)
        connections.close_all()

    writer = threading.Thread(target=write)
    writer.start()
    began.wait(60)
    with tenant_scope(tenant):
        count_all()  # its call is not committed yet: it is not counted, and its mark not seen
        assert read(period())["t"][0] == 1
    go.set()
    writer.join()
    with tenant_scope(tenant):
        assert read(period())["t"][0] == 2
        count_all()
        assert read(period())["t"][0] == 2


def test_two_writers_of_an_hour_do_not_wait_for_each_other(tenant) -> None:
    first, done = threading.Event(), threading.Event()

    def write() -> None:
        with tenant_scope(tenant):
            call(1, tool_name="t")
            first.set()
            done.wait(60)
        connections.close_all()

    writer = threading.Thread(target=write)
    writer.start()
    first.wait(60)
    with tenant_scope(tenant), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '5s'")
        call(1, tool_name="t")  # would wait for the other's end if marks were unique
    done.set()
    writer.join()
    with tenant_scope(tenant):
        assert read(period())["t"][0] == 2


def test_tenants_are_counted_apart_and_the_tick_finds_them(tenant, other_tenant, monkeypatch) -> None:
    for number, each in enumerate((tenant, other_tenant), start=1):
        with tenant_scope(each):
            for _ in range(number):
                call(1, tool_name="t")
    assert sorted(rollups.waiting()) == sorted([tenant.pk, other_tenant.pk])
    for each in (tenant, other_tenant):
        tasks.count_hours(each.pk)
    assert rollups.waiting() == []
    for number, each in enumerate((tenant, other_tenant), start=1):
        with tenant_scope(each):
            assert read(period())["t"][0] == number


def test_much_is_counted_bit_by_bit(scope) -> None:
    for number in range(5):
        call(number)
    assert rollups.count_marked(limit=2)
    assert TouchedHour.objects.values("hour").distinct().count() == 3
    count_all()
    assert rollups.differences() == []


def test_the_command_finds_and_mends_a_wrong_count(tenant, capsys) -> None:
    with tenant_scope(tenant):
        call(1, tool_name="t")
        count_all()
        CallHour.objects.update(num_calls=7)
    with pytest.raises(CommandError, match="wrong"):
        call_command("rebuild_rollups", "--check", "--tenant", "acme")
    assert "2026-03-01 01:00 t: counted 7, in fact 1" in capsys.readouterr().out
    call_command("rebuild_rollups", "--tenant", "acme")
    call_command("rebuild_rollups", "--check", "--tenant", "acme")
    assert "all counts are right" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no tenant"):
        call_command("rebuild_rollups", "--tenant", "nobody")


STEP = st.tuples(
    st.sampled_from(["add", "error", "move", "rename", "delete", "count"]), st.integers(0, 9), st.integers(0, 50)
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=25))
def test_any_history_of_writes_reads_as_the_calls_do(tenant, steps) -> None:
    with tenant_scope(tenant):
        ToolCall.objects.all()._raw_delete("default")
        for what, which, hours in steps:
            ids = list(ToolCall.objects.order_by("pk").values_list("pk", flat=True))
            rows = ToolCall.objects.filter(pk__in=ids[which : which + 1])
            if what == "add":
                call(hours, tool_name=f"t{which % 3}")
            elif what == "count":
                rollups.count_marked(limit=3)
            elif what == "delete":
                rows._raw_delete("default")
            else:
                changes = {
                    "error": {"is_error": bool(hours % 2)},
                    "move": {"started_at": START + dt.timedelta(hours=hours)},
                    "rename": {"tool_name": f"t{hours % 3}"},
                }
                rows.update(**changes[what])
            assert read(period()) == direct(period())
        assert rollups.differences() == []
