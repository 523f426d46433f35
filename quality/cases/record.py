"""Exported cases, line by line. A fault names line, case, tool, path and reason, and the other lines are read on."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

import jsonschema
from referencing import Registry as References
from referencing.jsonschema import DRAFT202012

from quality.cases.expectation import Expectation
from quality.cases.published import CASE_SCHEMA, END_SCHEMA
from quality.cases.sample import Call
from quality.cases.schema import EXPECTATION_SCHEMA, ExpectationError, examine, parse
from quality.cases.toolset import Toolset
from quality.cases.values import plain, pointer_to

CASE = "tool_call_regression_case"
END = "_end"
NO_END = "no_end"  # code of the fault, or of the warning
MAX_FAULTS = 20  # of one line


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFault:
    """`line` counts from 1; 0 is the file as a whole. `path` is a JSON pointer into the record."""

    line: int
    code: str
    message: str
    case: str | None = None
    tool: str | None = None
    path: str = ""

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "the file"
        named = "".join(f", {each}" for each in (self.case, self.tool, self.path) if each)
        return f"{where}{named}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case that can be judged. `args` is the recorded call's arguments (an object, or text where they were none);
    fractions are `Decimal`. `record` is the whole line as it was read."""

    line: int
    id: str
    version: int
    status: str
    tool: str | None
    label: str
    args: Any
    messages: Any
    tools: Any
    now: str | None
    observed: Mapping[str, Any]
    behavior: str
    expectation: Expectation
    context: Mapping[str, Any]
    stubs: tuple[Mapping[str, Any], ...]
    record: Mapping[str, Any] = field(repr=False)

    @property
    def call(self) -> Call | None:
        """The recorded call; None where the model called nothing."""
        if self.tool is None or self.label == "missing_tool":
            return None
        return Call(self.tool, self.args)

    @property
    def toolset(self) -> Toolset:
        return Toolset.read(self.tools)


@dataclass(slots=True)
class CaseFile:
    """`next_cursor`: where the next page of the export begins. `complete`: the trailer was there and right."""

    cases: list[Case] = field(default_factory=list)
    faults: list[LineFault] = field(default_factory=list)
    warnings: list[LineFault] = field(default_factory=list)
    complete: bool = False
    next_cursor: str | None = None


def read_cases(lines: Iterable[bytes], *, require_trailer: bool = False) -> CaseFile:
    """Read an export. `lines` keep their line ends (a file opened for reading bytes gives them so). Never raises."""
    found = CaseFile()
    digest, count, ended = hashlib.sha256(), 0, False
    number = 0
    for number, line in enumerate(lines, 1):
        if ended and line.strip():
            found.faults.append(LineFault(line=number, code="after_end", message="a line after the end of the export"))
            continue
        if not line.strip():
            digest.update(line)
            continue
        record = _json(line, number, found)
        if isinstance(record, dict) and record.get("recordType") == END:
            ended = True
            _check_end(record, number, count, digest.hexdigest(), found)
            continue
        digest.update(line)
        count += 1
        if record is not None:
            _add(record, number, found)
    if not ended:
        _no_end(number, count, require_trailer, found)
    return found


def read_stored(text: str, line: int) -> Case:
    """A record that was checked before it was stored: read ten times as fast. Raises ValueError where it is none."""
    try:
        record = _value(text)
        return _case(record, line, parse(record["expected"]["expectation"]))
    except (KeyError, TypeError, AttributeError, RecursionError, ExpectationError) as error:
        raise ValueError(f"no record of a case: {type(error).__name__}: {error}") from error


def _value(text: str) -> Any:
    """Evidence inside may be nested as deeply as a record of its own, so the engine's bound does not hold here."""
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse)


def _json(line: bytes, number: int, found: CaseFile) -> Any:
    try:
        return _value(line.decode())
    except UnicodeDecodeError:
        found.faults.append(LineFault(line=number, code="not_utf8", message="this line is not UTF-8"))
    except (ValueError, RecursionError) as error:
        found.faults.append(LineFault(line=number, code="not_json", message=f"this line is no JSON: {error}"))
    return None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_end(record: dict[str, Any], number: int, count: int, sha256: str, found: CaseFile) -> None:
    for error in _validator("end").iter_errors(plain(record)):
        path = pointer_to(*error.absolute_path)
        found.faults.append(LineFault(line=number, code="bad_end", path=path, message=error.message[:300]))
        return
    if record["count"] != count:
        message = f"the export says {record['count']} records, and {count} are here: the file was cut or changed"
        found.faults.append(LineFault(line=number, code="wrong_count", message=message))
    elif record["sha256"] != sha256:
        message = "the checksum of the lines is not that of the export: the file was changed"
        found.faults.append(LineFault(line=number, code="wrong_checksum", message=message))
    else:
        found.complete = True
        found.next_cursor = record.get("nextCursor")


