"""What the API says of groups, proposals and cases, in its own spelling."""
# mypy: disable-error-code="assignment"
# (a field may be called `label` or `index`: REST framework takes declared fields off the class)

from typing import Any

from rest_framework import serializers

from quality.api.shapes import Evidence, LabelField, Person, StrictRequest
from quality.cases.explain import explain
from quality.cases.sample import Judgement
from quality.improve import groups
from quality.improve.cases import CaseConflict, doubts, judge_recorded
from quality.improve.proposals import ProposalConflict
from quality.improve.rates import MIN_ITEMS
from quality.models import ArtifactKind, Case, CaseStatus, Proposal, ProposalEvent, ProposalState

# --- groups ----------------------------------------------------------------------------------------------------------


class ReviewerSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()


class GroupExampleSerializer(serializers.Serializer):
    """One labelled item of a group; previews are cut. `callId` null: the reply made no call."""

    feedbackId = serializers.IntegerField(source="feedback_id")
    turnId = serializers.IntegerField(source="turn_id")
    cycle = serializers.IntegerField()
    callId = serializers.IntegerField(source="call_id", allow_null=True)
    argsPreview = serializers.CharField(source="args_preview", allow_null=True)
    correctionPreview = serializers.CharField(source="correction", allow_null=True, help_text="JSON, as text.")
    notePreview = serializers.CharField(source="note_preview")
    reviewers = ReviewerSerializer(many=True)
    at = serializers.DateTimeField()


class GroupSerializer(serializers.Serializer):
    """Feedback that asks for the same fix. `numItems` are calls, `numFeedback` the labels on them. `proposalId` is the
    pending proposal, or the one that decided all of it; `againSince` the decided one after which it was said again."""

    label = LabelField(source="key.label")
    toolName = serializers.CharField(source="key.tool_name")
    styleId = serializers.CharField(source="key.style_id")
    fault = serializers.CharField(source="key.fault")
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=list(groups.STATES))
    numItems = serializers.IntegerField(source="num_items")
    numFeedback = serializers.IntegerField(source="num_feedback")
    firstAt = serializers.DateTimeField(source="first_at")
    newestAt = serializers.DateTimeField(source="newest_at")
    proposalId = serializers.IntegerField(source="proposal_id", allow_null=True)
    againSince = serializers.IntegerField(source="again_since", allow_null=True)
    suggestedKind = serializers.ChoiceField(source="suggested_kind", choices=ArtifactKind.choices)
    examples = GroupExampleSerializer(many=True)


class GroupPageSerializer(serializers.Serializer):
    items = GroupSerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


# --- proposals -------------------------------------------------------------------------------------------------------


class ResolutionSerializer(serializers.Serializer):
    kind = serializers.ChoiceField(source="resolution_kind", choices=ArtifactKind.choices)
    ref = serializers.CharField(source="resolution_ref")
    note = serializers.CharField(source="resolution_note")


class _Resolved(serializers.Serializer):
    """A row whose resolution is null until there is one."""

    resolution = ResolutionSerializer(source="*", allow_null=True)

    def to_representation(self, instance: Any) -> dict[str, Any]:
        shown = super().to_representation(instance)
        if not instance.resolution_kind:
            shown["resolution"] = None
        return shown


class ProposalSerializer(_Resolved):
    """A tracked improvement. `reason` says why it was dismissed."""

    id = serializers.IntegerField()
    version = serializers.IntegerField(help_text="Send it along with your decision.")
    state = serializers.ChoiceField(choices=ProposalState.choices)
    label = LabelField()
    toolName = serializers.CharField(source="tool_name")
    styleId = serializers.CharField(source="style_id")
    fault = serializers.CharField()
    title = serializers.CharField()
    suggestedKind = serializers.ChoiceField(source="suggested_kind", choices=ArtifactKind.choices)
    reason = serializers.CharField()
    decidedBy = Person(source="decided_by", allow_null=True)
    decidedAt = serializers.DateTimeField(source="decided_at", allow_null=True)
    createdBy = Person(source="created_by")
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class ProposalRowSerializer(ProposalSerializer):
    numItems = serializers.IntegerField()
    numFeedback = serializers.IntegerField()


class ProposalPageSerializer(serializers.Serializer):
    items = ProposalRowSerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


class ProposalEventSerializer(_Resolved):
    """One step of a proposal's history."""

    version = serializers.IntegerField()
    action = serializers.ChoiceField(choices=ProposalEvent.Action.values)
    reason = serializers.CharField()
    by = Person()
    at = serializers.DateTimeField()


