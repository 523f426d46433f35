"""Valid rows with nothing said. All but tenants and users need an open `tenant_scope` and belong to its tenant."""

import datetime as dt
import hashlib
import json
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from quality.improve.case_record import record_of
from quality.models import (
    ArtifactKind,
    CallState,
    Case,
    CaseVersion,
    Feedback,
    Import,
    Proposal,
    Review,
    ToolCall,
    Toolset,
    Turn,
)
from tenants.models import ApiToken, Membership, Role, Scope, Tenant, User
from tenants.tokens import issue_token

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
                "required": ["city"],
            },
        },
    }
]
LATEST = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


class TenantFactory(factory.Factory):
    class Meta:
        model = Tenant

    slug = factory.Sequence(lambda n: f"tenant-{n}")
    name = factory.LazyAttribute(lambda tenant: tenant.slug.title())

    @classmethod
    def _create(cls, model_class: type[Tenant], *args: Any, **fields: Any) -> Tenant:
        return Tenant.objects.create_tenant(**fields)


class UserFactory(DjangoModelFactory):
    """A user; `password="…"` gives one to sign in with (hashed slowly, so only where it is needed)."""

    class Meta:
        model = User
        skip_postgeneration_save = True

    email = factory.Sequence(lambda n: f"user{n}@example.com")
    name = factory.Sequence(lambda n: f"User {n}")

    @classmethod
    def _create(cls, model_class: type[User], *args: Any, **fields: Any) -> User:
        return User.objects.create_user(**fields)


class MembershipFactory(DjangoModelFactory):
    class Meta:
        model = Membership

    user = factory.SubFactory(UserFactory)
    role = Role.OPERATOR


class ToolsetFactory(DjangoModelFactory):
    class Meta:
        model = Toolset
        django_get_or_create = ("sha256",)

    tools = json.dumps(TOOLS)
    num_tools = factory.LazyAttribute(lambda toolset: len(json.loads(toolset.tools)))
    sha256 = factory.LazyAttribute(lambda toolset: hashlib.sha256(toolset.tools.encode()).hexdigest())


class TurnFactory(DjangoModelFactory):
    """A turn without calls: the reply answers in words. Each is a minute older than the one made before it."""

    class Meta:
        model = Turn

    class Params:
        number = factory.Sequence(int)

    source = "openai_chat"
    external_id = factory.LazyAttribute(lambda turn: f"turn-{turn.number}")
    content_sha256 = factory.LazyAttribute(lambda turn: _digest("turn", turn.external_id))
    conversation_id = factory.LazyAttribute(lambda turn: f"conversation-{turn.number}")
    contact_id = "contact-1"
    message_id = factory.LazyAttribute(lambda turn: f"message-{turn.number}")
    outbound_message_id = factory.LazyAttribute(lambda turn: f"outbound-{turn.number}")
    model = "tiny-model"
    provider = "openai"
    style_id = "friendly"
    toolset = factory.SubFactory(ToolsetFactory)
    messages = json.dumps(
        [
            {"role": "user", "content": "What is the weather in Zürich?"},
            {"role": "assistant", "content": "I will look it up."},
        ],
        ensure_ascii=False,
    )
    system = json.dumps("You are a helpful assistant.")
    num_cycles = 1
    started_at = factory.LazyAttribute(lambda turn: LATEST - dt.timedelta(minutes=turn.number))
    duration_ms = 1200


class ToolCallFactory(DjangoModelFactory):
    """A call that worked, in a turn of its own unless `turn=` is given; then it takes the next free index there."""

    class Meta:
        model = ToolCall

    turn = factory.SubFactory(TurnFactory)
    cycle = 0
    index = factory.LazyAttribute(lambda call: ToolCall.objects.filter(turn=call.turn, cycle=call.cycle).count())
    tool_call_id = factory.LazyAttribute(lambda call: f"call_{call.cycle}_{call.index}")
    tool_name = "get_weather"
    args = '{"city": "Zürich", "unit":"celsius"}'
    result = '{"temperature": 21.50, "sky": "clear"}'
    is_error = False
    state = factory.LazyAttribute(
        lambda call: {True: CallState.ERROR, False: CallState.RESULT, None: CallState.UNKNOWN}[call.is_error]
    )
    started_at = factory.SelfAttribute("turn.started_at")
    duration_ms = 340
    source = factory.SelfAttribute("turn.source")
    external_id = factory.LazyAttribute(lambda call: f"{call.turn.external_id}/{call.cycle}/{call.index}")
    content_sha256 = factory.LazyAttribute(lambda call: _digest("call", call.external_id))
    conversation_id = factory.SelfAttribute("turn.conversation_id")
    contact_id = factory.SelfAttribute("turn.contact_id")
    message_id = factory.SelfAttribute("turn.message_id")
    outbound_message_id = factory.SelfAttribute("turn.outbound_message_id")
    model = factory.SelfAttribute("turn.model")
    provider = factory.SelfAttribute("turn.provider")
    style_id = factory.SelfAttribute("turn.style_id")
    toolset = factory.SelfAttribute("turn.toolset")

    @classmethod
    def _after_postgeneration(cls, instance: ToolCall, create: bool, results: Any = None) -> None:
        turn = instance.turn
        turn.num_calls = ToolCall.objects.filter(turn=turn).count()
        turn.num_cycles = max(turn.num_cycles, instance.cycle + 1)
        turn.save(update_fields=["num_calls", "num_cycles"])


