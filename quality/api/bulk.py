"""Bulk actions over the API: look, confirm what was looked at, follow, undo."""
# mypy: disable-error-code="assignment"
# (a field may be called `label`: REST framework takes declared fields off the class)

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from quality.api import shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import InvalidRequest, fault
from quality.api.shapes import LabelField, Person, StrictRequest
from quality.calls import CallFilter, CallPage
from quality.filters import CallFilterForm
from quality.models import BulkAction, BulkItem, BulkKind, BulkState
from quality.review.blind import veiled_page
from quality.review.bulk import preview, run, scope
from quality.review.bulk.run import Decided, NotYours, Stale, Wanted
from quality.review.items import NoSuchItem
from quality.review.queues.people import queues_of
from quality.review.tags import MAX_TAG_CHARS
from tenants.models import Membership, Role, Scope

GROUP = ["Bulk actions"]
PAGE_SIZE = 50
REPORT_SIZE = 200


class Conflict(APIException):
    """It cannot be done as things are now."""

    status_code = 409
    default_code = "conflict"


class BulkRequest(StrictRequest):
    """`callIds`, or `filter`: a query string of GET /api/admin/quality/tool-calls, empty for all calls. What it lets
    through when it is sent is meant, whatever comes in later."""

    kind = serializers.ChoiceField(choices=BulkKind.choices)
    callIds = serializers.ListField(
        child=serializers.IntegerField(min_value=1), required=False, max_length=scope.MAX_CHOSEN, allow_empty=False
    )
    filter = serializers.CharField(required=False, allow_blank=True, max_length=4_000)


class BulkConfirmRequest(StrictRequest):
    """`seen` is the preview's: what was looked at. Labels take `label`, `reason` and perhaps `note`; `tag` and `untag`
    take `tag`; `enqueue` takes `queueId`."""

    seen = serializers.RegexField(r"^[0-9a-f]{64}\Z")
    label = LabelField(required=False)
    note = serializers.CharField(required=False, allow_blank=True)
    reason = serializers.CharField(required=False, allow_blank=True)
    tag = serializers.CharField(required=False, max_length=4 * MAX_TAG_CHARS)
    queueId = serializers.IntegerField(required=False, min_value=1)


class BulkSerializer(serializers.Serializer):
    """An action. Counts are of calls: `skipped` were left as they were, `failed` could not be done, `left` were not
    undone, for something newer happened to them."""

    id = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=BulkKind.choices)
    state = serializers.ChoiceField(choices=BulkState.choices)
    filter = serializers.CharField(source="query")
    callIds = serializers.ListField(child=serializers.IntegerField(), source="call_ids")
    label = LabelField(allow_null=True)
    note = serializers.CharField()
    reason = serializers.CharField()
    tag = serializers.CharField()
    queueId = serializers.IntegerField(source="queue_id", allow_null=True)
    items = serializers.IntegerField(source="num_items")
    done = serializers.IntegerField(source="num_done")
    skipped = serializers.IntegerField(source="num_skipped")
    failed = serializers.IntegerField(source="num_failed")
    undone = serializers.IntegerField(source="num_undone")
    left = serializers.IntegerField(source="num_left")
    failure = serializers.CharField()
    createdBy = Person(source="created_by")
    createdAt = serializers.DateTimeField(source="created_at")
    confirmedAt = serializers.DateTimeField(source="confirmed_at", allow_null=True)
    finishedAt = serializers.DateTimeField(source="finished_at", allow_null=True)


class SkipSerializer(serializers.Serializer):
    code = serializers.CharField()
    number = serializers.IntegerField()


class BulkPreviewSerializer(BulkSerializer):
    """What an action would do: to `count` calls, of which `skips` would be left as they are."""

    count = serializers.IntegerField()
    capped = serializers.BooleanField(help_text="There are more than one action takes: it cannot be confirmed.")
    seen = serializers.CharField(help_text="Names what was looked at; send it when you confirm.")
    skips = SkipSerializer(many=True)
    sample = shapes.CallSerializer(many=True)


class BulkPageSerializer(serializers.Serializer):
    items = BulkSerializer(many=True)
    nextBefore = serializers.IntegerField(allow_null=True)


class BulkItemSerializer(serializers.Serializer):
    id = serializers.IntegerField()
    callId = serializers.IntegerField(source="call_id")
    state = serializers.ChoiceField(choices=BulkItem.State.choices)
    code = serializers.CharField()
    message = serializers.CharField()


class BulkReportSerializer(serializers.Serializer):
    items = BulkItemSerializer(many=True)
    nextAfter = serializers.IntegerField(allow_null=True)


def action_of(pk: int, request: TokenRequest) -> BulkAction:
    """An action; a preview is its maker's alone. Raises NoSuchItem."""
    action = BulkAction.objects.select_related("created_by", "queue").filter(pk=pk).first()
    if action is None or (action.state == BulkState.PREVIEW and action.created_by_id != request.user.pk):
        raise NoSuchItem
    return action


def told(action: BulkAction, request: TokenRequest) -> dict[str, Any]:
    if action.state != BulkState.PREVIEW:
        return dict(BulkSerializer(action).data)
    shown: Any = action
    try:
        looked = preview.of_action(action)
    except scope.FilterBroken as broken:
        raise Conflict(str(broken)) from broken
    if looked.seen.sha256 != action.seen_sha256:
        preview.note_seen(action, looked.seen)
        action.save(update_fields=["seen_count", "seen_sha256", "seen_at"])
    shown.count, shown.capped, shown.seen = looked.seen.count, looked.seen.is_capped, looked.seen.sha256
    sample = CallPage(rows=list(looked.sample), next=None, previous=None)
    shown.skips, shown.sample = looked.skips, veiled_page(sample, request.user).rows
    return dict(BulkPreviewSerializer(shown).data)


