"""The crash suite: `make crash`. Bounded: each test waits for its own turns only."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenants import endpoints, styles, tools
from tenants.models import Membership, Role
from tenants.scope import tenant_scope
from tests.crash.house import OWN_MODEL, Broker, WorkerProcess, tally
from tests.service import Service, running_service
from tests.settings.http_tools import definition
from tests.turns.conftest import Lab, hints, lab, model, tool_server
from tests.turns.setups import CITY

__all__ = ["hints", "lab", "model", "tool_server"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes: its part of the report
        session.config.workeroutput["crash_tally"] = asdict(tally)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    tally.add(getattr(node, "workeroutput", {}).get("crash_tally", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if tally.faults:
        terminalreporter.write_line(
            f"{tally.faults} faults tried, {tally.turns} turns run, {tally.lost} lost, {tally.doubled} calls doubled"
        )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """`start(crash_at="call_begun")`: a worker process, killed at the end whatever happens."""
    started: list[WorkerProcess] = []

    def begin(**options: Any) -> WorkerProcess:
        started.append(WorkerProcess(tmp_path, **options))
        return started[-1]

    yield begin
    for worker in started:
        worker.kill()


@pytest.fixture
def broker(redis_url: str, tmp_path: Path) -> Iterator[Broker]:
    """`redis_url` is asked for its skip only: this one is stopped."""
    broker = Broker(tmp_path)
    try:
        yield broker.start()
    finally:
        broker.stop()


@pytest.fixture
def own_settings(
    lab: Lab, member: Callable[..., Membership], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The tenant's model, tools and styles as its own settings say, in place of test variables: with the model
    OWN_MODEL and the styles `safe` and `unsafe`. Gives the variables of a worker that reads them."""
    urls = {"model": os.environ["TEST_MODEL_URL"], "tools": os.environ["TEST_TOOL_URL"]}
    settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
    settings.OUTBOUND_ALLOW_PORTS = [urlsplit(url).port for url in urls.values()]
    by = member(Role.ADMIN).user
    with tenant_scope(lab.tenant):
        script = "one_call,plain_text"
        endpoint = endpoints.EndpointData(label=OWN_MODEL, base_url=urls["model"], model=script, key="sk-test-1234")
        endpoints.save_endpoint(endpoint, actor=by)
        for style_id, name, method, path in (
            ("safe", "get_weather", "GET", "weather"),
            ("unsafe", "send_note", "POST", "notes"),
        ):
            tool = definition(name=name, method=method, url=f"{urls['tools']}/{path}", parameters=CITY)
            tools.save_tool(tool, actor=by)
            styles.save_skill(name=style_id, description="", tools=[name], actor=by)
            text = styles.StyleText("You help.", skills=(style_id,))
            styles.save_style(style_id=style_id, name=style_id, text=text, actor=by)
    allowed = {
        "OUTBOUND_ALLOW_CIDRS": "127.0.0.1/32",
        "OUTBOUND_ALLOW_PORTS": ",".join(map(str, settings.OUTBOUND_ALLOW_PORTS)),
    }
    for variable, value in allowed.items():
        monkeypatch.setenv(variable, value)
    return {"TURN_SETUP": "quality.turns.resolver.from_settings"}


@pytest.fixture
def web(
    lab: Lab, broker: Broker, collected_static: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """A web process whose broker and cache are the test's Redis. Tenants' settings come before it."""
    monkeypatch.setenv("REDIS_URL", broker.url)
    with running_service(tmp_path) as service:
        yield service
