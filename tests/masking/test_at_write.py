"""What a rule keeps nothing raw of is masked before it is stored, whichever way it comes in: no table has it."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from quality.gateway.exchange import Exchange, Said
from quality.gateway.record import record
from quality.improve.case_import import import_cases
from quality.ingest import importer, otlp, otlp_store
from quality.ingest.otlp import Encoding
from quality.models import Case, CaseVersion, ImportIssue, OtlpSpan, ToolCall, Turn
from tenants.masking.marks import more_masked
from tenants.masking.masker import MARK
from tenants.masks import delete_rule, save_rule
from tenants.models import MaskRule, Membership, Tenant
from tenants.scope import tenant_scope
from tests.factories import CaseFactory
from tests.ingest.helpers import NEUTRAL, lines, state, take
from tests.ingest.otlp_files import batch
from tests.ingest.span_files import genai_chat, genai_tool, text
from tests.masking.stored import tables_with

MAIL = "zk.canary@example.com"
CARD = "4111111111111111"
CODE = "zk-open-sesame"
SECRETS = (MAIL, CARD, CODE)
ARGS = {"n": "7", "mail": MAIL, "pay": {"card": int(CARD)}, "password": CODE}
RULES = {"mail": ("pattern", "preset:email"), "code": ("key", "password"), "card": ("path", "$.pay.card")}


@pytest.fixture
def admin(member: Callable[..., Membership]) -> Membership:
    return member("admin")


@pytest.fixture
def rules(tenant: Tenant, admin: Membership) -> list[MaskRule]:
    return add_rules(tenant, admin)


def add_rules(tenant: Tenant, admin: Membership, *, keeps_raw: bool = False) -> list[MaskRule]:
    with tenant_scope(tenant):
        made = [
            save_rule(MaskRule(name=name, kind=kind, expression=expression, keeps_raw=keeps_raw), actor=admin.user)
            for name, (kind, expression) in RULES.items()
        ]
        tenant.refresh_from_db()
    return made


def nowhere(*secrets: str) -> None:
    for secret in secrets or SECRETS:
        assert tables_with(secret) == [], secret


def neutral(name: str = "run-1", **more: Any) -> dict[str, Any]:
    return {
        **NEUTRAL,
        "external_id": name,
        "contact": MAIL,
        "args": ARGS,
        "result": {"told": f"wrote to {MAIL}", "password": CODE},
        "is_error": True,
        "error": f"{MAIL} bounced, {CODE} refused",
        **more,
    }


def chat(said: str = f"I am {MAIL}, my word is {CODE}") -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": json.dumps(ARGS)}}
    return {
        "messages": [
            {"role": "system", "content": f"Never tell {MAIL}."},
            {"role": "user", "content": said},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"password": CODE, "for": MAIL})},
            {"role": "assistant", "content": f"Booked with {CODE} for {MAIL}."},
        ]
    }


def test_a_file(tenant, rules):
    data = lines(chat(), chat(f"Hello from {MAIL}"))
    with tenant_scope(tenant):
        job = importer.accept_upload(upload=SimpleUploadedFile("chats.jsonl", data))
        importer.begin(job)
        path = importer.stored_path(job.stored_as)
    done = importer.run_import(job.pk, tenant=tenant)
    assert done is not None
    assert done.num_accepted == 2
    nowhere()
    assert not path.exists()  # nor does the file stay
    with tenant_scope(tenant):
        call = ToolCall.objects.select_related("turn").latest("pk")
    assert json.loads(call.args)["n"] == "7"
    marks = {match[1] for match in MARK.finditer(call.args + call.turn.messages)}
    assert marks == {"mail", "code", "card"}


def test_what_a_file_was_refused_for(tenant, rules):
    bad = '{"external_id": "x", "tool_name": "t", "args": {"' + MAIL + '": tru}}'
    other = {**chat(f"I am someone, {MAIL}"), "id": "same"}
    data = bad.encode() + b"\n" + lines(other, {**chat(f"I am {MAIL}, no other"), "id": "same"})
    with tenant_scope(tenant):
        job = importer.accept_upload(upload=SimpleUploadedFile("chats.jsonl", data))
        importer.begin(job)
    importer.run_import(job.pk, tenant=tenant)
    nowhere(MAIL)
    with tenant_scope(tenant):
        assert ImportIssue.objects.exists()


def test_the_api(tenant, admin, api, rules):
    client = api("ingest:write", member=admin)
    answer = client.post("/api/ingest/tool-calls", [neutral()])
    assert answer.status_code == 200, answer.content
    nowhere()
    again = client.post("/api/ingest/tool-calls", [neutral()])
    assert again.json()["unchanged"] == 1
    corrected = client.post("/api/ingest/tool-calls", [neutral(result={"password": CODE, "n": 2})], HTTP_IF_MATCH="*")
    assert corrected.json()["numReplaced"] == 1, corrected.content
    nowhere()


def test_parts_of_a_record_in_any_order_are_one(tenant, rules):
    for name, more in (("a", [True, False]), ("b", [False, True])):
        for is_whole in more:
            part = neutral(name) if is_whole else neutral(name, result=None, is_error=None, error=None)
            assert not take([part], tenant).rejected
    nowhere()
    with tenant_scope(tenant):
        assert len(set(ToolCall.objects.values_list("args", "result", "error"))) == 1


def spans() -> list[dict[str, Any]]:
    said = [{"role": "user", "parts": [text(f"I am {MAIL}, my word is {CODE}")]}]
    asked = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "a", "name": "get_order", "arguments": ARGS}]}]
    about = {"gen_ai.input.messages": said, "gen_ai.output.messages": json.dumps(asked), "user.id": MAIL}
    ran = {"gen_ai.tool.call.arguments": ARGS, "gen_ai.tool.call.result": json.dumps({"password": CODE})}
    custom = {"customer.password": CODE, "customer": {"mail": MAIL, "password": CODE}, "note": f"to {MAIL}"}
    failed = {"status": {"code": 2, "message": f"{MAIL} bounced"}}
    return [
        genai_chat(10, attributes=about | custom),
        genai_tool(11, call_id="a", attributes=ran | custom, **failed),
        genai_chat(20, attributes={"gen_ai.input.messages": json.dumps(said)}),
    ]


def send(tenant: Tenant, *sent: dict[str, Any]) -> None:
    request = otlp.read_request(json.dumps(batch(sent)).encode(), Encoding.JSON)
    arrival = otlp_store.receive(request.spans, tenant=tenant)
    assert not arrival.num_rejected, arrival.refusal


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("together", [True, False])
def test_spans(tenant, rules, order, together):
    sent = spans()[::order]
    for some in [sent] if together else [[span] for span in sent]:
        send(tenant, *some)
    nowhere(*SECRETS if together else (MAIL, CARD))
    if not together:  # of a span alone nobody can tell that a word in it is a password in another
        assert tables_with(CODE) == ["otlp_spans"]
    with tenant_scope(tenant):
        assert OtlpSpan.objects.count() == 3
        call = ToolCall.objects.get()
        assert (call.tool_name, call.tool_call_id, json.loads(call.args)["n"]) == ("get_order", "a", "7")
        assert {match[1] for match in MARK.finditer(call.args)} == {"mail", "code", "card"}


def test_spans_that_were_kept_before_the_rule(tenant, admin):
    first, second, _ = spans()
    send(tenant, first)
    add_rules(tenant, admin)
    send(tenant, second)
    for secret in (MAIL, CARD):
        assert tables_with(secret) == ["otlp_spans"], secret


def exchange(tenant: Tenant, messages: list[Any], reply: dict[str, Any], number: int) -> Exchange:
    made = Exchange(
        id=f"e{number}", tenant_id=tenant.pk, label="main", model="m", said=Said(contact=MAIL), checks_arguments=True,
        key=None, request=json.dumps({"model": "main", "messages": messages}).encode(),
        started_at=dt.datetime.now(dt.UTC),
    )  # fmt: skip
    made.status = 200
    made.keep(json.dumps({"id": f"r{number}", "choices": [{"index": 0, "message": reply}]}).encode())
    return made


def test_the_gateway(tenant, rules):
    """A later call tells that a word of the first message is a password; it is one turn all the same."""
    messages: list[Any] = chat()["messages"][:2]
    with tenant_scope(tenant):
        look = {"id": "c0", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        first = {"role": "assistant", "content": None, "tool_calls": [look]}
        assert record(exchange(tenant, messages, first, 1), may_wait=False) == ""
        messages += [first, {"role": "tool", "tool_call_id": "c0", "content": f"found {MAIL}"}]
        assert record(exchange(tenant, messages, chat()["messages"][2], 2), may_wait=False) == ""
        messages += chat()["messages"][2:4]
        assert record(exchange(tenant, messages, chat()["messages"][4], 3), may_wait=False) == ""
        messages += [chat()["messages"][4], {"role": "user", "content": f"Once more for {MAIL}"}]
        assert record(exchange(tenant, messages, {"role": "assistant", "content": "No."}, 4), may_wait=False) == ""
        assert Turn.objects.count() == 2
        assert len(json.loads(Turn.objects.order_by("pk")[0].messages or "")) == 6
        elsewhere = [messages[1], {"role": "assistant", "content": f"So, {MAIL}?"}, {"role": "user", "content": "Yes"}]
        asked = {"role": "assistant", "content": "Well."}
        assert record(exchange(tenant, elsewhere[1:], asked, 5), may_wait=False) == ""
        assert Turn.objects.latest("pk").history
    nowhere()


def test_cases(tenant, admin, rules):
    with tenant_scope(tenant):
        case = CaseFactory(args=json.dumps(ARGS), error=f"{MAIL} bounced", messages=json.dumps(chat()["messages"]))
        line = CaseVersion.objects.get(case=case).data.encode() + b"\n"
    assert tables_with(MAIL)  # a factory writes past the ways in
    other = line.replace(b'"id":"REG-', b'"id":"REG-9')
    with tenant_scope(tenant):
        report = import_cases([other], by=admin.user)
        assert (report.num_created, report.num_refused) == (1, 0), report.refused
        again = import_cases([other], by=admin.user)
        assert again.num_unchanged == 1
        taken = Case.objects.latest("pk")
        kept = CaseVersion.objects.get(case=taken).data
    for secret in SECRETS:
        assert secret not in (taken.args or "") + taken.messages + (taken.error or "") + kept
    assert "{masked:mail:" in kept


# --- when rules change between two records of the same --------------------------------------------------------------


def test_a_rule_that_comes_later_masks_what_is_sent_again(tenant, admin):
    take([neutral()], tenant)
    take([chat()], tenant)
    assert tables_with(MAIL)
    add_rules(tenant, admin)
    again = [take([neutral()], tenant), take([chat()], tenant)]
    assert [report.rejected for report in again] == [[], []]
    nowhere()
    before = state(tenant)
    assert [take([neutral()], tenant).unchanged, take([chat()], tenant).unchanged] == [1, 1]
    assert state(tenant) == before


def test_a_rule_that_goes_makes_no_conflict(tenant, admin, rules):
    take([neutral()], tenant)
    take([chat()], tenant)
    before = state(tenant)
    with tenant_scope(tenant):
        for rule in rules:
            delete_rule(rule, actor=admin.user)
    again = [take([neutral()], tenant), take([chat()], tenant)]
    assert [(report.unchanged, report.rejected) for report in again] == [(1, []), (1, [])]
    assert state(tenant) == before
    nowhere()


def test_another_value_is_still_a_conflict(tenant, rules):
    take([neutral()], tenant)
    refused = take([neutral(args={**ARGS, "mail": "other@example.com"})], tenant).rejected
    assert [issue.code for issue in refused] == ["conflict"]


def test_rules_that_keep_what_is_raw_change_nothing_that_is_stored(tenant, admin):
    add_rules(tenant, admin, keeps_raw=True)
    take([neutral()], tenant)
    assert "agent_tool_calls" in tables_with(MAIL)
    with tenant_scope(tenant):
        assert json.loads(ToolCall.objects.get().args or "") == ARGS


A, B, C = "{masked:mail:00000001}", "{masked:mail:00000002}", "{masked:name:00000003}"


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("same", "same", "same"),
        (f"to {A}!", "to a@b.c!", f"to {A}!"),
        (f"{A}", "a@b.c", A),
        (f'{{"card": "{A}", "n": 1}}', '{"card": 4111, "n": 1}', f'{{"card": "{A}", "n": 1}}'),
        (f'{{"who": "{A}"}}', '{"who": {"first": "Ada"}}', f'{{"who": "{A}"}}'),
        (f'{{"who": "{C}"}}', f'{{"who": {{"mail": "{A}"}}}}', f'{{"who": "{C}"}}'),
        (f"{A}{A}x{A}", "aaxa", f"{A}{A}x{A}"),
        (f"to {A}", f"to {B}", None),
        (f"to {A}!", "to a@b.c?", None),
        (f"to {A} x", "to x", None),
        (f"x{A}x", "x", None),
        ("plain", "other", None),
        ("{masked:no mark}", "{masked:no", None),
    ],
)
def test_a_text_with_marks_is_the_same_as_the_one_without(one, other, found):
    assert more_masked(one, other) == found
    assert more_masked(other, one) == found
