"""Turns: run one, follow it, answer its pending calls, call it off."""
# mypy: disable-error-code="assignment"
# (a field may be called `index` or `error`: REST framework takes declared fields off the class)

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response

from quality.api.auth import still_has
from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import InvalidRequest, fault, problem
from quality.api.rendering import JSONRenderer
from quality.api.shapes import Evidence, Person, StrictRequest
from quality.ingest.jsontext import dump
from quality.models import CallDecision, Channel, DecisionKind, ToolCall, Turn, TurnRun
from quality.review.items import NoSuchItem
from quality.turns.create import TurnConflict, cancel_turn, create_turn
from quality.turns.decide import AlreadyDecided, CannotDecide, NoSuchTurn, Verdict, decide
from quality.turns.events import reply_of
from quality.turns.live import NotLive, stream_turn
from tenants.models import ApiToken, Scope, User
from tenants.scope import tenant_scope

MAX_HISTORY = 1_000
MAX_RESULTS = 100
# What may be said with a decision; with the others nothing.
TAKES = {
    DecisionKind.APPROVE: ("arguments",),
    DecisionKind.DECLINE: ("reason",),
    DecisionKind.ANSWER: ("result", "isError"),
}


class TurnRequest(StrictRequest):
    """One message to the agent. `externalId` makes it safe to send again: the same one gives the first turn."""

    text = serializers.CharField(trim_whitespace=False)
    conversationId = serializers.CharField(required=False, allow_blank=True, default="")
    contactId = serializers.CharField(required=False, allow_blank=True, default="")
    messageId = serializers.CharField(required=False, allow_blank=True, default="")
    externalId = serializers.CharField(required=False, allow_blank=True, default="")
    model = serializers.CharField(required=False, allow_blank=True, default="", help_text="Label of a model endpoint.")
    styleId = serializers.CharField(required=False, allow_blank=True, default="")
    history = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        allow_null=True,
        default=None,
        max_length=MAX_HISTORY,
        help_text="Earlier messages in OpenAI form; by default those of the conversation's earlier turns.",
    )


class ToolResultRequest(StrictRequest):
    """What is decided on one open call. With `result` and no `decision` it is the answer."""

    callId = serializers.JSONField(help_text="The call's id here (a number), or the model's own (a string).")
    decision = serializers.ChoiceField(
        choices=[kind for kind in DecisionKind.values if kind != DecisionKind.NOT_ANSWERED], required=False
    )
    result = serializers.JSONField(required=False, help_text="Text as it is; any other JSON as its text.")
    isError = serializers.BooleanField(required=False, default=False)
    reason = serializers.CharField(required=False, allow_blank=True, default="")
    arguments = serializers.DictField(required=False, allow_null=True, default=None, help_text="Edited arguments.")
    opening = serializers.IntegerField(
        required=False,
        min_value=1,
        help_text="The call's `opening` that is meant: sent again after a later one it decides nothing (409).",
    )


class ToolResultsRequest(StrictRequest):
    """Decisions on several calls, all or none. With the last open call decided the turn goes on by itself; `autoSend`
    false puts them on record only (send an empty `results` later to go on)."""

    results = ToolResultRequest(many=True)
    autoSend = serializers.BooleanField(required=False, default=True)


class DecisionSerializer(serializers.Serializer):
    """Who decided what on a call, and when."""

    decision = serializers.CharField(source="kind")
    arguments = Evidence(allow_null=True)
    text = Evidence(allow_null=True)
    isError = serializers.BooleanField(source="is_error")
    decidedBy = Person(source="decided_by", allow_null=True)
    decidedAt = serializers.DateTimeField(source="created_at")


class TurnCallSerializer(serializers.Serializer):
    """A call of a turn. `argumentsRun` is what a person made of the arguments."""

    id = serializers.IntegerField()
    callId = serializers.CharField(source="tool_call_id", allow_null=True)
    cycle = serializers.IntegerField()
    index = serializers.IntegerField()
    name = serializers.CharField(source="tool_name")
    arguments = Evidence(source="args", allow_null=True)
    argumentsRun = Evidence(source="args_run", allow_null=True)
    state = serializers.CharField()
    opening = serializers.IntegerField(help_text="How often it came to wait for a decision; 0: it never did.")
    mode = serializers.CharField(allow_null=True)
    safety = serializers.CharField(allow_null=True)
    result = Evidence(allow_null=True)
    isError = serializers.BooleanField(source="is_error", allow_null=True)
    error = serializers.CharField(allow_null=True)
    decisions = DecisionSerializer(many=True)


