"""The arguments of a call beside the schema that the model read: a table in schema order with its faults marked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from engine.errors import ToolError
from engine.schema import ArgumentSchema, Fault, declared_names
from quality.languages import number
from quality.review.jsonview import Members, Node, decode, plain, pointer, tree
from tenants.masking.masker import MARK

MAX_ROWS = 100
MAX_CHECKED_CHARS = 512 * 1024


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One row. `status` is ok, invalid, missing (required, not given), absent (optional, not given), or unknown (given,
    not in the schema). `node` is the value, None where none was given. `faults` are reasons in words."""

    name: str
    status: str
    node: Node | None = None
    declared_type: str = ""
    required: bool = False
    description: str = ""
    faults: tuple[str, ...] = ()
    repeated: bool = False

    @property
    def pointer(self) -> str:
        """The JSON pointer of the value."""
        return pointer("", self.name)


@dataclass(frozen=True, kw_only=True)
class ArgumentTable:
    """`rows` of an object; `other` is the value of arguments that are none. `notes` say what is wrong with the whole,
    or why nothing was checked. `hidden` rows were left out."""

    rows: list[Argument] = field(default_factory=list)
    other: Node | None = None
    notes: list[str] = field(default_factory=list)
    hidden: int = 0
    checked: bool = False

    @property
    def num_faults(self) -> int:
        return sum(row.status in {"invalid", "missing", "unknown"} for row in self.rows)


def argument_table(args: str | None, parameters: Mapping[str, Any] | None) -> ArgumentTable:
    """Compare arguments (JSON text as stored) with the `parameters` schema of the tool. Never raises on evidence."""
    if args is None:
        return ArgumentTable(notes=[_("No arguments were recorded.")])
    try:
        value = decode(args)
    except ValueError as error:
        note = _("This is not JSON: %(why)s") % {"why": error}
        return ArgumentTable(other=Node("string", args[:2_000], len(args)), notes=[note])
    if type(value) is str:
        return ArgumentTable(other=tree(value), notes=[_("The model wrote text that is not a JSON object.")])
    if not isinstance(value, Members):
        return ArgumentTable(other=tree(value), notes=[_("These arguments are JSON, but not an object.")])
    if parameters is None:
        rows = _rows(value, {}, [], closed=False)
        return _table(rows, notes=[_("The schema of this tool was not recorded, so nothing is checked.")])
    faults, note = _faults(args, value, parameters)
    rows = _rows(value, parameters, faults, closed=_is_closed(parameters))
    whole = [fault.reason for fault in faults if fault.path == "$" and not _names_a_row(fault)]
    return _table(rows, notes=[note] if note else whole, checked=not note)


def _table(rows: list[Argument], *, notes: list[str], checked: bool = False) -> ArgumentTable:
    return ArgumentTable(rows=rows[:MAX_ROWS], notes=notes, hidden=max(0, len(rows) - MAX_ROWS), checked=checked)


def _faults(args: str, value: Members, parameters: Mapping[str, Any]) -> tuple[list[Fault], str]:
    """Faults by the schema, and a note where it could not be asked."""
    if len(args) > MAX_CHECKED_CHARS:
        return [], _("Not checked against the schema: %(n)s characters are too many for a page.") % {
            "n": number(len(args))
        }
    try:
        schema = ArgumentSchema(parameters)
    except ToolError as error:
        return [], _("Not checked: the tool's schema cannot be used (%(why)s).") % {"why": error}
    shown = plain(value)
    return [fault for fault in schema.faults(shown) if _names_a_row(fault) or not _is_masked(shown, fault.path)], ""


def _is_masked(value: Any, path: str) -> bool:
    """Does what a fault speaks of hold a mark? The schema was asked about the mark then, not about what is behind it:
    hints, which are made of what is kept, tell of that."""
    name, rest = _first_step(path)
    if name is not None and isinstance(value, dict) and name in value:
        return _is_masked(value[name], f"${rest}" if rest.startswith("[") or not rest else f"$.{rest}")
    return MARK.search(json.dumps(value, default=str)) is not None


def _names_a_row(fault: Fault) -> bool:
    """Faults of the whole that the rows tell already: what is missing, what is unknown."""
    return "is a required property" in fault.reason or "Additional properties" in fault.reason


def _is_closed(parameters: Mapping[str, Any]) -> bool:
    """Do names outside `properties` stand out? Where the schema takes any name on purpose, they do not."""
    return declared_names(parameters) is not None


def _rows(value: Members, parameters: Mapping[str, Any], faults: list[Fault], *, closed: bool) -> list[Argument]:
    given: dict[str, Any] = dict(value)
    names = [name for name, _ in value]
    properties = parameters.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = parameters.get("required")
    required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    declared = list(dict.fromkeys([*properties, *required]))
    reasons: dict[str, list[str]] = {}
    for fault in faults:
        name, rest = _first_step(fault.path)
        if name is not None:
            reasons.setdefault(name, []).append(f"{rest}: {fault.reason}" if rest else fault.reason)

    def row(name: str) -> Argument:
        schema = properties.get(name)
        schema = schema if isinstance(schema, Mapping) else {}
        known = name in properties or name in required
        if name not in given:
            status = "missing" if name in required else "absent"
        elif reasons.get(name):
            status = "invalid"
        else:
            status = "unknown" if closed and not known and parameters else "ok"
        return Argument(
            name=name,
            status=status,
            node=tree(given[name]) if name in given else None,
            declared_type=type_name(schema),
            required=name in required,
            description=str(schema.get("description") or ""),
            faults=tuple(reasons.get(name, ())[:5]),
            repeated=names.count(name) > 1,
        )

    extra = [name for name in dict.fromkeys(names) if name not in declared]
    return [row(name) for name in [*declared, *extra]]


def _first_step(path: str) -> tuple[str | None, str]:
    """The top-level name in a JSON path such as `$.days[0]` or `$['a b']`, and the rest; None and "" for `$`."""
    rest = path[1:]
    if rest.startswith("['"):
        name, _, rest = rest[2:].partition("']")
        return name.replace("\\'", "'"), rest.removeprefix(".")
    if rest.startswith("."):
        end = next((end for end, character in enumerate(rest) if end and character in ".["), len(rest))
        return rest[1:end], rest[end:].removeprefix(".")
    return None, ""


def type_name(schema: Mapping[str, Any]) -> str:
    """What a property takes, in a few words: `string`, `integer | null`, `"celsius" | "fahrenheit"`."""
    if isinstance(schema.get("enum"), list):
        options = [str(option) if isinstance(option, str) else repr(option) for option in schema["enum"]]
        return " | ".join(options[:6]) + (" | …" if len(options) > 6 else "")
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type")
    if kind:
        return _named(kind, schema)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            parts = [type_name(part) for part in schema[key] if isinstance(part, Mapping)]
            return " | ".join(dict.fromkeys(part for part in parts if part))
    return ""


def _named(kind: Any, schema: Mapping[str, Any]) -> str:
    if isinstance(kind, list):
        return " | ".join(str(one) for one in kind)
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {type_name(schema['items']) or 'anything'}"
    return f"{kind} ({schema['format']})" if isinstance(schema.get("format"), str) else str(kind)
