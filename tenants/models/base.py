"""What every row of a tenant has: its tenant, and a manager that sees no other."""

from typing import Any, Self

from django.db import models

from tenants.scope import current_tenant_id


class TenantQuerySet[M: models.Model](models.QuerySet[M]):
    """Queries of one tenant's rows. `for_tenant` says it aloud where a reader would wonder."""

    def for_tenant(self, tenant: Any) -> Self:
        return self.filter(tenant=tenant)


class TenantManager[M: models.Model](models.Manager[M]):
    """Filters by the open scope; raises TenantScopeError where none is open. Row security repeats the filter."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().filter(tenant_id=current_tenant_id())


class TenantModel(models.Model):
    """Base of each model with `tenant_id`. New rows take the tenant of the open scope by themselves.

    Foreign keys between tenant models carry `db_constraint=False`: the migration adds the composite key
    `(tenant_id, …)`, which alone keeps a row from pointing at another tenant's.
    """

    tenant = models.ForeignKey(
        "tenants.Tenant",
        on_delete=models.CASCADE,
        default=current_tenant_id,
        editable=False,
        related_name="+",
        db_index=False,  # each hot index starts with it already
    )

    objects: models.Manager[Any] = TenantManager()

    class Meta:
        abstract = True


def tenant_key(name: str) -> models.UniqueConstraint:
    """The `UNIQUE (tenant_id, id)` that composite keys of children point at."""
    return models.UniqueConstraint(fields=["tenant", "id"], name=f"{name}_tenant_id_key")
