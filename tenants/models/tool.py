"""Tools of a tenant as rows: HTTP definitions with their history, and what is switched of the tools we bring along."""

from django.db import models

from tenants.models.base import TenantManager, TenantModel, tenant_key
from tenants.models.people import User

MODES = ("auto", "approve")
SAFETIES = ("safe", "unsafe")


class HttpToolRow(TenantModel):
    """A tool that sends a request. `definition` is its JSON as it was written: the order of arguments is kept."""

    name = models.CharField(max_length=64)
    definition = models.TextField()
    is_enabled = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["HttpToolRow"]()

    class Meta:
        db_table = "http_tools"
        constraints = [
            tenant_key("http_tools"),
            models.UniqueConstraint(fields=["tenant", "name"], name="http_tools_name_key"),
        ]

    def __str__(self) -> str:
        return f"tool {self.name}"


class HttpToolVersion(TenantModel):
    """What a tool was: append-only, one row for each write. It goes with its tool, by the database's own key."""

    tool = models.ForeignKey(
        HttpToolRow, on_delete=models.DO_NOTHING, related_name="versions", db_index=False, db_constraint=False
    )
    number = models.PositiveIntegerField()
    definition = models.TextField()
    by = models.ForeignKey(User, on_delete=models.DO_NOTHING, null=True, related_name="+", db_index=False)
    at = models.DateTimeField(auto_now_add=True)

    objects = TenantManager["HttpToolVersion"]()

    class Meta:
        db_table = "http_tool_versions"
        constraints = [
            tenant_key("http_tool_versions"),
            models.UniqueConstraint(fields=["tenant", "tool", "number"], name="http_tool_versions_number_key"),
        ]

    def __str__(self) -> str:
        return f"version {self.number} of tool {self.tool_id}"


class ToolSwitch(TenantModel):
    """What a tenant set for a tool that has no row of its own: booking, exchange, scripts, databases, active
    definitions. Empty mode and safety are the tool's own."""

    name = models.CharField(max_length=64)
    is_enabled = models.BooleanField(default=True)
    mode = models.TextField(blank=True, default="")
    safety = models.TextField(blank=True, default="")

    objects = TenantManager["ToolSwitch"]()

    class Meta:
        db_table = "tool_switches"
        constraints = [
            tenant_key("tool_switches"),
            models.UniqueConstraint(fields=["tenant", "name"], name="tool_switches_name_key"),
            models.CheckConstraint(condition=models.Q(mode__in=["", *MODES]), name="tool_switches_mode_check"),
            models.CheckConstraint(condition=models.Q(safety__in=["", *SAFETIES]), name="tool_switches_safety_check"),
        ]

    def __str__(self) -> str:
        return f"switch of {self.name}"
