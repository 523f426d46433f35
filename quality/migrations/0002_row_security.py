"""Row security, composite keys and grants of the evidence and what is said of it."""

from django.db import migrations

from tenants.rls import composite_key, let_read, protect

ITEM_TABLES = ("agent_tool_call_reviews", "agent_tool_call_feedback", "agent_tool_call_feedback_events")


class Migration(migrations.Migration):
    dependencies = [("quality", "0001_initial"), ("tenants", "0002_row_security")]

    operations = [
        protect("imports"),
        protect("import_issues"),
        protect("agent_toolsets"),
        protect("agent_turns"),
        protect("agent_tool_calls"),
        protect("agent_tool_call_reviews"),
        protect("agent_tool_call_feedback"),
        # The history is append-only: no right to change or delete.
        protect("agent_tool_call_feedback_events", grants="SELECT, INSERT"),
        composite_key("import_issues", "import_job_id", "imports"),
        composite_key("agent_turns", "import_job_id", "imports", on_delete="SET NULL"),
        composite_key("agent_turns", "toolset_id", "agent_toolsets", on_delete="SET NULL"),
        composite_key("agent_tool_calls", "turn_id", "agent_turns"),
        composite_key("agent_tool_calls", "toolset_id", "agent_toolsets", on_delete="SET NULL"),
        *(composite_key(table, "turn_id", "agent_turns") for table in ITEM_TABLES),
        *(composite_key(table, "call_id", "agent_tool_calls") for table in ITEM_TABLES),
        # The sweep finds imports whose worker is gone, in every tenant.
        let_read("janitor", "imports", "id, tenant_id, state, lease_until, created_at"),
    ]
