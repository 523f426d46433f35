"""What tests of the model client and the loop share: a scripted model behind real HTTP, and tools that keep count."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.events import Event
from engine.loop import TurnResult, run_turn
from engine.net import Guard, Policy
from engine.providers.behaviours import Behaviour
from engine.providers.openai import OpenAIModel
from engine.providers.retry import RetryPolicy
from engine.providers.scripted import ScriptedServer
from engine.providers.wire import Completion
from engine.recorder import MemoryRecorder
from engine.tools import Arguments, FunctionTool, Mode, Safety, Tool, ToolContext, ToolOutcome, succeeded

AT_ONCE = RetryPolicy(base_s=0.001, cap_s=0.002)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@dataclass
class Playing:
    """A scripted server and a client for it; `model()` speaks to it through the guard."""

    server: ScriptedServer
    guard: Guard
    _clients: list[Any] = field(default_factory=list)

    def model(self, name: str = "choose", **settings: Any) -> OpenAIModel:
        client = self.guard.client(self.server.base_url)
        self._clients.append(client)
        return OpenAIModel(self.server.base_url, name, client, **{"retry": AT_ONCE, "timeout_s": 5.0, **settings})

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        return [ask.body for ask in self.server.asked]


@asynccontextmanager
async def playing(*script: str | Completion | Behaviour) -> AsyncIterator[Playing]:
    async with ScriptedServer(script) as server:
        play = Playing(server, Guard(Policy.local()))
        try:
            yield play
        finally:
            for client in play._clients:
                await client.aclose()


def call(name: str, arguments: Mapping[str, Any] | str = "{}") -> tuple[str, str]:
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments)


def calls(*pairs: tuple[str, str], text: str = "") -> Completion:
    return Completion(text, tuple(pairs))


@dataclass
class Counted:
    """Makes tools and keeps what they were called with, in the order in which the calls began and ended."""

    begun: list[tuple[str, Arguments]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def tool(
        self,
        name: str = "get_weather",
        *,
        result: str | Exception | Callable[[Arguments, ToolContext], Awaitable[ToolOutcome]] = "21 degrees",
        takes_s: float = 0.0,
        parameters: Mapping[str, Any] = CITY,
        mode: Mode = Mode.AUTO,
        safety: Safety = Safety.SAFE,
    ) -> FunctionTool:
        async def execute(arguments: Arguments, context: ToolContext) -> ToolOutcome:
            self.begun.append((name, arguments))
            await asyncio.sleep(takes_s)
            if isinstance(result, Exception):
                raise result
            outcome = succeeded(result, context) if isinstance(result, str) else await result(arguments, context)
            self.ended.append(name)
            return outcome

        return FunctionTool(name, f"The {name} tool.", parameters, execute, mode, safety)


def client_tool(name: str = "ask_user", safety: Safety = Safety.SAFE) -> FunctionTool:
    return FunctionTool(name, "Asks the caller.", CITY, None, Mode.CLIENT, safety)


@dataclass
class Watched:
    """A finished turn with everything that it told and wrote down."""

    result: TurnResult
    events: list[dict[str, Any]]
    recorder: MemoryRecorder

    def states(self, call_id: str | None = None) -> list[str]:
        """The states that calls went through, the pieces of a call that is being written counted once."""
        told = [e["state"] for e in self.events if e["type"] == "tool_call" and call_id in (None, e["callId"])]
        return [state for at, state in enumerate(told) if state != "streaming" or told[at - 1 : at] != ["streaming"]]

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "assistant_delta")


async def watch(
    model: OpenAIModel, tools: Iterable[Tool], text: str = "What is the weather in Rome?", **options: Any
) -> Watched:
    events: list[dict[str, Any]] = []

    async def listen(event: Event) -> None:
        events.append(dict(event.as_dict()))

    recorder = options.pop("recorder", None) or MemoryRecorder()
    messages = options.pop("messages", [{"role": "user", "content": text}])
    result = await run_turn(model, tools, messages, recorder=recorder, on_event=listen, **options)
    return Watched(result, events, recorder)
