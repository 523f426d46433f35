"""What one turn is offered, and what its tools may send: over real HTTP on loopback (S5, S6, S7)."""

import asyncio
import time

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from engine.loop import run_turn
from engine.net import Guard
from engine.providers.openai import OpenAIModel
from engine.redaction import Redactor
from engine.tools import Mode, Registry, Safety, ToolContext
from quality.turns.resolver import Conversation, resolve_tools
from quality.turns.setup import SetupRefused
from tenants import booking, endpoints, limits, outbound, scripts, tools
from tenants.models import AuditEvent, HttpToolRow, Secret
from tenants.scope import tenant_scope
from tests.engine.loopback import Answer
from tests.engine.loopback import serving as http_server
from tests.settings.http_tools import definition, loopback  # noqa: F401  (a fixture)

SOMEBODY = Conversation(id="c-1", contact_id="ann", run="turn 7")
CANARY = "canary/4711+key"


@pytest.fixture
def admin(member):
    return member("admin").user


def called(tenant, arguments, **fields):
    """The outcome of a call of the tenant's only tool."""
    box = resolve_tools(tenant, SOMEBODY)
    context = ToolContext(deadline=time.monotonic() + 5, redactor=Redactor(box.known_secrets), **fields)
    return asyncio.run(Registry(box.tools).run(box.tools[0].name, arguments, context))


def test_a_tenant_that_set_nothing_is_offered_nothing(tenant):
    box = resolve_tools(tenant, SOMEBODY)
    assert box.tools == ()
    assert box.limits == limits.ToolLimits(4, 15.0, 2000)


def test_enabled_tools_are_offered_from_the_next_turn_on(tenant, admin):
    with tenant_scope(tenant):
        row = tools.save_tool(definition(), actor=admin).row
    assert [tool.name for tool in resolve_tools(tenant, SOMEBODY).tools] == ["get_order"]
    with tenant_scope(tenant):
        tools.switch_tool(row=row, is_enabled=False, actor=admin)
    assert resolve_tools(tenant, SOMEBODY).tools == ()


def test_another_tenants_tools_are_not_offered(tenant, other_tenant, admin):
    with tenant_scope(tenant):
        tools.save_tool(definition(), actor=admin)
    assert resolve_tools(other_tenant, SOMEBODY).tools == ()


def test_settings_that_did_not_change_are_not_read_again(tenant, admin):
    with tenant_scope(tenant):
        for number in range(20):
            tools.save_tool(definition(name=f"t{number}"), actor=admin)
    resolve_tools(tenant, SOMEBODY)
    with CaptureQueriesContext(connection) as queries:
        assert len(resolve_tools(tenant, SOMEBODY).tools) == 20
    assert not [query for query in queries if "http_tools" in query["sql"]]
    assert len([query for query in queries if "cache_entries" not in query["sql"]]) <= 5  # scope and version


class TestSecrets:
    def test_a_call_sends_the_secret_and_nothing_that_is_kept_holds_it(self, tenant, admin, loopback):  # noqa: F811
        with http_server(Answer(body=f'{{"echo": "Bearer {CANARY}"}}'.encode())) as server:
            base = loopback(server)
            with tenant_scope(tenant):
                tools.set_tool_secret(name="SHOP_KEY", value=CANARY, actor=admin)
                headers = {"Authorization": "Bearer {secret:SHOP_KEY}"}
                tools.save_tool(definition(url=base + "/orders/{number}", headers=headers), actor=admin)
            outcome = called(tenant, {"number": "7"})
            assert server.seen[0].header("authorization") == f"Bearer {CANARY}"
        assert "{secret:SHOP_KEY}" in outcome.result
        assert CANARY not in repr(outcome)
        with tenant_scope(tenant):
            used = AuditEvent.objects.get(action="secret.used").detail
            assert used == {"name": "SHOP_KEY", "usedBy": "get_order", "run": "turn 7"}

    def test_a_tool_that_moved_sends_nothing_to_its_new_host(self, tenant, admin, loopback):  # noqa: F811
        with http_server() as old, http_server() as new:
            base = loopback(old, new)
            headers = {"Authorization": "Bearer {secret:SHOP_KEY}"}
            with tenant_scope(tenant):
                tools.set_tool_secret(name="SHOP_KEY", value=CANARY, actor=admin)
                row = tools.save_tool(definition(url=base + "/{number}", headers=headers), actor=admin).row
                moved = f"http://127.0.0.1:{new.port}/{{number}}"
                tools.save_tool(definition(url=moved, headers=headers), actor=admin, pk=row.pk)
            outcome = called(tenant, {"number": "7"})
            assert outcome.error == "secret_missing"
            assert new.seen == []

    def test_a_row_moved_by_hand_sends_nothing_either(self, tenant, admin, loopback):  # noqa: F811
        """R22, S6: what the database says now is judged when the tool runs."""
        with http_server() as old, http_server() as new:
            base = loopback(old, new)
            headers = {"Authorization": "Bearer {secret:SHOP_KEY}"}
            with tenant_scope(tenant):
                tools.set_tool_secret(name="SHOP_KEY", value=CANARY, actor=admin)
                tools.save_tool(definition(url=base + "/{number}", headers=headers), actor=admin)
                row = HttpToolRow.objects.get()
                row.definition = row.definition.replace(base, f"http://127.0.0.1:{new.port}")
                row.save()
            assert called(tenant, {"number": "7"}).error == "secret_missing"
            assert new.seen == []

    def test_one_tools_secret_is_out_of_reach_for_another(self, tenant, admin, loopback):  # noqa: F811
        with http_server() as server:
            base = loopback(server)
            with tenant_scope(tenant):
                tools.set_tool_secret(name="SHOP_KEY", value=CANARY, actor=admin)
                headers = {"Authorization": "Bearer {secret:SHOP_KEY}"}
                tools.save_tool(definition(url=base + "/{number}", headers=headers), actor=admin)
                tools.save_tool(definition(name="also", url=base + "/{number}", headers=headers), actor=admin)
            box = resolve_tools(tenant, SOMEBODY)
            outcome = asyncio.run(Registry(box.tools).run("also", {"number": "7"}, ToolContext()))
            assert outcome.error == "secret_missing"
            assert server.seen == []

    def test_a_secret_that_does_not_open_refuses_the_turn_by_its_code(self, tenant, admin):
        with tenant_scope(tenant):
            tools.set_tool_secret(name="SHOP_KEY", value=CANARY, actor=admin)
            tools.save_tool(definition(headers={"X": "{secret:SHOP_KEY}"}), actor=admin)
            Secret.objects.update(ciphertext=b"x" * 40)
        with pytest.raises(SetupRefused) as caught:
            resolve_tools(tenant, SOMEBODY)
        assert caught.value.code == "secret_invalid"


