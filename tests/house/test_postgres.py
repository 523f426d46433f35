"""The private PostgreSQL: real servers, as root and as an ordinary user alike."""

import os
import shutil
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from launch import account as accounts
from launch.account import Account
from launch.errors import LaunchError
from launch.postgres import EmbeddedPostgres
from launch.state import State

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="about what only root can do")


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


@pytest.fixture
def server(state: State, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedPostgres]:
    # As root, data go where everyone may pass; here that is a place which the test may sweep.
    monkeypatch.setattr(accounts, "KEEPING_PLACES", (Path("/tmp"),))
    server = EmbeddedPostgres.kept(state)
    yield server
    server.stop()
    if server.home.parent == Path("/tmp"):
        shutil.rmtree(server.home)


def connect(dsn: str) -> psycopg.Connection:
    return psycopg.connect(dsn, autocommit=True, connect_timeout=5)


def test_a_second_start_finds_the_data_of_the_first(server, state):
    dsn, _ = server.start()
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 'as it was' AS word")
    server.stop()
    again = EmbeddedPostgres.kept(state)
    dsn, _ = again.start()
    try:
        with connect(dsn) as connection:
            assert connection.execute("SELECT word FROM kept").fetchone() == ("as it was",)
    finally:
        again.stop()


def test_it_starts_again_right_after_a_crash_and_lost_nothing(server):
    dsn, child = server.start()
    with connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1")
    child.process.send_signal(signal.SIGKILL)  # its lock file stays behind, and for a while its process
    reaper = threading.Timer(1, child.process.wait)
    reaper.start()
    dsn, _ = server.start()
    reaper.join()
    with connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)


def test_a_server_left_behind_by_a_killed_launcher_is_taken_over(server, state):
    _, orphan = server.start()
    heir = EmbeddedPostgres.kept(state)
    heir_dsn, _ = heir.start()
    try:
        assert orphan.process.wait(10) == 0
        connect(heir_dsn).close()
    finally:
        heir.stop()


def test_it_listens_on_loopback_alone_and_wants_the_password(server):
    dsn, _ = server.start()
    with connect(dsn) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        assert connection.execute("SHOW unix_socket_directories").fetchone() == ("",)
        assert connection.execute("SHOW password_encryption").fetchone() == ("scram-sha-256",)
    with pytest.raises(psycopg.OperationalError, match="password"):
        connect(dsn.replace(server.password, "guess"))


def test_the_password_is_in_a_file_that_only_we_read(server, state):
    path = state.folder / "postgres_password"
    assert path.read_text() == server.password
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700


def test_words_of_other_scripts_fold_and_sort(server):
    dsn, _ = server.start()
    with connect(dsn) as connection:
        assert connection.execute("SELECT lower('ÄÖ ПРИВЕТ') = 'äö привет'").fetchone() == (True,)


def test_data_of_another_major_version_are_refused_and_kept(server):
    server.start()
    server.stop()
    version = server.data / "PG_VERSION"
    version.write_text("14\n")
    with pytest.raises(LaunchError, match=r"made by PostgreSQL 14.*pg_dump"):
        server.start()
    assert version.exists()


def test_half_a_data_folder_is_made_anew(server):
    (server.home / "data.draft" / "base").mkdir(parents=True)
    dsn, _ = server.start()
    connect(dsn).close()


def test_a_server_that_cannot_start_says_why(server):
    server.start()
    server.stop()
    with (server.data / "postgresql.conf").open("a") as file:
        file.write("\nno_such_setting = on\n")
    with pytest.raises(LaunchError, match=r"(?s)does not start.*no_such_setting"):
        server.start()


def test_a_passing_server_leaves_nothing_behind():
    server = EmbeddedPostgres.passing()
    dsn, child = server.start()
    with connect(dsn) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("off",)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 10
    assert child.has_ended
    assert not server.home.exists()


DEBIANS = sorted(Path("/usr/lib/postgresql").glob("1[5-7]/bin"))


@pytest.mark.skipif(not DEBIANS, reason="this machine has no programs of PostgreSQL 15 to 17")
def test_the_programs_of_an_older_version_serve_as_well():
    server = EmbeddedPostgres.passing(DEBIANS[0])
    try:
        dsn, _ = server.start()
        with connect(dsn) as connection:
            assert str(connection.info.server_version // 10_000) == DEBIANS[0].parent.name
            assert connection.execute("SELECT lower('ÄÖ ПРИВЕТ') = 'äö привет'").fetchone() == (True,)
    finally:
        server.stop()


def modes_up_from(folder: Path) -> dict[Path, int]:
    return {step: stat.S_IMODE(step.stat().st_mode) for step in (folder, *folder.parents)}


@only_root
def test_as_root_it_runs_without_rights_and_no_mode_of_a_parent_changes(server, state):
    package = Path(accounts.__file__).parent
    watched = [state.folder, server.home.parent, package, *map(Path, psycopg.__path__)]
    before = [modes_up_from(folder) for folder in watched]
    dsn, child = server.start()
    with connect(dsn) as connection:
        assert connection.execute("SHOW data_directory").fetchone() == (str(server.data),)
    assert child.process.poll() is None
    assert Path(f"/proc/{child.process.pid}").stat().st_uid != 0
    server.stop()
    assert [modes_up_from(folder) for folder in watched] == before


@only_root
def test_as_root_binaries_that_the_account_cannot_run_are_copied(server, tmp_path, monkeypatch):
    """A checkout in a home of mode 0700 is the common case."""
    monkeypatch.setattr(EmbeddedPostgres, "_runs", lambda self, program: False)
    dsn, child = server.start()
    connect(dsn).close()
    program = Path(f"/proc/{child.process.pid}/exe").resolve()
    assert server.home in program.parents


@only_root
def test_a_place_that_the_account_cannot_pass_is_not_taken(tmp_path):
    closed, opened = tmp_path / "closed", Path("/tmp")
    closed.mkdir(mode=0o700)
    nobody = accounts.service_account()
    assert isinstance(nobody, Account)
    folder = accounts.own_folder(nobody, (closed, opened))
    try:
        assert folder.parent == opened
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    finally:
        folder.rmdir()
    with pytest.raises(LaunchError, match="ordinary user, or set DATABASE_URL"):
        accounts.own_folder(nobody, (closed,))
