"""What the API says and hears, in its own spelling: camelCase names; keys inside evidence are never touched.

Serializers write the answers and give the OpenAPI schema its types. Evidence goes out as it was spelled.
"""
# mypy: disable-error-code="assignment"
# (a field may be called `label`, `source` or `error`: REST framework takes declared fields off the class)

from collections.abc import Iterable
from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from quality.models import Feedback, Label
from quality.review.hints import BY_NAME
from quality.review.labelling import Verdict


@extend_schema_field({"description": "Any JSON, spelled as it was received."})
class Evidence(serializers.Field):
    """JSON text, embedded as it stands."""

    def to_representation(self, value: str) -> Any:
        return msgspec.Raw(value.encode())


@extend_schema_field({"type": "string", "enum": Label.values})
class LabelField(serializers.CharField):
    """A label's name; whether it is one is for the use case to say."""


class PositionSerializer(serializers.Serializer):
    """Where a call was missing: the cycle, and before which of its calls (their number: after the last one)."""

    cycle = serializers.IntegerField(min_value=0)
    index = serializers.IntegerField(min_value=0)


@extend_schema_field({"type": "object", "additionalProperties": {}, "description": "Keys are the arguments' own."})
class Arguments(serializers.DictField):
    """Arguments of a call."""


class CorrectionSerializer(serializers.Serializer):
    """What would have been right. `wrong_tool` takes tool, offered, arguments; `bad_args` takes arguments;
    `missing_tool` takes tool, offered, position, arguments; the other labels take none.

    Names and arguments are checked against the tools that were offered on that request. Arguments that are those of the
    call are left out."""

    tool = serializers.CharField(required=False, max_length=500)
    offered = serializers.BooleanField(
        required=False, help_text="false: a tool that was not offered then. Said only together with tool."
    )
    arguments = Arguments(required=False)
    position = PositionSerializer(required=False)


@extend_schema_field(CorrectionSerializer)
class CorrectionField(serializers.DictField):
    """A correction as it was sent; what it says is for the use case to judge."""


@extend_schema_field(CorrectionSerializer)
class CorrectionEvidence(Evidence):
    """A correction, spelled as it was received."""


class Person(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()
    email = serializers.EmailField()


class FeedbackSerializer(serializers.Serializer):
    """One reviewer's current label."""

    id = serializers.IntegerField()
    label = LabelField()
    note = serializers.CharField()
    correction = CorrectionEvidence(allow_null=True)
    toolName = serializers.CharField(source="tool_name", help_text="Of the call; empty where none was made.")
    styleId = serializers.CharField(source="style_id")
    faults = serializers.ListField(
        child=serializers.CharField(),
        help_text="Kinds of faults, by which feedback is grouped: arg:<JSON pointer>, tool:<name>, missing:<name>.",
    )
    guidelineVersion = serializers.IntegerField(
        source="guideline_version", allow_null=True, help_text="The guidelines that the label was given under."
    )
    reviewer = Person()
    version = serializers.IntegerField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class EventSerializer(serializers.Serializer):
    """One step of an item's history."""

    version = serializers.IntegerField()
    action = serializers.ChoiceField(choices=["label", "undo"])
    label = LabelField(allow_null=True)
    note = serializers.CharField()
    correction = CorrectionEvidence(allow_null=True)
    guidelineVersion = serializers.IntegerField(source="guideline_version", allow_null=True)
    undoes = serializers.IntegerField(allow_null=True)
    reviewer = Person()
    createdAt = serializers.DateTimeField(source="created_at")


class ItemSerializer(serializers.Serializer):
    """What a label was given to, and how it stands now. `event` is what the request made, or made the first time."""

    callId = serializers.IntegerField(source="item.call_id", allow_null=True)
    turnId = serializers.IntegerField(source="item.turn_id")
    cycle = serializers.IntegerField(source="item.cycle")
    version = serializers.IntegerField()
    labels = FeedbackSerializer(many=True)
    event = EventSerializer()


@extend_schema_field({"type": "string", "enum": list(BY_NAME)})
class RuleField(serializers.CharField):
    """Name of a rule of hints."""


class HintSerializer(serializers.Serializer):
    """What a rule noticed of a call: a suspicion of a machine, never a label."""

    rule = RuleField()
    path = serializers.CharField(help_text="JSON pointer of the argument it is about; empty where there is none.")
    sentence = serializers.CharField(help_text="What was seen, with the evidence in it.")
    cycle = serializers.IntegerField(help_text="Of the reply it is about.")


class CallSerializer(serializers.Serializer):
    """One line of a list. `args` is a preview of at most 200 characters, as text."""

    id = serializers.IntegerField()
    turnId = serializers.IntegerField(source="turn_id")
    cycle = serializers.IntegerField()
    index = serializers.IntegerField()
    toolName = serializers.CharField(source="tool_name")
    argsPreview = serializers.CharField(source="args_preview", allow_null=True)
    isError = serializers.BooleanField(source="is_error", allow_null=True)
    state = serializers.CharField()
    startedAt = serializers.DateTimeField(source="started_at")
    timeRecorded = serializers.BooleanField(source="time_recorded")
    durationMs = serializers.IntegerField(source="duration_ms", allow_null=True)
    source = serializers.CharField()
    conversationId = serializers.CharField(source="conversation_id")
    contactId = serializers.CharField(source="contact_id")
    messageId = serializers.CharField(source="message_id")
    outboundMessageId = serializers.CharField(source="outbound_message_id")
    model = serializers.CharField()
    styleId = serializers.CharField(source="style_id")
    label = LabelField(allow_null=True)
    numLabels = serializers.IntegerField(source="num_labels")
    hints = HintSerializer(many=True)
    tags = serializers.ListField(child=serializers.CharField())
    archived = serializers.BooleanField(source="is_archived")


class CountSerializer(serializers.Serializer):
    """`capped`: there are more than `value`."""

    value = serializers.IntegerField()
    capped = serializers.BooleanField()


class CallPageSerializer(serializers.Serializer):
    items = CallSerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)
    previousCursor = serializers.CharField(allow_null=True)
    count = CountSerializer(required=False, help_text="Only with count=true.")


