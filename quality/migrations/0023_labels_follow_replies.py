"""Labels on a reply without a call follow it when its cycle shifts, as more of its trace comes in; so does their
history. The application may not change history: this function alone may, and only where in a turn an event hangs."""

from django.conf import settings
from django.db import migrations

BODY = """
BEGIN
    -- First out of all real cycles: one may want a place where another is still.
    UPDATE agent_tool_call_feedback_events e SET cycle = 32767 - n.place
    FROM unnest(turns, olds) WITH ORDINALITY AS n(turn, old, place)
    WHERE e.turn_id = n.turn AND e.cycle = n.old AND e.call_id IS NULL;
    UPDATE agent_tool_call_feedback_events e SET cycle = n.new
    FROM unnest(turns, news) WITH ORDINALITY AS n(turn, new, place)
    WHERE e.turn_id = n.turn AND e.cycle = 32767 - n.place AND e.call_id IS NULL;
END
"""


class Migration(migrations.Migration):
    dependencies = [("quality", "0022_otlp_failures")]

    operations = [
        migrations.RunSQL(
            f"""
            CREATE FUNCTION follow_replies(turns bigint[], olds int[], news int[]) RETURNS void LANGUAGE plpgsql
                SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $body$ {BODY} $body$;
            REVOKE ALL ON FUNCTION follow_replies FROM PUBLIC;
            GRANT EXECUTE ON FUNCTION follow_replies TO "{settings.DATABASE_ROLES["app"]}";
            """,
            "DROP FUNCTION follow_replies",
        ),
    ]
