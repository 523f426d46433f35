"""A turn as a tenant set it up, run by a real worker: what is kept of it holds no spelling of a secret (S5, S7)."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from engine.redaction import Redactor
from quality import tasks
from quality.models import Channel
from quality.turns import setup
from quality.turns.create import create_turn
from tenants import endpoints, styles, tools
from tenants.models import AuditEvent, Secret
from tenants.scope import tenant_scope
from tests import environment
from tests.engine.loopback import Answer
from tests.engine.loopback import serving as http_server
from tests.settings.http_tools import definition
from tests.settings.test_models import data, serving
from tests.turns.conftest import Lab

KEY, SHOP_KEY = "sk-canary/4711+model", "canary/0815=shop key"


@pytest.fixture
def lab(tenant: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    settings.TURN_LEASE_S, settings.TURN_SWEEP_S = 3.0, 0.1
    settings.TURN_SETUP = "quality.turns.resolver.from_settings"
    monkeypatch.setattr(tasks, "publish_aside", lambda _task, *args: None)
    setup.setup_source.cache_clear()
    lab = Lab(tenant, None, None)
    yield lab
    lab.stop()
    setup.setup_source.cache_clear()


def everything() -> str:
    """Each row of each table, as an administrator sees them."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:
        tables = [name for (name,) in admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        return "\n".join(row for table in tables for (row,) in admin.execute(f'SELECT t::text FROM "{table}" t'))


def test_a_tenants_turn_uses_its_settings_and_leaks_none_of_its_secrets(lab, tenant, member, settings, caplog):
    admin = member("admin").user
    echo = Answer(body=f'{{"you_sent": "Bearer {SHOP_KEY}", "status": "sent"}}'.encode())
    with http_server(echo) as server, serving("one_call", "plain_text") as model:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [server.port, int(model.base_url.split(":")[2].split("/")[0])]
        with tenant_scope(tenant):
            endpoints.save_endpoint(data(base_url=model.base_url, key=KEY, sources=("api",)), actor=admin)
            tools.set_tool_secret(name="SHOP_KEY", value=SHOP_KEY, actor=admin)
            headers = {"Authorization": "Bearer {secret:SHOP_KEY}"}
            url = f"http://127.0.0.1:{server.port}/orders/{{number}}"
            tools.save_tool(definition(url=url, headers=headers), actor=admin)
            styles.save_style(
                style_id="friendly", name="Friendly", text=styles.StyleText("Be kind."), is_default=True, actor=admin
            )
            turn = create_turn(text="Where is order 7?", channel=Channel.API)
        lab.worker()
        run = lab.rests(turn)
        assert (run.state, run.turn.end_reason) == ("done", "answered"), run.error
        assert server.seen[0].header("authorization") == f"Bearer {SHOP_KEY}"
        assert model.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert (run.turn.style_id, run.turn.prompt_version) == ("friendly", "friendly@1")
    assert run.turn.system == '"Be kind."'
    kept = everything()
    assert "{secret:SHOP_KEY}" in kept  # positive control: the echo was kept, by the secret's name
    for text in (kept, caplog.text):
        assert Redactor({"MODEL": KEY, "SHOP": SHOP_KEY}).text(text) == text
    with tenant_scope(tenant):
        used = AuditEvent.objects.filter(action="secret.used").values_list("detail__name", "detail__run")
        key_name = Secret.objects.get(purpose="model").name
        assert sorted(used) == sorted([("SHOP_KEY", f"turn {turn.pk}"), (key_name, f"turn {turn.pk}")])


def test_a_secret_that_does_not_open_fails_the_turn_by_its_code(lab, tenant, member):
    with tenant_scope(tenant):
        endpoints.save_endpoint(data(key=KEY), actor=member("admin").user)
        Secret.objects.update(ciphertext=b"x" * 40)
        turn = create_turn(text="Hello", channel=Channel.API)
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == ("failed", "secret_invalid")


def test_without_a_model_a_turn_says_what_to_do(lab, tenant, monkeypatch):
    monkeypatch.delenv("MODEL_URL", raising=False)
    with tenant_scope(tenant):
        turn = create_turn(text="Hello", channel=Channel.API)
    lab.worker()
    run = lab.rests(turn)
    assert (run.state, run.turn.end_reason) == ("failed", "no_model")
    assert "add a model endpoint" in run.error
