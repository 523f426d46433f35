"""Cases and proposals as JSON lines: the same bytes from SQL and from Python, in an order that stays."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from quality.export_lines import one_line
from quality.improve.case_record import record_of
from quality.models import Case
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.api.test_export import HOSTILE, content, records, trailer_of
from tests.factories import CaseFactory, ProposalFactory, UserFactory

CASES = "/api/admin/quality/tool-call-regression-cases/export.jsonl"
PROPOSALS = "/api/admin/quality/improvement-proposals/export.jsonl"

type Apis = Callable[..., Api]


def test_sql_and_python_write_a_case_alike(tenant: Tenant, api: Apis) -> None:
    name = 'tool\r\n\t\u2028\x85\x1e\x0b\x0c\x1c\x7f"\\/ <&> 👩‍👩‍👧'
    with tenant_scope(tenant):
        for text in HOSTILE:
            fields = dict.fromkeys(["args", "result", "expectation", "stubs"], text) | dict.fromkeys(
                ["messages", "tools", "context"], f"[{text}]"
            )
            CaseFactory(**fields, tool_name=name, error=name, behavior=name, tags=[name, "", "a,b}"], is_error=True)
        CaseFactory(args=None, tools=None, now=None, result=None, is_error=None, error=None, index=None, tags=[])
        CaseFactory(now=timezone.now(), cycle=3, version=7, status="archived", label="missing_tool", tool_name="")
        written = "".join(one_line(record_of(case)) for case in Case.objects.order_by("number"))
    body = content(api("export:read").get(CASES))
    assert body.rpartition(b'{"recordType":"_end"')[0].decode() == written
    assert len(body.decode().splitlines()) == len(HOSTILE) + 3
    records(body)


def test_a_case_holds_what_a_replay_reads(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        case = CaseFactory(args='{"city": "Zurich", "n": 1.50}', stubs='[{"tool":"get_weather"}]', tags=["smoke"])
    response = api("export:read").get(CASES)
    assert response["Content-Disposition"] == 'attachment; filename="tool-call-regression-cases.jsonl"'
    body = content(response)
    assert b'"args":{"city": "Zurich", "n": 1.50}' in body
    (record,) = records(body)
    assert list(record) == [
        "recordType", "schemaVersion", "id", "version", "status", "toolName", "label", "tags", "input", "observed",
        "expected", "context", "stubs", "createdAt", "updatedAt",
    ]  # fmt: skip
    assert (record["recordType"], record["schemaVersion"], record["id"]) == (
        "tool_call_regression_case",
        1,
        f"REG-{case.number}",
    )
    assert record["tags"] == ["smoke"]
    assert list(record["input"]) == ["args", "messages", "tools", "now"]
    assert record["input"]["now"] == case.now.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert list(record["observed"]) == ["result", "isError", "error", "cycle", "index"]
    assert record["expected"] == {"behavior": case.behavior, "expectation": json.loads(case.expectation)}
    assert record["context"] == json.loads(case.context)
    assert record["stubs"] == [{"tool": "get_weather"}]


def test_a_proposal_says_what_became_of_it(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        boss = UserFactory(name="Ada", email="ada@example.com")
        pending = ProposalFactory(created_by=boss, title="a\r\n\u2028b")
        applied = ProposalFactory(
            fault="arg:/unit",
            state="applied",
            resolution_kind="regression_case",
            resolution_ref="REG-1",
            decided_by=boss,
            decided_at=timezone.now(),
        )
    first, second = records(content(api("export:read").get(PROPOSALS)))
    ada = {"id": boss.pk, "name": "Ada", "email": "ada@example.com"}
    assert (first["id"], first["state"], first["title"]) == (pending.pk, "pending", "a\r\n\u2028b")
    assert (first["resolution"], first["decidedBy"], first["decidedAt"], first["createdBy"]) == (None, None, None, ada)
    assert (second["id"], second["state"], second["decidedBy"]) == (applied.pk, "applied", ada)
    assert second["resolution"] == {"kind": "regression_case", "ref": "REG-1", "note": ""}
    assert (second["label"], second["toolName"], second["styleId"]) == ("bad_args", "get_weather", "friendly")
    assert (second["fault"], second["suggestedKind"]) == ("arg:/unit", "tool_schema_patch")


def test_they_are_narrowed_by_status_label_and_tool(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        CaseFactory()
        CaseFactory(status="archived", tool_name="book", label="wrong_tool")
        ProposalFactory()
        ProposalFactory(state="dismissed", tool_name="book", label="wrong_tool", decided_at=timezone.now())
    client = api("export:read")

    def tools(path: str, **query: Any) -> list[str]:
        return [record["toolName"] for record in records(content(client.get(path, query)))]

    assert tools(CASES) == tools(PROPOSALS) == ["get_weather", "book"]
    assert tools(CASES, status="archived") == tools(PROPOSALS, status="dismissed") == ["book"]
    assert tools(CASES, status=["archived", "active"]) == ["get_weather", "book"]
    for path in (CASES, PROPOSALS):
        assert tools(path, label="wrong_tool") == tools(path, tool="book") == ["book"]
        assert tools(path, label="other") == []


@pytest.mark.parametrize("path", [CASES, PROPOSALS])
def test_their_parts_join_to_the_whole(tenant: Tenant, api: Apis, path: str) -> None:
    with tenant_scope(tenant):
        for number in range(5):
            CaseFactory()
            ProposalFactory(fault=f"arg:/{number}")
    client = api("export:read")
    whole, parts, query = records(content(client.get(path))), [], {"limit": 2}
    while True:
        body = content(client.get(path, query))
        parts.append(records(body))
        if (following := trailer_of(body)["nextCursor"]) is None:
            break
        query["cursor"] = following
    assert [len(part) for part in parts] == [2, 2, 1]
    assert [record for part in parts for record in part] == whole


@pytest.mark.parametrize("path", [CASES, PROPOSALS])
def test_they_hold_ones_own_alone(
    tenant: Tenant, other_tenant: Tenant, api: Apis, member: Callable[..., Membership], path: str
) -> None:
    with tenant_scope(tenant):
        CaseFactory()
        ProposalFactory()
    stranger = member("admin", tenant=other_tenant)
    assert records(content(api("export:read", member=stranger).get(path))) == []
    assert api("read").get(path).status_code == 403


@pytest.mark.parametrize(("path", "query"), [(CASES, "status=pending"), (PROPOSALS, "status=active"), (CASES, "x=1")])
def test_a_slip_never_widens_them(api: Apis, path: str, query: str) -> None:
    response = api("export:read").get(f"{path}?{query}")
    assert response.status_code == 400
    assert response.json()["errors"][0]["path"] == query.partition("=")[0]
