"""What would have been right, as a reviewer says it: `{"tool", "offered", "arguments", "position"}`, all optional.

Each label takes some of these members. What they say is checked against the item and against the tools that the model
was offered: what was not recorded is not checked. All functions need an open tenant scope.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from engine.errors import ToolError
from engine.schema import compiled
from engine.strict_json import JsonError as StrictJsonError
from engine.text import truncate
from quality.cases.values import equal, read_exact
from quality.ingest.jsontext import JsonError, Node, dump, parse, storable
from quality.ingest.records import MAX_NAME_CHARS
from quality.models import Label, ToolCall, Toolset, Turn
from quality.review.arguments import MAX_CHECKED_CHARS
from quality.review.items import Item
from quality.review.offered import OfferedTool, offered_tools

MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    Label.WRONG_TOOL: ("tool", "offered", "arguments"),
    Label.BAD_ARGS: ("arguments",),
    Label.MISSING_TOOL: ("tool", "offered", "position", "arguments"),
    Label.GOOD_REPLY: (),
    Label.OTHER: (),
}
_INSTEAD = {
    Label.GOOD_REPLY: "What was right takes no correction.",
    Label.OTHER: "With this label, say it in the note.",
    Label.BAD_ARGS: "With this label the tool was right. Where it was not, the label is wrong_tool.",
    Label.WRONG_TOOL: "Where a call was needed beside this one, the label is missing_tool.",
}


class Subject:
    """What a label on an item speaks of. Each part is read when it is first asked for."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.tool_name = item.tool_name

    @cached_property
    def _row(self) -> dict[str, Any]:
        columns = ("style_id", "toolset_id")
        if self.item.call_id is None:
            return Turn.objects.values(*columns).get(pk=self.item.turn_id)
        return ToolCall.objects.values(*columns).get(pk=self.item.call_id)

    @property
    def style_id(self) -> str:
        return str(self._row["style_id"])

    @cached_property
    def args(self) -> str | None:
        """The arguments as JSON text; None where there was no call, or nothing was recorded."""
        if self.item.call_id is None:
            return None
        return ToolCall.objects.values_list("args", flat=True).get(pk=self.item.call_id)

    @cached_property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tools offered then; none where that was not recorded."""
        toolset_id = self._row["toolset_id"]
        if toolset_id is None and self.item.call_id is not None:
            toolset_id = Turn.objects.values_list("toolset_id", flat=True).get(pk=self.item.turn_id)
        found = Toolset.objects.filter(pk=toolset_id).values_list("tools", flat=True).first() if toolset_id else None
        return offered_tools(found) if found else ()

    @cached_property
    def num_cycles(self) -> int:
        return max(1, Turn.objects.values_list("num_cycles", flat=True).get(pk=self.item.turn_id))

    def num_calls(self, cycle: int) -> int:
        return ToolCall.objects.filter(turn_id=self.item.turn_id, cycle=cycle).count()

    def parameters(self, name: str) -> Mapping[str, Any] | None:
        """The schema that the model read for a tool; None if it was not offered, or had none."""
        return next((tool.parameters for tool in self.tools if tool.name == name), None)


def checked(label: str, text: str | None, subject: Subject) -> str | None:
    """A correction (JSON text) as it is kept, spelled as it was sent; None if it says nothing.

    Raises ValidationError with every fault by its path, such as `correction.arguments.days.0`.
    """
    if text is None:
        return None
    try:
        root = parse(text.encode())
    except (JsonError, UnicodeEncodeError) as error:
        code, message = getattr(error, "code", "malformed_json"), getattr(error, "message", "This is no Unicode text.")
        raise ValidationError({"correction": ValidationError(message, code=code)}) from error
    if not isinstance(root.value, dict):
        raise ValidationError(
            {"correction": ValidationError(_("The correction must be an object."), code="not_an_object")}
        )
    if not root.value:
        return None
    check = _Check(label, root, subject)
    check.run()
    if check.faults:
        raise ValidationError(check.faults)
    return None if check.says_nothing() else root.text


class _Check:
    """One correction's faults, by path."""

    def __init__(self, label: str, root: Node, subject: Subject) -> None:
        self.label, self.subject = label, subject
        self.root, self.value = root, root.value
        self.faults: dict[str, list[ValidationError]] = {}

    def run(self) -> None:
        known = MEMBERS[self.label]
        for name in self.value:
            if name not in known:
                words = f"It takes {', '.join(known)}. " if known else ""
                self._fault(name, "unknown_member", f"{words}{_INSTEAD.get(Label(self.label), '')}".strip())
        if "tool" in known:
            self._check_tool()
        if "position" in self.value and "position" in known:
            self._check_position(self.value["position"])
        if "arguments" in self.value and "arguments" in known:
            self._check_arguments(self.value["arguments"])

    def says_nothing(self) -> bool:
        """Are these the arguments that the call had?"""
        if self.label != Label.BAD_ARGS or self.subject.args is None:
            return False
        try:
            actual = read_exact(self.subject.args)
            return equal(actual, read_exact(self.root.members["arguments"].text))
        except StrictJsonError:
            return False

    def _fault(self, path: str, code: str, message: str) -> None:
        where = storable(f"correction.{path}" if path else "correction")
        self.faults.setdefault(where, []).append(ValidationError(storable(message), code=code))

    def _check_tool(self) -> None:
        name, offered = self.value.get("tool"), self.value.get("offered")
        if "offered" in self.value and not isinstance(offered, bool):
            self._fault("offered", "not_a_boolean", "Say true or false.")
        if "tool" not in self.value:
            if "offered" in self.value:
                self._fault("offered", "without_tool", "Name the tool that this is said of.")
            return
        if not isinstance(name, str) or not name.strip():
            self._fault("tool", "not_a_name", "Name a tool.")
        elif len(name) > MAX_NAME_CHARS:
            self._fault("tool", "too_long", f"The name has {len(name):,} characters; the limit is {MAX_NAME_CHARS}.")
        elif name != storable(name):
            self._fault("tool", "unstorable", "The name holds a NUL character or half a surrogate pair. Take it out.")
        elif self.label == Label.WRONG_TOOL and name == self.subject.tool_name:
            self._fault("tool", "same_tool", "That is the tool that was called. For its arguments, use bad_args.")
        elif self.subject.tools:
            self._check_offer(name, offered)

    def _check_offer(self, name: str, offered: Any) -> None:
        names = [tool.name for tool in self.subject.tools]
        if name in names and offered is False:
            self._fault("offered", "was_offered", f"{name} was among the tools offered.")
        elif name not in names and offered is not False:
            few = truncate(", ".join(names), 300)
            message = f"{name} was not offered. Offered were: {few}. If it is meant all the same, send offered: false."
            self._fault("tool", "not_offered", message)

    def _check_position(self, position: Any) -> None:
        if not isinstance(position, dict):
            self._fault("position", "not_an_object", 'Say it as {"cycle": 0, "index": 0}.')
            return
        for name in position:
            if name not in ("cycle", "index"):
                self._fault(f"position.{name}", "unknown_member", "A position has cycle and index.")
        for name in ("cycle", "index"):
            if name not in position:
                self._fault(f"position.{name}", "required", f"Say the {name}, from 0.")
            elif type(position[name]) is not int or position[name] < 0:
                self._fault(f"position.{name}", "not_a_place", "Use a whole number from 0.")
        if any(path.startswith("correction.position") for path in self.faults):
            return
        cycle, index = position["cycle"], position["index"]
        if cycle >= self.subject.num_cycles:
            last = self.subject.num_cycles - 1
            self._fault("position.cycle", "no_such_cycle", f"The turn's last cycle is {last}.")
        elif index > (num_calls := self.subject.num_calls(cycle)):
            self._fault("position.index", "no_such_place", f"After the calls of that cycle is {num_calls}.")

    def _check_arguments(self, arguments: Any) -> None:
        if not isinstance(arguments, dict):
            self._fault("arguments", "not_an_object", "The arguments must be an object.")
            return
        if self.label == Label.BAD_ARGS:
            name = self.subject.tool_name
        else:
            name = self.value.get("tool")
            if name is None:
                self._fault("tool", "required", "Name the tool that these arguments are for.")
                return
        if isinstance(name, str):
            for steps, message in unfit(self.subject.parameters(name), arguments):
                self._fault(".".join(("arguments", *map(str, steps))), "unfit", message)


