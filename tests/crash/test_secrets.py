"""Secrets under real processes: none is found in anything that is kept or passed on (S5), and a rotation that is killed
half-way goes on where it was (S3)."""

import base64
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from urllib.parse import quote, quote_plus

import pytest
import redis

from tenants import endpoints, secrets, tools
from tenants.keys import Keyring
from tenants.models import Secret
from tenants.scope import tenant_scope
from tests.crash.house import OWN_MODEL, ROOT, START_S, Broker, WorkerProcess, all_done, post_turn
from tests.engine.loopback import Answer, Server
from tests.engine.loopback import serving as http_server
from tests.service import Service
from tests.settings.http_tools import definition
from tests.settings.test_whole_turn import everything
from tests.turns.conftest import Lab, eventually

pytestmark = [pytest.mark.crash, pytest.mark.slow]

type Start = Callable[..., WorkerProcess]

TOOL_KEY = 'canary/0815="shop" key+'
MODEL_KEY = "sk-canary/4711+model"
NUM_SECRETS = 200


def spellings(value: str) -> set[str]:
    """The ways in which a value comes back."""
    data = value.encode()
    return {
        value,
        quote(value, safe=""),
        quote(value, safe="").lower(),
        quote_plus(value),
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode(),
        json.dumps(value)[1:-1],
        json.dumps(json.dumps(value))[3:-3],
        data.hex(),
    }


def echo(handler: BaseHTTPRequestHandler) -> None:
    """Answers with the secret that came, in every spelling, as a careless service does."""
    came = (handler.headers.get("authorization") or "").removeprefix("Bearer ")
    body = json.dumps({"you_sent": sorted(spellings(came) - {came.encode().hex()}), "url": handler.path}).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def kept_in(client: redis.Redis) -> str:
    """Each key of this Redis with its value, as it lies there and as text."""
    found = []
    for key in client.scan_iter():
        found += [key, client.dump(key) or b""]
        match client.type(key):
            case b"string":
                found.append(client.get(key) or b"")
            case b"list":
                found += client.lrange(key, 0, -1)
            case b"hash":
                found += [part for pair in client.hgetall(key).items() for part in pair]
            case b"set" | b"zset" as kind:
                found += client.smembers(key) if kind == b"set" else client.zrange(key, 0, -1)
    return "\n".join(part.decode("latin-1") for part in found)


@pytest.mark.redis
def test_no_spelling_of_a_secret_is_kept_or_passed_on(
    lab: Lab, start: Start, broker: Broker, own_settings: dict[str, str], settings, monkeypatch, member, api, request
) -> None:
    with http_server(Answer(send=echo)) as server:
        settings.OUTBOUND_ALLOW_PORTS = [*settings.OUTBOUND_ALLOW_PORTS, server.port]
        monkeypatch.setenv("OUTBOUND_ALLOW_PORTS", ",".join(map(str, settings.OUTBOUND_ALLOW_PORTS)))
        web: Service = request.getfixturevalue("web")  # which reads the ports above
        set_up(lab, server, member("admin").user)
        token = api().text
        pk, _ = post_turn(web, token, model=OWN_MODEL, styleId="")
        with broker.client() as client:
            eventually(lambda: client.exists("turns") == 1)  # nobody hears it yet
            queued = kept_in(client)
            worker = start(LOG_LEVEL="DEBUG", REDIS_URL=broker.url, **own_settings)
            jobs = start(queues="celery", REDIS_URL=broker.url, LOG_LEVEL="DEBUG").is_ready()
            beat = start(is_beat=True, REDIS_URL=broker.url, LOG_LEVEL="DEBUG")
            all_done(lab, 1)
            kept = kept_in(client)
        assert server.seen[0].header("authorization") == f"Bearer {TOOL_KEY}"
    answers = [
        read(web, token, path)
        for path in (
            f"/api/turns/{pk}",
            f"/api/turns/{pk}/events",
            "/api/admin/quality/tool-calls/export.jsonl",
            "/api/admin/quality/tool-calls",
            "/api/admin/secrets",
            "/api/admin/tools",
            "/api/admin/tools/definitions",
        )
    ]
    logs = [process.log.read_text() for process in (worker, jobs, beat)] + [web.log.read_text()]
    rows = everything()
    assert "run_turn" in queued  # positive control: the message was there
    assert rows.count("{secret:SHOP_KEY}") > 1  # and so was the echo, by the secret's name
    assert "{secret:SHOP_KEY}" in answers[0] + answers[2]
    for name, text in {"rows": rows, "queue": queued, "redis": kept, "answers": "".join(answers)}.items():
        leaked(name, text)
    for log in logs:
        leaked("log", log)


