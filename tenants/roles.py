"""Refuses to work through a database role that row security does not bind."""

import logging

from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger(__name__)

_CHECK = """
SELECT rolsuper, rolbypassrls,
       EXISTS (SELECT FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
               WHERE a.attname = 'tenant_id' AND c.relkind IN ('r', 'p')
                 AND pg_has_role(r.oid, c.relowner, 'USAGE'))
FROM pg_roles r WHERE rolname = current_user
"""
_judged: set[str] = set()


def runtime_role_fault(connection: BaseDatabaseWrapper) -> str | None:
    """Why the role of this connection must not serve tenants, or None if it may."""
    with connection.cursor() as cursor:
        cursor.execute(_CHECK)
        is_superuser, bypasses, owns = cursor.fetchone()
    user = connection.settings_dict["USER"]
    if is_superuser:
        return f"DATABASE_URL: role {user!r} is a superuser, which row security does not bind."
    if bypasses:
        return f"DATABASE_URL: role {user!r} has BYPASSRLS, so it would see every tenant."
    if owns:
        return f"DATABASE_URL: role {user!r} owns tenant tables. Use the application's own role."
    return None


def judge_new_connection(sender: object, connection: BaseDatabaseWrapper, **_: object) -> None:
    """Receiver of `connection_created`: the first connection of each process is judged before it serves a query."""
    if connection.alias != "default" or "default" in _judged:
        return
    _judged.add("default")  # first: the check itself opens a cursor
    fault = runtime_role_fault(connection)
    if fault:
        _judged.discard("default")
        connection.close()
        raise ImproperlyConfigured(fault + " `manage.py setup_database` makes the right roles.")


def refuse_unsafe_runtime_role() -> None:
    """Judge the runtime role at start. A database that is down does not stop the start: the first query judges then."""
    try:
        connections["default"].ensure_connection()
    except OperationalError as error:
        logger.warning("The database does not answer yet: %s", error)
    finally:
        connections["default"].close()
