"""Charts: the numbers in them, how they are drawn, and the pages with their CSV."""

import csv
import datetime as dt
import io
import uuid
from itertools import pairwise

import pytest
from django.urls import reverse
from django.utils import timezone

from quality.calls import CallFilter
from quality.models import Feedback, ReviewQueue
from quality.pages.plot import HEIGHT, WIDTH, plot
from quality.review import charts
from quality.review.charts import Asked, Chart, Piece, Series
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding
from tenants.models import Role
from tenants.scope import tenant_scope
from tests.factories import ProposalFactory, ToolCallFactory, TurnFactory


def call(days_ago: int = 0, **fields):
    at = timezone.now() - dt.timedelta(days=days_ago)
    return ToolCallFactory(turn=TurnFactory(started_at=at), started_at=at, **fields)


def asked(days: int = 7, **fields) -> Asked:
    today = timezone.localdate()
    return Asked(first=today - dt.timedelta(days=days - 1), last=today, calls=CallFilter(**fields))


def values(chart: Chart) -> dict[str, tuple]:
    return {one.key: one.values for one in chart.series}


@pytest.fixture
def scope(tenant, member):
    with tenant_scope(tenant):
        yield [member().user for _ in range(2)]


def label(one, reviewer, label="good_reply", **fields):
    record_label(item=item_of_call(one.pk), reviewer=reviewer, label=label, nonce=uuid.uuid4(), **fields)


def test_time_is_cut_into_pieces_of_whole_days() -> None:
    week = charts.pieces(asked(7))
    assert len(week) == 7
    assert all(one.first == one.last for one in week)
    year = charts.pieces(asked(365))
    assert len(year) <= charts.MAX_PIECES
    assert (year[0].first, year[-1].last) == (asked(365).first, asked(365).last)
    assert all(left.last + dt.timedelta(days=1) == right.first for left, right in pairwise(year))


def test_calls_are_counted_by_tool_and_the_rest_is_one_series(scope) -> None:
    for number in range(9):
        for _ in range(9 - number):
            call(number % 3, tool_name=f"t{number}")
    found = charts.volume(asked())
    assert [one.key for one in found.series] == ["t0", "t1", "t2", "t3", "t4", "t5", charts.REST]
    assert sum(sum(one.values) for one in found.series) == 45
    assert values(found)["t0"][-1] == 9
    assert found.stacked
    assert charts.volume(asked(tools=("t8",))).series[0].values[-3] == 1


def test_errors_are_shares_of_outcomes_and_a_day_without_has_none(scope) -> None:
    for is_error in (True, False, False, None):
        call(1, tool_name="t", is_error=is_error)
    (one,) = charts.errors(asked()).series
    assert one.values == (None,) * 5 + (1 / 3, None)
    assert one.ns[-2] == 3


def test_labels_and_what_was_found_wrong(scope) -> None:
    first, second = scope
    for number in range(4):
        label(call(2, tool_name=f"t{number % 2}"), first, "bad_args" if number == 0 else "good_reply")
    found = values(charts.labels(asked()))
    assert (found["bad_args"][-3], found["good_reply"][-3], sum(found["other"])) == (1, 3, 0)
    shares = {one.key: (one.values[-3], one.ns[-3]) for one in charts.wrong(asked()).series}
    assert shares == {"t0": (0.5, 2), "t1": (0.0, 2)}
    by_version = charts.wrong(Asked(**{**vars(asked()), "by": "toolset"}))
    assert [one.ns[-3] for one in by_version.series] == [4]


def test_queues_burn_down(scope) -> None:
    reviewer, _ = scope
    queue = ReviewQueue.objects.create(name="Errors", created_by=reviewer)
    items = [call(3) for _ in range(3)]
    adding.put_in(queue, [item_of_call(one.pk) for one in items], actor=reviewer)
    queue.entries.update(added_at=timezone.now() - dt.timedelta(days=2))
    label(items[0], reviewer)
    assert values(charts.burn_down(asked(4)))["Errors"] == (0, 3, 3, 2)
    queue.state = "closed"
    queue.save()
    assert charts.burn_down(asked(4)).is_empty


def test_agreement_over_time(scope) -> None:
    first, second = scope
    for number in range(4):
        one = call(0)
        label(one, first, "good_reply" if number < 2 else "bad_args")
        label(one, second, "good_reply" if number < 3 else "bad_args")
    found = charts.agreed(asked(4))
    raw = next(one for one in found.series if one.key == "raw")
    assert (raw.values[-1], raw.ns[-1]) == (0.75, 4)
    assert raw.values[0] is None


def test_time_to_label_is_that_of_the_first_label(scope) -> None:
    first, second = scope
    for hours in (1, 2, 30):
        one = ToolCallFactory(turn=TurnFactory(started_at=timezone.now() - dt.timedelta(hours=hours)))
        one.started_at = one.turn.started_at
        one.save()
        label(one, first)
        label(one, second)
    later = Feedback.objects.filter(reviewer=second)
    later.update(created_at=timezone.now() + dt.timedelta(minutes=5))
    found = charts.time_to_label(asked())
    middle, nine = (one.values[-1] for one in found.series)
    assert middle == pytest.approx(2, abs=0.1)
    assert 24 < nine < 31
    assert found.series[0].ns[-1] == 3


