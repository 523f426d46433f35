"""What a row may hold is kept by the database, not by forms alone (D10)."""

import psycopg
import pytest
from django.apps import apps
from django.db import connection
from django.db.models import Field, Model, PositiveBigIntegerField, PositiveIntegerField, PositiveSmallIntegerField

from quality.models import Feedback, TurnRun
from tenants.models import Tenant, TenantModel
from tenants.scope import tenant_scope
from tests import environment
from tests.factories import FeedbackFactory
from tests.pages.own_turns import own_turn

# Kept by the model alone so far. None may join them.
UNCHECKED = {
    ("agent_tool_call_improvement_proposals", "suggested_kind"),
    ("agent_tool_call_proposal_events", "action"),
    ("agent_tool_call_proposal_events", "resolution_kind"),
    ("label_suggestions", "decided_label"),
    ("replay_findings", "outcome"),
    ("replay_notifications", "kind"),
    ("replay_samples", "side"),
    ("replay_schedules", "baseline"),
    ("replay_schedules", "notify_on"),
    ("replay_sides", "tools_from"),
    ("replays", "stage"),
}
COUNTERS = (PositiveBigIntegerField, PositiveIntegerField, PositiveSmallIntegerField)


def fields() -> list[tuple[type[Model], Field]]:
    models = [model for model in apps.get_models() if issubclass(model, TenantModel)]
    return [(model, field) for model in models for field in model._meta.concrete_fields]


@pytest.fixture
def checked(db: None) -> set[tuple[str, str]]:
    """Table and column of each check constraint."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT con.conrelid::regclass::text, a.attname FROM pg_constraint con
            JOIN pg_attribute a ON a.attrelid = con.conrelid AND a.attnum = ANY (con.conkey)
            WHERE con.contype = 'c' AND con.convalidated AND con.connamespace = 'public'::regnamespace
            """
        )
        return set(cursor.fetchall())


def test_choices_and_counters_have_a_check(checked: set[tuple[str, str]]) -> None:
    bound = [(model, field) for model, field in fields() if field.choices or isinstance(field, COUNTERS)]
    assert len(bound) > 80
    names = {(model._meta.db_table, field.column) for model, field in bound}
    assert names - checked == UNCHECKED


def test_a_check_holds_for_raw_sql(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        run = TurnRun.objects.get(turn=own_turn("done"))
        feedback = FeedbackFactory()
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:
        for column, value in (("state", "'odd'"), ("attempt", "-1")):
            with pytest.raises(psycopg.errors.CheckViolation):
                admin.execute(f"UPDATE {TurnRun._meta.db_table} SET {column} = {value} WHERE id = {run.pk}")
        columns = [field.column for field in Feedback._meta.concrete_fields if not field.primary_key]
        names = ", ".join(columns)
        with pytest.raises(psycopg.errors.UniqueViolation):  # of one item and reviewer one label holds
            admin.execute(
                f"INSERT INTO {Feedback._meta.db_table} ({names}) SELECT {names} FROM {Feedback._meta.db_table} "
                f"WHERE id = {feedback.pk}"
            )
