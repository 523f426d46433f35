"""How far reviewers agree, and machines with them: the figures of the page."""

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_query
from quality.api.calls import FROM, TO, text
from quality.api.shapes import LabelField
from quality.filters import ListField, MomentField, QueryForm
from quality.models import ReviewQueue
from quality.review.agreement import How, Pair, Why
from quality.review.agreement_data import AnswerFilter, Figures, figures, judge_figures
from tenants.models import Scope

PERIOD: Final = dt.timedelta(days=30)


class AgreementQuery(QueryForm):
    tools = ListField(required=False)
    style = forms.CharField(required=False, max_length=512)
    queue = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)
    since = MomentField(required=False)
    until = MomentField(required=False, end=True)

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        since, until, queue = (fields.get(name) for name in ("since", "until", "queue"))
        if since and until and since >= until:
            self.add_error("until", ValidationError("The period ends before it begins.", code="empty_period"))
        if queue is not None and not ReviewQueue.objects.filter(pk=queue, deleted_at=None).exists():
            self.add_error("queue", ValidationError("There is no such queue.", code="no_such_queue"))
        return fields

    @property
    def wanted(self) -> AnswerFilter:
        """The filter; only of a valid form. The last 30 days, unless it says otherwise."""
        data = self.cleaned_data
        until = data["until"] or timezone.now()
        since = data["since"] or until - PERIOD
        return AnswerFilter(since=since, until=until, tools=data["tools"], style=data["style"], queue=data["queue"])


class MeasureSerializer(serializers.Serializer):
    """A figure with its 95 % interval. `value` null: `why` says why it cannot be told."""

    value = serializers.FloatField(allow_null=True)
    n = serializers.IntegerField(help_text="Items that it rests on.")
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    how = serializers.ChoiceField(
        choices=[how.value for how in How], allow_null=True, help_text="What the interval comes from."
    )
    why = serializers.ChoiceField(
        choices=[why.value for why in Why], allow_null=True, help_text="Why there is no value, or no interval."
    )
    isSmall = serializers.BooleanField(source="is_small", help_text="Fewer than 20 items: too few to lean on.")


class LabelAgreementSerializer(serializers.Serializer):
    """One label against the rest."""

    label = LabelField()  # type: ignore[assignment]
    numGiven = serializers.IntegerField(source="num_given")
    alpha = MeasureSerializer()
    raw = MeasureSerializer()
    again = MeasureSerializer(help_text="Where one reviewer says it, how often another does.")


class PairedReviewerSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    name = serializers.CharField()


class LabelKappaSerializer(serializers.Serializer):
    label = LabelField()  # type: ignore[assignment]
    kappa = MeasureSerializer()


class LabelCountSerializer(serializers.Serializer):
    label = LabelField()  # type: ignore[assignment]
    other = serializers.CharField(help_text="A label, too.")
    count = serializers.IntegerField()


class PairSerializer(serializers.Serializer):
    """Two reviewers on the items that both answered. In `table`, `label` is what the first says, `other` the second."""

    reviewers = PairedReviewerSerializer(many=True)
    numItems = serializers.IntegerField(source="num_items")
    numApart = serializers.IntegerField(source="num_apart")
    kappa = MeasureSerializer()
    raw = MeasureSerializer()
    labels = LabelKappaSerializer(many=True)
    table = LabelCountSerializer(many=True)


class HintAgreementSerializer(serializers.Serializer):
    """How well hints foretell an actionable label, in counts of labelled items."""

    rule = serializers.CharField(allow_null=True, help_text="null: a hint of any rule.")
    hits = serializers.IntegerField()
    falseAlarms = serializers.IntegerField(source="false_alarms")
    missed = serializers.IntegerField()
    neither = serializers.IntegerField()
    precision = MeasureSerializer()
    recall = MeasureSerializer()
    kappa = MeasureSerializer()