def unfit(
    parameters: Mapping[str, Any] | None, arguments: Mapping[str, Any]
) -> list[tuple[tuple[str | int, ...], str]]:
    """Where and why arguments do not fit a schema. Empty where it cannot be asked: it is broken, or they are huge."""
    if parameters is None or len(dump(arguments)) > MAX_CHECKED_CHARS:
        return []
    try:
        schema = compiled(parameters)
    except ToolError:
        return []
    found: dict[tuple[str | int, ...], str] = {}
    for fault in schema.faults(arguments):
        for place in fault.places:
            found.setdefault(place, _said_there(fault.reason))
    return list(found.items())


def _said_there(reason: str) -> str:
    """A reason as it is said beside the value itself."""
    if reason.endswith("is a required property"):
        return "This is required."
    return "The tool has no such argument." if reason.startswith("Additional properties") else reason


MAX_CHANGES = 20
MAX_SHOWN = 200  # characters of a value


@dataclass(frozen=True, kw_only=True)
class Change:
    """One argument that was corrected: its name, and both values as JSON text; None where it is not there."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, kw_only=True)
class Said:
    """A correction as people read it. `changes` are against the arguments of the call; without those, `arguments`."""

    tool: str = ""
    was_offered: bool = True
    place: str = ""
    changes: tuple[Change, ...] = ()
    arguments: tuple[Change, ...] = ()
    hidden: int = 0


def said(label: str, text: str | None, args: str | None) -> Said | None:
    """What a correction (JSON text as kept) says; `args` are the call's. None: nothing. Never raises on evidence."""
    value, actual = members(text), members(args)
    if not value or label not in MEMBERS:
        return None
    tool, place = value.get("tool"), value.get("position")
    corrected = members(value["arguments"].text) if "arguments" in value else {}
    is_diff = label == Label.BAD_ARGS and bool(actual)
    rows = _changes(actual if is_diff else {}, corrected)
    return Said(
        tool=str(tool.value) if tool else "",
        was_offered="offered" not in value or value["offered"].value is not False,
        place=_place(place.value) if place else "",
        changes=rows[:MAX_CHANGES] if is_diff else (),
        arguments=() if is_diff else rows[:MAX_CHANGES],
        hidden=max(0, len(rows) - MAX_CHANGES),
    )


def members(text: str | None) -> dict[str, Node]:
    """The members of a JSON object as they are spelled; none where it is no object, or cannot be read."""
    if text is None:
        return {}
    try:
        return parse(text.encode(), repeated_keys=True).members
    except (JsonError, UnicodeEncodeError):
        return {}


def _changes(actual: Mapping[str, Node], corrected: Mapping[str, Node]) -> tuple[Change, ...]:
    return tuple(
        Change(name=name, old=_short(actual.get(name)), new=_short(corrected.get(name)))
        for name in dict.fromkeys([*actual, *corrected])
        if not same(actual.get(name), corrected.get(name))
    )


def same(left: Node | None, right: Node | None) -> bool:
    """Do two values mean the same?"""
    if left is None or right is None:
        return left is right
    try:
        return equal(read_exact(left.text), read_exact(right.text))
    except StrictJsonError:
        return left.text == right.text


def _short(node: Node | None) -> str | None:
    return None if node is None else truncate(node.text, MAX_SHOWN)


def _place(position: Any) -> str:
    if not isinstance(position, dict):
        return ""
    return f"cycle {position.get('cycle')}, before index {position.get('index')}"
