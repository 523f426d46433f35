import quality.models.base
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("quality", "0028_export_masks"),
    ]

    operations = [
        migrations.AlterField(
            model_name="gatewayday",
            name="last_gap",
            field=quality.models.base.SentenceField(blank=True, help_text="Why the last of them was not."),
        ),
        migrations.AlterField(
            model_name="import",
            name="failure",
            field=quality.models.base.SentenceField(
                blank=True, help_text="Why the whole file was refused, and what to do."
            ),
        ),
        migrations.AlterField(
            model_name="importissue",
            name="message",
            field=quality.models.base.SentenceField(),
        ),
        migrations.AlterField(
            model_name="importissue",
            name="path",
            field=quality.models.base.ProseField(blank=True, help_text="JSON path of the field at fault."),
        ),
        migrations.AlterField(
            model_name="otlptrace",
            name="failure",
            field=quality.models.base.SentenceField(blank=True),
        ),
    ]
