"""A PostgreSQL of the tests' own, which they stop and start again: the one of the run is everybody's."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from django.core.management import call_command
from django.db import connections
from launch.postgres import OUTLIVES_KILLS, EmbeddedPostgres
from psycopg import sql

from tenants.management.commands.setup_database import close_database, create_database, create_roles
from tests import environment

MODES = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}  # as `pg_ctl stop -m` sends them
STOP_LIMIT_S = 30
URLS = ("DATABASE_URL", "DATABASE_OWNER_URL", "DATABASE_JANITOR_URL")


class OwnPostgres:
    """It keeps its port and its data over a restart, as an installation's does."""

    def __init__(self) -> None:
        programs = os.environ.get("TEST_POSTGRES_BIN")
        self._server = EmbeddedPostgres.passing(Path(programs) if programs else None, OUTLIVES_KILLS)
        self.admin_url, _ = self._server.start()
        self.port = int(psycopg.conninfo.conninfo_to_dict(self.admin_url)["port"])

    def stop(self, mode: str) -> None:
        connections.close_all()  # the test's own: a process of the product is not spared
        assert self._server.child is not None
        self._server.child.process.send_signal(MODES[mode])
        self._server.child.process.wait(STOP_LIMIT_S)

    def start(self) -> None:
        self._server.start(self.port)

    def restart(self, mode: str) -> None:
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        self._server.stop()

    def prepare(self) -> None:
        """Roles and a migrated database, once all connections point here."""
        with self.administrator("postgres") as admin:
            create_roles(admin, environment.PREFIX, dict.fromkeys(("app", "owner", "janitor"), environment.PASSWORD))
            create_database(admin, environment.DATABASE, environment.PREFIX)
        with self.administrator() as inside:
            close_database(inside, environment.PREFIX)
        call_command("migrate", database="owner", verbosity=0)
        connections["owner"].close()

    def administrator(self, database: str = environment.DATABASE) -> psycopg.Connection:
        url = psycopg.conninfo.make_conninfo(self.admin_url, dbname=database)
        return psycopg.connect(url, autocommit=True)

    def empty_tables(self, kept: set[str]) -> None:
        with self.administrator() as admin:
            found = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            admin.execute("SET session_replication_role = replica")
            with admin.transaction():
                for (name,) in found:
                    if name not in kept:
                        admin.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))


@contextmanager
def pointed_at(server: OwnPostgres) -> Iterator[None]:
    """Django's connections, here and in every process that is started meanwhile, go to this server."""
    before = {name: os.environ[name] for name in URLS}
    moved = {name: urlsplit(url)._replace(netloc=_netloc(url, server.port)).geturl() for name, url in before.items()}
    was = {alias: (place["HOST"], place["PORT"]) for alias, place in connections.settings.items()}
    os.environ.update(moved)
    _go(dict.fromkeys(was, ("127.0.0.1", server.port)))
    try:
        yield
    finally:
        os.environ.update(before)
        _go(was)


def _netloc(url: str, port: int) -> str:
    return f"{urlsplit(url).netloc.rpartition('@')[0]}@127.0.0.1:{port}"


def _go(addresses: Mapping[str, tuple[str, str | int]]) -> None:
    for alias, (host, port) in addresses.items():
        connections[alias].close()
        connections[alias].close_pool()
        connections[alias].settings_dict.update(HOST=host, PORT=port)
