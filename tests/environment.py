"""Points the settings at this worker's own database before Django reads them (loaded with `-p`, see pyproject.toml).

`TEST_DATABASE_ADMIN_URL` is the DSN of an administrator on the server to test against; `make test` gives one. With
`TEST_BROKER=redis` the Redis of `TEST_REDIS_URL` is broker and cache, as `REDIS_URL` makes it one in the field.
"""

import hashlib
import os
import tempfile
from urllib.parse import urlsplit

ADMIN_URL = os.environ.get("TEST_DATABASE_ADMIN_URL", "")
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
PREFIX = "qlab_test_"
PASSWORD = "only-for-tests"  # the server is private to the run, or trusts its users anyway
DATABASE = f"{PREFIX}{hashlib.sha256(RUN.encode()).hexdigest()[:10]}_{WORKER}"

_parts = urlsplit(ADMIN_URL or "postgresql://nobody@127.0.0.1:1/none")
_server = f"{_parts.hostname}:{_parts.port or 5432}"


def dsn(role: str, database: str = DATABASE) -> str:
    return f"postgresql://{PREFIX}{role}:{PASSWORD}@{_server}/{database}"


os.environ.update(
    DATABASE_URL=dsn("app"),
    DATABASE_OWNER_URL=dsn("owner"),
    DATABASE_JANITOR_URL=dsn("janitor"),
    DATABASE_LOOKUP_ROLE=f"{PREFIX}lookup",
    DATABASE_POOL_SIZE="12",
    SECRET_KEY="tests need no secret, but Django wants fifty characters here",
    APP_KEKS="test:nOZCGhTdk4fXf0QWc1wBhXG3xZq8fJ8R0p2m5m3yYtE=",
    ALLOWED_HOSTS="testserver,localhost,127.0.0.1",
    STATE_DIR=tempfile.mkdtemp(prefix="qlab-test-state-"),
    LOG_LEVEL="WARNING",
)
os.environ.pop("REDIS_URL", None)
IS_ON_REDIS = os.environ.get("TEST_BROKER") == "redis"
if IS_ON_REDIS:  # one database of it for each process; they are emptied after each test
    _redis = urlsplit(os.environ["TEST_REDIS_URL"])
    _number = 1 + int(WORKER.removeprefix("gw")) % 15 if WORKER.startswith("gw") else 0
    os.environ["REDIS_URL"] = _redis._replace(path=f"/{_number}").geturl()
os.environ.pop("DEBUG", None)
os.environ.pop("SECURE", None)
