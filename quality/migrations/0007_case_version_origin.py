from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("quality", "0006_labels_to_fixes_security")]

    operations = [
        migrations.AddField(
            model_name="caseversion",
            name="origin_sha256",
            field=models.BinaryField(
                help_text="Of the line it was imported from: the same line again changes nothing.",
                max_length=32,
                null=True,
            ),
        ),
        migrations.AddConstraint(
            model_name="caseversion",
            constraint=models.UniqueConstraint(
                fields=("tenant", "origin_sha256"), name="agent_tool_call_case_versions_origin_key"
            ),
        ),
    ]
