"""Turns of our own run on the real values, and keep none of them once they have ended; what was stored before a rule
goes by `mask_stored`."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection

from quality.models import (
    ENDED,
    CaseVersion,
    DecisionKind,
    FeedbackEvent,
    ModelReply,
    ToolCall,
    Turn,
    TurnEvent,
    TurnState,
)
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.turns.create import cancel_turn
from quality.turns.decide import Verdict, decide
from tenants.masking.masker import MARK
from tenants.masking.reading import reading_as
from tenants.masks import for_reader, save_rule
from tenants.models import MaskRule, Membership, Role, Tenant
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, ToolCallFactory, TurnFactory
from tests.ingest.helpers import NEUTRAL, state, take
from tests.masking.canaries import CANARY, masked_columns, plant, rows_of_every_kind
from tests.masking.canaries import RULES as CANARY_RULES
from tests.masking.stored import tables_with
from tests.pages.world import make_world
from tests.turns.conftest import Lab, hints, lab, model, tool_server  # noqa: F401  (fixtures)

MAIL = "zk.canary@example.com"
RULES = {"mail": ("pattern", "preset:email"), "city": ("key", "city"), "degrees": ("path", "$.degrees")}


@pytest.fixture
def admin(member: Callable[..., Membership]) -> Membership:
    return member("admin")


def add_rules(tenant: Tenant, admin: Membership, rules: dict[str, tuple[str, str]] = RULES) -> None:
    with tenant_scope(tenant):
        for name, (kind, expression) in rules.items():
            rule = MaskRule(name=name, kind=kind, expression=expression, keeps_raw=False)
            save_rule(rule, actor=admin.user)
        tenant.refresh_from_db()


def asked(lab: Lab, script: str, tools: str, **fields: Any) -> Turn:  # noqa: F811
    return lab.turn(script, tools, text=f"Weather in Rome for {MAIL}?", contact_id=MAIL, conversation_id="c", **fields)


def test_a_turn_runs_on_real_values_and_keeps_none(lab, tenant, admin):  # noqa: F811
    add_rules(tenant, admin)
    turn = asked(lab, "one_call,plain_text", "safe", history=[{"role": "user", "content": MAIL}])
    assert "agent_turns" in tables_with(MAIL)  # it waits to be run
    lab.worker()
    run = lab.rests(turn)
    assert run.state == TurnState.DONE
    assert MAIL in json.dumps(lab.model.asked[-1].body)  # the model was told
    assert tables_with(MAIL) == []
    with tenant_scope(tenant):
        call = ToolCall.objects.get()
        assert {MARK.fullmatch(value)[1] for value in json.loads(call.args).values()} == {"city"}
        assert MARK.fullmatch(json.loads(call.result)["degrees"])
        assert [message["role"] for message in json.loads(run.turn.messages)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert all(not one["body"] for reply in ModelReply.objects.all() for one in json.loads(reply.exchanges))
        told = [json.loads(data) for data in TurnEvent.objects.order_by("seq").values_list("data", flat=True)]
    assert "".join(event["text"] for event in told if event["type"] == "assistant_delta") == ""
    assert told[-1]["content"]  # the end has the whole reply


def test_a_later_turn_reads_the_marks(lab, tenant, admin):  # noqa: F811
    add_rules(tenant, admin)
    lab.worker()
    lab.rests(asked(lab, "plain_text", ""))
    lab.rests(asked(lab, "plain_text", ""))
    first, *_, last = [
        message["content"] for message in lab.model.asked[-1].body["messages"] if message["role"] == "user"
    ]
    assert "{masked:mail:" in first
    assert MAIL in last


def test_what_a_person_decided(lab, tenant, admin):  # noqa: F811
    add_rules(tenant, admin)
    turn = asked(lab, "one_call,plain_text", "approve")
    lab.worker()
    assert lab.rests(turn).state == TurnState.AWAITING
    assert tables_with(MAIL)
    with tenant_scope(tenant):
        call = ToolCall.objects.get(turn=turn)
        verdict = Verdict(call.pk, DecisionKind.APPROVE, arguments={"city": "Zkville", "to": MAIL})
        decide(turn.pk, [verdict], by=admin.user)
    assert lab.rests(turn).state == TurnState.DONE
    assert tables_with(MAIL) == []
    assert tables_with("Zkville") == []


def test_one_that_somebody_cancels_who_sees_marks(lab, tenant, admin):  # noqa: F811
    add_rules(tenant, admin)
    turn = asked(lab, "one_call,plain_text", "approve")
    lab.worker()
    lab.rests(turn)
    with tenant_scope(tenant), reading_as(for_reader(tenant, Role.VIEWER)):
        cancel_turn(turn.pk, by=admin.user)
    assert lab.rests(turn).state == TurnState.CANCELLED
    assert tables_with(MAIL) == []


# --- what is stored already -----------------------------------------------------------------------------------------


def run(tenant: Tenant, *options: str) -> str:
    out = io.StringIO()
    call_command("mask_stored", "--tenant", tenant.slug, *options, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_what_was_stored_before_the_rule(tenant, admin):
    sent = {**NEUTRAL, "args": {"city": "Zkville", "to": MAIL}, "contact": MAIL, "result": {"said": MAIL}}
    take([sent], tenant)
    with tenant_scope(tenant):
        CaseFactory(args=json.dumps({"city": "Zkville"}), behavior=f"Writes to {MAIL}.")
        call = ToolCall.objects.get()
        record_label(
            item=item_of_call(call.pk), label="bad_args", note=f"not {MAIL}, not Zkville", reviewer=admin.user,
            correction=json.dumps({"arguments": {"city": "Zkville", "to": MAIL}}),
        )  # fmt: skip
    add_rules(tenant, admin)
    before = tables_with(MAIL)
    told = run(tenant, "--dry-run")
    assert "agent_tool_call_feedback_events.note" in told
    assert tables_with(MAIL) == before
    assert run(tenant).replace("were masked", "") == told.replace("would be masked", "")
    assert tables_with(MAIL) == []
    assert tables_with("Zkville") == []
    assert run(tenant).split() == ["0", "were", "masked"]
    with tenant_scope(tenant):
        assert "{masked:city:" in FeedbackEvent.objects.get().note
    stored = state(tenant)
    again = take(
        [{**NEUTRAL, "args": {"city": "Zkville", "to": MAIL}, "contact": MAIL, "result": {"said": MAIL}}], tenant
    )
    assert (again.unchanged, again.rejected) == (1, [])
    assert state(tenant) == stored


def test_every_column_of_every_table(db):
    """Whatever table is masked when it is read can be masked for good."""
    admin = make_world()
    with tenant_scope(admin.tenant_id):
        rows_of_every_kind(admin.user)
    with tenant_scope(admin.tenant_id):
        plant()
        tenant = Tenant.objects.get(pk=admin.tenant_id)
        running = set(Turn.objects.exclude(state__in=ENDED).values_list("pk", flat=True))
    add_rules(tenant, admin, CANARY_RULES)
    assert "agent_tool_calls" in tables_with("zkpat.")
    run(tenant)
    left = {name for name, (table, column) in masked_columns().items() if _is_left(tenant, table, column, running)}
    assert left == set()


def _is_left(tenant: Tenant, table: Any, column: Any, running: set[int]) -> bool:
    """Does anything stand in the column that a pattern, or a place in data, masks?"""
    with tenant_scope(tenant):
        rows = table.objects.all()
        rows = rows.exclude(pk__in=running) if table is Turn else rows
        if any(each.attname == "turn_id" for each in table._meta.concrete_fields):
            rows = rows.exclude(turn_id__in=running)
        text = str(list(rows.values_list(column.attname, flat=True)))
    return "zkpat." in text or (getattr(column, "is_data", False) and bool(CANARY.search(text)))


@pytest.mark.parametrize(
    ("table", "column", "text"),
    [
        ("agent_tool_call_decisions", "kind", "{masked:a:00000000}"),
        ("audit_events", "detail", "{masked:a:00000000}"),
        ("agent_tool_call_feedback_events", "note", "another note"),
        ("agent_tool_call_feedback_events", "note", None),
    ],
)
def test_histories_can_be_masked_and_not_rewritten(tenant, table, column, text):
    with pytest.raises(DatabaseError, match="only evidence in histories"), tenant_scope(tenant):
        connection.cursor().execute("SELECT mask_history(%s, %s, '{1}', ARRAY[%s])", [table, column, text])


def test_histories_of_others_are_out_of_reach(tenant, other_tenant):
    with tenant_scope(tenant):
        version = CaseVersion.objects.get(case=CaseFactory())
    with tenant_scope(other_tenant), connection.cursor() as cursor:
        text = "{masked:a:00000000}"
        cursor.execute("SELECT mask_history(%s, 'data', %s, %s)", [version._meta.db_table, [version.pk], [text]])
    with tenant_scope(tenant):
        assert CaseVersion.objects.get().data == version.data


def test_turns_that_run_are_left_alone(tenant, admin):
    with tenant_scope(tenant):
        TurnFactory(source="engine", state=TurnState.RUNNING, messages=json.dumps([{"role": "user", "content": MAIL}]))
    add_rules(tenant, admin)
    run(tenant)
    assert tables_with(MAIL) == ["agent_turns"]


def test_it_goes_on_behind_a_turn(tenant, admin):
    with tenant_scope(tenant):
        first, second = (ToolCallFactory(args=json.dumps({"to": f"{n}.{MAIL}"})) for n in "ab")
        assert isinstance(first.turn, Turn)
    add_rules(tenant, admin)
    run(tenant, "--after", str(first.turn_id))
    assert tables_with(f"a.{MAIL}") == ["agent_tool_calls"]
    assert tables_with(f"b.{MAIL}") == []
    assert second.turn_id > first.turn_id


def test_without_such_a_rule_it_does_nothing(tenant, admin):
    with pytest.raises(CommandError, match="keeps nothing raw"):
        run(tenant)
    with pytest.raises(CommandError, match="no tenant"):
        call_command("mask_stored", "--tenant", "nobody")
