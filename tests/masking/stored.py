"""Where a text stands in the database, whatever table and column it is in."""

import psycopg
from psycopg import sql

from tests import environment


def tables_with(text: str) -> list[str]:
    """Names of tables in any of whose rows the text stands, of all tenants."""
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=environment.DATABASE)
    with psycopg.connect(url, autocommit=True) as admin:
        names = [name for (name,) in admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        looked = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {} t WHERE strpos(t::text, {}) > 0)").format(
                name, sql.Identifier(name), text
            )
            for name in names
        )
        return sorted(name for (name,) in admin.execute(looked))
