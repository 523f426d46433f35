"""Replays at set times over the API: kept, run, and what became of the messages about them."""

from typing import Any

from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.response import Response

from quality.api import replay_shapes as shapes
from quality.api.auth import holds
from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import problem
from quality.api.replays import replay_at
from quality.models import ReplaySchedule
from quality.replay import notify, schedules
from quality.replay.plan import RunSettings, SideSpec
from quality.replay.schedules import Kept, ScheduleData, StillGoing
from tenants.models import Scope

TAG = ["Replay schedules"]
JSON_NAMES = {"is_enabled": "enabled", "notify_on": "notifyOn", "webhook_url": "webhookUrl"}


def _context(request: TokenRequest) -> dict[str, bool]:
    """May the token see what only those see who set it?"""
    return {"may_configure": holds(request.auth, Scope.SETTINGS_WRITE)}


def _shown(schedule: ReplaySchedule, request: TokenRequest) -> dict[str, Any]:
    row = next(each for each in schedules.with_last_run() if each.pk == schedule.pk)
    shapes.shown([row.last] if row.last else [])
    return dict(shapes.ReplayScheduleSerializer(row, context=_context(request)).data)


def _kept(kept: Kept, request: TokenRequest) -> dict[str, Any]:
    return _shown(kept.schedule, request) | {"webhookSecret": kept.secret}


def _keep(sent: dict[str, Any], request: TokenRequest, schedule: ReplaySchedule | None = None) -> Kept:
    """Raises ValidationError, its fields spelled as the API does."""
    data = {} if schedule is None else _data_of(schedule)
    for name in ScheduleData.__dataclass_fields__:
        spelled = JSON_NAMES.get(name, name)
        if spelled in sent:
            data[name] = sent[spelled]
    if "sides" in sent:
        data["sides"] = tuple(SideSpec.from_json(side, path=f"sides.{at}") for at, side in enumerate(sent["sides"]))
    if "settings" in sent:
        data["settings"] = RunSettings.from_json(sent["settings"], path="settings")
    data["emails"] = tuple(data.get("emails", ()))
    try:
        return schedules.keep_schedule(
            ScheduleData(**data),
            actor=request.user,
            token=request.auth,
            pk=None if schedule is None else schedule.pk,
        )
    except ValidationError as error:
        if not hasattr(error, "error_dict"):
            raise
        spelled_faults = {JSON_NAMES.get(name, name): list(found) for name, found in error.error_dict.items()}
        raise ValidationError(spelled_faults) from error


def _data_of(schedule: ReplaySchedule) -> dict[str, Any]:
    data = {name: getattr(schedule, name) for name in ScheduleData.__dataclass_fields__}
    data["sides"] = tuple(SideSpec.from_json(side) for side in schedule.sides)
    return data | {"settings": RunSettings.from_json(schedule.settings)}


def _schedule(pk: int) -> ReplaySchedule:
    schedule: ReplaySchedule | None = ReplaySchedule.objects.filter(pk=pk).first()
    if schedule is None:
        raise Http404
    return schedule


class ReplaySchedulesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listReplaySchedules", tags=TAG, responses=shapes.ReplayScheduleListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The schedules of replays by name, each with its next slot and its newest replay."""
        rows = schedules.with_last_run()
        shapes.shown([row.last for row in rows if row.last])
        return Response({"schedules": shapes.ReplayScheduleSerializer(rows, many=True, context=_context(request)).data})

    @extend_schema(
        operation_id="createReplaySchedule",
        tags=TAG,
        request=shapes.ReplayScheduleRequest,
        responses={201: shapes.KeptScheduleSerializer},
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a schedule. Each of its slots becomes one replay. With a webhook the answer holds its secret, once."""
        return Response(_kept(_keep(read_body(shapes.ReplayScheduleRequest, request), request), request), status=201)


class ReplayScheduleView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getReplaySchedule", tags=TAG, responses=shapes.ReplayScheduleSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A schedule. Its replays are in the list of replays, by `schedule`."""
        return Response(_shown(_schedule(pk), request))

    @extend_schema(
        operation_id="changeReplaySchedule",
        tags=TAG,
        request=shapes.ReplayScheduleChange,
        responses=shapes.KeptScheduleSerializer,
    )
    @in_scope
    def patch(self, request: TokenRequest, pk: int) -> Response:
        """Change a schedule, or pause and resume it with `enabled`."""
        schedule = _schedule(pk)
        return Response(_kept(_keep(read_body(shapes.ReplayScheduleChange, request), request, schedule), request))

    @extend_schema(
        operation_id="deleteReplaySchedule", tags=TAG, responses={204: OpenApiResponse(description="It is deleted.")}
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a schedule. The replays that it made stay."""
        schedules.delete_schedule(_schedule(pk), actor=request.user, token=request.auth)
        return Response(status=204)


class ReplayScheduleRunView(TenantView):
    required_scope = Scope.REPLAYS_WRITE

    @extend_schema(
        operation_id="runReplaySchedule",
        tags=TAG,
        request=None,
        responses={
            201: shapes.ReplayDetailSerializer,
            409: OpenApiResponse(description="A replay of it is still going: `current`."),
        },
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Start the schedule's replay now, beside its slots; a paused one, too."""
        try:
            replay = schedules.run_now(_schedule(pk), actor=request.user, token=request.auth)
        except StillGoing as error:
            return problem(409, error.code, str(error), current=shapes.replay_told(replay_at(error.replay.pk)))
        return Response(shapes.replay_told(replay_at(replay.pk)), status=201)


class ReplayNotificationsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="listReplayNotifications", tags=TAG, responses=shapes.NotificationListSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """Messages about the replays of a schedule, the newest first, and whether they arrived."""
        rows = notify.of_schedule(_schedule(pk))
        return Response({"items": shapes.NotificationSerializer(rows, many=True, context=_context(request)).data})
