"""What is audited is told: each kind of event once, with references and no evidence."""

import json
from pathlib import Path
from typing import Any

from django.db import transaction

from quality.improve import case_store, proposals
from quality.models import WebhookDelivery
from quality.replay import ending
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label, undo
from quality.webhooks import events, outbox
from tenants.models import AuditEvent, Tenant
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, ProposalFactory, ToolCallFactory, TurnFactory
from tests.replay.rows import make_replay


def told(lab) -> list[tuple[str, dict[str, Any]]]:
    rows = lab.written()
    bodies = [json.loads(row.body) for row in rows]
    assert [row.event for row in rows] == [body["type"] for body in bodies]
    return [(body["type"], body["data"]) for body in bodies]


def test_a_label_and_its_undo_are_told_with_links_and_without_evidence(lab) -> None:
    lab.keep()
    with tenant_scope(lab.tenant):
        call = ToolCallFactory(tool_name="find_slots", args='{"city": "Zurich"}')
        item = item_of_call(call.pk)
        correction = '{"arguments": {"city": "Bern"}}'
        record_label(item=item, reviewer=lab.admin, label="bad_args", note="Wrong city: Bern", correction=correction)
        undo(item=item, reviewer=lab.admin)
    (given, said), (undone, after) = told(lab)
    assert (given, undone) == ("label.given", "label.undone")
    assert said == {
        "callId": call.pk,
        "turnId": call.turn_id,
        "cycle": 0,
        "label": "bad_args",
        "before": None,
        "version": 1,
        "hasNote": True,
        "hasCorrection": True,
        "reviewer": {"id": lab.admin.pk, "name": "Ada"},
        "url": f"https://lab.example.com/t/acme/calls/{call.pk}/",
    }
    assert (after["label"], after["before"], after["version"]) == (None, "bad_args", 2)
    assert not any("Zurich" in row.body or "Bern" in row.body for row in lab.written())


def test_many_labels_at_once_are_told_with_as_many_queries_as_one(lab, django_assert_num_queries) -> None:
    with tenant_scope(lab.tenant):
        items = [item_of_call(ToolCallFactory().pk) for _ in range(5)]
        items.append(item_of_turn(TurnFactory(num_calls=0).pk))
        for item in items:
            record_label(item=item, reviewer=lab.admin, label="bad_args")
        record_label(item=items[0], reviewer=lab.admin, label="good_reply")
        rows = list(AuditEvent.objects.filter(action="feedback.labelled").select_related("actor").order_by("pk"))
        with django_assert_num_queries(1):
            found = events.messages_of(rows, lab.tenant)
    said = [json.loads(one.body)["data"] for one in found]
    assert [one["callId"] for one in said] == [*(item.call_id for item in items), items[0].call_id]
    assert (said[0]["label"], said[-1]["label"], said[-1]["before"]) == ("bad_args", "good_reply", "bad_args")


def test_a_reply_without_a_call_is_told_by_its_turn(lab) -> None:
    lab.keep()
    with tenant_scope(lab.tenant):
        turn = TurnFactory(num_calls=0)
        record_label(item=item_of_turn(turn.pk), reviewer=lab.admin, label="missing_tool")
    ((_, said),) = told(lab)
    assert (said["callId"], said["turnId"], said["url"]) == (
        None,
        turn.pk,
        f"https://lab.example.com/t/acme/turns/{turn.pk}/",
    )


def test_proposals_cases_and_replays_are_told(lab) -> None:
    lab.keep()
    with tenant_scope(lab.tenant):
        proposal = ProposalFactory(tool_name="find_slots")
        proposals.dismiss(proposal.pk, reason="Known.", by=lab.admin)
        proposals.reopen(proposal.pk, by=lab.admin)
        proposals.apply(proposal.pk, kind="pull_request", ref="PR 12", by=lab.admin)
        case = CaseFactory()
        case_store.change(case, note="", by=lab.admin, token=None, action="archived", status="archived")
        replay = make_replay(case, counts=(1, 1), state="done", exit_code=0)
        ending.ended(replay)
    found = told(lab)
    assert [kind for kind, _ in found] == [
        "proposal.dismissed",
        "proposal.reopened",
        "proposal.applied",
        "case.archived",
        "replay.finished",
    ]
    applied, archived, finished = found[2][1], found[3][1], found[4][1]
    assert applied["resolution"] == {"kind": "pull_request", "ref": "PR 12"}
    assert (applied["state"], applied["by"]["name"]) == ("applied", "Ada")
    assert (archived["id"], archived["status"], archived["changed"]) == (case.ref, "archived", ["status"])
    assert (finished["id"], finished["exitCode"], finished["state"]) == (replay.pk, 0, "done")
    assert finished["url"].endswith(f"/t/acme/replays/{replay.pk}/")


def test_each_webhook_hears_what_it_asked_for(lab) -> None:
    lab.keep("label.given", name="Labels")
    lab.keep("case.created", name="Cases")
    lab.keep("label.given", name="Off", is_enabled=False)
    with tenant_scope(lab.tenant):
        call = ToolCallFactory()
        record_label(item=item_of_call(call.pk), reviewer=lab.admin, label="good_reply")
    assert [row.webhook.name for row in lab.written()] == ["Labels"]


def test_what_is_rolled_back_is_told_to_nobody(lab, published) -> None:
    lab.keep()
    with tenant_scope(lab.tenant):
        record_label(item=item_of_call(ToolCallFactory().pk), reviewer=lab.admin, label="good_reply")
        assert WebhookDelivery.objects.count() == 1
        transaction.set_rollback(True)
    assert lab.written() == []
    assert published == []


def test_a_fault_of_a_webhook_costs_no_label(lab, monkeypatch, caplog) -> None:
    lab.keep()

    def broken(*args: Any) -> None:
        WebhookDelivery.objects.create(webhook_id=None)  # the database refuses it, and ends the savepoint

    monkeypatch.setattr(outbox, "_write", broken)
    with tenant_scope(lab.tenant):
        outcome = record_label(item=item_of_call(ToolCallFactory().pk), reviewer=lab.admin, label="good_reply")
    assert outcome.created
    assert "Webhooks were not told of feedback.labelled" in caplog.text


def test_another_tenant_hears_nothing(lab, other_tenant: Tenant) -> None:
    lab.keep()
    with tenant_scope(other_tenant):
        record_label(item=item_of_call(ToolCallFactory().pk), reviewer=lab.admin, label="good_reply")
        assert WebhookDelivery.objects.count() == 0
    assert lab.written() == []


def test_every_action_of_the_table_is_one_that_is_written(lab) -> None:
    """A slip in the table would tell nobody, and nobody would notice."""
    sources = "\n".join(
        path.read_text()
        for folder in ("quality", "tenants")
        for path in Path(folder).rglob("*.py")
        if "webhooks" not in path.parts
    )
    for action in events.BY_ACTION:
        area, _, verb = action.partition(".")
        assert f'"{action}"' in sources or (f'f"{area}.{{' in sources and f'"{verb}"' in sources), action
