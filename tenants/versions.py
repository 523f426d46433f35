"""The version of a tenant's settings. Every write of a setting raises it, in the same transaction."""

from django.db import connection

from tenants.models import TenantSettings
from tenants.scope import current_tenant_id


def raise_version() -> int:
    """Raise the version of the open scope's tenant and give the new one. The row is locked until the commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenant_settings (tenant_id, version, scripts_enabled, databases, updated_at) "
            "VALUES (%s, 2, false, '{}', now()) ON CONFLICT (tenant_id) "
            "DO UPDATE SET version = tenant_settings.version + 1, updated_at = now() RETURNING version",
            [current_tenant_id()],
        )
        return int(cursor.fetchone()[0])


def current_version() -> int:
    """The version of the open scope's tenant: 1 where nothing was ever set."""
    return TenantSettings.objects.values_list("version", flat=True).first() or 1
