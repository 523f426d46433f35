"""API tokens as rows. How one is made and checked: tenants/tokens.py."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models.base import TenantManager, TenantModel, tenant_key
from tenants.models.people import User


class Scope(models.TextChoices):
    """What a token may do."""

    READ = "read", _("Read calls, feedback and summaries")
    FEEDBACK_WRITE = "feedback:write", _("Label calls")
    INGEST_WRITE = "ingest:write", _("Send traces in")
    EXPORT_READ = "export:read", _("Export feedback and cases")
    SETTINGS_WRITE = "settings:write", _("Change tools, models, styles and secrets")
    TURNS_WRITE = "turns:write", _("Run turns and answer their calls")
    REPLAYS_WRITE = "replays:write", _("Start and stop replays")
    GATEWAY = "gateway", _("Send model requests through the recording gateway")


class ApiToken(TenantModel):
    """A bearer token. `public_id` finds it, `digest` (SHA-256 of the whole token) proves it."""

    name = models.CharField(max_length=120)
    public_id = models.CharField(max_length=16)
    digest = models.BinaryField(max_length=32)
    scopes = ArrayField(models.TextField(choices=Scope.choices))
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    rate_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Requests through the gateway; null: as the service is set."
    )
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    objects = TenantManager["ApiToken"]()

    class Meta:
        db_table = "api_tokens"
        constraints = [
            tenant_key("api_tokens"),
            models.UniqueConstraint(fields=["tenant", "public_id"], name="api_tokens_public_id_key"),
        ]
        indexes = [models.Index(fields=["public_id"], name="api_tokens_public_id_idx")]

    def __str__(self) -> str:
        return f"{self.name} (qlab_{self.public_id}…)"

    @property
    def is_live(self) -> bool:
        now = timezone.now()
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)
