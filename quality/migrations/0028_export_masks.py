import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("quality", "0027_mask_history"),
    ]

    operations = [
        migrations.AddField(
            model_name="export",
            name="masks",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(), default=list, help_text="Names of the rules of masking it went through."
            ),
        ),
    ]
