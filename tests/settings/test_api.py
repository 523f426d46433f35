"""Over the API what the pages of a tenant's settings can do: the exchange desk, limits, switches, skills, styles."""

import json

import pytest

from tenants import scripts, tools
from tenants.models import (
    AuditEvent,
    ExchangeCustomer,
    ExchangeOrder,
    ExchangeRate,
    HttpToolRow,
    Skill,
    Style,
    TenantSettings,
)
from tenants.scope import tenant_scope
from tests.settings.http_tools import definition

DESK = "/api/admin/exchange"
RATE = {"give": "eur", "get": "usd", "rate": "1.10", "maxAmount": "1000"}


def patch(client, path: str, body):
    return client.client.patch(path, json.dumps(body), "application/json", headers=client.headers)


def delete(client, path: str):
    return client.client.delete(path, headers=client.headers)


def actions(tenant) -> list[str]:
    with tenant_scope(tenant):
        return list(AuditEvent.objects.exclude(token_id=None).order_by("pk").values_list("action", flat=True))


class TestExchange:
    def test_rates_are_made_changed_and_deleted(self, api, tenant):
        client = api()
        made = client.post(f"{DESK}/rates", RATE)
        assert made.status_code == 200, made.content
        assert (made.json()["give"], made.json()["rate"], made.json()["verifyFrom"]) == ("EUR", "1.1", "0")
        changed = client.post(f"{DESK}/rates", RATE | {"rate": 1.25, "verifyFrom": None, "active": False}).json()
        assert (changed["rate"], changed["verifyFrom"], changed["active"]) == ("1.25", None, False)
        assert changed["id"] == made.json()["id"]
        kept = client.post(f"{DESK}/rates", RATE)
        assert (kept.json()["verifyFrom"], kept.json()["active"]) == (None, False)  # what is not sent stays
        assert [rate["get"] for rate in client.get(DESK).json()["rates"]] == ["USD"]
        assert delete(client, f"{DESK}/rates/{made.json()['id']}").status_code == 204
        assert delete(client, f"{DESK}/rates/{made.json()['id']}").status_code == 404
        assert actions(tenant) == ["rate.saved"] * 3 + ["rate.deleted"]

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"rate": "0"}, "rate"),
            ({"rate": "NaN"}, "rate"),
            ({"give": "e"}, "give"),
            ({"maxAmount": "-1"}, ""),
            ({"getDigits": 9}, "getDigits"),
            ({"owner": "me"}, "owner"),
        ],
    )
    def test_faults_name_their_fields(self, api, tenant, change, path):
        response = api().post(f"{DESK}/rates", RATE | change)
        assert response.status_code == 400
        paths = {error["path"] for error in response.json()["errors"]}
        assert paths & {path, "max_amount"}
        with tenant_scope(tenant):
            assert not ExchangeRate.objects.exists()

    def test_where_customers_pay_and_what_is_told(self, api, tenant):
        client = api()
        told = client.post(f"{DESK}/requisites", {"currency": "eur", "details": {"IBAN": "DE00"}}).json()
        assert told["requisites"] == [{"currency": "EUR", "details": {"IBAN": "DE00"}}]
        assert patch(client, DESK, {"info": {"hours": "9-17"}}).json()["info"] == {"hours": "9-17"}
        assert client.post(f"{DESK}/requisites", {"currency": "eur", "details": {}}).json()["requisites"] == []
        assert actions(tenant) == ["requisites.set", "desk.changed", "requisites.set"]

    def test_customers_and_orders(self, api, tenant):
        client = api()
        body = {"contactId": "anna", "verification": "verified"}
        assert client.post(f"{DESK}/customers", body).json()["verification"] == "verified"
        assert [one["contactId"] for one in client.get(f"{DESK}/customers").json()["customers"]] == ["anna"]
        assert client.post(f"{DESK}/customers", body | {"verification": "maybe"}).status_code == 400
        with tenant_scope(tenant):
            assert ExchangeCustomer.objects.get().verification == "verified"
            order = ExchangeOrder.objects.create(
                create_key="k", contact_id="anna", give="EUR", get="USD", give_amount=1, get_amount=1,
                needs_verification=False,
            )  # fmt: skip
        assert client.post(f"{DESK}/orders/{order.pk}/paid").json()["state"] == "paid"
        again = client.post(f"{DESK}/orders/{order.pk}/paid")
        assert (again.status_code, again.json()["type"]) == (409, "urn:quality-lab:problem:wrong_state")
        assert client.post(f"{DESK}/orders/{order.pk}/cancel").json()["state"] == "cancelled"
        assert client.get(f"{DESK}/orders").json()["orders"][0]["giveAmount"] == "1"
        assert client.post(f"{DESK}/orders/999/paid").status_code == 404

    def test_read_is_for_orders_alone(self, api):
        client = api("read")
        assert client.get(f"{DESK}/orders").status_code == 200
        assert client.get(DESK).status_code == 403
        assert client.post(f"{DESK}/rates", RATE).status_code == 403


