"""`make run` as a newcomer meets it: the whole product, from nothing to a page, twice."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from launch.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
# Nothing of the suite's own surroundings: an empty environment is what `make run` is made for.
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    pointer = tmp_path / "state/postgres/home"  # as root the data lie elsewhere
    if pointer.exists():
        shutil.rmtree(pointer.read_text().strip())


def run(state_dir: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "bin/launcher.py", "run", *options],
        cwd=ROOT,
        env={**{k: os.environ[k] for k in KEPT if k in os.environ}, "STATE_DIR": str(state_dir)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("Ready"):
            return said
    pytest.fail(f"it ended:\n{said}")


def end(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    return said


@pytest.mark.slow
def test_it_serves_stops_and_finds_its_data_again(state_dir):
    port = free_port()
    first = run(state_dir, f"--port={port}")
    try:
        said = read_until_ready(first)
        assert "Preparing the database" in said
        link = re.search(r"Sign in +(\S+)", said)
        assert link
        with urllib.request.urlopen(link[1]) as page:
            assert page.status == 200
        second = run(state_dir)
        said, _ = second.communicate(timeout=20)
        assert second.returncode == 1
        assert f"already runs from {state_dir}" in said
    finally:
        said = end(first)
    assert (first.returncode, said) == (0, "Stopping\n")
    dsn = re.search(r"^DATABASE_URL=(.*)", (state_dir / "database.env").read_text(), re.MULTILINE)
    assert dsn
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(dsn[1])

    again = run(state_dir, f"--port={port}")  # the port is free again
    try:
        said = read_until_ready(again)
        assert "Preparing" not in said
        assert f"http://127.0.0.1:{port}/signin/once/" in said  # so the demo's admin is still there
        env = {"PATH": os.environ["PATH"], "STATE_DIR": str(state_dir)}
        command = subprocess.run(["bin/manage", "signin_link"], cwd=ROOT, env=env, capture_output=True, text=True)
        assert command.stdout.startswith("/signin/once/"), command.stderr  # though the server moved to another port
    finally:
        end(again)
