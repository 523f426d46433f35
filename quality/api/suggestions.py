"""Suggested labels over the API: runs in which a model judges items in advance, and what it said."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query
from quality.api.problems import problem
from quality.api.shapes import LabelField, StrictRequest
from quality.filters import QueryForm
from quality.models import Suggestion, SuggestionRun
from quality.review.suggesting import runs
from tenants.models import Scope

TAG = ["Suggested labels"]
JSON_NAMES = {"endpoint_label": "model", "queue": "queueId", "max_items": "maxItems", "max_tokens": "maxTokens"}


class SuggestionRunSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    model = serializers.CharField(source="endpoint_label", help_text="Label of the model endpoint.")
    queueId = serializers.IntegerField(source="queue_id", allow_null=True)
    query = serializers.CharField(help_text="The filter of Calls, where no queue is.")
    state = serializers.ChoiceField(choices=SuggestionRun.State.choices)
    maxItems = serializers.IntegerField(source="max_items")
    maxTokens = serializers.IntegerField(source="max_tokens", allow_null=True)
    judged = serializers.IntegerField(source="num_items")
    failed = serializers.IntegerField(source="num_failed")
    promptTokens = serializers.IntegerField(source="prompt_tokens")
    completionTokens = serializers.IntegerField(source="completion_tokens")
    endedWhy = serializers.CharField(source="ended_why", help_text="`all`, `items`, `tokens`, or empty.")
    failure = serializers.CharField()
    accepted = serializers.IntegerField()
    overruled = serializers.IntegerField()
    undecided = serializers.IntegerField()
    createdAt = serializers.DateTimeField(source="created_at")
    endedAt = serializers.DateTimeField(source="ended_at", allow_null=True)


class SuggestionRunListSerializer(serializers.Serializer):
    runs = SuggestionRunSerializer(many=True)


class SuggestionRunRequest(StrictRequest):
    model = serializers.CharField(max_length=200, help_text="Label of the model endpoint.")
    queueId = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=2**63 - 1)
    query = serializers.CharField(required=False, allow_blank=True, max_length=2_000)
    maxItems = serializers.IntegerField(min_value=1, max_value=runs.MAX_ITEMS)
    maxTokens = serializers.IntegerField(required=False, allow_null=True, min_value=1_000, max_value=2**53 - 1)


class SuggestionSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    callId = serializers.IntegerField(source="call_id", allow_null=True)
    turnId = serializers.IntegerField(source="turn_id")
    cycle = serializers.IntegerField()
    model = serializers.CharField()
    label = LabelField()  # type: ignore[assignment]
    confidence = serializers.FloatField(allow_null=True)
    reason = serializers.CharField()
    state = serializers.ChoiceField(choices=Suggestion.State.choices)
    decidedLabel = serializers.CharField(source="decided_label", allow_null=True)
    decidedAt = serializers.DateTimeField(source="decided_at", allow_null=True)
    createdAt = serializers.DateTimeField(source="created_at")


class SuggestionPageSerializer(serializers.Serializer):
    items = SuggestionSerializer(many=True)
    nextCursor = serializers.CharField(allow_null=True)


class SuggestionListForm(QueryForm):
    state = forms.ChoiceField(required=False, choices=Suggestion.State.choices)
    cursor = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


PAGE_SIZE = 200


def _run(pk: int) -> SuggestionRun:
    found = runs.with_outcomes([pk]).first()
    if found is None:
        raise Http404
    return found


def _told(run: SuggestionRun) -> dict[str, Any]:
    return dict(SuggestionRunSerializer(_run(run.pk)).data)


class SuggestionRunsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listSuggestionRuns", tags=TAG, responses=SuggestionRunListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The newest 50 runs, each with what people made of its suggestions."""
        return Response({"runs": SuggestionRunSerializer(runs.every(), many=True).data})

    @extend_schema(
        operation_id="startSuggestionRun",
        tags=TAG,
        request=SuggestionRunRequest,
        responses={201: SuggestionRunSerializer},
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Have a model judge items of a queue, or of a filter of Calls, in advance. What it says are suggestions."""
        sent = read_body(SuggestionRunRequest, request)
        try:
            run = runs.start(
                endpoint_label=sent["model"],
                queue_id=sent.get("queueId"),
                query=sent.get("query", ""),
                max_items=sent["maxItems"],
                max_tokens=sent.get("maxTokens"),
                by=request.user,
                token=request.auth,
            )
        except ValidationError as error:
            faults = {JSON_NAMES.get(name, name): list(found) for name, found in error.error_dict.items()}
            raise ValidationError(faults) from error
        return Response(_told(run), status=201)


class SuggestionRunView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getSuggestionRun", tags=TAG, responses=SuggestionRunSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A run."""
        return Response(SuggestionRunSerializer(_run(pk)).data)

    @extend_schema(
        operation_id="deleteSuggestionRun", tags=TAG, responses={204: OpenApiResponse(description="It is taken back.")}
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Take a run back with all it suggested. Labels that people gave stay."""
        runs.delete(_run(pk), by=request.user, token=request.auth)
        return Response(status=204)


class SuggestionRunCancelView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(
        operation_id="cancelSuggestionRun",
        tags=TAG,
        request=None,
        responses={200: SuggestionRunSerializer, 409: OpenApiResponse(description="It has ended.")},
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Stop a run; what it suggested stays."""
        run = _run(pk)
        if not runs.cancel(run, by=request.user, token=request.auth):
            return problem(409, "ended", "The run has come to its end already.", current=_told(run))
        return Response(_told(run))


class SuggestionsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="listSuggestions",
        tags=TAG,
        parameters=[
            OpenApiParameter("state", str, enum=Suggestion.State.values),
            OpenApiParameter("cursor", str, description="`nextCursor` of the page before."),
        ],
        responses=SuggestionPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """What a run suggested, in the order in which it did; without those that are hidden from the token's maker as
        long as a blind queue waits for labels."""
        run, asked = _run(pk), read_query(SuggestionListForm, request).cleaned_data
        found = runs.suggestions_of(run, request.user, state=asked["state"], after=asked["cursor"], limit=PAGE_SIZE)
        items = SuggestionSerializer(found.rows, many=True).data
        return Response({"items": items, "nextCursor": str(found.after) if found.after else None})
