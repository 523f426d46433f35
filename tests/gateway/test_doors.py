"""Who may come in, how often, and what they are told otherwise; and what holds while the database is away."""

import datetime as dt
import json
import time
import uuid
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import psycopg
import pytest
from django.db import connections
from psycopg import sql

from quality.gateway.exchange import Exchange, Said
from quality.gateway.recorder import Recorder
from quality.models import GatewayDay, Turn
from tenants import tokens
from tenants.models import AuditEvent, Membership, ModelEndpoint, Role
from tenants.scope import tenant_scope
from tests import environment
from tests.gateway.conftest import PATIENCE_S, QUESTION, TOOLS, UPSTREAM_KEY, Lab
from tests.service import Service


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error in OpenAI's shape."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["content-type"] == "application/json"
    return body["error"]


class TestCallers:
    @pytest.mark.parametrize("header", ["", "Bearer", "Bearer qlab_x", "Basic cWxhYg==", "Bearer qlab_" + "a" * 12])
    def test_without_a_token_of_ours_nobody_comes_in(self, lab: Lab, header: str):
        answer = httpx.post(f"{lab.url}/chat/completions", json={}, headers={"Authorization": header} if header else {})
        assert answer.status_code == 401
        assert error_of(answer)["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"].startswith("Bearer")

    def test_a_token_of_another_scope_is_told_what_it_lacks(self, at: Any, tenant: Any):
        lab = at(tenant, "read", "turns:write")
        with pytest.raises(openai.PermissionDeniedError, match="lacks the scope gateway"):
            lab.sdk().models.list()

    def test_a_revoked_token_and_a_maker_without_the_role_are_out_soon(self, lab: Lab, at: Any, other_tenant: Any):
        other = at(other_tenant)
        other.endpoint()
        for each in (lab, other):
            assert each.post("S1").status_code == 200
        with tenant_scope(lab.tenant_id):
            tokens.revoke_token(token=lab.token, actor=lab.member.user)
        with tenant_scope(other.tenant_id):
            Membership.objects.filter(pk=other.member.pk).update(role=Role.VIEWER)
        until(lambda: lab.post("S1").status_code == 401)
        until(lambda: other.post("S1").status_code == 403)

    def test_what_is_set_takes_effect_soon(self, lab: Lab):
        assert lab.post("S1").status_code == 200
        lab.endpoint("added")
        assert lab.post("S1", {"model": "added"}).status_code == 200  # looked for at once
        with tenant_scope(lab.tenant_id):
            from tenants.versions import raise_version

            ModelEndpoint.objects.filter(label="main").update(is_enabled=False)
            raise_version()
        until(lambda: lab.post("S1").status_code == 404)

    def test_requests_a_minute_are_counted_for_each_token(self, at: Any, tenant: Any):
        lab, other = at(tenant, rate=3), at(tenant, rate=3)
        lab.endpoint()
        while time.time() % 60 > 40:  # all within one minute
            time.sleep(0.5)
        seen = [lab.post("S1") for _ in range(5)]
        assert [answer.status_code for answer in seen] == [200, 200, 200, 429, 429]
        assert error_of(seen[-1])["code"] == "rate_limit_exceeded"
        assert 0 < int(seen[-1].headers["retry-after"]) <= 60
        assert other.post("S1").status_code == 200
        assert lab.sdk().models.list().data  # to look around is counted for itself

    def test_looking_at_the_models_has_a_rate_too_and_leaves_the_turns_theirs(self, at: Any, tenant: Any):
        lab = at(tenant, rate=3)
        lab.endpoint()
        while time.time() % 60 > 40:
            time.sleep(0.5)
        seen = [httpx.get(f"{lab.url}/models{name}", headers=lab.headers) for name in ("", "/main", "", "", "/main")]
        assert [answer.status_code for answer in seen] == [200, 200, 200, 429, 429]
        assert error_of(seen[-1])["code"] == "rate_limit_exceeded"
        assert 0 < int(seen[-1].headers["retry-after"]) <= 60
        assert lab.post("S1").status_code == 200


