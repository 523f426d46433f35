"""Row security, composite keys and grants of bulk actions and saved views."""

from django.db import migrations

from tenants.rls import composite_key, let_read, protect


class Migration(migrations.Migration):
    dependencies = [("quality", "0016_bulk_and_views")]

    operations = [
        *[protect(table) for table in ("bulk_actions", "bulk_action_items", "saved_views", "default_views")],
        composite_key("bulk_actions", "queue_id", "review_queues", on_delete="SET NULL"),
        composite_key("bulk_action_items", "action_id", "bulk_actions"),
        composite_key("bulk_action_items", "turn_id", "agent_turns"),
        composite_key("bulk_action_items", "call_id", "agent_tool_calls"),
        composite_key("default_views", "view_id", "saved_views"),
        # The sweep takes up what a lost message or a lost worker left behind, and forgets old previews.
        let_read("janitor", "bulk_actions", "id, tenant_id, state, lease_until, created_at"),
    ]
