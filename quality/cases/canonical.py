"""One spelling for calls that mean the same: for finding duplicates, and recorded results on replay."""

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from engine.strict_json import JsonError
from quality.cases.sample import Call
from quality.cases.toolset import arguments_of, name_of
from quality.cases.values import exact, number_text

MAX_SCHEMA_DEPTH = 16


def canonical_arguments(arguments: str | Mapping[str, Any] | None, parameters: Mapping[str, Any] | None = None) -> str:
    """Arguments as JSON text: names sorted, 5.0 as 5, null dropped where the schema has the argument optional, defaults
    of the schema filled in. Arguments that are no JSON object are kept as a JSON string. Never raises."""
    try:
        value = arguments_of(Call("", arguments))
    except (JsonError, RecursionError):
        return json.dumps(arguments if isinstance(arguments, str) else str(arguments))
    return canonical_json(_filled(value, parameters, 0))


def call_hash(name: str, arguments: str | Mapping[str, Any] | None, parameters: Mapping[str, Any] | None = None) -> str:
    """SHA-256 of a call's name and canonical arguments, in hex."""
    text = f"{name_of(name)}\n{canonical_arguments(arguments, parameters)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def canonical_json(value: Any) -> str:
    """JSON text that is the same for equal values."""
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{canonical_json(value[name])}" for name in sorted(value))
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(canonical_json, value))}]"
    if isinstance(value, float):
        value = exact(value)
    if isinstance(value, Decimal) or (isinstance(value, int) and not isinstance(value, bool)):
        return number_text(value)
    return json.dumps(value)


def _filled(value: Any, schema: Any, depth: int) -> Any:
    """An object as its tool takes it, nested objects too."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(value, dict) or not isinstance(properties, Mapping) or depth > MAX_SCHEMA_DEPTH:
        return value
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    filled = {}
    for name, item in value.items():
        if item is not None or name not in properties or name in required:
            filled[name] = _filled(item, properties.get(name), depth + 1)
    for name, inner in properties.items():
        if name not in filled and isinstance(inner, Mapping) and inner.get("default") is not None:
            try:
                filled[name] = exact(inner["default"])
            except JsonError:
                continue
    return filled
