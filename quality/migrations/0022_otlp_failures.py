"""Traces that could not be read are found by an index of their own: hardly one in many is among them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("quality", "0021_rollups_security")]

    operations = [
        migrations.AddIndex(
            model_name="otlptrace",
            index=models.Index(
                condition=models.Q(("failure", ""), _negated=True),
                fields=["tenant", "-last_at", "-id"],
                name="otlp_traces_failed_idx",
            ),
        ),
    ]