class TestLimits:
    def test_own_numbers_are_set_and_taken_back(self, api, tenant):
        client, path = api(), "/api/admin/limits"
        told = client.get(path).json()
        assert told["limits"]["maxCycles"] == 4
        assert told["own"]["maxCycles"] is None
        assert (told["bounds"]["maxCalls"], told["bounds"]["maxTokens"]) == (32, None)
        told = patch(client, path, {"maxCycles": 8, "maxTokens": 5000}).json()
        assert (told["limits"]["maxCycles"], told["own"]["maxTokens"]) == (8, 5000)
        told = patch(client, path, {"maxCycles": None, "wallTimeS": 12.5}).json()
        assert (told["limits"]["maxCycles"], told["limits"]["maxTokens"], told["limits"]["wallTimeS"]) == (
            4,
            5000,
            12.5,
        )
        assert actions(tenant) == ["limits.set"] * 2

    @pytest.mark.parametrize(
        "body", [{"maxCycles": 33}, {"wallTimeS": 0}, {"maxCalls": -1}, {"maxCost": "x"}, {"x": 1}]
    )
    def test_a_number_out_of_bounds_is_refused_by_its_name(self, api, body):
        response = patch(api(), "/api/admin/limits", body)
        assert response.status_code == 400
        assert [error["path"] for error in response.json()["errors"]] == list(body)


class TestSwitches:
    def test_script_tools(self, api, tenant, settings, tmp_path):
        (tmp_path / "greet.py").write_text("SCHEMA = 1\n")
        settings.SCRIPT_TOOLS_DIR = str(tmp_path)
        scripts._load.cache_clear()
        client, path = api(), "/api/admin/tools/scripts"
        told = client.get(path).json()
        assert (told["enabled"], told["tools"]) == (False, [])
        assert told["faults"][0]["file"] == "greet.py"
        assert client.post(path, {"enabled": True}).json()["enabled"] is True
        with tenant_scope(tenant):
            assert TenantSettings.objects.get().scripts_enabled

    def test_databases(self, api, tenant, settings):
        settings.TOOL_DATABASES = {"shop": {"dsn": "postgresql://x:secret@db/shop", "description": "Orders"}}
        client, path = api(), "/api/admin/tools/databases"
        assert client.get(path).json() == {"databases": [{"name": "shop", "description": "Orders", "enabled": False}]}
        assert client.post(path, {"names": ["shop"]}).json()["databases"][0]["enabled"] is True
        refused = client.post(path, {"names": ["other"]})
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "names")
        assert "secret" not in client.get(path).text
        assert client.post(path, {"names": []}).json()["databases"][0]["enabled"] is False

    def test_a_tool_of_ours(self, api):
        client, path = api(), "/api/admin/tools/switches"
        told = client.post(path, {"name": "offer_booking_link", "enabled": True, "mode": "approve"}).json()
        assert (told["name"], told["mode"]) == ("offer_booking_link", "approve")
        assert client.post(path, {"name": "nobody", "enabled": True}).status_code == 400
        assert client.post(path, {"name": "offer_booking_link", "enabled": True, "mode": "client"}).status_code == 400

    def test_a_kept_tool_is_switched_off_and_deleted(self, api, tenant, member):
        client = api()
        with tenant_scope(tenant):
            row = tools.save_tool(definition(), actor=client.user).row
        path = f"/api/admin/tools/{row.pk}"
        assert patch(client, path, {"enabled": False}).json()["enabled"] is False
        assert delete(client, path).status_code == 204
        assert delete(client, path).status_code == 404
        with tenant_scope(tenant):
            assert not HttpToolRow.objects.exists()


