"""Somebody who sees marks does the work all the same: what they send with marks in it is kept, and run, with what is
behind them, and they are shown marks again."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from quality.improve import cases
from quality.models import CallDecision, Case, CaseVersion, Feedback, ToolCall, Turn
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.masks import save_rule
from tenants.models import MaskRule, Membership, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import ToolCallFactory, ToolsetFactory, TurnFactory, make_token
from tests.pages.own_turns import own_turn, waiting_call

NAME, PHONE, MAIL = "Mirabel Okafor", 4_155_550_134, "mirabel@example.org"
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "book",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 3, "maxLength": 20},
                        "phone": {"type": "integer", "minimum": 1_000_000},
                        "mail": {"type": "string", "maxLength": 25},
                        "seats": {"type": "integer"},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
            },
        }
    ]
)
ARGS = {"name": NAME, "phone": PHONE, "mail": MAIL, "seats": 2}


@pytest.fixture
def masked(tenant: Tenant, member: Callable[..., Membership]) -> Client:
    """An operator who sees marks in place of names, phones and e-mail addresses."""
    client = Client()
    client.member = member("operator")
    client.force_login(client.member.user)
    with tenant_scope(tenant):
        for name, kind, expression in (("name", "key", "name"), ("phone", "path", "$.phone"),
                                       ("mail", "pattern", "preset:email")):  # fmt: skip
            save_rule(MaskRule(name=name, kind=kind, expression=expression), actor=client.member.user)
    return client


@pytest.fixture
def call(tenant: Tenant) -> ToolCall:
    with tenant_scope(tenant):
        toolset = ToolsetFactory(tools=TOOLS)
        said = json.dumps([{"role": "user", "content": f"I am {NAME}, {MAIL}. Two seats."}])
        turn = TurnFactory(toolset=toolset, messages=said)
        return ToolCallFactory(turn=turn, tool_name="book", args=json.dumps(ARGS), toolset=toolset)


def api_of(client: Client) -> Api:
    with tenant_scope(client.member.tenant_id):
        token, text = make_token(client.member)
    return Api(text, token, client.member)


def told_nothing(response: Any) -> None:
    text = response.content.decode()
    assert not [value for value in (NAME, str(PHONE), MAIL) if value in text], text[:2_000]


def shown_args(api: Api, call: ToolCall) -> dict[str, Any]:
    response = api.get(f"/api/admin/quality/tool-calls/{call.pk}")
    told_nothing(response)
    args: dict[str, Any] = response.json()["args"]
    assert [str(args[name])[:8] for name in ("name", "phone", "mail")] == ["{masked:"] * 3
    return args


def test_a_label_keeps_what_is_behind_the_marks_of_its_correction(masked: Client, call: ToolCall) -> None:
    api = api_of(masked)
    args = shown_args(api, call)
    path = f"/api/admin/quality/tool-calls/{call.pk}/feedback"
    said = {"label": "bad_args", "note": f"{args['mail']} wants three",
            "correction": {"arguments": args | {"seats": 3}}}  # fmt: skip
    response = api.post(path, said)
    assert response.status_code == 200, response.content
    told_nothing(response)
    assert args["name"] in response.content.decode()
    with tenant_scope(masked.member.tenant_id):
        kept = Feedback.objects.get(call=call)
        assert json.loads(kept.correction) == {"arguments": ARGS | {"seats": 3}}
        assert kept.note == f"{MAIL} wants three"
        assert kept.faults == ["arg:/seats"]
    assert api.post(path, said).json()["version"] == 1  # the same again
    stale = api.post(path, said | {"label": "other", "correction": None, "version": 0})
    assert stale.status_code == 409
    told_nothing(stale)

    page = masked.get(f"/t/acme/calls/{call.pk}/")
    told_nothing(page)
    assert "is not of type" not in page.content.decode()
    undone = api.post(f"{path}/undo", {})
    assert undone.status_code == 200
    told_nothing(undone)


def test_a_correction_is_checked_as_it_is_kept_and_refused_without_quoting_it(masked: Client, call: ToolCall) -> None:
    api = api_of(masked)
    args = shown_args(api, call)
    path = f"/api/admin/quality/tool-calls/{call.pk}/feedback"
    swapped = api.post(path, {"label": "bad_args", "correction": {"arguments": args | {"seats": args["name"]}}})
    assert swapped.status_code == 400
    told_nothing(swapped)
    assert swapped.json()["errors"][0]["path"] == "correction.arguments.seats"
    assert "masked" in swapped.json()["errors"][0]["message"]
    long = api.post(
        path, {"label": "bad_args", "correction": {"arguments": args | {"mail": f"{args['mail']} {'x' * 9}"}}}
    )
    assert long.status_code == 400
    told_nothing(long)

    unknown = "{masked:name:00000000}"
    for sent in (
        api.post(path, {"label": "bad_args", "correction": {"arguments": {"name": unknown}}}),
        api.patch("/api/admin/quality/tool-call-regression-cases/REG-1", {"version": 1}),
    ):
        assert sent.status_code in (400, 404)
    assert api.post(path, {"label": "bad_args", "correction": {"arguments": {"name": unknown}}}).json()["errors"][0][
        "code"
    ] == "unknown_mark"  # fmt: skip
    page = masked.post(
        "/t/acme/review/label/",
        {"call": call.pk, "label": "bad_args", "version": 0, "nonce": "c9a1b0f4-3b1a-4a52-8a51-0d9d5a0b8f01",
         "correcting": "1", "mode": "json", "json": json.dumps({"name": unknown}), "stay": "1"},
    )  # fmt: skip
    assert b"00000000" in page.content
    assert b"stands for a value that you may not see" in page.content
    with tenant_scope(masked.member.tenant_id):
        assert not Feedback.objects.filter(call=call).exists()


def test_the_form_of_a_correction_takes_marks_where_numbers_belong(masked: Client, call: ToolCall) -> None:
    args = shown_args(api_of(masked), call)
    sent = {"call": call.pk, "label": "bad_args", "version": 0, "nonce": "c9a1b0f4-3b1a-4a52-8a51-0d9d5a0b8f02",
            "correcting": "1", "mode": "fields", "stay": "1", "argument-0": args["name"], "argument-1": args["phone"],
            "argument-2": args["mail"], "argument-3": "5", "more": ""}  # fmt: skip
    response = masked.post("/t/acme/review/label/", sent, headers={"HX-Request": "true"})
    told_nothing(response)
    with tenant_scope(masked.member.tenant_id):
        assert json.loads(Feedback.objects.get(call=call).correction) == {"arguments": ARGS | {"seats": 5}}


def test_edited_arguments_of_a_waiting_call_run_with_what_is_behind_the_marks(masked: Client, tenant: Tenant) -> None:
    with tenant_scope(tenant):
        toolset = ToolsetFactory(tools=TOOLS)
        first, second = (
            waiting_call(own_turn(toolset=toolset), tool_name="book", args=json.dumps(ARGS), toolset=toolset)
            for _ in range(2)
        )
    api = api_of(masked)
    args = shown_args(api, first)
    told_nothing(masked.get("/t/acme/pending/"))
    wanted = {"results": [{"callId": first.pk, "decision": "approve", "arguments": args | {"seats": 3}}]}
    response = api.post(f"/api/turns/{first.turn_id}/tool-results", wanted)
    assert response.status_code == 200, response.content
    told_nothing(response)
    form = {"call": second.pk, "decision": "approve", "form": "edit", "opening": 1, "place": "turn",
            "label_too": "on", "argument-0": args["name"], "argument-1": args["phone"], "argument-2": args["mail"],
            "argument-3": "4"}  # fmt: skip
    page = masked.post(f"/t/acme/turns/{second.turn_id}/decide/", form, headers={"HX-Request": "true"})
    told_nothing(page)
    assert page.status_code == 200, page.content.decode()[:3_000]
    with tenant_scope(tenant):
        made = {one.call_id: json.loads(one.arguments) for one in CallDecision.objects.all()}
        assert made == {first.pk: ARGS | {"seats": 3}, second.pk: ARGS | {"seats": 4}}
        assert json.loads(Feedback.objects.get(call=second).correction) == {"arguments": ARGS | {"seats": 4}}
    refused = api.post(
        f"/api/turns/{first.turn_id}/tool-results",
        {"results": [{"callId": first.pk, "decision": "approve", "arguments": {"name": "{masked:name:00000000}"}}]},
    )
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "unknown_mark")


def test_a_case_is_kept_as_it_was_recorded_and_its_duplicates_are_found(masked: Client, call: ToolCall) -> None:
    api, tenant_id = api_of(masked), masked.member.tenant_id
    correction = json.dumps({"arguments": ARGS | {"seats": 3}})
    with tenant_scope(tenant_id):
        label = record_label(
            item=item_of_call(call.pk), reviewer=masked.member.user, label="bad_args", correction=correction
        )
        feedback = Feedback.objects.get(call=call)
        plain = cases.case_from_feedback(feedback, by=masked.member.user, behavior=f"Books for {NAME}.")
        digest = bytes(Case.objects.get(pk=plain.pk).same_sha256)
    assert label.created
    page = masked.get(f"/t/acme/cases/new/?feedback={feedback.pk}")
    told_nothing(page)
    assert "REG-1" in page.content.decode()  # it would be the same
    made = api.post("/api/admin/quality/tool-call-regression-cases", {"feedbackId": feedback.pk, "behavior": "Books."})
    assert made.status_code == 201, made.content
    told_nothing(made)
    assert made.json()["check"]["recorded"]["verdict"] == "fail"
    assert made.json()["check"]["corrected"]["verdict"] == "pass"
    assert made.json()["check"]["warnings"] == []
    number = int(made.json()["case"]["id"].removeprefix("REG-"))
    expected = made.json()["case"]["expected"]["expectation"]
    edited = api.patch(
        f"/api/admin/quality/tool-call-regression-cases/REG-{number}",
        {"version": 1, "behavior": f"Books for {made.json()['case']['input']['args']['name']}.",
         "expectation": json.loads(json.dumps(expected).replace("3", "3"))},
    )  # fmt: skip
    assert edited.status_code == 200, edited.content
    told_nothing(edited)
    with tenant_scope(tenant_id):
        case = Case.objects.get(number=number)
        assert (json.loads(case.args), case.behavior) == (ARGS, f"Books for {NAME}.")
        assert bytes(case.same_sha256) == digest
        assert NAME in CaseVersion.objects.get(case=case, number=2).data
        assert "{masked:" not in CaseVersion.objects.get(case=case, number=2).data
        assert "{masked:" not in case.expectation + case.messages
    told_nothing(masked.get(f"/t/acme/cases/REG-{number}/"))
    unknown = api.patch(
        f"/api/admin/quality/tool-call-regression-cases/REG-{number}",
        {"version": 2, "stubs": [{"tool": "book", "result": "{masked:name:00000000}"}]},
    )
    assert (unknown.status_code, unknown.json()["errors"][0]["code"]) == (400, "unknown_mark")


def test_a_filter_by_a_mark_finds_nothing(masked: Client, call: ToolCall) -> None:
    mark = "{masked:mail:00000000}"
    for path in ("/t/acme/calls/?contact=", "/t/acme/turns/?contact=", "/t/acme/review/?contact=",
                 "/api/admin/quality/tool-calls?contact=", "/t/acme/cases/?q="):  # fmt: skip
        client = api_of(masked) if path.startswith("/api") else masked
        assert client.get(path + mark).status_code in (200, 302), path


def test_a_message_takes_the_marks_of_its_conversation_and_no_others(masked: Client, tenant: Tenant) -> None:
    with tenant_scope(tenant):
        turn = own_turn("done", asked=f"I am {MAIL}", contact_id=MAIL, end_reason="answered")
    shown = re.search(r"\{masked:mail:\w+\}", masked.get(f"/t/acme/turns/{turn.pk}/").content.decode())
    assert shown
    mark = shown.group()
    body = {"text": f"Write to {mark}", "conversationId": turn.conversation_id, "contactId": mark}
    response = api_of(masked).post("/api/turns", body)
    assert response.status_code in (200, 201, 202), response.content
    told_nothing(response)
    with tenant_scope(tenant):
        sent = Turn.objects.latest("pk")
        assert (json.loads(sent.messages)[0]["content"], sent.contact_id) == (f"Write to {MAIL}", MAIL)
    sent = api_of(masked).post("/api/turns", {"text": "Write to {masked:mail:00000000}"})
    assert (sent.status_code, sent.json()["errors"][0]["code"]) == (400, "unknown_mark")
    page = masked.post("/t/acme/run/", {"text": "Write to {masked:mail:00000000}"})
    assert page.status_code in (200, 400, 422)


def test_a_rule_changed_over_another_connection_holds_for_the_next_reader(masked: Client, call: ToolCall) -> None:
    """What a process keeps of rules it keeps under their stamp: nothing has to tell it of a change."""
    told_nothing(masked.get(f"/t/acme/calls/{call.pk}/"))

    def change() -> None:
        with tenant_scope(masked.member.tenant_id):
            rule = MaskRule.objects.get(name="name")
            rule.is_enabled = False
            save_rule(rule, actor=masked.member.user)
        connection.close()

    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(change).result()
    page = masked.get(f"/t/acme/calls/{call.pk}/").content.decode()
    assert NAME in page
    assert MAIL not in page
