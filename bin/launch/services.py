"""`make test` and `make bench`: a command among services that live as long as it does.

The command finds them in the environment: TEST_DATABASE_ADMIN_URL (an administrator of a PostgreSQL), TEST_REDIS_URL
and CHROMIUM, the last two unset where the machine has none. What is set already is used as it is. TEST_POSTGRES_BIN
names the folder of another PostgreSQL's programs to start instead of the wheel's.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from launch.errors import LaunchError
from launch.household import Household, Stopped
from launch.postgres import EmbeddedPostgres
from launch.redis import find_server, start_redis

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A suite must never meet what the caller's shell points at.
PRODUCT_VARIABLES = (
    "DATABASE_URL",
    "DATABASE_OWNER_URL",
    "DATABASE_JANITOR_URL",
    "DATABASE_LOOKUP_ROLE",
    "REDIS_URL",
    "SECRET_KEY",
    "APP_KEKS",
    "STATE_DIR",
    "STATIC_ROOT",
)
INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """`with-services COMMAND…`: gives the command's exit code."""
    if not arguments:
        print("usage: bin/with-services COMMAND [ARGUMENT…]", file=sys.stderr)
        return 2
    try:
        with Household(print) as household:
            try:
                return run_among_services(household, arguments)
            except Stopped:
                return INTERRUPTED
    except LaunchError as error:
        print(error, file=sys.stderr)
        return 1


def run_among_services(household: Household, command: Sequence[str]) -> int:
    """Run `command` in the foreground, so that it keeps the terminal."""
    process = subprocess.Popen(command, env=environment(household))
    household.at_end(lambda: end(process))
    return process.wait()


def environment(household: Household) -> dict[str, str]:
    """The environment of the command, with the services that it names started."""
    env = {name: value for name, value in os.environ.items() if name not in PRODUCT_VARIABLES}
    if not env.get("TEST_DATABASE_ADMIN_URL"):
        env["TEST_DATABASE_ADMIN_URL"] = env.get("DATABASE_ADMIN_URL") or private_postgres(household)
    if not env.get("TEST_REDIS_URL") and (program := find_server()):
        env["TEST_REDIS_URL"] = private_redis(household, program)
    if not env.get("CHROMIUM") and (browser := next(filter(None, map(shutil.which, BROWSERS)), None)):
        env["CHROMIUM"] = browser
    return env


def private_postgres(household: Household) -> str:
    programs = os.environ.get("TEST_POSTGRES_BIN")
    server = EmbeddedPostgres.passing(Path(programs) if programs else None)
    household.at_end(server.stop)
    return server.start()[0]


def private_redis(household: Household, program: str) -> str:
    folder = Path(tempfile.mkdtemp(prefix="quality-lab-"))
    household.at_end(lambda: shutil.rmtree(folder))
    child, url = start_redis(program, folder / "redis.log")
    household.at_end(child.stop)
    return url


def end(process: subprocess.Popen[bytes]) -> None:
    """Let the command end by itself: a Ctrl-C of the terminal has reached it too. Then ask, then insist."""
    for number, patience_s in ((None, 5), (signal.SIGINT, 10), (signal.SIGKILL, None)):
        if number and process.poll() is None:
            process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
