"""Replays through the API: planned, started, followed, stopped; what came of them, and what people say of it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quality.cases.attempt import read_attempts
from quality.cases.report import KIND
from quality.models import Case, Replay, ReplayFinding, ReplayNotification, ReplaySchedule
from quality.replay.run import run_replay
from tenants import endpoints
from tenants.endpoints import EndpointData
from tenants.models import Membership, Role, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.cases.suite import Playing, playing
from tests.factories import CaseFactory
from tests.replay.rows import make_replay, make_sample, make_schedule
from tests.replay.test_judging import expects, knows_zurich, weather

REPLAYS = "/api/replays"
SIDE = {"modelLabel": "main"}

type Apis = Callable[..., Api]


@pytest.fixture
def case(tenant: Tenant) -> Case:
    with tenant_scope(tenant):
        return CaseFactory(tags=["smoke"])


@pytest.fixture
def script() -> list[Any]:
    return [weather("Zürich"), weather("Bern")]


@pytest.fixture
def model(tenant: Tenant, member: Callable[..., Membership], settings: Any, script: list[Any]) -> Iterator[Playing]:
    """The endpoints `main`, which follows the script, and `judge`."""
    with playing(*script) as main, playing(*[knows_zurich] * 20) as judge:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [int(play.base_url.split(":")[2].split("/")[0]) for play in (main, judge)]
        admin = member(Role.ADMIN).user
        with tenant_scope(tenant):
            for label, play in (("main", main), ("judge", judge)):
                endpoints.save_endpoint(EndpointData(label=label, base_url=play.base_url, model="m"), actor=admin)
        yield main


@pytest.fixture
def client(api: Apis) -> Api:
    return api("read", "replays:write", "settings:write", "export:read")


def started(client: Api, **body: Any) -> dict[str, Any]:
    response = client.post(REPLAYS, {"sides": [SIDE], **body})
    assert response.status_code == 201, response.content
    found: dict[str, Any] = response.json()
    return found


def carried_out(tenant: Tenant, client: Api, **body: Any) -> dict[str, Any]:
    """A replay that was started over the API and has come to its end."""
    replay = started(client, **body)
    run_replay(replay["id"], tenant_id=tenant.pk)
    found: dict[str, Any] = client.get(f"{REPLAYS}/{replay['id']}").json()
    assert found["state"] == "done", found
    return found


# Planned and started.


def test_a_replay_is_estimated_and_started(case: Case, model: Any, client: Api) -> None:
    body = {"sides": [SIDE], "cases": ["REG-1"], "settings": {"samples": 3}}
    told = client.post(f"{REPLAYS}/estimate", body).json()
    assert (told["cases"], told["samples"], told["cost"]) == (1, 3, None)
    assert told["sides"][0]["modelLabel"] == "main"
    assert client.get(REPLAYS).json() == {"items": [], "nextCursor": None}
    answer = started(client, **body, name="Before the release")
    assert (answer["state"], answer["numCases"], answer["numExpected"]) == ("queued", 1, 3)
    assert (answer["outcome"], answer["exitCode"], answer["verdict"]) == (None, None, "")
    (side,) = answer["sides"]
    assert (side["name"], side["model"], side["tools"]) == ("candidate", "m", "recorded")
    assert (answer["settings"]["samples"], answer["estimate"]["samples"]) == (3, 3)
    assert answer["createdBy"]["email"] == client.user.email
    assert client.get(f"{REPLAYS}/{answer['id']}").json() == answer
    (row,) = client.get(REPLAYS, {"state": "queued"}).json()["items"]
    assert (row["id"], row["name"]) == (answer["id"], "Before the release")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, ""),
        ({"sides": []}, "sides"),
        ({"sides": [{"modelLabel": "gone"}]}, "sides.0.modelLabel"),
        ({"sides": [{"modelLabel": "main", "styleId": "none"}]}, "sides.0.styleId"),
        ({"sides": [{"modelLabel": "main", "tools": "x"}]}, "sides.0.tools"),
        ({"sides": [SIDE], "cases": ["REG-9"]}, "cases"),
        ({"sides": [SIDE], "query": "tag=none"}, "cases"),
        ({"sides": [SIDE], "query": "tags=smoke"}, "query"),
        ({"sides": [SIDE], "settings": {"samples": 0}}, "settings.samples"),
        ({"sides": [SIDE], "settings": {"onMiss": "live"}}, "settings.onMiss"),
        ({"sides": [SIDE], "settings": {"budget": {"calls": -1}}}, "settings.budget.calls"),
        ({"sides": [SIDE], "settings": {"judgeLabel": "gone"}}, "settings.judgeLabel"),
        ({"sides": [SIDE], "baselineReplayId": 99}, "baselineReplayId"),
        ({"sides": [SIDE], "more": 1}, ""),
    ],
)
def test_a_wrong_body_is_refused_by_name(case: Case, model: Any, client: Api, body: dict[str, Any], path: str) -> None:
    response = client.post(REPLAYS, body)
    assert response.status_code == 400, response.content
    assert response.json()["errors"][0]["path"] == path
    assert client.get(REPLAYS).json()["items"] == []


def test_who_may_do_what(tenant: Tenant, case: Case, model: Any, api: Apis, member: Callable[..., Membership]) -> None:
    body = {"sides": [SIDE]}
    reader, viewer = api("read"), api("read", "replays:write", member=member(Role.VIEWER))
    assert reader.post(f"{REPLAYS}/estimate", body).status_code == 200
    for refused in (reader, viewer):
        assert refused.post(REPLAYS, body).status_code == 403
    operator = api("replays:write", member=member(Role.OPERATOR))
    replay = operator.post(REPLAYS, body).json()
    assert operator.get(REPLAYS).status_code == 403
    assert viewer.get(f"{REPLAYS}/{replay['id']}").json()["id"] == replay["id"]
    assert reader.get(f"{REPLAYS}/{replay['id']}/answers.jsonl").status_code == 403
    for step in ("pause", "resume", "cancel", "retry"):
        assert reader.post(f"{REPLAYS}/{replay['id']}/{step}").status_code == 403
    assert operator.post(f"{REPLAYS}/schedules", {"name": "x", "cron": "* * * * *", **body}).status_code == 403


def test_another_tenants_replay_is_not_there(other_tenant: Tenant, client: Api) -> None:
    with tenant_scope(other_tenant):
        theirs = CaseFactory()
        replay, schedule = make_replay(theirs), make_schedule()
    for path in (
        f"{replay.pk}", f"{replay.pk}/report.json", f"{replay.pk}/answers.jsonl", f"{replay.pk}/cases",
        f"{replay.pk}/cases/REG-1/samples", f"{replay.pk}/findings", f"{replay.pk}/judge", f"schedules/{schedule.pk}",
        f"schedules/{schedule.pk}/notifications",
    ):  # fmt: skip
        assert client.get(f"{REPLAYS}/{path}").status_code == 404, path
    for path in ("pause", "cancel", "cases/REG-1/dispute", "cases/REG-1/confirm"):
        assert (
            client.post(f"{REPLAYS}/{replay.pk}/{path}", {"note": "x"} if "cases" in path else None).status_code == 404
        )
    assert client.get(REPLAYS).json()["items"] == []
    assert client.get(f"{REPLAYS}/schedules").json() == {"schedules": []}


# Followed and stopped.


def test_steps_change_the_state_and_a_wrong_one_is_answered_with_it(case: Case, model: Any, client: Api) -> None:
    place = f"{REPLAYS}/{started(client)['id']}"
    assert client.post(f"{place}/pause").json()["state"] == "paused"
    refused = client.post(f"{place}/pause")
    assert refused.status_code == 409
    assert refused.json()["type"].endswith(":wrong_state")
    assert refused.json()["current"]["state"] == "paused"
    assert client.post(f"{place}/resume").json()["state"] == "queued"
    assert client.get(f"{place}/report.json").status_code == 409
    assert client.post(f"{place}/cancel").json()["state"] == "cancelled"
    for step in ("pause", "resume", "cancel", "retry"):
        answer = client.post(f"{place}/{step}")
        assert (answer.status_code, answer.json()["current"]["state"]) == (409, "cancelled")


@pytest.mark.parametrize("script", [[weather("Zürich"), "status:400", weather("Zürich")]])
def test_samples_that_ended_in_an_error_are_asked_again(tenant: Tenant, case: Case, model: Any, client: Api) -> None:
    replay = carried_out(tenant, client, settings={"samples": 2, "concurrency": 1})
    assert (replay["outcome"], replay["exitCode"], replay["numErrors"]) == ("incomplete", 3, 1)
    again = client.post(f"{REPLAYS}/{replay['id']}/retry").json()
    assert (again["state"], again["outcome"], again["numErrors"]) == ("queued", None, 0)
    run_replay(replay["id"], tenant_id=tenant.pk)
    assert client.get(f"{REPLAYS}/{replay['id']}").json()["outcome"] == "passed"
    assert client.post(f"{REPLAYS}/{replay['id']}/retry").status_code == 409


def test_lists_are_filtered_and_paged(tenant: Tenant, case: Case, client: Api) -> None:
    with tenant_scope(tenant):
        schedule = make_schedule()
        ids = [make_replay(case).pk for _ in range(3)]
        failed = make_replay(case, exit_code=1, schedule=schedule).pk
    pages, cursor = [], ""
    while True:
        page = client.get(REPLAYS, {"page_size": 2, **({"cursor": cursor} if cursor else {})}).json()
        pages.append([row["id"] for row in page["items"]])
        cursor = page["nextCursor"]
        if not cursor:
            break
    assert pages == [[failed, ids[2]], [ids[1], ids[0]]]
    assert [row["id"] for row in client.get(REPLAYS, {"outcome": "failed"}).json()["items"]] == [failed]
    assert [row["id"] for row in client.get(REPLAYS, {"schedule": schedule.pk}).json()["items"]] == [failed]
    assert client.get(REPLAYS, {"state": ["queued", "running"]}).json()["items"] == []
    for query, path in (
        ({"state": "gone"}, "state"), ({"outcome": "x"}, "outcome"), ({"cursor": "x"}, "cursor"),
        ({"page_size": 201}, "page_size"), ({"stat": "x"}, "stat"),
    ):  # fmt: skip
        refused = client.get(REPLAYS, query)
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, path)


# What came of it.


def test_cases_samples_report_and_answers_of_a_replay(tenant: Tenant, case: Case, model: Any, client: Api) -> None:
    replay = carried_out(tenant, client, settings={"samples": 2, "concurrency": 1})
    place = f"{REPLAYS}/{replay['id']}"
    assert (replay["outcome"], replay["exitCode"], replay["verdict"]) == ("failed", 1, "Cases failed.")
    assert (replay["numFinished"], replay["requests"]) == (2, 2)
    assert replay["result"]["gate"]["red"] == ["REG-1"]
    (row,) = client.get(f"{place}/cases", {"show": "trouble"}).json()["items"]
    assert (row["case"], row["standing"], row["flaky"], row["change"]) == ("REG-1", "failed", True, "")
    assert row["sides"] == [{"side": "candidate", "passes": 1, "judged": 2}]
    assert client.get(f"{place}/cases", {"show": "errors"}).json()["items"] == []
    assert client.get(f"{place}/cases", {"show": "red"}).status_code == 400

    first = client.get(f"{place}/cases/REG-1/samples", {"page_size": 1}).json()
    second = client.get(f"{place}/cases/1/samples", {"page_size": 1, "cursor": first["nextCursor"]}).json()
    assert second["nextCursor"] is None
    passed, failed = first["items"][0], second["items"][0]
    assert [(one["index"], one["verdict"]) for one in (passed, failed)] == [(0, "pass"), (1, "fail")]
    assert failed["reasons"][0]["code"] == "wrong_argument"
    assert "Bern" in failed["reasons"][0]["text"]
    assert failed["judged"] == []
    assert client.get(f"{place}/cases/REG-1/samples", {"side": "baseline"}).json()["items"] == []
    assert client.get(f"{place}/cases/REG-2/samples").status_code == 404

    report = client.get(f"{place}/report.json").json()
    assert (report["report"], report["exitCode"], report["counts"]["failed"]) == (KIND, 1, 1)
    answer = client.get(f"{place}/answers.jsonl")
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    lines = b"".join(answer.streaming_content).splitlines(keepends=True)
    assert [attempt.key for attempt in read_attempts(lines)] == [("candidate", "REG-1", 0), ("candidate", "REG-1", 1)]
    assert json.loads(lines[1]) == failed["attempt"]
    assert client.get(f"{place}/judge").json() == {"judge": None}


@pytest.mark.parametrize("script", [[weather("Zürich")] * 2 + [weather("Zürich"), weather("Bern")] * 60])
def test_two_sides_are_compared(tenant: Tenant, case: Case, model: Any, client: Api) -> None:
    replay = carried_out(tenant, client, sides=[SIDE, SIDE], settings={"samples": 1, "concurrency": 1})
    assert [side["name"] for side in replay["sides"]] == ["baseline", "candidate"]
    (row,) = client.get(f"{REPLAYS}/{replay['id']}/cases").json()["items"]
    assert [cell["side"] for cell in row["sides"]] == ["baseline", "candidate"]
    assert (row["change"], row["suspect"]) == ("unchanged", False)
    later = carried_out(tenant, client, sides=[SIDE], settings={"samples": 2}, baselineReplayId=replay["id"])
    assert later["baselineReplayId"] == replay["id"]
    assert later["result"]["comparison"]["changes"]


@pytest.mark.parametrize("script", [[weather("Zurich"), weather("Bern")]])
def test_what_the_judge_said_is_told_vote_by_vote(tenant: Tenant, model: Any, client: Api) -> None:
    with tenant_scope(tenant):
        CaseFactory(expectation=expects())
    replay = carried_out(tenant, client, settings={"samples": 2, "concurrency": 1, "judgeLabel": "judge"})
    place = f"{REPLAYS}/{replay['id']}"
    items = client.get(f"{place}/cases/REG-1/samples").json()["items"]
    assert [(one["verdict"], one["judged"][0]["passed"]) for one in items] == [("pass", True), ("fail", False)]
    votes = items[1]["judged"][0]["votes"]
    assert [vote["swapped"] for vote in votes] == [False, True, False]
    assert votes[0]["rationale"] == "It says Bern."
    judge = client.get(f"{place}/judge").json()["judge"]
    assert (judge["label"], judge["model"], len(judge["promptSha256"])) == ("judge", "m", 64)
    (rubric,) = judge["rubrics"]
    assert (rubric["labels"], rubric["state"]) == (1, "not_calibrated")  # the recorded call, which was labelled bad
    assert client.get(f"{place}/report.json").json()["judge"] == judge


# Findings.


def test_a_dispute_is_raised_once_and_settled_once(tenant: Tenant, case: Case, client: Api) -> None:
    with tenant_scope(tenant):
        replay = make_replay(case, counts=(0, 3))
        sample = make_sample(replay, case)
    place = f"{REPLAYS}/{replay.pk}/cases/REG-1"
    raised = client.post(f"{place}/dispute", {"note": "Zurich is right, too.", "sampleId": sample.pk})
    assert raised.status_code == 201, raised.content
    finding = raised.json()
    assert (finding["kind"], finding["open"], finding["case"], finding["sampleId"]) == (
        "disputed", True, "REG-1", sample.pk,
    )  # fmt: skip
    again = client.post(f"{place}/dispute", {"note": "Me, too."})
    assert (again.status_code, again.json()["current"]["id"]) == (409, finding["id"])
    assert client.post(f"{place}/confirm", {"sampleId": sample.pk}).status_code == 409
    assert client.get(f"{REPLAYS}/findings").json() == {"items": [finding]}
    assert client.get(f"{REPLAYS}/{replay.pk}/findings").json() == {"items": [finding]}
    settle = f"{REPLAYS}/findings/{finding['id']}/settle"
    refused = client.post(settle, {"outcome": "changed"})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "unchanged")
    settled = client.post(settle, {"outcome": "holds", "note": "The user wrote Zürich."}).json()
    assert (settled["open"], settled["outcome"], settled["outcomeNote"]) == (False, "holds", "The user wrote Zürich.")
    assert client.post(settle, {"outcome": "gone"}).json()["errors"][0]["path"] == "outcome"
    assert client.post(settle, {"outcome": "withdrawn"}).json()["current"]["outcome"] == "holds"
    assert client.get(f"{REPLAYS}/findings").json() == {"items": []}
    confirmed = client.post(f"{place}/confirm", {"sampleId": sample.pk, "note": "It is."}).json()
    assert (confirmed["kind"], confirmed["open"]) == ("confirmed", False)
    with tenant_scope(tenant):
        assert ReplayFinding.objects.count() == 2


@pytest.mark.parametrize(
    ("path", "body", "at", "status"),
    [
        ("{pk}/cases/REG-1/dispute", {}, "note", 400),
        ("{pk}/cases/REG-1/dispute", {"note": " "}, "note", 400),
        ("{pk}/cases/REG-1/dispute", {"note": "x", "sampleId": 99}, "sampleId", 400),
        ("{pk}/cases/REG-1/confirm", {"sampleId": 99}, "sampleId", 400),
        ("{pk}/cases/REG-1/confirm", {"sample": 1}, "sample", 400),
        ("{pk}/cases/REG-2/dispute", {"note": "x"}, "", 404),
        ("findings/99/settle", {"outcome": "holds"}, "", 404),
        ("findings/99/settle", {"outcome": "gone"}, "", 404),
    ],
)
def test_a_finding_that_cannot_be_is_refused_by_name(
    tenant: Tenant, case: Case, client: Api, path: str, body: dict[str, Any], at: str, status: int
) -> None:
    with tenant_scope(tenant):
        replay = make_replay(case, counts=(0, 3))
    response = client.post(f"{REPLAYS}/{path.format(pk=replay.pk)}", body)
    assert response.status_code == status, response.content
    assert not at or response.json()["errors"][0]["path"] == at


def test_a_slot_that_was_missed_has_no_report(tenant: Tenant, client: Api) -> None:
    with tenant_scope(tenant):
        missed = make_replay(state="failed", failure="Missed: the service was down.", exit_code=None)
    response = client.get(f"{REPLAYS}/{missed.pk}/report.json")
    assert (response.status_code, response.json()["current"]["id"]) == (409, missed.pk)
    assert "never began" in response.json()["detail"]


# Schedules.


def test_a_schedule_is_kept_changed_run_and_deleted(
    tenant: Tenant, case: Case, model: Any, client: Api, api: Apis
) -> None:
    body = {
        "name": "Nightly", "cron": "0 2 * * *", "zone": "Europe/Zurich", "sides": [SIDE],
        "settings": {"samples": 5, "budget": {"calls": 100}}, "query": "tag=smoke", "notifyOn": "always",
        "webhookUrl": "https://hooks.example.org/lab",
    }  # fmt: skip
    made = client.post(f"{REPLAYS}/schedules", body)
    assert made.status_code == 201, made.content
    schedule = made.json()
    assert schedule.pop("webhookSecret").startswith("whsec_")
    assert (schedule["baseline"], schedule["last"]) == ("previous", None)
    assert (schedule["settings"]["samples"], schedule["settings"]["budget"]["calls"]) == (5, 100)
    place = f"{REPLAYS}/schedules/{schedule['id']}"
    assert client.get(place).json() == schedule
    assert api("read").get(place).json()["webhookUrl"] == "https://hooks.example.org:443/…"
    assert api("read").get(f"{REPLAYS}/schedules").json()["schedules"][0]["webhookUrl"].endswith("/…")
    changed = patch(client, place, {"enabled": False, "settings": {"samples": 2}})
    assert (changed["enabled"], changed["webhookSecret"]) == (False, None)
    assert (changed["settings"]["samples"], changed["settings"]["budget"]["calls"]) == (2, None)
    assert (changed["query"], changed["notifyOn"]) == ("tag=smoke", "always")
    ran = client.post(f"{place}/run")
    assert ran.status_code == 201, ran.content
    assert (ran.json()["scheduleId"], ran.json()["numExpected"]) == (schedule["id"], 2)
    going = client.post(f"{place}/run")
    assert (going.status_code, going.json()["current"]["id"]) == (409, ran.json()["id"])
    (listed,) = client.get(f"{REPLAYS}/schedules").json()["schedules"]
    assert listed["last"]["id"] == ran.json()["id"]
    assert client.client.delete(place, headers=client.headers).status_code == 204
    assert client.get(place).status_code == 404
    with tenant_scope(tenant):
        assert (ReplaySchedule.objects.count(), Replay.objects.count()) == (0, 1)


def patch(client: Api, path: str, body: Any) -> dict[str, Any]:
    response = client.client.patch(
        path, json.dumps(body).encode(), content_type="application/json", headers=client.headers
    )
    assert response.status_code == 200, response.content
    found: dict[str, Any] = response.json()
    return found


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"cron": "every day"}, "cron"),
        ({"zone": "Nowhere"}, "zone"),
        ({"sides": [{"modelLabel": "gone"}]}, "sides.0.modelLabel"),
        ({"sides": [{"model": "main"}]}, "sides.0.model"),
        ({"settings": {"samples": 101}}, "settings.samples"),
        ({"webhookUrl": "http://127.0.0.1:1/"}, "webhookUrl"),
        ({"emails": ["nobody@example.org"]}, "emails"),
        ({"notifyOn": "never"}, "notifyOn"),
        ({"query": "tags=x"}, "query"),
        ({"is_enabled": True}, "is_enabled"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_by_name(
    case: Case, model: Any, client: Api, change: dict[str, Any], at: str
) -> None:
    response = client.post(f"{REPLAYS}/schedules", {"name": "N", "cron": "0 2 * * *", "sides": [SIDE], **change})
    assert response.status_code == 400, response.content
    assert at in [error["path"] for error in response.json()["errors"]]


def test_messages_about_a_schedules_replays_are_told(tenant: Tenant, case: Case, client: Api, api: Apis) -> None:
    with tenant_scope(tenant):
        schedule = make_schedule()
        replay = make_replay(case, schedule=schedule)
        ReplayNotification.objects.create(
            replay=replay, kind="webhook", target="https://hooks.example.org/secret", body="{}", state="failed",
            status=500, attempt=8, error="It answered with status 500.",
            message_id="00000000-0000-0000-0000-000000000001",
        )  # fmt: skip
    place = f"{REPLAYS}/schedules/{schedule.pk}/notifications"
    (row,) = client.get(place).json()["items"]
    assert row["target"] == "https://hooks.example.org/secret"
    assert "secret" not in api("read").get(place).text
    assert (row["replayId"], row["state"], row["status"], row["attempts"]) == (replay.pk, "failed", 500, 8)
