"""A tenant whose evidence holds values that rules mask, each of which names the column that it stands in.

`zkpat.…` is found by a pattern, `zkkey.…` stands under a member's name, `zkpath.…` at a JSON path.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from psycopg import sql
from psycopg.types.json import Jsonb

from quality.improve import proposals
from quality.models import (
    Assignment,
    BulkAction,
    BulkItem,
    CallDecision,
    Case,
    CoachItem,
    CoachRun,
    Feedback,
    GatewayDay,
    Hint,
    JudgeVote,
    ModelReply,
    OtlpSpan,
    OtlpTrace,
    Proposal,
    QuarantineProposal,
    Replay,
    ReplayFinding,
    ToolCall,
    Turn,
    TurnRun,
)
from quality.models.base import DerivedField, EvidenceField, ProseField
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.masks import save_rule
from tenants.models import MaskRule, TenantModel, User
from tests import environment
from tests.pages.own_turns import events, reply

CANARY = re.compile(r"zk(?:pat|key|path)\.[a-z_.]+")
RULES = {"pat": ("pattern", r"zkpat\.[a-z_.]+"), "key": ("key", "password"), "path": ("path", "$..person.name")}


def keep_rules(by: User, seen_by: str = "admin") -> None:
    """The three rules, seen by this role on."""
    for name, (kind, expression) in RULES.items():
        rule = MaskRule.objects.filter(name=name).first() or MaskRule(name=name, kind=kind, expression=expression)
        rule.seen_by = seen_by
        save_rule(rule, actor=by)


def data(place: str) -> dict[str, Any]:
    """Members of arguments or a result that each rule finds something in."""
    return {"password": f"zkkey.{place}", "person": {"name": f"zkpath.{place}"}, "mail": f"to zkpat.{place}"}


def _into_object(place: str, text: str) -> str:
    value = json.loads(text)
    return json.dumps((value if isinstance(value, dict) else {"was": value}) | data(place))


def _into_messages(place: str, text: str) -> str:
    """A call and its result go before the messages, so that they are on the page however long those are."""
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": json.dumps(data(place))}}
    return json.dumps(
        [
            {"role": "user", "content": f"I am zkpat.{place}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": json.dumps(data(place))},
            *json.loads(text),
        ]
    )


SAID = {"text", "reply", "note", "behavior", "content", "reason", "rationale", "got", "message", "error", "reviewer"}
DATA = {"args", "arguments", "result", "with"}


def _expected(value: Any, place: str) -> Any:
    """An expectation that asks for what `data` has."""
    if isinstance(value, list):
        return [_expected(one, place) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _expected(one, place) for name, one in value.items()}
    if "args" in found:
        plain = data(place)
        found["args"] |= {name: plain[name] for name in ("password", "mail")}
        found["args"] |= {"person": {"object": {"fields": {"name": {"equal": plain["person"]["name"]}}}}}
    return found


def _in_expectation(place: str, text: str) -> str:
    return json.dumps(_expected(json.loads(text), place))


def _in_record(place: str, text: str) -> str:
    """Of a version of a case."""
    record = _said(json.loads(text), place)
    record["expected"] = _expected(json.loads(text)["expected"], place)
    return json.dumps(record)


def _said(value: Any, place: str, key: str = "") -> Any:
    """A record of ours with canaries in each string that people read, and in what it holds of data."""
    if isinstance(value, list):
        return [_said(one, place, key) for one in value]
    if isinstance(value, dict):
        found = {name: _said(one, place, name) for name, one in value.items()}
        return found | data(place) if key in DATA else found
    if key in DATA and isinstance(value, str) and value.startswith("{"):
        return _into_object(place, value)
    return f"{value} zkpat.{place}" if key in SAID and isinstance(value, str) else value


def _into_string(place: str, text: str) -> str:
    return json.dumps(f"{json.loads(text)} zkpat.{place}")


_OWN_WAYS: dict[str, Callable[[str, str], str]] = {
    "agent_turns.messages": _into_messages,
    "agent_turns.history": _into_messages,
    "agent_turns.system": _into_string,
    "agent_tool_calls.shown": _into_string,
    "agent_tool_call_decisions.text": _into_string,
    "agent_tool_call_regression_cases.messages": _into_messages,
    "agent_tool_call_regression_cases.expectation": _in_expectation,
    "agent_tool_call_regression_case_versions.data": _in_record,
}


def masked_columns() -> dict[str, tuple[type[TenantModel], models.Field]]:
    """Every column that is masked, as `table.column`."""
    found = {}
    for model in apps.get_models():
        if issubclass(model, TenantModel):
            for field in model._meta.concrete_fields:
                inner = getattr(field, "base_field", field)
                if isinstance(inner, ProseField | EvidenceField | DerivedField):
                    found[f"{model._meta.db_table}.{field.column}"] = (model, field)
    return found


def plant() -> None:
    """Canaries into each masked column of each row of the open scope's tenant: by an administrator, for histories are
    never changed by the application."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SET session_replication_role = replica")  # no triggers
        for place, (model, field) in masked_columns().items():
            table, column = place.split(".")
            query = sql.SQL("UPDATE {} SET {} = %s WHERE id = %s").format(sql.Identifier(table), sql.Identifier(column))
            for pk, value in model.objects.values_list("pk", field.attname):
                if value is not None:
                    admin.execute(query, [_planted(place, field, value), pk])