class TurnSerializer(serializers.Serializer):
    """The turn a call belongs to, with its own messages."""

    id = serializers.IntegerField()
    source = serializers.CharField()
    externalId = serializers.CharField(source="external_id")
    state = serializers.CharField()
    endReason = serializers.CharField(source="end_reason")
    messageId = serializers.CharField(source="message_id")
    numCalls = serializers.IntegerField(source="num_calls")
    numCycles = serializers.IntegerField(source="num_cycles")
    startedAt = serializers.DateTimeField(source="started_at")
    durationMs = serializers.IntegerField(source="duration_ms", allow_null=True)
    system = Evidence(allow_null=True)
    messages = Evidence(allow_null=True)


class ToolsetSerializer(serializers.Serializer):
    """The tools that were offered."""

    sha256 = serializers.CharField()
    tools = Evidence()


class CallEvidenceSerializer(serializers.Serializer):
    """A call with all that was recorded of it."""

    id = serializers.IntegerField()
    turnId = serializers.IntegerField(source="turn_id")
    cycle = serializers.IntegerField()
    index = serializers.IntegerField()
    toolCallId = serializers.CharField(source="tool_call_id", allow_null=True)
    toolName = serializers.CharField(source="tool_name")
    args = Evidence(allow_null=True)
    result = Evidence(allow_null=True)
    isError = serializers.BooleanField(source="is_error", allow_null=True)
    error = serializers.CharField(allow_null=True)
    state = serializers.CharField()
    startedAt = serializers.DateTimeField(source="started_at")
    timeRecorded = serializers.BooleanField(source="time_recorded")
    durationMs = serializers.IntegerField(source="duration_ms", allow_null=True)
    source = serializers.CharField()
    externalId = serializers.CharField(source="external_id")
    conversationId = serializers.CharField(source="conversation_id")
    contactId = serializers.CharField(source="contact_id")
    messageId = serializers.CharField(source="message_id")
    outboundMessageId = serializers.CharField(source="outbound_message_id")
    model = serializers.CharField()
    provider = serializers.CharField()
    styleId = serializers.CharField(source="style_id")
    promptVersion = serializers.CharField(source="prompt_version")
    warnings = serializers.ListField(child=serializers.CharField())
    turn = TurnSerializer()
    toolset = ToolsetSerializer(allow_null=True)


class StandingSerializer(serializers.Serializer):
    """What reviewers say of an item."""

    version = serializers.IntegerField(help_text="Send it along with your label.")
    labels = FeedbackSerializer(many=True)
    history = EventSerializer(many=True)


class CallDetailSerializer(CallEvidenceSerializer, StandingSerializer):
    """A call with all that was recorded of it, what rules noticed, and what reviewers say of it."""

    hints = HintSerializer(many=True)


