"""The tools of a case: what they are called, what they take, and whether a call of them could have run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from engine import schema as json_schema
from engine.errors import ToolError
from engine.strict_json import JsonError, read_json
from quality.cases.sample import Call
from quality.cases.values import exact, plain, read_exact

MAX_MESSAGE = 300  # characters


def name_of(tool: str) -> str:
    """How names are compared: some models may not write dots, and some servers turn them into underscores."""
    return tool.replace(".", "_")


@dataclass(frozen=True)
class Tool:
    """One tool. What is asked of it for each call is worked out once."""

    name: str
    parameters: Mapping[str, Any] | None

    @cached_property
    def declared(self) -> frozenset[str] | None:
        """The arguments that it takes; None where it takes any."""
        try:
            return json_schema.declared_names(self.parameters) if self.parameters else None
        except (TypeError, RecursionError):
            return None

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Arguments with the default that the schema declares for them."""
        properties = (self.parameters or {}).get("properties")
        found = {}
        for name, schema in properties.items() if isinstance(properties, Mapping) else ():
            if isinstance(schema, Mapping) and "default" in schema:
                try:
                    found[name] = exact(schema["default"])
                except JsonError:
                    continue
        return found

    @cached_property
    def _schema(self) -> json_schema.ArgumentSchema | None:
        """None where there is no schema that can be used."""
        try:
            return None if self.parameters is None else json_schema.compiled(self.parameters)
        except (ToolError, TypeError, RecursionError):
            return None

    def fault(self, arguments: Mapping[str, Any]) -> json_schema.Fault | None:
        """The most telling fault of arguments against the schema, by JSON pointer; None where there is none, or no
        schema that can be used."""
        if self._schema is None:
            return None
        try:
            found = self._schema.fault(plain(arguments))
        except (TypeError, RecursionError):
            return None
        return found and json_schema.Fault(_pointer(found.path), found.reason)


@dataclass(frozen=True, slots=True)
class Toolset:
    """Tools by their compared name. Without any, nothing is known: each name and all arguments count as valid."""

    tools: Mapping[str, Tool] = field(default_factory=dict)

    @classmethod
    def read(cls, tools: Any) -> "Toolset":
        """From tools as a request offers them (OpenAI's form, or bare `{name, parameters}`), or their JSON text. What
        is no tool definition is passed over; never raises."""
        if isinstance(tools, Toolset):
            return tools
        if isinstance(tools, str | bytes):
            return _read_text(tools if isinstance(tools, str) else tools.decode("utf-8", "replace"))
        return cls._from(tools)

    @classmethod
    def _from(cls, tools: Any) -> "Toolset":
        found: dict[str, Tool] = {}
        for tool in tools if isinstance(tools, Iterable) and not isinstance(tools, Mapping) else ():
            inner = tool.get("function", tool.get("custom", tool)) if isinstance(tool, Mapping) else None
            if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
                parameters = inner.get("parameters", inner.get("input_schema"))
                schema = parameters if isinstance(parameters, Mapping) else None
                found[name_of(inner["name"])] = Tool(inner["name"], schema)
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self.tools)

    def get(self, tool: str) -> Tool | None:
        return self.tools.get(name_of(tool))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools.values())

    def parameters(self, tool: str) -> Mapping[str, Any] | None:
        """The JSON Schema of a tool's arguments, where it is known."""
        found = self.get(tool)
        return found.parameters if found else None

    def declared(self, tool: str) -> frozenset[str] | None:
        """The arguments that a tool takes; None where it takes any, or is not known."""
        found = self.get(tool)
        return found.declared if found else None

    def defaults(self, tool: str) -> Mapping[str, Any]:
        """Arguments with the default that the schema declares for them."""
        found = self.get(tool)
        return found.defaults if found else {}

    def facts(self, call: Call) -> "Facts":
        """A call with its arguments read exactly, and whether it is valid. Never raises."""
        code, path, message, arguments = "", "", "", None
        try:
            arguments = arguments_of(call)
        except JsonError as error:
            code, message = "bad_json", str(error)
        except RecursionError:
            code, message = "bad_json", "nested too deeply"
        tool = self.get(call.name)
        if call.fault:
            code, message = "not_a_call", call.fault
        elif self.tools and tool is None:
            code, message = "unknown_tool", f'no tool "{call.name[:80]}" was offered'
        elif tool is not None and arguments is not None and (fault := tool.fault(arguments)):
            code, path, message = "bad_arguments", fault.path, fault.reason
        return Facts(arguments, code, path, message[:MAX_MESSAGE])


@dataclass(frozen=True, slots=True)
class Facts:
    """What can be told of a call wherever it stands. `arguments` is None where they are no JSON object; `code` is
    empty for a valid call, see `CallValidity`."""

    arguments: dict[str, Any] | None
    code: str = ""
    path: str = ""
    message: str = ""


def arguments_of(call: Call) -> dict[str, Any]:
    """The arguments of a call with exact numbers; raises `JsonError`."""
    if call.arguments is None:
        return {}
    if isinstance(call.arguments, str):
        value = read_exact(call.arguments) if call.arguments.strip() else {}
    else:
        value = exact(call.arguments)
    if not isinstance(value, dict):
        raise JsonError("not_an_object", "arguments must be a JSON object")
    return value


@lru_cache(maxsize=64)
def _read_text(tools: str) -> Toolset:
    try:
        return Toolset._from(read_json(tools))
    except (JsonError, RecursionError):
        return Toolset()


def _pointer(json_path: str) -> str:
    """`$.days[0]` as `/days/0`, `$['a b']` as `/a b`."""
    steps: list[str] = []
    rest = json_path.removeprefix("$")
    while rest:
        if rest.startswith("['"):
            end = rest.find("']", 2)
            step, rest = (rest[2:end], rest[end + 2 :]) if end > 0 else (rest[2:], "")
        elif rest.startswith("["):
            step, _, rest = rest[1:].partition("]")
        else:
            rest = rest.removeprefix(".")
            end = min((place for mark in ".[" if (place := rest.find(mark)) >= 0), default=len(rest))
            step, rest = rest[:end], rest[end:]
        steps.append(step)
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)