def _planted(place: str, field: models.Field, value: Any) -> Any:
    if isinstance(field, ArrayField):
        return [_placed(place, field.base_field, one) for one in value or ["odd"]]
    return _placed(place, field, value)


def _placed(place: str, field: models.Field, value: Any) -> Any:
    """A value of a column with canaries in it."""
    if isinstance(field, ProseField):
        return f"“zkpat.{place}” {value}"
    if isinstance(field, DerivedField):
        return Jsonb(_said(value, place))
    if way := _OWN_WAYS.get(place):
        return way(place, value)
    is_data = isinstance(field, EvidenceField) and field.is_data
    return _into_object(place, value) if is_data else json.dumps(_said(json.loads(value), place))


def rows_of_every_kind(by: User) -> None:
    """What `world.make_world` has no row of, and values where it says nothing. Needs an open scope."""
    call = Feedback.objects.filter(call__isnull=False).order_by("pk")[0].call
    own = Turn.objects.filter(source="engine", state="done").latest("pk")
    asked = ToolCall.objects.filter(state="pending").order_by("pk")[0]
    ToolCall.objects.update(args_run="{}", shown='"so"', details='{"text": ""}')
    ToolCall.objects.filter(pk=call.pk).update(error="odd")
    Turn.objects.filter(source="engine").update(history="[]", system='"Be brief."')
    Hint.objects.create(
        turn=call.turn, call=call, rule="schema_violation", sentence="It has “x”.", started_at=call.started_at
    )
    record_label(
        item=item_of_call(call.pk), reviewer=by, label="bad_args", correction='{"arguments": {"city": "Rome"}}'
    )
    ModelReply.objects.update(exchanges='[{"text": ""}]')
    reply(own, "", cycle=1, error_code="unreachable", error="odd")
    TurnRun.objects.update(error="odd")
    CallDecision.objects.create(
        turn=asked.turn, call=asked, opening=7, kind="answer", arguments="{}", text='"so"', decided_by=by
    )
    events(own, {"type": "tool_start", "name": "x", "arguments": {}}, {"type": "assistant_end", "text": "so"})
    case = Case.objects.get(number=1_234)
    replay = Replay.objects.get(name__endswith="Nightly")
    Case.objects.filter(pk=case.pk).update(error="odd", stubs='[{"tool": "x", "arguments": {}, "result": "so"}]')
    proposal = Proposal.objects.latest("pk")
    proposals.dismiss(proposal.pk, by=by, reason="no")
    proposals.reopen(proposal.pk, by=by, reason="yes")
    proposals.apply(proposal.pk, kind="prompt_patch", ref="plain@2", note="so", by=by)
    for is_open in (True, False):
        ReplayFinding.objects.create(
            replay=replay, case=case, case_version=1, kind="disputed", note="no", is_open=is_open, outcome_note="yes",
            outcome="" if is_open else "holds", by=by,
        )  # fmt: skip
    QuarantineProposal.objects.create(
        case=case, case_version=case.version, replay_ids=[replay.pk], state="dismissed", reason="no", decided_by=by
    )
    JudgeVote.objects.create(
        question_sha256="a" * 64, model="m", prompt_sha256="b" * 64, rubric_sha256="c" * 64,
        votes=[{"passed": True, "rationale": "so", "swapped": False}],
    )  # fmt: skip
    trace = OtlpTrace.objects.create(trace_id="f" * 32, failure="odd")
    OtlpSpan.objects.create(trace=trace, span_id="e" * 16, data='{"text": ""}')
    run = CoachRun.objects.latest("pk")
    CoachRun.objects.filter(pk=run.pk).update(state="done", exchanges='[{"text": ""}]', finished_at=timezone.now())
    CoachItem.objects.create(run=run, position=90, kind="guidance", text="Do.")
    CoachItem.objects.create(run=run, position=91, kind="example", user_text="Hi", assistant_text="Ho")
    Assignment.objects.update(note="later")
    BulkItem.objects.create(
        action=BulkAction.objects.latest("pk"),
        turn=call.turn,
        cycle=call.cycle,
        call=call,
        state="failed",
        code="invalid",
        message="odd",
    )
    GatewayDay.objects.create(
        day=timezone.now().date(), model_label="main", num_gaps=1, last_gap_at=timezone.now(), last_gap="odd"
    )
