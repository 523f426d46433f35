"""Entity tags: the same export is sent once, and every change of a byte is another tag."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from quality import export
from quality.api import exports
from quality.export_sql import CASES as CASE_TABLE
from quality.models import Case, Proposal, ToolCall, Toolset, Turn
from quality.review.items import item_of_call
from quality.review.labelling import record_label, undo
from tenants.access import change_role
from tenants.models import AuditEvent, Membership, Tenant, User
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.api.test_export import CALLS, FEEDBACK, content, in_another_connection, records
from tests.api.test_export_cases import CASES, PROPOSALS
from tests.bulk import labelled_calls
from tests.factories import CaseFactory, ProposalFactory, ToolCallFactory

PATHS = [CALLS, FEEDBACK, CASES, PROPOSALS]


@pytest.fixture
def client(api: Callable[..., Api]) -> Api:
    return api("export:read")


@pytest.fixture
def ada(member: Callable[..., Membership]) -> User:
    return member("admin", user__name="Ada").user


@pytest.fixture
def call(tenant: Tenant, ada: User) -> ToolCall:
    """One of each kind."""
    with tenant_scope(tenant):
        call: ToolCall = ToolCallFactory()
        record_label(item=item_of_call(call.pk), reviewer=ada, label="bad_args")
        CaseFactory()
        ProposalFactory(created_by=ada)
    return call


def tag_and_body(client: Api, path: str) -> tuple[str, bytes]:
    response = client.get(path)
    body = content(response)
    return response["ETag"], body


def again(client: Api, path: str, tag: str) -> Any:
    return client.client.get(path, headers={**client.headers, "If-None-Match": tag})


@pytest.mark.parametrize("path", PATHS)
def test_the_same_export_is_sent_once(client: Api, call: ToolCall, path: str) -> None:
    tag, body = tag_and_body(client, path)
    assert tag_and_body(client, path) == (tag, body)
    for asked in (tag, f'"other", {tag}', f"W/{tag}"):
        if asked.startswith("W/"):
            assert content(again(client, path, asked)) == body  # ours are strong
            continue
        response = again(client, path, asked)
        assert (response.status_code, response.content, response["ETag"]) == (304, b"", tag)
    assert content(again(client, path, '"other"')) == body


def test_what_is_not_sent_is_not_said_to_be_exported(client: Api, tenant: Tenant, call: ToolCall) -> None:
    tag, _ = tag_and_body(client, CASES)
    again(client, CASES, tag)
    with tenant_scope(tenant):
        assert AuditEvent.objects.filter(action="export.cases").count() == 1


@pytest.mark.parametrize("path", PATHS)
def test_each_question_has_its_own_tag(client: Api, call: ToolCall, path: str) -> None:
    tags = {tag_and_body(client, f"{path}{query}")[0] for query in ("", "?limit=1", "?limit=5", "?label=bad_args")}
    assert len(tags) == 4


def changes(call: ToolCall, ada: User) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each changes bytes of an export, and takes nothing else along."""
    item = item_of_call(call.pk)
    yield FEEDBACK, lambda: record_label(item=item, reviewer=ada, label="bad_args", note="a note")
    yield FEEDBACK, lambda: undo(item=item, reviewer=ada)
    yield CALLS, lambda: record_label(item=item, reviewer=ada, label="wrong_tool")
    yield CALLS, ToolCallFactory
    yield CALLS, lambda: ToolCall.objects.filter(pk=call.pk).update(result='"other"')
    yield FEEDBACK, lambda: ToolCall.objects.filter(pk=call.pk).update(args='{"a": 1}')
    yield FEEDBACK, lambda: Turn.objects.filter(pk=call.turn_id).update(messages="[]")
    yield FEEDBACK, lambda: Toolset.objects.update(sha256="0" * 64)
    yield FEEDBACK, lambda: User.objects.filter(pk=ada.pk).update(name="Ada B.")
    yield PROPOSALS, lambda: User.objects.filter(pk=ada.pk).update(name="Ada C.")
    yield CASES, lambda: Case.objects.update(behavior="Something else.")
    yield CASES, lambda: Case.objects.update(status="archived")
    yield CASES, CaseFactory
    yield PROPOSALS, lambda: Proposal.objects.update(title="Another")


def test_every_change_is_another_tag(client: Api, tenant: Tenant, call: ToolCall, ada: User) -> None:
    with tenant_scope(tenant):
        made = list(changes(call, ada))
    seen: dict[str, set[str]] = {path: set() for path in PATHS}
    for number, (path, change) in enumerate(made):
        tag, body = tag_and_body(client, path)
        seen[path].add(tag)
        with tenant_scope(tenant):
            change()
        new_tag, new_body = tag_and_body(client, path)
        assert new_body != body, number  # positive control
        assert new_tag not in seen[path], number


def test_what_changes_no_byte_changes_no_tag(client: Api, tenant: Tenant, call: ToolCall, ada: User) -> None:
    tags = [tag_and_body(client, path)[0] for path in PATHS]
    ada.save(update_fields=["last_login"])
    with tenant_scope(tenant):
        change_role(membership=Membership.objects.get(user=ada), role="operator", actor=client.user)
    assert [tag_and_body(client, path)[0] for path in PATHS] == tags


def test_what_is_sent_is_what_the_tag_is_of(client: Api, tenant: Tenant, ada: User) -> None:
    """A row that comes while the answer is on its way is in neither."""
    with tenant_scope(tenant):
        labelled_calls(200, ada)
    response = client.get(FEEDBACK)

    def more() -> None:
        with tenant_scope(tenant):
            record_label(item=item_of_call(ToolCallFactory().pk), reviewer=ada, label="other")

    in_another_connection(more)
    assert len(records(b"".join(response))) == 200
    assert again(client, FEEDBACK, response["ETag"]).status_code == 200


def test_a_tag_that_takes_long_is_not_given(
    client: Api, tenant: Tenant, call: ToolCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "TAG_LIMIT_S", 0.2)
    monkeypatch.setitem(export._TABLES, "cases", replace(CASE_TABLE, stamp="pg_sleep(20)::text"))
    response = client.get(CASES)
    assert "ETag" not in response
    assert len(records(content(response))) == 1


def test_a_token_exports_a_few_times_a_minute(
    client: Api, api: Callable[..., Api], call: ToolCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_A_MINUTE", 2)
    answers = [client.get(CASES) for _ in range(6)]  # in two minutes at most
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 2 <= len(refused) <= 4
    assert refused[0].json()["type"] == "urn:quality-lab:problem:throttled"
    assert 0 < int(refused[0]["Retry-After"]) <= 61
    assert api("export:read").get(CASES).status_code == 200  # another token has its own count
