"""The audit log as rows; tenants/audit.py writes them."""

from django.db import models

from tenants.models.base import TenantManager, TenantModel, tenant_key
from tenants.models.people import User


class AuditEvent(TenantModel):
    """Who did what to which object. Append-only: the application's role can neither change nor delete a row."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.ForeignKey(User, on_delete=models.DO_NOTHING, null=True, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True, help_text="The API token that acted, if one did.")
    action = models.TextField(help_text="subject.verb, such as token.created")
    object_type = models.TextField()
    object_id = models.TextField()
    before_sha256 = models.BinaryField(max_length=32, null=True)
    after_sha256 = models.BinaryField(max_length=32, null=True)
    detail = models.JSONField(default=dict, help_text="Small facts for people; never a secret, never evidence.")
    request_id = models.TextField(blank=True)

    objects = TenantManager["AuditEvent"]()

    class Meta:
        db_table = "audit_events"
        constraints = [tenant_key("audit_events")]
        indexes = [models.Index(fields=["tenant", "-at", "-id"], name="audit_events_newest_idx")]

    def __str__(self) -> str:
        return f"{self.action} {self.object_type} {self.object_id}"
