"""Who gets into the API: bearers of a live token with the right scope, and nobody else."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tenants.access import change_role, remove_member
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tenants.tokens import revoke_token
from tests.api.client import Api
from tests.factories import ToolCallFactory, make_token

LIST = "/api/admin/quality/tool-calls"
SUMMARY = "/api/admin/quality/tool-call-feedback/summary"
EXPORT = "/api/admin/quality/tool-call-feedback/export.jsonl"
CALL_EXPORT = "/api/admin/quality/tool-calls/export.jsonl"

type Apis = Callable[..., Api]
type Members = Callable[..., Membership]


def assert_unauthorised(response: Any) -> None:
    assert response.status_code == 401
    assert response["Content-Type"] == "application/problem+json"
    assert response["WWW-Authenticate"].startswith('Bearer realm="quality-lab"')


def test_without_a_token_nobody_gets_in(db: None) -> None:
    assert_unauthorised(Client().get(LIST))


def test_the_session_cookie_does_not_open_the_api(member: Members) -> None:
    client = Client()
    client.force_login(member("admin").user)
    assert_unauthorised(client.get(LIST))
    assert_unauthorised(client.post(f"{LIST}/1/feedback", b"{}", content_type="application/json"))


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer x", "Basic {text}", "{text}", "Bearer {text}x", "bearer"]
)
def test_anything_but_the_token_itself_is_refused(api: Apis, header: str) -> None:
    text = api("read").text
    assert_unauthorised(Client().get(LIST, headers={"Authorization": header.format(text=text)}))


def test_a_wrong_last_character_is_refused(api: Apis) -> None:
    text = api("read").text
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert_unauthorised(Client().get(LIST, headers={"Authorization": f"Bearer {wrong}"}))


def test_the_scheme_may_be_spelled_in_any_case(api: Apis) -> None:
    text = api("read").text
    assert Client().get(LIST, headers={"Authorization": f"bearer {text}"}).status_code == 200


def test_a_revoked_token_is_refused_at_once(tenant: Tenant, api: Apis) -> None:
    client = api("read")
    assert client.get(LIST).status_code == 200
    with tenant_scope(tenant):
        revoke_token(token=client.token, actor=client.user)
    assert_unauthorised(client.get(LIST))


def test_an_expired_token_is_refused(tenant: Tenant, member: Members) -> None:
    person = member("admin")
    with tenant_scope(tenant):
        token, text = make_token(person, expires_at=timezone.now() - dt.timedelta(seconds=1))
    assert_unauthorised(Api(text, token, person).get(LIST))


def test_a_token_dies_with_its_makers_membership(tenant: Tenant, api: Apis, member: Members) -> None:
    member("admin")
    client = api("read")
    with tenant_scope(tenant):
        remove_member(membership=client.member, actor=client.user)
    assert_unauthorised(client.get(LIST))


@pytest.mark.parametrize(
    ("path", "method", "scope"),
    [
        (LIST, "get", "read"),
        (f"{LIST}/1", "get", "read"),
        (SUMMARY, "get", "read"),
        (EXPORT, "get", "export:read"),
        (CALL_EXPORT, "get", "export:read"),
        (f"{LIST}/1/feedback", "post", "feedback:write"),
        (f"{LIST}/1/feedback/undo", "post", "feedback:write"),
        ("/api/admin/quality/turns/1/feedback", "post", "feedback:write"),
        ("/api/admin/quality/turns/1/feedback/undo", "post", "feedback:write"),
    ],
)
def test_each_address_asks_for_its_own_scope(api: Apis, path: str, method: str, scope: str) -> None:
    every = {"read", "feedback:write", "ingest:write", "export:read"}
    refused = getattr(api(*(every - {scope})), method)(path)
    assert refused.status_code == 403
    assert refused.json()["type"].endswith(":insufficient_scope")
    assert scope in refused.json()["detail"]
    assert getattr(api(scope), method)(path).status_code not in {401, 403}


@pytest.mark.parametrize(
    ("role", "may"),
    [("viewer", {LIST}), ("operator", {LIST, f"{LIST}/1/feedback"}), ("admin", {LIST, f"{LIST}/1/feedback", EXPORT})],
)
def test_a_token_does_no_more_than_its_maker_may(
    tenant: Tenant, api: Apis, member: Members, role: str, may: set[str]
) -> None:
    boss = member("admin")
    client = api(member=member("admin"))
    with tenant_scope(tenant):
        change_role(membership=client.member, role=role, actor=boss.user)
    for path, send in ((LIST, client.get), (f"{LIST}/1/feedback", client.post), (EXPORT, client.get)):
        assert (send(path).status_code != 403) == (path in may), path


def test_a_token_reads_and_writes_its_own_tenant_only(
    tenant: Tenant, other_tenant: Tenant, api: Apis, member: Members
) -> None:
    stranger = api(member=member("admin", tenant=other_tenant))
    ours = api()
    with tenant_scope(tenant):
        call = ToolCallFactory(tool_name="canary")
    one, label = f"{LIST}/{call.pk}", f"{LIST}/{call.pk}/feedback"
    missing, turn = LIST + "/999999", f"/api/admin/quality/turns/{call.turn_id}/feedback"

    for path in (LIST, SUMMARY, EXPORT, CALL_EXPORT):
        assert b"canary" not in b"".join(stranger.get(path)), path
    for send, path, other in (
        (stranger.get, one, missing),
        (lambda path: stranger.post(path, {"label": "other"}), label, missing + "/feedback"),
        (lambda path: stranger.post(path, {}), label + "/undo", missing + "/feedback/undo"),
        (lambda path: stranger.post(path, {"label": "other"}), turn, "/api/admin/quality/turns/999999/feedback"),
    ):
        theirs, nobodys = send(path), send(other)
        assert theirs.status_code == nobodys.status_code == 404
        bodies = [response.json() | {"requestId": ""} for response in (theirs, nobodys)]
        assert bodies[0] == bodies[1]

    # The same requests of the owner do find and change it.
    assert ours.get(one).json()["labels"] == []
    assert ours.get(LIST).json()["items"][0]["toolName"] == "canary"
    assert b"canary" in b"".join(ours.get(CALL_EXPORT))
    assert ours.post(label, {"label": "other"}).status_code == 200
    assert b"canary" in b"".join(ours.get(EXPORT))
    assert stranger.get(SUMMARY).json()["numLabelled"] == 0
