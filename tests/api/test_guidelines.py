"""Guidelines over the API."""

from collections.abc import Callable

from tenants.models import AuditEvent, Role, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api

type Apis = Callable[..., Api]

PLACE = "/api/admin/quality/guidelines"


def test_there_are_none_at_first(api: Apis) -> None:
    assert api("read").get(PLACE).json() == {"number": 0, "text": "", "by": None, "at": None}


def test_an_admins_token_writes_versions(tenant: Tenant, api: Apis, member: Callable[..., object]) -> None:
    client = api("read", "settings:write", member=member(role=Role.ADMIN, user__name="Ada"))
    first = client.put(PLACE, {"text": "# Be kind\n"})
    assert (first.status_code, first.json()["number"], first.json()["text"]) == (200, 1, "# Be kind")
    assert client.put(PLACE, {"text": "# Be kind", "version": 0}).json()["number"] == 1  # the same again
    assert client.put(PLACE, {"text": "# Be strict", "version": 1}).json()["number"] == 2
    now = client.get(PLACE).json()
    assert (now["number"], now["text"], now["by"]["name"]) == (2, "# Be strict", "Ada")
    with tenant_scope(tenant):
        assert AuditEvent.objects.filter(action="guidelines.written", token_id=client.token.pk).count() == 2


def test_a_writer_who_saw_another_version_gets_theirs(api: Apis, member: Callable[..., object]) -> None:
    client = api("settings:write", member=member(role=Role.ADMIN))
    client.put(PLACE, {"text": "# One"})
    response = client.put(PLACE, {"text": "# Mine", "version": 0})
    assert response.status_code == 409
    problem = response.json()
    assert problem["type"].endswith(":stale_guidelines")
    assert (problem["current"]["number"], problem["current"]["text"]) == (1, "# One")
    assert [(error["path"], error["code"]) for error in problem["errors"]] == [("version", "stale")]


def test_what_cannot_be_kept_is_refused_by_name(api: Apis, member: Callable[..., object]) -> None:
    client = api("settings:write", member=member(role=Role.ADMIN))
    for body, path, code in [
        ({}, "text", "required"),
        ({"text": ""}, "text", "blank"),
        ({"text": "\n"}, "text", "blank"),
        ({"text": "x" * 50_001}, "text", "max_length"),
        ({"text": "x", "number": 3}, "number", "unknown_member"),
    ]:
        response = client.put(PLACE, body)
        assert response.status_code == 400
        assert [(error["path"], error["code"]) for error in response.json()["errors"]] == [(path, code)]


def test_operators_read_and_do_not_write(api: Apis, member: Callable[..., object]) -> None:
    assert api("read").put(PLACE, {"text": "# One"}).status_code == 403
    operator = api("settings:write", member=member(role=Role.OPERATOR))
    assert operator.put(PLACE, {"text": "# One"}).status_code == 403
