"""From what a model wrote to the name and the arguments of a call, by one set of rules for every format."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.parsing.extent import member
from engine.parsing.jsonish import repaired, replace_surrogates, strict
from engine.parsing.source import Broken
from engine.parsing.toolbox import Toolbox

_SPECIAL = re.compile(r"<[|｜]")
_INDEX = re.compile(r":[0-9]+$")


@dataclass(frozen=True, slots=True)
class Found:
    """A call as read from text; `id` is "" where the text gives none."""

    name: str
    arguments: dict[str, Any]
    raw: str
    id: str = ""


def clean_name(name: Any, tools: Toolbox) -> str:
    """The tool's name out of what stands for it: `functions.NAME:0`, a special token at its end. Raises `Broken`."""
    if not isinstance(name, str):
        raise Broken("a call without a name")
    name = replace_surrogates(_SPECIAL.split(name, maxsplit=1)[0]).strip()
    if name not in tools and name.startswith("functions."):
        name = name.removeprefix("functions.")
        if name not in tools:
            name = _INDEX.sub("", name)
    if not name:
        raise Broken("a call without a name")
    return name


def read_arguments(value: Any) -> dict[str, Any]:
    """The arguments as an object, whatever they came as: an object, JSON text (once or twice), nothing. `Broken`."""
    if value is None:
        return {}
    if isinstance(value, str):
        if not value.strip():
            return {}
        value = repaired(value)
        if isinstance(value, str):  # encoded twice
            value = repaired(value) if value.strip() else {}
        if value is None:
            return {}
    if not isinstance(value, dict):
        raise Broken("arguments are not an object")
    return value


def found(name: Any, arguments: Any, raw: str, tools: Toolbox, call_id: Any = "") -> Found:
    """A call from its name and its arguments in any of the accepted shapes. Raises `Broken`."""
    name = clean_name(name, tools)
    arguments = tools.retyped(name, read_arguments(arguments))
    return Found(name, arguments, raw, call_id if isinstance(call_id, str) else "")


def from_object(value: Any, text: str, tools: Toolbox) -> Found:
    """A call from `{"name": …, "arguments": …}` and its kin, written as `text`. Raises `Broken`."""
    if not isinstance(value, dict):
        raise Broken("not an object")
    call_id = value.get("id") or value.get("tool_call_id") or ""
    inner = value.get("function")
    if isinstance(inner, dict):
        value, text = inner, member(text, "function") or ""
    name = value.get("name") or value.get("tool_name") or (inner if isinstance(inner, str) else None)
    key = "arguments" if "arguments" in value else "parameters"
    arguments = value.get(key)
    raw = arguments if isinstance(arguments, str) else member(text, key)
    if raw is None:
        raw = "" if arguments is None else as_text(arguments)
    return found(name, arguments, raw, tools, call_id)


def from_plain_json(text: str, tools: Toolbox) -> list[Found]:
    """Calls from JSON that has no markup of its own: strict, and each must name an offered tool. `Broken` if not."""
    value = strict(text)
    if not isinstance(value, list):
        return [_plain_call(value, text, tools)]
    if not value:
        raise Broken("no call")
    return [_plain_call(item, "", tools) for item in value]


def _plain_call(item: Any, text: str, tools: Toolbox) -> Found:
    if not isinstance(item, dict):
        raise Broken("not an object")
    shape = item.get("function") if item.get("type") == "function" and "function" in item else item
    if not isinstance(shape, dict) or not ("arguments" in shape or "parameters" in shape):
        raise Broken("a record, not a call")
    if "arguments" not in shape and _is_definition(shape, tools):
        raise Broken("a definition, not a call")
    call = from_object(item, text, tools)
    if call.name not in tools:
        raise Broken("no offered tool")
    return call


def _is_definition(shape: Mapping[str, Any], tools: Toolbox) -> bool:
    """Whether this is a tool and no call of it: its `parameters` are a schema."""
    if "description" in shape:
        return True
    name, parameters = shape.get("name"), shape["parameters"]
    if not isinstance(parameters, Mapping) or not isinstance(parameters.get("properties"), Mapping):
        return False
    return not (isinstance(name, str) and tools.declares(name, "properties"))


def as_text(value: Any) -> str:
    """Arguments as text; those that came as text are kept as they are."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
