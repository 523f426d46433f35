"""The tools that were offered on a request, read from a toolset snapshot."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class OfferedTool:
    """One definition of a snapshot. `parameters` is its JSON Schema, None where it has none that is an object."""

    name: str
    description: str
    parameters: dict[str, Any] | None

    @property
    def schema_text(self) -> str:
        return json.dumps(self.parameters, ensure_ascii=False, indent=2) if self.parameters else ""


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
