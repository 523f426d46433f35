"""Review queues: what is to be labelled, by whom, and how far that is.

An item has one entry in a queue, whatever fills it. Who works on an entry has an assignment there: the database counts
distinct reviewers by it.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from quality.models.base import Label, ProseField
from quality.models.feedback import OnItem
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key

MAX_LABELS_NEEDED = 9


def _one_of(field: str, values: list[str], name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(**{f"{field}__in": values}), name=name)


class ReviewQueue(TenantModel):
    """A named set of items to label, with the rule by which it fills and the order in which it is served."""

    class Kind(models.TextChoices):
        RULE = "rule", _("Filled by a filter")
        FIXED = "fixed", _("Filled by hand")
        ADJUDICATION = "adjudication", _("Disagreements of another queue")

    class Order(models.TextChoices):
        NEWEST = "newest", _("Newest first")
        ERRORS = "errors", _("Errors first")
        HINTS = "hints", _("Hints first")
        SPREAD = "spread", _("Spread over tools")
        USEFUL = "useful", _("Most useful next")

    class State(models.TextChoices):
        OPEN = "open", _("Open")
        PAUSED = "paused", _("Paused")
        CLOSED = "closed", _("Closed")

    name = models.CharField(max_length=120)
    kind = models.TextField(choices=Kind.choices, default=Kind.FIXED)
    state = models.TextField(choices=State.choices, default=State.OPEN, help_text="Paused: it does not fill.")
    query = models.TextField(
        blank=True, help_text="Of a rule: the filter of Calls as a query string. Calls that come later may pass it."
    )
    sample_rate = models.FloatField(default=1.0, help_text="Of a rule: share of what passes that is taken, 0 to 1.")
    fills_from = models.DateTimeField(default=timezone.now, help_text="Of a rule: what came in before is not taken.")
    of_queue = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, related_name="+", db_index=False, db_constraint=False
    )
    ordering = models.TextField(choices=Order.choices, default=Order.NEWEST)
    labels_needed = models.PositiveSmallIntegerField(default=1, help_text="Reviewers that label each item, 1 to 9.")
    is_blind = models.BooleanField(default=False, help_text="Nobody sees others' answers before all are in.")
    counts_earlier = models.BooleanField(default=True, help_text="Labels that an item had before it came in count.")
    for_everyone = models.BooleanField(default=True, help_text="False: for the reviewers named alone.")
    guidelines = models.TextField(blank=True, help_text="Markdown, beside the tenant's own.")
    fields = ArrayField(models.TextField(), default=list, blank=True, help_text="Parts shown; none: all of them.")
    backfill = models.JSONField(
        default=dict, blank=True, help_text="What is being added by a worker: filter, place, and how far it is."
    )
    refreshed_at = models.DateTimeField(
        default=timezone.now, help_text="Of the most useful: when its entries were put in order last."
    )
    deleted_at = models.DateTimeField(null=True, help_text="Until the sweep takes it, it can be brought back.")
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["ReviewQueue"]()

    class Meta:
        db_table = "review_queues"
        constraints = [
            tenant_key("review_queues"),
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="review_queues_name_key",
                condition=Q(deleted_at__isnull=True),
                violation_error_message="There is a queue of this name.",
            ),
            _one_of("kind", ["rule", "fixed", "adjudication"], "review_queues_kind_check"),
            _one_of("state", ["open", "paused", "closed"], "review_queues_state_check"),
            _one_of("ordering", ["newest", "errors", "hints", "spread", "useful"], "review_queues_ordering_check"),
            models.CheckConstraint(
                condition=Q(labels_needed__gte=1, labels_needed__lte=MAX_LABELS_NEEDED),
                name="review_queues_labels_range_check",
            ),
            models.CheckConstraint(
                condition=Q(sample_rate__gt=0, sample_rate__lte=1), name="review_queues_sample_rate_check"
            ),
            models.CheckConstraint(
                condition=~Q(kind="adjudication") | Q(of_queue__isnull=False),
                name="review_queues_of_queue_check",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class QueueReviewer(TenantModel):
    """A reviewer whom a queue names."""

    queue = models.ForeignKey(
        ReviewQueue, on_delete=models.CASCADE, related_name="reviewers", db_index=False, db_constraint=False
    )
    reviewer = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+", db_index=False)

    objects = TenantManager["QueueReviewer"]()

    class Meta:
        db_table = "review_queue_reviewers"
        constraints = [
            tenant_key("review_queue_reviewers"),
            models.UniqueConstraint(fields=["tenant", "queue", "reviewer"], name="review_queue_reviewers_key"),
        ]

    def __str__(self) -> str:
        return f"{self.reviewer_id} in queue {self.queue_id}"


class QueueEntry(OnItem):
    """An item in a queue. Served by `priority`, the highest first, then newest first."""

    class State(models.TextChoices):
        OPEN = "open", _("Open")
        DONE = "done", _("Done")
        REMOVED = "removed", _("Taken out")

    queue = models.ForeignKey(
        ReviewQueue, on_delete=models.CASCADE, related_name="entries", db_index=False, db_constraint=False
    )
    state = models.TextField(choices=State.choices, default=State.OPEN)
    priority = models.IntegerField(default=0, help_text="By the queue's order; of the most useful: score x 1000.")
    why = models.JSONField(default=dict, help_text="Of the most useful: the parts of its score, by name.")
    started_at = models.DateTimeField(help_text="Repeated from the call or turn.")
    tool_name = models.TextField(blank=True)
    num_labels = models.PositiveSmallIntegerField(default=0, help_text="Distinct reviewers who labelled it here.")
    labels_needed = models.PositiveSmallIntegerField(default=1)
    is_blind = models.BooleanField(default=False, help_text="Repeated from the queue: lists hide labels by it.")
    agreed = models.BooleanField(null=True, help_text="Once it is done: did all say the same? Null: one alone did.")
    added_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    added_at = models.DateTimeField(default=timezone.now)
    done_at = models.DateTimeField(null=True)

    objects = TenantManager["QueueEntry"]()

    class Meta:
        db_table = "review_queue_entries"
        constraints = [
            tenant_key("review_queue_entries"),
            models.UniqueConstraint(
                fields=["tenant", "queue", "turn", "cycle", "call"],
                name="review_queue_entries_item_key",
                nulls_distinct=False,
            ),
            _one_of("state", ["open", "done", "removed"], "review_queue_entries_state_check"),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "queue", "state", "-priority", "-started_at", "-id"],
                name="review_queue_entries_next_idx",
            ),
            models.Index(fields=["tenant", "call"], name="review_queue_entries_call_idx"),
            models.Index(
                fields=["tenant", "call"],
                name="review_queue_entries_blind_idx",
                condition=Q(is_blind=True, state="open"),
            ),
            models.Index(fields=["tenant", "turn", "cycle"], name="review_queue_entries_turn_idx"),
            models.Index(
                fields=["tenant", "queue", "tool_name"],
                name="review_queue_entries_tool_idx",
            ),
        ]

    def __str__(self) -> str:
        return f"entry {self.pk} of queue {self.queue_id}: {self.state}"


class Assignment(TenantModel):
    """What one reviewer has to do with an entry: he holds it for now, labelled it, skipped it, or sent it back."""

    class State(models.TextChoices):
        CLAIMED = "claimed", _("At work")
        LABELLED = "labelled", _("Labelled")
        SKIPPED = "skipped", _("Skipped")
        SENT_BACK = "sent_back", _("Sent back")
        HANDED = "handed", _("Handed over")

    entry = models.ForeignKey(
        QueueEntry, on_delete=models.CASCADE, related_name="assignments", db_index=False, db_constraint=False
    )
    queue = models.ForeignKey(
        ReviewQueue, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    reviewer = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    state = models.TextField(choices=State.choices, default=State.CLAIMED)
    label = models.TextField(null=True, choices=Label.choices, help_text="Once labelled.")
    expires_at = models.DateTimeField(null=True, help_text="Of a claim: afterwards others may take it.")
    handed_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    note = ProseField(blank=True, help_text="Why it was skipped, sent back or handed over.")
    seconds = models.PositiveIntegerField(null=True, help_text="From the screen to the label.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Assignment"]()

    class Meta:
        db_table = "review_assignments"
        constraints = [
            tenant_key("review_assignments"),
            models.UniqueConstraint(fields=["tenant", "entry", "reviewer"], name="review_assignments_reviewer_key"),
            _one_of(
                "state", ["claimed", "labelled", "skipped", "sent_back", "handed"], "review_assignments_state_check"
            ),
            models.CheckConstraint(
                condition=Q(label__isnull=True) | Q(label__in=Label.values), name="review_assignments_label_check"
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "queue", "reviewer", "state", "-updated_at"], name="review_assignments_mine_idx"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reviewer_id} on entry {self.entry_id}: {self.state}"


class ItemTag(OnItem):
    """A word that people put on an item to find it again."""

    tag = models.CharField(max_length=60)
    started_at = models.DateTimeField(help_text="Repeated from the call or turn: lists are ordered by it.")
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["ItemTag"]()

    class Meta:
        db_table = "agent_tool_call_tags"
        constraints = [
            tenant_key("agent_tool_call_tags"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "cycle", "call", "tag"],
                name="agent_tool_call_tags_once_key",
                nulls_distinct=False,
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "tag", "-started_at", "-call"], name="agent_tool_call_tags_tag_idx"),
            models.Index(fields=["tenant", "call"], name="agent_tool_call_tags_call_idx"),
        ]

    def __str__(self) -> str:
        return self.tag


class Suggestion(OnItem):
    """What a model says of an item, for a person to take or to leave. Never a label."""

    class State(models.TextChoices):
        OPEN = "open", _("Open")
        ACCEPTED = "accepted", _("Accepted")
        OVERRULED = "overruled", _("Overruled")

    run = models.ForeignKey(
        "quality.SuggestionRun",
        on_delete=models.CASCADE,
        related_name="suggestions",
        db_index=False,
        db_constraint=False,
    )
    model = models.TextField(help_text="Of the endpoint that said it.")
    label = models.TextField(choices=Label.choices)
    confidence = models.FloatField(null=True, help_text="0 to 1, as the model says; null: it said none.")
    reason = ProseField(blank=True)
    tool_name = models.TextField(blank=True)
    guideline_version = models.PositiveIntegerField(null=True)
    state = models.TextField(choices=State.choices, default=State.OPEN)
    decided_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    decided_label = models.TextField(null=True, choices=Label.choices)
    decided_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Suggestion"]()

    class Meta:
        db_table = "label_suggestions"
        constraints = [
            tenant_key("label_suggestions"),
            models.UniqueConstraint(
                fields=["tenant", "turn", "cycle", "call"], name="label_suggestions_item_key", nulls_distinct=False
            ),
            _one_of("state", ["open", "accepted", "overruled"], "label_suggestions_state_check"),
            _one_of("label", Label.values, "label_suggestions_label_check"),
        ]
        indexes = [
            models.Index(fields=["tenant", "call"], name="label_suggestions_call_idx"),
            models.Index(fields=["tenant", "run", "id"], include=["state"], name="label_suggestions_run_idx"),
            models.Index(
                fields=["tenant", "decided_by", "decided_at"],
                include=["state"],
                name="label_suggestions_decided_idx",
                condition=Q(decided_by__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.label} suggested by {self.model}"


class SuggestionRun(TenantModel):
    """One order to have a model judge items in advance, with its budget."""

    class State(models.TextChoices):
        QUEUED = "queued", _("Queued")
        RUNNING = "running", _("Running")
        DONE = "done", _("Done")
        CANCELLED = "cancelled", _("Cancelled")
        FAILED = "failed", _("Failed")

    endpoint_label = models.TextField(help_text="Of the model endpoint that judges.")
    queue = models.ForeignKey(
        ReviewQueue, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    query = models.TextField(blank=True, help_text="The filter of Calls whose items are judged, where no queue is.")
    state = models.TextField(choices=State.choices, default=State.QUEUED)
    max_items = models.PositiveIntegerField()
    max_tokens = models.PositiveBigIntegerField(null=True)
    num_items = models.PositiveIntegerField(default=0, help_text="Judged so far.")
    num_failed = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    place = models.JSONField(default=dict, help_text="Where it goes on.")
    ended_why = models.TextField(blank=True)
    failure = ProseField(blank=True)
    fence = models.PositiveIntegerField(default=0, help_text="Raised by each claim: an older holder writes nothing.")
    leased_until = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    objects = TenantManager["SuggestionRun"]()

    class Meta:
        db_table = "suggestion_runs"
        constraints = [
            tenant_key("suggestion_runs"),
            _one_of("state", ["queued", "running", "done", "cancelled", "failed"], "suggestion_runs_state_check"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-created_at", "-id"], name="suggestion_runs_newest_idx"),
            models.Index(
                fields=["leased_until"], name="suggestion_runs_due_idx", condition=Q(state__in=["queued", "running"])
            ),
        ]

    def __str__(self) -> str:
        return f"suggestions by {self.endpoint_label}: {self.state}"
