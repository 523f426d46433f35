"""Secrets, where each may be sent, and the version of a tenant's settings."""

import django.contrib.postgres.fields
import django.db.models.deletion
import tenants.scope
from django.conf import settings
from django.db import migrations, models

from tenants.rls import composite_key, grant, let_read, lookup_function, protect


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0003_token_scope_turns"),
    ]

    operations = [
        migrations.AlterField(
            model_name="apitoken",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(
                    choices=[
                        ("read", "Read calls, feedback and summaries"),
                        ("feedback:write", "Label calls"),
                        ("ingest:write", "Send traces in"),
                        ("export:read", "Export feedback and cases"),
                        ("settings:write", "Change tools, models, styles and secrets"),
                        ("turns:write", "Run turns and answer their calls"),
                    ]
                )
            ),
        ),
        migrations.CreateModel(
            name="Secret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                (
                    "purpose",
                    models.TextField(
                        choices=[("tool", "HTTP tools"), ("model", "A model's key"), ("booking", "The booking link")],
                        default="tool",
                    ),
                ),
                ("kid", models.CharField(max_length=32)),
                ("wrapped_key", models.BinaryField()),
                ("ciphertext", models.BinaryField()),
                ("fingerprint", models.CharField(max_length=16)),
                ("set_at", models.DateTimeField()),
                (
                    "was_attached",
                    models.BooleanField(
                        default=False,
                        help_text="It has been used with a tool: for another one or another host it is asked for again.",
                    ),
                ),
                (
                    "set_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
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
            ],
            options={
                "db_table": "secrets",
            },
        ),
        migrations.CreateModel(
            name="SecretUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tool_name", models.CharField(max_length=64)),
                ("origin", models.TextField(help_text="scheme://host:port")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "secret",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uses",
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
                "db_table": "secret_uses",
            },
        ),
        migrations.CreateModel(
            name="TenantSettings",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.BigIntegerField(default=1)),
                ("max_cycles", models.PositiveSmallIntegerField(null=True)),
                ("tool_timeout_s", models.FloatField(null=True)),
                ("result_max_chars", models.PositiveIntegerField(null=True)),
                ("scripts_enabled", models.BooleanField(default=False)),
                (
                    "databases",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        default=list,
                        help_text="Names of the operator's databases in use.",
                    ),
                ),
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
                "db_table": "tenant_settings",
            },
        ),
        migrations.AddConstraint(
            model_name="secret",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="secrets_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="secret",
            constraint=models.UniqueConstraint(fields=("tenant", "name"), name="secrets_name_key"),
        ),
        migrations.AddConstraint(
            model_name="secret",
            constraint=models.CheckConstraint(
                condition=models.Q(("purpose__in", ["tool", "model", "booking"])), name="secrets_purpose_check"
            ),
        ),
        migrations.AddIndex(
            model_name="secretuse",
            index=models.Index(fields=["tenant", "tool_name"], name="secret_uses_tool_idx"),
        ),
        migrations.AddConstraint(
            model_name="secretuse",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="secret_uses_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="secretuse",
            constraint=models.UniqueConstraint(
                fields=("tenant", "secret", "tool_name", "origin"), name="secret_uses_place_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="tenantsettings",
            constraint=models.UniqueConstraint(fields=("tenant", "id"), name="tenant_settings_tenant_id_key"),
        ),
        migrations.AddConstraint(
            model_name="tenantsettings",
            constraint=models.UniqueConstraint(fields=("tenant",), name="tenant_settings_one_key"),
        ),
        protect("tenant_settings"),
        protect("secrets"),
        protect("secret_uses"),
        grant(["SEQUENCE secrets_id_seq"], "USAGE"),
        composite_key("secret_uses", "secret_id", "secrets"),
        # Which keys are in use, before any tenant is known: ids and counts, no secret.
        let_read("lookup", "secrets", "id, tenant_id, kid"),
        lookup_function(
            "lookup_secret_kids()",
            "TABLE (tenant_id bigint, kid varchar, num_secrets bigint)",
            "SELECT s.tenant_id, s.kid, count(*) FROM secrets s GROUP BY 1, 2",
        ),
    ]
