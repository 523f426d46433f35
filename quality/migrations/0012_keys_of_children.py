"""Indexes of keys to what may be deleted: without one each deleted row costs a walk through the whole child table."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("quality", "0011_traces_come_in_security"),
        ("tenants", "0012_webhook_secrets"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="feedbackevent",
            index=models.Index(fields=["tenant", "call"], name="agent_tool_call_events_call"),
        ),
        migrations.AddIndex(
            model_name="gatewayhistory",
            index=models.Index(fields=["tenant", "turn"], name="gateway_histories_turn_idx"),
        ),
        migrations.AddIndex(
            model_name="replaysample",
            index=models.Index(fields=["tenant", "replay_case"], name="replay_samples_case_idx"),
        ),
        migrations.AddIndex(
            model_name="scheduleslot",
            index=models.Index(fields=["tenant", "turn"], name="turn_schedule_slots_turn_idx"),
        ),
    ]
