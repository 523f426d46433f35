"""Row security, composite keys and grants of guidelines, proposals, the coach, cases and exports; and what feedback
that was there before says of its group."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from tenants.rls import composite_key, each_tenant, let_read, protect

FILL = (
    """
    UPDATE agent_tool_call_feedback f SET tool_name = c.tool_name, style_id = c.style_id FROM agent_tool_calls c
    WHERE f.tenant_id = %s AND c.tenant_id = f.tenant_id AND c.id = f.call_id
    """,
    """
    UPDATE agent_tool_call_feedback f SET style_id = t.style_id FROM agent_turns t
    WHERE f.tenant_id = %s AND f.call_id IS NULL AND t.tenant_id = f.tenant_id AND t.id = f.turn_id
    """,
)


def fill(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for tenant_id in each_tenant(schema_editor):
        with schema_editor.connection.cursor() as cursor:
            for statement in FILL:
                cursor.execute(statement, [tenant_id])


class Migration(migrations.Migration):
    dependencies = [("quality", "0005_labels_to_fixes")]

    operations = [
        # Append-only: what guided a label, and who decided what.
        protect("guideline_versions", grants="SELECT, INSERT"),
        protect("agent_tool_call_improvement_proposals"),
        protect("agent_tool_call_proposal_events", grants="SELECT, INSERT"),
        protect("coach_runs"),
        protect("coach_items"),
        protect("agent_tool_call_regression_cases"),
        protect("agent_tool_call_regression_case_versions", grants="SELECT, INSERT"),
        protect("exports"),
        composite_key("agent_tool_call_proposal_events", "proposal_id", "agent_tool_call_improvement_proposals"),
        composite_key("coach_items", "run_id", "coach_runs"),
        composite_key("agent_tool_call_regression_cases", "call_id", "agent_tool_calls", on_delete="SET NULL"),
        composite_key(
            "agent_tool_call_regression_cases",
            "proposal_id",
            "agent_tool_call_improvement_proposals",
            on_delete="SET NULL",
        ),
        composite_key(
            "agent_tool_call_regression_cases",
            "merged_into_id",
            "agent_tool_call_regression_cases",
            on_delete="SET NULL",
        ),
        composite_key("agent_tool_call_regression_case_versions", "case_id", "agent_tool_call_regression_cases"),
        # The sweep finds jobs whose worker is gone, and files past their time, in every tenant.
        let_read("janitor", "coach_runs", "id, tenant_id, state, lease_until, created_at"),
        let_read("janitor", "exports", "id, tenant_id, state, lease_until, created_at, expires_at, stored_as"),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
