"""The time zone of the pages: the browser's own, or the one that was chosen."""

import pytest

from tests.factories import ToolCallFactory
from tests.pages.conftest import browse  # noqa: F401  (a fixture)


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
def test_a_zone_that_was_chosen_goes_before_the_browsers(browse, tenant, zone):  # noqa: F811
    from tenants.scope import tenant_scope

    with tenant_scope(tenant):
        ToolCallFactory()
    client = browse("viewer")
    client.cookies["tz"] = "Europe/Zurich"
    assert "(Europe/Zurich)" in client.get("/t/acme/calls/").text
    response = client.post("/zone/", {"zone": zone, "next": "/account/"})
    assert response["Location"] == "/account/"
    page = client.get("/t/acme/calls/")
    assert f"({zone}), " in page.text
    assert " ago" in page.text
    client.post("/zone/", {"zone": ""})
    assert "(Europe/Zurich)" in client.get("/t/acme/calls/").text


@pytest.mark.parametrize("zone", ["Mars/Olympus", "EST", "../etc"])
def test_what_is_no_zone_is_told_and_changes_nothing(browse, zone):  # noqa: F811
    client = browse("viewer")
    response = client.post("/zone/", {"zone": zone, "next": "//elsewhere.example"}, follow=True)
    assert "is no time zone" in response.text
    assert "zone" not in client.cookies


def test_the_account_offers_the_zones(browse):  # noqa: F811
    page = browse("viewer").get("/account/")
    assert '<option value="Europe/Zurich">' in page.text
