"""Databases of the operator that agents may ask: `TOOL_DATABASES`, switched on by each tenant for itself."""

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from engine.tools.database import Database, QueryError, QueryLimits, QueryResult, RunQuery
from tenants import audit
from tenants.models import ApiToken, TenantSettings, User
from tenants.versions import raise_version

CONNECT_S = 5


def configured() -> Mapping[str, Mapping[str, str]]:
    """`{name: {"dsn", "description"}}`."""
    return settings.TOOL_DATABASES


def databases(names: Iterable[str]) -> dict[str, Database]:
    """Those of `names` that the operator still has."""
    return {
        name: Database(configured()[name].get("description", ""), _runner(configured()[name]["dsn"]))
        for name in names
        if name in configured()
    }


@transaction.atomic
def choose(names: Iterable[str], *, actor: User, token: ApiToken | None = None) -> None:
    """Let the tenant's agents ask these databases and no others. Raises ValidationError for an unknown name."""
    chosen = sorted(set(names))
    if unknown := [name for name in chosen if name not in configured()]:
        told = _("There is no database %(names)s.") % {"names": ", ".join(unknown)}
        raise ValidationError({"names": told})
    raise_version()
    TenantSettings.objects.update(databases=chosen)
    audit.record(
        "databases.chosen",
        object_type="settings",
        object_id="",
        actor=actor,
        token=token,
        detail={"names": chosen},
    )


def _runner(dsn: str) -> RunQuery:
    async def run(sql: str, limits: QueryLimits) -> QueryResult:
        """One statement, in a read-only transaction that is never committed. A named cursor takes queries alone."""
        try:
            async with await psycopg.AsyncConnection.connect(dsn, connect_timeout=CONNECT_S) as connection:
                await connection.set_read_only(True)
                timeout_ms = max(1, int(limits.timeout_s * 1000))
                await connection.execute("SELECT set_config('statement_timeout', %s, true)", [str(timeout_ms)])
                async with connection.cursor(name="asked") as cursor:
                    await cursor.execute(sql.rstrip().rstrip(";"))
                    rows = await cursor.fetchmany(limits.rows + 1)
                    columns = [column.name for column in cursor.description or ()]
                await connection.rollback()
        except psycopg.OperationalError as error:
            if isinstance(error, psycopg.errors.QueryCanceled):
                raise QueryError(f"the query took longer than {limits.timeout_s:g} s") from error
            raise QueryError("the database does not answer") from error
        except (psycopg.Error, ValueError) as error:
            raise QueryError(_told(error)) from error
        return QueryResult(columns, rows[: limits.rows], is_cut=len(rows) > limits.rows)

    return run


def _told(error: Any) -> str:
    """The database's own sentence, without what surrounds it."""
    diagnosis = getattr(error, "diag", None)
    return (diagnosis.message_primary if diagnosis and diagnosis.message_primary else str(error)).strip()
