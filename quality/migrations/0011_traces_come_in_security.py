"""Row security, composite keys and grants of hints, spans and the gateway."""

from django.db import migrations

from tenants.rls import composite_key, let_read, protect


class Migration(migrations.Migration):
    dependencies = [("quality", "0010_traces_come_in")]

    operations = [
        protect("agent_tool_call_hints"),
        protect("otlp_traces"),
        protect("otlp_spans"),
        protect("gateway_histories"),
        protect("gateway_days"),
        composite_key("agent_tool_call_hints", "turn_id", "agent_turns"),
        composite_key("agent_tool_call_hints", "call_id", "agent_tool_calls"),
        composite_key("otlp_spans", "trace_id", "otlp_traces"),
        composite_key("gateway_histories", "turn_id", "agent_turns"),
        # The sweep finds what is to be read or looked through, and what is old, in every tenant.
        let_read("janitor", "agent_turns", "id, tenant_id, hints_version"),
        let_read("janitor", "otlp_traces", "id, tenant_id, version, read_version, attempt, last_at"),
        let_read("janitor", "otlp_spans", "id, tenant_id, received_at"),
        let_read("janitor", "gateway_histories", "id, tenant_id, seen_at"),
    ]
