"""All children of one start. They end together, in the reverse order of their start, and none outlives the rest."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from launch.errors import LaunchError
from launch.processes import Child, spawn, tail

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Someone asked us to end."""


class Household:
    """Use it as a context: leaving it, however that comes about, ends every child.

    Inside, SIGINT, SIGTERM and SIGHUP raise `Stopped`; a second one while children end makes that quick.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self._ends: list[Callable[[bool], None]] = []
        self._children: list[Child] = []
        self._is_ending = self._is_hurried = False
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._is_ending = True
        while self._ends:
            self._ends.pop()(self._is_hurried)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_ending:
            self._is_ending = True
            raise Stopped
        if not self._is_hurried:
            self.tell("Stopping at once")
        self._is_hurried = True

    def at_end(self, end: Callable[[], None]) -> None:
        """Call `end` on leaving. Say so before starting what it ends: a signal may come in between."""
        self._ends.append(lambda _: end())

    def heed(self, child: Child) -> None:
        """When `child` ends by itself, all end."""
        self._children.append(child)

    def adopt(self, child: Child) -> None:
        """Heed `child`, and end it with the rest."""
        self._ends.append(lambda hurried: child.stop(at_once=hurried))
        self.heed(child)

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path,
        stop_signals: Sequence[tuple[signal.Signals, float]] = Child.stop_signals,
    ) -> Child:
        child = spawn(name, command, log=log, env=env, cwd=cwd, stop_signals=stop_signals)
        self.adopt(child)
        return child

    def check(self) -> None:
        """Raises LaunchError when a child has ended by itself."""
        for child in self._children:
            if child.has_ended:
                status = child.process.returncode
                how = f"with code {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
                raise LaunchError(f"{child.name} ended {how}. The last lines of {child.log}:\n{tail(child.log)}")

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait until `condition` holds, while every child lives."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise LaunchError(f"{what} within {timeout_s:g} s.")
            time.sleep(0.05)

    def watch(self) -> None:
        """Stay until a child ends (LaunchError) or someone asks us to end (Stopped)."""
        while True:
            self.check()
            time.sleep(0.2)


class Step:
    """A short command that has to succeed. Several may run side by side: start all, then ask for their output."""

    def __init__(
        self, household: Household, command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path
    ) -> None:
        self.words = " ".join(str(part) for part in command[1:3])
        self.when_done: Callable[[], None] | None = None
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        household.at_end(self._end)

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def output(self) -> str:
        """What the command printed; raises LaunchError with its last lines when it failed."""
        text, _ = self.process.communicate()
        if self.process.returncode != 0:
            last = "\n".join(f"    {line}" for line in text.splitlines()[-15:])
            raise LaunchError(f"{self.words} failed with code {self.process.returncode}:\n{last}")
        if self.when_done:
            self.when_done()
        return text
