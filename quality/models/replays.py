"""Replays: cases put to models again, sample by sample, and what came of it."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from quality.models.base import DefinitionField, DerivedField, EvidenceField, ProseField
from quality.models.cases import Case
from quality.models.turns import Toolset
from tenants.models import Secret, TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class ReplaySchedule(TenantModel):
    """A replay that begins whenever the cron expression says so: the cases of a filter as they are then."""

    class NotifyOn(models.TextChoices):
        REGRESSION = "regression", _("A confirmed regression")
        NOT_PASSED = "not_passed", _("Anything but a passed gate")
        ALWAYS = "always", _("Each run")

    class Baseline(models.TextChoices):
        PREVIOUS = "previous", _("The run before")
        NONE = "none", _("None: each case has to pass")

    name = models.CharField(max_length=120)
    cron = models.CharField(max_length=120, help_text="Minute, hour, day, month, weekday.")
    zone = models.CharField(max_length=64, default="UTC")
    is_enabled = models.BooleanField(default=True)
    query = models.TextField(blank=True, help_text="Filter of the cases, as the query string of their page.")
    sides = models.JSONField(help_text="One or two sides as they are asked for; the first of two is the baseline.")
    settings = models.JSONField(default=dict, help_text="Samples, concurrency, budgets: see quality.replay.plan.")
    baseline = models.TextField(
        choices=Baseline.choices, default=Baseline.PREVIOUS, help_text="What one side is compared with."
    )
    notify_on = models.TextField(choices=NotifyOn.choices, default=NotifyOn.REGRESSION)
    webhook_url = models.TextField(blank=True)
    webhook_secret = models.ForeignKey(
        Secret, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    emails = ArrayField(models.TextField(), default=list)
    next_at = models.DateTimeField(null=True, help_text="The slot that is due next; null: none.")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["ReplaySchedule"]()

    class Meta:
        db_table = "replay_schedules"
        constraints = [
            tenant_key("replay_schedules"),
            models.UniqueConstraint(fields=["tenant", "name"], name="replay_schedules_name_key"),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "next_at"], name="replay_schedules_due_idx", condition=models.Q(is_enabled=True)
            )
        ]

    def __str__(self) -> str:
        return self.name


class ReplayState(models.TextChoices):
    QUEUED = "queued", pgettext_lazy("replay", "Queued")
    RUNNING = "running", pgettext_lazy("replay", "Running")
    PAUSED = "paused", pgettext_lazy("replay", "Paused")
    DONE = "done", pgettext_lazy("replay", "Done")
    FAILED = "failed", pgettext_lazy("replay", "Failed")
    CANCELLED = "cancelled", pgettext_lazy("replay", "Cancelled")


LIVE_REPLAYS = (ReplayState.QUEUED, ReplayState.RUNNING, ReplayState.PAUSED)


class Replay(TenantModel):
    """A run of cases against one side or two. The row is the truth; a Celery message only says that it is there.

    What is asked is frozen when it is started: versions of the cases, endpoints, prompts, tools. Who holds
    `lease_token` may write of it.
    """

    class Stage(models.TextChoices):
        SAMPLES = "samples", _("Asking")
        CONFIRM = "confirm", _("Running suspects again")
        JUDGE = "judge", _("Judging")

    name = models.CharField(max_length=120, blank=True)
    state = models.TextField(choices=ReplayState.choices, default=ReplayState.QUEUED)
    stage = models.TextField(choices=Stage.choices, default=Stage.SAMPLES)
    failure = ProseField(blank=True, help_text="Why it failed, and what to do.")
    query = models.TextField(blank=True, help_text="Filter that the cases were chosen by, for people.")
    settings = models.JSONField(default=dict, help_text="Samples, concurrency, budgets: see quality.replay.plan.")
    estimate = models.JSONField(default=dict, help_text="What it was thought to take, before it began.")
    schedule = models.ForeignKey(
        ReplaySchedule,
        on_delete=models.SET_NULL,
        null=True,
        related_name="replays",
        db_index=False,
        db_constraint=False,
    )
    slot = models.DateTimeField(null=True, help_text="Of its schedule; null for one that was begun by hand.")
    baseline_replay = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    num_cases = models.PositiveIntegerField(default=0)
    num_expected = models.PositiveIntegerField(default=0, help_text="Samples, without those that confirm suspects.")
    num_finished = models.PositiveIntegerField(default=0, help_text="Samples that are there; all of them.")
    num_errors = models.PositiveIntegerField(default=0, help_text="Of these, the ones that no verdict came of.")
    requests = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.FloatField(default=0, help_text="In the currency of the endpoints' prices.")
    seconds = models.FloatField(default=0, help_text="Time that workers spent on it.")
    spent_before = models.JSONField(
        default=dict, help_text="What had been spent when its budgets last began: a retry has them anew."
    )
    exit_code = models.PositiveSmallIntegerField(
        null=True, help_text="0 passed, 1 failed, 3 incomplete; null: not judged yet."
    )
    result = models.JSONField(
        null=True, help_text="Gate, summaries of the sides, comparison: see quality.replay.outcome."
    )
    attempt = models.PositiveSmallIntegerField(
        default=0, help_text="Claims since somebody queued it that got nothing done."
    )
    lease_token = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    worker = models.TextField(blank=True, help_text="host:pid of the last claim, for people.")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    token_id = models.BigIntegerField(null=True, help_text="The API token that started it, if one did.")
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = TenantManager["Replay"]()

    class Meta:
        db_table = "replays"
        constraints = [
            tenant_key("replays"),
            models.UniqueConstraint(fields=["tenant", "schedule", "slot"], name="replays_slot_key"),
            models.CheckConstraint(condition=models.Q(state__in=ReplayState.values), name="replays_state_check"),
        ]
        indexes = [
            models.Index(fields=["tenant", "-created_at", "-id"], name="replays_newest_idx"),
            models.Index(fields=["tenant", "schedule", "-created_at"], name="replays_schedule_idx"),
        ]

    def __str__(self) -> str:
        return f"replay {self.pk}"


class ReplaySide(TenantModel):
    """What is tried: an endpoint with a prompt and tools, as they were when the replay was started."""

    class Name(models.TextChoices):
        BASELINE = "baseline", _("Baseline")
        CANDIDATE = "candidate", _("Candidate")

    class Tools(models.TextChoices):
        RECORDED = "recorded", pgettext_lazy("tools", "As recorded")
        CURRENT = "current", pgettext_lazy("tools", "Today's")
        STORED = "stored", pgettext_lazy("tools", "Of a toolset")

    replay = models.ForeignKey(
        Replay, on_delete=models.CASCADE, related_name="sides", db_index=False, db_constraint=False
    )
    name = models.TextField(choices=Name.choices, default=Name.CANDIDATE)
    endpoint_id = models.BigIntegerField(help_text="Its key is read from there; the rest is repeated here.")
    model_label = models.TextField()
    base_url = models.TextField()
    model = models.TextField()
    parameters = models.JSONField(default=dict)
    price_prompt = models.FloatField(default=0)
    price_completion = models.FloatField(default=0)
    style_id = models.TextField(blank=True)
    style_version = models.PositiveIntegerField(null=True)
    system_prompt = models.TextField(null=True, help_text="Null: as recorded in each case.")
    tools_from = models.TextField(choices=Tools.choices, default=Tools.RECORDED)
    toolset = models.ForeignKey(
        Toolset, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    tools = DefinitionField(null=True, help_text="Null: as recorded in each case.")
    same_sha256 = models.CharField(max_length=64, help_text="Of all that is asked with: equal ones are the same side.")

    objects = TenantManager["ReplaySide"]()

    class Meta:
        db_table = "replay_sides"
        constraints = [
            tenant_key("replay_sides"),
            models.UniqueConstraint(fields=["tenant", "replay", "name"], name="replay_sides_name_key"),
            models.CheckConstraint(
                condition=models.Q(name__in=["baseline", "candidate"]), name="replay_sides_name_check"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of replay {self.replay_id}"


class ReplayCase(TenantModel):
    """One case in a replay, in the version it had then, and how it stands on each side."""

    replay = models.ForeignKey(
        Replay, on_delete=models.CASCADE, related_name="cases", db_index=False, db_constraint=False
    )
    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    number = models.PositiveIntegerField(help_text="Of REG-<number>.")
    version = models.PositiveIntegerField(help_text="What it was is in its version.")
    tool_name = models.TextField(blank=True)
    num_samples = models.PositiveIntegerField(help_text="On each side.")
    is_quarantined = models.BooleanField(default=False)
    is_must = models.BooleanField(default=False)
    baseline_passes = models.PositiveIntegerField(default=0)
    baseline_judged = models.PositiveIntegerField(default=0)
    candidate_passes = models.PositiveIntegerField(default=0)
    candidate_judged = models.PositiveIntegerField(default=0)
    num_errors = models.PositiveIntegerField(default=0)
    standing = models.TextField(blank=True, help_text="passed, failed or undecided, of the candidate; empty: not yet.")
    is_flaky = models.BooleanField(default=False)
    change = models.TextField(blank=True, help_text="Against the baseline: see quality.cases.statistics.Change.")
    is_suspect = models.BooleanField(default=False)
    is_confirmed = models.BooleanField(default=False, help_text="It got worse, and more than chance would make it.")
    p = models.FloatField(null=True)
    fresh = models.JSONField(null=True, help_text="Counts of the fresh samples: [[passes, judged], [passes, judged]].")

    objects = TenantManager["ReplayCase"]()

    class Meta:
        db_table = "replay_cases"
        constraints = [
            tenant_key("replay_cases"),
            models.UniqueConstraint(fields=["tenant", "replay", "number"], name="replay_cases_number_key"),
        ]
        indexes = [models.Index(fields=["tenant", "case", "-replay"], name="replay_cases_trend_idx")]

    @property
    def ref(self) -> str:
        return f"REG-{self.number}"

    def __str__(self) -> str:
        return f"{self.ref} in replay {self.replay_id}"


class ReplaySample(TenantModel):
    """One attempt at a case on one side, with its verdict. Written once; an error may be asked for again."""

    replay = models.ForeignKey(
        Replay, on_delete=models.CASCADE, related_name="samples", db_index=False, db_constraint=False
    )
    replay_case = models.ForeignKey(
        ReplayCase, on_delete=models.CASCADE, related_name="samples", db_index=False, db_constraint=False
    )
    side = models.TextField(choices=ReplaySide.Name.choices)
    index = models.PositiveIntegerField(help_text="From 0; samples that confirm a suspect from 1,000,000.")
    verdict = models.TextField(help_text="pass, fail, invalid_call, diverged or error.")
    reasons = DerivedField(default=list)
    awaits_judge = models.BooleanField(
        default=False, help_text="Its judge model was not asked yet; until then the verdict is an error."
    )
    invalid_calls = DerivedField(default=list, help_text="Calls that could not have run, and why.")
    data = EvidenceField(help_text="The attempt as quality.cases.attempt writes it: can be judged again.")
    requests = models.PositiveIntegerField(default=0)
    prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    cost = models.FloatField(default=0)
    duration_ms = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["ReplaySample"]()

    class Meta:
        db_table = "replay_samples"
        constraints = [
            tenant_key("replay_samples"),
            models.UniqueConstraint(
                fields=["tenant", "replay", "replay_case", "side", "index"], name="replay_samples_place_key"
            ),
        ]
        indexes = [models.Index(fields=["tenant", "replay_case"], name="replay_samples_case_idx")]

    def __str__(self) -> str:
        return f"sample {self.index} of {self.side} in replay {self.replay_id}"


class ReplayFinding(TenantModel):
    """What a person says of a failing case: the expectation is disputed, or the failure is confirmed."""

    class Kind(models.TextChoices):
        DISPUTED = "disputed", pgettext_lazy("finding", "Expectation disputed")
        CONFIRMED = "confirmed", pgettext_lazy("finding", "Confirmed")

    class Outcome(models.TextChoices):
        CHANGED = "changed", pgettext_lazy("finding", "Expectation changed")
        HOLDS = "holds", pgettext_lazy("finding", "Expectation holds")
        WITHDRAWN = "withdrawn", pgettext_lazy("finding", "Withdrawn")

    replay = models.ForeignKey(
        Replay, on_delete=models.CASCADE, related_name="findings", db_index=False, db_constraint=False
    )
    case = models.ForeignKey(
        Case, on_delete=models.CASCADE, related_name="findings", db_index=False, db_constraint=False
    )
    case_version = models.PositiveIntegerField()
    sample = models.ForeignKey(
        ReplaySample, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    kind = models.TextField(choices=Kind.choices)
    note = ProseField(blank=True)
    is_open = models.BooleanField(
        default=True, help_text="A dispute that nobody has settled. Confirmations are closed."
    )
    outcome = models.TextField(choices=Outcome.choices, blank=True)
    outcome_note = ProseField(blank=True)
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    at = models.DateTimeField(default=timezone.now)
    settled_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    settled_at = models.DateTimeField(null=True)

    objects = TenantManager["ReplayFinding"]()

    class Meta:
        db_table = "replay_findings"
        constraints = [
            tenant_key("replay_findings"),
            models.UniqueConstraint(
                fields=["tenant", "case"], name="replay_findings_open_key", condition=models.Q(is_open=True)
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=["disputed", "confirmed"]), name="replay_findings_kind_check"
            ),
        ]
        indexes = [models.Index(fields=["tenant", "replay", "-at"], name="replay_findings_replay_idx")]

    def __str__(self) -> str:
        return f"{self.kind}: case {self.case_id} in replay {self.replay_id}"


class QuarantineProposal(TenantModel):
    """A case that was flaky on a side that did not change, several scheduled runs in a row."""

    class State(models.TextChoices):
        PENDING = "pending", pgettext_lazy("quarantine proposal", "Open")
        ACCEPTED = "accepted", pgettext_lazy("quarantine proposal", "Accepted")
        DISMISSED = "dismissed", pgettext_lazy("quarantine proposal", "Dismissed")

    case = models.ForeignKey(
        Case, on_delete=models.CASCADE, related_name="quarantine_proposals", db_index=False, db_constraint=False
    )
    case_version = models.PositiveIntegerField(help_text="The version that was flaky.")
    replay_ids = ArrayField(models.BigIntegerField(), help_text="The runs it rests on, newest first.")
    state = models.TextField(choices=State.choices, default=State.PENDING)
    reason = ProseField(blank=True)
    decided_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    decided_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["QuarantineProposal"]()

    class Meta:
        db_table = "quarantine_proposals"
        constraints = [
            tenant_key("quarantine_proposals"),
            models.UniqueConstraint(fields=["tenant", "case", "case_version"], name="quarantine_proposals_case_key"),
            models.CheckConstraint(
                condition=models.Q(state__in=["pending", "accepted", "dismissed"]),
                name="quarantine_proposals_state_check",
            ),
        ]

    def __str__(self) -> str:
        return f"quarantine of case {self.case_id}: {self.state}"


class ReplayNotification(TenantModel):
    """One message about a replay on its way out. Sent again until it arrives or is given up."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", _("Webhook")
        EMAIL = "email", _("E-mail")

    class State(models.TextChoices):
        PENDING = "pending", pgettext_lazy("message", "To be sent")
        SENT = "sent", pgettext_lazy("message", "Sent")
        FAILED = "failed", pgettext_lazy("message", "Failed")

    replay = models.ForeignKey(
        Replay, on_delete=models.CASCADE, related_name="notifications", db_index=False, db_constraint=False
    )
    kind = models.TextField(choices=Kind.choices)
    target = models.TextField(help_text="Address: a URL or an e-mail address.")
    message_id = models.UUIDField(help_text="The same on each try, so that a receiver can drop what it has.")
    body = models.TextField()
    state = models.TextField(choices=State.choices, default=State.PENDING)
    attempt = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField(default=timezone.now)
    status = models.PositiveSmallIntegerField(null=True, help_text="HTTP status of the last try.")
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True)

    objects = TenantManager["ReplayNotification"]()

    class Meta:
        db_table = "replay_notifications"
        constraints = [
            tenant_key("replay_notifications"),
            models.UniqueConstraint(
                fields=["tenant", "replay", "kind", "target"], name="replay_notifications_once_key"
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["pending", "sent", "failed"]), name="replay_notifications_state_check"
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "next_at"], name="replay_notifications_due_idx", condition=models.Q(state="pending")
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} about replay {self.replay_id}: {self.state}"


class JudgeVote(TenantModel):
    """What a judge model said to one question, vote by vote. The same question is answered from here."""

    question_sha256 = models.CharField(max_length=64, help_text="Of model, prompt, rubric and both texts.")
    model = models.TextField()
    prompt_sha256 = models.CharField(max_length=64)
    rubric_sha256 = models.CharField(max_length=64)
    votes = DerivedField(help_text="[{passed, rationale, swapped}]; passed null: no vote could be read.")
    verdict = models.BooleanField(null=True, help_text="The majority; a tie fails; null: no vote could be read.")
    prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["JudgeVote"]()

    class Meta:
        db_table = "judge_votes"
        constraints = [
            tenant_key("judge_votes"),
            models.UniqueConstraint(fields=["tenant", "question_sha256"], name="judge_votes_question_key"),
        ]

    def __str__(self) -> str:
        return f"votes of {self.model}"
