"""Webhooks: who is told of what happens here, and what became of each message."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from tenants.models import Secret, TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class Webhook(TenantModel):
    """An address that is told of some kinds of events: see quality.webhooks.events."""

    name = models.CharField(max_length=120)
    url = models.TextField()
    events = ArrayField(models.TextField(), help_text="Kinds of events; `*`: all of them, those to come included.")
    secret = models.ForeignKey(
        Secret, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    is_enabled = models.BooleanField(default=True)
    disabled_why = models.TextField(blank=True, help_text="Where it was not a person who disabled it.")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Webhook"]()

    class Meta:
        db_table = "webhooks"
        constraints = [
            tenant_key("webhooks"),
            models.UniqueConstraint(fields=["tenant", "name"], name="webhooks_name_key"),
        ]

    def __str__(self) -> str:
        return self.name


class WebhookDelivery(TenantModel):
    """A message to a webhook, written with the event itself. It is sent at least once; the id tells a repeat."""

    class State(models.TextChoices):
        PENDING = "pending", pgettext_lazy("message", "To be sent")
        SENT = "sent", _("Sent")
        FAILED = "failed", _("Failed")

    webhook = models.ForeignKey(
        Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False, db_constraint=False
    )
    event = models.TextField()
    subject = models.TextField(help_text="What it is about, in a word and an id: `call 12`.")
    message_id = models.UUIDField(help_text="The same on each try, and when it is sent again.")
    body = models.TextField()
    state = models.TextField(choices=State.choices, default=State.PENDING)
    attempt = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField(default=timezone.now)
    status = models.PositiveSmallIntegerField(null=True, help_text="HTTP status of the last try.")
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True)

    objects = TenantManager["WebhookDelivery"]()

    class Meta:
        db_table = "webhook_deliveries"
        constraints = [
            tenant_key("webhook_deliveries"),
            models.UniqueConstraint(fields=["tenant", "webhook", "message_id"], name="webhook_deliveries_once_key"),
            models.CheckConstraint(
                condition=models.Q(state__in=["pending", "sent", "failed"]), name="webhook_deliveries_state_check"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "webhook", "-id"], name="webhook_deliveries_newest_idx"),
            models.Index(
                fields=["tenant", "next_at"], name="webhook_deliveries_due_idx", condition=models.Q(state="pending")
            ),
            models.Index(fields=["created_at"], name="webhook_deliveries_old_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.event} to webhook {self.webhook_id}: {self.state}"
