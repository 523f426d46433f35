"""Tries to sign in, counted: of no tenant, and worth nothing after a crash."""

from django.db import migrations

from tenants.rls import grant


class Migration(migrations.Migration):
    dependencies = [("tenants", "0014_masking")]

    operations = [
        migrations.RunSQL(
            """
            CREATE UNLOGGED TABLE signin_attempts (
                key bytea PRIMARY KEY, began_at timestamptz NOT NULL, number integer NOT NULL
            );
            """,
            "DROP TABLE signin_attempts",
        ),
        grant(["signin_attempts"], "SELECT, INSERT, UPDATE, DELETE"),
    ]
