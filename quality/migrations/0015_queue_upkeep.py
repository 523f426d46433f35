"""What keeps queues up: what is being added to them, when they were put in order, and which are deleted."""

import django.utils.timezone
from django.db import migrations, models

from tenants.rls import let_read


class Migration(migrations.Migration):
    dependencies = [("quality", "0014_queues_security")]

    operations = [
        migrations.AddField(
            model_name="reviewqueue",
            name="backfill",
            field=models.JSONField(
                blank=True,
                default=dict,
                help_text="What is being added by a worker: filter, place, and how far it is.",
            ),
        ),
        migrations.AddField(
            model_name="reviewqueue",
            name="refreshed_at",
            field=models.DateTimeField(
                default=django.utils.timezone.now,
                help_text="Of the most useful: when its entries were put in order last.",
            ),
        ),
        migrations.AddField(
            model_name="reviewqueue",
            name="deleted_at",
            field=models.DateTimeField(help_text="Until the sweep takes it, it can be brought back.", null=True),
        ),
        migrations.RemoveConstraint(model_name="reviewqueue", name="review_queues_name_key"),
        migrations.AddConstraint(
            model_name="reviewqueue",
            constraint=models.UniqueConstraint(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=("tenant", "name"),
                name="review_queues_name_key",
                violation_error_message="There is a queue of this name.",
            ),
        ),
        # The sweep takes up what a lost message left behind, puts entries in order, and deletes for good.
        let_read("janitor", "review_queues", "id, tenant_id, state, ordering, backfill, refreshed_at, deleted_at"),
    ]