class ImportFactory(DjangoModelFactory):
    class Meta:
        model = Import

    filename = factory.Sequence(lambda n: f"traces-{n}.jsonl")
    created_by = factory.SubFactory(UserFactory)
    created_at = factory.LazyFunction(timezone.now)


class FeedbackFactory(DjangoModelFactory):
    """A label as `record_label` leaves it, with the item's review. On a call of its own unless `call=` is given;
    `call=None, turn=…` labels a reply that made no call."""

    class Meta:
        model = Feedback

    call = factory.SubFactory(ToolCallFactory)
    turn = factory.LazyAttribute(lambda feedback: feedback.call.turn if feedback.call else TurnFactory())
    cycle = factory.LazyAttribute(lambda feedback: feedback.call.cycle if feedback.call else 0)
    reviewer = factory.SubFactory(UserFactory)
    label = "bad_args"
    note = ""
    correction = None
    tool_name = factory.LazyAttribute(lambda feedback: feedback.call.tool_name if feedback.call else "")
    style_id = factory.LazyAttribute(lambda feedback: feedback.turn.style_id)
    faults = factory.LazyAttribute(
        lambda feedback: {"bad_args": ["arg:/city"], "wrong_tool": ["tool:"], "missing_tool": ["missing:"]}.get(
            feedback.label, []
        )
    )
    version = factory.LazyAttribute(
        lambda feedback: (
            Feedback.objects.filter(turn=feedback.turn, cycle=feedback.cycle, call=feedback.call).count() + 1
        )
    )
    created_at = factory.LazyFunction(timezone.now)
    updated_at = factory.SelfAttribute("created_at")

    @classmethod
    def _after_postgeneration(cls, instance: Feedback, create: bool, results: Any = None) -> None:
        Review.objects.update_or_create(
            turn=instance.turn,
            cycle=instance.cycle,
            call=instance.call,
            defaults={"version": instance.version, "label": instance.label, "num_labels": instance.version},
            create_defaults={
                "version": instance.version,
                "label": instance.label,
                "num_labels": 1,
                "tool_name": instance.tool_name,
                "started_at": instance.call.started_at if instance.call else instance.turn.started_at,
            },
        )


class ProposalFactory(DjangoModelFactory):
    """A pending proposal for the group that `FeedbackFactory()` makes."""

    class Meta:
        model = Proposal

    label = "bad_args"
    tool_name = "get_weather"
    style_id = "friendly"
    fault = "arg:/city"
    suggested_kind = ArtifactKind.TOOL_SCHEMA_PATCH
    title = factory.LazyAttribute(lambda proposal: f"{proposal.label} of {proposal.tool_name}: {proposal.fault}")
    created_by = factory.SubFactory(UserFactory)


class CaseFactory(DjangoModelFactory):
    """An active case with its first version, of a call that asked for the weather in a wrong city."""

    class Meta:
        model = Case

    number = factory.LazyFunction(
        lambda: (Case.objects.order_by("-number").values_list("number", flat=True).first() or 0) + 1
    )
    tool_name = "get_weather"
    label = "bad_args"
    args = '{"city": "Zurich", "unit":"celsius"}'
    messages = json.dumps([{"role": "user", "content": "What is the weather in Zürich?"}], ensure_ascii=False)
    tools = json.dumps(TOOLS)
    now = LATEST
    result = '{"temperature": 21.50, "sky": "clear"}'
    is_error = False
    index = 0
    behavior = "Asks for the weather in Zürich."
    expectation = json.dumps(
        {
            "version": 1,
            "calls": {"mode": "first", "steps": [{"tool": "get_weather", "args": {"city": {"equal": "Zürich"}}}]},
        },
        ensure_ascii=False,
    )
    context = factory.LazyAttribute(
        lambda case: json.dumps(
            {
                "conversationId": f"conversation-{case.number}",
                "messageId": None,
                "styleId": "friendly",
                "model": "tiny-model",
                "source": "openai_chat",
                "proposalId": None,
                "reviewer": "Ada",
            },
            separators=(",", ":"),
        )
    )
    same_sha256 = factory.LazyAttribute(lambda case: _digest("case", case.tool_name, case.args, case.number))
    created_by = factory.SubFactory(UserFactory)
    created_at = factory.LazyFunction(timezone.now)
    updated_at = factory.SelfAttribute("created_at")

    @classmethod
    def _after_postgeneration(cls, instance: Case, create: bool, results: Any = None) -> None:
        CaseVersion.objects.create(
            case=instance, number=instance.version, data=record_of(instance), by=instance.created_by
        )


def make_token(
    membership: Membership, *scopes: str, name: str = "a token", expires_at: dt.datetime | None = None
) -> tuple[ApiToken, str]:
    """A live token of this member and its text; every scope unless some are given."""
    return issue_token(
        name=name, scopes=list(scopes or Scope.values), created_by=membership.user, expires_at=expires_at
    )
