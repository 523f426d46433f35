"""What the API says and hears of replays, in its own spelling."""
# mypy: disable-error-code="assignment"
# (a field may be called `index`: REST framework takes declared fields off the class)

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from quality.api.shapes import Evidence, Person, StrictRequest
from quality.cases.explain import explain
from quality.cases.gate import Exit
from quality.cases.sample import Reason, Verdict
from quality.cases.statistics import Change
from quality.models import (
    LIVE_REPLAYS,
    Replay,
    ReplayFinding,
    ReplayNotification,
    ReplaySample,
    ReplaySchedule,
    ReplaySide,
    ReplayState,
)
from quality.replay import notify
from quality.turns.cron import in_words
from quality.webhooks import sending

OUTCOMES = {int(code): code.name.lower() for code in (Exit.PASSED, Exit.FAILED, Exit.INCOMPLETE)}
OUTCOME_CHOICES = list(OUTCOMES.values())


@extend_schema_field({"type": "object", "additionalProperties": {}})
class JsonObject(serializers.JSONField):
    """An object of ours whose members the description tells."""


# --- what is asked for -----------------------------------------------------------------------------------------------


class SideRequest(StrictRequest):
    """The endpoint `modelLabel`; with the prompt of a style (empty: as recorded in each case) in one of its versions
    (null: the newest); with the tools as `recorded`, as they are today (`current`), or of a stored toolset (its
    SHA-256)."""

    modelLabel = serializers.CharField(max_length=200)
    styleId = serializers.CharField(required=False, allow_blank=True, max_length=200)
    styleVersion = serializers.IntegerField(required=False, allow_null=True, min_value=1)
    tools = serializers.CharField(required=False, max_length=64)


class BudgetRequest(StrictRequest):
    """What may be used up; null: no limit. `cost` is in the currency of the prices, `time` in seconds of work."""

    calls = serializers.IntegerField(required=False, allow_null=True, min_value=1)
    tokens = serializers.IntegerField(required=False, allow_null=True, min_value=1)
    cost = serializers.FloatField(required=False, allow_null=True)
    time = serializers.FloatField(required=False, allow_null=True)


class SettingsRequest(StrictRequest):
    """`samples` null: what each case asks for, else one. `seed` null: none is sent. `confirm`: with two sides, cases
    that got worse are run again with fresh samples. `judgeLabel`: the endpoint that judges what no matcher can."""

    samples = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=100)
    concurrency = serializers.IntegerField(required=False, min_value=1, max_value=32)
    maxCycles = serializers.IntegerField(required=False, min_value=1, max_value=32)
    onMiss = serializers.ChoiceField(choices=["stop", "fifo", "error", "fixed"], required=False)
    missResult = serializers.CharField(required=False, allow_blank=True)
    seed = serializers.IntegerField(required=False, allow_null=True, min_value=0)
    budget = BudgetRequest(required=False)
    caseBudget = BudgetRequest(required=False)
    confirm = serializers.BooleanField(required=False)
    judgeLabel = serializers.CharField(required=False, allow_blank=True)


class ReplayRequest(StrictRequest):
    """`cases` names some (REG-1, or 1), archived ones too; without it `query` chooses among the active ones, spelled as
    on the page of cases. Of two `sides` the first is the baseline; one side may be compared with an earlier replay."""

    sides = SideRequest(many=True)
    query = serializers.CharField(required=False, allow_blank=True)
    cases = serializers.ListField(child=serializers.CharField(), required=False)
    settings = SettingsRequest(required=False)
    name = serializers.CharField(required=False, allow_blank=True, max_length=120)
    baselineReplayId = serializers.IntegerField(required=False, allow_null=True, min_value=1)


# --- replays ---------------------------------------------------------------------------------------------------------


