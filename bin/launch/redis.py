"""A private Redis or Valkey, when one of them is on PATH. It keeps nothing: a message is a hint, rows are the truth."""

import os
import secrets
import shutil
import socket
from pathlib import Path

from launch.errors import LaunchError
from launch.ports import free_port
from launch.processes import Child, spawn, tail, wait_until

SERVERS = ("redis-server", "valkey-server")
START_PATIENCE_S = 10


def find_server() -> str | None:
    return next(filter(None, map(shutil.which, SERVERS)), None)


def start_redis(program: str, log: Path) -> tuple[Child, str]:
    """Start `program` on a free port of 127.0.0.1; gives it and its URL.

    The password goes through stdin: a command line can be read by every user of the machine.
    """
    port, password = free_port(), secrets.token_urlsafe(24)
    settings = f'bind 127.0.0.1\nport {port}\nsave ""\nappendonly no\nrequirepass {password}\ndir {log.parent}\n'
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    child = spawn("redis", [program, "-"], log=log, env=environment, stdin=settings.encode())
    if not wait_until(lambda: child.has_ended or _listens(port), START_PATIENCE_S) or child.has_ended:
        child.stop()
        raise LaunchError(f"{program} does not start. Its last words:\n{tail(log)}\nSet REDIS_URL to use another.")
    return child, f"redis://:{password}@127.0.0.1:{port}/0"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