def set_up(lab: Lab, server: Server, by) -> None:
    """An echoing tool as the only one, and a model with a key."""
    with tenant_scope(lab.tenant):
        for row in list(tools.HttpToolRow.objects.all()):
            tools.delete_tool(row=row, actor=by)
        tools.set_tool_secret(name="SHOP_KEY", value=TOOL_KEY, actor=by)
        url = f"http://127.0.0.1:{server.port}/orders/{{number}}"
        tools.save_tool(definition(url=url, headers={"Authorization": "Bearer {secret:SHOP_KEY}"}), actor=by)
        kept = endpoints.ModelEndpoint.objects.get(label=OWN_MODEL)
        changed = endpoints.EndpointData(
            label=kept.label, base_url=kept.base_url, model=kept.model, key=MODEL_KEY, is_enabled=True
        )
        endpoints.save_endpoint(changed, actor=by, pk=kept.pk)


def read(web: Service, token: str, path: str) -> str:
    request = urllib.request.Request(f"{web.url}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()


def leaked(name: str, text: str) -> None:
    for value in (TOOL_KEY, MODEL_KEY):
        for spelling in spellings(value):
            at = text.find(spelling)
            assert at < 0, (name, spelling, text[max(0, at - 200) : at + 200])


def test_a_rotation_killed_half_way_goes_on_where_it_was(tenant, other_tenant, member, settings) -> None:
    old, both = ring("old"), ring("new", "old")
    settings.APP_KEKS = old
    for each in (tenant, other_tenant):
        by = member("admin", tenant=each).user
        with tenant_scope(each):
            for number in range(NUM_SECRETS // 2):
                secrets.set_secret(name=f"KEY_{number}", value=f"value {number}", actor=by)
    with rotate(both) as rotation:
        try:
            eventually(lambda: counts().get("new", 0) > 3, START_S)
        finally:
            rotation.kill()
    half = counts()
    assert half["new"] + half.get("old", 0) == NUM_SECRETS
    assert half.get("old"), "it was over before it was killed"
    settings.APP_KEKS = both
    check_values(tenant, other_tenant)  # in the middle, too, all are readable
    again = rotate(both)
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert said.splitlines()[0] == f"Before: new: {half['new']}, old: {half['old']}"
    assert said.splitlines()[-1] == f"After:  new: {NUM_SECRETS}"
    settings.APP_KEKS = ring("new")
    check_values(tenant, other_tenant)


KEYS = {"old": os.urandom(32), "new": os.urandom(32)}


def ring(*kids: str) -> Keyring:
    return Keyring({kid: KEYS[kid] for kid in kids})


def rotate(keyring: Keyring) -> subprocess.Popen[str]:
    keys = ",".join(f"{kid}:{base64.b64encode(key).decode()}" for kid, key in keyring.keys.items())
    command = [sys.executable, "manage.py", "rotate_secrets", "--batch=1"]
    env = {**os.environ, "APP_KEKS": keys}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def counts() -> dict[str, int]:
    found: dict[str, int] = {}
    for _, kid, count in secrets.stored_kids():
        found[kid] = found.get(kid, 0) + count
    return found


def check_values(*tenants) -> None:
    for each in tenants:
        with tenant_scope(each):
            for secret in Secret.objects.all():
                number = secret.name.removeprefix("KEY_")
                assert secrets.read(secret, used_by="t", run="r") == f"value {number}"