class LabelCounts(serializers.Serializer):
    """Names are the labels themselves."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return {label: serializers.IntegerField(default=0) for label in Label.values}


class ToolSummarySerializer(serializers.Serializer):
    """Rates are between 0 and 1; null where there is nothing to divide by."""

    toolName = serializers.CharField(source="tool_name")
    numCalls = serializers.IntegerField(source="num_calls")
    numErrors = serializers.IntegerField(source="num_errors")
    errorRate = serializers.FloatField(source="error_rate", allow_null=True)
    numLabelled = serializers.IntegerField(source="num_labelled")
    numActionable = serializers.IntegerField(source="num_actionable")
    actionableRate = serializers.FloatField(source="actionable_rate", allow_null=True)
    labels = LabelCounts()


class ImportSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    filename = serializers.CharField()
    format = serializers.CharField()
    state = serializers.CharField()
    numAccepted = serializers.IntegerField(source="num_accepted")
    numUnchanged = serializers.IntegerField(source="num_unchanged")
    numRejected = serializers.IntegerField(source="num_rejected")
    createdAt = serializers.DateTimeField(source="created_at")
    finishedAt = serializers.DateTimeField(source="finished_at", allow_null=True)


class PeriodSerializer(serializers.Serializer):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    numCalls = serializers.IntegerField(source="num_calls")
    numErrors = serializers.IntegerField(source="num_errors")
    numTurnsWithoutCall = serializers.IntegerField(source="num_turns_without_call")
    numLabelled = serializers.IntegerField(source="num_labelled")
    labels = LabelCounts()
    tools = ToolSummarySerializer(many=True)
    topFailing = ToolSummarySerializer(source="top_failing", many=True)


class LabelRateSerializer(serializers.Serializer):
    """Share of items that reviewers labelled wrong tool, missing tool or bad arguments, of all with a label. `low` and
    `high` are its 95 % interval (Wilson). `key` is empty where nothing was recorded."""

    key = serializers.CharField()
    labels = LabelCounts()
    numLabelled = serializers.IntegerField(source="num_labelled")
    numActionable = serializers.IntegerField(source="num_actionable")
    rate = serializers.FloatField(allow_null=True)
    low = serializers.FloatField()
    high = serializers.FloatField()


class TrendPointSerializer(serializers.Serializer):
    """One piece of the trend: whole days (UTC), both included."""

    first = serializers.DateField()
    last = serializers.DateField()
    rate = LabelRateSerializer()


class LabelRatesSerializer(serializers.Serializer):
    tool = LabelRateSerializer(many=True)
    style = LabelRateSerializer(many=True)
    model = LabelRateSerializer(many=True)
    toolset = LabelRateSerializer(many=True)


class SummarySerializer(PeriodSerializer):
    total = LabelRateSerializer()
    rates = LabelRatesSerializer()
    trend = TrendPointSerializer(many=True)
    lastImports = ImportSerializer(many=True)


class StrictRequest(serializers.Serializer):
    """A body in which a member that nobody reads is a slip, so it is refused by name."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = [name for name in data if name not in self.fields]
        if unknown:
            message = f"There is no such member. Known: {', '.join(self.fields)}."
            raise serializers.ValidationError({name: ErrorDetail(message, "unknown_member") for name in unknown})
        return super().to_internal_value(data)


class LabelRequest(StrictRequest):
    """`version` is the item's as you saw it; a label of another version is refused with 409. Without it, the label is
    given whatever happened meanwhile."""

    label = LabelField()
    note = serializers.CharField(required=False, allow_blank=True)
    correction = CorrectionField(required=False, allow_null=True)
    version = serializers.IntegerField(required=False, allow_null=True, min_value=0)


class TurnLabelRequest(LabelRequest):
    cycle = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, help_text="Which reply of the turn; the last one by default."
    )


class UndoRequest(StrictRequest):
    """To take back an undo (a redo), send the `version` that the undo made."""

    version = serializers.IntegerField(required=False, allow_null=True, min_value=0)


class TurnUndoRequest(UndoRequest):
    cycle = serializers.IntegerField(required=False, allow_null=True, min_value=0)


def labels_now(labels: Iterable[Feedback]) -> list[dict[str, Any]]:
    """The current labels as an answer says them."""
    return [dict(FeedbackSerializer(label).data) for label in labels]


def sent_label(sent: Verdict | None) -> dict[str, Any] | None:
    """The refused label as an answer says it; None: an undo was sent."""
    if sent is None:
        return None
    correction = None if sent.correction is None else msgspec.Raw(sent.correction.encode())
    return {"label": sent.label, "note": sent.note, "correction": correction}
