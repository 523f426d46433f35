"""Kinds of faults: what groups feedback that asks for the same fix. Plain functions that know no database.

    arg:/days/*      an argument that is not what it should be, as a JSON pointer; items of an array share one
    arg:             arguments that are wrong, nobody said which
    tool:get_time    the tool that should have been called instead; `tool:` if it was not named
    missing:refund   the call that was left out; `missing:` if it was not named

Evidence and corrections are read as they are: whatever they hold, an answer comes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from engine.errors import ToolError
from engine.schema import compiled
from engine.strict_json import JsonError
from quality.cases.values import ABSENT, equal, exact, plain, pointer_to, read_exact, steps_of
from quality.ingest.jsontext import storable
from quality.review.offered import OfferedTool

MAX_FAULTS = 10
MAX_FAULT_CHARS = 300  # a fault is part of an index
MAX_CHECKED_CHARS = 512 * 1024

type Correction = Mapping[str, Any] | str | None


def faults_of(
    label: str, tool_name: str, args_text: str | None, correction: Correction, tools: Sequence[OfferedTool]
) -> tuple[str, ...]:
    """The faults that a label speaks of, sorted, at most MAX_FAULTS.

    `args_text` are the arguments that the model wrote, as JSON text; `correction` is the reviewer's, as JSON text or
    read; `tools` are those that were offered.
    """
    said = _read_correction(correction)
    match label:
        case "bad_args":
            return _cut(set(_argument_faults(tool_name, args_text, said.get("arguments", ABSENT), tools)))
        case "wrong_tool":
            return _cut({f"tool:{_name_in(said)}"})
        case "missing_tool":
            return _cut({f"missing:{_name_in(said)}"})
    return ()


def describe_fault(label: str, tool_name: str, fault: str) -> str:
    """A fault in words, for a title. Names come from models and reviewers: quote them with `|inert`."""
    kind, _colon, name = fault.partition(":")
    match kind:
        case "arg":
            return _wrong_argument(spoken(name), tool_name)
        case "tool":
            return _wrong_tool(name, tool_name)
        case "missing":
            return _("No call of %(tool)s") % {"tool": name} if name else _("A call was left out")
    said = label.replace("_", " ").capitalize()
    return _("%(label)s: %(tool)s") % {"label": said, "tool": tool_name or _("no call")}


def _wrong_argument(argument: str, tool: str) -> str:
    if argument and tool:
        return _("Wrong argument %(argument)s of %(tool)s") % {"argument": argument, "tool": tool}
    if argument:
        return _("Wrong argument %(argument)s of a call") % {"argument": argument}
    return _("Wrong arguments of %(tool)s") % {"tool": tool} if tool else _("Wrong arguments of a call")


def _wrong_tool(wanted: str, called: str) -> str:
    told = {"called": called, "wanted": wanted}
    if called and wanted:
        return _("%(called)s called instead of %(wanted)s") % told
    if called:
        return _("%(called)s called instead of another tool, or none") % told
    if wanted:
        return _("A tool named in words instead of %(wanted)s") % told
    return _("A tool named in words instead of another tool, or none")


def spoken(pointer: str) -> str:
    """A pointer as people write it: `payout.method`, `days[]`."""
    text = ""
    for step in steps_of(pointer):
        text += "[]" if step == "*" else f".{step}" if text else step
    return text


def _differences(actual: Any, corrected: Any, here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where two values differ. 5 and 5.0 are the same, true is not 1; what is there on one side only differs."""
    if isinstance(actual, dict) and isinstance(corrected, dict):
        for name in dict.fromkeys([*actual, *corrected]):
            yield from _differences(actual.get(name, ABSENT), corrected.get(name, ABSENT), (*here, name))
    elif isinstance(actual, list) and isinstance(corrected, list):
        for left, right in zip(actual, corrected, strict=False):
            yield from _differences(left, right, (*here, "*"))
        if len(actual) != len(corrected):
            yield (*here, "*")
    elif not equal(actual, corrected):
        yield here


def _argument_faults(
    tool_name: str, args_text: str | None, corrected: Any, tools: Sequence[OfferedTool]
) -> Iterator[str]:
    actual = _read(args_text)
    found = False
    if isinstance(corrected, dict) and actual is not ABSENT:
        for steps in _differences(actual, corrected, ()):
            found = True
            yield _fault_at(steps)
    if not found:
        parameters = next((tool.parameters for tool in tools if tool.name == tool_name), None)
        for place in _violations(actual, args_text, parameters):
            found = True
            yield _fault_at(place)
    if not found:
        yield "arg:"


def _violations(
    actual: Any, args_text: str | None, parameters: Mapping[str, Any] | None
) -> Iterator[tuple[str | int, ...]]:
    """Where the arguments break the schema that the model read."""
    if parameters is None or not isinstance(actual, dict) or len(args_text or "") > MAX_CHECKED_CHARS:
        return
    try:
        schema = compiled(parameters)
    except ToolError:
        return
    for fault in schema.faults(plain(actual)):
        yield from fault.places


def _fault_at(steps: Sequence[str | int]) -> str:
    """The fault of a place; of one that is too long to be a key, the nearest place above it that is not."""
    pointers = (pointer_to(*_starred(steps[:end])) for end in range(len(steps), -1, -1))
    return next(f"arg:{storable(pointer)}" for pointer in pointers if len(pointer) <= MAX_FAULT_CHARS)


def _starred(steps: Sequence[str | int]) -> list[str]:
    return ["*" if isinstance(step, int) else step for step in steps]


def _name_in(said: Mapping[str, Any]) -> str:
    name = said.get("tool")
    return storable(name)[:MAX_FAULT_CHARS] if isinstance(name, str) else ""


def _cut(faults: set[str]) -> tuple[str, ...]:
    return tuple(sorted(faults)[:MAX_FAULTS])


def _read_correction(correction: Correction) -> Mapping[str, Any]:
    value = _read(correction) if isinstance(correction, str) else correction
    if isinstance(correction, Mapping):
        try:
            value = exact(correction)
        except JsonError:
            value = None
    return value if isinstance(value, Mapping) else {}


def _read(text: str | None) -> Any:
    """The value of a JSON text; ABSENT where there is none that can be read."""
    if text is None:
        return ABSENT
    try:
        return read_exact(text)
    except JsonError as error:
        return _read_last(text) if error.code == "duplicate_key" else ABSENT


def _read_last(text: str) -> Any:
    """The value of a text in which a name stands twice: the last one counts, as it did when the call was made."""
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return ABSENT