class TurnStateSerializer(serializers.Serializer):
    """A turn of ours as it stands. `reply` is null until it has one."""

    id = serializers.IntegerField(source="turn_id")
    externalId = serializers.CharField(source="turn.external_id")
    conversationId = serializers.CharField(source="conversation_id")
    channel = serializers.CharField()
    state = serializers.CharField()
    endReason = serializers.CharField(source="turn.end_reason")
    error = serializers.CharField()
    reply = serializers.SerializerMethodField()
    model = serializers.CharField(source="turn.model")
    styleId = serializers.CharField(source="turn.style_id")
    attempt = serializers.IntegerField()
    numCalls = serializers.IntegerField(source="turn.num_calls")
    numCycles = serializers.IntegerField(source="turn.num_cycles")
    lastEventId = serializers.IntegerField(source="last_seq")
    startedAt = serializers.DateTimeField(source="turn.started_at")
    finishedAt = serializers.DateTimeField(source="finished_at", allow_null=True)
    calls = TurnCallSerializer(many=True)

    def get_reply(self, run: TurnRun) -> str | None:
        return reply_of(run.turn)


class EventStreamRenderer(BaseRenderer):
    """Stands for the event stream when client and we agree on a media type; the stream renders itself."""

    media_type = "text/event-stream"
    format = "sse"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return JSONRenderer().render(data)


def standing(turn_id: int) -> dict[str, Any]:
    """A turn as an answer says it, in the open scope; raises NoSuchItem."""
    run: Any = TurnRun.objects.select_related("turn").filter(turn=turn_id).first()
    if run is None:
        raise NoSuchItem
    made: dict[int, list[CallDecision]] = {}
    for decision in CallDecision.objects.select_related("decided_by").filter(turn=turn_id).order_by("pk"):
        made.setdefault(decision.call_id, []).append(decision)
    run.calls = [
        {name: getattr(call, name) for name in _CALL_FIELDS} | {"decisions": made.get(call.pk, [])}
        for call in ToolCall.objects.filter(turn=turn_id).order_by("cycle", "index")
    ]
    return dict(TurnStateSerializer(run).data)


_CALL_FIELDS = (
    "id",
    "tool_call_id",
    "cycle",
    "index",
    "tool_name",
    "args",
    "args_run",
    "state",
    "opening",
    "mode",
    "safety",
    "result",
    "is_error",
    "error",
)


