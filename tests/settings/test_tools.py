"""HTTP tools that a tenant keeps: judged whole, versioned, imported, exported; secrets stay put (R10, R22, S6, S8)."""

import json

import pytest

from engine.errors import ToolError
from engine.tools.definitions import DefinitionsError
from tenants import secrets, tools
from tenants.models import HttpToolRow, HttpToolVersion, Secret
from tenants.scope import tenant_scope
from tenants.versions import current_version
from tests.settings.http_tools import definition


@pytest.fixture
def admin(member):
    return member("admin").user


@pytest.fixture
def save(inside, admin):
    def saved(**fields):
        pk = fields.pop("pk", None)
        with inside():
            return tools.save_tool(definition(**fields), actor=admin, pk=pk)

    return saved


def test_a_tool_is_kept_as_it_was_written_with_its_history(save, inside):
    first = save().row
    save(pk=first.pk, description="Look one order up.")
    save(pk=first.pk, description="Look one order up.")  # nothing changed, so no version
    with inside():
        row = HttpToolRow.objects.get()
        assert (row.name, row.version) == ("get_order", 2)
        assert list(json.loads(row.definition)) == list(definition())
        assert list(HttpToolVersion.objects.order_by("number").values_list("number", flat=True)) == [1, 2]


def test_each_write_raises_the_version_of_the_settings(save, inside, admin):
    with inside():
        before = current_version()
    row = save().row
    with inside():
        tools.switch_tool(row=row, is_enabled=False, actor=admin)
        tools.delete_tool(row=row, actor=admin)
        assert current_version() >= before + 3
        assert not HttpToolVersion.objects.exists()


def test_an_older_version_is_used_again_as_the_newest(save, inside, admin):
    row = save().row
    save(pk=row.pk, description="Worse.")
    with inside():
        tools.restore_version(row=row, number=1, actor=admin)
        row.refresh_from_db()
        assert (row.version, json.loads(row.definition)["description"]) == (3, "Look an order up.")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"name": "no spaces"}, "name"),
        ({"description": ""}, "description"),
        ({"url": "http://127.0.0.1/x"}, "url"),
        ({"url": "https://{host}/x"}, "url"),
        ({"url": "{scheme}://api.example.com/x"}, "url"),
        ({"url": "https://api.example.com/x?{name}=1"}, "url"),
        ({"url": "https://api.example.com/?key={secret:K}"}, "url"),
        ({"headers": {"{name}": "x"}}, "headers"),
        ({"headers": {"Host": "x"}}, "headers"),
        ({"headers": {"X": "a\r\nb"}}, "headers"),
        ({"parameters": {"type": "array"}}, "parameters"),
        ({"parameters": {"type": "object", "properties": {"a": {"type": "strin"}}}}, "parameters"),
        ({"mode": "client"}, "mode"),
        ({"safety": "perhaps"}, "safety"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_definition_is_judged_whole_and_its_faults_are_named(save, inside, fields, place):
    with pytest.raises(DefinitionsError) as caught:
        save(**fields)
    assert any(fault.field.startswith(place) for fault in caught.value.faults)
    with inside():
        assert not HttpToolRow.objects.exists()


@pytest.mark.parametrize("name", ["offer_booking_link", "issue_exchange_payout"])
def test_names_of_our_own_tools_are_taken(save, name):
    with pytest.raises(ToolError, match="a tool of ours"):
        save(name=name)


def test_a_name_is_taken_once(save):
    save()
    with pytest.raises(ToolError, match="taken by another tool"):
        save()


class TestSecrets:
    HEADERS = {"Authorization": "Bearer {secret:SHOP_KEY}"}

    def test_another_host_detaches_the_secret_and_asks_for_it_again(self, save, inside, admin):
        with inside():
            tools.set_tool_secret(name="SHOP_KEY", value="canary", actor=admin)
        saved = save(headers=self.HEADERS)
        assert saved.missing == []
        moved = save(pk=saved.row.pk, headers=self.HEADERS, url="https://attacker.example/orders/{number}")
        assert moved.missing == ["SHOP_KEY"]
        with inside():
            place = tools.place_of(tools.definition_of(moved.row))
            assert secrets.read_for_tool(place, ["SHOP_KEY"], run="r") == {}
            tools.set_tool_secret(name="SHOP_KEY", value="canary", actor=admin)
            assert secrets.read_for_tool(place, ["SHOP_KEY"], run="r") == {"SHOP_KEY": "canary"}

    def test_another_port_or_scheme_is_another_host(self, save, inside, admin):
        with inside():
            tools.set_tool_secret(name="SHOP_KEY", value="canary", actor=admin)
        row = save(headers=self.HEADERS).row
        assert save(pk=row.pk, headers=self.HEADERS, url="https://api.example.com:8443/x").missing == ["SHOP_KEY"]

    def test_another_name_has_to_be_given_it_again(self, save, inside, admin):
        with inside():
            tools.set_tool_secret(name="SHOP_KEY", value="canary", actor=admin)
        row = save(headers=self.HEADERS).row
        assert save(pk=row.pk, headers=self.HEADERS, name="get_orders").missing == ["SHOP_KEY"]

    def test_a_tool_that_is_deleted_leaves_no_leave_behind(self, save, inside, admin):
        with inside():
            tools.set_tool_secret(name="SHOP_KEY", value="canary", actor=admin)
        row = save(headers=self.HEADERS).row
        with inside():
            tools.delete_tool(row=row, actor=admin)
        assert save(headers=self.HEADERS).missing == ["SHOP_KEY"]


class TestImport:
    def test_all_are_taken_in_and_a_known_name_gets_a_version(self, save, inside, admin):
        save()
        array = [definition(description="New words."), definition(name="get_stock")]
        with inside():
            saved = tools.import_tools(json.dumps(array), actor=admin)
            assert [(one.row.name, one.row.version) for one in saved] == [("get_order", 2), ("get_stock", 1)]

    def test_one_bad_definition_refuses_all(self, inside, admin):
        array = [definition(), definition(name="bad", url="nonsense")]
        with inside():
            with pytest.raises(DefinitionsError):
                tools.import_tools(json.dumps(array), actor=admin)
            assert not HttpToolRow.objects.exists()

    @pytest.mark.parametrize(
        "body", [b"", b"\xff", b"{}", b"[]", b"[1]", b'[{"name": "a"}]', b'[{"name":"a","name":"b"}]']
    )
    def test_what_is_no_array_of_definitions_is_refused(self, inside, admin, body):
        with inside(), pytest.raises(DefinitionsError):
            tools.import_tools(body, actor=admin)

    def test_an_export_comes_back_and_carries_no_secret(self, save, inside, admin, other_tenant, member):
        with inside():
            tools.set_tool_secret(name="SHOP_KEY", value="canary-4711", actor=admin)
        save(headers=TestSecrets.HEADERS)
        save(name="get_stock")
        with inside():
            exported = tools.export_tools()
        text = json.dumps(exported)
        assert "canary" not in text
        with tenant_scope(other_tenant):
            user = member("admin", tenant=other_tenant).user
            saved = tools.import_tools(text, actor=user)
            assert tools.export_tools() == exported
            assert {one.row.name: one.missing for one in saved} == {"get_order": ["SHOP_KEY"], "get_stock": []}
            assert not Secret.objects.exists()


def test_another_tenants_tools_do_not_exist(save, other_tenant):
    save()
    with tenant_scope(other_tenant):
        assert tools.export_tools() == []
