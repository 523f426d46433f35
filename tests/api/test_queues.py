"""Review queues over the API: who may, what is told, what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from quality.models import QueueEntry, ReviewQueue, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory

BASE = "/api/admin/quality/queues"


@pytest.fixture
def calls(tenant: Tenant) -> list[ToolCall]:
    with tenant_scope(tenant):
        return [ToolCallFactory(is_error=place == 0) for place in range(3)]


def test_a_queue_is_made_filled_changed_and_deleted(
    api: Callable[..., Any], member: Callable[..., Membership], calls: list[ToolCall]
) -> None:
    ada = member(user__email="ada@example.com", user__name="Ada").user
    client = api()
    made = client.post(BASE, {"name": "Failures", "kind": "fixed", "reviewers": ["ADA@example.com"], "blind": True})
    assert made.status_code == 201, made.text
    queue = made.json()
    assert (queue["reviewers"], queue["everyone"], queue["blind"]) == (["ada@example.com"], False, True)
    address = f"{BASE}/{queue['id']}"
    added = client.post(f"{address}/entries", {"calls": [calls[1].pk, 999_999]}).json()
    assert added == {"added": 1, "missing": ["call 999999"]}
    assert client.post(f"{address}/entries", {"filter": "error=yes"}).json() == {"added": 1, "missing": []}
    page = client.get(f"{address}/entries?page_size=1").json()
    assert [one["callId"] for one in page["items"]] == [calls[0].pk]
    page = client.get(f"{address}/entries?page_size=1&cursor={page['nextCursor']}").json()
    assert ([one["callId"] for one in page["items"]], page["nextCursor"]) == ([calls[1].pk], None)
    with tenant_scope(client.member.tenant_id):
        record_label(item=item_of_call(calls[0].pk), reviewer=ada, label="bad_args")
    told = client.get(f"{address}/progress").json()
    assert told["progress"] | {"open": 1, "done": 1, "finished": False} == told["progress"]
    assert [(one["reviewer"]["email"], one["done"]) for one in told["reviewers"]] == [("ada@example.com", 1)]
    assert told["days"][-1]["left"] == 1
    done = client.get(f"{address}/entries?state=done&reviewer=Ada").json()["items"]
    assert [(one["callId"], one["answers"][0]["label"]) for one in done] == [(calls[0].pk, "bad_args")]
    assert client.delete(f"{address}/entries/{page['items'][0]['id']}").status_code == 204
    refused = client.delete(address)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "not_closed")
    changed = client.patch(address, {"state": "closed", "labelsNeeded": 2, "reviewers": []}).json()
    assert (changed["state"], changed["labelsNeeded"], changed["everyone"]) == ("closed", 2, True)
    closed = client.post(f"{address}/entries", {"calls": [calls[2].pk]})
    assert (closed.status_code, closed.json()["errors"][0]["code"]) == (400, "closed")
    assert client.delete(address).status_code == 204
    assert (client.get(address).status_code, client.get(BASE).json()) == (404, {"queues": []})


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"kind": "rule"}, "name"),
        ({"name": "A", "kind": "adjudication"}, "kind"),
        ({"name": "A", "kind": "rule", "filter": "error=maybe"}, "filter"),
        ({"name": "A", "kind": "rule", "filter": "tols=x"}, "filter"),
        ({"name": "A", "kind": "rule", "sampleRate": 0}, "sampleRate"),
        ({"name": "A", "kind": "fixed", "labelsNeeded": 10}, "labelsNeeded"),
        ({"name": "A", "kind": "fixed", "reviewers": ["nobody@example.com"]}, "reviewers"),
        ({"name": "A", "kind": "fixed", "parts": ["everything"]}, "parts"),
        ({"name": "A", "kind": "fixed", "isBlind": True}, "isBlind"),
    ],
)
def test_what_is_wrong_is_named(api: Callable[..., Any], tenant: Tenant, body: dict[str, Any], path: str) -> None:
    response = api().post(BASE, body)
    assert response.status_code == 400
    assert path in response.json()["errors"][0]["path"]
    with tenant_scope(tenant):
        assert not ReviewQueue.objects.exists()


def test_many_go_to_a_worker(
    api: Callable[..., Any], calls: list[ToolCall], tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "MAX_AT_ONCE", 2)
    client = api()
    queue = client.post(BASE, {"name": "All", "kind": "fixed"}).json()
    assert client.post(f"{BASE}/{queue['id']}/entries", {"filter": ""}).json() == {"added": None, "missing": []}
    assert client.get(f"{BASE}/{queue['id']}/progress").json()["adding"]["done"] is False
    adding.run(queue["id"], tenant=tenant)
    told = client.get(f"{BASE}/{queue['id']}/progress").json()
    assert (told["adding"]["added"], told["progress"]["open"]) == (len(calls), len(calls))


def test_who_reviews_a_blind_queue_is_told_his_own_answers_alone(
    api: Callable[..., Any], member: Callable[..., Membership], calls: list[ToolCall]
) -> None:
    lead = api()
    ada, bob = member(user__name="Ada"), member(user__name="Bob")
    people = [ada.user.email, bob.user.email]
    body = {"name": "Blind", "kind": "fixed", "blind": True, "labelsNeeded": 2, "reviewers": people}
    queue = lead.post(BASE, body).json()
    lead.post(f"{BASE}/{queue['id']}/entries", {"calls": [calls[0].pk]})
    client = api("read", "feedback:write", member=bob)
    with tenant_scope(ada.tenant_id):
        record_label(item=item_of_call(calls[0].pk), reviewer=ada.user, label="bad_args", note="wrong unit")
    call = f"/api/admin/quality/tool-calls/{calls[0].pk}"
    for address in (f"{BASE}/{queue['id']}/entries", call, "/api/admin/quality/tool-calls"):
        assert "bad_args" not in client.get(address).text, address
        assert "bad_args" in lead.get(address).text, address
    assert client.get("/api/admin/quality/tool-calls?label=bad_args").json()["items"] == []
    # What others said is no conflict to who must not know it.
    answer = client.post(f"{call}/feedback", {"label": "good_reply", "version": 0})
    assert answer.status_code == 200
    with tenant_scope(ada.tenant_id):
        assert QueueEntry.objects.get().agreed is False
    assert "bad_args" in client.get(call).text


def test_scopes(api: Callable[..., Any], tenant: Tenant) -> None:
    queue = api().post(BASE, {"name": "Mine", "kind": "fixed"}).json()
    reader = api("read")
    assert reader.get(f"{BASE}/{queue['id']}").status_code == 200
    for send, path in ((reader.post, ""), (reader.patch, f"/{queue['id']}"), (reader.post, f"/{queue['id']}/entries")):
        assert send(f"{BASE}{path}", {}).status_code == 403


def test_disagreements_get_a_queue(api: Callable[..., Any]) -> None:
    client = api()
    queue = client.post(BASE, {"name": "Two each", "kind": "fixed", "labelsNeeded": 2}).json()
    made = client.post(f"{BASE}/{queue['id']}/adjudication", {}).json()
    assert (made["kind"], made["ofQueue"]) == ("adjudication", queue["id"])
    assert client.post(f"{BASE}/{queue['id']}/adjudication", {}).json()["id"] == made["id"]
    assert client.post(f"{BASE}/{made['id']}/adjudication", {}).status_code == 400