class FaultRateSerializer(serializers.Serializer):
    """Labelled calls of the group's tool and style, and those of them with its fault; `low` and `high` are the 95 %
    interval (Wilson). `tooFew`: too few calls yet for the share to say anything."""

    numItems = serializers.IntegerField(source="num_items")
    numFaulty = serializers.IntegerField(source="num_faulty")
    share = serializers.FloatField(allow_null=True)
    low = serializers.FloatField()
    high = serializers.FloatField()
    tooFew = serializers.BooleanField(source="too_few")
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)


class FaultRatesSerializer(serializers.Serializer):
    """By when calls were made. `after` is null while the proposal is not applied."""

    before = FaultRateSerializer()
    after = FaultRateSerializer(allow_null=True)
    minItems = serializers.IntegerField(default=MIN_ITEMS, help_text="Below it is too few.")


class ProposalCaseSerializer(serializers.Serializer):
    id = serializers.CharField(source="ref")
    status = serializers.ChoiceField(choices=CaseStatus.values)
    behavior = serializers.CharField()


class ProposalDetailSerializer(ProposalRowSerializer):
    examples = GroupExampleSerializer(many=True)
    history = ProposalEventSerializer(many=True)
    rates = FaultRatesSerializer()
    cases = ProposalCaseSerializer(many=True)


def proposal_told(proposal: Proposal) -> dict[str, Any]:
    return dict(ProposalSerializer(proposal).data)


class TrackRequest(StrictRequest):
    """The group to track, as the list of groups names it."""

    label = LabelField()
    toolName = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=500)
    styleId = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=500)
    fault = serializers.CharField(trim_whitespace=False, max_length=500)


class _VersionedRequest(StrictRequest):
    """`version` is the proposal's as you saw it; without it the step is taken whatever happened meanwhile."""

    version = serializers.IntegerField(required=False, allow_null=True, min_value=1)


class DismissRequest(_VersionedRequest):
    reason = serializers.CharField()


class ApplyRequest(_VersionedRequest):
    """What mended it. Give a reference, a note, or both."""

    kind = serializers.CharField(help_text=f"One of {', '.join(ArtifactKind.values)}.")
    ref = serializers.CharField(required=False, allow_blank=True, default="")
    note = serializers.CharField(required=False, allow_blank=True, default="")


class ReopenRequest(_VersionedRequest):
    reason = serializers.CharField(required=False, allow_blank=True, default="")


class NewCaseRequest(StrictRequest):
    """What is not given is as the label proposes it."""

    feedbackId = serializers.IntegerField(min_value=1, help_text="The label that the case is made of.")
    behavior = serializers.CharField(required=False, allow_blank=True, default="")
    expectation = serializers.DictField(required=False, allow_null=True)
    tags = serializers.ListField(child=serializers.CharField(), required=False, default=list)


class ProposalCaseRequest(NewCaseRequest, _VersionedRequest):
    feedbackId = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, help_text="By default the newest label of the proposal."
    )


# --- cases -----------------------------------------------------------------------------------------------------------


class CaseRowSerializer(serializers.Serializer):
    """One line of a list."""

    id = serializers.CharField(source="ref")
    version = serializers.IntegerField()
    status = serializers.ChoiceField(choices=CaseStatus.values)
    toolName = serializers.CharField(source="tool_name")
    label = LabelField()
    tags = serializers.ListField(child=serializers.CharField())
    behavior = serializers.CharField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class CasePageSerializer(serializers.Serializer):
    items = CaseRowSerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


class CaseInput(serializers.Serializer):
    """What the model was given for the reply under test."""

    args = Evidence(allow_null=True)
    messages = Evidence()
    tools = Evidence(allow_null=True)
    now = serializers.DateTimeField(allow_null=True)


class CaseObserved(serializers.Serializer):
    result = Evidence(allow_null=True)
    isError = serializers.BooleanField(source="is_error", allow_null=True)
    error = serializers.CharField(allow_null=True)
    cycle = serializers.IntegerField()
    index = serializers.IntegerField(allow_null=True, help_text="Null: no call was made.")


class CaseExpected(serializers.Serializer):
    behavior = serializers.CharField()
    expectation = Evidence()


class ProvenanceSerializer(serializers.Serializer):
    """Where a case comes from; null where that is gone, or where the case was imported. `context` has what was known
    of it then."""

    turnId = serializers.IntegerField(allow_null=True)
    callId = serializers.IntegerField(allow_null=True)
    feedbackId = serializers.IntegerField(allow_null=True)
    proposalId = serializers.IntegerField(allow_null=True)
    reviewers = ReviewerSerializer(many=True, help_text="Who labels that call so, now.")
    mergedInto = serializers.CharField(allow_null=True)
    createdBy = Person(allow_null=True)


class CaseStep(serializers.Serializer):
    """One version of a case, without its record."""

    version = serializers.IntegerField(source="number")
    note = serializers.CharField()
    by = Person(allow_null=True)
    at = serializers.DateTimeField()


