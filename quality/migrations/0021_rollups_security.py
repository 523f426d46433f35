"""Row security of the rollups, and the triggers by which writers of calls mark the hours they touch.

A statement marks each hour once. Both tables of a change are looked at: a call that moves touches two hours.
"""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from tenants.rls import each_tenant, let_read, protect

TRIGGERS = """
CREATE FUNCTION touch_hours() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO touched_hours (tenant_id, hour)
    SELECT DISTINCT r.tenant_id, date_trunc('hour', r.started_at, 'UTC') FROM written r;
    RETURN NULL;
END $$;
CREATE FUNCTION touch_hours_changed() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    INSERT INTO touched_hours (tenant_id, hour)
    SELECT DISTINCT t.tenant_id, date_trunc('hour', t.started_at, 'UTC')
    FROM written n JOIN replaced o ON o.id = n.id
    CROSS JOIN LATERAL (VALUES (n.tenant_id, n.started_at), (o.tenant_id, o.started_at)) t(tenant_id, started_at)
    WHERE (n.started_at, n.tool_name, n.style_id, n.model, n.source, n.toolset_id, n.is_error)
        IS DISTINCT FROM (o.started_at, o.tool_name, o.style_id, o.model, o.source, o.toolset_id, o.is_error);
    RETURN NULL;
END $$;
CREATE TRIGGER touch_hours_inserted AFTER INSERT ON agent_tool_calls
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION touch_hours();
CREATE TRIGGER touch_hours_deleted AFTER DELETE ON agent_tool_calls
    REFERENCING OLD TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION touch_hours();
CREATE TRIGGER touch_hours_updated AFTER UPDATE ON agent_tool_calls
    REFERENCING OLD TABLE AS replaced NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION touch_hours_changed();
"""
UNDONE = """
DROP TRIGGER touch_hours_updated ON agent_tool_calls;
DROP TRIGGER touch_hours_deleted ON agent_tool_calls;
DROP TRIGGER touch_hours_inserted ON agent_tool_calls;
DROP FUNCTION touch_hours_changed();
DROP FUNCTION touch_hours();
"""


def touch_all(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """What is there already is counted by the sweep, bit by bit."""
    for tenant_id in each_tenant(schema_editor):
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO touched_hours (tenant_id, hour) "
                "SELECT DISTINCT tenant_id, date_trunc('hour', started_at, 'UTC') FROM agent_tool_calls "
                "WHERE tenant_id = %s",
                [tenant_id],
            )


class Migration(migrations.Migration):
    dependencies = [("quality", "0020_rollups")]

    operations = [
        protect("call_hours"),
        protect("touched_hours", grants="SELECT, INSERT, DELETE"),
        migrations.RunSQL(TRIGGERS, UNDONE),
        migrations.RunPython(touch_all, migrations.RunPython.noop),
        let_read("janitor", "touched_hours", "id, tenant_id, hour"),
    ]
