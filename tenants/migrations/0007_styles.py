"""Styles, their versions, and skills."""

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import tenants.scope
from django.conf import settings
from django.db import migrations, models

from tenants.rls import composite_key, protect


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0006_tools"),
    ]

    operations = [
        migrations.CreateModel(
            name="Style",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "style_id",
                    models.CharField(
                        max_length=40,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Lower-case letters, digits, - and _; a letter or digit first.",
                            )
                        ],
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                ("version", models.PositiveIntegerField(default=0)),
                ("is_default", models.BooleanField(default=False, help_text="For turns that name no style.")),
                ("updated_at", models.DateTimeField(auto_now=True)),
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
                "db_table": "styles",
            },
        ),
        migrations.CreateModel(
            name="StyleVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("system_prompt", models.TextField(blank=True)),
                ("examples", models.JSONField(default=list)),
                ("skills", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), default=list)),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "style",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="versions",
                        to="tenants.style",
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
                "db_table": "style_versions",
            },
        ),
        migrations.CreateModel(
            name="Skill",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        max_length=40,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9_-]*\\Z",
                                "Lower-case letters, digits, - and _; a letter or digit first.",
                            )
                        ],
                    ),
                ),
                ("description", models.CharField(blank=True, max_length=500)),
                ("tools", django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), default=list)),
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
                "db_table": "skills",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="skills_tenant_id_key"),
                    models.UniqueConstraint(
                        fields=("tenant", "name"),
                        name="skills_name_key",
                        violation_error_message="Another skill has this name.",
                    ),
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="style",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="styles_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="style",
            constraint=models.UniqueConstraint(
                fields=("tenant", "style_id"),
                name="styles_style_id_key",
                violation_error_message="Another style has this id.",
            ),
        ),
        migrations.AddConstraint(
            model_name="style",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_default", True)), fields=("tenant",), name="styles_default_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="styleversion",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="style_versions_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="styleversion",
            constraint=models.UniqueConstraint(fields=("tenant", "style", "number"), name="style_versions_number_key"),
        ),
        protect("skills"),
        protect("styles"),
        protect("style_versions", grants="SELECT, INSERT"),
        composite_key("style_versions", "style_id", "styles"),
    ]
