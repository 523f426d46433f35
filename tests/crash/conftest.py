"""The crash suite: `make crash`. Bounded: each test waits for its own turns only."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.house import WorkerProcess, tally
from tests.turns.conftest import hints, lab, model, tool_server

__all__ = ["hints", "lab", "model", "tool_server"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if tally.faults:
        terminalreporter.write_line(
            f"{tally.faults} faults tried, {tally.turns} turns run, {tally.lost} lost, {tally.doubled} calls doubled"
        )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """`start(crash_at="call_begun")`: a worker process, killed at the end whatever happens."""
    started: list[WorkerProcess] = []

    def begin(**options: str) -> WorkerProcess:
        started.append(WorkerProcess(tmp_path, **options))
        return started[-1]

    yield begin
    for worker in started:
        worker.kill()
