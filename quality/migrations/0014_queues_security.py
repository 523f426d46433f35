"""Row security, composite keys and grants of queues, tags and suggestions."""

from django.db import migrations

from tenants.rls import composite_key, let_read, protect

ON_ITEMS = ("review_queue_entries", "agent_tool_call_tags", "label_suggestions")


class Migration(migrations.Migration):
    dependencies = [("quality", "0013_queues")]

    operations = [
        *[
            protect(table)
            for table in (
                "review_queues",
                "review_queue_reviewers",
                "review_queue_entries",
                "review_assignments",
                "agent_tool_call_tags",
                "label_suggestions",
                "suggestion_runs",
            )
        ],
        *[composite_key(table, "turn_id", "agent_turns") for table in ON_ITEMS],
        *[composite_key(table, "call_id", "agent_tool_calls") for table in ON_ITEMS],
        composite_key("review_queues", "of_queue_id", "review_queues"),
        composite_key("review_queue_reviewers", "queue_id", "review_queues"),
        composite_key("review_queue_entries", "queue_id", "review_queues"),
        composite_key("review_assignments", "queue_id", "review_queues"),
        composite_key("review_assignments", "entry_id", "review_queue_entries"),
        composite_key("label_suggestions", "run_id", "suggestion_runs"),
        composite_key("suggestion_runs", "queue_id", "review_queues", on_delete="SET NULL"),
        # The sweep takes up what a lost message or a lost worker left behind.
        let_read("janitor", "suggestion_runs", "id, tenant_id, state, leased_until"),
    ]
