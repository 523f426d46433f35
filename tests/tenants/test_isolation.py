"""Tenant A reads and writes nothing of B: through API, ORM and raw SQL (T3, T6, T10).

Each tenant's rows hold a word of its own in every text column. A's own word must show up wherever B's must not, so that
an empty page cannot pass.
"""

import json
import re
from dataclasses import dataclass

import pytest
from django.apps import apps
from django.db import connection

from quality.models import (
    BulkAction,
    BulkItem,
    Case,
    CaseVersion,
    CoachRun,
    Export,
    Feedback,
    FeedbackEvent,
    Import,
    ImportIssue,
    ItemTag,
    Proposal,
    ProposalEvent,
    QueueEntry,
    Review,
    ReviewQueue,
    SavedView,
    ToolCall,
    Turn,
)
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label
from tenants.models import ApiToken, Membership, Role, Scope, Tenant, TenantModel
from tenants.scope import tenant_scope
from tenants.tokens import issue_token
from tests.factories import (
    CaseFactory,
    FeedbackFactory,
    MembershipFactory,
    ProposalFactory,
    TenantFactory,
    ToolCallFactory,
    ToolsetFactory,
    TurnFactory,
    UserFactory,
)


@dataclass
class Side:
    """One tenant with its word, an admin, and what the tests name of its rows."""

    tenant: Tenant
    word: str
    admin: Membership
    token: str
    call: ToolCall
    empty_turn: Turn


def make(slug: str, word: str, number: int) -> Side:
    tenant = TenantFactory(slug=slug, name=f"{word} Ltd")
    with tenant_scope(tenant):
        admin = MembershipFactory(role=Role.ADMIN, user=UserFactory(name=f"{word} Admin", email=f"{word}@example.com"))
        _, token = issue_token(
            name=f"{word} token",
            scopes=Scope.values,
            created_by=admin.user,
            expires_at=None,
        )
        tools = [{"type": "function", "function": {"name": f"{word}_tool", "parameters": {"type": "object"}}}]
        said = {
            "conversation_id": f"{word}-conversation",
            "contact_id": f"{word}-contact",
            "message_id": f"{word}-message",
            "outbound_message_id": f"{word}-outbound",
            "model": f"{word}-model",
            "style_id": f"{word}-style",
            "source": f"{word}-source",
            "system": json.dumps(f"{word} system"),
            "messages": json.dumps([{"role": "user", "content": f"{word} question"}]),
        }
        turn = TurnFactory(**said, toolset=ToolsetFactory(tools=json.dumps(tools)))
        call = ToolCallFactory(
            pk=7_000_000 + number,  # stands for the ids of all other kinds, too: no row of either tenant has it
            turn=turn,
            tool_name=f"{word}_tool",
            args=json.dumps({"secret": word}),
            result=json.dumps({"answer": word}),
            error=f"{word} error",
        )
        ToolCallFactory(turn=turn, tool_name=f"{word}_tool", index=1)  # one more, without a label
        empty_turn = TurnFactory(**said | {"conversation_id": f"{word}-other"})
        for item in (item_of_call(call.pk), item_of_turn(empty_turn.pk)):
            record_label(item=item, reviewer=admin.user, label="other", note=f"{word} note")
        job = Import.objects.create(filename=f"{word}.jsonl", created_by=admin.user, state="done", failure=f"{word}!")
        ImportIssue.objects.create(import_job=job, index=0, line=1, code="x", path="y", message=f"{word} reason")
        group = {"tool_name": f"{word}_tool", "style_id": f"{word}-style"}
        fault = {"call": ToolCallFactory(turn=turn, tool_name=f"{word}_tool", index=2), "reviewer": admin.user}
        FeedbackFactory(**fault, faults=[f"arg:/{word}"], note=f"{word} note", correction=json.dumps({"tool": word}))
        said = {"title": f"{word} title", "reason": f"{word} reason", "created_by": admin.user}
        proposal = ProposalFactory(**group, **said, fault=f"arg:/{word}")
        ProposalEvent.objects.create(proposal=proposal, version=1, action="track", reason=word, by=admin.user)
        CaseFactory(
            number=number,
            tool_name=f"{word}_tool",
            behavior=f"{word} behavior",
            args=json.dumps({"secret": word}),
            messages=json.dumps([{"role": "user", "content": word}]),
            tags=[word],
            call=call,
            proposal=proposal,
            created_by=admin.user,
        )
        coach = {"style_id": f"{word}-style", "style_version": 1, "summary": f"{word} summary"}
        CoachRun.objects.create(**coach, method="rules", state="done", created_by=admin.user)
        Export.objects.create(kind="calls", query=f"tool={word}_tool", failure=f"{word}!", created_by=admin.user)
        queue = ReviewQueue.objects.create(name=f"{word} queue", guidelines=f"{word} rule", created_by=admin.user)
        QueueEntry.objects.create(
            queue=queue, turn=turn, cycle=0, call=call, started_at=turn.started_at, tool_name=f"{word}_tool"
        )
        done = {"state": "done", "seen_sha256": "", "num_items": 1, "num_done": 1, "call_ids": [call.pk]}
        bulk = BulkAction.objects.create(kind="tag", tag=f"{word}-tag", reason=word, created_by=admin.user, **done)
        left = {"turn": turn, "cycle": 0, "call": call, "state": "skipped", "code": "x", "message": f"{word} left"}
        BulkItem.objects.create(action=bulk, **left)
        ItemTag.objects.create(
            turn=turn, cycle=0, call=call, tag=f"{word}-tag", started_at=turn.started_at, by=admin.user
        )
        SavedView.objects.create(
            page="calls", name=f"{word} view", query=f"tool={word}_tool", is_shared=True, owner=admin.user
        )
    return Side(tenant, word, admin, token, call, empty_turn)


