"""Tools that do not just run: the caller answers them, or a person approves each call first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.tools.base import Execute, FunctionTool, Mode, Safety, Tool


def client_tool(name: str, description: str, parameters: Mapping[str, Any]) -> FunctionTool:
    """A tool that the caller of the turn answers: its calls come back `pending`, or go to the caller's handler."""
    return FunctionTool(name, description, parameters, execute=None, mode=Mode.CLIENT)


@dataclass(frozen=True, slots=True)
class InMode:
    """Another tool, in the mode and safety that its tenant chose for it."""

    tool: Tool
    mode: Mode
    safety: Safety

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
    def execute(self) -> Execute | None:
        return self.tool.execute

    @property
    def placeholders(self) -> frozenset[str]:
        return getattr(self.tool, "placeholders", frozenset())


def in_mode(tool: Tool, mode: Mode, safety: Safety | None = None) -> Tool:
    """`tool` with the mode, and the safety if one is given, that apply instead of its own."""
    return InMode(tool, mode, safety or tool.safety)
