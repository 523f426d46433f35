"""Tools that tenants keep, their history, and switches of the tools we bring along."""

import django.db.models.deletion
import tenants.scope
from django.conf import settings
from django.db import migrations, models

from tenants.rls import composite_key, protect


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_model_endpoints"),
    ]

    operations = [
        migrations.CreateModel(
            name="HttpToolRow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                ("definition", models.TextField()),
                ("is_enabled", models.BooleanField(default=True)),
                ("version", models.PositiveIntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
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
                "db_table": "http_tools",
            },
        ),
        migrations.CreateModel(
            name="HttpToolVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField()),
                ("definition", models.TextField()),
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
                (
                    "tool",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="versions",
                        to="tenants.httptoolrow",
                    ),
                ),
            ],
            options={
                "db_table": "http_tool_versions",
            },
        ),
        migrations.CreateModel(
            name="ToolSwitch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=64)),
                ("is_enabled", models.BooleanField(default=True)),
                ("mode", models.TextField(blank=True, default="")),
                ("safety", models.TextField(blank=True, default="")),
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
                "db_table": "tool_switches",
            },
        ),
        migrations.AddConstraint(
            model_name="httptoolrow",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="http_tools_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="httptoolrow",
            constraint=models.UniqueConstraint(fields=("tenant", "name"), name="http_tools_name_key"),
        ),
        migrations.AddConstraint(
            model_name="httptoolversion",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="http_tool_versions_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="httptoolversion",
            constraint=models.UniqueConstraint(
                fields=("tenant", "tool", "number"), name="http_tool_versions_number_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="toolswitch",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="tool_switches_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="toolswitch",
            constraint=models.UniqueConstraint(fields=("tenant", "name"), name="tool_switches_name_key"),
        ),
        migrations.AddConstraint(
            model_name="toolswitch",
            constraint=models.CheckConstraint(
                condition=models.Q(("mode__in", ["", "auto", "approve"])), name="tool_switches_mode_check"
            ),
        ),
        migrations.AddConstraint(
            model_name="toolswitch",
            constraint=models.CheckConstraint(
                condition=models.Q(("safety__in", ["", "safe", "unsafe"])), name="tool_switches_safety_check"
            ),
        ),
        protect("http_tools"),
        # What a tool was stays as it was.
        protect("http_tool_versions", grants="SELECT, INSERT"),
        protect("tool_switches"),
        composite_key("http_tool_versions", "tool_id", "http_tools"),
    ]
