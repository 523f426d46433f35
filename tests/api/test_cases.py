"""Regression cases through the API."""

import gzip
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from quality.improve.case_record import record_of
from quality.models import Case
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import CaseFactory, FeedbackFactory, UserFactory

CASES = "/api/admin/quality/tool-call-regression-cases"

type Apis = Callable[..., Api]


@pytest.fixture
def case(tenant: Tenant) -> Case:
    with tenant_scope(tenant):
        return CaseFactory(tags=["smoke"])


def patch(client: Api, path: str, body: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.client.patch(path, data, content_type="application/json", headers=client.headers)


def test_a_case_is_read_by_its_number(api: Apis, case: Case) -> None:
    client = api("read")
    answer = client.get(f"{CASES}/REG-1")
    assert answer.json() == client.get(f"{CASES}/1").json()
    told = answer.json()
    assert (told["id"], told["version"], told["status"], told["tags"]) == ("REG-1", 1, "active", ["smoke"])
    assert b'"args":{"city": "Zurich", "unit":"celsius"}' in answer.content
    assert told["expected"] == {"behavior": case.behavior, "expectation": json.loads(case.expectation)}
    assert told["provenance"]["createdBy"]["email"] == case.created_by.email
    assert [step["version"] for step in told["history"]] == [1]
    assert client.get(CASES).json()["items"][0]["id"] == "REG-1"


@pytest.mark.parametrize("ref", ["REG-2", "99", "9999999999", "REG-0", "x", "reg-1", "REG-"])
def test_a_case_that_is_not_there(api: Apis, case: Case, ref: str) -> None:
    assert api("read").get(f"{CASES}/{ref}").status_code == 404


def test_all_of_where_it_comes_from_is_told(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        feedback = FeedbackFactory(correction='{"arguments": {"city": "Bern"}}', reviewer__name="Ada")
        FeedbackFactory(call=feedback.call, reviewer__name="Bob")
        FeedbackFactory(call=feedback.call, reviewer__name="Eve", label="good_reply")
    client = api("read", "feedback:write")
    made = client.post(CASES, {"feedbackId": feedback.pk})
    assert made.status_code == 201, made.content
    assert made.json()["check"]["warnings"] == []
    found = client.get(f"{CASES}/REG-1").json()["provenance"]
    assert (found["callId"], found["turnId"], found["feedbackId"], found["proposalId"]) == (
        feedback.call_id, feedback.turn_id, feedback.pk, None,
    )  # fmt: skip
    assert [reviewer["name"] for reviewer in found["reviewers"]] == ["Ada", "Bob"]


def test_an_edit_is_a_version_and_a_stale_one_gets_both(api: Apis, case: Case) -> None:
    client = api("read", "feedback:write")
    body = b'{"version": 1, "expectation": {"version":1,  "calls": {"mode": "none"}}, "note": "clearer"}'
    changed = patch(client, f"{CASES}/REG-1", body)
    assert changed.status_code == 200, changed.content
    assert b'"expectation":{"version":1,  "calls": {"mode": "none"}}' in changed.content
    assert changed.json()["case"]["version"] == 2
    stale = patch(client, f"{CASES}/REG-1", {"version": 1, "behavior": "Mine."})
    assert stale.status_code == 409
    told = stale.json()
    assert told["type"].endswith(":stale_case")
    assert (told["current"]["version"], told["sent"]["behavior"]) == (2, "Mine.")
    versions = client.get(f"{CASES}/REG-1/versions")
    assert [item["record"]["version"] for item in versions.json()["items"]] == [2, 1]
    assert [item["note"] for item in versions.json()["items"]] == ["clearer", ""]


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        ({"behavior": "x"}, "version", "required"),
        ({"version": 1, "label": "other"}, "label", "unknown_member"),
        ({"version": 1, "expectation": "x"}, "expectation", "not_a_dict"),
        ({"version": 1, "expectation": {}}, "expectation", ""),
        ({"version": 1, "stubs": [{}]}, "stubs", "invalid"),
        ({"version": 1, "tags": ["x" * 61]}, "tags", "too_long"),
        ({"version": 1, "behavior": " "}, "behavior", "blank"),
        ({"version": 1, "note": "x" * 2_001, "behavior": "y"}, "note", "too_long"),
    ],
)
def test_a_wrong_edit_is_refused_by_name(api: Apis, case: Case, body: dict[str, Any], path: str, code: str) -> None:
    response = patch(api("feedback:write"), f"{CASES}/REG-1", body)
    assert response.status_code == 400, response.content
    error = response.json()["errors"][0]
    assert error["path"] == path
    assert error["code"] == code or not code


def test_a_case_is_archived_restored_and_judged(api: Apis, case: Case) -> None:
    client = api("read", "feedback:write")
    assert client.post(f"{CASES}/REG-1/archive", {"note": "old"}).json()["status"] == "archived"
    assert client.post(f"{CASES}/REG-1/archive", {}).status_code == 409
    assert client.get(CASES, {"status": "active"}).json()["items"] == []
    assert client.post(f"{CASES}/REG-1/restore", {"version": 2}).json()["status"] == "active"
    assert client.post(f"{CASES}/REG-1/restore", {}).json()["type"].endswith(":not_archived")
    judged = api("read").post(f"{CASES}/REG-1/judge", {}).json()
    assert judged["recorded"]["verdict"] == "fail"
    assert judged["recorded"]["reasons"][0]["code"] == "wrong_argument"
    assert "Zurich" in judged["recorded"]["reasons"][0]["text"]
    other = client.post(f"{CASES}/REG-1/judge", {"expectation": {"version": 1, "calls": {"mode": "any"}}}).json()
    assert other["recorded"]["verdict"] == "pass"
    assert other["warnings"]


