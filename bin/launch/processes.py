"""One child process: start it in a group of its own, read its log, end it and whatever it left behind."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.account import Account, running_as

NUM_TAIL_LINES = 15
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True)
class Child:
    """A running program. `stop_signals` are tried in order, each with its patience in seconds; then comes SIGKILL."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    stop_signals: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10),)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self, *, at_once: bool = False) -> None:
        """End the program and its process group; returns when both are gone."""
        with contextlib.suppress(ProcessLookupError):
            for number, patience_s in () if at_once else self.stop_signals:
                if self.has_ended:
                    break
                self.process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def spawn(
    name: str,
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    account: Account | None = None,
    stop_signals: Sequence[tuple[signal.Signals, float]] = Child.stop_signals,
    stdin: bytes = b"",
) -> Child:
    """Start `command` in its own session, so that a Ctrl-C of the terminal reaches us alone and we end it in order.

    Output goes to the end of `log`. `stdin` must fit into a pipe (a few kilobytes). Call it from the main thread: on
    Linux the child also ends when the thread that started it does, so that even `kill -9` of us leaves no orphan.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_die_with_parent(stop_signals[0][0]),  # noqa: PLW1509  (we have no threads)
            **running_as(account),
        )
    if process.stdin:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(stdin)
    return Child(name, process, log, stop_signals)


def _die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """A function for the child to ask the kernel for `number` when its parent is gone; only Linux can."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)

    return ask


def tail(log: Path, num_lines: int = NUM_TAIL_LINES) -> str:
    """The last lines of a log, indented for a message."""
    with contextlib.suppress(FileNotFoundError):
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-num_lines:])
    return ""


def wait_until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.05) -> bool:
    """Ask `condition` until it holds; False when it did not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
