"""Groups and proposals through the API: who may, what is told, and that a second decision gets the first."""

from collections.abc import Callable
from typing import Any

import pytest

from quality.models import Case, Feedback, Proposal
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import FeedbackFactory, ProposalFactory

GROUPS = "/api/admin/quality/tool-call-feedback/proposals"
PROPOSALS = "/api/admin/quality/improvement-proposals"
KEY = {"label": "bad_args", "toolName": "get_weather", "styleId": "friendly", "fault": "arg:/city"}

type Apis = Callable[..., Api]


@pytest.fixture
def feedback(tenant: Tenant) -> Feedback:
    with tenant_scope(tenant):
        return FeedbackFactory(correction='{"arguments": {"city": "Bern"}}', reviewer__name="Ada")


@pytest.fixture
def proposal(tenant: Tenant, feedback: Feedback) -> Proposal:
    with tenant_scope(tenant):
        return ProposalFactory()


def test_groups_are_listed_with_examples(api: Apis, feedback: Feedback) -> None:
    answer = api("read").get(GROUPS).json()
    (group,) = answer["items"]
    assert {name: group[name] for name in KEY} == KEY
    assert (group["state"], group["numItems"], group["suggestedKind"]) == ("untracked", 1, "tool_schema_patch")
    (example,) = group["examples"]
    assert (example["callId"], example["feedbackId"]) == (feedback.call_id, feedback.pk)
    assert example["argsPreview"] == '{"city": "Zürich", "unit":"celsius"}'
    assert [reviewer["name"] for reviewer in example["reviewers"]] == ["Ada"]
    assert answer["nextCursor"] is None


def test_pages_of_groups_follow_each_other(tenant: Tenant, api: Apis) -> None:
    with tenant_scope(tenant):
        for number in range(3):
            FeedbackFactory(faults=[f"arg:/{number}"])
    client = api("read")
    first = client.get(GROUPS, {"page_size": 2}).json()
    second = client.get(GROUPS, {"page_size": 2, "cursor": first["nextCursor"]}).json()
    assert len({group["fault"] for group in [*first["items"], *second["items"]]}) == 3
    assert second["nextCursor"] is None


@pytest.mark.parametrize(
    ("path", "query", "at", "code"),
    [
        (GROUPS, {"cursor": "x"}, "cursor", "bad_cursor"),
        (GROUPS, {"state": "open"}, "state", "unknown_value"),
        (GROUPS, {"label": "none"}, "label", "unknown_label"),
        (GROUPS, {"order": "oldest"}, "order", "invalid_choice"),
        (GROUPS, {"page_size": "101"}, "page_size", "max_value"),
        (GROUPS, {"tools": "x"}, "tools", "unknown_parameter"),
        (PROPOSALS, {"cursor": "bm8"}, "cursor", "bad_cursor"),
        (PROPOSALS, {"state": "untracked"}, "state", "unknown_value"),
        (PROPOSALS, {"style": "a\x00"}, "style", "null_characters_not_allowed"),
    ],
)
def test_a_query_that_cannot_be_read_is_told_by_name(
    api: Apis, path: str, query: dict[str, str], at: str, code: str
) -> None:
    response = api("read").get(path, query)
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert (error["path"], error["code"]) == (at, code)


def test_a_group_is_tracked_once(api: Apis, feedback: Feedback) -> None:
    client = api("read", "feedback:write")
    first, again = client.post(PROPOSALS, KEY), client.post(PROPOSALS, KEY)
    assert (first.status_code, again.status_code) == (201, 200)
    answer = first.json()
    assert again.json() == answer
    assert (answer["state"], answer["version"], answer["numItems"], answer["resolution"]) == ("pending", 1, 1, None)
    assert [step["action"] for step in answer["history"]] == ["track"]
    assert answer["rates"]["after"] is None
    assert (answer["rates"]["before"]["numItems"], answer["rates"]["before"]["tooFew"]) == (1, True)
    assert client.get(f"{PROPOSALS}/{answer['id']}").json() == answer
    (row,) = client.get(PROPOSALS, {"state": "pending"}).json()["items"]
    assert row["id"] == answer["id"]


