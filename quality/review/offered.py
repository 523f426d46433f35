"""The tools that were offered on a request, read from a toolset snapshot, and what became of them since."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

UNCHANGED, CHANGED, GONE, UNKNOWN = "unchanged", "changed", "gone", ""


@dataclass(frozen=True)
class OfferedTool:
    """One definition of a snapshot. `parameters` is its JSON Schema, None where it has none that is an object."""

    name: str
    description: str
    parameters: dict[str, Any] | None

    @property
    def schema_text(self) -> str:
        return json.dumps(self.parameters, ensure_ascii=False, indent=2) if self.parameters else ""

    @cached_property
    def digest(self) -> str:
        """What tells this definition from another one of the same name: the beginning of a SHA-256 of what it says,
        whatever its spelling."""
        said = json.dumps([self.name, self.description, self.parameters], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:8]

    @property
    def text(self) -> str:
        """Description and schema, line by line, as two of them are compared."""
        return f"{self.description}\n{self.schema_text}"


@dataclass(frozen=True, kw_only=True)
class Since:
    """What became of an offered tool: `word` is unchanged, changed or gone; empty where no tools are known today."""

    tool: OfferedTool
    word: str = UNKNOWN


def since(tools: tuple[OfferedTool, ...], today: Mapping[str, OfferedTool]) -> list[Since]:
    """Each tool beside today's of its name. Where a tenant has no tools here, nobody knows what became of them."""
    return [Since(tool=tool, word=_word(tool, today)) for tool in tools]


def _word(tool: OfferedTool, today: Mapping[str, OfferedTool]) -> str:
    if tool.name in today:
        return UNCHANGED if today[tool.name].digest == tool.digest else CHANGED
    return GONE if today else UNKNOWN


@lru_cache(maxsize=64)
def offered_tools(tools: str) -> tuple[OfferedTool, ...]:
    """The definitions in a snapshot's JSON text, in its order. What has no name is passed over."""
    try:
        definitions = json.loads(tools)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(definitions, list):
        return ()
    found = []
    for definition in definitions:
        if isinstance(definition, dict):
            inner = definition.get("function", definition.get("custom", definition))
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                parameters = inner.get("parameters", inner.get("input_schema"))
                found.append(
                    OfferedTool(
                        name=inner["name"],
                        description=str(inner.get("description") or ""),
                        parameters=parameters if isinstance(parameters, dict) else None,
                    )
                )
    return tuple(found)