class TestModels:
    def test_a_model_is_chosen_by_label_then_by_name(self, lab: Lab):
        lab.endpoint("other", model="S2")
        lab.endpoint("plain", model="other")
        lab.endpoint("off", model="unseen", is_enabled=False)
        for name, asked in {"main": "plain_text", "other": "S2", "S2": "S2", "plain": "other"}.items():
            assert lab.post("", {"model": name}).status_code == 200
            assert lab.model.asked[-1].body["model"] == asked
        for name in ("off", "unseen", "none"):
            answer = lab.post("", {"model": name})
            assert answer.status_code == 404
            assert error_of(answer)["code"] == "model_not_found"
            assert "main, other, plain" in error_of(answer)["message"]

    def test_the_enabled_models_are_listed(self, lab: Lab):
        lab.endpoint("off", is_enabled=False)
        client = lab.sdk()
        assert [(model.id, model.object) for model in client.models.list()] == [("main", "model")]
        assert client.models.retrieve("main").id == "main"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("off")

    def test_a_key_is_read_once_for_many_requests_which_the_audit_log_tells(self, lab: Lab):
        lab.endpoint("keyed", key=UPSTREAM_KEY)
        for _ in range(5):
            lab.post("S1", {"model": "keyed"})
        assert lab.model.asked[-1].headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
        with tenant_scope(lab.tenant_id):
            (used,) = AuditEvent.objects.filter(action="secret.used")
        assert used.detail["usedBy"] == "model keyed"
        assert used.detail["run"].startswith("gateway")


class TestRequests:
    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"", 400, "malformed_json"),
            (b"[]", 400, "wrong_type"),
            (b'{"model":"main","messages":[}', 400, "malformed_json"),
            (b'{"messages":[]}', 400, "model_missing"),
            (b'{"model":7,"messages":[]}', 400, "model_missing"),
            (b'{"model":"main"}', 400, "messages_missing"),
            (b'{"model":"main","messages":' + b"[" * 60_000, 400, None),
            (b'{"model":"main","messages":"' + b"x" * 300_000 + b'"}', 413, "too_large"),
        ],
    )
    def test_what_cannot_be_sent_on_is_told_in_openais_shape(
        self, lab: Lab, body: bytes, status: int, code: str | None
    ):
        answer = httpx.post(f"{lab.url}/chat/completions", content=body, headers=lab.headers)
        assert answer.status_code == status
        assert error_of(answer)["code"] == code or code is None
        assert not lab.model.asked

    def test_a_body_that_grows_past_the_limit_unannounced_is_refused_too(self, lab: Lab):
        pieces = (b"x" * 50_000 for _ in range(10))
        answer = httpx.post(f"{lab.url}/chat/completions", content=pieces, headers=lab.headers)
        assert answer.status_code == 413

    def test_lone_surrogates_go_on_as_they_were_spelled(self, lab: Lab):
        body = rb'{"model":"main","messages":[{"role":"user","content":"half \ud83d of it"}],"stream":true}'
        answer = httpx.post(f"{lab.url}/chat/completions", content=body, headers=lab.headers)
        assert answer.status_code == 200
        assert lab.model.asked[-1].messages[0]["content"] == "half \ud83d of it"
        (turn,) = lab.turns(1)
        assert r"half \ud83d of it" in (turn.messages or "")

    @pytest.mark.parametrize(
        ("method", "path"), [("GET", "/chat/completions"), ("POST", "/models"), ("PUT", "/models/a")]
    )
    def test_other_methods_are_named(self, lab: Lab, method: str, path: str):
        answer = httpx.request(method, f"{lab.url}{path}", headers=lab.headers)
        assert answer.status_code == 405
        assert error_of(answer)["code"] == "method_not_allowed"
        assert answer.headers["allow"]

    @pytest.mark.parametrize("value", ["~mine", "x" * 501])
    def test_a_conversation_name_that_cannot_be_kept_is_refused(self, lab: Lab, value: str):
        answer = lab.post("S1", conversation=value)
        assert answer.status_code == 400
        assert error_of(answer)["param"] == "x-qlab-conversation"

    def test_hosts_that_are_not_ours_are_refused(self, lab: Lab):
        answer = httpx.get(f"{lab.url}/models", headers={**lab.headers, "Host": "evil.example"})
        assert answer.status_code == 400
        assert error_of(answer)["code"] == "bad_host"


