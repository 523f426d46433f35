"""Whoever is spared evidence asks for every page and every route of the API that answers a read: nothing that a rule
masks is in an answer, whoever is shown it finds it there."""

import asyncio
from typing import Any

from django.test import AsyncClient, Client

from quality.models import (
    BulkAction,
    CoachRun,
    Export,
    Feedback,
    Import,
    Proposal,
    QueueEntry,
    Replay,
    ReplaySchedule,
    ReviewQueue,
    SuggestionRun,
    ToolCall,
    Turn,
    TurnState,
    Webhook,
)
from tenants.models import Membership, Role
from tenants.scope import tenant_scope
from tests.factories import MembershipFactory, make_token
from tests.masking.canaries import CANARY, keep_rules, masked_columns, plant, rows_of_every_kind
from tests.pages import reads
from tests.pages.world import make_world

# No page and no answer shows what these columns hold.
NOT_SHOWN = {
    "agent_tool_calls.details", "agent_tool_calls.shown", "agent_turn_replies.exchanges", "coach_runs.exchanges",
    "judge_votes.votes", "otlp_spans.data",
}  # fmt: skip


def ids_of(call: ToolCall) -> dict[str, Any]:
    own = Turn.objects.filter(source="engine")
    done, waiting = own.filter(state="done").latest("pk").pk, own.filter(state=TurnState.AWAITING).order_by("pk")[0].pk
    return {
        "call": [call.pk, ToolCall.objects.filter(is_error=True).latest("pk").pk],
        "tool-call": call.pk,
        "turn": [call.turn_id, done, waiting],
        "run-turn": [done, waiting],
        "queue": ReviewQueue.objects.latest("pk").pk,
        "export": Export.objects.latest("pk").pk,
        "coach": CoachRun.objects.latest("pk").pk,
        "proposal": Proposal.objects.latest("pk").pk,
        "bulk": BulkAction.objects.latest("pk").pk,
        "reviewer": Membership.objects.get(role=Role.ADMIN).user_id,
        "replay": Replay.objects.latest("pk").pk,
        "replay-schedule": ReplaySchedule.objects.latest("pk").pk,
        "replay-notification": ReplaySchedule.objects.latest("pk").pk,
        "samples": Replay.objects.latest("pk").pk,
        "suggestion": SuggestionRun.objects.latest("pk").pk,
        "import": Import.objects.latest("pk").pk,
        "webhook": Webhook.objects.latest("pk").pk,
    }


def told(answers: dict[str, reads.Answer]) -> dict[str, list[str]]:
    """What rules mask in each answer and its headers, by address."""
    found = {path: sorted(set(CANARY.findall(one.text + one.headers))) for path, one in answers.items()}
    return {path: canaries for path, canaries in found.items() if canaries}


class Crawl:
    """The addresses of a tenant, and who asks for them."""

    def __init__(self, admin: Membership) -> None:
        self.tenant_id = admin.tenant_id
        with tenant_scope(self.tenant_id):
            feedback = Feedback.objects.filter(call__isnull=False, correction__isnull=False).order_by("pk")[0]
            call = feedback.call
            self.found = reads.addresses(
                "acme", ids_of(call), case=1_234, entry=QueueEntry.objects.order_by("pk")[0].pk
            )
            self.ended = Turn.objects.filter(source="engine", state="done").latest("pk").pk
            self.queries = {
                "call-branch": ("?at=", "?raw=1", "?at=/person&raw=1", "?at=/person", "?at=&from=1"),
                "case-new": ("", f"?feedback={feedback.pk}"),
                "review": ("", f"?call={call.pk}"),
                "review-correct": (f"?call={call.pk}&label=bad_args", f"?call={call.pk}&label=wrong_tool"),
                "call-list": ("", "?error=yes", "?contact=contact-1"),
            }

    def by(self, member: Membership, **headers: str) -> dict[str, reads.Answer]:
        """What this member is answered, signed in and by a token of theirs."""
        client = Client()
        client.force_login(member.user)
        with tenant_scope(self.tenant_id):
            _token, text = make_token(member)
        answers = reads.asked(
            client, text, self.found, queries=lambda name: self.queries.get(name, ("",)), headers=headers
        )
        for name, path in self.found:
            if name in reads.ENDLESS and path.split("/")[-2] == str(self.ended):
                bearer = {"Authorization": f"Bearer {text}"} if path.startswith("/api/") else {}
                followed = asyncio.run(follow(path, client, bearer))
                assert "assistant_end" in followed, path
                answers[path] = reads.Answer(name, 200, followed, "")
        return answers


async def follow(path: str, signed_in: Client, headers: dict[str, str]) -> str:
    """The events of a turn that has ended, to the last."""
    client = AsyncClient()
    client.cookies = signed_in.cookies
    response = await client.get(path, headers=headers)
    return b"".join([piece async for piece in response.streaming_content]).decode()


def test_nothing_masked_is_in_any_answer_and_all_of_it_is_for_who_may_see_it(db: None) -> None:
    admin = make_world()
    with tenant_scope(admin.tenant_id):
        operator = Membership.objects.select_related("user").get(role=Role.OPERATOR)
        viewer = MembershipFactory(role=Role.VIEWER)
        rows_of_every_kind(admin.user)
    with tenant_scope(admin.tenant_id):
        plant()
    with tenant_scope(admin.tenant_id):
        keep_rules(admin.user)
    crawl = Crawl(admin)
    seen = crawl.by(admin)
    assert sum(one.status == 200 for one in seen.values()) > 180
    shown = {canary.split(".", 1)[1] for canaries in told(seen).values() for canary in canaries}
    leaks = {}
    for who in (operator, viewer):
        leaks[who.role] = told(crawl.by(who))
    with tenant_scope(admin.tenant_id):
        keep_rules(admin.user, "nobody")
    leaks["nobody"] = told(crawl.by(admin)) | told(crawl.by(admin, **{"HX-Request": "true"}))
    assert leaks == {"operator": {}, "viewer": {}, "nobody": {}}
    assert set(masked_columns()) - shown == NOT_SHOWN
