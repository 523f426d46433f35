"""The three agents of the demo: prompts and tools, in two versions each. Their texts are in data/agents.json."""

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jsonschema

DATA = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class Contract:
    """What the model of one agent was told in one version: the prompt and the tools."""

    style_id: str
    version: str
    system: str
    tools: list[dict[str, Any]]

    @property
    def prompt_version(self) -> str:
        return f"{self.style_id}@{self.version}"

    @cached_property
    def text(self) -> str:
        """The tools as JSON text, as a request carries them."""
        return json.dumps(self.tools, ensure_ascii=False)

    @cached_property
    def schemas(self) -> dict[str, dict[str, Any]]:
        return {tool["function"]["name"]: tool["function"]["parameters"] for tool in self.tools}

    @cached_property
    def _validators(self) -> dict[str, jsonschema.Draft202012Validator]:
        return {name: jsonschema.Draft202012Validator(schema) for name, schema in self.schemas.items()}

    def fault_in(self, tool: str, args: Any) -> str | None:
        """What a tool layer answers when the call breaks the contract; None if it may run."""
        if tool not in self.schemas:
            return f"There is no tool named {tool!r}. Offered: {', '.join(self.schemas)}."
        error = next(iter(self._validators[tool].iter_errors(args)), None)
        return None if error is None else f"{error.json_path}: {error.message}"


@cache
def contracts() -> dict[str, dict[str, Contract]]:
    """By style id, then by version."""
    agents = json.loads((DATA / "agents.json").read_text(encoding="utf-8"))
    return {
        style_id: {
            version: Contract(style_id, version, agent["system"][version], tools)
            for version, tools in agent["tools"].items()
        }
        for style_id, agent in agents.items()
    }


@cache
def phrases() -> dict[str, dict[str, Any]]:
    """By language: what people ask, what agents answer, and the words that fill both."""
    found: dict[str, dict[str, Any]] = json.loads((DATA / "phrases.json").read_text(encoding="utf-8"))
    return found