def test_a_process_without_streams_names_the_one_that_has_them(db: None, live_wsgi_service: Service):
    for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/v1/models/a")):
        answer = httpx.request(method, f"{live_wsgi_service.url}{path}")
        assert answer.status_code == 503
        assert "ASGI" in error_of(answer)["message"]


# --- while the database is away -------------------------------------------------------------------------------------
@contextmanager
def database_away() -> Iterator[None]:
    """This worker's database takes no connection, and those that there were are gone."""
    name = sql.Identifier(environment.DATABASE)
    with psycopg.connect(environment.ADMIN_URL, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        try:
            connections.close_all()
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = %s",
                [environment.DATABASE, f"{environment.PREFIX}app"],
            )
            yield
        finally:
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))


def test_traffic_flows_while_the_database_is_away_and_is_recorded_afterwards(lab: Lab, at: Any, tenant: Any):
    stranger = at(tenant)
    before = lab.post("S2", {"stream": True})
    lab.turns(1)
    with database_away():
        for _ in range(4):
            time.sleep(2)  # beyond what is kept of a caller without a look
            assert lab.post("S2", {"stream": True}).content == before.content
        refused = stranger.post("S1")
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "unavailable"
    lab.turns(5)
    day = lab.days(lambda day: day.num_requests == 5)
    assert day.num_gaps == 0


def test_wrong_tokens_are_refused_fast_while_the_database_is_away_and_hold_up_nobody(lab: Lab):
    """As many as there are threads, and more, in forms that only the database could tell from good ones."""
    until(lambda: lab.post("S2").status_code == 200)  # the outage before this one may have ended just now
    lab.turns(1)
    with database_away(), ThreadPoolExecutor(24) as crowd:
        until_s = time.monotonic() + 14
        waits: list[float] = []

        def knock(number: int) -> set[int]:
            seen = set()
            with httpx.Client(timeout=60, verify=False) as client:
                while time.monotonic() < until_s:
                    began = time.monotonic()
                    headers = {"Authorization": f"Bearer {forged(number)}"}
                    seen.add(client.post(f"{lab.url}/chat/completions", json={}, headers=headers).status_code)
                    waits.append(time.monotonic() - began)
                    number += 100
                    time.sleep(0.05)
            return seen

        knocking = [crowd.submit(knock, number) for number in range(20)]
        took = []
        while time.monotonic() < until_s:
            began = time.monotonic()
            assert lab.post("S2").status_code == 200
            took.append(time.monotonic() - began)
            time.sleep(0.3)
        assert {status for one in knocking for status in one.result()} == {503}
    assert sorted(took)[len(took) // 2] < 1
    assert max(took) < 4
    assert sorted(waits)[len(waits) // 2] < 0.5
    assert max(waits) < 12


def test_what_has_not_the_form_of_a_token_is_refused_without_the_database(lab: Lab):
    with database_away():
        for text in ("qlab_x", forged(1)[:-8] + "00000000", "sk-of-somebody-else"):
            answer = httpx.post(f"{lab.url}/chat/completions", json={}, headers={"Authorization": f"Bearer {text}"})
            assert answer.status_code == 401
            assert error_of(answer)["code"] == "invalid_api_key"


def forged(number: int) -> str:
    """A token in good form, with a good checksum, that nobody made."""
    head = f"qlab_{number:012d}_{'a' * 43}"
    return head + f"{zlib.crc32(head.encode()):08x}"


def test_what_waited_too_long_for_the_database_is_a_gap_that_is_told(lab: Lab):
    recorder = Recorder(patience_s=0)
    body = json.dumps({"model": "main", "messages": [QUESTION], "tools": TOOLS}).encode()
    with database_away():
        for _ in range(3):
            exchange = Exchange(
                uuid.uuid4().hex, lab.tenant_id, "main", "m", Said(), body, checks_arguments=True,
                started_at=dt.datetime.now(dt.UTC), status=200,
            )  # fmt: skip
            recorder.take(exchange)
        until(lambda: not recorder.num_waiting)
    until(recorder.is_idle)
    with tenant_scope(lab.tenant_id):
        day = GatewayDay.objects.get()
        assert not Turn.objects.exists()
    assert (day.num_requests, day.num_gaps) == (3, 3)
    assert day.last_gap == "The database did not answer."


def until(is_so: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.1)
