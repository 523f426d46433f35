"""What a tenant has set, beside the things that have a table of their own."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from tenants.models.base import TenantManager, TenantModel, tenant_key


class TenantSettings(TenantModel):
    """One row a tenant. `version` rises with every write of any setting: what is kept of settings is keyed by it.

    None and empty lists stand for the operator's defaults.
    """

    version = models.BigIntegerField(default=1)
    max_cycles = models.PositiveSmallIntegerField(null=True)
    tool_timeout_s = models.FloatField(null=True)
    result_max_chars = models.PositiveIntegerField(null=True)
    max_calls = models.PositiveIntegerField(null=True)
    max_tokens = models.PositiveBigIntegerField(null=True)
    max_cost = models.FloatField(null=True, help_text="In the currency of the models' prices.")
    wall_time_s = models.FloatField(null=True)
    scripts_enabled = models.BooleanField(default=False)
    databases = ArrayField(models.TextField(), default=list, help_text="Names of the operator's databases in use.")
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager["TenantSettings"]()

    class Meta:
        db_table = "tenant_settings"
        constraints = [
            tenant_key("tenant_settings"),
            models.UniqueConstraint(fields=["tenant"], name="tenant_settings_one_key"),
        ]

    def __str__(self) -> str:
        return f"settings at version {self.version}"
