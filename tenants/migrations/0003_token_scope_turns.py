"""A token may run turns."""

import django.contrib.postgres.fields
from django.db import migrations, models

SCOPES = [
    ("read", "Read calls, feedback and summaries"),
    ("feedback:write", "Label calls"),
    ("ingest:write", "Send traces in"),
    ("export:read", "Export feedback and cases"),
    ("turns:write", "Run turns and answer their calls"),
]


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_row_security")]

    operations = [
        migrations.AlterField(
            model_name="apitoken",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(choices=SCOPES), size=None),
        ),
    ]