@pytest.fixture
def sides(db) -> tuple[Side, Side]:
    return make("alpha", "aardvark", 11), make("beta", "bandicoot", 22)


def body(response) -> str:
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return content.decode(errors="replace")


def test_labels_on_another_tenants_calls_are_refused_and_leave_nothing(client, sides):
    alpha, beta = sides
    headers = {"Authorization": f"Bearer {alpha.token}"}
    base = "/api/admin/quality"

    def label(path: str):
        return client.post(f"{base}/{path}/feedback", {"label": "bad_args"}, "application/json", headers=headers)

    theirs, missing = label(f"tool-calls/{beta.call.pk}"), label("tool-calls/999999")
    assert (theirs.status_code, missing.status_code) == (404, 404)
    same = {"title", "detail", "type", "status", "errors"}
    clean = [json.loads(re.sub(rf"\b(999999|{beta.call.pk})\b", "N", response.text)) for response in (theirs, missing)]
    assert {key: clean[0].get(key) for key in same} == {key: clean[1].get(key) for key in same}
    assert label(f"turns/{beta.empty_turn.pk}").status_code == 404
    assert label(f"tool-calls/{alpha.call.pk}").status_code in (200, 201)  # positive control
    with tenant_scope(beta.tenant):
        assert set(FeedbackEvent.objects.values_list("reviewer_id", flat=True)) == {beta.admin.user_id}
        assert Feedback.objects.count() == 3


@pytest.mark.parametrize(
    ("kind", "number"),
    [("tool-call-feedback", 3), ("improvement-proposals", 1), ("tool-call-regression-cases", 1)],
)
def test_exports_hold_ones_own_rows_to_the_last(client, sides, kind, number):
    alpha, beta = sides
    response = client.get(f"/api/admin/quality/{kind}/export.jsonl", headers={"Authorization": f"Bearer {beta.token}"})
    *records, trailer = map(json.loads, body(response).splitlines())
    assert trailer["count"] == len(records) == number
    assert all(beta.word in json.dumps(record) and alpha.word not in json.dumps(record) for record in records)


def test_the_orm_and_raw_sql_see_ones_own_rows_only(sides):
    alpha, beta = sides
    models = [model for model in apps.get_models() if issubclass(model, TenantModel)]
    assert len(models) >= 12
    for mine, other in ((alpha, beta), (beta, alpha)):
        with tenant_scope(mine.tenant), connection.cursor() as cursor:
            for model in models:
                cursor.execute(f"SELECT t::text FROM {model._meta.db_table} t")
                rows = "\n".join(row for (row,) in cursor.fetchall())
                assert other.word not in rows, model
                assert model._base_manager.exclude(tenant=mine.tenant).count() == 0, model
            controls = (ToolCall, Turn, Review, Feedback, FeedbackEvent, Import, ImportIssue, ApiToken, Membership)
            for model in (*controls, Proposal, ProposalEvent, Case, CaseVersion, CoachRun):
                assert model.objects.exists(), model  # positive control
            assert ToolCall._base_manager.filter(pk=other.call.pk).update(tool_name="stolen") == 0
            assert ToolCall._base_manager.filter(pk=other.call.pk).delete()[0] == 0
    with tenant_scope(beta.tenant):
        assert ToolCall.objects.get(pk=beta.call.pk).tool_name == "bandicoot_tool"