class TurnsView(TenantView):
    required_scope = Scope.TURNS_WRITE

    @extend_schema(
        operation_id="createTurn",
        tags=["Turns"],
        request=TurnRequest,
        responses={
            201: TurnStateSerializer,
            200: OpenApiResponse(TurnStateSerializer, description="This externalId was sent before."),
            409: OpenApiResponse(description="This externalId is another turn's."),
        },
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response | HttpResponse:
        """Send the agent a message. The turn is queued and answered at once; follow it by its events."""
        wanted = read_body(TurnRequest, request)
        before = TurnRun.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        try:
            turn = begin_turn(wanted, Channel.API, by=request.user, token=request.auth)
        except TurnConflict as error:
            return problem(409, "conflict", str(error), errors=[fault("externalId", "conflict", str(error))])
        is_new = TurnRun.objects.filter(turn=turn, pk__gt=before).exists()
        return Response(standing(turn.pk), status=201 if is_new else 200)


def begin_turn(wanted: Mapping[str, Any], channel: Channel, *, by: User | None, token: ApiToken | None) -> Turn:
    """Create a turn as a `TurnRequest` says, in the open scope. Raises TurnConflict, and ValidationError with the
    fields as the request spells them."""
    try:
        return create_turn(
            **{ours: wanted[theirs] for ours, theirs in _TURN_FIELDS.items()}, channel=channel, by=by, token=token
        )
    except ValidationError as error:
        faults = {_TURN_FIELDS[name]: list(found) for name, found in error.error_dict.items()}
        raise ValidationError(faults) from error


# How `create_turn` calls what a `TurnRequest` says.
_TURN_FIELDS = {
    "text": "text",
    "conversation_id": "conversationId",
    "contact_id": "contactId",
    "message_id": "messageId",
    "external_id": "externalId",
    "history": "history",
    "model_label": "model",
    "style_id": "styleId",
}


class TurnView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="getTurn", tags=["Turns"], responses=TurnStateSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A turn with its calls and what was decided on them."""
        return Response(standing(pk))


class TurnEventsView(TenantView):
    http_method_names = ("get", "options")

    required_scope = Scope.READ
    renderer_classes = (EventStreamRenderer, JSONRenderer)

    @extend_schema(
        operation_id="followTurn",
        tags=["Turns"],
        parameters=[
            OpenApiParameter("Last-Event-ID", OpenApiTypes.STR, OpenApiParameter.HEADER, description="To go on after."),
            OpenApiParameter("after", OpenApiTypes.STR, description="The same, for clients that set no headers."),
        ],
        responses={
            (200, "text/event-stream"): OpenApiResponse(
                OpenApiTypes.STR,
                description="assistant_delta, tool_call, tool_decision and turn_state events, then assistant_end. "
                "At turn_state running, text of a reply that was not finished is void.",
            ),
            204: OpenApiResponse(description="The turn has ended and there is nothing more."),
        },
    )
    def get(self, request: TokenRequest, pk: int) -> HttpResponseBase:
        """Follow a turn to its end. A stream that broke off is taken up again with Last-Event-ID. The WebSocket `/ws`
        tells the same events, and takes messages: `{"type": "user_text", "text": "…"}`."""
        tenant_id: int = request.auth.tenant.pk
        with tenant_scope(tenant_id):
            if not TurnRun.objects.filter(turn=pk).exists():
                raise NoSuchItem
        try:
            return stream_turn(
                request._request,
                tenant_id=tenant_id,
                turn_id=pk,
                still_allowed=partial(still_has, request.headers["Authorization"], Scope.READ),
            )
        except NotLive as error:
            return problem(503, "not_live", str(error))


class TurnResultsView(TenantView):
    required_scope = Scope.TURNS_WRITE

    @extend_schema(
        operation_id="answerToolCalls",
        tags=["Turns"],
        request=ToolResultsRequest,
        responses={
            200: TurnStateSerializer,
            409: OpenApiResponse(description="Somebody decided on one of the calls before. None is recorded."),
        },
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Approve, decline or answer calls that wait, or say what became of one whose outcome is unknown."""
        if not TurnRun.objects.filter(turn=pk).exists():
            raise NoSuchItem
        wanted = read_body(ToolResultsRequest, request)
        try:
            answer_calls(pk, wanted, by=request.user, token=request.auth)
        except AlreadyDecided as error:
            return problem(409, "already_decided", str(error))
        return Response(standing(pk))


def answer_calls(turn_id: int, wanted: Mapping[str, Any], *, by: User | None, token: ApiToken | None) -> None:
    """Decide as a `ToolResultsRequest` says, in the open scope. Raises NoSuchItem, InvalidRequest, AlreadyDecided."""
    if len(wanted["results"]) > MAX_RESULTS:
        raise InvalidRequest([fault("results", "too_long", f"At most {MAX_RESULTS} at once.")])
    verdicts = [_verdict(index, item) for index, item in enumerate(wanted["results"])]
    try:
        decide(turn_id, verdicts, auto_send=wanted["autoSend"], by=by, token=token)
    except NoSuchTurn as error:
        raise NoSuchItem from error
    except CannotDecide as error:
        path = f"results[{error.index}].{error.member}"
        raise InvalidRequest([fault(path, error.code, str(error))]) from error


def _verdict(index: int, item: Mapping[str, Any]) -> Verdict:
    call_id, result = item["callId"], item.get("result")
    if isinstance(call_id, bool) or not isinstance(call_id, int | str):
        raise InvalidRequest([fault(f"results[{index}].callId", "wrong_type", "Expected a number or a string.")])
    kind = item.get("decision") or (DecisionKind.ANSWER if "result" in item else None)
    if kind is None:
        raise InvalidRequest([fault(f"results[{index}]", "required", "Give a decision or a result.")])
    if kind == DecisionKind.ANSWER and "result" not in item:
        raise InvalidRequest([fault(f"results[{index}].result", "required", "An answer needs a result.")])
    taken = TAKES.get(DecisionKind(kind), ())
    given = {"arguments": item["arguments"] is not None, "reason": item["reason"] != "", "result": "result" in item,
             "isError": item["isError"]}  # fmt: skip
    if extra := [name for name, is_given in given.items() if is_given and name not in taken]:
        takes = f"takes {', '.join(taken)}" if taken else "takes nothing more"
        message = f"The decision {kind} {takes}."
        raise InvalidRequest([fault(f"results[{index}].{name}", "not_for_this_decision", message) for name in extra])
    text = item["reason"] if kind == DecisionKind.DECLINE else _as_text(result) if "result" in item else None
    return Verdict(call_id, DecisionKind(kind), item["arguments"], text, item["isError"], item.get("opening"))


def _as_text(result: Any) -> str:
    return result if isinstance(result, str) else dump(result)


class TurnCancelView(TenantView):
    required_scope = Scope.TURNS_WRITE

    @extend_schema(operation_id="cancelTurn", tags=["Turns"], request=None, responses=TurnStateSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Call a turn off. One that runs ends within a moment; one that has ended stays as it is."""
        if cancel_turn(pk, by=request.user, token=request.auth) is None:
            raise NoSuchItem
        return Response(standing(pk))
