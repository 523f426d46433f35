"""Turns that we run ourselves: the run with its lease, the model's replies, decisions of people, live events."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from quality.models.base import EvidenceField, ProseField
from quality.models.turns import ToolCall, Toolset, Turn, TurnState
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key

LIVE = (TurnState.QUEUED, TurnState.RUNNING)
ENDED = (TurnState.DONE, TurnState.FAILED, TurnState.CANCELLED)


class Channel(models.TextChoices):
    """By which door a turn came in."""

    PAGE = "page", _("Page")
    API = "api", "API"
    WEBSOCKET = "websocket", "WebSocket"
    SCHEDULE = "schedule", _("Schedule")


class TurnRun(TenantModel):
    """How a turn of ours is carried out. This row is the truth of it; `Turn.state` follows in the same transaction.

    Narrow, because it is written often. Who holds `lease_token` may write of the turn, until `lease_until` and as long
    as nobody claimed it anew.
    """

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="runs", db_index=False, db_constraint=False)
    key = models.UUIDField(default=uuid.uuid4, help_text="Begins the idempotency key of each call.")
    conversation_id = models.TextField(blank=True, help_text="Repeated: turns of one conversation run in their order.")
    state = models.TextField(choices=TurnState.choices, default=TurnState.QUEUED)
    channel = models.TextField(choices=Channel.choices)
    model_label = models.TextField(blank=True, help_text="Which model endpoint; empty: the tenant's default.")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True, help_text="The API token that sent it, if one did.")
    attempt = models.PositiveSmallIntegerField(default=0, help_text="Claims since it was queued; a third loss ends it.")
    lease_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    worker = models.TextField(blank=True, help_text="host:pid of the last claim, for people.")
    queued_at = models.DateTimeField(default=timezone.now)
    cancel_requested_at = models.DateTimeField(null=True)
    last_seq = models.PositiveIntegerField(default=0, help_text="Number of the turn's newest event.")
    error = ProseField(blank=True, help_text="Why it failed or stopped, for people.")
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager["TurnRun"]()

    class Meta:
        db_table = "agent_turn_runs"
        constraints = [
            tenant_key("agent_turn_runs"),
            models.UniqueConstraint(fields=["tenant", "turn"], name="agent_turn_runs_turn_key"),
            models.CheckConstraint(condition=models.Q(state__in=TurnState.values), name="agent_turn_runs_state_check"),
            models.CheckConstraint(
                condition=models.Q(channel__in=Channel.values), name="agent_turn_runs_channel_check"
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "queued_at", "id"],
                name="agent_turn_runs_live_idx",
                condition=models.Q(state__in=LIVE),
            ),
            models.Index(
                fields=["tenant", "conversation_id", "id"],
                name="agent_turn_runs_conv_idx",
                condition=models.Q(state__in=(*LIVE, TurnState.AWAITING)),
            ),
            models.Index(
                fields=["tenant", "-queued_at", "-id"],
                name="agent_turn_runs_awaiting_idx",
                condition=models.Q(state=TurnState.AWAITING),
            ),
        ]

    def __str__(self) -> str:
        return f"run of turn {self.turn_id}: {self.state}"


class ModelReply(TenantModel):
    """One reply of the model, or one that did not come (`error_code`). A turn is taken up again from these."""

    turn = models.ForeignKey(
        Turn, on_delete=models.CASCADE, related_name="replies", db_index=False, db_constraint=False
    )
    cycle = models.PositiveSmallIntegerField()
    attempt = models.PositiveSmallIntegerField()
    reply = EvidenceField(null=True, help_text="What it was read as: text, reasoning, calls, broken calls, warnings.")
    exchanges = EvidenceField(help_text="Each request to the server with the body it answered, as received.")
    toolset = models.ForeignKey(
        Toolset, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    model = models.TextField(blank=True)
    finish_reason = models.TextField(null=True)
    prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    tokens_estimated = models.BooleanField(default=False)
    num_bytes = models.PositiveIntegerField(default=0)
    warnings = ArrayField(ProseField(), default=list)
    error_code = models.TextField(blank=True)
    error = ProseField(blank=True)
    started_at = models.DateTimeField(null=True)
    duration_ms = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["ModelReply"]()

    class Meta:
        db_table = "agent_turn_replies"
        constraints = [
            tenant_key("agent_turn_replies"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "cycle"],
                name="agent_turn_replies_cycle_key",
                condition=models.Q(error_code=""),
            ),
        ]
        indexes = [models.Index(fields=["tenant", "turn", "cycle"], name="agent_turn_replies_turn_idx")]

    def __str__(self) -> str:
        return f"reply {self.cycle} of turn {self.turn_id}"


class DecisionKind(models.TextChoices):
    """What was decided on an open call."""

    APPROVE = "approve", pgettext_lazy("call", "Approved")
    DECLINE = "decline", pgettext_lazy("call", "Declined")
    ANSWER = "answer", pgettext_lazy("call", "Answered")
    HAPPENED = "happened", pgettext_lazy("call", "It happened")
    DID_NOT_HAPPEN = "did_not_happen", pgettext_lazy("call", "It did not happen")
    RUN_AGAIN = "run_again", pgettext_lazy("call", "Run again")
    NOT_ANSWERED = "not_answered", pgettext_lazy("call", "Not answered")


class CallDecision(TenantModel):
    """Who decided what on an open call, and when. Never changed, never deleted. A call that opens again (its second run
    was lost too) has another `opening`, and wants another decision."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    call = models.ForeignKey(
        ToolCall, on_delete=models.CASCADE, related_name="decisions", db_index=False, db_constraint=False
    )
    opening = models.PositiveSmallIntegerField()
    kind = models.TextField(choices=DecisionKind.choices)
    arguments = EvidenceField(is_data=True, null=True, help_text="The edited arguments; null: as the model wrote them.")
    text = EvidenceField(
        is_data=True, null=True, help_text="Reason of a decline, or the result given, as a JSON string."
    )
    is_error = models.BooleanField(default=False, help_text="The given result is an error.")
    decided_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["CallDecision"]()

    class Meta:
        db_table = "agent_tool_call_decisions"
        constraints = [
            tenant_key("agent_tool_call_decisions"),
            models.UniqueConstraint(fields=["tenant", "call", "opening"], name="agent_tool_call_decisions_opening_key"),
            models.CheckConstraint(
                condition=models.Q(kind__in=DecisionKind.values), name="agent_tool_call_decisions_kind_check"
            ),
        ]
        indexes = [models.Index(fields=["tenant", "turn"], name="agent_tool_call_decisions_turn")]

    def __str__(self) -> str:
        return f"{self.kind} on call {self.call_id}"


class TurnEvent(TenantModel):
    """What a running turn tells those who watch it. Deleted after an hour; what came of it the turn itself tells."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    seq = models.PositiveIntegerField(help_text="From 1, without gaps, within the turn.")
    data = EvidenceField(help_text="The event as it goes over the wire.")
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["TurnEvent"]()

    class Meta:
        db_table = "turn_events"
        constraints = [
            tenant_key("turn_events"),
            models.UniqueConstraint(fields=["tenant", "turn", "seq"], name="turn_events_seq_key"),
        ]
        indexes = [models.Index(fields=["tenant", "created_at"], name="turn_events_old_idx")]

    def __str__(self) -> str:
        return f"event {self.seq} of turn {self.turn_id}"
