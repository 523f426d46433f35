"""Turns at set times: a schedule's slots are told by its cron expression in its own zone.

Rules. Each slot fires once, whoever looks and however often: its row has a unique key. A slot that was missed (nobody
looked) fires late if it is at most an hour old; of several the latest fires, the others are kept as missed. When clocks
go forward, a slot inside the gap fires right after it; when they go back, a slot inside the repeated hour fires once.
"""

import datetime as dt
import zoneinfo

from cronsim import CronSim, CronSimError
from django.core.exceptions import ValidationError
from django.db import connections
from django.utils import timezone

from quality.models import Channel, Schedule, ScheduleSlot
from quality.turns.create import create_turn
from tenants.scope import tenant_scope

CATCH_UP = dt.timedelta(hours=1)
MAX_MISSED = 1_000  # slots looked through after a long rest


def next_slot(cron: str, zone: str, after: dt.datetime) -> dt.datetime | None:
    """The first slot after a moment, in UTC; None if there is none. Raises ValidationError with the field at fault."""
    try:
        local = after.astimezone(zoneinfo.ZoneInfo(zone))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValidationError({"zone": f"There is no time zone {zone!r}."}) from error
    try:
        return next(CronSim(cron, local)).astimezone(dt.UTC)
    except CronSimError as error:
        raise ValidationError({"cron": f"{cron!r} is no cron expression: {error}"}) from error
    except StopIteration:
        return None


def save_schedule(schedule: Schedule, *, now: dt.datetime | None = None) -> Schedule:
    """Check and store a schedule, in the open scope, with its next slot. Raises ValidationError."""
    schedule.next_at = next_slot(schedule.cron, schedule.zone, now or timezone.now())
    schedule.full_clean(exclude=["next_at", "created_by"])
    schedule.save()
    return schedule


def fire_due(now: dt.datetime | None = None) -> int:
    """Fire what is due in every tenant; how many turns that made. Two that look at once make no more."""
    now = now or timezone.now()
    with connections["janitor"].cursor() as cursor:
        cursor.execute("SELECT tenant_id, id FROM turn_schedules WHERE is_enabled AND next_at <= %s", [now])
        due = cursor.fetchall()
    return sum(_fire(tenant_id, schedule_id, now) for tenant_id, schedule_id in due)


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
        slots = [schedule.next_at]
        while len(slots) < MAX_MISSED and (slot := next_slot(schedule.cron, schedule.zone, slots[-1])) and slot <= now:
            slots.append(slot)
        schedule.next_at = next_slot(schedule.cron, schedule.zone, max(now, slots[-1]))
        schedule.save(update_fields=["next_at"])
        *missed, last = slots
        if now - last > CATCH_UP:
            missed.append(last)
        for slot in missed:
            ScheduleSlot.objects.get_or_create(schedule=schedule, slot=slot, defaults={"is_missed": True})
        return 0 if last in missed else _begin(schedule, last)


def _begin(schedule: Schedule, slot: dt.datetime) -> int:
    fired, is_new = ScheduleSlot.objects.get_or_create(schedule=schedule, slot=slot)
    if not is_new:
        return 0
    fired.turn = create_turn(
        text=schedule.text,
        channel=Channel.SCHEDULE,
        external_id=f"schedule-{schedule.pk}-{slot:%Y%m%dT%H%M%SZ}",
        model_label=schedule.model_label,
        style_id=schedule.style_id,
        by=schedule.created_by,
    )
    fired.save(update_fields=["turn"])
    return 1