def test_fixes_of_the_period_with_their_rates(scope) -> None:
    applied = {"state": "applied", "resolution_kind": "pull_request", "resolution_ref": "PR 1"}
    new = ProposalFactory(**applied, decided_at=timezone.now(), decided_by=scope[0])
    ProposalFactory(**applied, decided_at=timezone.now() - dt.timedelta(days=40), decided_by=scope[0], fault="arg:/x")
    assert [one.proposal.pk for one in charts.fixes(asked())] == [new.pk]


class TestPlot:
    day = dt.date(2026, 3, 1)
    cut = tuple(Piece(first=dt.date(2026, 3, n), last=dt.date(2026, 3, n)) for n in range(1, 5))

    def test_bars_stand_on_each_other(self) -> None:
        parts = (Series(key="a", values=(1, 0, 2, 1)), Series(key="b", values=(3, 0, 2, 0)))
        chart = Chart(pieces=self.cut, stacked=True, series=parts)
        drawn = plot(chart)
        assert drawn.top == 4
        low, high = drawn.series[0].marks[0], drawn.series[1].marks[0]
        assert low.y + low.height == HEIGHT
        assert high.y + high.height == pytest.approx(low.y)
        assert high.y == 0
        assert all(mark.x + mark.width <= WIDTH for one in drawn.series for mark in one.marks)
        assert len(drawn.series[0].marks) == 3  # nothing is drawn of nothing

    def test_a_line_breaks_where_there_is_nothing(self) -> None:
        chart = Chart(pieces=self.cut, unit="share", series=(Series(key="a", values=(0.1, 0.2, None, 0.3)),))
        (line,) = plot(chart).series
        assert len(line.paths) == 1
        assert line.paths[0].count("L") == 1
        assert len(line.marks) == 3
        assert plot(chart).top == 0.5

    def test_values_below_zero_have_a_place(self) -> None:
        chart = Chart(pieces=self.cut, unit="alpha", series=(Series(key="a", values=(-0.5, 0, 1, None)),))
        drawn = plot(chart)
        assert (drawn.bottom, drawn.top) == (-0.5, 1)
        assert drawn.series[0].marks[0].y == HEIGHT
        assert 0 < drawn.zero < HEIGHT

    def test_nothing_at_all_is_drawn_without_a_fault(self) -> None:
        for stacked in (True, False):
            assert plot(Chart(pieces=self.cut, series=(), stacked=stacked)).top == 1


class TestPages:
    def test_an_empty_tenant_is_told_what_each_chart_needs(self, tenant, member, client) -> None:
        client.force_login(member(Role.VIEWER).user)
        page = client.get(reverse("chart-page", kwargs={"slug": "acme"})).text
        assert "No call in this period." in page
        assert "No proposal was applied" in page
        assert "<svg viewBox" not in page

    def test_charts_have_tables_and_csv(self, tenant, member, client) -> None:
        user = member().user
        client.force_login(user)
        with tenant_scope(tenant):
            for number in range(3):
                label(call(number, tool_name="find", is_error=number == 0), user, "bad_args")
        page = client.get(reverse("chart-page", kwargs={"slug": "acme"}), {"days": 7, "tool": "find"}).text
        assert page.count('role="img"') == 5  # no queue; nobody labelled what another did
        assert "33 %" in page or "100 %" in page
        for name in charts.CHARTS:
            address = f"/t/acme/charts/{name}.csv?days=7&tool=find"
            response = client.get(address)
            assert response["Content-Type"].startswith("text/csv")
            head, *rows = csv.reader(io.StringIO(response.text.lstrip("\ufeff")))
            assert head[:2] == ["from", "to"]
            assert len(rows) == 7 or name == "agreement"
        rows = list(csv.DictReader(io.StringIO(client.get("/t/acme/charts/errors.csv?days=7").text.lstrip("\ufeff"))))
        assert (rows[-1]["find"], rows[-1]["find n"]) == ("1.0", "1")
        assert client.get("/t/acme/charts/fixes.csv").text.startswith(("proposal", "\ufeffproposal"))

    def test_what_cannot_be_read_is_told(self, tenant, member, client) -> None:
        client.force_login(member().user)
        page = client.get("/t/acme/charts/?by=moon&lunch=1").text
        assert "of all calls" in page
        assert "lunch" in page

    def test_a_value_that_looks_like_a_formula_is_none_in_a_spreadsheet(self, tenant, member, client) -> None:
        client.force_login(member().user)
        with tenant_scope(tenant):
            call(0, tool_name="=HYPERLINK(1)")
        text = client.get("/t/acme/charts/volume.csv").text
        assert ",=HYPERLINK" not in text
