"""Hints: what rules see in a turn. They help to choose what to look at; a hint is never a label."""

from django.db import models
from django.utils import timezone

from quality.models.base import SentenceField
from quality.models.turns import ToolCall, Turn
from tenants.models import TenantManager, TenantModel
from tenants.models.base import tenant_key


class Hint(TenantModel):
    """One remark of one rule, about a call or, without one, about a turn. Written anew whenever its turn or the rules
    change."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="hints", db_index=False, db_constraint=False)
    call = models.ForeignKey(
        ToolCall, on_delete=models.CASCADE, null=True, related_name="hints", db_index=False, db_constraint=False
    )
    cycle = models.PositiveSmallIntegerField(default=0, help_text="Of the reply it is about.")
    rule = models.TextField(help_text="Name of the rule: see quality.review.hints.")
    path = models.TextField(blank=True, help_text="JSON pointer of the argument it is about, where there is one.")
    sentence = SentenceField(help_text="What was seen, for people, with the evidence in it.")
    started_at = models.DateTimeField(help_text="Repeated from the call or turn: lists are ordered by it.")
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Hint"]()

    class Meta:
        db_table = "agent_tool_call_hints"
        constraints = [
            tenant_key("agent_tool_call_hints"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "call", "cycle", "rule", "path"],
                name="agent_tool_call_hints_once_key",
                nulls_distinct=False,
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "rule", "-started_at", "-call"], name="agent_tool_call_hints_rule_idx"),
            models.Index(fields=["tenant", "call"], name="agent_tool_call_hints_call_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.rule} of turn {self.turn_id}"