def _no_end(number: int, count: int, required: bool, found: CaseFile) -> None:
    message = f"no end of the export after {count} records: the file may be cut"
    fault = LineFault(line=number, code=NO_END, message=message)
    (found.faults if required else found.warnings).append(fault)


def _add(record: Any, number: int, found: CaseFile) -> None:
    expectation, faults = _examined(record, number)
    found.faults += faults[:MAX_FAULTS]
    if expectation is not None and not faults:
        found.cases.append(_case(record, number, expectation))


def _case(record: Mapping[str, Any], number: int, expectation: Expectation) -> Case:
    given, expected = record["input"], record["expected"]
    return Case(
        line=number,
        id=record["id"],
        version=int(record["version"]),
        status=record["status"],
        tool=record["toolName"],
        label=record["label"],
        args=given["args"],
        messages=plain(given.get("messages")),
        tools=plain(given.get("tools")),
        now=given.get("now"),
        observed=record["observed"] or {},
        behavior=expected["behavior"],
        expectation=expectation,
        context=record.get("context") or {},
        stubs=tuple(record.get("stubs") or ()),
        record=record,
    )


def _examined(record: Any, number: int) -> tuple[Expectation | None, list[LineFault]]:
    """The expectation of a record, and what is wrong with the whole by the published schema and beyond it."""
    members = record if isinstance(record, dict) else {}
    case, tool = members.get("id"), members.get("toolName")
    named = {"case": case if isinstance(case, str) else None, "tool": tool if isinstance(tool, str) else None}

    def fault(code: str, path: str, message: str) -> LineFault:
        return LineFault(line=number, code=code, path=path, message=message, **named)

    if not isinstance(record, dict):
        return None, [fault("wrong_type", "", "a record must be a JSON object")]
    if record.get("recordType") != CASE:
        told = str(record.get("recordType"))[:80]
        return None, [fault("wrong_record", "/recordType", f"{told!r} is no record of a case; expected {CASE!r}")]
    found = [
        fault("schema", pointer_to(*error.absolute_path), _told(error))
        for error in _validator("case").iter_errors(plain({**record, "expected": _without_expectation(record)}))
    ]
    given, expected = record.get("input"), record.get("expected")
    tools = given.get("tools") if isinstance(given, dict) else None
    expectation = None
    if isinstance(expected, dict) and "expectation" in expected:
        expectation, faults = examine(expected["expectation"], tools)
        found += [fault(each.code, f"/expected/expectation{each.path}", each.message) for each in faults]
    if isinstance(given, dict) and named["tool"] and not isinstance(given.get("args"), dict | str | None):
        found.append(fault("bad_args", "/input/args", "the arguments of a call are an object, or text that was none"))
    if named["tool"] is None and members.get("label") not in ("missing_tool", "good_reply", None):
        found.append(fault("no_tool", "/toolName", "a case about a call needs the name of its tool"))
    return expectation, found + _observed_faults(record.get("observed"), fault)


def _observed_faults(observed: Any, fault: Any) -> list[LineFault]:
    if not isinstance(observed, dict):
        return []
    if observed.get("isError") is True and observed.get("error") is None and observed.get("result") is None:
        return [fault("no_error", "/observed/error", "the call failed, and neither error nor result says how")]
    return []


def _without_expectation(record: Mapping[str, Any]) -> Any:
    """The expectation is checked by itself, in words that people understand."""
    expected = record.get("expected")
    if isinstance(expected, dict) and "expectation" in expected:
        return {**expected, "expectation": {"version": 1}}
    return expected


def _told(error: jsonschema.ValidationError) -> str:
    return error.message[:300]


@cache
def _validator(which: str) -> jsonschema.Draft202012Validator:
    """That of the case refers to the expectation's by its id; found in a registry, it is not searched for each time."""
    known = References().with_resource(EXPECTATION_SCHEMA["$id"], DRAFT202012.create_resource(EXPECTATION_SCHEMA))
    return jsonschema.Draft202012Validator(CASE_SCHEMA if which == "case" else END_SCHEMA, registry=known)
