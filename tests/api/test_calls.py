"""Listing calls and reading one."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality.review import hinting
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import ToolCallFactory

LIST = "/api/admin/quality/tool-calls"

type Apis = Callable[..., Api]


def test_the_list_says_each_call_in_camel_case(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory()
    (item,) = api("read").get(LIST).json()["items"]
    assert item == {
        "id": call.pk,
        "turnId": call.turn_id,
        "cycle": 0,
        "index": 0,
        "toolName": "get_weather",
        "argsPreview": '{"city": "Zürich", "unit":"celsius"}',
        "isError": False,
        "state": "result",
        "startedAt": call.started_at.isoformat().replace("+00:00", "Z"),
        "timeRecorded": True,
        "durationMs": 340,
        "source": "openai_chat",
        "conversationId": call.conversation_id,
        "contactId": "contact-1",
        "messageId": call.message_id,
        "outboundMessageId": call.outbound_message_id,
        "model": "tiny-model",
        "styleId": "friendly",
        "label": None,
        "numLabels": 0,
        "hints": [],
        "tags": [],
        "archived": False,
    }


def test_pages_are_walked_by_cursor(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        made = [call.pk for call in ToolCallFactory.create_batch(5)]
    client, seen, query = api("read"), [], {"page_size": 2, "tool": "get_weather"}
    while True:
        page = client.get(LIST, query).json()
        seen += [item["id"] for item in page["items"]]
        if page["nextCursor"] is None:
            break
        query["cursor"] = page["nextCursor"]
    assert seen == made
    back = client.get(LIST, query | {"cursor": page["previousCursor"]}).json()
    assert [item["id"] for item in back["items"]] == made[2:4]


def test_hints_are_told_and_filtered_by(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory(args='{"city":7}', result="[]")
        ToolCallFactory()
    hinting.make(tenant)
    client = api("read")
    hints = [
        {"rule": "schema_violation", "path": "/city", "cycle": 0},
        {"rule": "empty_result", "path": "", "cycle": 0},
    ]
    (item,) = client.get(LIST, {"hint": "schema_violation"}).json()["items"]
    assert [{name: hint[name] for name in hints[0]} for hint in item["hints"]] == hints
    assert item["hints"][1]["sentence"] == "get_weather gave an empty result: “[]”."
    assert client.get(f"{LIST}/{call.pk}").json()["hints"] == item["hints"]
    assert len(client.get(LIST, {"hint": ["any", "declined"]}).json()["items"]) == 1
    assert client.get(LIST, {"hint": "declined"}).json()["items"] == []
    assert client.get(LIST, {"hint": "nonsense"}).status_code == 400


def test_filters_narrow_the_list(tenant: Tenant, api: Apis, member: Callable[..., Membership]) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
        call = ToolCallFactory(is_error=True, tool_name="book", turn__conversation_id="c-7")
        record_label(item=item_of_call(call.pk), reviewer=member().user, label="wrong_tool")
    client = api("read")
    for query in (
        {"error": "yes"},
        {"tool": ["book", "other"]},
        {"conversation": "c-7"},
        {"label": "wrong_tool"},
        {"to": call.started_at.isoformat().replace("+00:00", "Z"), "error": "yes", "from": "2000-01-01"},
    ):
        expected = [] if "to" in query else [call.pk]
        assert [item["id"] for item in client.get(LIST, query).json()["items"]] == expected, query
    assert len(client.get(LIST, {"label": "none"}).json()["items"]) == 1
    assert client.get(LIST, {"count": "true", "page_size": 1}).json()["count"] == {"value": 2, "capped": False}
    assert "count" not in client.get(LIST).json()


@pytest.mark.parametrize(
    ("query", "path", "code"),
    [
        ({"page_size": 10**9}, "page_size", "max_value"),
        ({"page_size": 201}, "page_size", "max_value"),
        ({"label": "nice"}, "label", "unknown_label"),
        ({"error": "perhaps"}, "error", "invalid_choice"),
        ({"from": "soon"}, "from", "invalid_time"),
        ({"cursor": "abc"}, "cursor", "bad_cursor"),
        ({"colour": "red"}, "colour", "unknown_parameter"),
        ({"tool": "a\x00b"}, "tool", "null_characters_not_allowed"),
    ],
)
def test_a_query_that_cannot_be_read_is_refused(api: Apis, query: dict[str, Any], path: str, code: str) -> None:
    response = api("read").get(LIST, query)
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert (error["path"], error["code"]) == (path, code)


def test_the_list_takes_as_many_queries_for_twenty_calls_as_for_one(tenant: Tenant, api: Apis) -> None:
    client = api("read")
    with tenant_scope(tenant):
        ToolCallFactory()
    client.get(LIST)  # notes the token's use, once in a while
    with CaptureQueriesContext(connection) as for_one:
        assert len(client.get(LIST).json()["items"]) == 1
    with tenant_scope(tenant):
        ToolCallFactory.create_batch(19)
    with CaptureQueriesContext(connection) as for_twenty:
        assert len(client.get(LIST).json()["items"]) == 20
    assert len(for_one) == len(for_twenty)


def test_a_call_shows_its_evidence_as_it_was_spelled(
    tenant: Tenant, api: Apis, member: Callable[..., Membership]
) -> None:
    args = '{"b": 1.50, "a":1E5,\n "text": "Zürich \\u0000 \\ud800", "a b": {"snake_case": -0}}'
    with tenant_scope(tenant):
        call = ToolCallFactory(args=args, result='"not JSON at all"')
        record_label(
            item=item_of_call(call.pk),
            reviewer=member(user__name="Ada").user,
            label="bad_args",
            correction='{"arguments": {"city": "Ghent", "n": 1.0}}',
        )
    response = api("read").get(f"{LIST}/{call.pk}")
    assert response.status_code == 200
    text = response.content.decode()
    assert f'"args":{args}' in text
    assert '"correction":{"arguments": {"city": "Ghent", "n": 1.0}}' in text
    body = response.json()
    assert body["result"] == "not JSON at all"
    assert body["turn"]["messages"][0]["content"] == "What is the weather in Zürich?"
    assert body["toolset"]["tools"][0]["function"]["name"] == "get_weather"
    assert (body["version"], body["labels"][0]["label"], body["labels"][0]["reviewer"]["name"]) == (
        1,
        "bad_args",
        "Ada",
    )
    assert [event["action"] for event in body["history"]] == ["label"]


def test_a_call_with_nothing_recorded_says_null(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory(args=None, result=None, is_error=None, turn__toolset=None, turn__messages=None)
    body = api("read").get(f"{LIST}/{call.pk}").json()
    assert [body[name] for name in ("args", "result", "isError", "error", "toolset")] == [None] * 5
    assert body["turn"]["messages"] is None


@pytest.mark.parametrize("place", ["0", "999999", str(10**30), "x", "1/", "-1"])
def test_what_is_not_there_is_404(tenant: Tenant, api: Apis, place: str) -> None:
    response = api("read").get(f"{LIST}/{place}")
    assert response.status_code == 404
    assert response["Content-Type"] == "application/problem+json"


def test_times_are_utc_whatever_a_cookie_says(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
    client = api("read")
    client.client.cookies["tz"] = "Asia/Tokyo"
    assert client.get(LIST).json()["items"][0]["startedAt"].endswith("Z")