class CaseSerializer(CaseRowSerializer):
    """A case as its export has it, with where it comes from, its history (newest first) and its duplicates."""

    input = CaseInput(source="*")
    observed = CaseObserved(source="*")
    expected = CaseExpected(source="*")
    context = Evidence()
    stubs = Evidence()
    provenance = ProvenanceSerializer()
    history = CaseStep(many=True)
    duplicates = serializers.ListField(child=serializers.CharField())


class CaseVersionSerializer(CaseStep):
    record = Evidence(source="data", help_text="The case as its export was then.")


class CaseVersionsSerializer(serializers.Serializer):
    items = CaseVersionSerializer(many=True)


class EditRequest(StrictRequest):
    """What is not given stays. `version` is the case's as you saw it."""

    version = serializers.IntegerField(min_value=1)
    behavior = serializers.CharField(required=False)
    expectation = serializers.DictField(required=False)
    stubs = serializers.ListField(child=serializers.DictField(), required=False)
    tags = serializers.ListField(child=serializers.CharField(), required=False)
    note = serializers.CharField(required=False, allow_blank=True, default="", help_text="Why it is changed.")


class CaseStepRequest(StrictRequest):
    version = serializers.IntegerField(required=False, allow_null=True, min_value=1)
    note = serializers.CharField(required=False, allow_blank=True, default="")


class MergeRequest(StrictRequest):
    other = serializers.CharField(help_text="The duplicate, which is archived: REG-<number>.")
    note = serializers.CharField(required=False, allow_blank=True, default="")


class JudgeRequest(StrictRequest):
    expectation = serializers.DictField(required=False, allow_null=True, help_text="Judge by this one instead.")


class ReasonSerializer(serializers.Serializer):
    code = serializers.CharField()
    step = serializers.IntegerField(allow_null=True)
    call = serializers.IntegerField(allow_null=True)
    tool = serializers.CharField(allow_null=True)
    path = serializers.CharField(allow_null=True)
    expected = serializers.JSONField(allow_null=True)
    got = serializers.JSONField(allow_null=True)
    text = serializers.CharField(help_text="The reason as a sentence.")


class JudgementSerializer(serializers.Serializer):
    verdict = serializers.CharField()
    reasons = ReasonSerializer(many=True)


class CaseCheckSerializer(serializers.Serializer):
    """The recorded call of a bad label must fail its case, the corrected one (null: nobody said it) must pass."""

    recorded = JudgementSerializer()
    corrected = JudgementSerializer(allow_null=True)
    warnings = serializers.ListField(child=serializers.CharField())


class MadeCaseSerializer(serializers.Serializer):
    case = CaseSerializer()
    check = CaseCheckSerializer()


class ProposalCaseMadeSerializer(MadeCaseSerializer):
    proposal = ProposalSerializer()


class LineFaultSerializer(serializers.Serializer):
    line = serializers.IntegerField()
    path = serializers.CharField()
    code = serializers.CharField()
    message = serializers.CharField()


class Renumbered(serializers.Serializer):
    old = serializers.CharField()
    new = serializers.CharField()


class CaseImportSerializer(serializers.Serializer):
    """What became of the lines. `renumbered`: the cases whose number was taken."""

    numCreated = serializers.IntegerField()
    numUnchanged = serializers.IntegerField()
    numRefused = serializers.IntegerField()
    refused = LineFaultSerializer(many=True)
    renumbered = Renumbered(many=True)
    warnings = serializers.ListField(child=serializers.CharField())


def check_told(case: Case, *, expectation: str | None = None) -> dict[str, Any]:
    """What the case, or another expectation in its place, says of the recorded and the corrected call."""
    check = judge_recorded(case, expectation=expectation)
    found = doubts(case.expectation if expectation is None else expectation, case.tools)
    said = [f"{fault.path}: {fault.message}" if fault.path else fault.message for fault in found[:20]]
    return {
        "recorded": _judgement_told(check.recorded),
        "corrected": _judgement_told(check.corrected) if check.corrected else None,
        "warnings": [*check.warnings, *said],
    }


def _judgement_told(judgement: Judgement) -> dict[str, Any]:
    return {
        "verdict": str(judgement.verdict),
        "reasons": [{**reason.as_dict(), "text": explain(reason)} for reason in judgement.reasons],
    }


def current_told(error: ProposalConflict | CaseConflict) -> dict[str, Any]:
    """What is there now, for who came too late."""
    if isinstance(error, ProposalConflict):
        return proposal_told(error.proposal)
    case = error.case
    return dict(CaseRowSerializer(case).data) | {"expected": CaseExpected(case).data}
