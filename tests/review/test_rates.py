"""How often calls were found wrong, against counts and intervals worked out by hand."""

import datetime as dt
from collections.abc import Callable

import pytest
from django.test import Client

from quality.calls import CallFilter
from quality.review import rates
from tenants.models import Membership, Role, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import LATEST, FeedbackFactory, ToolCallFactory, ToolsetFactory, TurnFactory

DAY = dt.timedelta(days=1)
PERIOD = CallFilter(since=LATEST - 40 * DAY, until=LATEST + DAY)


def label(given: str, *, days_ago: int = 0, **fields: object) -> None:
    turn = {name: fields.pop(name) for name in ("style_id", "model", "toolset", "source") if name in fields}
    made = TurnFactory(started_at=LATEST - days_ago * DAY, **turn)
    FeedbackFactory(call=ToolCallFactory(turn=made, **fields), label=given)


@pytest.fixture
def seeded(tenant: Tenant) -> str:
    """3 of 10 calls of get_weather are wrong, the one call of book is; the SHA-256 of book's toolset."""
    with tenant_scope(tenant):
        for number in range(10):
            label("bad_args" if number < 3 else "good_reply", days_ago=number, style_id="friendly", model="small")
        other = ToolsetFactory(tools='[{"type":"function","function":{"name":"book"}}]')
        label("wrong_tool", tool_name="book", style_id="strict", model="large", toolset=other)
        label("other", tool_name="book", days_ago=90)
        FeedbackFactory(call=None, turn=TurnFactory(started_at=LATEST, style_id="friendly"), label="missing_tool")
        return str(other.sha256)


def told(found: list[rates.LabelRate]) -> dict[str, tuple[int, int]]:
    return {rate.key: (rate.num_actionable, rate.num_labelled) for rate in found}


def test_rates_are_told_apart_by_each_dimension(tenant: Tenant, seeded: str) -> None:
    with tenant_scope(tenant):
        assert told(rates.by("tool", PERIOD)) == {"get_weather": (3, 10), "book": (1, 1), "": (1, 1)}
        assert told(rates.by("style", PERIOD)) == {"friendly": (4, 11), "strict": (1, 1)}
        assert told(rates.by("model", PERIOD))["large"] == (1, 1)
        assert told(rates.by("toolset", PERIOD))[seeded] == (1, 1)
        assert told([rates.total(PERIOD)]) == {"": (5, 12)}


def test_the_interval_is_wilsons(tenant: Tenant, seeded: str) -> None:
    """3 of 10: centre (0.3 + 1.92/10) / (1 + 3.84/10) = 0.3555, half-width 0.2477 (worked out with z = 1.96)."""
    with tenant_scope(tenant):
        weather = next(rate for rate in rates.by("tool", PERIOD) if rate.key == "get_weather")
    assert weather.rate == 0.3
    assert weather.low == pytest.approx(0.1078, abs=1e-4)
    assert weather.high == pytest.approx(0.6032, abs=1e-4)
    assert rates.LabelRate().rate is None
    assert (rates.LabelRate().low, rates.LabelRate().high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("narrowed", "wrong", "of"),
    [
        ({"tools": ("book",)}, 1, 1),
        ({"style": "strict"}, 1, 1),
        ({"model": "small"}, 3, 10),
        ({"source": "nobody"}, 0, 0),
    ],
)
def test_filters_narrow_what_is_counted(
    tenant: Tenant, seeded: str, narrowed: dict[str, str], wrong: int, of: int
) -> None:
    with tenant_scope(tenant):
        found = rates.total(CallFilter(since=PERIOD.since, until=PERIOD.until, **narrowed))
    assert (found.num_actionable, found.num_labelled) == (wrong, of)


def test_a_toolset_is_a_filter_too(tenant: Tenant, seeded: str, member: Callable[..., Membership]) -> None:
    with tenant_scope(tenant):
        assert rates.total(CallFilter(since=PERIOD.since, toolset=seeded)).num_labelled == 1
    client = Client()
    client.force_login(member(Role.VIEWER).user)
    page = client.get("/t/acme/calls/", {"toolset": seeded}).content.decode()
    assert "book" in page
    assert ">get_weather</bdi></a>" not in page
    assert "named by its SHA-256" in client.get("/t/acme/calls/?toolset=abc").content.decode()


def test_the_trend_has_a_piece_a_day_or_several(tenant: Tenant, seeded: str) -> None:
    today = LATEST.date()
    with tenant_scope(tenant):
        short = rates.trend(PERIOD, today - 9 * DAY, today)
        long = rates.trend(PERIOD, today - 39 * DAY, today)
    assert next((point.first, point.last) for point in short) == (today - 9 * DAY, today - 9 * DAY)
    assert [point.rate.num_labelled for point in short] == [*[1] * 9, 3]
    assert len(long) == 20
    assert long[-1].last == today
    assert sum(point.rate.num_labelled for point in long) == 12


def test_the_page_shows_share_interval_and_the_calls_behind(tenant: Tenant, member: Callable[..., Membership]) -> None:
    now = dt.datetime.now(dt.UTC)
    with tenant_scope(tenant):
        for number in range(10):
            turn = TurnFactory(started_at=now - dt.timedelta(minutes=number), style_id="friendly")
            FeedbackFactory(call=ToolCallFactory(turn=turn), label="bad_args" if number < 3 else "good_reply")
    client = Client()
    client.force_login(member(Role.VIEWER).user)
    page = " ".join(client.get("/t/acme/").content.decode().split())
    assert "11 – 60 %" in page
    assert "30 %" in page
    assert "tool=get_weather&amp;label=wrong_tool&amp;label=missing_tool&amp;label=bad_args" in page
    by_style = client.get("/t/acme/?by=style&tool=get_weather").content.decode()
    assert "style=friendly" in by_style
    assert "tool=get_weather" in by_style
    assert "numbers below are of all calls" in client.get("/t/acme/?toolset=x").content.decode()
    assert "Not a filter" in client.get("/t/acme/?tol=x").content.decode()


def test_the_api_gives_the_same_numbers(tenant: Tenant, seeded: str, api: Callable[..., Api]) -> None:
    path = "/api/admin/quality/tool-call-feedback/summary"
    query = f"?from={(LATEST - 40 * DAY).date()}&to={LATEST.date()}"
    body = api("read").get(path + query).json()
    by_tool = {rate["key"]: rate for rate in body["rates"]["tool"]}
    assert (by_tool["get_weather"]["numActionable"], by_tool["get_weather"]["numLabelled"]) == (3, 10)
    assert by_tool["get_weather"]["rate"] == 0.3
    assert body["total"]["numLabelled"] == 12
    assert sum(point["rate"]["numLabelled"] for point in body["trend"]) == 12
    narrowed = api("read").get(f"{path}{query}&style=strict").json()
    assert narrowed["total"]["numLabelled"] == 1
    assert narrowed["numCalls"] == 1
    assert api("read").get(f"{path}?toolset=x").status_code == 400