def test_a_row_with_a_bad_address_is_refused_when_it_runs(tenant, admin):
    with tenant_scope(tenant):
        tools.save_tool(definition(), actor=admin)
        row = HttpToolRow.objects.get()
        row.definition = row.definition.replace("https://api.example.com", "http://169.254.169.254")
        row.save()
    assert called(tenant, {"number": "7"}).error == "address_not_allowed"


def test_the_booking_link_is_offered_while_it_is_set(tenant, admin):
    with tenant_scope(tenant):
        booking.set_url("https://cal.example.com/team", actor=admin)
    assert "https://cal.example.com/team" in called(tenant, {}).text
    with tenant_scope(tenant):
        booking.remove(actor=admin)
    assert resolve_tools(tenant, SOMEBODY).tools == ()


def test_a_switch_sets_mode_and_safety_of_a_tool_of_ours(tenant, admin):
    with tenant_scope(tenant):
        booking.set_url("https://cal.example.com/team", actor=admin)
        tools.set_switch(name="offer_booking_link", is_enabled=True, mode="approve", safety="unsafe", actor=admin)
    (tool,) = resolve_tools(tenant, SOMEBODY).tools
    assert (tool.mode, tool.safety) == (Mode.APPROVE, Safety.UNSAFE)
    with tenant_scope(tenant):
        tools.set_switch(name="offer_booking_link", is_enabled=False, actor=admin)
    assert resolve_tools(tenant, SOMEBODY).tools == ()


def test_script_tools_are_offered_where_a_tenant_switched_them_on(tenant, other_tenant, admin, settings, tmp_path):
    (tmp_path / "hello.py").write_text(
        "def get_tools():\n    return [{'name': 'hello', 'description': 'Greets.'}]\n"
        "def execute_tool(name, arguments):\n    return 'hello to you'\n"
    )
    settings.SCRIPT_TOOLS_DIR = str(tmp_path)
    assert resolve_tools(tenant, SOMEBODY).tools == ()
    with tenant_scope(tenant):
        scripts.switch(is_enabled=True, actor=admin)
    assert called(tenant, {}).text == "hello to you"
    assert resolve_tools(other_tenant, SOMEBODY).tools == ()


class TestLimits:
    def test_a_tenants_numbers_count_within_the_operators_bounds(self, tenant, admin, settings):
        with tenant_scope(tenant):
            limits.set_limits(max_cycles=8, tool_timeout_s=3.5, result_max_chars=None, actor=admin)
        assert resolve_tools(tenant, SOMEBODY).limits == limits.ToolLimits(8, 3.5, 2000)
        settings.LLM_TOOL_MAX_ITERATIONS_BOUND = 6
        with tenant_scope(tenant):
            limits.set_limits(max_cycles=None, tool_timeout_s=3.5, result_max_chars=10, actor=admin)
        assert resolve_tools(tenant, SOMEBODY).limits == limits.ToolLimits(4, 3.5, 10)

    @pytest.mark.parametrize("number", [0, -1, 33])
    def test_a_number_out_of_bounds_is_refused(self, tenant, admin, number):
        from django.core.exceptions import ValidationError

        with tenant_scope(tenant), pytest.raises(ValidationError):
            limits.set_limits(max_cycles=number, tool_timeout_s=None, result_max_chars=None, actor=admin)


def test_a_whole_turn_runs_with_what_was_resolved(tenant, admin, settings):
    """Model, tool and secret as set by a tenant, through the engine, against real servers."""
    from tests.settings.test_models import data, serving

    with http_server(Answer(body=b'{"status": "sent"}')) as server, serving("one_call", "plain_text") as model_server:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        model_port = int(model_server.base_url.rpartition(":")[2].partition("/")[0])
        settings.OUTBOUND_ALLOW_PORTS = [server.port, model_port]
        base = f"http://127.0.0.1:{settings.OUTBOUND_ALLOW_PORTS[0]}"
        with tenant_scope(tenant):
            endpoints.save_endpoint(data(base_url=model_server.base_url), actor=admin)
            tools.save_tool(definition(url=base + "/orders/{number}"), actor=admin)
            chosen = endpoints.choose()
        box = resolve_tools(tenant, SOMEBODY)

        async def turn():
            async with Guard(outbound.policy()).client(chosen.base_url) as client:
                model: OpenAIModel = chosen.built(client, None)
                return await run_turn(model, box.tools, [{"role": "user", "content": "Where is order 7?"}])

        result = asyncio.run(turn())
        assert (result.outcome, result.num_calls) == ("answered", 1)
        assert server.seen[0].target.startswith("/orders/")
