"""Messages that are due, tenant by tenant; how suggestions ended, without reading them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("quality", "0023_labels_follow_replies"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="replaynotification",
            name="replay_notifications_due_idx",
        ),
        migrations.RemoveIndex(
            model_name="suggestion",
            name="label_suggestions_run_idx",
        ),
        migrations.RemoveIndex(
            model_name="webhookdelivery",
            name="webhook_deliveries_due_idx",
        ),
        migrations.AddIndex(
            model_name="replaynotification",
            index=models.Index(
                condition=models.Q(("state", "pending")),
                fields=["tenant", "next_at"],
                name="replay_notifications_due_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="suggestion",
            index=models.Index(fields=["tenant", "run", "id"], include=("state",), name="label_suggestions_run_idx"),
        ),
        migrations.AddIndex(
            model_name="suggestion",
            index=models.Index(
                condition=models.Q(("decided_by__isnull", False)),
                fields=["tenant", "decided_by", "decided_at"],
                include=("state",),
                name="label_suggestions_decided_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="webhookdelivery",
            index=models.Index(
                condition=models.Q(("state", "pending")),
                fields=["tenant", "next_at"],
                name="webhook_deliveries_due_idx",
            ),
        ),
    ]
