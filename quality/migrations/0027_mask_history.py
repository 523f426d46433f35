"""What is masked when it comes in, or by `manage.py mask_stored`, must not stay in what the application may only add to:
decisions, the history of labels and proposals, versions of cases. This function alone may change them, only the texts
that quote evidence, and only into texts with marks."""

from django.conf import settings
from django.db import migrations

BODY = """
BEGIN
    IF (table_name, column_name) NOT IN (
        ('agent_tool_call_decisions', 'arguments'), ('agent_tool_call_decisions', 'text'),
        ('agent_tool_call_feedback_events', 'note'), ('agent_tool_call_feedback_events', 'correction'),
        ('agent_tool_call_proposal_events', 'reason'), ('agent_tool_call_proposal_events', 'resolution_note'),
        ('agent_tool_call_regression_case_versions', 'data')
    ) OR EXISTS (SELECT FROM unnest(texts) AS t(text) WHERE text IS NULL OR strpos(text, '{masked:') = 0) THEN
        RAISE EXCEPTION 'only evidence in histories can be masked';
    END IF;
    EXECUTE format(
        'UPDATE %1$I h SET %2$I = n.text FROM unnest($1, $2) AS n(id, text) WHERE h.id = n.id', table_name, column_name
    ) USING ids, texts;
END
"""


class Migration(migrations.Migration):
    dependencies = [("quality", "0026_state_words")]

    operations = [
        migrations.RunSQL(
            f"""
            CREATE FUNCTION mask_history(table_name text, column_name text, ids bigint[], texts text[]) RETURNS void
                LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $body$ {BODY} $body$;
            REVOKE ALL ON FUNCTION mask_history FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION mask_history TO "{settings.DATABASE_ROLES["app"]}";
            """,
            "DROP FUNCTION mask_history",
        ),
    ]
