"""A blind reviewer asks for every page and every route of the API that answers a read: none of them tells what the
other one said.

The other one says one thing, then another. An answer that tells of it has a word in it that he alone wrote, or names
labels more often, or less, than before.
"""

import json
from typing import Any

import pytest
from django.test import Client

from quality import export_jobs
from quality.calls import CallFilter
from quality.export import FeedbackFilter, Order
from quality.improve.coach import runs
from quality.improve.groups import GroupKey
from quality.improve.proposals import track
from quality.models import (
    BulkAction,
    Case,
    CoachRun,
    Export,
    Feedback,
    Import,
    Label,
    Proposal,
    QueueEntry,
    Replay,
    ReviewQueue,
    ToolCall,
    Turn,
)
from quality.review.bulk import preview
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, making
from tenants.models import Membership, Role, Style, User
from tenants.scope import tenant_scope
from tests.factories import MembershipFactory, ToolCallFactory, TurnFactory, UserFactory, make_token
from tests.pages import reads
from tests.pages.own_turns import waiting_call
from tests.pages.world import make_world

WORD = "Quetzal"  # in all that the other reviewer writes
TOOL = "veiled_tool"
# Lists and figures can be narrowed until they speak of one call alone.
NARROWED = f"?label={Label.WRONG_TOOL}&tool={TOOL}"
NARROWING = {"call-list", "review", "overview", "chart-page", "export", "api-tool-calls", "api-feedback-summary",
             "export-calls", "export-feedback", "api-tool-calls-export", "api-feedback-export"}  # fmt: skip
WORDS = (Label.WRONG_TOOL, Label.BAD_ARGS)


@pytest.fixture
def lead(db: None) -> Membership:
    return make_world()


@pytest.fixture
def ada(lead: Membership) -> Membership:
    with tenant_scope(lead.tenant_id):
        return MembershipFactory(role=Role.ADMIN, user=UserFactory(name="Ada", email="ada.blind@example.com"))


@pytest.fixture
def bob(lead: Membership) -> User:
    with tenant_scope(lead.tenant_id):
        return MembershipFactory(role=Role.OPERATOR, user=UserFactory(name="Bob", email="bob@example.com")).user


@pytest.fixture
def items(lead: Membership, ada: Membership, bob: User) -> list[ToolCall]:
    """A call that waits for a decision and one that has ended, both in a blind queue of two."""
    with tenant_scope(lead.tenant_id):
        calls = [
            waiting_call(tool_name=TOOL),
            ToolCallFactory(tool_name=TOOL, turn=TurnFactory(style_id="plain", conversation_id="veiled")),
        ]
        queue = making.keep_queue(
            making.QueueData(name="Blind", labels_needed=2, is_blind=True, reviewers=(ada.user.pk, bob.pk)),
            actor=lead.user,
        )
        adding.add_items(queue, [item_of_call(call.pk) for call in calls], actor=lead.user)
        return calls


def say(items: list[ToolCall], bob: User, label: str, **correction: Any) -> None:
    for call in items:
        record_label(
            item=item_of_call(call.pk),
            reviewer=bob,
            label=label,
            note=f"{WORD} note {label}",
            correction=json.dumps(correction),
        )


def ids_found() -> dict[str, int]:
    """Ids of what hangs on the labels, by what the names of routes begin with."""
    veiled = ToolCall.objects.filter(tool_name=TOOL).latest("pk")
    return {
        "call": veiled.pk,
        "tool-call": veiled.pk,
        "turn": veiled.turn_id,
        "run-turn": Turn.objects.filter(source="engine").latest("pk").pk,
        "queue": ReviewQueue.objects.get(name="Blind").pk,
        "export": Export.objects.latest("pk").pk,
        "coach": CoachRun.objects.latest("pk").pk,
        "proposal": Proposal.objects.latest("pk").pk,
        "bulk": BulkAction.objects.latest("pk").pk,
        "reviewer": User.objects.get(name="Bob").pk,
        "replay": Replay.objects.latest("pk").pk,
        "samples": Replay.objects.latest("pk").pk,
        "import": Import.objects.latest("pk").pk,
        "style": Style.objects.latest("pk").pk,
    }


def asked(client: Client, token: str) -> dict[str, str]:
    """What every route answers that answers a read, by address."""
    found = reads.addresses(
        "acme", ids_found(), case=Case.objects.latest("pk").number, entry=QueueEntry.objects.latest("pk").pk
    )

    def queries(name: str) -> tuple[str, ...]:
        return ("", NARROWED, f"{NARROWED}&count=true") if name in NARROWING else ("",)

    answers = reads.asked(client, token, found, queries=queries)
    return {path: answer.text for path, answer in answers.items() if answer.status == 200}


def told(answers: dict[str, str]) -> dict[str, list[int]]:
    """How often an answer has each of the labels' names."""
    counts = {}
    for path, text in answers.items():
        # The audit log tells of this test's own questions after wrong tools.
        labels = WORDS[1:] if path.startswith("/t/acme/audit/") else WORDS
        counts[path] = [text.count(word) for label in labels for word in (label.value, str(label.label))]
    return counts


@pytest.mark.slow
def test_no_answer_tells_what_the_other_reviewer_said(
    lead: Membership, ada: Membership, bob: User, items: list[ToolCall]
) -> None:
    tenant_id = lead.tenant_id
    with tenant_scope(tenant_id):
        say(items, bob, Label.WRONG_TOOL, tool="get_weather", arguments={"city": WORD})
        track(
            GroupKey(label=Label.WRONG_TOOL, tool_name=TOOL, style_id="plain", fault="tool:get_weather"), by=lead.user
        )
        runs.start(style_id="plain", by=lead.user)
        job = export_jobs.order_export(Order(wanted=FeedbackFilter()), actor=lead.user)
        narrowed = CallFilter(tools=(TOOL,), labels=(Label.WRONG_TOOL,))
        preview.make(kind="archive", by=lead.user, wanted=narrowed)
        feedback = Feedback.objects.filter(reviewer=bob).latest("pk")
        proposal = Proposal.objects.latest("pk")
        _token, text = make_token(ada)
    export_jobs.run_export(job.pk, tenant_id=tenant_id)
    leads, adas = Client(), Client()
    leads.force_login(lead.user)
    adas.force_login(ada.user)
    told_to_the_lead = (
        f"/t/acme/calls/{items[1].pk}/",
        f"/t/acme/proposals/{proposal.pk}/",
        f"/t/acme/export/jobs/{job.pk}/file",
        "/t/acme/export/tool-call-feedback.jsonl",
    )
    for path in told_to_the_lead:
        response = leads.get(path)
        assert WORD in (b"".join(response) if response.streaming else response.content).decode(), path
    new_case = f"/t/acme/cases/new/?feedback={feedback.pk}"
    assert leads.get(new_case).status_code == 200
    assert adas.get(new_case).status_code == 404
    assert adas.get(f"/t/acme/export/jobs/{job.pk}/file").status_code == 403

    with tenant_scope(tenant_id):
        before = asked(adas, text)
        say(items, bob, Label.BAD_ARGS, arguments={"city": WORD})
        after = asked(adas, text)
    assert len(before) > 150
    assert [path for path, said in [*before.items(), *after.items()] if WORD in said] == []
    counts, now = told(before), told(after)
    assert {path: (counts[path], now[path]) for path in counts if counts[path] != now[path]} == {}
