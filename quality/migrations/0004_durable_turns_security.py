"""Row security, composite keys and grants of turns that we run ourselves."""

from django.db import migrations

from tenants.rls import composite_key, let_read, protect


class Migration(migrations.Migration):
    dependencies = [("quality", "0003_durable_turns")]

    operations = [
        protect("agent_turn_runs"),
        protect("agent_turn_replies"),
        # Who decided what is append-only.
        protect("agent_tool_call_decisions", grants="SELECT, INSERT"),
        protect("turn_events"),
        protect("turn_schedules"),
        protect("turn_schedule_slots"),
        composite_key("agent_turn_runs", "turn_id", "agent_turns"),
        composite_key("agent_turn_replies", "turn_id", "agent_turns"),
        composite_key("agent_turn_replies", "toolset_id", "agent_toolsets", on_delete="SET NULL"),
        composite_key("agent_tool_call_decisions", "turn_id", "agent_turns"),
        composite_key("agent_tool_call_decisions", "call_id", "agent_tool_calls"),
        composite_key("turn_events", "turn_id", "agent_turns"),
        composite_key("turn_schedule_slots", "schedule_id", "turn_schedules"),
        composite_key("turn_schedule_slots", "turn_id", "agent_turns", on_delete="SET NULL"),
        # Workers see which tenants have something to do; what it is they learn inside the tenant's scope.
        let_read("janitor", "agent_turn_runs", "id, tenant_id, turn_id, state, attempt, lease_until, queued_at"),
        let_read("janitor", "turn_events", "id, tenant_id, created_at"),
        let_read("janitor", "turn_schedules", "id, tenant_id, is_enabled, next_at"),
    ]
