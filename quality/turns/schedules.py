"""Turns at set times: a schedule's slots are told by its cron expression in its own zone.

Rules. Each slot fires once, whoever looks and however often: its row has a unique key. A slot that was missed (nobody
looked) fires late if it is at most an hour old; of several the latest fires, the others are kept as missed. When clocks
go forward, a slot inside the gap fires right after it; when they go back, a slot inside the repeated hour fires once.
"""

import datetime as dt
import logging
import uuid
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import languages
from quality.models import Channel, Schedule, ScheduleSlot, Turn
from quality.turns.create import MAX_TEXT_CHARS, create_turn
from quality.turns.cron import next_slot, passed_slots
from tenants import audit
from tenants.models import ApiToken, ModelEndpoint, Style, User
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

MAX_SCHEDULES = 200  # of one tenant
BY_HAND = "now-"  # begins the last part of the external id of a turn that somebody asked for beside the slots


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleData:
    """What a person says of a schedule. Without a model or a style the tenant's defaults apply."""

    name: str
    text: str
    cron: str
    zone: str = "UTC"
    model_label: str = ""
    style_id: str = ""
    is_enabled: bool = True


@transaction.atomic
def keep_schedule(data: ScheduleData, *, actor: User, token: ApiToken | None = None, pk: int | None = None) -> Schedule:
    """Make a schedule, or change the one with this `pk`, in the open scope. Raises ValidationError with each field at
    fault, Schedule.DoesNotExist."""
    if pk is None and Schedule.objects.count() >= MAX_SCHEDULES:
        told = _("A tenant keeps %(limit)s schedules at most. Delete one that is not needed.")
        raise ValidationError(told % {"limit": MAX_SCHEDULES})
    # Locked, so that the tick does not tell another next slot at the same time.
    schedule = Schedule(created_by=actor) if pk is None else Schedule.objects.select_for_update().get(pk=pk)
    was_due = (schedule.cron, schedule.zone, schedule.is_enabled), schedule.next_at
    for name in ScheduleData.__slots__:
        setattr(schedule, name, getattr(data, name))
    schedule.name, schedule.cron = schedule.name.strip(), " ".join(schedule.cron.split())
    _check(schedule)
    save_schedule(schedule)
    if pk is not None and was_due[0] == (schedule.cron, schedule.zone, schedule.is_enabled):
        schedule.next_at = was_due[1]  # a slot that is due this moment is not lost by another name or message
        schedule.save(update_fields=["next_at"])
    _record("schedule.created" if pk is None else "schedule.changed", schedule, actor, token)
    return schedule


@transaction.atomic
def switch_schedule(
    schedule: Schedule, *, is_enabled: bool, actor: User, token: ApiToken | None = None, now: dt.datetime | None = None
) -> Schedule:
    """Pause or resume: slots that passed meanwhile are nobody's, the next one is told from now on."""
    schedule.is_enabled = is_enabled
    schedule.next_at = next_slot(schedule.cron, schedule.zone, now or timezone.now())
    schedule.save(update_fields=["is_enabled", "next_at"])
    _record("schedule.resumed" if is_enabled else "schedule.paused", schedule, actor, token)
    return schedule


@transaction.atomic
def delete_schedule(schedule: Schedule, *, actor: User, token: ApiToken | None = None) -> None:
    """The turns that it made stay."""
    _record("schedule.deleted", schedule, actor, token)
    schedule.delete()


@transaction.atomic
def run_now(schedule: Schedule, *, actor: User, token: ApiToken | None = None, nonce: str = "") -> Turn:
    """Its turn at once, beside its slots. The same nonce again gives the same turn."""
    moment = timezone.now()
    turn = _turn(schedule, f"{BY_HAND}{nonce or uuid.uuid4().hex}", by=actor, token=token)
    if not ScheduleSlot.objects.filter(schedule=schedule, turn=turn).exists():
        ScheduleSlot.objects.create(schedule=schedule, slot=moment, turn=turn)
        _record("schedule.run", schedule, actor, token, turn=turn.pk)
    return turn


def history(schedule: Schedule) -> QuerySet[ScheduleSlot]:
    """Its slots with their turns, the newest first."""
    slots: QuerySet[ScheduleSlot] = ScheduleSlot.objects.filter(schedule=schedule)
    return slots.select_related("turn").order_by("-slot")


def with_last_slot() -> list[Any]:
    """The schedules of the open scope's tenant by name, each with its newest slot as `last` (None: it has none)."""
    newest = ScheduleSlot.objects.filter(schedule=OuterRef("pk")).order_by("-slot").values("pk")[:1]
    found: list[Any] = list(
        Schedule.objects.select_related("created_by").annotate(last_pk=Subquery(newest)).order_by("name")
    )
    slots = ScheduleSlot.objects.select_related("turn").in_bulk([one.last_pk for one in found if one.last_pk])
    for one in found:
        one.last = slots.get(one.last_pk)
    return found


