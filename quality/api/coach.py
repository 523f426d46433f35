"""The coach: ask it about a style, read what it suggests. Accepting is for people, on its page."""
# mypy: disable-error-code="assignment"
# (REST framework takes declared fields off the class)

from typing import Any

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import InvalidRequest, fault
from quality.api.shapes import StrictRequest
from quality.improve.coach import runs
from quality.models import CoachItem, CoachRun, CoachState, Feedback
from quality.review.items import NoSuchItem
from tenants.models import Scope, User

_SPELLED = {"style_id": "styleId", "model": "model"}


class CoachRequest(StrictRequest):
    """`model` is the label of a model endpoint, or `rules`; by default the first model there is, else rules."""

    styleId = serializers.CharField(max_length=40)
    model = serializers.CharField(required=False, allow_blank=True, default="", max_length=40)


class RestsOn(serializers.Serializer):
    """A label that an item rests on, with its call (null: the reply made none)."""

    feedbackId = serializers.IntegerField(source="pk")
    turnId = serializers.IntegerField(source="turn_id")
    callId = serializers.IntegerField(source="call_id", allow_null=True)
    label = serializers.CharField()


class CoachItemSerializer(serializers.Serializer):
    """One suggestion. `text` is a guidance line or a skill's name; an example has `user` and `assistant` instead."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=CoachItem.Kind.choices)
    text = serializers.CharField()
    user = serializers.CharField(source="user_text")
    assistant = serializers.CharField(source="assistant_text")
    rationale = serializers.CharField()
    state = serializers.ChoiceField(choices=CoachItem.State.choices)
    styleVersion = serializers.IntegerField(source="style_version", allow_null=True)
    restsOn = RestsOn(many=True, source="rests_on")


class CoachRunSerializer(serializers.Serializer):
    """What the coach was asked and what it says. `method` is `model` or `rules`: who wrote it."""

    id = serializers.IntegerField()
    styleId = serializers.CharField(source="style_id")
    styleVersion = serializers.IntegerField(source="style_version")
    method = serializers.ChoiceField(choices=[runs.MODEL, runs.RULES])
    model = serializers.CharField(source="model_label")
    state = serializers.ChoiceField(choices=CoachState.choices)
    failure = serializers.CharField()
    summary = serializers.CharField()
    numFeedback = serializers.IntegerField(source="num_feedback")
    numTokens = serializers.IntegerField(source="num_tokens")
    createdAt = serializers.DateTimeField(source="created_at")
    finishedAt = serializers.DateTimeField(source="finished_at", allow_null=True)
    items = CoachItemSerializer(many=True, source="suggestions")


def told(run: CoachRun, user: User) -> dict[str, Any]:
    shown: Any = run
    shown.num_feedback = len(run.feedback_ids)
    seen = runs.shown_to(run, user)
    items: list[tuple[Any, list[Feedback]]] = [*seen.items]
    for item, labels in items:
        item.rests_on = labels
    shown.suggestions, shown.summary = [item for item, _ in items], seen.summary
    return dict(CoachRunSerializer(shown).data)


class CoachView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="askCoach",
        tags=["Coach"],
        request=CoachRequest,
        responses={
            201: CoachRunSerializer,
            202: OpenApiResponse(CoachRunSerializer, description="A model was asked; read it again at Location."),
        },
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Ask the coach about a style. Nothing of what it says is applied; a person accepts it on the Coach page."""
        wanted = read_body(CoachRequest, request)
        try:
            run = runs.start(
                style_id=wanted["styleId"], model_label=wanted["model"], by=request.user, token=request.auth
            )
        except ValidationError as error:
            raise InvalidRequest(
                [
                    fault(_SPELLED[name], each.code or "invalid", " ".join(each.messages))
                    for name, errors in error.error_dict.items()
                    for each in errors
                ]
            ) from error
        status = 201 if run.state == CoachState.DONE else 202
        return Response(told(run, request.user), status=status, headers={"Location": f"{request.path}/{run.pk}"})


class CoachRunView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="getCoachRun", tags=["Coach"], responses=CoachRunSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """What the coach says."""
        run = CoachRun.objects.filter(pk=pk).first()
        if run is None:
            raise NoSuchItem
        return Response(told(run, request.user))
