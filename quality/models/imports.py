"""Imports of trace files: the job, its progress, and what was refused."""

from django.db import models
from django.utils import timezone
from django.utils.translation import pgettext_lazy

from quality.models.base import ProseField, SentenceField
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class ImportState(models.TextChoices):
    PREVIEW = "preview", pgettext_lazy("import", "Waits for you")
    QUEUED = "queued", pgettext_lazy("import", "Queued")
    RUNNING = "running", pgettext_lazy("import", "Running")
    DONE = "done", pgettext_lazy("import", "Done")
    FAILED = "failed", pgettext_lazy("import", "Failed")
    TAKING_BACK = "taking_back", pgettext_lazy("import", "Being taken back")
    TAKEN_BACK = "taken_back", pgettext_lazy("import", "Taken back")


class Import(TenantModel):
    """One file on its way in. The row is the truth; a Celery message only says that it is there."""

    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    filename = models.TextField(help_text="As the sender named it; shown, never used as a path.")
    stored_as = models.TextField(blank=True, help_text="Name under STATE_DIR/uploads; emptied when the file is gone.")
    format = models.TextField(default="auto", help_text="auto, or an importer's name; then the one recognised.")
    state = models.TextField(choices=ImportState.choices, default=ImportState.QUEUED)
    failure = SentenceField(blank=True, help_text="Why the whole file was refused, and what to do.")
    bytes_total = models.BigIntegerField(default=0)
    bytes_read = models.BigIntegerField(default=0)
    num_accepted = models.PositiveIntegerField(default=0)
    num_unchanged = models.PositiveIntegerField(default=0)
    num_rejected = models.PositiveIntegerField(default=0)
    num_turns = models.PositiveIntegerField(default=0)
    num_calls = models.PositiveIntegerField(default=0)
    num_taken_back = models.PositiveIntegerField(default=0, help_text="Turns that are gone again, with their calls.")
    taken_back_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    taken_back_at = models.DateTimeField(null=True)
    attempt = models.PositiveSmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager["Import"]()

    class Meta:
        db_table = "imports"
        constraints = [
            tenant_key("imports"),
            models.CheckConstraint(condition=models.Q(state__in=ImportState.values), name="imports_state_check"),
        ]
        indexes = [models.Index(fields=["tenant", "-created_at", "-id"], name="imports_newest_idx")]

    def __str__(self) -> str:
        return f"import {self.pk} of {self.filename}"


class ImportIssue(TenantModel):
    """One refused item, or one warning, with line, field and reason."""

    import_job = models.ForeignKey(
        Import, on_delete=models.CASCADE, related_name="issues", db_index=False, db_constraint=False
    )
    index = models.PositiveIntegerField(help_text="0-based position of the item in the file.")
    line = models.PositiveIntegerField(null=True, help_text="1-based line on which the item begins or the fault lies.")
    code = models.TextField()
    path = ProseField(blank=True, help_text="JSON path of the field at fault.")
    message = SentenceField()

    objects = TenantManager["ImportIssue"]()

    class Meta:
        db_table = "import_issues"
        constraints = [tenant_key("import_issues")]
        indexes = [models.Index(fields=["tenant", "import_job", "index", "id"], name="import_issues_idx")]

    def __str__(self) -> str:
        return f"line {self.line}: {self.code}"
