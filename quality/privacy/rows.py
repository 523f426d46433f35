"""Rows of evidence masked field by field, each as its field says (quality.models.base)."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models

from quality.ingest.jsontext import dump
from quality.models.base import DerivedField, Masked
from tenants.masking.reading import Reading
from tenants.models import TenantModel

# The application may not change these, but by `mask_history` (migration 0027).
HISTORY = frozenset(
    {
        "agent_tool_call_decisions",
        "agent_tool_call_feedback_events",
        "agent_tool_call_proposal_events",
        "agent_tool_call_regression_case_versions",
    }
)


@cache
def masked_fields(model: type[TenantModel]) -> tuple[tuple[str, Masked, bool], ...]:
    """Name, field and "is it an array of such" of each column that is masked; data first, as what is masked there for
    its place is then found in what tells of it."""
    found = []
    for field in model._meta.concrete_fields:
        base = field.base_field if isinstance(field, ArrayField) else field
        if isinstance(base, Masked):
            found.append((field.attname, base, base is not field))
    return tuple(sorted(found, key=lambda each: not getattr(each[1], "is_data", False)))


def mask(row: TenantModel, reading: Reading) -> list[str]:
    """Mask an instance, which was read as it is stored; the names of the columns that this changed."""
    changed = []
    for name, field, is_array in masked_fields(type(row)):
        before = getattr(row, name)
        if before in (None, "", []):
            continue
        after = [field.masked(each, reading) for each in before] if is_array else _masked(field, before, reading)
        if after != before:
            setattr(row, name, after)
            changed.append(name)
    return changed


def _masked(field: Masked, value: Any, reading: Reading) -> Any:
    if isinstance(field, DerivedField):
        return json.loads(field.masked(dump(value), reading))
    return field.masked(value, reading)


def save(rows: Iterable[tuple[TenantModel, Sequence[str]]]) -> None:
    """Write the columns that `mask` changed, in the open scope."""
    by_columns: dict[tuple[type[TenantModel], tuple[str, ...]], list[TenantModel]] = {}
    for row, names in rows:
        if names:
            by_columns.setdefault((type(row), tuple(names)), []).append(row)
    for (model, names), changed in by_columns.items():
        if model._meta.db_table in HISTORY:
            for name in names:
                _save_history(model, name, changed)
        else:
            model._default_manager.bulk_update(changed, names)


def _save_history(model: type[models.Model], column: str, rows: Sequence[models.Model]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT mask_history(%s, %s, %s::bigint[], %s::text[])",
            [model._meta.db_table, column, [row.pk for row in rows], [getattr(row, column) for row in rows]],
        )
