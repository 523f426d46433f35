"""Ports, the state folder, and what a second start may skip."""

import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from launch import ports, prepare
from launch.errors import LaunchError
from launch.redis import find_server, start_redis
from launch.run import names_of
from launch.state import State, parse_environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def taken() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_asked_for_and_taken_is_refused_with_a_way_out(taken):
    with pytest.raises(LaunchError, match=f"Port {taken} of 127.0.0.1 is taken.*PORT={taken + 1}"):
        ports.choose_port("127.0.0.1", taken)


def test_the_default_port_gives_way_to_the_next_free_one(monkeypatch, taken):
    monkeypatch.setattr(ports, "DEFAULT_PORT", taken)
    assert taken < ports.choose_port("127.0.0.1", None) < taken + ports.NUM_PORTS_TRIED


@pytest.mark.parametrize("host", ["192.0.2.7", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused_by_name(host):
    with pytest.raises(LaunchError, match=f"HOST={host}"):
        ports.choose_port(host, None)


def test_a_machine_open_to_others_is_known_by_its_names():
    names = names_of("0.0.0.0")
    assert socket.gethostname() in names
    assert names[-1] != "0.0.0.0"


def test_a_second_instance_on_one_state_folder_is_refused(tmp_path):
    code = f"from launch.run import *; State(Path({str(tmp_path)!r})).lock().__enter__()"
    with State(tmp_path).lock():
        second = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT / "bin")},
            capture_output=True,
            text=True,
            check=False,
        )
    assert second.returncode == 1
    assert f"already runs from {tmp_path} (process {os.getpid()})" in second.stderr
    with State(tmp_path).lock():
        pass


def test_secrets_are_made_once_and_are_private(tmp_path):
    state = State(tmp_path)
    first = state.secret("secret_key")
    assert len(first) >= 50
    assert State(tmp_path).secret("secret_key") == first
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_a_state_folder_that_cannot_be_made_is_told_by_name(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match=r"STATE_DIR=.*file/state"):
        State(tmp_path / "file" / "state")


def test_the_log_of_the_start_before_is_kept(tmp_path):
    state = State(tmp_path)
    state.new_log("web").write_text("before")
    assert state.new_log("web").read_text() == ""
    assert (state.logs / "web.log.1").read_text() == "before"


def test_a_kept_dsn_follows_the_server_to_its_new_port():
    kept = {"DATABASE_URL": "postgresql://app:p%40ss@127.0.0.1:1111/qlab", "DATABASE_LOOKUP_ROLE": "qlab_lookup"}
    assert prepare.moved_to(kept, 2222) == {
        "DATABASE_URL": "postgresql://app:p%40ss@127.0.0.1:2222/qlab",
        "DATABASE_LOOKUP_ROLE": "qlab_lookup",
    }


def test_variables_are_read_from_among_other_lines():
    text = "a warning = none of ours\nDATABASE_URL=postgresql://a:b=c@h/d\n\n# x"
    assert parse_environment(text) == {"DATABASE_URL": "postgresql://a:b=c@h/d"}


@pytest.mark.parametrize("change", ["write", "add", "remove", "fact"])
def test_any_change_of_the_sources_is_noticed(tmp_path, change):
    folder = tmp_path / "quality"
    folder.mkdir()
    (folder / "models.py").write_text("one")
    (folder / "views.py").write_text("one")
    before = prepare.fingerprint(tmp_path, ["quality"], "data 1")
    assert prepare.fingerprint(tmp_path, ["quality"], "data 1") == before
    if change == "write":
        (folder / "models.py").write_text("two!")
    elif change == "add":
        (folder / "urls.py").touch()
    elif change == "remove":
        (folder / "views.py").unlink()
    assert prepare.fingerprint(tmp_path, ["quality"], "data 2" if change == "fact" else "data 1") != before


@pytest.mark.redis
def test_a_private_redis_wants_its_password_and_ends(tmp_path):
    from redis import Redis
    from redis.exceptions import AuthenticationError, ConnectionError

    program = find_server()
    assert program
    child, url = start_redis(program, tmp_path / "redis.log")
    try:
        with Redis.from_url(url) as client:
            assert client.ping()
        with Redis.from_url(url.split("@")[1].join(["redis://", ""])) as stranger, pytest.raises(AuthenticationError):
            stranger.ping()
    finally:
        child.stop()
    with Redis.from_url(url) as client, pytest.raises(ConnectionError):
        client.ping()


def test_every_target_of_the_makefile_is_in_its_help():
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"run", "test", "lint", "bench", "help", "format", "clean", "check"} <= targets
    assert targets == set(re.findall(r"make (\w+)", shown))
