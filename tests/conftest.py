"""Fixtures of the whole suite: a real database whose queries run as the application's own role.

The schema is made once per state of the migrations, as a template; each worker clones it. Tests commit for real: under
one outer transaction isolation tests would pass falsely. Between tests an administrator empties the tables.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.cache import cache
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from tenants.management.commands.setup_database import close_database, create_database, create_roles
from tenants.models import Membership, Role, Tenant
from tenants.scope import tenant_scope
from tests import environment

pytest_plugins = ["tests.house_markers", "tests.service"]

ROOT = Path(__file__).resolve().parent.parent
KEEP = {"django_migrations", "django_content_type", "auth_permission"}
TEMPLATE_LOCK = 7_301_155


def schema_hash() -> str:
    """Changes whenever a migration or what it is made of does."""
    parts = [*sorted(ROOT.glob("*/migrations/*.py")), ROOT / "tenants/rls.py"]
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:12]


def _administrator(database: str = "postgres") -> psycopg.Connection:
    url = psycopg.conninfo.make_conninfo(environment.ADMIN_URL, dbname=database)
    return psycopg.connect(url, autocommit=True)


def _make_template(admin: psycopg.Connection, name: str) -> None:
    """Roles, then a migrated database named `name`; first under another name, so that half of one is never used."""
    create_roles(admin, environment.PREFIX, dict.fromkeys(("app", "owner", "janitor"), environment.PASSWORD))
    if admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
        return
    draft = f"{name}_draft"
    admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} (FORCE)").format(sql.Identifier(draft)))
    create_database(admin, draft, environment.PREFIX)
    with _administrator(draft) as inside:
        close_database(inside, environment.PREFIX)
    owner = connections["owner"]
    owner.settings_dict["NAME"] = draft
    call_command("migrate", database="owner", verbosity=0)
    owner.close()
    owner.settings_dict["NAME"] = environment.DATABASE
    admin.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(draft), sql.Identifier(name)))


@pytest.fixture(scope="session")
def django_db_setup(django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    """This worker's database, cloned from the template."""
    if not environment.ADMIN_URL:
        pytest.fail("TEST_DATABASE_ADMIN_URL is not set. Run `make test`, which starts a server of its own.", False)
    template, database = f"{environment.PREFIX}template_{schema_hash()}", sql.Identifier(environment.DATABASE)
    with _administrator() as admin, django_db_blocker.unblock():
        admin.execute("SELECT pg_advisory_lock(%s)", [TEMPLATE_LOCK])
        try:
            _make_template(admin, template)
            admin.execute(
                sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}").format(
                    database, sql.Identifier(environment.PREFIX + "owner"), sql.Identifier(template)
                )
            )
        finally:
            admin.execute("SELECT pg_advisory_unlock(%s)", [TEMPLATE_LOCK])
        with _administrator(environment.DATABASE) as inside:
            close_database(inside, environment.PREFIX)  # a clone takes no database grants along
    yield
    with django_db_blocker.unblock():
        for connection in connections.all(initialized_only=True):
            connection.close()
            if pool := getattr(connection, "pool", None):
                pool.close()
    with _administrator() as admin:
        admin.execute(sql.SQL("DROP DATABASE {} (FORCE)").format(database))
    shutil.rmtree(settings.STATE_DIR, ignore_errors=True)


@pytest.fixture(scope="session")
def empty_tables(django_db_setup: None) -> Iterator[Callable[[], None]]:
    """Deletes every row, as an administrator with keys off: TRUNCATE of all tables takes a hundred times as long."""
    with _administrator(environment.DATABASE) as admin:
        found = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        tables = [sql.Identifier(name) for (name,) in found if name not in KEEP]
        deletes = sql.SQL("; ").join(sql.SQL("DELETE FROM {}").format(table) for table in tables)
        admin.execute("SET session_replication_role = replica")

        def empty() -> None:
            with admin.transaction():
                admin.execute(deletes)

        yield empty


@pytest.fixture
def db(
    django_db_setup: None, django_db_blocker: pytest.FixtureRequest, empty_tables: Callable[[], None]
) -> Iterator[None]:
    """Database access for one test, as the application's role, with real commits."""
    from tests.factories import TurnFactory

    TurnFactory.reset_sequence()  # its turns lie a minute apart: the hundredth test's must not be days older
    with django_db_blocker.unblock():
        yield
        for connection in connections.all(initialized_only=True):
            connection.close()
        empty_tables()
        if environment.IS_ON_REDIS:
            cache.clear()  # with the messages that lie there


@pytest.fixture(scope="session", autouse=True)
def plain_static_files() -> None:
    """Pages under the test client name their files plainly; what is served for real is collected (tests/service.py)."""
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": plain}


@pytest.fixture
def transactional_db(db: None) -> None:
    """pytest-django's name for what every test here has."""


@pytest.fixture
def tenant(db: None) -> Tenant:
    return Tenant.objects.create_tenant(slug="acme", name="Acme")


@pytest.fixture
def other_tenant(db: None) -> Tenant:
    return Tenant.objects.create_tenant(slug="globex", name="Globex")


@pytest.fixture
def member(tenant: Tenant) -> Callable[..., Membership]:
    """`member("admin", tenant=…, user__email=…)`: a member of `tenant` (an operator of acme with nothing said)."""
    from tests.factories import MembershipFactory

    def make(role: str = Role.OPERATOR, *, tenant: Tenant = tenant, **fields: Any) -> Membership:
        with tenant_scope(tenant):
            return MembershipFactory(role=role, **fields)

    return make


@pytest.fixture
def api(member: Callable[..., Membership]) -> Callable[..., Any]:
    """`api("read", "export:read", member=…)`: a client of the API with an admin's token of these scopes (all)."""
    from tests.api.client import Api
    from tests.factories import make_token

    def make(*scopes: str, member: Membership | None = None, maker: Callable[..., Membership] = member) -> Api:
        member = member or maker(Role.ADMIN)
        with tenant_scope(member.tenant_id):
            token, text = make_token(member, *scopes)
        return Api(text, token, member)

    return make
