"""From labels to fixes: guidelines, proposals with their history, and what the coach suggests."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from quality.models.base import EvidenceField, Label, ProseField
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class GuidelineVersion(TenantModel):
    """What reviewers go by. Append-only: the newest version holds, and a label keeps the one it was given under."""

    number = models.PositiveIntegerField(help_text="From 1 within the tenant.")
    text = models.TextField(help_text="Markdown.")
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["GuidelineVersion"]()

    class Meta:
        db_table = "guideline_versions"
        constraints = [
            tenant_key("guideline_versions"),
            models.UniqueConstraint(fields=["tenant", "number"], name="guideline_versions_number_key"),
        ]

    def __str__(self) -> str:
        return f"guidelines, version {self.number}"


class ProposalState(models.TextChoices):
    PENDING = "pending", pgettext_lazy("proposal", "Open")
    DISMISSED = "dismissed", pgettext_lazy("proposal", "Dismissed")
    APPLIED = "applied", pgettext_lazy("proposal", "Applied")


class ArtifactKind(models.TextChoices):
    """What a fix is made of."""

    PULL_REQUEST = "pull_request", _("Pull request")
    PROMPT_PATCH = "prompt_patch", _("Prompt patch")
    TOOL_SCHEMA_PATCH = "tool_schema_patch", _("Tool schema patch")
    STYLE_UPDATE = "style_update", _("Style update")
    REGRESSION_CASE = "regression_case", _("Regression case")
    OTHER = "other", _("Other")


class Proposal(TenantModel):
    """A tracked improvement: one group of actionable feedback, from its first label to the fix.

    The group is (label, tool, style, fault). Feedback of a group belongs to its pending proposal, and what was said
    after a decision to the next one. So a group has one pending proposal at most.
    """

    label = models.TextField(choices=Label.choices)
    tool_name = models.TextField(help_text="Of the labelled calls; empty where none was made.")
    style_id = models.TextField(blank=True)
    fault = models.TextField(help_text="Kind of the fault: see quality.improve.faults.")
    suggested_kind = models.TextField(choices=ArtifactKind.choices)
    title = models.TextField()
    state = models.TextField(choices=ProposalState.choices, default=ProposalState.PENDING)
    version = models.PositiveIntegerField(default=1, help_text="Counts its events: an older write is stale.")
    reason = ProseField(blank=True, help_text="Why it was dismissed.")
    resolution_kind = models.TextField(choices=ArtifactKind.choices, blank=True)
    resolution_ref = models.TextField(blank=True)
    resolution_note = ProseField(blank=True)
    covers_since = models.DateTimeField(null=True, help_text="Feedback up to the decision before belongs to that one.")
    decided_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    decided_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Proposal"]()

    class Meta:
        db_table = "agent_tool_call_improvement_proposals"
        constraints = [
            tenant_key("agent_tool_call_improvement_proposals"),
            models.UniqueConstraint(
                fields=["tenant", "label", "tool_name", "style_id", "fault"],
                name="agent_tool_call_proposals_pending_key",
                condition=models.Q(state=ProposalState.PENDING),
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=ProposalState.values), name="agent_tool_call_proposals_state_check"
            ),
            models.CheckConstraint(
                condition=models.Q(label__in=Label.values), name="agent_tool_call_proposals_label_check"
            ),
            models.CheckConstraint(
                condition=models.Q(state=ProposalState.PENDING, decided_at=None)
                | models.Q(state=ProposalState.DISMISSED, decided_at__isnull=False)
                | (models.Q(state=ProposalState.APPLIED, decided_at__isnull=False) & ~models.Q(resolution_kind="")),
                name="agent_tool_call_proposals_decision_check",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "-updated_at", "-id"], name="agent_tool_call_proposals_new"),
            models.Index(
                fields=["tenant", "label", "tool_name", "style_id", "fault", "-decided_at"],
                name="agent_tool_call_proposals_grp",
            ),
        ]

    def __str__(self) -> str:
        return f"proposal {self.pk}: {self.title}"


class ProposalEvent(TenantModel):
    """One step of a proposal's history. Never changed, never deleted."""

    class Action(models.TextChoices):
        TRACK = "track", pgettext_lazy("proposal", "Tracked")
        DISMISS = "dismiss", pgettext_lazy("proposal", "Dismissed")
        APPLY = "apply", pgettext_lazy("proposal", "Applied")
        REOPEN = "reopen", pgettext_lazy("proposal", "Reopened")

    proposal = models.ForeignKey(
        Proposal, on_delete=models.CASCADE, related_name="events", db_index=False, db_constraint=False
    )
    version = models.PositiveIntegerField(help_text="The proposal's version after this event.")
    action = models.TextField(choices=Action.choices)
    reason = ProseField(blank=True)
    resolution_kind = models.TextField(choices=ArtifactKind.choices, blank=True)
    resolution_ref = models.TextField(blank=True)
    resolution_note = ProseField(blank=True)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True)
    at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["ProposalEvent"]()

    class Meta:
        db_table = "agent_tool_call_proposal_events"
        constraints = [
            tenant_key("agent_tool_call_proposal_events"),
            models.UniqueConstraint(
                fields=["tenant", "proposal", "version"], name="agent_tool_call_proposal_events_version_key"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} of proposal {self.proposal_id}"


class CoachState(models.TextChoices):
    QUEUED = "queued", pgettext_lazy("run of the coach", "Queued")
    RUNNING = "running", pgettext_lazy("run of the coach", "Running")
    DONE = "done", pgettext_lazy("run of the coach", "Done")
    FAILED = "failed", pgettext_lazy("run of the coach", "Failed")


class CoachRun(TenantModel):
    """The coach's reading of one style's newest feedback. The row is the truth; a Celery message only hints at it."""

    style_id = models.TextField()
    style_version = models.PositiveIntegerField(help_text="The version that the coach read.")
    method = models.TextField(blank=True, help_text="model or rules: who wrote the items.")
    model_label = models.TextField(blank=True)
    state = models.TextField(choices=CoachState.choices, default=CoachState.QUEUED)
    failure = ProseField(blank=True, help_text="Why it failed, and what to do.")
    feedback_ids = ArrayField(models.BigIntegerField(), default=list, help_text="What it was given to read.")
    exchanges = EvidenceField(null=True, help_text="Each request to the model with the body it answered, as received.")
    summary = ProseField(blank=True, help_text="The rationale of the whole, as the coach gives it.")
    num_tokens = models.PositiveIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager["CoachRun"]()

    class Meta:
        db_table = "coach_runs"
        constraints = [
            tenant_key("coach_runs"),
            models.CheckConstraint(condition=models.Q(state__in=CoachState.values), name="coach_runs_state_check"),
        ]
        indexes = [models.Index(fields=["tenant", "-created_at", "-id"], name="coach_runs_newest_idx")]

    def __str__(self) -> str:
        return f"coach run {self.pk} of style {self.style_id}"


class CoachItem(TenantModel):
    """One thing the coach suggests. Data of a model's making: nothing of it is applied until a person accepts it."""

    class Kind(models.TextChoices):
        GUIDANCE = "guidance", _("Guidance line")
        EXAMPLE = "example", _("Example")
        ATTACH_SKILL = "attach_skill", _("Attach a skill")
        DETACH_SKILL = "detach_skill", _("Detach a skill")

    class State(models.TextChoices):
        OPEN = "open", pgettext_lazy("suggestion", "Open")
        ACCEPTED = "accepted", pgettext_lazy("suggestion", "Accepted")
        DISMISSED = "dismissed", pgettext_lazy("suggestion", "Dismissed")
        REVOKED = "revoked", pgettext_lazy("suggestion", "Revoked")

    run = models.ForeignKey(
        CoachRun, on_delete=models.CASCADE, related_name="items", db_index=False, db_constraint=False
    )
    position = models.PositiveSmallIntegerField()
    kind = models.TextField(choices=Kind.choices)
    text = ProseField(blank=True, help_text="The guidance line, or the skill's name.")
    user_text = ProseField(blank=True, help_text="Of an example: what the user says.")
    assistant_text = ProseField(blank=True, help_text="Of an example: what the agent answers.")
    rationale = ProseField(blank=True)
    feedback_ids = ArrayField(models.BigIntegerField(), default=list, help_text="The feedback it rests on.")
    state = models.TextField(choices=State.choices, default=State.OPEN)
    decided_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    decided_at = models.DateTimeField(null=True)
    style_version = models.PositiveIntegerField(null=True, help_text="The version that took it in.")

    objects = TenantManager["CoachItem"]()

    class Meta:
        db_table = "coach_items"
        constraints = [
            tenant_key("coach_items"),
            models.UniqueConstraint(fields=["tenant", "run", "position"], name="coach_items_position_key"),
            models.CheckConstraint(
                condition=models.Q(kind__in=["guidance", "example", "attach_skill", "detach_skill"]),
                name="coach_items_kind_check",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["open", "accepted", "dismissed", "revoked"]),
                name="coach_items_state_check",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.position} of coach run {self.run_id}"
