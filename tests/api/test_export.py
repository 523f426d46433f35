"""Exports: one record a line whatever the evidence holds, complete, provably so, and of one tenant."""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from quality import export
from quality.models import Feedback
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label, undo
from tenants.access import change_role
from tenants.models import AuditEvent, Membership, Tenant, User
from tenants.scope import tenant_scope
from tenants.tokens import revoke_token
from tests.api.client import Api
from tests.bulk import labelled_calls
from tests.factories import ToolCallFactory, TurnFactory

FEEDBACK = "/api/admin/quality/tool-call-feedback/export.jsonl"
CALLS = "/api/admin/quality/tool-calls/export.jsonl"

type Apis = Callable[..., Api]


def content(response: Any) -> bytes:
    assert response.status_code == 200
    return b"".join(response)


def records(body: bytes) -> list[dict[str, Any]]:
    """The records of a complete export: the trailer is checked and left out."""
    *lines, last = body.splitlines(keepends=True)
    assert last.endswith(b"\n")
    trailer = json.loads(last)
    assert trailer["recordType"] == "_end"
    assert trailer["count"] == len(lines)
    assert trailer["sha256"] == hashlib.sha256(b"".join(lines)).hexdigest()
    return [json.loads(line) for line in lines]


def trailer_of(body: bytes) -> dict[str, Any]:
    trailer: dict[str, Any] = json.loads(body.splitlines()[-1])
    return trailer


@pytest.fixture
def ada(member: Callable[..., Membership]) -> User:
    return member("admin", user__name="Ada", user__email="ada@example.com").user


def test_feedback_comes_with_its_call_and_context(tenant: Tenant, api: Apis, ada: User) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory(args='{"b":1.50, "a":1E5}')
        label = record_label(
            item=item_of_call(call.pk),
            reviewer=ada,
            label="bad_args",
            note="no",
            correction='{"arguments":{"city":"Ghent","b": 2.0}}',
        )
        feedback = Feedback.objects.get()
    response = api("export:read").get(FEEDBACK)
    assert response["Content-Type"] == "application/x-ndjson"
    assert response["Content-Disposition"] == 'attachment; filename="tool-call-feedback.jsonl"'
    body = content(response)
    assert b'"args":{"b":1.50, "a":1E5}' in body
    assert b'"correction":{"arguments":{"city":"Ghent","b": 2.0}}' in body
    (record,) = records(body)
    moment = label.event.created_at.isoformat().replace("+00:00", "Z")
    assert record["createdAt"] == record["updatedAt"] == moment
    assert record["call"]["startedAt"] == call.started_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    del record["createdAt"], record["updatedAt"], record["call"]["startedAt"]
    assert record == {
        "recordType": "tool_call_feedback",
        "schemaVersion": 1,
        "id": feedback.pk,
        "label": "bad_args",
        "note": "no",
        "correction": {"arguments": {"city": "Ghent", "b": 2.0}},
        "faults": feedback.faults,
        "guidelineVersion": None,
        "reviewer": {"id": ada.pk, "name": "Ada", "email": "ada@example.com"},
        "call": {
            "id": call.pk,
            "toolCallId": "call_0_0",
            "toolName": "get_weather",
            "args": {"b": 1.5, "a": 100000},
            "result": {"temperature": 21.5, "sky": "clear"},
            "isError": False,
            "error": None,
            "state": "result",
            "cycle": 0,
            "index": 0,
            "timeRecorded": True,
            "durationMs": 340,
        },
        "context": {
            "turnId": call.turn_id,
            "cycle": 0,
            "source": "openai_chat",
            "externalId": call.external_id,
            "conversationId": call.conversation_id,
            "contactId": "contact-1",
            "messageId": call.message_id,
            "outboundMessageId": call.outbound_message_id,
            "model": "tiny-model",
            "provider": "openai",
            "styleId": "friendly",
            "promptVersion": "",
            "toolsetSha256": call.toolset.sha256,
            "messages": json.loads(call.turn.messages),
        },
        "version": 1,
    }


