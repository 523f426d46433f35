"""Secrets as rows, and where each may be sent. How one is sealed and read: tenants/secrets.py."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from tenants.models.base import TenantManager, TenantModel, tenant_key
from tenants.models.people import User


class Purpose(models.TextChoices):
    """Who may ask for a secret. Tools reach those of tools alone."""

    TOOL = "tool", _("HTTP tools")
    MODEL = "model", _("A model's key")
    BOOKING = "booking", _("The booking link")
    WEBHOOK = "webhook", _("Signatures of webhooks")


class Secret(TenantModel):
    """A sealed value. `kid` names the key that wraps its data key; the value itself never leaves but for its use."""

    name = models.CharField(max_length=80)
    purpose = models.TextField(choices=Purpose.choices, default=Purpose.TOOL)
    kid = models.CharField(max_length=32)
    wrapped_key = models.BinaryField()
    ciphertext = models.BinaryField()
    fingerprint = models.CharField(max_length=16)
    set_at = models.DateTimeField()
    set_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    was_attached = models.BooleanField(
        default=False, help_text="It has been used with a tool: for another one or another host it is asked for again."
    )

    objects = TenantManager["Secret"]()

    class Meta:
        db_table = "secrets"
        constraints = [
            tenant_key("secrets"),
            models.UniqueConstraint(fields=["tenant", "name"], name="secrets_name_key"),
            models.CheckConstraint(condition=models.Q(purpose__in=Purpose.values), name="secrets_purpose_check"),
        ]

    def __str__(self) -> str:
        return f"secret {self.name}"


class SecretUse(TenantModel):
    """The leave to send a secret with one tool to one origin."""

    secret = models.ForeignKey(
        Secret, on_delete=models.CASCADE, related_name="uses", db_index=False, db_constraint=False
    )
    tool_name = models.CharField(max_length=64)
    origin = models.TextField(help_text="scheme://host:port")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantManager["SecretUse"]()

    class Meta:
        db_table = "secret_uses"
        constraints = [
            tenant_key("secret_uses"),
            models.UniqueConstraint(fields=["tenant", "secret", "tool_name", "origin"], name="secret_uses_place_key"),
        ]
        indexes = [models.Index(fields=["tenant", "tool_name"], name="secret_uses_tool_idx")]

    def __str__(self) -> str:
        return f"{self.tool_name} at {self.origin}"
