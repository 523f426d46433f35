"""All children end together, in order, and none is left: with small stand-ins for the real programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(__file__).resolve().parents[2] / "bin"

# A child that writes down when it ends, and has a child of its own that ignores the polite signal.
CHILD = """
import signal, subprocess, sys, time
name, diary = sys.argv[1:3]
grandchild = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"]
)
def end(*_):
    open(diary, "a").write(f"{name} ended\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(diary, "a").write(f"{name} started {grandchild.pid}\\n")
time.sleep(60)
"""
PARENT = """
import os, sys, time
from pathlib import Path
from launch.errors import LaunchError
from launch.household import Household, Stopped
diary, folder, extra = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
with Household(print) as household:
    def start(name, code, *arguments):
        command = [sys.executable, "-c", code, *arguments]
        household.start(name, command, log=folder / f"{name}.log", env=os.environ, cwd=folder)
    try:
        for name in ("postgres", "worker", "web"):
            start(name, Path(folder / "child.py").read_text(), name, diary)
        household.wait_for(lambda: Path(diary).read_text().count("started") == 3, 20, "they did not start")
        if extra:
            start("doomed", extra)
        print("all started", flush=True)
        household.watch()
    except Stopped:
        print("stopped", flush=True)
    except LaunchError as error:
        sys.exit(str(error))
"""


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "diary").touch()
    return tmp_path / "diary"


def start_household(diary: Path, extra: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, str(diary), str(diary.parent), extra],
        env={**os.environ, "PYTHONPATH": str(BIN)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_start(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout
    assert parent.stdout.readline() == "all started\n"


def grandchildren(diary: Path) -> list[int]:
    return [int(line.split()[2]) for line in diary.read_text().splitlines() if "started" in line]


def is_alive(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def ended(diary: Path) -> list[str]:
    return [line.split()[0] for line in diary.read_text().splitlines() if "ended" in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_in_reverse_order_and_leaves_no_orphan(diary, number):
    parent = start_household(diary)
    wait_for_start(parent)
    parent.send_signal(number)
    said, errors = parent.communicate(timeout=30)
    assert parent.returncode == 0, errors
    assert said == "stopped\n"
    assert ended(diary) == ["web", "worker", "postgres"]
    assert not any(map(is_alive, grandchildren(diary)))


def test_a_child_that_dies_is_told_with_its_last_words_and_ends_all(diary):
    parent = start_household(diary, "print('the disk is full'); raise SystemExit(7)")
    _, errors = parent.communicate(timeout=30)
    assert parent.returncode == 1
    assert "doomed ended with code 7" in errors
    assert "the disk is full" in errors
    assert ended(diary) == ["web", "worker", "postgres"]
    assert not any(map(is_alive, grandchildren(diary)))


def test_a_child_killed_by_a_signal_is_told_by_the_name_of_it(diary):
    parent = start_household(diary, "import os; os.kill(os.getpid(), 9)")
    _, errors = parent.communicate(timeout=30)
    assert "doomed ended by SIGKILL" in errors


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells children of their parent's end")
def test_children_end_even_when_the_parent_is_killed(diary):
    parent = start_household(diary)
    wait_for_start(parent)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while len(ended(diary)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(ended(diary)) == ["postgres", "web", "worker"]
    for pid in grandchildren(diary):  # stand-ins that ignore signals, nobody else's to sweep
        os.kill(pid, signal.SIGKILL)
