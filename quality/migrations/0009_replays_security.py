"""Row security, composite keys and grants of replays."""

from django.db import migrations

from tenants.rls import composite_key, let_read, protect


class Migration(migrations.Migration):
    dependencies = [("quality", "0008_replays")]

    operations = [
        protect("replay_schedules"),
        protect("replays"),
        protect("replay_sides"),
        protect("replay_cases"),
        protect("replay_samples"),
        protect("replay_findings"),
        protect("quarantine_proposals"),
        protect("replay_notifications"),
        protect("judge_votes"),
        composite_key("replay_schedules", "webhook_secret_id", "secrets", on_delete="SET NULL"),
        composite_key("replays", "schedule_id", "replay_schedules", on_delete="SET NULL"),
        composite_key("replays", "baseline_replay_id", "replays", on_delete="SET NULL"),
        composite_key("replay_sides", "replay_id", "replays"),
        composite_key("replay_sides", "toolset_id", "agent_toolsets", on_delete="SET NULL"),
        composite_key("replay_cases", "replay_id", "replays"),
        composite_key("replay_cases", "case_id", "agent_tool_call_regression_cases"),
        composite_key("replay_samples", "replay_id", "replays"),
        composite_key("replay_samples", "replay_case_id", "replay_cases"),
        composite_key("replay_findings", "replay_id", "replays"),
        composite_key("replay_findings", "case_id", "agent_tool_call_regression_cases"),
        composite_key("replay_findings", "sample_id", "replay_samples", on_delete="SET NULL"),
        composite_key("quarantine_proposals", "case_id", "agent_tool_call_regression_cases"),
        composite_key("replay_notifications", "replay_id", "replays"),
        # The sweep finds what is due and what lost its worker, in every tenant.
        let_read("janitor", "replay_schedules", "id, tenant_id, is_enabled, next_at"),
        let_read("janitor", "replays", "id, tenant_id, state, lease_until, created_at"),
        let_read("janitor", "replay_notifications", "id, tenant_id, state, next_at"),
    ]
