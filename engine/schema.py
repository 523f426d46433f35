"""Judging arguments by a tool's JSON Schema before anything runs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import extend, validator_for
from referencing import Registry as References
from referencing.exceptions import Unresolvable

from engine import patterns
from engine.errors import ToolError
from engine.text import truncate

EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}
REASON_LIMIT = 300  # characters; a reason quotes the value, and the value may be a megabyte

_OPEN = ("patternProperties", "$ref", "$dynamicRef", "unevaluatedProperties")
_COMPOSED = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("if", "then", "else")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with an argument: a JSON path (`$.days[0]`; `$` is the whole) and the reason in words.

    `places` are the values that it is about, step by step: what is left out or too much has its own. None: the schema
    could not be asked.
    """

    path: str
    reason: str
    places: tuple[tuple[str | int, ...], ...] = field(default=(), compare=False)


class ArgumentSchema:
    """The `parameters` of one tool, checked and compiled. Raises `ToolError` if they are no usable schema."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = dict(parameters)
        if reason := schema_fault(parameters):
            raise ToolError(reason)
        # An empty registry: a `$ref` to another document is never fetched.
        self._validator = _bounded(_dialect(self.parameters))(self.parameters, registry=References())
        self.declared = declared_names(self.parameters)

    def fault(self, arguments: Any) -> Fault | None:
        """The most telling fault of the arguments, or None. Never raises."""
        if not isinstance(arguments, dict):
            return Fault("$", "arguments must be a JSON object")
        try:
            error = best_match(self._validator.iter_errors(arguments))
            return error and _fault(error)
        except Unresolvable as exc:
            return Fault("$", f"the schema refers to {exc.ref!r}, which it does not contain")
        except patterns.PatternTimeout:
            return Fault("$", "a pattern of the schema takes too long to check")
        except (RecursionError, ArithmeticError, ValueError) as exc:
            return Fault("$", f"cannot be checked against the schema ({type(exc).__name__})")

    def faults(self, arguments: Any, limit: int = 50) -> list[Fault]:
        """All faults up to `limit`, in the schema's order, for a page that shows them. Never raises."""
        found: list[Fault] = []
        try:
            for error in islice(self._validator.iter_errors(arguments), limit):
                found.append(_fault(error))  # noqa: PERF401 (kept on error)
        except Unresolvable as exc:
            found.append(Fault("$", f"the schema refers to {exc.ref!r}, which it does not contain"))
        except patterns.PatternTimeout:
            found.append(Fault("$", "a pattern of the schema takes too long to check"))
        except (RecursionError, ArithmeticError, ValueError) as exc:
            found.append(Fault("$", f"cannot be checked against the schema ({type(exc).__name__})"))
        return found

    def known(self, arguments: Mapping[str, Any], also: frozenset[str] = frozenset()) -> dict[str, Any]:
        """The arguments that the schema (or `also`) names: what a model adds of its own accord is not passed on."""
        if self.declared is None:
            return dict(arguments)
        names = self.declared | also
        return {name: value for name, value in arguments.items() if name in names}


def _fault(error: jsonschema.ValidationError) -> Fault:
    here = tuple(error.absolute_path)
    names: Iterable[str] = ()
    if isinstance(error.instance, dict):
        if error.validator == "required" and isinstance(error.validator_value, list):
            missing = [name for name in error.validator_value if name not in error.instance]
            # Each name that is missing is a fault of its own, which says it in its message alone.
            names = [name for name in missing if error.message.startswith(f"{name!r} ")] or missing
        elif error.validator == "additionalProperties" and isinstance(error.schema, Mapping):
            expressions = error.schema.get("patternProperties", {})
            names = [
                name
                for name in error.instance
                if name not in error.schema.get("properties", {})
                and not any(patterns.search(expression, name) for expression in expressions)
            ]
    places = tuple((*here, name) for name in names) or (here,)
    return Fault(error.json_path, truncate(error.message, REASON_LIMIT), places)


def compiled(parameters: Mapping[str, Any]) -> ArgumentSchema:
    """The schema of a tool, compiled once for all turns that offer it: milliseconds each time otherwise."""
    try:
        text = json.dumps(parameters)
    except (TypeError, ValueError, RecursionError):  # not plain JSON: it says itself what is wrong with it
        return ArgumentSchema(parameters)
    return _compiled(text)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> ArgumentSchema:
    return ArgumentSchema(json.loads(text))


def schema_fault(parameters: Any) -> str | None:
    """Why `parameters` cannot be the schema of a tool's arguments, or None."""
    if not isinstance(parameters, Mapping):
        return "must be a JSON Schema, an object"
    if parameters.get("type", "object") != "object":
        return 'must describe an object ("type": "object")'
    schema = dict(parameters)
    try:
        _dialect(schema).check_schema(schema)
    except SchemaError as exc:
        return truncate(f"{exc.json_path}: {exc.message}", REASON_LIMIT)
    except RecursionError:
        return "is nested too deeply"
    return _unsafe_part(schema)


def _dialect(schema: Mapping[str, Any]) -> Any:
    """The validator of the draft that `$schema` names; the current one for a name that is unknown or none at all."""
    default = jsonschema.Draft202012Validator
    try:
        return validator_for(schema, default=default) if isinstance(schema.get("$schema"), str) else default
    except ValueError:  # looks like a URL, and is none
        return default


def declared_names(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """The arguments that a schema names anywhere; None if it takes names that it does not list."""
    if schema.get("additionalProperties") or any(schema.get(key) for key in _OPEN):
        return None
    names = frozenset(schema.get("properties", {}))
    parts = [part for key in _COMPOSED for part in schema.get(key, [])] + [
        schema[key] for key in _BRANCHES if key in schema
    ]
    for part in parts:
        if isinstance(part, Mapping):
            inner = declared_names(part)
            if inner is None:
                return None
            names |= inner
    return names


def _unsafe_part(node: Any) -> str | None:
    """A reference that leaves the schema, or a pattern that is no regular expression."""
    if isinstance(node, list):
        return next((reason for item in node if (reason := _unsafe_part(item))), None)
    if not isinstance(node, Mapping):
        return None
    for keyword in ("$ref", "$dynamicRef"):
        reference = node.get(keyword)
        if isinstance(reference, str) and not reference.startswith("#"):
            return f"{keyword} {reference[:100]!r} leaves the schema; only references within it (#/…) are followed"
    expressions = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    if isinstance(node.get("patternProperties"), Mapping):
        expressions += node["patternProperties"]
    for expression in expressions:
        if reason := patterns.pattern_fault(expression):
            return f"pattern {expression[:100]!r}: {reason}"
    return next((reason for item in node.values() if (reason := _unsafe_part(item))), None)


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, str) and not patterns.search(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, expressions: Mapping[str, Any], instance: Any, _schema: Any
) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in expressions.items():
            for key, value in instance.items():
                if patterns.search(pattern, key):
                    yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _bounded(validator_class: Any) -> Any:
    """The validator with its two regular-expression keywords bounded in time."""
    return extend(validator_class, {"pattern": _pattern, "patternProperties": _pattern_properties})  # type: ignore[no-untyped-call]
