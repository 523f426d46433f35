"""Exports that are made in the background: the job, its progress, and the file."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import pgettext_lazy

from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class ExportState(models.TextChoices):
    QUEUED = "queued", pgettext_lazy("export", "Queued")
    RUNNING = "running", pgettext_lazy("export", "Running")
    DONE = "done", pgettext_lazy("export", "Done")
    FAILED = "failed", pgettext_lazy("export", "Failed")
    CANCELLED = "cancelled", pgettext_lazy("export", "Cancelled")
    EXPIRED = "expired", pgettext_lazy("export", "Expired")


class Export(TenantModel):
    """One file on its way out. The row is the truth; a Celery message only says that it is there."""

    kind = models.TextField(help_text="calls, feedback, cases or proposals.")
    format = models.TextField(default="jsonl", help_text="jsonl or csv.")
    query = models.TextField(blank=True, help_text="The filter as the query string of its page.")
    state = models.TextField(choices=ExportState.choices, default=ExportState.QUEUED)
    failure = models.TextField(blank=True, help_text="Why it failed, and what to do.")
    num_expected = models.PositiveBigIntegerField(null=True, help_text="Rows counted when it was ordered; capped.")
    num_written = models.PositiveBigIntegerField(default=0)
    num_bytes = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True, help_text="Of the whole file, trailer included.")
    masks = ArrayField(models.TextField(), default=list, help_text="Names of the rules of masking it went through.")
    schema_version = models.PositiveSmallIntegerField(default=1)
    stored_as = models.TextField(blank=True, help_text="Name under STATE_DIR/exports; emptied when the file is gone.")
    expires_at = models.DateTimeField(null=True)
    attempt = models.PositiveSmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager["Export"]()

    class Meta:
        db_table = "exports"
        constraints = [
            tenant_key("exports"),
            models.CheckConstraint(condition=models.Q(state__in=ExportState.values), name="exports_state_check"),
            models.CheckConstraint(
                condition=models.Q(kind__in=["calls", "feedback", "cases", "proposals"]), name="exports_kind_check"
            ),
            models.CheckConstraint(condition=models.Q(format__in=["jsonl", "csv"]), name="exports_format_check"),
        ]
        indexes = [models.Index(fields=["tenant", "-created_at", "-id"], name="exports_newest_idx")]

    def __str__(self) -> str:
        return f"export {self.pk} of {self.kind}"
