"""Turns, their tool calls, and the tools that were offered."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import pgettext_lazy

from quality.models.base import DefinitionField, EvidenceField, ProseField
from tenants.models import TenantManager, TenantModel
from tenants.models.base import tenant_key


class Toolset(TenantModel):
    """The tools offered on a request, content-addressed: `sha256` of the canonical JSON."""

    sha256 = models.CharField(max_length=64)
    tools = DefinitionField(help_text="Array of tool definitions in OpenAI form, as received.")
    num_tools = models.PositiveSmallIntegerField()
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Toolset"]()

    class Meta:
        db_table = "agent_toolsets"
        constraints = [
            tenant_key("agent_toolsets"),
            models.UniqueConstraint(fields=["tenant", "sha256"], name="agent_toolsets_sha256_key"),
        ]

    def __str__(self) -> str:
        return f"toolset {self.sha256[:8]}"


class TurnState(models.TextChoices):
    QUEUED = "queued", pgettext_lazy("turn", "Queued")
    RUNNING = "running", pgettext_lazy("turn", "Running")
    AWAITING = "awaiting", pgettext_lazy("turn", "Awaiting")
    DONE = "done", pgettext_lazy("turn", "Done")
    FAILED = "failed", pgettext_lazy("turn", "Failed")
    CANCELLED = "cancelled", pgettext_lazy("turn", "Cancelled")


class Turn(TenantModel):
    """One inbound user message and all the agent did to answer it (one trace)."""

    source = models.TextField(help_text="Where it comes from: an importer's name, or `engine` for our own loop.")
    external_id = models.TextField(help_text="Unique for tenant and source.")
    content_sha256 = models.BinaryField(max_length=32, help_text="Tells the same turn sent again from another one.")
    conversation_id = models.TextField(blank=True)
    contact_id = ProseField(blank=True)
    message_id = models.TextField(blank=True, help_text="Id of the inbound message.")
    outbound_message_id = models.TextField(blank=True, help_text="Id of the reply that was sent.")
    state = models.TextField(choices=TurnState.choices, default=TurnState.DONE)
    end_reason = models.TextField(blank=True)
    model = models.TextField(blank=True)
    provider = models.TextField(blank=True)
    style_id = models.TextField(blank=True)
    prompt_version = models.TextField(blank=True)
    toolset = models.ForeignKey(
        Toolset, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    position = models.PositiveIntegerField(default=0, help_text="Ordinal of the turn in its conversation, from 0.")
    messages = EvidenceField(
        null=True, help_text="This turn's own messages in OpenAI chat form: user message, replies, tool results, reply."
    )
    system = EvidenceField(null=True, help_text="System prompt as a JSON string, where the source has it.")
    history = EvidenceField(
        null=True,
        help_text="Earlier messages as the caller gave them; null: those of the conversation's earlier turns.",
    )
    num_calls = models.PositiveSmallIntegerField(default=0)
    num_cycles = models.PositiveSmallIntegerField(default=0)
    warnings = ArrayField(ProseField(), default=list)
    started_at = models.DateTimeField(default=timezone.now)
    time_recorded = models.BooleanField(default=True, help_text="False: the source gave no time, started_at is ours.")
    duration_ms = models.PositiveIntegerField(null=True)
    hints_version = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Of the rules that its hints were made by; 0: they are to be made."
    )
    import_job = models.ForeignKey(
        "quality.Import", on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Turn"]()

    class Meta:
        db_table = "agent_turns"
        constraints = [
            tenant_key("agent_turns"),
            models.UniqueConstraint(fields=["tenant", "source", "external_id"], name="agent_turns_external_id_key"),
            models.CheckConstraint(condition=models.Q(state__in=TurnState.values), name="agent_turns_state_check"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-started_at", "-id"], name="agent_turns_newest_idx"),
            models.Index(fields=["tenant", "conversation_id", "started_at", "position"], name="agent_turns_conv_idx"),
            models.Index(
                fields=["tenant", "-started_at", "-id"],
                name="agent_turns_no_call_idx",
                condition=models.Q(num_calls=0),
            ),
            models.Index(fields=["tenant", "id"], name="agent_turns_hints_idx", condition=models.Q(hints_version=0)),
            models.Index(
                fields=["tenant", "import_job", "id"],
                name="agent_turns_import_idx",
                condition=models.Q(import_job__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"turn {self.pk}"


class CallState(models.TextChoices):
    STREAMING = "streaming", pgettext_lazy("call", "Streaming")
    PENDING = "pending", pgettext_lazy("call", "Pending")
    RUNNING = "running", pgettext_lazy("call", "Running")
    RESULT = "result", pgettext_lazy("call", "Result")
    ERROR = "error", pgettext_lazy("call", "Error")
    # It was made, its outcome is not known: lost, or never recorded.
    UNKNOWN = "unknown", pgettext_lazy("call", "Unknown")


class ToolCall(TenantModel):
    """One tool call: the unit of work. Found again by (turn, cycle, index)."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="calls", db_index=False, db_constraint=False)
    cycle = models.PositiveSmallIntegerField(help_text="Ordinal of the model reply in the turn, from 0.")
    index = models.PositiveSmallIntegerField(help_text="Position of the call in that reply, from 0.")
    tool_call_id = models.TextField(null=True, help_text="As the model gave it; not unique.")
    tool_name = models.TextField()
    args = EvidenceField(is_data=True, null=True)
    result = EvidenceField(is_data=True, null=True)
    is_error = models.BooleanField(null=True, help_text="None: no outcome was recorded.")
    error = ProseField(null=True)
    state = models.TextField(choices=CallState.choices)
    started_at = models.DateTimeField(help_text="Of the asking reply; the turn's own time where the source has none.")
    time_recorded = models.BooleanField(default=True)
    duration_ms = models.PositiveIntegerField(null=True)
    # Repeated from the turn: lists and filters read this table alone.
    source = models.TextField()
    external_id = models.TextField()
    content_sha256 = models.BinaryField(max_length=32)
    conversation_id = models.TextField(blank=True)
    contact_id = ProseField(blank=True)
    message_id = models.TextField(blank=True, help_text="Id of the reply that asked for the call.")
    outbound_message_id = models.TextField(blank=True)
    model = models.TextField(blank=True)
    provider = models.TextField(blank=True)
    style_id = models.TextField(blank=True)
    prompt_version = models.TextField(blank=True)
    toolset = models.ForeignKey(
        Toolset, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    warnings = ArrayField(ProseField(), default=list)
    created_at = models.DateTimeField(default=timezone.now)
    # What only a turn of our own has.
    mode = models.TextField(null=True, help_text="auto, approve or client, as it applied to this call.")
    safety = models.TextField(null=True, help_text="safe or unsafe.")
    args_run = EvidenceField(is_data=True, null=True, help_text="The arguments that a person made of the model's.")
    shown = EvidenceField(
        is_data=True, null=True, help_text="What the model read, as a JSON string; null: the whole result."
    )
    details = EvidenceField(null=True, help_text="Of the outcome: HTTP status, encoding of the result and the like.")
    opening = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="How often the call came to wait for a decision."
    )

    objects = TenantManager["ToolCall"]()

    class Meta:
        db_table = "agent_tool_calls"
        constraints = [
            tenant_key("agent_tool_calls"),
            models.UniqueConstraint(
                fields=["tenant", "source", "external_id"], name="agent_tool_calls_external_id_key"
            ),
            models.UniqueConstraint(fields=["tenant", "turn", "cycle", "index"], name="agent_tool_calls_place_key"),
            models.CheckConstraint(condition=models.Q(state__in=CallState.values), name="agent_tool_calls_state_check"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-started_at", "-id"], name="agent_tool_calls_newest_idx"),
            models.Index(fields=["tenant", "tool_name", "-started_at", "-id"], name="agent_tool_calls_tool_idx"),
            models.Index(fields=["tenant", "conversation_id", "-started_at"], name="agent_tool_calls_conv_idx"),
            *(
                models.Index(
                    fields=["tenant", column, "-started_at", "-id"],
                    name=f"agent_tool_calls_{name}_idx",
                    condition=~models.Q(**{column: ""}),
                )
                for name, column in (
                    ("contact", "contact_id"),
                    ("msg", "message_id"),
                    ("out", "outbound_message_id"),
                )
            ),
            models.Index(
                fields=["tenant", "-started_at", "-id"],
                name="agent_tool_calls_error_idx",
                condition=models.Q(is_error=True),
            ),
            models.Index(
                fields=["tenant", "-started_at", "-id"],
                name="agent_tool_calls_no_end_idx",
                condition=models.Q(is_error__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"call {self.pk} of {self.tool_name}"
