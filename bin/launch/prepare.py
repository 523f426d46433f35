"""What has to be true before the product serves: roles, migrations, demo data, static files.

Each takes a Django process of a second or more, so what a start before has done for the same sources and the same data
is not done again.
"""

import base64
import hashlib
import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from launch.household import Household, Step
from launch.postgres import EmbeddedPostgres
from launch.state import State, parse_environment, write_private

SOURCES = ("manage.py", "uv.lock", "quality", "tenants", "engine")
STATIC_SOURCES = ("uv.lock", "static")
DATABASE_FILE = "database.env"
STAMP = "prepared"


@dataclass(frozen=True)
class Site:
    """The checkout, its state folder, and the environment of every command that runs in it, which grows on the way."""

    root: Path
    state: State
    env: dict[str, str]

    def manage(self, household: Household, *arguments: str, env: Mapping[str, str] | None = None) -> Step:
        command = [sys.executable, "manage.py", *arguments]
        return Step(household, command, env={**self.env, **(env or {})}, cwd=self.root)


def fingerprint(root: Path, names: Iterable[str], *facts: object) -> str:
    """Changes when a file below `names` is added, removed or written, or when one of `facts` does."""
    digest = hashlib.sha256(repr(facts).encode())
    for name in names:
        top = root / name
        files = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                status = path.stat()
                digest.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def collect_static(site: Site, household: Household) -> Step | None:
    """Start to gather static files, or None when they are as a start before left them."""
    static_root = Path(site.env.get("STATIC_ROOT") or site.state.folder / "static")
    wanted = fingerprint(site.root, STATIC_SOURCES)
    stamp = static_root / f".{STAMP}"
    if stamp.exists() and stamp.read_text() == wanted:
        return None

    def done() -> None:
        stamp.write_text(wanted)

    step = site.manage(household, "collectstatic", "--noinput", "--verbosity=0")
    step.when_done = done
    return step


def prepare_embedded(site: Site, household: Household, server: EmbeddedPostgres, admin_url: str) -> dict[str, str]:
    """Roles, schema and demo data in our own server; gives the product's DATABASE_* variables."""
    made = (server.data / "PG_VERSION").stat()
    wanted = fingerprint(site.root, SOURCES, server.data, made.st_ino, made.st_mtime_ns)
    stamp = site.state.folder / STAMP
    kept = site.state.read_environment(DATABASE_FILE)
    if kept and stamp.exists() and stamp.read_text() == wanted:
        return keep(site, moved_to(kept, urlsplit(admin_url).port))
    household.tell("Preparing the database")
    stamp.unlink(missing_ok=True)
    # The password goes through the environment: a command line can be read by every user of the machine.
    step = site.manage(
        household,
        "setup_database",
        "--print-env",
        f"--admin-url={server.dsn(urlsplit(admin_url).port or 0, with_password=False)}",
        env={"PGPASSWORD": server.password},
    )
    variables = keep(site, parse_environment(step.output()))
    migrate(site, household, variables)
    write_private(stamp, wanted)
    return variables


def keep(site: Site, variables: dict[str, str]) -> dict[str, str]:
    """Write the DSNs down as they are now: `bin/manage` reads them there, and so does the next start."""
    write_private(site.state.folder / DATABASE_FILE, "".join(f"{k}={v}\n" for k, v in variables.items()))
    return variables


def migrate(site: Site, household: Household, variables: Mapping[str, str]) -> None:
    """Bring the schema to this version and the demo tenant into being. Both are harmless to repeat."""
    site.manage(household, "migrate", "--database=owner", "--verbosity=0", env=variables).output()
    site.manage(household, "demo", env=variables).output()


def moved_to(variables: Mapping[str, str], port: int | None) -> dict[str, str]:
    """The same DSNs on another port: a private server takes a free one at each start."""

    def moved(value: str) -> str:
        parts = urlsplit(value)
        return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl() if parts.port else value

    return {name: moved(value) for name, value in variables.items()}


def base_environment(state: State) -> dict[str, str]:
    """The caller's environment with what the product cannot do without."""
    env = {**os.environ, "STATE_DIR": str(state.folder), "PYTHONUNBUFFERED": "1"}
    if not env.get("SECRET_KEY") and not env.get("SECRET_KEY_FILE"):
        env["SECRET_KEY"] = state.secret("secret_key")
    if not env.get("APP_KEKS") and not env.get("APP_KEKS_FILE"):
        env["APP_KEKS"] = state.secret("app_keks", new_kek)
    return env


def new_kek() -> str:
    """A key that seals tenants' secrets, in the form of APP_KEKS."""
    return f"k1:{base64.b64encode(secrets.token_bytes(32)).decode()}"
