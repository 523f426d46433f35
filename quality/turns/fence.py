"""Keeps a worker that was stopped past its lease from sending what another may have sent meanwhile."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.tools import Arguments, Execute, Mode, Safety, Tool, ToolContext, ToolOutcome, told_in_json


@dataclass(frozen=True, slots=True)
class Fenced:
    """A tool that runs only while the turn is ours: asked at the last moment before it runs."""

    tool: Tool
    is_ours: Callable[[], Awaitable[bool]]

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.tool.parameters

    @property
    def mode(self) -> Mode:
        return self.tool.mode

    @property
    def safety(self) -> Safety:
        return self.tool.safety

    @property
    def placeholders(self) -> frozenset[str]:
        return getattr(self.tool, "placeholders", frozenset())

    @property
    def execute(self) -> Execute | None:
        return None if self.tool.execute is None else self._execute

    async def _execute(self, arguments: Arguments, context: ToolContext) -> ToolOutcome:
        assert self.tool.execute is not None
        if not await self.is_ours():  # the outcome is never written: the same loss refuses it
            return told_in_json("another worker has this turn now", context, error="lease_lost")
        return await self.tool.execute(arguments, context)
