"""Where a tenant's models are."""

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import tenants.scope
from django.db import migrations, models

from tenants.rls import composite_key, protect


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0004_secrets_and_settings"),
    ]

    operations = [
        migrations.CreateModel(
            name="ModelEndpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "label",
                    models.CharField(
                        help_text="By this turns choose it, such as “expert”.",
                        max_length=40,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Lower-case letters, digits, - and _; a letter or digit first.",
                            )
                        ],
                    ),
                ),
                (
                    "base_url",
                    models.TextField(help_text="Up to /chat/completions, such as https://llm.example.com/v1."),
                ),
                ("model", models.CharField(help_text="As the server knows it.", max_length=200)),
                (
                    "parameters",
                    models.JSONField(default=dict, help_text="Sent along as they are: temperature, max_tokens …"),
                ),
                (
                    "price_prompt",
                    models.FloatField(default=0, validators=[django.core.validators.MinValueValidator(0)]),
                ),
                (
                    "price_completion",
                    models.FloatField(default=0, validators=[django.core.validators.MinValueValidator(0)]),
                ),
                (
                    "sources",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        default=list,
                        help_text="Turns of these sources; none: of all others.",
                    ),
                ),
                ("is_enabled", models.BooleanField(default=True)),
                (
                    "is_stand_in",
                    models.BooleanField(default=False, help_text="Rules that play a model, for trying things out."),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "key",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="tenants.secret",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        default=tenants.scope.current_tenant_id,
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "model_endpoints",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="model_endpoints_tenant_id_key"),
                    models.UniqueConstraint(
                        fields=("tenant", "label"),
                        name="model_endpoints_label_key",
                        violation_error_message="Another model has this label.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("price_completion__gte", 0), ("price_prompt__gte", 0)),
                        name="model_endpoints_price_check",
                    ),
                ],
            },
        ),
        protect("model_endpoints"),
        composite_key("model_endpoints", "key_id", "secrets", on_delete="SET NULL"),
    ]
