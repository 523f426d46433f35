"""Calls counted by the hour, so that a chart reads hundreds of rows and not a million.

Triggers of the call table mark the hours that writers touch, in the writer's own transaction; a task counts those anew.
What is read is exact at all times: marked hours are counted as they are read (quality.rollups).
"""

from django.db import models

from tenants.models import TenantManager, TenantModel
from tenants.models.base import tenant_key


class CallHour(TenantModel):
    """How many calls an hour had, of one tool, style, model, source and toolset. `hour` is the full hour in UTC."""

    hour = models.DateTimeField()
    tool_name = models.TextField()
    style_id = models.TextField(blank=True)
    model = models.TextField(blank=True)
    source = models.TextField(blank=True)
    toolset_id = models.BigIntegerField(null=True, help_text="No key: an hour is counted anew when its calls change.")
    num_calls = models.PositiveIntegerField()
    num_errors = models.PositiveIntegerField()
    num_outcomes = models.PositiveIntegerField(help_text="Calls whose outcome was recorded.")

    objects = TenantManager["CallHour"]()

    class Meta:
        db_table = "call_hours"
        constraints = [
            tenant_key("call_hours"),
            models.UniqueConstraint(
                fields=["tenant", "hour", "tool_name", "style_id", "model", "source", "toolset_id"],
                name="call_hours_once_key",
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.num_calls} calls of {self.tool_name} in the hour of {self.hour:%Y-%m-%d %H:%M}"


class TouchedHour(TenantModel):
    """An hour whose calls were written to since it was counted. Written by triggers; the same hour may stand here
    often: a unique key would have writers wait for each other."""

    hour = models.DateTimeField()

    objects = TenantManager["TouchedHour"]()

    class Meta:
        db_table = "touched_hours"
        constraints = [tenant_key("touched_hours")]
        indexes = [models.Index(fields=["tenant", "hour"], name="touched_hours_idx")]

    def __str__(self) -> str:
        return f"the hour of {self.hour:%Y-%m-%d %H:%M}"