class TestStyles:
    STYLE = {"styleId": "calm", "name": "Calm", "systemPrompt": "Be calm."}

    def test_versions_are_read_and_one_is_used_again(self, api, tenant):
        client = api()
        pk = client.post("/api/admin/styles", self.STYLE).json()["id"]
        client.post("/api/admin/styles", self.STYLE | {"systemPrompt": "Be loud."})
        path = f"/api/admin/styles/{pk}"
        told = client.get(path).json()
        assert [one["systemPrompt"] for one in told["versions"]] == ["Be loud.", "Be calm."]
        told = client.post(f"{path}/restore", {"version": 1}).json()
        assert (told["version"], told["systemPrompt"]) == (3, "Be calm.")
        assert client.post(f"{path}/restore", {"version": 9}).json()["errors"][0]["path"] == "version"
        assert delete(client, path).status_code == 204
        assert client.get(path).status_code == 404
        with tenant_scope(tenant):
            assert not Style.objects.exists()

    def test_skills_are_kept_and_go_once_no_style_has_them(self, api, tenant):
        client, path = api(), "/api/admin/skills"
        body = {"name": "booking", "description": "Books", "tools": ["offer_booking_link"]}
        made = client.post(path, body)
        assert made.status_code == 200, made.content
        assert client.post(path, body | {"tools": []}).json()["id"] == made.json()["id"]
        assert client.post(path, body | {"tools": ["gone"]}).json()["errors"][0]["path"] == "tools"
        style = client.post("/api/admin/styles", self.STYLE | {"skills": ["booking"]}).json()
        refused = delete(client, f"{path}/{made.json()['id']}")
        assert refused.status_code == 400
        assert "take it out there first" in refused.json()["detail"]
        delete(client, f"/api/admin/styles/{style['id']}")
        assert delete(client, f"{path}/{made.json()['id']}").status_code == 204
        assert client.get(path).json() == {"skills": []}
        with tenant_scope(tenant):
            assert not Skill.objects.exists()
        assert actions(tenant) == [
            "skill.saved", "skill.saved", "style.created", "style.deleted", "skill.deleted",
        ]  # fmt: skip

    def test_read_is_enough_to_look(self, api):
        client = api("read")
        assert client.get("/api/admin/skills").status_code == 200
        assert client.post("/api/admin/skills", {"name": "x", "tools": []}).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["exchange/rates/{}", "exchange/orders/{}/paid", "styles/{}", "styles/{}/restore", "skills/{}", "tools/{}"],
)
def test_ids_of_another_tenant_do_not_exist(api, tenant, other_tenant, member, path):
    from tests.factories import UserFactory

    with tenant_scope(other_tenant):
        theirs = {
            "exchange/rates": ExchangeRate.objects.create(give="EUR", get="USD", rate=1, max_amount=1),
            "exchange/orders": ExchangeOrder.objects.create(
                create_key="k", contact_id="x", give="EUR", get="USD", give_amount=1, get_amount=1,
                needs_verification=False,
            ),
            "skills": Skill.objects.create(name="x"),
            "styles": Style.objects.create(style_id="x", name="X", version=1),
            "tools": tools.save_tool(definition(), actor=UserFactory()).row,
        }  # fmt: skip
    client = api()
    found = next(row for name, row in theirs.items() if path.startswith(name))
    address = f"/api/admin/{path.format(found.pk)}"
    for send in (client.client.get, client.client.post, client.client.delete):
        assert send(address, headers=client.headers).status_code in (404, 405), send
