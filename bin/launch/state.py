"""The state folder (`.state/`, or STATE_DIR): what one installation keeps between two starts. Mode 0700."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from launch.errors import LaunchError


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read. It is never seen half-written or with another mode."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


class State:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs = self.folder / "logs"
            self.logs.mkdir(exist_ok=True)
        except OSError as error:
            raise LaunchError(f"STATE_DIR={folder}: {error.strerror}. Name a folder that you may write to.") from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One instance per state folder: two would share a database and a broker."""
        with (self.folder / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                raise LaunchError(
                    f"Quality Lab already runs from {self.folder} (process {file.read().strip() or '?'}). "
                    "Stop it first, or start a second one with its own folder: STATE_DIR=… make run"
                ) from error
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield
            file.truncate(0)

    def secret(self, name: str, make: Callable[[], str] = lambda: secrets.token_urlsafe(48)) -> str:
        """A random secret (of 50 or more characters, if nothing else is said), made once and kept in a file that only
        we can read."""
        path = self.folder / name
        if not path.exists():
            write_private(path, make())
        return path.read_text().strip()

    def new_log(self, name: str) -> Path:
        """An empty log; the one of the start before is kept beside it as `<name>.log.1`."""
        log = self.logs / f"{name}.log"
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        log.touch(mode=0o600)
        return log

    def read_environment(self, name: str) -> dict[str, str]:
        """NAME=value lines of a file of this folder; empty when there is none."""
        with contextlib.suppress(FileNotFoundError):
            return parse_environment((self.folder / name).read_text())
        return {}


def parse_environment(text: str) -> dict[str, str]:
    """The NAME=value lines of `text`; other lines are left out."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name: value for name, value in pairs if name.isidentifier() and name.isupper()}
