"""Queries of queues in SQL: what spans many rows is one statement."""

from collections.abc import Mapping
from typing import Any

from django.db import connection

from quality.review.queues.people import LABELLING_ROLES
from tenants.scope import current_tenant_id

_ROLES = ", ".join(f"'{role.value}'" for role in LABELLING_ROLES)
# An assignment that keeps a place for its reviewer. What was handed to somebody does not expire, while he may label.
HOLDS = f"""(a.state = 'claimed' AND a.expires_at > %(now)s
    OR (a.state = 'handed' OR a.state = 'claimed' AND a.handed_by_id IS NOT NULL) AND EXISTS (
        SELECT FROM memberships hm
        WHERE hm.tenant_id = a.tenant_id AND hm.user_id = a.reviewer_id AND hm.role IN ({_ROLES})))"""


def rows(statement: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """The rows of a statement, with the tenant as `%(tenant)s`."""
    with connection.cursor() as cursor:
        cursor.execute(statement, {"tenant": current_tenant_id(), **(params or {})})
        return cursor.fetchall() if cursor.description else []


def changed(statement: str, params: Mapping[str, Any] | None = None) -> int:
    """How many rows a statement wrote."""
    with connection.cursor() as cursor:
        cursor.execute(statement, {"tenant": current_tenant_id(), **(params or {})})
        return int(cursor.rowcount)