class SideSerializer(serializers.Serializer):
    """A side as it was frozen when the replay was started. `styleVersion` null: prompts are those recorded."""

    name = serializers.ChoiceField(choices=ReplaySide.Name.choices)
    modelLabel = serializers.CharField(source="model_label")
    model = serializers.CharField()
    baseUrl = serializers.CharField(source="base_url")
    styleId = serializers.CharField(source="style_id")
    styleVersion = serializers.IntegerField(source="style_version", allow_null=True)
    tools = serializers.ChoiceField(source="tools_from", choices=ReplaySide.Tools.choices)


class ReplaySerializer(serializers.Serializer):
    """A replay as it stands. `outcome` is that of the gate, null before it is known; `verdict` says it in a sentence.
    `numExpected` counts samples without those that confirm suspects, `numFinished` all of them."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=ReplayState.choices)
    stage = serializers.ChoiceField(choices=Replay.Stage.choices)
    failure = serializers.CharField()
    outcome = serializers.ChoiceField(source="outcome_shown", choices=OUTCOME_CHOICES, allow_null=True)
    exitCode = serializers.IntegerField(source="exit_code", allow_null=True)
    verdict = serializers.SerializerMethodField()
    sides = SideSerializer(many=True, source="sides_shown")
    scheduleId = serializers.IntegerField(source="schedule_id", allow_null=True)
    slot = serializers.DateTimeField(allow_null=True)
    numCases = serializers.IntegerField(source="num_cases")
    numExpected = serializers.IntegerField(source="num_expected")
    numFinished = serializers.IntegerField(source="num_finished")
    numErrors = serializers.IntegerField(source="num_errors")
    requests = serializers.IntegerField()
    promptTokens = serializers.IntegerField(source="prompt_tokens")
    completionTokens = serializers.IntegerField(source="completion_tokens")
    cost = serializers.FloatField()
    seconds = serializers.FloatField()
    createdBy = Person(source="created_by", allow_null=True)
    createdAt = serializers.DateTimeField(source="created_at")
    startedAt = serializers.DateTimeField(source="started_at", allow_null=True)
    finishedAt = serializers.DateTimeField(source="finished_at", allow_null=True)

    def get_verdict(self, replay: Replay) -> str:
        return str((replay.result or {}).get("verdict", ""))


class ReplayDetailSerializer(ReplaySerializer):
    """`result` has `gate`, `summaries` by side, `comparison` (null: nothing is compared) and `notices`, as the JSON
    report of the command; null before the replay has ended."""

    query = serializers.CharField()
    settings = JsonObject()
    estimate = JsonObject(help_text="What it was thought to take.")
    baselineReplayId = serializers.IntegerField(source="baseline_replay_id", allow_null=True)
    result = JsonObject(allow_null=True)


class ReplayPageSerializer(serializers.Serializer):
    items = ReplaySerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


def shown(replays: list[Any]) -> list[Any]:
    """The replays as they are shown: with their sides, the baseline first, and their outcome as a word."""
    sides: dict[int, list[ReplaySide]] = {}
    for side in ReplaySide.objects.filter(replay__in=[each.pk for each in replays]).order_by("name").defer("tools"):
        sides.setdefault(side.replay_id, []).append(side)
    for each in replays:
        each.sides_shown = sides.get(each.pk, [])
        each.outcome_shown = None if each.exit_code is None else OUTCOMES[each.exit_code]
    return replays


def replay_told(replay: Replay) -> dict[str, Any]:
    return dict(ReplayDetailSerializer(*shown([replay])).data)


def is_over(replay: Replay) -> bool:
    return replay.state not in LIVE_REPLAYS


class SideEstimateSerializer(serializers.Serializer):
    """`cost` null: the endpoint has no price. `basis` says what the numbers rest on."""

    name = serializers.CharField()
    modelLabel = serializers.CharField()
    samples = serializers.IntegerField()
    requests = serializers.IntegerField()
    promptTokens = serializers.IntegerField()
    completionTokens = serializers.IntegerField()
    cost = serializers.FloatField(allow_null=True)
    seconds = serializers.FloatField()
    basis = serializers.CharField()


class EstimateSerializer(serializers.Serializer):
    """All sides together. Suspects that are run again, and a judge, come on top."""

    cases = serializers.IntegerField()
    samples = serializers.IntegerField()
    requests = serializers.IntegerField()
    promptTokens = serializers.IntegerField()
    completionTokens = serializers.IntegerField()
    cost = serializers.FloatField(allow_null=True)
    seconds = serializers.FloatField()
    basis = serializers.CharField()
    sides = SideEstimateSerializer(many=True)


class AgreementSerializer(serializers.Serializer):
    """One rubric. `labels` counts what people said of samples that it decides. `state`: `refused` rubrics are not left
    to the judge, `not_calibrated` ones have too few labels to tell."""

    rubric = serializers.CharField()
    labels = serializers.IntegerField()
    agreement = serializers.FloatField(allow_null=True)
    kappa = serializers.FloatField(allow_null=True, help_text="Cohen's; null: nothing to agree on beyond chance.")
    state = serializers.ChoiceField(choices=["calibrated", "not_calibrated", "refused"])


class JudgeSerializer(serializers.Serializer):
    label = serializers.CharField()
    model = serializers.CharField()
    promptSha256 = serializers.CharField()
    minLabels = serializers.IntegerField()
    minKappa = serializers.FloatField()
    rubrics = AgreementSerializer(many=True)


class ReplayJudgeSerializer(serializers.Serializer):
    judge = JudgeSerializer(allow_null=True, help_text="Null: the replay has none.")


# --- cases and samples -----------------------------------------------------------------------------------------------


class CountsSerializer(serializers.Serializer):
    """Passed, of those judged; errors and the samples that confirm are not among them."""

    side = serializers.ChoiceField(choices=ReplaySide.Name.choices)
    passes = serializers.IntegerField()
    judged = serializers.IntegerField()


class ReplayCaseSerializer(serializers.Serializer):
    """A case in a replay. `standing` is that of the candidate, empty before it is known; `change` is against the
    baseline, empty without one. `suspect` got worse, `confirmed` more than chance would make it. `fresh` has passes and
    judged of the samples that decided that: baseline, candidate."""

    case = serializers.CharField(source="case.ref")
    version = serializers.IntegerField(source="case.version")
    toolName = serializers.CharField(source="case.tool_name")
    samples = serializers.IntegerField(source="case.num_samples", help_text="On each side.")
    sides = CountsSerializer(many=True, source="cells")
    errors = serializers.IntegerField(source="case.num_errors", help_text="Samples that no verdict came of.")
    standing = serializers.ChoiceField(
        source="case.standing", choices=["passed", "failed", "undecided"], allow_blank=True
    )
    flaky = serializers.BooleanField(source="case.is_flaky")
    change = serializers.ChoiceField(source="case.change", choices=[str(each) for each in Change], allow_blank=True)
    suspect = serializers.BooleanField(source="case.is_suspect")
    confirmed = serializers.BooleanField(source="case.is_confirmed")
    p = serializers.FloatField(source="case.p", allow_null=True)
    fresh = serializers.ListField(
        source="case.fresh", child=serializers.ListField(child=serializers.IntegerField()), allow_null=True
    )
    quarantined = serializers.BooleanField(source="case.is_quarantined")
    must = serializers.BooleanField(source="case.is_must")
    disputed = serializers.BooleanField(source="is_disputed")


class ReplayCasePageSerializer(serializers.Serializer):
    items = ReplayCaseSerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


class ReasonTextSerializer(serializers.Serializer):
    """Why a sample did not pass. `expected` and `got` may be any JSON."""

    code = serializers.CharField()
    step = serializers.IntegerField(allow_null=True)
    call = serializers.IntegerField(allow_null=True)
    tool = serializers.CharField(allow_null=True)
    path = serializers.CharField(allow_null=True)
    expected = serializers.JSONField(allow_null=True)
    got = serializers.JSONField(allow_null=True)
    text = serializers.CharField(help_text="The same in words.")


class VoteSerializer(serializers.Serializer):
    passed = serializers.BooleanField(allow_null=True, help_text="Null: the vote could not be read.")
    rationale = serializers.CharField()
    swapped = serializers.BooleanField(help_text="The two texts stood in the other order.")


class JudgedSerializer(serializers.Serializer):
    """One question to the judge. The majority decides, and a tie fails."""

    rubric = serializers.CharField()
    model = serializers.CharField()
    passed = serializers.BooleanField(allow_null=True)
    votes = VoteSerializer(many=True)
    at = serializers.DateTimeField()


class SampleSerializer(serializers.Serializer):
    """One attempt. `attempt` is all that is kept of it: a line of `answers.jsonl`. Samples that confirm a suspect have
    an `index` from 1,000,000."""

    id = serializers.IntegerField()
    side = serializers.ChoiceField(choices=ReplaySide.Name.choices)
    index = serializers.IntegerField()
    verdict = serializers.ChoiceField(choices=[str(each) for each in Verdict])
    reasons = serializers.SerializerMethodField()
    judged = JudgedSerializer(many=True)
    requests = serializers.IntegerField()
    promptTokens = serializers.IntegerField(source="prompt_tokens")
    completionTokens = serializers.IntegerField(source="completion_tokens")
    cost = serializers.FloatField()
    durationMs = serializers.IntegerField(source="duration_ms")
    createdAt = serializers.DateTimeField(source="created_at")
    attempt = Evidence(source="data")

    @extend_schema_field(ReasonTextSerializer(many=True))
    def get_reasons(self, sample: ReplaySample) -> list[dict[str, Any]]:
        return [{**reason, "text": explain(Reason.from_dict(reason))} for reason in sample.reasons]


class SamplePageSerializer(serializers.Serializer):
    items = SampleSerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


# --- findings --------------------------------------------------------------------------------------------------------


class ReplayFindingSerializer(serializers.Serializer):
    """What a person said of a case in a replay. Of a dispute that was settled `outcome` says how."""

    id = serializers.IntegerField()
    replayId = serializers.IntegerField(source="replay_id")
    case = serializers.CharField(source="case.ref")
    caseVersion = serializers.IntegerField(source="case_version")
    sampleId = serializers.IntegerField(source="sample_id", allow_null=True)
    kind = serializers.ChoiceField(choices=ReplayFinding.Kind.choices)
    note = serializers.CharField()
    open = serializers.BooleanField(source="is_open")
    outcome = serializers.ChoiceField(choices=ReplayFinding.Outcome.choices, allow_blank=True)
    outcomeNote = serializers.CharField(source="outcome_note")
    by = Person(allow_null=True)
    at = serializers.DateTimeField()
    settledBy = Person(source="settled_by", allow_null=True)
    settledAt = serializers.DateTimeField(source="settled_at", allow_null=True)


class ReplayFindingListSerializer(serializers.Serializer):
    items = ReplayFindingSerializer(many=True)


class DisputeRequest(StrictRequest):
    """`sampleId`: the sample that shows it."""

    note = serializers.CharField(help_text="What is wrong with the expectation.")
    sampleId = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)


class ConfirmRequest(StrictRequest):
    """`sampleId` null: the case failed as a whole."""

    note = serializers.CharField(required=False, allow_blank=True, default="")
    sampleId = serializers.IntegerField(required=False, allow_null=True, default=None, min_value=1)


class SettleRequest(StrictRequest):
    """`changed` is taken only after the expectation was edited."""

    outcome = serializers.ChoiceField(choices=ReplayFinding.Outcome.choices)
    note = serializers.CharField(required=False, allow_blank=True, default="")


def finding_told(finding: ReplayFinding) -> dict[str, Any]:
    return dict(ReplayFindingSerializer(finding).data)


# --- schedules -------------------------------------------------------------------------------------------------------


class ReplayScheduleSerializer(serializers.Serializer):
    """A replay that begins whenever its cron expression says so, in its own zone. `last` is its newest replay."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    cron = serializers.CharField()
    words = serializers.SerializerMethodField(help_text="The cron expression in plain words.")
    zone = serializers.CharField()
    enabled = serializers.BooleanField(source="is_enabled")
    query = serializers.CharField()
    sides = SideRequest(many=True)
    settings = SettingsRequest()
    baseline = serializers.ChoiceField(choices=ReplaySchedule.Baseline.choices)
    notifyOn = serializers.ChoiceField(source="notify_on", choices=ReplaySchedule.NotifyOn.choices)
    webhookUrl = serializers.SerializerMethodField(
        help_text="In full for a token with settings:write. Its path may be a secret: others see the host."
    )
    emails = serializers.ListField(child=serializers.CharField())
    nextSlot = serializers.DateTimeField(source="next_at", allow_null=True)
    last = ReplaySerializer(allow_null=True)
    createdAt = serializers.DateTimeField(source="created_at")

    def get_words(self, schedule: ReplaySchedule) -> str:
        return in_words(schedule.cron)

    def get_webhookUrl(self, schedule: ReplaySchedule) -> str:
        return sending.shown(schedule.webhook_url, in_full=self.context["may_configure"])


