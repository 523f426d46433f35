"""A tenant with something of everything that pages show, for tests that look at all pages."""

import datetime as dt
import json
import uuid
from typing import Any

from django.utils import timezone

from quality.calls import CallFilter
from quality.export import Order
from quality.export_jobs import order_export
from quality.improve.coach import runs as coach
from quality.models import (
    Case,
    Import,
    ImportIssue,
    Schedule,
    Suggestion,
    SuggestionRun,
    ToolCall,
    Webhook,
    WebhookDelivery,
)
from quality.review import views
from quality.review.bulk import preview
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.queues import adding, making
from quality.turns.cron import next_slot
from tenants import access, endpoints, exchange, masks, styles, tools
from tenants.models import ExchangeCustomer, ExchangeOrder, ExchangeRate, MaskRule, Membership, Role, Tenant, User
from tenants.scope import tenant_scope
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
    make_token,
)
from tests.pages.own_turns import own_turn, reply, waiting_call
from tests.pages.replay_rows import make_replay, make_row, samples_of
from tests.replay.rows import make_schedule

TOOL = {
    "name": "get_order",
    "description": "Looks an order up.",
    "method": "GET",
    "url": "https://api.example.com/orders/{number}",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    "headers": {"Authorization": "Bearer {secret:SHOP_KEY}"},
}


ARABIC = "مرحبا"


def make_world(slug: str = "acme", *, word: str = "") -> Membership:
    """The admin of a new tenant that has rows of every kind; the tenant's scope is closed again. `word` goes before
    all that people name as they like."""
    tenant: Tenant = TenantFactory(slug=slug, name=f"{word}Acme")
    with tenant_scope(tenant):
        admin = MembershipFactory(role=Role.ADMIN, user=UserFactory(name=f"{word}Ada Admin", email="ada@example.com"))
        _people(admin, word)
        _settings(admin.user, word)
        _calls(admin.user, word)
        _own_turns(admin.user)
        _fixes(admin.user, word)
        _import(admin.user, word)
        _review(admin, word)
        _jobs(admin.user, word)
        return admin


def _people(admin: Membership, word: str) -> None:
    MembershipFactory(role=Role.OPERATOR, user=UserFactory(name=f"{word}Olga", email="olga@example.com"))
    access.invite(role=Role.VIEWER, email="vera@example.com", created_by=admin.user)
    make_token(admin)


def _settings(user: User, word: str) -> None:
    tools.save_tool(TOOL, actor=user)
    styles.save_skill(name="orders", description=word, tools=["get_order"], actor=user, pk=None)
    text = styles.StyleText("Be brief.", (("Hi", "Hello"),), ("orders",))
    styles.save_style(style_id="plain", name=f"{word}Plain", text=text, is_default=True, actor=user, pk=None)
    fields: dict[str, Any] = {"parameters": {"temperature": 0.25}, "price_prompt": 0.25, "price_completion": 1234.5}
    endpoints.save_endpoint(
        endpoints.EndpointData(label="expert", base_url="https://llm.example.com/v1", model="tiny", key=None,
                               sources=("api",), is_enabled=True, **fields), actor=user, pk=None
    )  # fmt: skip
    zone = {"cron": "30 8 * * MON-FRI", "zone": "Europe/Rome"}
    Schedule.objects.create(
        name=f"{word}Morning", text="Hi", created_by=user, next_at=next_slot(*zone.values(), timezone.now()), **zone
    )
    masks.save_rule(MaskRule(name="person", kind="key", expression=f"{word}full_name", seen_by="admin"), actor=user)
    exchange.save_rate(
        ExchangeRate(give="EUR", get="USD", rate="1.08", min_amount="0.5", max_amount="12345.25", verify_from="1000"),
        actor=user,
    )
    ExchangeCustomer.objects.create(contact_id=f"{word}c-1", verification="verified")
    ExchangeOrder.objects.create(
        contact_id=f"{word}c-1", give="EUR", get="USD", give_amount="1234.5", get_amount="1333.26",
        needs_verification=False, create_key="k",
    )  # fmt: skip


