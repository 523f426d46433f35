"""Budgets of a turn that a tenant sets for itself."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_exchange_desk")]

    operations = [
        migrations.AddField("tenantsettings", "max_calls", models.PositiveIntegerField(null=True)),
        migrations.AddField("tenantsettings", "max_tokens", models.PositiveBigIntegerField(null=True)),
        migrations.AddField(
            "tenantsettings",
            "max_cost",
            models.FloatField(help_text="In the currency of the models' prices.", null=True),
        ),
        migrations.AddField("tenantsettings", "wall_time_s", models.FloatField(null=True)),
    ]
