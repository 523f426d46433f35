"""Small pieces of JSON Schema, of which the published schemas are made."""

from typing import Any, Final

type Schema = dict[str, Any]

MATCHER: Final[Schema] = {"$ref": "#/$defs/matcher"}
TEXT: Final[Schema] = {"type": "string", "minLength": 1}
NUMBER: Final[Schema] = {"type": "number"}
POSITIVE: Final[Schema] = {"type": "number", "minimum": 0}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
POINTER: Final[Schema] = {"type": "string", "pattern": "^(/([^~/]|~[01])*)*$"}
TRUE: Final[Schema] = {"const": True}


def object_of(properties: Schema, *, required: list[str] | None = None, description: str = "") -> Schema:
    """An object with these members and no others."""
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = required
    if description:
        schema["description"] = description
    return schema


def array_of(items: Schema, *, least: int = 0, most: int = 200, description: str = "") -> Schema:
    schema: Schema = {"type": "array", "items": items, "minItems": least, "maxItems": most}
    if description:
        schema["description"] = description
    return schema


def range_of(bound: Schema) -> Schema:
    return {**object_of({"min": bound, "max": bound}), "minProperties": 1}