def save_schedule(schedule: Schedule, *, now: dt.datetime | None = None) -> Schedule:
    """Check and store a schedule, in the open scope, with its next slot. Raises ValidationError."""
    schedule.next_at = next_slot(schedule.cron, schedule.zone, now or timezone.now())
    if schedule.next_at is None:
        told = _("%(cron)s never comes.") % {"cron": repr(schedule.cron)}
        raise ValidationError({"cron": ValidationError(told, "invalid_cron")})
    schedule.full_clean(exclude=["next_at", "created_by"])
    schedule.save()
    return schedule


def fire_due(now: dt.datetime | None = None) -> int:
    """Fire what is due in every tenant; how many turns that made. Two that look at once make no more."""
    now = now or timezone.now()
    with connections["janitor"].cursor() as cursor:
        cursor.execute("SELECT tenant_id, id FROM turn_schedules WHERE is_enabled AND next_at <= %s", [now])
        due = cursor.fetchall()
    num_turns = 0
    for tenant_id, schedule_id in due:
        try:
            num_turns += _fire(tenant_id, schedule_id, now)
        except ValidationError as error:  # a zone that is gone, say; the other schedules are not to wait for it
            logger.error("Schedule %s of tenant %s does not fire: %s", schedule_id, tenant_id, error)
    return num_turns


def _fire(tenant_id: int, schedule_id: int, now: dt.datetime) -> int:
    with tenant_scope(tenant_id):
        # Whoever comes second waits here no longer than it takes, and then finds nothing due.
        schedule = (
            Schedule.objects.select_for_update(skip_locked=True)
            .filter(pk=schedule_id, is_enabled=True, next_at__lte=now)
            .first()
        )
        if schedule is None or schedule.next_at is None:
            return 0
        passed = passed_slots(schedule.cron, schedule.zone, schedule.next_at, now)
        schedule.next_at = passed.following
        schedule.save(update_fields=["next_at"])
        rows = [ScheduleSlot(schedule=schedule, slot=slot, is_missed=True) for slot in passed.missed]
        ScheduleSlot.objects.bulk_create(rows, ignore_conflicts=True)
        return 0 if passed.fires is None else _begin(schedule, passed.fires)


def _begin(schedule: Schedule, slot: dt.datetime) -> int:
    fired, is_new = ScheduleSlot.objects.get_or_create(schedule=schedule, slot=slot)
    if not is_new:
        return 0
    fired.turn = _turn(schedule, f"{slot:%Y%m%dT%H%M%SZ}", by=schedule.created_by)
    fired.save(update_fields=["turn"])
    return 1


def is_by_hand(slot: ScheduleSlot) -> bool:
    """Whether somebody asked for it beside the slots. Its turn is loaded, or queried."""
    return slot.turn is not None and slot.turn.external_id.startswith(f"schedule-{slot.schedule_id}-{BY_HAND}")


def _turn(schedule: Schedule, name: str, *, by: User | None, token: ApiToken | None = None) -> Turn:
    return create_turn(
        text=schedule.text,
        channel=Channel.SCHEDULE,
        external_id=f"schedule-{schedule.pk}-{name}",
        model_label=schedule.model_label,
        style_id=schedule.style_id,
        by=by,
        token=token,
    )


def _check(schedule: Schedule) -> None:
    """What only the tenant's other settings, and the turns to come, make wrong."""
    faults: dict[str, ValidationError] = {}
    if len(schedule.text) > MAX_TEXT_CHARS:
        told = _("At most %(limit)s characters.") % {"limit": languages.number(MAX_TEXT_CHARS)}
        faults["text"] = ValidationError(told, "too_long")
    elif not schedule.text.strip():
        faults["text"] = ValidationError(_("Say what is sent to the agent."), "blank")
    if schedule.model_label and not ModelEndpoint.objects.filter(label=schedule.model_label).exists():
        told = _("There is no model with the label %(label)s. Add it under Models, or choose another one.")
        told %= {"label": repr(schedule.model_label)}
        faults["model_label"] = ValidationError(told, "no_such_model")
    if schedule.style_id and not Style.objects.filter(style_id=schedule.style_id).exists():
        told = _("There is no style %(style)s. Add it under Styles, or choose another one.")
        told %= {"style": repr(schedule.style_id)}
        faults["style_id"] = ValidationError(told, "no_such_style")
    try:
        next_slot(schedule.cron, schedule.zone, timezone.now())
    except ValidationError as error:
        faults |= {name: found[0] for name, found in error.error_dict.items()}
    if faults:
        raise ValidationError(faults)


def _record(action: str, schedule: Schedule, actor: User, token: ApiToken | None, **more: int) -> None:
    said = {name: getattr(schedule, name) for name in ScheduleData.__slots__}
    audit.record(
        action,
        object_type="schedule",
        object_id=schedule.pk,
        actor=actor,
        token=token,
        after=None if action == "schedule.deleted" else said,
        detail={"name": schedule.name, "cron": schedule.cron, "zone": schedule.zone, **more},
    )