def test_what_nobody_says_is_not_found(api: Apis) -> None:
    assert api("feedback:write").post(PROPOSALS, KEY).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "at", "code"),
    [
        ("", {}, "label", "required"),
        ("", {**KEY, "styleId": None}, "styleId", "null"),
        ("", {**KEY, "more": 1}, "more", "unknown_member"),
        ("/{pk}/dismiss", {}, "reason", "required"),
        ("/{pk}/dismiss", {"reason": " "}, "reason", "blank"),
        ("/{pk}/dismiss", {"reason": "no", "version": 0}, "version", "min_value"),
        ("/{pk}/apply", {"kind": "magic", "note": "x"}, "kind", "unknown_kind"),
        ("/{pk}/apply", {"kind": "pull_request"}, "ref", "required"),
        ("/{pk}/apply", {"kind": "other", "note": "a\x00"}, "note", "null_characters_not_allowed"),
        ("/{pk}/reopen", {"why": "x"}, "why", "unknown_member"),
        ("/{pk}/case", {"feedbackId": 999}, "feedbackId", "no_such_feedback"),
        ("/{pk}/case", {"expectation": []}, "expectation", "not_a_dict"),
        ("/{pk}/case", {"expectation": {"version": 2}}, "expectation", "bad_version"),
    ],
)
def test_a_wrong_body_is_refused_by_name(
    api: Apis, proposal: Proposal, path: str, body: dict[str, Any], at: str, code: str
) -> None:
    response = api("feedback:write").post(PROPOSALS + path.format(pk=proposal.pk), body)
    assert response.status_code == 400, response.content
    error = response.json()["errors"][0]
    assert error["path"] == at
    assert error["code"] == code or at == "expectation"


def test_a_second_decision_is_answered_with_the_first(api: Apis, proposal: Proposal) -> None:
    client = api("read", "feedback:write")
    place = f"{PROPOSALS}/{proposal.pk}"
    applied = client.post(f"{place}/apply", {"kind": "pull_request", "ref": "https://example.com/7", "version": 1})
    assert applied.status_code == 200
    assert applied.json()["resolution"] == {"kind": "pull_request", "ref": "https://example.com/7", "note": ""}
    assert applied.json()["rates"]["after"]["tooFew"] is True
    refused = client.post(f"{place}/dismiss", b'{"reason":  "no", "version": 1}')
    assert refused.status_code == 409
    told = refused.json()
    assert told["type"].endswith(":already_decided")
    assert (told["current"]["state"], told["current"]["version"]) == ("applied", 2)
    assert told["current"]["decidedBy"]["email"] == client.user.email
    assert b'"sent":{"reason":  "no", "version": 1}' in refused.content

    reopened = client.post(f"{place}/reopen", {"reason": "did not help"})
    assert (reopened.status_code, reopened.json()["state"], reopened.json()["version"]) == (200, "pending", 3)
    assert client.post(f"{place}/reopen", {}).json()["type"].endswith(":not_decided")
    stale = client.post(f"{place}/dismiss", {"reason": "no", "version": 1})
    assert (stale.status_code, stale.json()["current"]["version"]) == (409, 3)
    assert client.post(f"{place}/dismiss", {"reason": "no", "version": 3}).status_code == 200
    history = client.get(place).json()["history"]
    assert [step["action"] for step in history] == ["track", "apply", "reopen", "dismiss"][1:]
    assert history[0]["resolution"]["ref"] == "https://example.com/7"


def test_a_case_closes_the_proposal(tenant: Tenant, api: Apis, proposal: Proposal, feedback: Feedback) -> None:
    client = api("read", "feedback:write")
    made = client.post(f"{PROPOSALS}/{proposal.pk}/case", {"behavior": "Asks for Bern.", "tags": ["smoke"]})
    assert made.status_code == 201, made.content
    answer = made.json()
    assert answer["case"]["id"] == "REG-1"
    assert answer["case"]["provenance"]["proposalId"] == proposal.pk
    assert answer["case"]["provenance"]["feedbackId"] == feedback.pk
    assert answer["proposal"]["resolution"] == {"kind": "regression_case", "ref": "REG-1", "note": ""}
    assert (answer["check"]["recorded"]["verdict"], answer["check"]["corrected"]["verdict"]) == ("fail", "pass")
    assert answer["check"]["warnings"] == []
    assert client.get(f"{PROPOSALS}/{proposal.pk}").json()["cases"] == [
        {"id": "REG-1", "status": "active", "behavior": "Asks for Bern."}
    ]
    again = client.post(f"{PROPOSALS}/{proposal.pk}/case", {})
    assert again.status_code == 409
    with tenant_scope(tenant):
        assert Case.objects.count() == 1


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 201), ("admin", 201)])
def test_operators_track_and_viewers_read(
    api: Apis, member: Callable[..., Membership], feedback: Feedback, role: str, status: int
) -> None:
    client = api("read", "feedback:write", member=member(role))
    assert client.get(GROUPS).status_code == 200
    assert client.post(PROPOSALS, KEY).status_code == status


@pytest.mark.parametrize("step", ["dismiss", "apply", "reopen", "case"])
def test_steps_ask_for_their_scope_and_for_a_proposal(api: Apis, proposal: Proposal, step: str) -> None:
    assert api("read", "export:read").post(f"{PROPOSALS}/{proposal.pk}/{step}", {}).status_code == 403
    body = {"dismiss": {"reason": "no"}, "apply": {"kind": "other", "note": "x"}}.get(step, {})
    assert api("feedback:write").post(f"{PROPOSALS}/999/{step}", body).status_code == 404
