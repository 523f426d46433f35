"""What reviewers say. Labels are append-only events with a current state; undo is a new event."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import pgettext_lazy

from quality.models.base import ACTIONABLE, EvidenceField, Label, ProseField
from quality.models.turns import ToolCall, Turn
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class OnItem(TenantModel):
    """Base of what hangs on an item of review: a call, or a turn and cycle where no call was made (`call` is null)."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    cycle = models.PositiveSmallIntegerField()
    call = models.ForeignKey(
        ToolCall, on_delete=models.CASCADE, null=True, related_name="+", db_index=False, db_constraint=False
    )

    class Meta:
        abstract = True


def _label_check(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=models.Q(label__in=Label.values), name=name)


class Review(OnItem):
    """The state of one item's review; made by its first label. `version` counts the item's events: a write that saw
    another version is stale. Narrow on purpose: filters by label read this table, never the wide one."""

    version = models.PositiveIntegerField(default=0)
    label = models.TextField(null=True, choices=Label.choices, help_text="The newest current label; null: none left.")
    num_labels = models.PositiveSmallIntegerField(default=0, help_text="Reviewers with a current label.")
    tool_name = models.TextField(blank=True)
    started_at = models.DateTimeField()
    updated_at = models.DateTimeField(default=timezone.now)
    archived_at = models.DateTimeField(null=True, help_text="Since when lists and Review leave it out.")

    objects = TenantManager["Review"]()

    class Meta:
        db_table = "agent_tool_call_reviews"
        constraints = [
            tenant_key("agent_tool_call_reviews"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "cycle", "call"],
                name="agent_tool_call_reviews_item_key",
                nulls_distinct=False,
            ),
            _label_check("agent_tool_call_reviews_label_check"),
        ]
        indexes = [
            models.Index(fields=["tenant", "call"], name="agent_tool_call_reviews_call"),
            models.Index(fields=["tenant", "label", "-started_at", "-id"], name="agent_tool_call_reviews_label"),
            models.Index(
                fields=["tenant", "call"],
                name="agent_tool_call_reviews_arch",
                condition=models.Q(archived_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"review {self.pk}: {self.label} (version {self.version})"


class Feedback(OnItem):
    """One reviewer's current label on an item, with note and correction."""

    reviewer = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    label = models.TextField(choices=Label.choices)
    note = ProseField(blank=True)
    correction = EvidenceField(null=True)
    # Derived from call, label and correction when it is given, so that groups are read from this table alone.
    tool_name = models.TextField(blank=True, db_default="")
    style_id = models.TextField(blank=True, db_default="")
    faults = ArrayField(models.TextField(), default=list, db_default=[], help_text="See quality.improve.faults.")
    guideline_version = models.PositiveIntegerField(null=True, help_text="The guidelines then; null: there were none.")
    version = models.PositiveIntegerField(help_text="The item's version that this label made.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Feedback"]()

    class Meta:
        db_table = "agent_tool_call_feedback"
        constraints = [
            tenant_key("agent_tool_call_feedback"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "cycle", "call", "reviewer"],
                name="agent_tool_call_feedback_reviewer_key",
                nulls_distinct=False,
            ),
            _label_check("agent_tool_call_feedback_label_check"),
        ]
        indexes = [
            models.Index(fields=["tenant", "call"], name="agent_tool_call_feedback_call"),
            models.Index(fields=["tenant", "-updated_at", "-id"], name="agent_tool_call_feedback_new"),
            models.Index(
                fields=["tenant", "label", "tool_name", "style_id", "-updated_at"],
                name="agent_tool_call_feedback_grp",
                condition=models.Q(label__in=ACTIONABLE),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.label} by {self.reviewer_id}"


class FeedbackEvent(OnItem):
    """One step of an item's history: a label was given, or taken back. Never changed, never deleted."""

    class Action(models.TextChoices):
        LABEL = "label", pgettext_lazy("label", "Labelled")
        UNDO = "undo", pgettext_lazy("label", "Undone")

    reviewer = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    action = models.TextField(choices=Action.choices)
    label = models.TextField(
        null=True, choices=Label.choices, help_text="The reviewer's label after this event; null: none."
    )
    note = ProseField(blank=True)
    correction = EvidenceField(null=True)
    guideline_version = models.PositiveIntegerField(null=True)
    version = models.PositiveIntegerField(help_text="The item's version after this event.")
    undoes = models.PositiveIntegerField(null=True, help_text="Version of the event that this one takes back.")
    nonce = models.UUIDField(null=True, help_text="Of the form that sent it: the same form twice is one event.")
    token_id = models.BigIntegerField(null=True, help_text="The API token that acted for the reviewer, if one did.")
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["FeedbackEvent"]()

    class Meta:
        db_table = "agent_tool_call_feedback_events"
        constraints = [
            tenant_key("agent_tool_call_feedback_events"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "cycle", "call", "version"],
                name="agent_tool_call_feedback_events_version_key",
                nulls_distinct=False,
            ),
            models.UniqueConstraint(fields=["tenant", "nonce"], name="agent_tool_call_feedback_events_nonce_key"),
            _label_check("agent_tool_call_feedback_events_label_check"),
            models.CheckConstraint(
                condition=models.Q(action__in=["label", "undo"]), name="agent_tool_call_feedback_events_action_check"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "reviewer", "-id"], name="agent_tool_call_events_mine"),
            models.Index(fields=["tenant", "call"], name="agent_tool_call_events_call"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.label} (version {self.version})"
