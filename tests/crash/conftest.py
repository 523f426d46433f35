"""The crash suite: `make crash`. Bounded: each test waits for its own turns only."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.house import WorkerProcess
from tests.turns.conftest import hints, lab, model, tool_server

__all__ = ["hints", "lab", "model", "tool_server"]


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
