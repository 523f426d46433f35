"""Makes the roles and the database from an administrator's DSN. Safe to run again."""

import secrets
from argparse import ArgumentParser
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from psycopg import sql

LOGIN_ROLES = {"app": "DATABASE_URL", "owner": "DATABASE_OWNER_URL", "janitor": "DATABASE_JANITOR_URL"}


class Command(BaseCommand):
    help = "Create the database roles (owner, app, janitor, lookup) and the database; prints their DSNs."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--admin-url", required=True, help="DSN of a role that may create roles and databases")
        parser.add_argument("--database", default="qlab", help="name of the database to make (default: qlab)")
        parser.add_argument("--prefix", default="qlab_", help="prefix of the roles' names (default: qlab_)")
        parser.add_argument("--print-env", action="store_true", help="print NAME=value lines alone, for a file")

    def handle(self, *args: Any, **options: Any) -> None:
        prefix, name = options["prefix"], options["database"]
        passwords = {role: secrets.token_urlsafe(24) for role in LOGIN_ROLES}
        try:
            with psycopg.connect(options["admin_url"], autocommit=True) as admin:
                create_roles(admin, prefix, passwords)
                create_database(admin, name, prefix)
                host, port = admin.info.host, admin.info.port
            admin_parts = urlsplit(options["admin_url"])
            inside = psycopg.conninfo.make_conninfo(options["admin_url"], dbname=name)
            with psycopg.connect(inside, autocommit=True) as admin:
                close_database(admin, prefix)
        except psycopg.Error as error:
            raise CommandError(f"--admin-url: {error}".strip()) from error
        host = admin_parts.hostname or host
        for role, variable in LOGIN_ROLES.items():
            user = quote(prefix + role, safe="")
            dsn = f"postgresql://{user}:{passwords[role]}@{host}:{port}/{quote(name, safe='')}"
            self.stdout.write(f"{variable}={dsn}")
        if prefix + "lookup" != settings.DATABASE_ROLES["lookup"]:
            self.stdout.write(f"DATABASE_LOOKUP_ROLE={prefix}lookup")
        if not options["print_env"]:
            self.stderr.write(
                "Put these lines into the service's environment, then: manage.py migrate --database=owner"
            )


def create_roles(admin: psycopg.Connection[Any], prefix: str, passwords: dict[str, str]) -> None:
    """Make or update the four roles. Passwords are set anew each time: the caller keeps what is printed."""
    known = {row[0] for row in admin.execute("SELECT rolname FROM pg_roles")}
    for role in (*passwords, "lookup"):
        verb = "ALTER" if prefix + role in known else "CREATE"
        login = sql.SQL("LOGIN PASSWORD {}").format(passwords[role]) if role in passwords else sql.SQL("NOLOGIN")
        admin.execute(
            sql.SQL(verb + " ROLE {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS {}").format(
                sql.Identifier(prefix + role), login
            )
        )
    # The owner hands the lookup functions over to `lookup`, so it must be able to act as it.
    admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(prefix + "lookup"), sql.Identifier(prefix + "owner")))


def create_database(admin: psycopg.Connection[Any], name: str, prefix: str) -> None:
    """Make the database if there is none of this name."""
    if admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
        return
    admin.execute(
        sql.SQL("CREATE DATABASE {} OWNER {} ENCODING 'UTF8' TEMPLATE template0").format(
            sql.Identifier(name), sql.Identifier(prefix + "owner")
        )
    )


def close_database(admin: psycopg.Connection[Any], prefix: str) -> None:
    """Only our roles get in, and only the owner makes tables. `app` needs temporary ones: ingest goes through COPY."""
    app, janitor, owner = (sql.Identifier(prefix + role) for role in ("app", "janitor", "owner"))
    database = sql.Identifier(admin.info.dbname)
    for statement in (
        sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database),
        sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}").format(database, app),
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, janitor),
        sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(owner),
        sql.SQL("GRANT USAGE ON SCHEMA public TO {}, {}, {}").format(app, janitor, sql.Identifier(prefix + "lookup")),
    ):
        admin.execute(statement)
