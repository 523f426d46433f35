"""Turns at set times over the API: kept, paused, run, and what became of their slots."""
# mypy: disable-error-code="assignment"
# (a field may be called `source` or `label`: REST framework takes declared fields off the class)

from typing import Any

from django.core.exceptions import ValidationError
from django.http import Http404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.shapes import Person, StrictRequest
from quality.models import Schedule, ScheduleSlot
from quality.turns import schedules
from quality.turns.cron import in_words
from tenants.models import Scope

MAX_SLOTS = 100  # of a schedule's history, in one answer
JSON_NAMES = {"model_label": "model", "style_id": "styleId", "is_enabled": "enabled"}


class SlotSerializer(serializers.Serializer):
    """One slot of a schedule, or a run by hand beside them. `turnId` is null if it was missed."""

    slot = serializers.DateTimeField()
    missed = serializers.BooleanField(source="is_missed")
    byHand = serializers.SerializerMethodField()
    turnId = serializers.IntegerField(source="turn_id", allow_null=True)
    state = serializers.CharField(source="turn.state", allow_null=True, default=None)
    endReason = serializers.CharField(source="turn.end_reason", allow_null=True, default=None)

    def get_byHand(self, slot: ScheduleSlot) -> bool:
        return schedules.is_by_hand(slot)


class ScheduleSerializer(serializers.Serializer):
    """A message that is sent to the agent whenever its cron expression says so, in its own zone."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    text = serializers.CharField()
    cron = serializers.CharField()
    words = serializers.SerializerMethodField(help_text="The cron expression in plain words.")
    zone = serializers.CharField()
    model = serializers.CharField(source="model_label")
    styleId = serializers.CharField(source="style_id")
    enabled = serializers.BooleanField(source="is_enabled")
    nextSlot = serializers.DateTimeField(source="due_at", allow_null=True)
    last = SlotSerializer(allow_null=True)
    createdBy = Person(source="created_by", allow_null=True)
    createdAt = serializers.DateTimeField(source="created_at")

    def get_words(self, schedule: Schedule) -> str:
        return in_words(schedule.cron)


class ScheduleDetailSerializer(ScheduleSerializer):
    slots = SlotSerializer(many=True, help_text=f"The newest {MAX_SLOTS}.")


class ScheduleListSerializer(serializers.Serializer):
    schedules = ScheduleSerializer(many=True)


class ScheduleRequest(StrictRequest):
    """A new schedule. `cron` is minute, hour, day of the month, month, weekday; its hours are those of `zone`."""

    name = serializers.CharField(max_length=120)
    text = serializers.CharField(trim_whitespace=False, help_text="The user's message.")
    cron = serializers.CharField(max_length=120)
    zone = serializers.CharField(max_length=64, required=False, default="UTC")
    model = serializers.CharField(required=False, allow_blank=True, default="", help_text="Label of a model.")
    styleId = serializers.CharField(required=False, allow_blank=True, default="")
    enabled = serializers.BooleanField(required=False, default=True)


class ScheduleChange(StrictRequest):
    """What is to be changed; the other members stay as they are."""

    name = serializers.CharField(max_length=120, required=False)
    text = serializers.CharField(trim_whitespace=False, required=False)
    cron = serializers.CharField(max_length=120, required=False)
    zone = serializers.CharField(max_length=64, required=False)
    model = serializers.CharField(required=False, allow_blank=True)
    styleId = serializers.CharField(required=False, allow_blank=True)
    enabled = serializers.BooleanField(required=False)


class RunSerializer(serializers.Serializer):
    turnId = serializers.IntegerField()


def _shown(schedule: Schedule) -> dict[str, Any]:
    row: Any = Schedule.objects.select_related("created_by").get(pk=schedule.pk)
    row.slots_shown = list(schedules.history(row)[:MAX_SLOTS])
    row.last = row.slots_shown[0] if row.slots_shown else None
    answer = dict(ScheduleSerializer(row).data)
    return answer | {"slots": SlotSerializer(row.slots_shown, many=True).data}


def _keep(wanted: dict[str, Any], request: TokenRequest, schedule: Schedule | None = None) -> Schedule:
    """Raises ValidationError, its fields spelled as the API does."""
    names = {name: JSON_NAMES.get(name, name) for name in schedules.ScheduleData.__slots__}
    data: dict[str, Any] = {ours: wanted.get(theirs, getattr(schedule, ours, None)) for ours, theirs in names.items()}
    try:
        return schedules.keep_schedule(
            schedules.ScheduleData(**data),
            actor=request.user,
            token=request.auth,
            pk=schedule.pk if schedule is not None else None,
        )
    except ValidationError as error:
        if not hasattr(error, "error_dict"):
            raise
        spelled = {names.get(name, name): found for name, found in error.error_dict.items()}
        raise ValidationError({name: list(found) for name, found in spelled.items()}) from error


def _schedule(pk: int) -> Schedule:
    schedule: Schedule | None = Schedule.objects.filter(pk=pk).first()
    if schedule is None:
        raise Http404
    return schedule


class SchedulesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="listSchedules", tags=["Schedules"], responses=ScheduleListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """The schedules of the tenant, each with its next slot and what became of the last one."""
        return Response({"schedules": ScheduleSerializer(schedules.with_last_slot(), many=True).data})

    @extend_schema(
        operation_id="createSchedule",
        tags=["Schedules"],
        request=ScheduleRequest,
        responses={201: ScheduleDetailSerializer},
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Make a schedule. Each of its slots becomes one turn."""
        return Response(_shown(_keep(read_body(ScheduleRequest, request), request)), status=201)


class ScheduleView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="getSchedule", tags=["Schedules"], responses=ScheduleDetailSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A schedule with its newest slots, missed ones included."""
        return Response(_shown(_schedule(pk)))

    @extend_schema(
        operation_id="changeSchedule", tags=["Schedules"], request=ScheduleChange, responses=ScheduleDetailSerializer
    )
    @in_scope
    def patch(self, request: TokenRequest, pk: int) -> Response:
        """Change a schedule, or pause and resume it with `enabled`."""
        schedule = _schedule(pk)
        return Response(_shown(_keep(read_body(ScheduleChange, request), request, schedule)))

    @extend_schema(
        operation_id="deleteSchedule",
        tags=["Schedules"],
        responses={204: OpenApiResponse(description="It is deleted.")},
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a schedule. The turns that it made stay."""
        schedules.delete_schedule(_schedule(pk), actor=request.user, token=request.auth)
        return Response(status=204)


class ScheduleRunView(TenantView):
    required_scope = Scope.SETTINGS_WRITE

    @extend_schema(operation_id="runSchedule", tags=["Schedules"], request=None, responses={201: RunSerializer})
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Make the schedule's turn now, beside its slots; a paused one, too."""
        turn = schedules.run_now(_schedule(pk), actor=request.user, token=request.auth)
        return Response({"turnId": turn.pk}, status=201)
