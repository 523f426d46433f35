"""SQL for migrations: row security, composite keys and grants. A migration reads `protect("table")` and no more."""

from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import RunSQL

CURRENT_TENANT = "(SELECT nullif(current_setting('app.tenant', true), '')::bigint)"


def protect(table: str, *, grants: str = "SELECT, INSERT, UPDATE, DELETE", key: str = "tenant_id") -> RunSQL:
    """Row security for one tenant table, forced on its owner too, and what the application's role may do there.

    The owner, too, sees one tenant at a time: a data migration loops with `each_tenant`.
    """
    app, owner = settings.DATABASE_ROLES["app"], settings.DATABASE_ROLES["owner"]
    return RunSQL(
        f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY {table}_tenant ON {table} TO "{app}", "{owner}"
            USING ({key} = {CURRENT_TENANT}) WITH CHECK ({key} = {CURRENT_TENANT});
        REVOKE ALL ON {table} FROM "{app}";
        GRANT {grants} ON {table} TO "{app}";
        """,
        f"""
        DROP POLICY {table}_tenant ON {table};
        ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY;
        ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;
        """,
    )


def composite_key(child: str, column: str, parent: str, *, on_delete: str = "CASCADE") -> RunSQL:
    """`(tenant_id, column)` of `child` points at `(tenant_id, id)` of `parent`.

    A plain foreign key would take a row of another tenant: key checks skip the policies. The Django field has
    `db_constraint=False`.
    """
    name = f"{child}_{column}_tenant_fk"
    action = f"SET NULL ({column})" if on_delete == "SET NULL" else on_delete
    return RunSQL(
        f"ALTER TABLE {child} ADD CONSTRAINT {name} FOREIGN KEY (tenant_id, {column}) "
        f"REFERENCES {parent} (tenant_id, id) ON DELETE {action} DEFERRABLE INITIALLY DEFERRED",
        f"ALTER TABLE {child} DROP CONSTRAINT {name}",
    )


def grant(tables: Iterable[str], privileges: str, *, role: str = "app") -> RunSQL:
    """Privileges on tables that belong to no tenant (users, sessions, cache), or for another role."""
    names = ", ".join(tables)
    user = settings.DATABASE_ROLES[role]
    return RunSQL(f'GRANT {privileges} ON {names} TO "{user}"', f'REVOKE {privileges} ON {names} FROM "{user}"')


def let_read(role: str, table: str, columns: str) -> RunSQL:
    """A policy and column grants by which `janitor` or `lookup` reads every tenant's rows of one table."""
    user = settings.DATABASE_ROLES[role]
    return RunSQL(
        f'CREATE POLICY {table}_{role} ON {table} FOR SELECT TO "{user}" USING (true); '
        f'GRANT SELECT ({columns}) ON {table} TO "{user}"',
        f'DROP POLICY {table}_{role} ON {table}; REVOKE SELECT ({columns}) ON {table} FROM "{user}"',
    )


def lookup_function(signature: str, returns: str, body: str) -> RunSQL:
    """A SECURITY DEFINER function that resolves something *before* a tenant is known. It returns ids only."""
    app, lookup = settings.DATABASE_ROLES["app"], settings.DATABASE_ROLES["lookup"]
    name = signature.partition("(")[0]
    return RunSQL(
        f"""
        CREATE FUNCTION {signature} RETURNS {returns} LANGUAGE sql STABLE SECURITY DEFINER
            SET search_path = pg_catalog, public, pg_temp AS $lookup$ {body} $lookup$;
        REVOKE ALL ON FUNCTION {name} FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION {name} TO "{app}";
        GRANT CREATE ON SCHEMA public TO "{lookup}";
        ALTER FUNCTION {name} OWNER TO "{lookup}";
        REVOKE CREATE ON SCHEMA public FROM "{lookup}";
        """,
        f"DROP FUNCTION {name}",
    )


def each_tenant(schema_editor: BaseDatabaseSchemaEditor) -> Iterator[int]:
    """For data migrations: the id of each tenant in turn, with its rows in sight.

    Without it a data step of the owner sees no row under FORCE and silently does nothing.
    """
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT id FROM tenants ORDER BY id")
        for (tenant_id,) in cursor.fetchall():
            cursor.execute("SELECT set_config('app.tenant', %s, true)", [str(tenant_id)])
            yield tenant_id
        cursor.execute("SELECT set_config('app.tenant', '', true)")
