"""States in words that say them alone: a proposal is open, a message is to be sent; pending are calls."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("quality", "0025_masked_fields"),
    ]

    operations = [
        migrations.AlterField(
            model_name="proposal",
            name="state",
            field=models.TextField(
                choices=[("pending", "Open"), ("dismissed", "Dismissed"), ("applied", "Applied")], default="pending"
            ),
        ),
        migrations.AlterField(
            model_name="quarantineproposal",
            name="state",
            field=models.TextField(
                choices=[("pending", "Open"), ("accepted", "Accepted"), ("dismissed", "Dismissed")], default="pending"
            ),
        ),
        migrations.AlterField(
            model_name="replaynotification",
            name="state",
            field=models.TextField(
                choices=[("pending", "To be sent"), ("sent", "Sent"), ("failed", "Failed")], default="pending"
            ),
        ),
        migrations.AlterField(
            model_name="webhookdelivery",
            name="state",
            field=models.TextField(
                choices=[("pending", "To be sent"), ("sent", "Sent"), ("failed", "Failed")], default="pending"
            ),
        ),
    ]
