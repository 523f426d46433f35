"""Tool calls: the list, one call with its evidence, and labels on calls and turns."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response

from quality import calls
from quality.api import shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query, spelled
from quality.filters import CallListForm
from quality.models import Label, ToolCall
from quality.review import blind
from quality.review.hints import BY_NAME
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn
from quality.review.labelling import Outcome, current_labels, history, record_label, undo, version_of
from tenants.models import Scope, User


def text(name: str, description: str = "", **options: Any) -> OpenApiParameter:
    return OpenApiParameter(name, OpenApiTypes.STR, description=description, **options)


FROM = text("from", "Date, or date and time (UTC unless it says otherwise). Included.")
TO = text("to", "Date (all of that day is in), or date and time (not included).")
LABEL = text("label", "May repeat: any of these.", many=True, enum=[*Label.values, calls.UNLABELLED])
HINT = text("hint", "May repeat: calls with a hint of any of these rules.", many=True, enum=[calls.ANY_HINT, *BY_NAME])
FILTER = [
    text("conversation"),
    text("message", "Id of the reply that asked for the call."),
    text("outbound_message", "Id of the reply that was sent."),
    text("contact"),
    text("tool", "May repeat: any of these.", many=True),
    text("error", "none: no outcome was recorded.", enum=["yes", "no", "none"]),
    text("source"),
    text("style"),
    text("model"),
    text("toolset", "SHA-256 of the tools offered."),
    LABEL,
    HINT,
    text("tag", "May repeat: calls with any of these tags.", many=True),
    text("archived", "yes: the archive alone; any: with it. Else it is left out.", enum=["yes", "any"]),
    FROM,
    TO,
    text("arrived_to", "When the call came in here, included: freezes a filter, whatever comes later."),
]
PAGE = [
    text("cursor", "From nextCursor or previousCursor of another page."),
    OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 200; 50 by default."),
    OpenApiParameter("count", OpenApiTypes.BOOL, description="Count the matches, up to 10,000."),
]


class CallsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="listToolCalls",
        tags=["Tool calls"],
        parameters=[*FILTER, *PAGE],
        responses=shapes.CallPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Tool calls, newest first."""
        form = read_query(CallListForm, request)
        wanted = blind.seen_by(form.wanted, request.user)
        found = calls.find(wanted, cursor=form.cleaned_data["cursor"], page_size=form.page_size_or_default)
        page = blind.veiled_page(found, request.user)
        body: dict[str, Any] = {
            "items": shapes.CallSerializer(page.rows, many=True).data,
            "nextCursor": page.next,
            "previousCursor": page.previous,
        }
        if form.cleaned_data["count"]:
            number = calls.count(wanted)
            body["count"] = {"value": min(number, calls.COUNT_CAP), "capped": number > calls.COUNT_CAP}
        return Response(body)


class CallView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="getToolCall", tags=["Tool calls"], responses=shapes.CallDetailSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """One tool call with its evidence, the tools offered, and what reviewers say of it."""
        call = ToolCall.objects.select_related("turn", "toolset").filter(pk=pk).first()
        if call is None:
            raise NoSuchItem
        item = item_of_call(pk)
        standing = {
            "version": version_of(item),
            "labels": blind.veiled_labels(request.user, item, current_labels(item)),
            "history": blind.veiled_labels(request.user, item, history(item)),
        }
        hints = shapes.HintSerializer(calls.hints_of_calls([pk]).get(pk, []), many=True).data
        told = {"hints": hints, **shapes.StandingSerializer(standing).data}
        return Response({**shapes.CallEvidenceSerializer(call).data, **told})


def answer(item: Item, outcome: Outcome, user: User) -> Response:
    """How an item stands after a write."""
    standing = {
        "item": item,
        "version": version_of(item),
        "labels": blind.veiled_labels(user, item, current_labels(item)),
        "event": outcome.event,
    }
    return Response(shapes.ItemSerializer(standing).data)


def label(item: Item, request: TokenRequest, wanted: dict[str, Any]) -> Response:
    outcome = record_label(
        item=item,
        reviewer=request.user,
        label=wanted["label"],
        note=wanted.get("note", ""),
        correction=spelled(request, "correction"),
        seen_version=wanted.get("version"),
        token=request.auth,
    )
    return answer(item, outcome, request.user)


def take_back(item: Item, request: TokenRequest, wanted: dict[str, Any]) -> Response:
    outcome = undo(item=item, reviewer=request.user, seen_version=wanted.get("version"), token=request.auth)
    return answer(item, outcome, request.user)


class CallFeedbackView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="labelToolCall", tags=["Feedback"], request=shapes.LabelRequest, responses=shapes.ItemSerializer
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Label a call. The same label sent again changes nothing; a stale one is refused with both values."""
        wanted = read_body(shapes.LabelRequest, request)
        return label(item_of_call(pk), request, wanted)


class CallUndoView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="undoToolCallLabel", tags=["Feedback"], request=shapes.UndoRequest, responses=shapes.ItemSerializer
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Take back your last label of a call."""
        wanted = read_body(shapes.UndoRequest, request)
        return take_back(item_of_call(pk), request, wanted)


class TurnFeedbackView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="labelTurn", tags=["Feedback"], request=shapes.TurnLabelRequest, responses=shapes.ItemSerializer
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Label a reply that made no call, such as one where a call is missing."""
        wanted = read_body(shapes.TurnLabelRequest, request)
        return label(item_of_turn(pk, wanted.get("cycle")), request, wanted)


class TurnUndoView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="undoTurnLabel", tags=["Feedback"], request=shapes.TurnUndoRequest, responses=shapes.ItemSerializer
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Take back your last label of a turn's reply."""
        wanted = read_body(shapes.TurnUndoRequest, request)
        return take_back(item_of_turn(pk, wanted.get("cycle")), request, wanted)
