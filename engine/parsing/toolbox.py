"""The tools of a request, as the parser needs them: their names, and the types their parameters have.

Text has no type of its own; the schema gives it one. Several types are tried in this order:

null            `null` in any case
boolean         `true` / `false` in any case
integer         optional sign and digits, any size
number          any JSON number
array, object   JSON, else a Python literal
string          the text itself
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from engine.parsing.jsonish import repaired, strict
from engine.parsing.source import Broken

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_SCHEMA_DEPTH = 16
_TYPE_OF = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


class Toolbox:
    """The offered tools. Anything in `tools` that is no tool definition is passed over."""

    def __init__(self, tools: Iterable[Any] | None = None) -> None:
        self._schemas: dict[str, Mapping[str, Any]] = {}
        for tool in tools if isinstance(tools, Iterable) else ():
            if not isinstance(tool, Mapping):
                continue
            function = tool.get("function", tool)
            if isinstance(function, Mapping) and isinstance(name := function.get("name"), str):
                parameters = function.get("parameters")
                self._schemas[name] = parameters if isinstance(parameters, Mapping) else {}

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def may_become(self, start: str) -> bool:
        """Whether an offered name starts so."""
        return any(name.startswith(start) for name in self._schemas)

    def takes_nothing(self, name: str) -> bool:
        """Whether this is an offered tool without parameters."""
        return name in self._schemas and not _properties(self._schemas[name])

    def declares(self, name: str, parameter: str) -> bool:
        return parameter in _properties(self._schemas.get(name, {}))

    def typed(self, name: str, parameter: str, text: str) -> Any:
        """The value of a parameter that was written as plain text."""
        root = self._schemas.get(name, {})
        return convert(text, types_of(_properties(root).get(parameter), root))

    def retyped(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments from JSON, where a string stands although the schema wants another type (and no string)."""
        root = self._schemas.get(name)
        return _retyped(arguments, root, root, 0) if root else arguments


def convert(text: str, types: frozenset[str]) -> Any:
    """The text as the first of `types` that it is one of in full, else the text."""
    bare = text.strip()
    word = bare.lower() if len(bare) <= len("false") else ""
    if "null" in types and word == "null":
        return None
    if "boolean" in types and word in ("true", "false"):
        return word == "true"
    if ("integer" in types and _INTEGER.fullmatch(bare)) or ("number" in types and _NUMBER.fullmatch(bare)):
        return _number(bare, text)
    for kind, opening in ((list, "["), (dict, "{")):
        if _TYPE_OF[kind] in types and bare.startswith(opening):
            value = read_in_full(bare)
            if isinstance(value, kind):
                return value
    return text


def read_in_full(text: str) -> Any:
    """JSON, else a Python literal, that is the whole text; None if it is neither."""
    try:
        return strict(text)
    except Broken:
        pass
    try:  # in brackets, so that anything after the value is a fault
        value = repaired(f"[{text}\n]")
    except Broken:
        return None
    return value[0] if len(value) == 1 else None


def types_of(schema: Any, root: Any, depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema allows; none if it does not say."""
    if not isinstance(schema, Mapping) or depth > _MAX_SCHEMA_DEPTH:
        return frozenset()
    found: set[str] = set()
    declared = schema.get("type")
    if isinstance(declared, str):
        found.add(declared)
    elif isinstance(declared, list):
        found.update(kind for kind in declared if isinstance(kind, str))
    if found:
        return frozenset(found)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(key), list):
            for option in options:
                found |= types_of(option, root, depth + 1)
    if "$ref" in schema:
        found |= types_of(_resolved(schema["$ref"], root), root, depth + 1)
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    found.update("null" if value is None else _TYPE_OF.get(type(value), "string") for value in values)
    if not found and "properties" in schema:
        found.add("object")
    if not found and "items" in schema:
        found.add("array")
    return frozenset(found)


def _number(bare: str, text: str) -> Any:
    """The number, or the text if Python cannot hold it: too many digits, or beyond a double."""
    try:
        value = int(bare) if _INTEGER.fullmatch(bare) else float(bare)
    except ValueError:
        return text
    return text if isinstance(value, float) and math.isinf(value) else value


def _properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _resolved(reference: Any, root: Any) -> Any:
    """The part of `root` that a reference within it (`#/$defs/Filter`) names."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    node = root
    for step in reference[2:].split("/"):
        node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return node


def _retyped(value: Any, schema: Any, root: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_SCHEMA_DEPTH:
        return value
    if "$ref" in schema:
        return _retyped(value, _resolved(schema["$ref"], root), root, depth + 1)
    if isinstance(value, str):
        types = types_of(schema, root)
        return value if "string" in types else convert(value, types - {"null"})
    if isinstance(value, dict):
        properties = _properties(schema)
        return {key: _retyped(item, properties.get(key), root, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_retyped(item, schema.get("items"), root, depth + 1) for item in value]
    return value
