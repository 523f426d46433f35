"""`/healthz`: may this process serve? For load balancers and for people."""

from functools import cache

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, JsonResponse

from quality.api.problems import read_only
from tenants.roles import runtime_role_fault


@cache
def _known_migrations() -> frozenset[tuple[str, str]]:
    """The migrations of this code, read from disk once."""
    return frozenset(MigrationLoader(None).disk_migrations or {})


def faults() -> dict[str, str]:
    """What keeps this process from serving, by the check that found it. No names or addresses: anybody may ask."""
    try:
        if runtime_role_fault(connection):
            return {"role": "The database role could read every tenant. See the log of the start."}
        missing = _known_migrations() - set(MigrationRecorder(connection).applied_migrations())
    except ImproperlyConfigured:
        return {"role": "The database role could read every tenant. See the log of the start."}
    except DatabaseError:
        return {"database": "The database does not answer."}
    if missing:
        return {"migrations": f"{len(missing)} migrations are not applied. Run `manage.py migrate --database owner`."}
    return {}


@read_only
def healthz(request: HttpRequest) -> JsonResponse:
    found = faults()
    checks = {name: found.get(name, "ok") for name in ("database", "role", "migrations")}
    if "database" in found:
        checks = {"database": found["database"]}
    return JsonResponse({"status": "unavailable" if found else "ok", "checks": checks}, status=503 if found else 200)
