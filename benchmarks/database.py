"""A migrated database of its own for a benchmark, on the server of `bin/with-services`. Importing it readies Django."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import django
import psycopg
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from tests import environment  # points the settings at the database

if not environment.ADMIN_URL:
    raise SystemExit("TEST_DATABASE_ADMIN_URL is not set. Run it under bin/with-services, which starts a server.")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "quality.settings")
django.setup()


def administrator(database: str) -> psycopg.Connection:
    return psycopg.connect(psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=database), autocommit=True)


@contextmanager
def database(*, keep: bool = False) -> Iterator[psycopg.Connection]:
    """A migrated database for this run; yields the administrator inside it. `keep` leaves it there, and takes the one
    that is: `PYTEST_XDIST_TESTRUNUID` names it."""
    from tenants.management.commands.setup_database import close_database, create_database, create_roles

    with administrator("postgres") as admin:
        create_roles(admin, environment.PREFIX, dict.fromkeys(("app", "owner", "janitor"), environment.PASSWORD))
        is_there = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [environment.DATABASE]).fetchone()
        if not (keep and is_there):
            create_database(admin, environment.DATABASE, environment.PREFIX)
        try:
            with administrator(environment.DATABASE) as inside:
                close_database(inside, environment.PREFIX)
                call_command("migrate", database="owner", verbosity=0)
                yield inside
        finally:
            for connection in connections.all(initialized_only=True):
                connection.close()
                if pool := getattr(connection, "pool", None):
                    pool.close()
            if not keep:
                name = sql.Identifier(environment.DATABASE)
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} (FORCE)").format(name))
