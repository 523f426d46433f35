"""Hostile JSON: each line gives its expected result at the real endpoint, and no case loses a record."""

import base64
import json
import re
from typing import Any

import pytest

from quality.ingest import evidence
from quality.ingest.jsontext import escape_surrogates
from quality.models import ToolCall, Turn
from tenants.scope import tenant_scope
from tests.corpus import corpus

CASES = corpus.load("hostile_json.jsonl")
PATH = "/api/ingest/tool-calls"


def sent_at(place: str, *, kept: bool = False) -> list[Any]:
    """Cases that arrive there; with `kept` only those that are not refused."""
    return [
        pytest.param(case, id=case["id"])
        for case in CASES
        if case["at"] == place and not (kept and case["expected"].startswith("refused:"))
    ]


def raw(case: dict[str, Any]) -> bytes:
    return case["raw"].encode() if "raw" in case else base64.b64decode(case["raw_b64"])


def code_of(case: dict[str, Any]) -> str:
    return case["expected"].removeprefix("refused:")


def stored(tenant: Any) -> list[ToolCall]:
    with tenant_scope(tenant):
        return list(ToolCall.objects.all())


@pytest.mark.parametrize("field", ["args", "result"])
@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("case", sent_at("ingest"))
def test_a_free_field_is_kept_exactly_or_refused_by_name(api, tenant, case, content_type, field):
    text = raw(case)
    body = b'{"external_id":"run-1","tool_name":"t","%s":%s}' % (field.encode(), text)
    response = api("ingest:write").post(PATH, body, content_type=content_type)
    if case["expected"].startswith("refused:"):
        assert response.status_code == 400
        problem = response.json()
        assert code_of(case) in {error["code"] for error in problem["errors"]}
        assert all(item["path"] or item["message"] for item in problem["rejected"])
        assert not stored(tenant)
        with tenant_scope(tenant):
            assert not Turn.objects.exists()
        return
    assert (response.status_code, response.json()["accepted"]) == (200, 1)
    (call,) = stored(tenant)
    assert getattr(call, field).encode() == text


@pytest.mark.parametrize("case", sent_at("ingest", kept=True))
def test_the_api_reads_back_what_it_took(api, case):
    text = raw(case)
    client = api("ingest:write", "read")
    assert client.post(PATH, b'{"external_id":"run-1","tool_name":"t","args":%s}' % text).status_code == 200
    (call,) = client.get("/api/admin/quality/tool-calls").json()["items"]
    assert text in client.get(f"/api/admin/quality/tool-calls/{call['id']}").content


@pytest.mark.parametrize("case", sent_at("external_id"))
def test_an_identifier_follows_its_rule(api, tenant, case):
    body = b'{"external_id":%s,"tool_name":"t","args":{}}' % raw(case)
    response = api("ingest:write").post(PATH, body)
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert (error["code"], error["path"]) == (code_of(case), "external_id")
    assert not stored(tenant)


@pytest.mark.parametrize("case", sent_at("args"))
def test_arguments_of_a_model_are_never_lost(case):
    text = raw(case).decode()
    kept, warnings = evidence.args_from_text(text)
    value = json.loads(kept)
    if kept != text:  # kept as a JSON string; or blank, or encoded twice, and then a warning says so
        assert value == text or set(warnings) & {"args_empty", "args_double_encoded"}
    if not isinstance(value, dict):
        assert warnings


@pytest.mark.parametrize("case", sent_at("result"))
def test_an_answer_of_a_tool_is_never_lost(case):
    text = raw(case).decode(errors="surrogateescape")  # as a client would log bytes that are not UTF-8
    kept, _ = evidence.result_from_text(text)
    assert kept == escape_surrogates(text) or json.loads(kept) == text
    assert not re.search("[\0\ud800-\udfff]", kept)


@pytest.mark.parametrize("case", sent_at("message"))
def test_a_message_is_stored_as_it_was_spelled(api, tenant, case):
    text = raw(case)
    message = b'{"role": "user", "content": %s}' % text
    body = b'{"external_id":"run-1","tool_name":"t","args":{},"messages":[%s]}' % message
    assert api("ingest:write").post(PATH, body).status_code == 200
    with tenant_scope(tenant):
        assert Turn.objects.get().messages.encode() == b"[" + message + b"]"