class KeptScheduleSerializer(ReplayScheduleSerializer):
    webhookSecret = serializers.CharField(
        allow_null=True, help_text="Signs the webhook. Told this once, when it is made; null: it was told before."
    )


class ReplayScheduleListSerializer(serializers.Serializer):
    schedules = ReplayScheduleSerializer(many=True)


class ReplayScheduleRequest(StrictRequest):
    """`query` chooses the cases, as on their page. Of two `sides` the first is the baseline; one side is compared with
    the run before unless `baseline` is `none`. `emails` are addresses of members."""

    name = serializers.CharField(max_length=120)
    cron = serializers.CharField(max_length=120)
    zone = serializers.CharField(max_length=64, required=False)
    enabled = serializers.BooleanField(required=False)
    query = serializers.CharField(required=False, allow_blank=True)
    sides = SideRequest(many=True)
    settings = SettingsRequest(required=False)
    baseline = serializers.ChoiceField(choices=ReplaySchedule.Baseline.choices, required=False)
    notifyOn = serializers.ChoiceField(choices=ReplaySchedule.NotifyOn.choices, required=False)
    webhookUrl = serializers.CharField(required=False, allow_blank=True)
    emails = serializers.ListField(child=serializers.CharField(), required=False)


class ReplayScheduleChange(ReplayScheduleRequest):
    """What is to be changed; the other members stay as they are."""

    name = serializers.CharField(max_length=120, required=False)
    cron = serializers.CharField(max_length=120, required=False)
    sides = SideRequest(many=True, required=False)


class NotificationSerializer(serializers.Serializer):
    """One message about a replay on its way out."""

    id = serializers.IntegerField()
    replayId = serializers.IntegerField(source="replay_id")
    kind = serializers.ChoiceField(choices=ReplayNotification.Kind.choices)
    target = serializers.SerializerMethodField(help_text="Of a webhook as `webhookUrl` of the schedule.")
    state = serializers.ChoiceField(choices=ReplayNotification.State.choices)
    attempts = serializers.IntegerField(source="attempt")
    nextAt = serializers.DateTimeField(source="next_at")
    status = serializers.IntegerField(allow_null=True, help_text="HTTP status of the last try.")
    error = serializers.CharField()
    createdAt = serializers.DateTimeField(source="created_at")
    sentAt = serializers.DateTimeField(source="sent_at", allow_null=True)

    def get_target(self, row: ReplayNotification) -> str:
        return notify.target_of(row, in_full=self.context["may_configure"])


class NotificationListSerializer(serializers.Serializer):
    items = NotificationSerializer(many=True)
