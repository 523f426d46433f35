"""The service does not start through a role that row security does not bind (T2)."""

import os
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from tests import environment

STARTS = {
    "web": "import quality.asgi",
    "web (WSGI)": "import quality.wsgi",
    "command": "import django; django.setup(); from tenants.models import User; User.objects.count()",
    "worker": "import django; django.setup(); from quality.celery import refuse_unsafe_role; refuse_unsafe_role()",
}


def start(code: str, dsn: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"DATABASE_URL": dsn, "DJANGO_SETTINGS_MODULE": "quality.settings"}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def superuser_dsn(db) -> str:
    parts = urlsplit(environment.ADMIN_URL)
    return parts._replace(path=f"/{environment.DATABASE}").geturl()


@pytest.mark.parametrize("what", STARTS)
def test_a_superuser_is_refused(superuser_dsn, what):
    done = start(STARTS[what], superuser_dsn)
    assert done.returncode != 0
    assert "is a superuser" in done.stderr
    assert "setup_database" in done.stderr


def test_the_owner_is_refused(db):
    done = start(STARTS["web"], environment.dsn("owner"))
    assert done.returncode != 0
    assert "owns tenant tables" in done.stderr


@pytest.mark.parametrize("what", STARTS)
def test_the_applications_role_starts(db, what):
    done = start(STARTS[what], environment.dsn("app"))
    assert done.returncode == 0, done.stderr


def test_a_database_that_is_down_does_not_stop_the_web_from_starting(db):
    done = start(STARTS["web"], "postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 0, done.stderr
    assert "does not answer" in done.stderr
