"""What the recording gateway remembers between requests, and what it failed to record."""

from django.db import models
from django.utils import timezone

from quality.models.base import SentenceField
from quality.models.turns import Turn
from tenants.models import TenantManager, TenantModel
from tenants.models.base import tenant_key


class GatewayHistory(TenantModel):
    """A history that was seen: by its fingerprint the next request of the same conversation is known."""

    sha256 = models.BinaryField(max_length=32, help_text="Of the messages up to here, each in canonical form.")
    conversation_id = models.TextField()
    turn = models.ForeignKey(
        Turn, on_delete=models.CASCADE, null=True, related_name="+", db_index=False, db_constraint=False
    )
    num_messages = models.PositiveIntegerField()
    cycle = models.PositiveSmallIntegerField(default=0, help_text="Of the reply that ends it, within its turn.")
    seen_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["GatewayHistory"]()

    class Meta:
        db_table = "gateway_histories"
        constraints = [
            tenant_key("gateway_histories"),
            models.UniqueConstraint(
                fields=["tenant", "sha256", "conversation_id"], name="gateway_histories_sha256_key"
            ),
        ]
        indexes = [
            models.Index(fields=["seen_at"], name="gateway_histories_age_idx"),
            models.Index(fields=["tenant", "turn"], name="gateway_histories_turn_idx"),
        ]

    def __str__(self) -> str:
        return f"history of {self.conversation_id}"


class GatewayDay(TenantModel):
    """What went through an endpoint on a day, and how much of it was not recorded."""

    day = models.DateField()
    model_label = models.TextField()
    num_requests = models.PositiveIntegerField(default=0)
    num_failed = models.PositiveIntegerField(default=0, help_text="The upstream's errors, passed on.")
    num_repaired = models.PositiveIntegerField(default=0, help_text="Replies whose calls came as text.")
    num_gaps = models.PositiveIntegerField(default=0, help_text="Requests that went through and were not recorded.")
    last_gap_at = models.DateTimeField(null=True)
    last_gap = SentenceField(blank=True, help_text="Why the last of them was not.")

    objects = TenantManager["GatewayDay"]()

    class Meta:
        db_table = "gateway_days"
        constraints = [
            tenant_key("gateway_days"),
            models.UniqueConstraint(fields=["tenant", "day", "model_label"], name="gateway_days_day_key"),
        ]

    def __str__(self) -> str:
        return f"gateway, {self.day} of {self.model_label}"