def _number(request: TokenRequest, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidRequest([fault(name, "invalid", "Use an id as it was told.")])
    return int(text)


class BulkActionsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="listBulkActions",
        tags=GROUP,
        parameters=[OpenApiParameter("before", OpenApiTypes.INT)],
        responses=BulkPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Confirmed actions, newest first."""
        rows = BulkAction.objects.exclude(state=BulkState.PREVIEW).select_related("created_by").order_by("-id")
        if before := _number(request, "before"):
            rows = rows.filter(pk__lt=before)
        found = list(rows[: PAGE_SIZE + 1])
        more = found[PAGE_SIZE - 1].pk if len(found) > PAGE_SIZE else None
        return Response({"items": BulkSerializer(found[:PAGE_SIZE], many=True).data, "nextBefore": more})

    @extend_schema(
        operation_id="previewBulkAction", tags=GROUP, request=BulkRequest, responses={201: BulkPreviewSerializer}
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Look at what an action would do. Nothing happens before it is confirmed."""
        wanted = read_body(BulkRequest, request)
        if ("filter" in wanted) == ("callIds" in wanted):
            raise InvalidRequest([fault("filter", "required", "Send filter or callIds, one of them.")])
        action = preview.make(
            kind=wanted["kind"],
            by=request.user,
            wanted=_filter(wanted["filter"]) if "filter" in wanted else None,
            call_ids=wanted.get("callIds", ()),
            token=request.auth,
        )
        headers = {"Location": f"{request.path}/{action.pk}"}
        return Response(told(action, request), status=201, headers=headers)


def _filter(text: str) -> CallFilter:
    form = CallFilterForm(QueryDict(text))
    faults = [{**one, "path": f"filter.{one['path']}"} for one in form.faults()]
    faults += [fault(f"filter.{name}", "unknown_parameter", "There is no such parameter.") for name in form.unknown()]
    if faults:
        raise InvalidRequest(faults)
    return form.wanted


class BulkActionView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="getBulkAction",
        tags=GROUP,
        responses={200: BulkSerializer},
        description="An action as it stands; one that is not confirmed yet as its preview, looked at anew.",
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """An action as it stands; of a preview, a new look."""
        return Response(told(action_of(pk, request), request))


class BulkReportView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="getBulkActionReport",
        tags=GROUP,
        parameters=[OpenApiParameter("after", OpenApiTypes.INT)],
        responses=BulkReportSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """What became of each call."""
        action = action_of(pk, request)
        rows = BulkItem.objects.filter(action=action, pk__gt=_number(request, "after") or 0).order_by("pk")
        found = list(rows[: REPORT_SIZE + 1])
        more = found[REPORT_SIZE - 1].pk if len(found) > REPORT_SIZE else None
        return Response({"items": BulkItemSerializer(found[:REPORT_SIZE], many=True).data, "nextAfter": more})


class BulkConfirmView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="confirmBulkAction",
        tags=GROUP,
        request=BulkConfirmRequest,
        responses={
            200: BulkSerializer,
            202: OpenApiResponse(BulkSerializer, description="A worker does it; read it again."),
        },
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Have done what was looked at. If the calls have changed since, 409: look again, then confirm."""
        action = action_of(pk, request)
        wanted = read_body(BulkConfirmRequest, request)
        queue = queues_of(request.user).filter(pk=wanted["queueId"]).first() if "queueId" in wanted else None
        said = Wanted(
            label=wanted.get("label", ""),
            note=wanted.get("note", ""),
            reason=wanted.get("reason", ""),
            tag=wanted.get("tag", ""),
            queue=queue,
        )
        try:
            action = run.confirm(
                action.pk, by=request.user, wanted=said, seen_sha256=wanted["seen"], token=request.auth
            )
        except (Stale, Decided, scope.FilterBroken) as refused:
            raise Conflict(str(refused), code="stale" if isinstance(refused, Stale) else "decided") from refused
        return Response(told(action, request), status=202 if action.state == BulkState.QUEUED else 200)


class BulkUndoView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(operation_id="undoBulkAction", tags=GROUP, request=None, responses=BulkSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Take back what an action did, wherever nothing newer happened."""
        action = action_of(pk, request)
        try:
            action = run.undo(action, by=request.user, may_any=_is_admin(request), token=request.auth)
        except Decided as refused:
            raise Conflict(str(refused), code="decided") from refused
        except NotYours as refused:
            raise PermissionDenied(str(refused)) from refused
        return Response(told(action, request))


class BulkStopView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(operation_id="stopBulkAction", tags=GROUP, request=None, responses=BulkSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Let an action end after the batch under way."""
        action = action_of(pk, request)
        try:
            run.stop(action, by=request.user, may_any=_is_admin(request))
        except Decided as refused:
            raise Conflict(str(refused), code="decided") from refused
        except NotYours as refused:
            raise PermissionDenied(str(refused)) from refused
        return Response(told(action_of(pk, request), request))


def _is_admin(request: TokenRequest) -> bool:
    member = Membership.objects.filter(user=request.user).first()
    return member is not None and member.may(Role.ADMIN)
