"""Regression cases: what a fault was and what is expected instead, in versions."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import pgettext_lazy

from quality.models.base import DefinitionField, EvidenceField, Label, ProseField
from quality.models.improve import Proposal
from quality.models.turns import ToolCall
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class CaseStatus(models.TextChoices):
    ACTIVE = "active", pgettext_lazy("case", "Active")
    ARCHIVED = "archived", pgettext_lazy("case", "Archived")


class Case(TenantModel):
    """A regression case `REG-<number>`. It stands alone: what it needs of its call is copied, so that it outlives it.

    Links (call, proposal) are for finding the way back; `context` is what the export says of them, frozen.
    """

    number = models.PositiveIntegerField(help_text="Of REG-<number>; from 1 within the tenant, never used again.")
    version = models.PositiveIntegerField(default=1)
    status = models.TextField(choices=CaseStatus.choices, default=CaseStatus.ACTIVE)
    tool_name = models.TextField(blank=True, help_text="Of the recorded call; empty where none was made.")
    label = models.TextField(choices=Label.choices)
    tags = ArrayField(models.TextField(), default=list)
    # input
    args = EvidenceField(is_data=True, null=True, help_text="The recorded arguments; null where no call was made.")
    messages = EvidenceField(help_text="What the model was given: OpenAI chat messages up to the turn under test.")
    tools = DefinitionField(null=True, help_text="The tools offered then, in OpenAI form; null: not known.")
    now = models.DateTimeField(null=True, help_text="The case's own present, for dates.")
    # observed
    result = EvidenceField(is_data=True, null=True)
    is_error = models.BooleanField(null=True)
    error = ProseField(null=True)
    cycle = models.PositiveSmallIntegerField(default=0)
    index = models.PositiveSmallIntegerField(null=True, help_text="Null where no call was made.")
    # expected
    behavior = ProseField(help_text="Text for people.")
    expectation = EvidenceField(help_text="JSON of the expectation language.")
    stubs = EvidenceField(default="[]", help_text="Recorded results and written stubs for replay.")
    context = EvidenceField(help_text="conversationId, messageId, styleId, model, source, proposalId, reviewer.")
    # provenance and duplicates
    call = models.ForeignKey(
        ToolCall, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    feedback_id = models.BigIntegerField(null=True, help_text="The label it was made of; may be gone.")
    proposal = models.ForeignKey(
        Proposal, on_delete=models.SET_NULL, null=True, related_name="cases", db_index=False, db_constraint=False
    )
    merged_into = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    same_sha256 = models.BinaryField(
        max_length=32, help_text="Of tool, canonical arguments and context: equal ones are duplicates."
    )
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Case"]()

    class Meta:
        db_table = "agent_tool_call_regression_cases"
        constraints = [
            tenant_key("agent_tool_call_regression_cases"),
            models.UniqueConstraint(fields=["tenant", "number"], name="agent_tool_call_cases_number_key"),
            models.CheckConstraint(
                condition=models.Q(status__in=CaseStatus.values), name="agent_tool_call_cases_status_check"
            ),
            models.CheckConstraint(
                condition=models.Q(label__in=Label.values), name="agent_tool_call_cases_label_check"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "status", "-number"], name="agent_tool_call_cases_list_idx"),
            models.Index(fields=["tenant", "same_sha256"], name="agent_tool_call_cases_same_idx"),
            models.Index(fields=["tenant", "call"], name="agent_tool_call_cases_call_idx"),
            models.Index(fields=["tenant", "proposal"], name="agent_tool_call_cases_prop_idx"),
        ]

    @property
    def ref(self) -> str:
        return f"REG-{self.number}"

    def __str__(self) -> str:
        return f"case {self.ref}"


class CaseVersion(TenantModel):
    """What a case was: append-only. `data` is the exported record, as JSON text."""

    case = models.ForeignKey(
        Case, on_delete=models.CASCADE, related_name="versions", db_index=False, db_constraint=False
    )
    number = models.PositiveIntegerField()
    data = EvidenceField()
    note = ProseField(blank=True, help_text="Why it was changed.")
    by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True)
    at = models.DateTimeField(default=timezone.now)
    origin_sha256 = models.BinaryField(
        max_length=32, null=True, help_text="Of the line it was imported from: the same line again changes nothing."
    )

    objects = TenantManager["CaseVersion"]()

    class Meta:
        db_table = "agent_tool_call_regression_case_versions"
        constraints = [
            tenant_key("agent_tool_call_regression_case_versions"),
            models.UniqueConstraint(
                fields=["tenant", "case", "number"], name="agent_tool_call_case_versions_number_key"
            ),
            models.UniqueConstraint(
                fields=["tenant", "origin_sha256"], name="agent_tool_call_case_versions_origin_key"
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.number} of case {self.case_id}"
