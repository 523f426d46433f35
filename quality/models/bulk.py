"""Bulk actions: one act on many items, what it did to each, and its undo.

The row of an action is the truth and a message only says that it is there. Its items are written down when it is
confirmed, so that it acts on what was looked at and nothing else, and goes on after a crash with those that wait.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from quality.models.base import Label, ProseField
from quality.models.feedback import OnItem
from quality.models.queues import ReviewQueue
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class BulkKind(models.TextChoices):
    LABEL = "label", _("Label")
    TAG = "tag", _("Tag")
    UNTAG = "untag", _("Take a tag off")
    ENQUEUE = "enqueue", _("Add to a queue")
    ARCHIVE = "archive", _("Archive")
    RESTORE = "restore", _("Restore")


class BulkState(models.TextChoices):
    PREVIEW = "preview", _("Waits for you")
    QUEUED = "queued", _("Queued")
    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    STOPPED = "stopped", _("Stopped")
    UNDOING = "undoing", _("Being undone")
    UNDONE = "undone", _("Undone")


LIVE_BULK = (BulkState.QUEUED, BulkState.RUNNING, BulkState.UNDOING)


class BulkAction(TenantModel):
    """One act on many calls: those of a filter as they were when it was looked at, or those that were chosen."""

    kind = models.TextField(choices=BulkKind.choices)
    state = models.TextField(choices=BulkState.choices, default=BulkState.PREVIEW)
    query = models.TextField(blank=True, help_text="The filter of Calls as a query string, bound to what was there.")
    call_ids = ArrayField(
        models.BigIntegerField(),
        default=list,
        help_text="Calls chosen one by one; none: all of the filter.",
    )
    seen_count = models.PositiveIntegerField(default=0, help_text="Calls that it is for, as they were looked at.")
    seen_sha256 = models.CharField(max_length=64, help_text="Of these calls and the versions of their reviews.")
    seen_at = models.DateTimeField(default=timezone.now)
    label = models.TextField(null=True, choices=Label.choices)
    note = ProseField(blank=True)
    tag = models.CharField(max_length=60, blank=True)
    queue = models.ForeignKey(
        ReviewQueue, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    reason = ProseField(blank=True, help_text="Why so many at once; of labels it is part of each note.")
    num_items = models.PositiveIntegerField(default=0)
    num_done = models.PositiveIntegerField(default=0)
    num_skipped = models.PositiveIntegerField(default=0)
    num_failed = models.PositiveIntegerField(default=0)
    num_undone = models.PositiveIntegerField(default=0)
    num_left = models.PositiveIntegerField(default=0, help_text="Not undone: something newer happened to them.")
    failure = ProseField(blank=True)
    attempt = models.PositiveSmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True, help_text="The API token that acted for its maker, if one did.")
    created_at = models.DateTimeField(default=timezone.now)
    confirmed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    undone_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    undone_at = models.DateTimeField(null=True, help_text="When its undo was ordered.")

    objects = TenantManager["BulkAction"]()

    class Meta:
        db_table = "bulk_actions"
        constraints = [
            tenant_key("bulk_actions"),
            models.CheckConstraint(condition=Q(kind__in=BulkKind.values), name="bulk_actions_kind_check"),
            models.CheckConstraint(condition=Q(state__in=BulkState.values), name="bulk_actions_state_check"),
            models.CheckConstraint(
                condition=Q(label__isnull=True) | Q(label__in=Label.values), name="bulk_actions_label_check"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="bulk_actions_newest_idx", condition=~Q(state="preview")),
            models.Index(fields=["lease_until"], name="bulk_actions_due_idx", condition=Q(state__in=LIVE_BULK)),
            models.Index(fields=["created_at"], name="bulk_actions_preview_idx", condition=Q(state="preview")),
        ]

    def __str__(self) -> str:
        return f"bulk action {self.pk}: {self.kind}"


class BulkItem(OnItem):
    """One item of a bulk action: what was done to it, or why it was not."""

    class State(models.TextChoices):
        WAITING = "waiting", _("Waits")
        DONE = "done", _("Done")
        SKIPPED = "skipped", _("Skipped")
        FAILED = "failed", _("Failed")
        UNDONE = "undone", _("Undone")
        LEFT = "left", _("Not undone")

    action = models.ForeignKey(
        BulkAction, on_delete=models.CASCADE, related_name="items", db_index=False, db_constraint=False
    )
    state = models.TextField(choices=State.choices, default=State.WAITING)
    code = models.TextField(blank=True, help_text="Why it was skipped, could not be done, or was not undone.")
    message = ProseField(blank=True)
    version = models.PositiveIntegerField(null=True, help_text="Of a label: the item's version that it made.")
    before = models.JSONField(default=dict, help_text="What its undo puts back.")
    done_at = models.DateTimeField(null=True)

    objects = TenantManager["BulkItem"]()

    class Meta:
        db_table = "bulk_action_items"
        constraints = [
            tenant_key("bulk_action_items"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "cycle", "call", "action"],
                name="bulk_action_items_once_key",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "done", "skipped", "failed", "undone", "left"]),
                name="bulk_action_items_state_check",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "action", "state", "id"], name="bulk_action_items_next_idx"),
            models.Index(fields=["tenant", "call"], name="bulk_action_items_call_idx"),
        ]

    def __str__(self) -> str:
        return f"item {self.pk} of bulk action {self.action_id}: {self.state}"
