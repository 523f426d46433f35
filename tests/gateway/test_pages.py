"""The gateway on the pages: switches, rates of tokens, what went through, and what was not recorded."""

import datetime as dt
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from quality.gateway import days
from quality.gateway.days import Place, Tally
from tenants.models import ApiToken, Membership, ModelEndpoint, Role, Tenant
from tenants.scope import tenant_scope

MODELS = "/t/acme/models/"
FORM = {"label": "main", "base_url": "https://llm.example.com/v1", "model": "tiny", "is_enabled": "on"}


@pytest.fixture
def admin(member: Any) -> Client:
    client = Client()
    client.force_login(member(Role.ADMIN).user)
    return client


def gap(tenant_id: int, label: str, reason: str, at: dt.datetime) -> None:
    with tenant_scope(tenant_id):
        days.write(
            Place(tenant_id, at.date(), label), Tally(num_requests=1, num_gaps=1, last_gap_at=at, last_gap=reason)
        )


def test_what_went_through_and_what_was_not_recorded_is_shown(
    admin: Client, tenant: Tenant, other_tenant: Tenant, member: Any
):
    empty = admin.get(MODELS).content.decode()
    assert "Nothing went through it in the last 7 days" in empty
    assert "<code>http://testserver/v1</code>" in empty
    now = timezone.now()
    with tenant_scope(tenant):
        days.write(Place(tenant.pk, now.date(), "main"), Tally(7, 2, 1))
    gap(tenant.pk, "main", "The database did not answer.", now)
    gap(tenant.pk, "main", "<b>older</b>", now - dt.timedelta(days=2))
    gap(tenant.pk, "main", "long ago", now - dt.timedelta(days=30))
    gap(other_tenant.pk, "theirs", "not ours", now)
    page = admin.get(MODELS).content.decode()
    assert "Not all was recorded." in page
    assert "The database did not answer." in page
    for unseen in ("<b>older</b>", "long ago", "theirs", "not ours"):
        assert unseen not in page
    assert [f'<td class="num">{number}</td>' in page for number in (8, 2, 1)] == [True] * 3
    viewer = Client()
    viewer.force_login(member(Role.VIEWER).user)
    assert "Not all was recorded." in viewer.get(MODELS).content.decode()


def test_numbers_of_one_day_add_up_and_the_newest_gap_stays(tenant: Tenant):
    at = timezone.now()
    gap(tenant.pk, "main", "first", at)
    gap(tenant.pk, "main", "second", at)
    with tenant_scope(tenant):
        days.write(Place(tenant.pk, at.date(), "main"), Tally(num_requests=5))
        (day,) = days.last_days()
    assert (day.num_requests, day.num_gaps, day.last_gap) == (7, 2, "second")


def test_switches_are_set_on_the_page(admin: Client, tenant: Tenant):
    admin.post(f"{MODELS}create/", FORM | {"repairs_text_calls": "on"})
    with tenant_scope(tenant):
        saved = ModelEndpoint.objects.get()
    assert (saved.repairs_text_calls, saved.asks_again_when_empty, saved.checks_arguments) == (True, False, False)
    edited, new = (admin.get(f"{MODELS}{page}/").content.decode() for page in (f"{saved.pk}/edit", "new"))
    assert checked(edited) == {"is_enabled", "repairs_text_calls"}
    assert checked(new) == {"is_enabled", "repairs_text_calls", "asks_again_when_empty", "checks_arguments"}


def checked(page: str) -> set[str]:
    return set(re.findall(r'type="checkbox" name="(\w+)"[^>]* checked', page))


def test_switches_are_set_over_the_api(api: Any, tenant: Tenant):
    client = api()
    body = {"label": "main", "baseUrl": FORM["base_url"], "model": "tiny"}
    names = ("repairsTextCalls", "asksAgainWhenEmpty", "checksArguments")
    assert [client.post("/api/admin/models", body).json()[name] for name in names] == [True, True, True]
    saved = client.post("/api/admin/models", body | {"repairsTextCalls": False, "checksArguments": False}).json()
    assert [saved[name] for name in names] == [False, True, False]


@pytest.mark.parametrize(("rate", "kept"), [("90", 90), ("", None), ("0", ...), ("-1", ...), ("x", ...)])
def test_a_token_has_a_rate_of_its_own(admin: Client, tenant: Tenant, rate: str, kept: Any):
    page = admin.post(
        "/t/acme/tokens/create/", {"name": "agent", "scopes": ["gateway"], "life": "90", "rate_per_minute": rate}
    ).content.decode()
    with tenant_scope(tenant):
        found = list(ApiToken.objects.values_list("rate_per_minute", flat=True))
    assert found == ([] if kept is ... else [kept])
    assert ("90 requests a minute" in page) == (kept == 90)
    assert ("Copy the token now" in page) == (kept is not ...)


def test_who_may_send_requests(member: Membership):
    """The scope is named where tokens are made, and asks for the role that runs turns."""
    from quality.api.auth import ROLE_FOR
    from tenants.models import Scope

    assert set(ROLE_FOR) == set(Scope)
    assert ROLE_FOR[Scope.GATEWAY] is Role.OPERATOR
