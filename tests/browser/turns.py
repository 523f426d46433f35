"""Turns for a browser to watch: a scripted model, a tool server that counts, a real worker process behind the pages."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from engine.providers.scripted import ScriptedServer
from engine.providers.wire import Completion
from quality.models import Channel, Turn
from quality.turns.create import create_turn
from tenants import endpoints, tools
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.service import ROOT, Service
from tests.turns.servers import ToolServer, scripted_model

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "A city."}, "loud": {"type": "boolean"}},
    "required": ["city"],
    "additionalProperties": False,
}


class TurnHouse:
    """A tenant's agent: `model(script)` answers by the names of the scripted server, `send_note` waits for approval."""

    def __init__(self, model: ScriptedServer, tool_server: ToolServer) -> None:
        self.server, self.tools = model, tool_server
        self.tenant: Tenant
        self.admin: Membership

    def model(self, script: str) -> None:
        with tenant_scope(self.tenant):
            data = endpoints.EndpointData(label=f"m{len(script)}", base_url=self.server.base_url, model=script)
            endpoints.save_endpoint(data, actor=self.admin.user)

    def replies(self, *completions: Completion) -> None:
        """What the model says next, in place of what its script would."""
        self.server._script.extend(completions)

    def tool(
        self, name: str = "send_note", mode: str = "approve", safety: str = "unsafe", path: str = "/notes"
    ) -> None:
        item = {
            "name": name,
            "description": f"Does {name}.",
            "method": "POST",
            "url": f"{self.tools.url}{path}",
            "parameters": CITY,
            "mode": mode,
            "safety": safety,
        }
        with tenant_scope(self.tenant):
            tools.save_tool(item, actor=self.admin.user)

    def turn(self, text: str = "Weather in Rome?", **fields: Any) -> Turn:
        with tenant_scope(self.tenant):
            return create_turn(text=text, channel=Channel.API, **fields)


@pytest.fixture(scope="package")
def turn_servers() -> Iterator[tuple[ScriptedServer, ToolServer]]:
    with scripted_model() as model, ToolServer().running() as tool_server:
        yield model, tool_server


@pytest.fixture(scope="package")
def turn_worker(
    live_service: Service, turn_servers: tuple[ScriptedServer, ToolServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A worker of the queue `turns`, as `make run` starts it, which may call the servers on loopback."""
    log = tmp_path_factory.mktemp("turns") / "worker.log"
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_ALLOW_ASYNC_UNSAFE"}
    env |= {"OUTBOUND_ALLOW_CIDRS": "127.0.0.1/32", "OUTBOUND_ALLOW_PORTS": ports(turn_servers), "TURN_SWEEP_S": "0.5"}
    command = [sys.executable, "-m", "celery", "-A", "quality.celery:app", "worker", "-Q", "turns", "--pool=threads",
               "--concurrency=2", "--hostname=turns@browser", "--loglevel=INFO", "--without-mingle",
               "--without-gossip", "--without-heartbeat"]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=env)
    yield log
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def ports(servers: tuple[ScriptedServer, ToolServer]) -> str:
    return ",".join(address.split(":")[2].split("/")[0] for address in (servers[0].base_url, servers[1].url))


@pytest.fixture
def house(
    turn_worker: Path,
    turn_servers: tuple[ScriptedServer, ToolServer],
    tenant: Tenant,
    member: Callable[..., Membership],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TurnHouse]:
    monkeypatch.setattr(settings, "OUTBOUND_ALLOW_CIDRS", ["127.0.0.1/32"], raising=False)
    allowed = [int(port) for port in ports(turn_servers).split(",")]
    monkeypatch.setattr(settings, "OUTBOUND_ALLOW_PORTS", allowed, raising=False)
    model, tool_server = turn_servers
    model.asked.clear()
    model._script.clear()
    tool_server.asked.clear()
    tool_server.hold.set()
    house = TurnHouse(model, tool_server)
    house.tenant, house.admin = tenant, member("admin")
    yield house
    tool_server.hold.set()