class SuggestionAgreementSerializer(serializers.Serializer):
    """What a model suggested against what most people say of the same items."""

    model = serializers.CharField()
    kappa = MeasureSerializer()
    raw = MeasureSerializer()
    accepted = serializers.IntegerField()
    overruled = serializers.IntegerField()
    taken = MeasureSerializer()


class JudgeAgreementSerializer(serializers.Serializer):
    """What a judge of replays says against people; of all time, whatever the filter."""

    model = serializers.CharField()
    rubric = serializers.CharField(allow_blank=True, help_text="Empty: all rubrics together.")
    kappa = MeasureSerializer()
    raw = MeasureSerializer()
    lenient = serializers.IntegerField(help_text="It passed what people found wrong.")
    strict = serializers.IntegerField(help_text="It failed what people found right.")


class AgreementReportSerializer(serializers.Serializer):
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    numLabels = serializers.IntegerField(source="num_labels")
    numItems = serializers.IntegerField(source="num_items")
    numShared = serializers.IntegerField(source="num_shared", help_text="Items with two answers or more.")
    numReviewers = serializers.IntegerField(source="num_reviewers")
    numHidden = serializers.IntegerField(source="num_hidden", help_text="Labels that wait in blind queues.")
    isCapped = serializers.BooleanField(source="is_capped", help_text="The newest 20,000 labels are measured.")
    alpha = MeasureSerializer(help_text="Krippendorff's, nominal.")
    raw = MeasureSerializer()
    labels = LabelAgreementSerializer(many=True)
    pairs = PairSerializer(many=True, help_text="Of the 30 reviewers who share most items.")
    confusion = LabelCountSerializer(many=True, help_text="Pairs of answers on one item, in no order.")
    hints = HintAgreementSerializer(many=True)
    suggestions = SuggestionAgreementSerializer(many=True)
    judges = JudgeAgreementSerializer(many=True)


class AgreementView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="getAgreement",
        tags=["Feedback"],
        parameters=[
            text("tool", "May repeat: any of these.", many=True),
            text("style"),
            OpenApiParameter("queue", OpenApiTypes.INT, description="Items of this review queue."),
            FROM,
            TO,
        ],
        responses=AgreementReportSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """How far reviewers agree: Krippendorff's alpha, Cohen's kappa of each pair, both also by label; hints,
        suggested labels and the judge of replays held against people. By when labels were given; the last 30 days by
        default. Items that wait in a blind queue are in no figure."""
        wanted = read_query(AgreementQuery, request).wanted
        return Response(AgreementReportSerializer(_told(wanted, figures(wanted))).data)


def _told(wanted: AnswerFilter, found: Figures) -> dict[str, Any]:
    people, answers = found.people, found.answers
    counts = ("num_labels", "num_items", "num_shared", "num_reviewers", "alpha", "raw", "labels")
    return {name: getattr(people, name) for name in counts} | {
        "since": wanted.since,
        "until": wanted.until,
        "num_hidden": answers.num_hidden,
        "is_capped": answers.is_capped,
        "pairs": [_pair(pair, found.names) for pair in people.pairs],
        "confusion": _counts(people.confusion),
        "hints": [
            {"rule": figure.rule.name if figure.rule else None}
            | {name: getattr(figure.prediction, name) for name in _PREDICTION}
            for figure in found.hints
        ],
        "suggestions": found.suggestions,
        "judges": judge_figures(),
    }


_PREDICTION: Final = ("hits", "false_alarms", "missed", "neither", "precision", "recall", "kappa")


def _pair(pair: Pair, names: Mapping[int, str]) -> dict[str, Any]:
    ids: list[Any] = [pair.left, pair.right]
    told = {name: getattr(pair, name) for name in ("num_items", "num_apart", "kappa", "raw")}
    return told | {
        "reviewers": [{"id": pk, "name": names.get(pk, "")} for pk in ids],
        "labels": [{"label": label, "kappa": kappa} for label, kappa in pair.labels.items()],
        "table": _counts(pair.table),
    }


def _counts(table: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    return [{"label": one, "other": other, "count": count} for (one, other), count in sorted(table.items())]