def _calls(user: User, word: str) -> None:
    toolset = ToolsetFactory()
    said = json.dumps([{"role": "user", "content": f"{ARABIC}, what is the weather?"}])
    turn = TurnFactory(
        messages=said, toolset=toolset, style_id="plain", conversation_id=f"{word}talk", contact_id=f"{word}c-1"
    )
    long = json.dumps({"days": ["Monday"] * 1_500, "text": "x" * 9_000, "ratio": 0.5})
    labelled = ToolCallFactory(turn=turn, args=long, result=long, duration_ms=1_234)
    ToolCallFactory(turn=turn, index=1, error="timeout", is_error=True, duration_ms=90_500)
    for label, note in (("wrong_tool", f"{word}not this"), ("bad_args", "")):
        record_label(item=item_of_call(labelled.pk), reviewer=user, label=label, note=note)
    TurnFactory(messages=said, conversation_id=f"{word}talk")


def _own_turns(user: User) -> None:
    waiting_call()
    waiting_call(own_turn(), state="unknown")
    done = own_turn("done", end_reason="answered", duration_ms=12_345, created_by=user)
    reply(done, "It is sunny.", prompt_tokens=12_345)


def _fixes(user: User, word: str) -> None:
    call = ToolCallFactory(turn=TurnFactory(style_id="plain"), args='{"city": "Rome"}')
    FeedbackFactory(call=call, reviewer=user, label="bad_args", faults=["arg:/city"])
    ProposalFactory(tool_name=call.tool_name, style_id="plain", title=f"{word}Say the unit", created_by=user)
    case: Case = CaseFactory(
        number=1_234, call=call, tags=[f"{word}unit"], behavior=f"{word}Says the unit.", created_by=user
    )
    replay = make_replay(sides=("baseline", "candidate"), created_by=user, name=f"{word}Nightly")
    row = make_row(replay, case)
    for side in ("baseline", "candidate"):
        samples_of(row, "pfpide", side=side)


def _import(user: User, word: str) -> None:
    job = Import.objects.create(
        filename=f"{word}trace.jsonl", created_by=user, state="done", num_calls=12_345, num_turns=1_500, num_rejected=1,
        finished_at=timezone.now() - dt.timedelta(minutes=2),
    )  # fmt: skip
    ImportIssue.objects.create(import_job=job, index=1_233, line=1_234, code="x", path="y", message=f"{word}no")


def _review(admin: Membership, word: str) -> None:
    """Two people's answers, a queue that waits and one of disagreements, a saved view, models' suggestions."""
    olga = User.objects.get(email="olga@example.com")
    calls = list(ToolCall.objects.filter(turn__conversation_id=f"{word}talk").order_by("pk"))
    for call in calls:
        record_label(item=item_of_call(call.pk), reviewer=olga, label="other", note=f"{word}odd")
    queue = making.keep_queue(
        making.QueueData(name=f"{word}Nightly", labels_needed=2, guidelines=f"{word}Look twice."), actor=admin.user
    )
    adding.add_items(queue, [item_of_call(call.pk) for call in ToolCall.objects.order_by("pk")], actor=admin.user)
    views.save(page="calls", name=f"{word}Failures", query="error=yes", by=admin, is_shared=True)
    run = SuggestionRun.objects.create(
        endpoint_label="expert", max_items=12_345, created_by=admin.user, state="done", query="error=yes"
    )
    Suggestion.objects.create(
        run=run, turn=calls[0].turn, cycle=0, call=calls[0], model="expert", label="bad_args", reason=f"{word}why",
        confidence=0.75, state="overruled", decided_by=olga, decided_label="other", decided_at=timezone.now(),
    )  # fmt: skip


def _jobs(user: User, word: str) -> None:
    """What goes on aside: an action on many calls, a file, the coach's advice, replays by the clock, messages out."""
    preview.make(kind="label", by=user, call_ids=list(ToolCall.objects.values_list("pk", flat=True)))
    order_export(Order(wanted=CallFilter()), actor=user)
    coach.start(style_id="plain", by=user, model_label=coach.RULES)
    make_schedule(name=f"{word}Nightly", created_by=user)
    hook = Webhook.objects.create(
        name=f"{word}Desk", url="https://hooks.example.com/quality", events=["*"], created_by=user
    )
    for state, status in (("sent", 204), ("failed", 500)):
        WebhookDelivery.objects.create(
            webhook=hook, event="label.given", subject="call 1234", message_id=uuid.uuid4(), body="{}", state=state,
            status=status, attempt=1_234, sent_at=timezone.now(), error="" if state == "sent" else "Refused.",
        )  # fmt: skip
