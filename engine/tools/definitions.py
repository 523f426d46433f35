"""HTTP tools as JSON: what a definition may hold, and every fault of a file at once."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine import net
from engine.errors import ToolError
from engine.schema import EMPTY, schema_fault
from engine.strict_json import JsonError, read_json
from engine.tools.base import Mode, Safety

FIELDS = ("name", "description", "parameters", "url", "method", "headers", "mode", "safety", "follow_redirects")
REQUIRED = ("name", "description", "url")
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
MAX_DESCRIPTION = 10_000  # characters; it stands in every request to the model

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what model servers take


@dataclass(frozen=True, slots=True)
class HttpDefinition:
    """One HTTP tool as its tenant wrote it, the verb in any case.

    `read_definitions` makes it from a file, `from_json` from a stored row.
    """

    name: str
    description: str
    url: str
    method: str = "POST"
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict(EMPTY))
    headers: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = Mode.AUTO
    safety: Safety = Safety.UNSAFE
    follow_redirects: bool = False

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> "HttpDefinition":
        """The definition in `item`, which `definition_faults` found to be sound."""
        method = str(item.get("method", "POST"))
        default = Safety.SAFE if method.upper() in SAFE_METHODS else Safety.UNSAFE
        return cls(
            name=item["name"],
            description=item["description"],
            url=item["url"],
            method=method,
            parameters=item.get("parameters", EMPTY),
            headers=item.get("headers", {}),
            mode=Mode(item.get("mode", Mode.AUTO)),
            safety=Safety(item.get("safety", default)),
            follow_redirects=item.get("follow_redirects", False),
        )

    def to_json(self) -> dict[str, Any]:
        return {name: value for name in FIELDS if (value := getattr(self, name)) not in ({}, False)}


@dataclass(frozen=True, slots=True)
class DefinitionFault:
    """`index` is the place in the array (None: the file itself), `field` the member, empty for the whole object."""

    index: int | None
    field: str
    reason: str

    def __str__(self) -> str:
        place = "file" if self.index is None else f"[{self.index}]"
        return f"{place}{'.' if self.field else ''}{self.field}: {self.reason}"


class DefinitionsError(ToolError):
    """A file of definitions that cannot be used; `faults` has all that is wrong with it."""

    def __init__(self, faults: list[DefinitionFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


def read_definitions(source: bytes | str | list[Any], policy: net.Policy) -> list[HttpDefinition]:
    """The definitions of a file or of its parsed array. Raises `DefinitionsError` with every fault."""
    items = source if isinstance(source, list) else _read_array(source)
    if faults := definition_faults(items, policy):
        raise DefinitionsError(faults)
    return [HttpDefinition.from_json(item) for item in items]


def definition_faults(items: list[Any], policy: net.Policy) -> list[DefinitionFault]:
    """All that is wrong with an array of definitions, judged by the policy they will run under."""
    if not items:
        return [DefinitionFault(None, "", "holds no definition")]
    faults = []
    names = Counter(item.get("name") for item in items if isinstance(item, dict) and isinstance(item.get("name"), str))
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            faults.append(DefinitionFault(index, "", "must be an object"))
            continue
        faults += [DefinitionFault(index, name, reason) for name, reason in _faults(item, policy)]
        if isinstance(item.get("name"), str) and names[item["name"]] > 1:
            faults.append(DefinitionFault(index, "name", f"{item['name'][:64]!r} is taken by another definition"))
    return faults


def _read_array(source: bytes | str) -> list[Any]:
    try:
        value = read_json(source.decode("utf-8") if isinstance(source, bytes) else source)
    except UnicodeDecodeError as exc:
        raise DefinitionsError([DefinitionFault(None, "", f"is not UTF-8 (byte {exc.start})")]) from exc
    except JsonError as exc:
        raise DefinitionsError([DefinitionFault(None, "", f"is not JSON: {exc}")]) from exc
    if not isinstance(value, list):
        raise DefinitionsError([DefinitionFault(None, "", "must be a JSON array of definitions")])
    return value


def _faults(item: dict[str, Any], policy: net.Policy) -> list[tuple[str, str]]:
    faults = [(name, "is missing") for name in REQUIRED if name not in item]
    faults += [(name, f"is no field; there are {', '.join(FIELDS)}") for name in item if name not in FIELDS]
    for name, check in _CHECKS.items():
        if name in item and (reason := check(item[name])):
            faults.append((name, reason))
    if isinstance(item.get("url"), str) and (reason := _url_fault(item["url"], policy)):
        faults.append(("url", reason))
    if isinstance(item.get("headers"), dict):
        faults += _header_faults(item["headers"])
    if item.get("follow_redirects") and str(item.get("method", "POST")).upper() not in ("GET", "HEAD"):
        faults.append(("follow_redirects", "only GET and HEAD may follow redirects"))
    return faults


def name_fault(value: Any) -> str | None:
    """Why `value` cannot be the name of a tool, or None."""
    good = isinstance(value, str) and _NAME.fullmatch(value)
    return None if good else "must be 1 to 64 letters, digits, - or _"


def _description_fault(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return "must say in words what the tool does; the model chooses by it"
    return f"is longer than {MAX_DESCRIPTION} characters" if len(value) > MAX_DESCRIPTION else None


def _method_fault(value: Any) -> str | None:
    return None if isinstance(value, str) and net.is_method(value.upper()) else "must be an HTTP method"


def _one_of(*values: str) -> Any:
    return lambda value: None if value in values else f"must be {' or '.join(map(json.dumps, values))}"


_CHECKS = {
    "name": name_fault,
    "description": _description_fault,
    "parameters": schema_fault,
    "url": lambda value: None if isinstance(value, str) else "must be a string",
    "method": _method_fault,
    "headers": lambda value: None if isinstance(value, dict) else "must be an object of strings",
    "mode": _one_of("auto", "approve"),
    "safety": _one_of("safe", "unsafe"),
    "follow_redirects": lambda value: None if isinstance(value, bool) else "must be true or false",
}


def _url_fault(url: str, policy: net.Policy) -> str | None:
    try:
        policy.check_url(net.parse_url_template(url).origin)
    except net.Refused as exc:
        return exc.message
    return None


def _header_faults(headers: dict[str, Any]) -> list[tuple[str, str]]:
    faults = []
    seen: set[str] = set()
    for name, value in headers.items():
        if name.lower() in seen:
            faults.append((f"headers.{name}", "stands twice, in different case"))
        seen.add(name.lower())
        try:
            net.parse_header_template(name, value)
        except net.Refused as exc:
            faults.append((f"headers.{name}", exc.message))
    return faults
