"""Turns for real: a scripted model and a counting tool server over HTTP, and workers on the test's own database."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.providers.scripted import ScriptedServer
from quality import tasks
from quality.models import Channel, Turn, TurnRun, TurnState
from quality.turns import setup
from quality.turns.create import create_turn
from quality.turns.worker import Worker
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.turns.servers import ToolServer, scripted_model

PATIENCE_S = 20.0
RESTING = {TurnState.AWAITING, TurnState.DONE, TurnState.FAILED, TurnState.CANCELLED}


@pytest.fixture
def tool_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ToolServer]:
    with ToolServer().running() as server:
        monkeypatch.setenv("TEST_TOOL_URL", server.url)
        yield server


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with scripted_model() as server:
        monkeypatch.setenv("TEST_MODEL_URL", server.base_url)
        yield server


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Messages that would have gone to the broker."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(tasks, "publish_aside", lambda _task, *args: sent.append(args))
    return sent


@pytest.fixture
def lab(
    tenant: Tenant, tool_server: ToolServer, model: ScriptedServer, settings: Any, hints: list[tuple[int, int]]
) -> Iterator["Lab"]:
    settings.TURN_SETUP = "tests.turns.setups.from_variables"
    settings.TURN_LEASE_S, settings.TURN_SWEEP_S = 3.0, 0.1
    setup.setup_source.cache_clear()
    lab = Lab(tenant, tool_server, model)
    yield lab
    lab.stop()
    setup.setup_source.cache_clear()


class Lab:
    """Turns of one tenant, and workers to run them."""

    def __init__(self, tenant: Tenant, tools: ToolServer, model: ScriptedServer) -> None:
        self.tenant, self.tools, self.model = tenant, tools, model
        self._workers: list[Worker] = []

    def worker(self) -> Worker:
        worker = Worker()
        worker.start()
        self._workers.append(worker)
        return worker

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop(0.2)

    def turn(self, script: str = "one_call,plain_text", tools: str = "safe", **fields: Any) -> Turn:
        with tenant_scope(fields.pop("tenant", self.tenant)):
            return create_turn(
                **{
                    "text": "Weather in Rome?",
                    "channel": Channel.API,
                    "model_label": script,
                    "style_id": tools,
                    **fields,
                }
            )

    def run_of(self, turn: Turn) -> TurnRun:
        with tenant_scope(turn.tenant_id):
            run: TurnRun = TurnRun.objects.select_related("turn").get(turn=turn)
            return run

    def rests(self, turn: Turn, within_s: float = PATIENCE_S) -> TurnRun:
        """The turn's run, once nobody works on it."""
        return self.until(turn, lambda run: run.state in RESTING, within_s)

    def until(self, turn: Turn, is_so: Callable[[TurnRun], bool], within_s: float = PATIENCE_S) -> TurnRun:
        deadline = time.monotonic() + within_s
        while not is_so(run := self.run_of(turn)):
            assert time.monotonic() < deadline, f"still {run.state} (attempt {run.attempt}): {run.error}"
            time.sleep(0.03)
        return run


def eventually(is_so: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.03)
