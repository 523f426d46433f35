"""The gateway as clients meet it: a running server, a scripted model behind it, tenants with tokens of their own."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from django.db import OperationalError, connection

from engine.providers.scripted import ScriptedServer
from quality.models import GatewayDay, ToolCall, Turn
from tenants import endpoints
from tenants.models import ApiToken, Membership, ModelEndpoint, Role, Tenant
from tenants.scope import tenant_scope
from tests.factories import make_token
from tests.service import Service, running_service
from tests.turns.servers import scripted_model

PATIENCE_S = 40.0
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
NOTE = {
    "type": "function",
    "function": {
        "name": "send_note",
        "description": "Sends a note.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}
TOOLS = [WEATHER, NOTE]
QUESTION = {"role": "user", "content": "What is the weather in Rome?"}
UPSTREAM_KEY = "sk-upstream-canary-0815"


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedServer]:
    with scripted_model() as server:
        yield server


class RawServer:
    """Says the bytes of `answer` to whatever it is asked, then closes; with `holds` it waits until the other side does,
    and `was_left` is set."""

    def __init__(self) -> None:
        self.answer = b""
        self.holds = False
        self.was_asked, self.was_left = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._listener.settimeout(0.2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def says(self, answer: bytes, *, holds: bool = False) -> None:
        self.answer, self.holds = answer, holds
        self.was_asked.clear()
        self.was_left.clear()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            with suppress(OSError):
                connection, _ = self._listener.accept()
                with connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        connection.recv(1 << 20)
        self.was_asked.set()
        connection.sendall(self.answer)
        while self.holds and not self._stop.is_set():
            if not connection.recv(65536):
                self.was_left.set()
                return


@pytest.fixture(scope="session")
def raw() -> Iterator[RawServer]:
    server = RawServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gateway(
    django_db_setup: None,
    collected_static: None,
    model: ScriptedServer,
    raw: RawServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """One ASGI server for the whole run, which may call the scripted model."""
    changed = {
        "OUTBOUND_ALLOW_CIDRS": "127.0.0.1/32",
        "OUTBOUND_ALLOW_PORTS": f"{port_of(model.base_url)},{raw.port},9",
        "MODEL_TIMEOUT_S": "5",
        "GATEWAY_MAX_BYTES": "200000",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setenv(name, value)
        with running_service(tmp_path_factory.mktemp("gateway")) as service:
            yield service


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/", maxsplit=1)[0])


@dataclass
class Lab:
    """One tenant at the gateway."""

    service: Service
    model: ScriptedServer
    member: Membership
    token: ApiToken
    text: str

    @property
    def tenant_id(self) -> int:
        return self.member.tenant_id

    @property
    def url(self) -> str:
        return f"{self.service.url}/v1"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.text}"}

    def sdk(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(**{"base_url": self.url, "api_key": self.text, "max_retries": 0} | options)

    def endpoint(self, label: str = "main", **fields: Any) -> ModelEndpoint:
        """A model of the tenant; by default the scripted one, nothing repaired. It is saved past the check of its
        address, as if it stood there from a time when the operator allowed more."""
        off = {"repairs_text_calls": False, "asks_again_when_empty": False}
        base_url = fields.pop("base_url", self.model.base_url)
        with tenant_scope(self.tenant_id):
            data = endpoints.EndpointData(
                **{"label": label, "base_url": "https://llm.example.com/v1", "model": "plain_text", **off, **fields}
            )
            saved = endpoints.save_endpoint(data, actor=self.member.user)
            ModelEndpoint.objects.filter(pk=saved.pk).update(base_url=base_url)
        return saved

    def post(
        self, script: str, body: dict[str, Any] | None = None, *, timeout: float = 30, **headers: str
    ) -> httpx.Response:
        return httpx.post(timeout=timeout, **self._request(script, body, headers))

    @contextmanager
    def stream(self, script: str, body: dict[str, Any] | None = None, **headers: str) -> Iterator[httpx.Response]:
        asked = self._request(script, {"stream": True, **(body or {})}, headers)
        with httpx.stream("POST", timeout=30, **asked) as response:
            yield response

    def _request(self, script: str, body: dict[str, Any] | None, headers: dict[str, str]) -> dict[str, Any]:
        named = {f"X-QLab-{name.title().replace('_', '-')}": value for name, value in headers.items()}
        return {
            "url": f"{self.url}/chat/completions",
            "json": {"model": "main", "messages": [QUESTION], "tools": TOOLS, **(body or {})},
            "headers": {**self.headers, "X-Script": script, **named},
        }

    def turns(self, number: int = 1) -> list[Turn]:
        """The turns that were recorded, oldest first, once there are so many."""
        return self._until(lambda: list(Turn.objects.order_by("started_at", "pk")), number)

    def calls(self, number: int = 1) -> list[ToolCall]:
        return self._until(
            lambda: list(ToolCall.objects.order_by("turn__started_at", "turn", "cycle", "index")), number
        )

    def days(self, is_so: Callable[[GatewayDay], bool]) -> GatewayDay:
        """The numbers of today, once they are so."""
        return self._until(lambda: [day for day in GatewayDay.objects.all() if is_so(day)], 1)[0]

    def settled(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so, asked in the tenant's scope."""
        self._until(lambda: [True] if is_so() else [], 1)

    def _until(self, read: Callable[[], list[Any]], number: int) -> list[Any]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with tenant_scope(self.tenant_id):
                    found = read()
            except OperationalError:  # after a while without the database our own pool, too, has to come back
                connection.close()
                found = []
            if len(found) >= number:
                assert len(found) == number or number == 0, f"{len(found)} instead of {number}: {found}"
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {number}; {self.service.log.read_text()[-3000:]}"
            time.sleep(0.05)


@pytest.fixture
def at(gateway: Service, model: ScriptedServer, member: Callable[..., Membership]) -> Callable[..., Lab]:
    """`at(tenant)`: that tenant at the gateway, with an admin's token of scope gateway."""

    def make(tenant: Tenant, *scopes: str, rate: int | None = None) -> Lab:
        maker = member(Role.ADMIN, tenant=tenant)
        with tenant_scope(tenant):
            token, text = make_token(maker, *(scopes or ("gateway",)))
            if rate is not None:
                ApiToken.objects.filter(pk=token.pk).update(rate_per_minute=rate)
        model.asked.clear()
        return Lab(gateway, model, maker, token, text)

    return make


@pytest.fixture
def lab(at: Callable[..., Lab], tenant: Tenant) -> Lab:
    lab = at(tenant)
    lab.endpoint()
    return lab
