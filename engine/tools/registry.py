"""The tools of one turn by name, and the one way to run a call: whatever goes wrong becomes text for the model."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from engine.errors import ToolError
from engine.schema import ArgumentSchema, compiled
from engine.tools.base import Arguments, Tool, ToolContext, ToolOutcome, failed, told_in_json

GRACE_S = 0.5  # a tool that keeps the deadline by itself ends with the better message


class Registry:
    """Tools with different names. Raises `ToolError` for a name taken twice and for parameters that are no schema."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, ArgumentSchema] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        if tool.name in self._tools:
            raise ToolError(f"two tools are called {tool.name!r}; rename one of them")
        try:
            self._schemas[tool.name] = compiled(tool.parameters)
        except ToolError as exc:
            raise ToolError(f"parameters of tool {tool.name!r}: {exc}") from exc
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def offers(self) -> list[dict[str, Any]]:
        """The `tools` of a chat request."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in self
        ]

    def check(self, name: str, arguments: Any, context: ToolContext) -> ToolOutcome | None:
        """Why this call may not run, as its outcome; None if it may."""
        if name not in self._tools:
            return unknown_tool(name, context)
        fault = self._schemas[name].fault(arguments)
        return invalid_arguments(name, fault.path, fault.reason, context) if fault else None

    async def run(self, name: str, arguments: Any, context: ToolContext) -> ToolOutcome:
        """Check and run one call within its deadline; its failures, too, are outcomes.

        Raises `ToolError` for a tool that the caller answers: those are asked by their mode, not run.
        """
        if outcome := self.check(name, arguments, context):
            return outcome
        tool = self._tools[name]
        if tool.execute is None:
            raise ToolError(f"tool {name!r} is answered by the caller; ask its mode before running it")
        try:
            async with asyncio.timeout(context.time_left_s() + GRACE_S):
                return await tool.execute(self.passed_on(tool, arguments), context)
        except TimeoutError:
            return told_in_json("the tool did not answer in time", context, error="timed_out")
        except Exception as exc:
            return told_in_json(f"{type(exc).__name__}: {exc}", context, error="tool_crashed")

    def passed_on(self, tool: Tool, arguments: Mapping[str, Any]) -> Arguments:
        """The arguments that a tool gets: those that it declares, in its schema or in its placeholders."""
        return self._schemas[tool.name].known(arguments, getattr(tool, "placeholders", frozenset()))


def unknown_tool(name: str, context: ToolContext) -> ToolOutcome:
    return failed(f"Error: unknown tool '{name}'", context, error="unknown_tool")


def invalid_arguments(name: str, path: str, reason: str, context: ToolContext) -> ToolOutcome:
    return failed(f"Error: invalid arguments for tool '{name}': {path}: {reason}", context, error="invalid_arguments")
