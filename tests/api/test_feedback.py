"""Labels through the API: every way to send one wrongly has its answer."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from quality.models import Feedback, FeedbackEvent, ToolCall
from tenants.models import AuditEvent, Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import ToolCallFactory, TurnFactory

type Apis = Callable[..., Api]

GHENT = {"arguments": {"city": "Ghent"}}


@pytest.fixture
def call(tenant: Tenant) -> ToolCall:
    with tenant_scope(tenant):
        return ToolCallFactory()


@pytest.fixture
def place(call: ToolCall) -> str:
    return f"/api/admin/quality/tool-calls/{call.pk}/feedback"


def test_a_label_is_given_by_the_tokens_maker(tenant: Tenant, api: Apis, call: ToolCall, place: str) -> None:
    client = api("feedback:write")
    correction = b'{"arguments": {"city": "Ghent", "n": 1.50}}'
    body = b'{"label": "bad_args", "note": "wrong unit", "correction": %s, "version": 0}' % correction
    response = client.post(place, body)
    assert response.status_code == 200
    assert b'"correction":%s' % correction in response.content
    answer = response.json()
    assert (answer["callId"], answer["turnId"], answer["cycle"], answer["version"]) == (call.pk, call.turn_id, 0, 1)
    (label,) = answer["labels"]
    assert (label["label"], label["note"], label["reviewer"]["email"]) == ("bad_args", "wrong unit", client.user.email)
    assert (label["toolName"], label["styleId"], label["faults"]) == (
        "get_weather",
        "friendly",
        ["arg:/city", "arg:/n", "arg:/unit"],
    )
    assert (label["guidelineVersion"], answer["event"]["guidelineVersion"]) == (None, None)
    with tenant_scope(tenant):
        event = AuditEvent.objects.get(action="feedback.labelled")
        assert (event.actor, event.token_id) == (client.user, client.token.pk)
        assert FeedbackEvent.objects.get().token_id == client.token.pk


def test_an_unknown_label_is_refused_with_the_known_ones(tenant: Tenant, api: Apis, place: str) -> None:
    response = api("feedback:write").post(place, {"label": "great"})
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert (error["path"], error["code"]) == ("label", "unknown_label")
    assert "good_reply, wrong_tool, missing_tool, bad_args, other" in error["message"]
    with tenant_scope(tenant):
        assert not Feedback.objects.exists()


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        ({}, "label", "required"),
        ({"label": None}, "label", "null"),
        ({"label": ["other"]}, "label", "invalid"),
        ({"label": ""}, "label", "blank"),
        ({"label": "other", "note": "a\x00b"}, "note", "null_characters_not_allowed"),
        ({"label": "other", "note": "a\ud800"}, "note", "surrogate_characters_not_allowed"),
        ({"label": "other", "note": "x" * 10_001}, "note", "too_long"),
        ({"label": "other", "correction": "wrong"}, "correction", "not_a_dict"),
        ({"label": "other", "correction": {"tool": "x"}}, "correction.tool", "unknown_member"),
        ({"label": "bad_args", "correction": {"arguments": {}}}, "correction.arguments.city", "unfit"),
        ({"label": "wrong_tool", "correction": {"tool": "get_time"}}, "correction.tool", "not_offered"),
        ({"label": "other", "version": -1}, "version", "min_value"),
        ({"label": "other", "version": "one"}, "version", "invalid"),
        ({"label": "other", "reviewer": 7}, "reviewer", "unknown_member"),
        ({"label": "other", "\ud800": 7}, "\ufffd", "unknown_member"),
    ],
)
def test_a_body_with_a_wrong_member_is_refused_by_name(
    tenant: Tenant, api: Apis, place: str, body: dict[str, Any], path: str, code: str
) -> None:
    response = api("feedback:write").post(place, body)
    assert response.status_code == 400, response.content
    (error,) = response.json()["errors"]
    assert (error["path"], error["code"]) == (path, code)
    with tenant_scope(tenant):
        assert not FeedbackEvent.objects.exists()


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"", 400, "required"),
        (b"{", 400, "malformed_json"),
        (b"\xff\xfe{\x00", 400, "invalid_utf8"),
        (b'{"label":"other","label":"other"}', 400, "duplicate_key"),
        (b'{"label":"other","version":NaN}', 400, "non_finite_number"),
        (b'{"label":"other","version":1e400}', 400, "number_out_of_range"),
        (b'{"label":"other","correction":' + b'{"a":' * 200 + b"1" + b"}" * 201, 400, "too_deep"),
        (b'["other"]', 400, "not_an_object"),
        (b'{"label":"other","note":"' + b"x" * (5 * 1024 * 1024) + b'"}', 413, "too_large"),
    ],
)
def test_a_body_that_is_no_strict_json_object_is_refused(
    tenant: Tenant, api: Apis, place: str, raw: bytes, status: int, code: str
) -> None:
    response = api("feedback:write").post(place, raw)
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    assert [error["code"] for error in response.json()["errors"]] == [code]
    with tenant_scope(tenant):
        assert not FeedbackEvent.objects.exists()


def test_a_stale_label_is_answered_with_both_values(
    tenant: Tenant, api: Apis, place: str, member: Callable[..., Membership]
) -> None:
    ada, bob = api("feedback:write", member=member(user__name="Ada")), api("feedback:write", member=member())
    assert ada.post(place, {"label": "good_reply", "version": 0}).status_code == 200
    response = bob.post(place, {"label": "bad_args", "note": "mine", "correction": GHENT, "version": 0})
    assert response.status_code == 409
    problem = response.json()
    assert problem["type"].endswith(":stale_label")
    assert problem["current"]["version"] == 1
    (current,) = problem["current"]["labels"]
    assert (current["label"], current["reviewer"]["name"]) == ("good_reply", "Ada")
    assert problem["sent"] == {"label": "bad_args", "note": "mine", "correction": GHENT}
    again = bob.post(place, {"label": "bad_args", "version": problem["current"]["version"]})
    assert again.status_code == 200
    assert {label["label"] for label in again.json()["labels"]} == {"good_reply", "bad_args"}


@pytest.mark.parametrize("version", [{}, {"version": 0}])
def test_ten_parallel_identical_posts_are_one_label(
    tenant: Tenant, api: Apis, place: str, version: dict[str, int]
) -> None:
    client = api("feedback:write")
    gate = threading.Barrier(10)

    def post() -> Any:
        gate.wait(10)
        try:
            return Api(client.text, client.token, client.member).post(place, {"label": "wrong_tool", **version})
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        answers = [future.result() for future in [pool.submit(post) for _ in range(10)]]
    assert [answer.status_code for answer in answers] == [200] * 10
    assert len({answer.content for answer in answers}) == 1
    with tenant_scope(tenant):
        assert Feedback.objects.count() == FeedbackEvent.objects.count() == 1
        assert AuditEvent.objects.filter(action="feedback.labelled").count() == 1


def test_a_label_is_taken_back_and_given_again(api: Apis, place: str) -> None:
    client = api("feedback:write")
    client.post(place, {"label": "good_reply"})
    undone = client.post(place + "/undo", {"version": 1}).json()
    assert (undone["labels"], undone["version"], undone["event"]["undoes"]) == ([], 2, 1)
    assert client.post(place + "/undo", {"version": 1}).json() == undone
    assert client.post(place + "/undo", {}).json() == undone
    redone = client.post(place + "/undo", {"version": 2}).json()
    assert [label["label"] for label in redone["labels"]] == ["good_reply"]


def test_taking_back_what_was_never_given_is_a_conflict(api: Apis, place: str) -> None:
    response = api("feedback:write").post(place + "/undo", {})
    assert response.status_code == 409
    assert response.json()["type"].endswith(":nothing_to_undo")


def test_a_turn_without_a_call_is_labelled_by_cycle(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        turn = TurnFactory(num_cycles=2)
    client, place = api("feedback:write"), f"/api/admin/quality/turns/{turn.pk}/feedback"
    last = client.post(place, {"label": "missing_tool"}).json()
    assert (last["callId"], last["turnId"], last["cycle"], last["version"]) == (None, turn.pk, 1, 1)
    first = client.post(place, {"label": "good_reply", "cycle": 0, "version": 0}).json()
    assert (first["cycle"], first["version"]) == (0, 1)
    assert client.post(place, {"label": "other", "cycle": 2}).status_code == 404
    assert client.post(place + "/undo", {"cycle": 0}).json()["labels"] == []
    with tenant_scope(tenant):
        assert Feedback.objects.get().cycle == 1