def test_a_label_on_a_turn_has_no_call(tenant: Tenant, api: Apis, ada: User) -> None:
    with tenant_scope(tenant):
        turn = TurnFactory()
        record_label(item=item_of_turn(turn.pk), reviewer=ada, label="missing_tool")
    (record,) = records(content(api("export:read").get(FEEDBACK)))
    assert record["call"] is None
    assert record["correction"] is None
    assert (record["context"]["turnId"], record["context"]["messageId"]) == (turn.pk, turn.message_id)


def test_the_export_shows_what_holds_now(tenant: Tenant, api: Apis, ada: User) -> None:
    with tenant_scope(tenant):
        items = [item_of_call(ToolCallFactory().pk) for _ in range(3)]
        for item in items:
            record_label(item=item, reviewer=ada, label="good_reply")
        undo(item=items[0], reviewer=ada)
        undo(item=items[1], reviewer=ada)
        undo(item=items[1], reviewer=ada, seen_version=2)
        record_label(item=items[2], reviewer=ada, label="other")
    exported = records(content(api("export:read").get(FEEDBACK)))
    assert [(record["call"]["id"], record["label"]) for record in exported] == [
        (items[1].call_id, "good_reply"),
        (items[2].call_id, "other"),
    ]


HOSTILE = [
    '{\r\n\t"a": 1,\r"b":\t2\n}',
    '"\x85 \u2028 \u2029 \ufeff \u200e \x7f"',
    r'"\u0000 \ud800 \n \r \t \u2028 \u0085"',
    r'"\\n \"quoted\" \/"',
    '{"emoji 👩‍👩‍👧": "\U0010ffff", "zero": -0, "big": 12345678901234567890123, "e": 1E-7}',
    "null",
    "[]",
    "\"%s %(a)s {0} $1 E'\\\\n' '' ; --\"",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_one_record_is_one_line_whatever_the_evidence_holds(tenant: Tenant, api: Apis, ada: User, text: str) -> None:
    name = 'tool\r\n\u2028\x85\x1e\x0b\x0c\x1c"\\'
    with tenant_scope(tenant):
        call = ToolCallFactory(args=text, result=text, error=name, tool_name=name, turn__messages=f"[{text}]")
        record_label(item=item_of_call(call.pk), reviewer=ada, label="other", note=f"a{name}b")
    client = api("export:read")
    for path in (FEEDBACK, CALLS):
        body = content(client.get(path))
        assert len(body.split(b"\n")) == 3
        assert len(body.decode().splitlines()) == 2
        (record,) = records(body)
        found = record.get("call", record)
        assert found["args"] == found["result"] == json.loads(text)
        assert found["toolName"] == found["error"] == name
    assert record["label"] == "other"


def test_numbers_and_key_order_keep_their_spelling(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        ToolCallFactory(args='{"z":1.10,"a":1E5,"z2":-0.0,"dup":1,"dup":2}')
    assert b'"args":{"z":1.10,"a":1E5,"z2":-0.0,"dup":1,"dup":2},' in content(api("export:read").get(CALLS))


def test_an_empty_export_is_a_trailer(api: Apis) -> None:
    for path in (FEEDBACK, CALLS):
        body = content(api("export:read").get(path))
        assert records(body) == []
        assert trailer_of(body)["nextCursor"] is None


def test_parts_join_to_the_whole(tenant: Tenant, api: Apis, ada: User) -> None:
    with tenant_scope(tenant):
        labelled_calls(7, ada)
    client = api("export:read")
    for path in (FEEDBACK, CALLS):
        whole, parts, query = records(content(client.get(path))), [], {"limit": 3}
        while True:
            body = content(client.get(path, query))
            parts.append(records(body))
            following = trailer_of(body)["nextCursor"]
            if following is None:
                break
            query["cursor"] = following
        assert [len(part) for part in parts] == [3, 3, 1]
        assert [record for part in parts for record in part] == whole
        assert trailer_of(content(client.get(path, {"limit": 7})))["nextCursor"] is None


def test_two_exports_without_a_change_are_byte_equal(tenant: Tenant, api: Apis, ada: User) -> None:
    with tenant_scope(tenant):
        labelled_calls(120, ada)
    client = api("export:read")
    assert content(client.get(FEEDBACK)) == content(client.get(FEEDBACK))


def test_feedback_is_narrowed_by_label_and_time(tenant: Tenant, api: Apis, ada: User) -> None:
    with tenant_scope(tenant):
        for label in ("good_reply", "bad_args", "other"):
            record_label(item=item_of_call(ToolCallFactory().pk), reviewer=ada, label=label)
    client = api("export:read")

    def labels(**query: Any) -> list[str]:
        return [record["label"] for record in records(content(client.get(FEEDBACK, query)))]

    today = timezone.now().date().isoformat()
    assert labels(label="bad_args") == ["bad_args"]
    assert labels(label=["bad_args", "other"]) == ["bad_args", "other"]
    assert labels(**{"from": today, "to": today}) == ["good_reply", "bad_args", "other"]
    assert labels(to="2020-01-01") == []


def test_calls_are_narrowed_as_the_list_is(tenant: Tenant, api: Apis, ada: User) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
        call = ToolCallFactory(tool_name="book", is_error=True)
        record_label(item=item_of_call(call.pk), reviewer=ada, label="wrong_tool")
    client = api("export:read")
    for query in ({"tool": "book"}, {"error": "yes"}, {"label": "wrong_tool"}):
        (record,) = records(content(client.get(CALLS, query)))
        assert (record["recordType"], record["id"], record["label"]) == ("tool_call", call.pk, "wrong_tool")


@pytest.mark.parametrize(
    ("query", "path"),
    [({"limit": 0}, "limit"), ({"limit": "x"}, "limit"), ({"cursor": "x"}, "cursor"), ({"label": "none"}, "label")],
)
def test_what_cannot_be_exported_is_refused(api: Apis, query: dict[str, Any], path: str) -> None:
    response = api("export:read").get(FEEDBACK, query)
    assert response.status_code == 400
    assert [error["path"] for error in response.json()["errors"]] == [path]


def test_an_export_of_many_rows_keeps_its_scope_to_the_last(
    tenant: Tenant, other_tenant: Tenant, api: Apis, ada: User, member: Callable[..., Membership]
) -> None:
    stranger = member("admin", tenant=other_tenant)
    with tenant_scope(tenant):
        labelled_calls(10_000, ada)
    with tenant_scope(other_tenant):
        labelled_calls(30, stranger.user)
    ours = records(content(api("export:read").get(FEEDBACK)))
    assert len(ours) == 10_000
    assert {record["reviewer"]["email"] for record in ours} == {"ada@example.com"}
    theirs = records(content(api("export:read", member=stranger).get(FEEDBACK)))
    assert len(theirs) == 30


def test_an_export_is_audited(tenant: Tenant, api: Apis) -> None:
    client = api("export:read")
    content(client.get(FEEDBACK, {"label": "other", "limit": 5}))
    content(client.get(CALLS, {"tool": "book"}))
    with tenant_scope(tenant):
        feedback, calls = AuditEvent.objects.filter(action__startswith="export.").order_by("id")
        assert (feedback.action, feedback.actor, feedback.token_id) == ("export.feedback", client.user, client.token.pk)
        assert feedback.detail == {"labels": ["other"], "limit": 5}
        assert (calls.action, calls.detail) == ("export.calls", {"tools": ["book"], "limit": None})


@pytest.mark.parametrize("end", ["role", "token"])
def test_an_export_stops_when_its_reader_may_no_more(
    tenant: Tenant, api: Apis, ada: User, member: Callable[..., Membership], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(export, "RECHECK_S", 0.0)
    client = api("export:read", member=member("admin"))
    with tenant_scope(tenant):
        labelled_calls(200, ada)
    chunks = iter(client.get(FEEDBACK))
    received = next(chunks)
    in_another_connection(lambda: stop(tenant, client, ada, end))
    received += b"".join(chunks)
    assert b'"_end"' not in received
    assert 0 < received.count(b"\n") < 200


def stop(tenant: Tenant, client: Api, boss: User, end: str) -> None:
    with tenant_scope(tenant):
        if end == "role":
            change_role(membership=client.member, role="operator", actor=boss)
        else:
            revoke_token(token=client.token, actor=boss)


def in_another_connection(work: Callable[[], None]) -> None:
    """The export's transaction is open in this thread."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()
