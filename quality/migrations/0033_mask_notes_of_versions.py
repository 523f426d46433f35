"""Notes of versions of cases may quote evidence, too: see mask_history."""

from importlib import import_module

from django.db import migrations

BODY = import_module("quality.migrations.0027_mask_history").BODY
DATA = "('agent_tool_call_regression_case_versions', 'data')"
NOTE = "('agent_tool_call_regression_case_versions', 'note')"
FUNCTION = """
CREATE OR REPLACE FUNCTION mask_history(table_name text, column_name text, ids bigint[], texts text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $body$ {} $body$;
"""


class Migration(migrations.Migration):
    dependencies = [("quality", "0032_calls_without_outcome_and_blind_entries")]

    operations = [
        migrations.RunSQL(FUNCTION.format(BODY.replace(DATA, f"{DATA}, {NOTE}")), FUNCTION.format(BODY)),
    ]
