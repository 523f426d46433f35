"""How often a fault is found before and after its fix, against counts and intervals worked out by hand."""

import datetime as dt
from collections.abc import Iterator

import pytest

from quality.improve.rates import MIN_ITEMS, Rate, rates_of
from quality.models import Proposal
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.factories import FeedbackFactory, ProposalFactory, ToolCallFactory, TurnFactory

FIX = dt.datetime(2026, 3, 10, 12, 0, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture(autouse=True)
def scope(tenant: Tenant) -> Iterator[None]:
    with tenant_scope(tenant):
        yield


def item(at: dt.datetime, faults: list[str], **fields):
    """A labelled call made at a time; without faults it was labelled good."""
    call = ToolCallFactory(turn=TurnFactory(started_at=at, style_id=fields.pop("style_id", "friendly")))
    return FeedbackFactory(call=call, label="bad_args" if faults else "good_reply", faults=faults, **fields)


def applied(**fields) -> Proposal:
    return ProposalFactory(state="applied", decided_at=FIX, resolution_kind="other", **fields)


# Wilson's interval with z = 1.959964: (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)
@pytest.mark.parametrize(
    ("faulty", "items", "low", "high"),
    [
        (8, 20, 0.2188, 0.6134),
        (1, 20, 0.0089, 0.2361),
        (0, 20, 0.0, 0.1611),
        (20, 20, 0.8389, 1.0),
        (30, 100, 0.2189, 0.3958),
    ],
)
def test_intervals_are_wilsons(faulty: int, items: int, low: float, high: float) -> None:
    rate = Rate(num_items=items, num_faulty=faulty)
    assert (rate.low, rate.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert rate.share == faulty / items
    assert not rate.too_few


def test_of_nothing_there_is_no_share_and_nothing_is_known() -> None:
    rate = Rate(num_items=0, num_faulty=0)
    assert (rate.share, rate.low, rate.high, rate.too_few) == (None, 0.0, 1.0, True)


def test_below_the_minimum_it_is_too_few_calls_yet() -> None:
    assert [Rate(num_items=n, num_faulty=0).too_few for n in (MIN_ITEMS - 1, MIN_ITEMS)] == [True, False]


def test_calls_count_by_when_they_were_made() -> None:
    for _ in range(2):
        item(FIX - DAY, ["arg:/city"])
    item(FIX - DAY, ["arg:/unit"])
    item(FIX - DAY, [])
    item(FIX, ["arg:/city"])
    for _ in range(4):
        item(FIX + DAY, [])
    rates = rates_of(applied())
    assert (rates.before.num_items, rates.before.num_faulty, rates.before.since, rates.before.until) == (
        4,
        2,
        None,
        FIX,
    )
    assert rates.after
    assert (rates.after.num_items, rates.after.num_faulty, rates.after.since) == (5, 1, FIX)


def test_other_tools_and_styles_do_not_count() -> None:
    item(FIX - DAY, ["arg:/city"])
    item(FIX - DAY, ["arg:/city"], style_id="formal")
    item(FIX - DAY, ["arg:/city"], tool_name="get_forecast")
    assert rates_of(applied()).before.num_items == 1


def test_an_item_of_two_reviewers_is_one_and_faulty_if_one_says_so() -> None:
    first = item(FIX - DAY, ["arg:/city"])
    FeedbackFactory(call=first.call, label="good_reply", faults=[])
    rates = rates_of(applied())
    assert (rates.before.num_items, rates.before.num_faulty) == (1, 1)


def test_before_begins_at_the_decision_before() -> None:
    item(FIX - 3 * DAY, ["arg:/city"])
    item(FIX - DAY, [])
    before = rates_of(applied(covers_since=FIX - 2 * DAY)).before
    assert (before.num_items, before.num_faulty, before.since) == (1, 0, FIX - 2 * DAY)


def test_missing_calls_are_counted_among_replies_without_a_call() -> None:
    for label, faults in (("missing_tool", ["missing:get_weather"]), ("good_reply", [])):
        FeedbackFactory(call=None, turn=TurnFactory(started_at=FIX - DAY), label=label, faults=faults)
    item(FIX - DAY, ["arg:/city"])
    rates = rates_of(applied(label="missing_tool", tool_name="", fault="missing:get_weather"))
    assert (rates.before.num_items, rates.before.num_faulty) == (2, 1)


@pytest.mark.parametrize("state", ["pending", "dismissed"])
def test_without_a_fix_there_is_no_after(state: str) -> None:
    item(FIX + DAY, ["arg:/city"])
    rates = rates_of(ProposalFactory(state=state, decided_at=FIX if state == "dismissed" else None))
    assert rates.after is None
    assert (rates.before.num_items, rates.before.until) == (1, None)
