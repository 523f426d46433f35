"""Turns at set times."""

import datetime as dt

from django.db import models
from django.utils import timezone

from quality.models.base import ProseField
from quality.models.turns import Turn
from tenants.models import TenantManager, TenantModel, User
from tenants.models.base import tenant_key


class Schedule(TenantModel):
    """A message that is sent to the agent whenever the cron expression says so, in its own time zone."""

    name = models.CharField(max_length=120)
    text = ProseField(help_text="The user's message.")
    cron = models.CharField(max_length=120, help_text="Minute, hour, day, month, weekday.")
    zone = models.CharField(max_length=64, default="UTC")
    is_enabled = models.BooleanField(default=True)
    model_label = models.TextField(blank=True)
    style_id = models.TextField(blank=True)
    next_at = models.DateTimeField(null=True, help_text="The slot that is due next; null: none.")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["Schedule"]()

    class Meta:
        db_table = "turn_schedules"
        constraints = [
            tenant_key("turn_schedules"),
            models.UniqueConstraint(fields=["tenant", "name"], name="turn_schedules_name_key"),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "next_at"], name="turn_schedules_due_idx", condition=models.Q(is_enabled=True)
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def due_at(self) -> dt.datetime | None:
        """The slot that fires next; None while it is paused."""
        return self.next_at if self.is_enabled else None


class ScheduleSlot(TenantModel):
    """One slot of a schedule: it became a turn, or was missed. Its key is what keeps two beats from firing it twice."""

    schedule = models.ForeignKey(
        Schedule, on_delete=models.CASCADE, related_name="slots", db_index=False, db_constraint=False
    )
    slot = models.DateTimeField()
    turn = models.ForeignKey(
        Turn, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    is_missed = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TenantManager["ScheduleSlot"]()

    class Meta:
        db_table = "turn_schedule_slots"
        constraints = [
            tenant_key("turn_schedule_slots"),
            models.UniqueConstraint(fields=["tenant", "schedule", "slot"], name="turn_schedule_slots_slot_key"),
        ]
        indexes = [models.Index(fields=["tenant", "turn"], name="turn_schedule_slots_turn_idx")]

    def __str__(self) -> str:
        return f"{self.slot:%Y-%m-%d %H:%M} of schedule {self.schedule_id}"