def test_duplicates_are_told_and_merged(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        for _ in range(2):
            CaseFactory(same_sha256=b"s" * 32)
        CaseFactory()
    client = api("read", "feedback:write")
    assert client.get(f"{CASES}/REG-1").json()["duplicates"] == ["REG-2"]
    merged = client.post(f"{CASES}/REG-1/merge", {"other": "REG-2"})
    assert (merged.status_code, merged.json()["duplicates"]) == (200, [])
    gone = client.get(f"{CASES}/REG-2").json()
    assert (gone["status"], gone["provenance"]["mergedInto"]) == ("archived", "REG-1")
    refused = client.post(f"{CASES}/REG-1/merge", {"other": "REG-3"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "not_a_duplicate")
    assert client.post(f"{CASES}/REG-1/merge", {"other": "REG-9"}).status_code == 404


def test_lists_are_paged(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        for _ in range(3):
            CaseFactory()
    client = api("read")
    first = client.get(CASES, {"page_size": 2}).json()
    second = client.get(CASES, {"page_size": 2, "cursor": first["nextCursor"]}).json()
    assert [item["id"] for item in [*first["items"], *second["items"]]] == ["REG-3", "REG-2", "REG-1"]
    assert client.get(CASES, {"cursor": "x"}).status_code == 400


@pytest.mark.parametrize(
    ("role", "scopes", "statuses"),
    [
        ("viewer", ("read", "feedback:write"), (200, 403, 200)),
        ("operator", ("read", "feedback:write"), (200, 200, 200)),
        ("operator", ("read",), (200, 403, 200)),
        ("operator", ("feedback:write",), (403, 200, 403)),
        ("admin", ("export:read",), (403, 403, 403)),
    ],
)
def test_who_may(
    api: Apis,
    member: Callable[..., Membership],
    case: Case,
    role: str,
    scopes: tuple[str, ...],
    statuses: tuple[int, int, int],
) -> None:
    client = api(*scopes, member=member(role))
    found = (
        client.get(f"{CASES}/1").status_code,
        client.post(f"{CASES}/1/archive", {}).status_code,
        client.post(f"{CASES}/1/judge", {}).status_code,
    )
    assert found == statuses


# --- import ----------------------------------------------------------------------------------------------------------


def exported(tenant: Tenant) -> bytes:
    """An export as the service sends it."""
    with tenant_scope(tenant):
        lines = [record_of(case).encode() + b"\n" for case in Case.objects.order_by("number")]
    body = b"".join(lines)
    end = {"recordType": "_end", "count": len(lines), "sha256": hashlib.sha256(body).hexdigest(), "nextCursor": None}
    return body + json.dumps(end).encode() + b"\n"


def load(client: Api, body: bytes, **headers: str) -> Any:
    return client.client.post(
        f"{CASES}/import", body, content_type="application/x-ndjson", headers={**client.headers, **headers}
    )


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_an_export_comes_in_elsewhere_byte_for_byte(
    tenant: Tenant, other_tenant: Tenant, api: Apis, member: Callable[..., Membership], encoding: str
) -> None:
    with tenant_scope(tenant):
        CaseFactory(number=3)
        CaseFactory(number=8, status="archived", version=4)
    body = exported(tenant)
    there = member("operator", tenant=other_tenant)
    with tenant_scope(other_tenant):
        client = api("feedback:write", "read", member=there)
    sent = gzip.compress(body) if encoding == "gzip" else body
    report = load(client, sent, **{"Content-Encoding": encoding})
    assert report.status_code == 200, report.content
    assert (report.json()["numCreated"], report.json()["warnings"]) == (2, [])
    assert exported(other_tenant) == body
    again = load(client, body).json()
    assert (again["numCreated"], again["numUnchanged"]) == (0, 2)
    assert exported(other_tenant) == body


def test_bad_lines_are_told_and_the_others_taken(tenant: Tenant, api: Apis, case: Case) -> None:
    (line, _) = exported(tenant).splitlines(keepends=True)
    good = line.replace(b'"REG-1"', b'"REG-7"')
    response = load(api("feedback:write"), b"{\n" + good)
    assert response.status_code == 207
    report = response.json()
    assert (report["numCreated"], report["numRefused"], report["refused"][0]["line"]) == (1, 1, 1)
    assert "may be cut" in report["warnings"][0]
    nothing = load(api("feedback:write"), b"{\n{}\n")
    assert nothing.status_code == 400
    assert [error["path"] for error in nothing.json()["errors"]] == ["line 1", "line 2: recordType"]


def test_a_changed_file_is_refused_whole(tenant: Tenant, api: Apis, case: Case) -> None:
    with tenant_scope(tenant):
        UserFactory()
    body = exported(tenant).replace(b'"REG-1"', b'"REG-9"')
    response = load(api("feedback:write"), body)
    assert (response.status_code, response.json()["errors"][0]["code"]) == (400, "wrong_sha256")
    with tenant_scope(tenant):
        assert Case.objects.count() == 1


def test_only_json_lines_come_in(api: Apis) -> None:
    client = api("feedback:write")
    assert client.post(f"{CASES}/import", {}).status_code == 415
    assert load(client, b"x", **{"Content-Encoding": "br"}).status_code == 415
    assert load(client, b"x", **{"Content-Encoding": "gzip"}).status_code == 400
    assert load(api("read", "export:read"), b"{}").status_code == 403
