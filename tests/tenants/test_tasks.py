"""A message that names another tenant's row does nothing: rows are read in the scope of the tenant it names (T8)."""

from collections.abc import Callable

import psycopg
import pytest
from celery import Task, current_app
from django.apps import apps

from quality import tasks
from quality.models import (
    BulkAction,
    CoachRun,
    Export,
    Import,
    OtlpTrace,
    Replay,
    ReviewQueue,
    SuggestionRun,
    WebhookDelivery,
)
from tenants.models import Tenant, TenantModel
from tenants.scope import tenant_scope
from tests import environment
from tests.masking.canaries import rows_of_every_kind
from tests.pages.world import make_world

# The row that a task is about, and the state in which the task would take it up.
ABOUT: dict[Task, tuple[type[TenantModel], str]] = {
    tasks.import_traces: (Import, "queued"),
    tasks.take_back_import: (Import, "taking_back"),
    tasks.read_spans: (OtlpTrace, ""),
    tasks.run_coach: (CoachRun, "queued"),
    tasks.run_suggestions: (SuggestionRun, "queued"),
    tasks.run_export: (Export, "queued"),
    tasks.deliver_webhook: (WebhookDelivery, "pending"),
    tasks.run_replay: (Replay, "queued"),
    tasks.run_bulk_action: (BulkAction, "queued"),
    tasks.fill_queue: (ReviewQueue, ""),
    tasks.refresh_queue: (ReviewQueue, ""),
}
# Turns are claimed by their rows, whatever a message says (tests/turns/test_leases.py); the rest is about no row, or,
# with notifications, about one like a webhook's.
OTHERS = {"run_turn", "count_hours", "make_hints", "tick", "deliver_notification"}


def test_each_task_is_known() -> None:
    ours = {name.rpartition(".")[2] for name in current_app.tasks if name.startswith("quality.tasks.")}
    assert ours == {task.name.rpartition(".")[2] for task in ABOUT} | OTHERS


@pytest.fixture
def everything(db: None) -> Callable[[int], dict[str, list[str]]]:
    """All that a tenant has, as text, by table; asked for by an administrator."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    tables = [model._meta.db_table for model in apps.get_models() if issubclass(model, TenantModel)]

    def read(tenant_id: int) -> dict[str, list[str]]:
        with psycopg.connect(url) as admin:
            query = "SELECT t::text FROM {} t WHERE tenant_id = %s ORDER BY 1"
            return {table: [row for (row,) in admin.execute(query.format(table), [tenant_id])] for table in tables}  # type: ignore[arg-type]

    return read


def test_another_tenants_row_is_left_alone(
    everything: Callable[[int], dict[str, list[str]]], other_tenant: Tenant
) -> None:
    admin = make_world("world")
    with tenant_scope(admin.tenant_id):
        rows_of_every_kind(admin.user)
    ours = everything(other_tenant.pk)
    for task, (model, state) in ABOUT.items():
        with tenant_scope(admin.tenant_id):
            pk = model._base_manager.order_by("-pk")[0].pk
            if state:
                model._base_manager.filter(pk=pk).update(state=state)
        theirs = everything(admin.tenant_id)
        task(other_tenant.pk, pk)
        assert everything(admin.tenant_id) == theirs, task.name
    assert sum(map(len, theirs.values())) > 50  # positive control
    assert everything(other_tenant.pk) == ours
