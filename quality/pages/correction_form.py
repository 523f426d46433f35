"""The form in which a reviewer says what would have been right. It takes the place of the labels' buttons.

Arguments are filled into the fields of the tool's schema, or written as JSON. What is left as it was keeps the spelling
of the call, what is typed keeps that of the reviewer.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from engine.strict_json import JsonError as StrictJsonError
from engine.strict_json import read_json
from engine.visible import visible
from quality.ingest.jsontext import JsonError, Node, dump, parse
from quality.models import Feedback, Label
from quality.pages.argument_form import ArgumentForm, ChoiceOfJson, JsonField, argument_form
from quality.pages.diff import Line, diff
from quality.review.corrections import MEMBERS, Subject, checked, members
from quality.review.evidence import ItemEvidence
from quality.review.offered import OfferedTool
from quality.stored import json_sent, on_stored

ASKED = {
    Label.WRONG_TOOL: _("Which tool was called for?"),
    Label.MISSING_TOOL: _("Which call is missing, and where?"),
    Label.BAD_ARGS: _("Which arguments would have been right?"),
    Label.OTHER: _("What is it?"),
}
NO_ARGUMENTS, FIELDS, JSON = "", "fields", "json"
MAX_TOOLS = 300


class Unfinished(Exception):
    """What was filled in is no correction yet: the form says why."""


class CorrectionForm:
    """The correction of one label on one item, as it is shown and as it was sent (`data`)."""

    def __init__(
        self, label: str, found: ItemEvidence, *, mine: Feedback | None = None, data: Mapping[str, str] | None = None
    ) -> None:
        self.label, self.found, self.data = Label(label), found, data
        self.asked = ASKED[self.label]
        known = MEMBERS[label]
        self.asks_tool, self.asks_place = "tool" in known, "position" in known
        self.takes_arguments = "arguments" in known
        self.asks_note_again = False
        self._faults: dict[str, list[str]] = {}
        before = members(mine.correction) if mine and mine.label == label else {}
        self.tool, self.not_offered, self.place = self._chosen(before)
        self.mode = self._mode(before)
        self._corrected = before.get("arguments")

    def _chosen(self, before: Mapping[str, Node]) -> tuple[str, bool, str]:
        if self.data is not None:
            get = self.data.get
            return str(get("tool") or "").strip(), bool(get("not_offered")), str(get("place") or "")
        tool, offered, place = (before.get(name) for name in ("tool", "offered", "position"))
        chosen = f"{place.value['cycle']}.{place.value['index']}" if place else ""
        if not place and not self.found.call:
            chosen = f"{self.found.item.cycle}.0"
        return str(tool.value) if tool else "", bool(offered and offered.value is False), chosen

    def _mode(self, before: Mapping[str, Node]) -> str:
        """How arguments are shown; of another tool only when they are asked for."""
        if not self.takes_arguments:
            return NO_ARGUMENTS
        wanted = str(self.data.get("as") or self.data.get("mode") or "") if self.data is not None else FIELDS
        if self.data is None and self.label != Label.BAD_ARGS and "arguments" not in before:
            return NO_ARGUMENTS
        if wanted == FIELDS and not self._has_fields:
            return JSON
        return wanted if wanted in (NO_ARGUMENTS, FIELDS, JSON) else NO_ARGUMENTS

    @cached_property
    def _parameters(self) -> Mapping[str, Any]:
        name = self._tool_name
        return next((tool.parameters for tool in self.found.tools if tool.name == name), None) or {}

    @property
    def _tool_name(self) -> str:
        if self.label == Label.BAD_ARGS:
            return self.found.call.call.tool_name if self.found.call else ""
        return self.tool

    @property
    def _has_fields(self) -> bool:
        call = self.found.call
        if self.label == Label.BAD_ARGS and call and call.args and call.args.cut:
            return False  # nobody fills in again what is too long for a page
        return isinstance(self._parameters.get("properties"), Mapping) and bool(self._parameters["properties"])

    @property
    def can_switch(self) -> bool:
        """Is there another way to write the arguments, or a way to write them at all?"""
        return self.takes_arguments and (self._has_fields or self.mode == NO_ARGUMENTS)

    # What there is to choose from

    @cached_property
    def tools(self) -> list[OfferedTool]:
        """Those that can be named: not the one that was called, if it is the wrong one."""
        called = self.found.call.call.tool_name if self.found.call and self.label == Label.WRONG_TOOL else None
        return [tool for tool in self.found.tools if tool.name != called][:MAX_TOOLS]

    @cached_property
    def places(self) -> list[tuple[str, str]]:
        """Before which call, or at the end of which cycle, the missing one belongs."""
        calls: dict[int, list[str]] = {cycle: [] for cycle in range(max(1, self.found.turn.num_cycles))}
        choices = [] if not self.found.call and len(calls) == 1 else [("", gettext("not said"))]
        for sibling in self.found.siblings:
            calls.setdefault(sibling.cycle, []).append(sibling.tool_name)
        for cycle, names in calls.items():
            for index, name in enumerate(names):
                before = gettext("cycle %(cycle)s: before %(tool)s") % {"cycle": cycle, "tool": name}
                choices.append((f"{cycle}.{index}", before))
            end = (
                gettext("cycle %(cycle)s: after the last call")
                if names
                else gettext("cycle %(cycle)s: in place of the reply")
            )
            choices.append((f"{cycle}.{len(names)}", end % {"cycle": cycle}))
        return choices

    # Arguments

    @cached_property
    def actual(self) -> dict[str, Node]:
        """The arguments of the call, as they are spelled; none where they cannot be laid out."""
        call = self.found.call
        if self.label != Label.BAD_ARGS or call is None or call.args is None or call.args.cut:
            return {}
        return members(call.args.text)

    @cached_property
    def _told(self) -> dict[str, str]:
        """What each field would hold of the call's own arguments."""
        form, _ = self._form(self.actual)
        return {name: str(field.initial or "") for name, field in form.fields.items()}

    def _form(
        self, begin: Mapping[str, Node], data: Mapping[str, str] | None = None
    ) -> tuple[ArgumentForm, dict[str, Node]]:
        """The fields, and what of the arguments they have no way to hold, such as a text where a number belongs."""
        form = argument_form(self._parameters, data, values=_values(begin), auto_id="with-%s")
        others = members(form.fields["more"].initial or "{}")
        declared = set(form.names.values())
        if declared & others.keys():
            rest = {name: node for name, node in others.items() if name not in declared}
            form.fields["more"].initial = _one_line(rest) if rest else None
        return form, {name: begin[name] for name in others if name in declared}

    @cached_property
    def fields(self) -> ArgumentForm | None:
        """The fields of the schema, filled in; each knows what the call had (`data-actual`)."""
        if self.mode != FIELDS:
            return None
        begin = members(self._corrected.text) if self._corrected else self.actual
        is_sent = self.data is not None and self.data.get("mode") == FIELDS
        if not is_sent and self.data is not None:
            begin = self._from_json(begin)
        form, _ = self._form(begin, self.data if is_sent else None)
        _, unheld = self._form(self.actual)
        form.use_required_attribute = False  # the server says what is missing, beside the field
        for name, field in form.fields.items():
            was = unheld.get(form.names.get(name, ""))
            told = visible(was.text) if was else self._told[name]
            field.widget.attrs |= {"data-actual": told, "data-name": visible(form.names.get(name, "…"))}
            if was:
                field.widget.attrs["placeholder"] = told
            if isinstance(field.widget, forms.Textarea) and not isinstance(field, JsonField) and name != "more":
                field.widget.attrs["rows"] = 2
        first = self._first_field(form)
        if first:
            form.fields[first].widget.attrs["autofocus"] = True
        return form

    def _from_json(self, otherwise: dict[str, Node]) -> dict[str, Node]:
        """What was written as JSON before the fields were asked for."""
        text = str(self.data.get("json") or "") if self.data is not None else ""
        return members(text) if text.strip() else otherwise

    def _first_field(self, form: ArgumentForm) -> str | None:
        """The first that the schema complains of, else the first."""
        table = self.found.call.table if self.found.call and self.label == Label.BAD_ARGS else None
        bad = {row.name for row in table.rows if row.status in ("invalid", "missing")} if table else set()
        return next((field for field, name in form.names.items() if name in bad), next(iter(form.fields), None))

    @property
    def json_told(self) -> str:
        """The call's own arguments, for the JSON beside which a change shows."""
        return _pretty(self.actual) if self.actual else ""

    @cached_property
    def json_text(self) -> str:
        if self.data is not None and self.data.get("mode") == JSON:
            return str(self.data.get("json") or "").replace("\r\n", "\n")
        if self.data is not None and self.data.get("mode") == FIELDS:
            form = argument_form(self._parameters, self.data)
            if form.is_valid():
                return _pretty(members(self._of_fields(form)))
        if self._corrected:
            return _pretty(members(self._corrected.text))
        return self.json_told

    @property
    def lines(self) -> list[Line]:
        """What changes, line by line, as far as it can be read."""
        if self.label != Label.BAD_ARGS or self.mode == NO_ARGUMENTS:
            return []
        new = self.json_text
        if self.mode == FIELDS and self.fields is not None:
            begin = members(self._corrected.text) if self._corrected else self.actual
            new = _pretty(begin)
            if self.fields.is_bound and self.fields.is_valid():
                new = _pretty(members(self._of_fields(self.fields)))
        return [line for line in diff(self.json_told, new) if line.kind != "same"]

    def _of_fields(self, form: ArgumentForm) -> str:
        pieces: dict[str, str] = {}
        for field, name in form.names.items():
            text = str(form.data.get(field) or "").replace("\r\n", "\n")
            if text and text == self._told[field] and name in self.actual:
                pieces[name] = self.actual[name].text
            elif text:
                pieces[name] = _spelled(form.fields[field], text, form.cleaned_data[field])
        rest = str(form.data.get("more") or "").strip()
        kept = self.actual if rest and rest == self._told["more"] else {}
        for name, node in members(rest).items():
            pieces.setdefault(name, kept[name].text if name in kept else node.text)
        return "{" + ", ".join(f"{dump(name)}: {piece}" for name, piece in pieces.items()) + "}"

    def _of_json(self) -> str | None:
        text = self.json_text.strip()
        if not text:
            return None
        try:
            node = parse(text.encode())
        except (JsonError, UnicodeEncodeError) as error:
            why = getattr(error, "message", gettext("no Unicode text"))
            self._fault("arguments", gettext("This is not JSON: %(why)s") % {"why": why})
            raise Unfinished from error
        if not isinstance(node.value, dict):
            self._fault("arguments", gettext("Arguments are a JSON object."))
            raise Unfinished
        return node.text

    # What was sent

    def correction(self) -> str | None:
        """The correction as JSON text, None if nothing was said. Raises Unfinished."""
        try:
            return self._read()
        except Unfinished:
            self._focus_fault()
            raise

    def _focus_fault(self) -> None:
        """The first field that something is wrong with is where to go on."""
        if self.fields is None or not self.fields.errors:
            return
        first = next((name for name in self.fields.fields if name in self.fields.errors), None)
        for name, field in self.fields.fields.items():
            field.widget.attrs["autofocus"] = name == first

    def _read(self) -> str | None:
        pieces = []
        if self.asks_tool and self.tool:
            pieces.append(f'"tool": {dump(self.tool)}')
            if self.not_offered and self.tool not in {tool.name for tool in self.found.tools}:
                pieces.append('"offered": false')
        if self.asks_place and self.place:
            cycle, _, index = self.place.partition(".")
            if not (cycle.isdecimal() and index.isdecimal() and len(self.place) < 12):
                self._fault("place", gettext("Choose one of the places."))
                raise Unfinished
            pieces.append(f'"position": {{"cycle": {int(cycle)}, "index": {int(index)}}}')
        arguments = self._arguments()
        if arguments is not None:
            pieces.append(f'"arguments": {arguments}')
        text = "{" + ", ".join(pieces) + "}" if pieces else None
        try:
            kept = text and json_sent("correction", text)
            with on_stored():
                return checked(self.label, kept, Subject(self.found.item))
        except ValidationError as error:
            for path, faults in error.error_dict.items():
                for fault in faults:
                    self._tell(path.removeprefix("correction").removeprefix("."), " ".join(fault.messages))
            raise Unfinished from error

    def _arguments(self) -> str | None:
        if self.mode == JSON:
            return self._of_json()
        if self.mode != FIELDS or self.fields is None:
            return None
        if self.actual and all(
            str(self.fields.data.get(name) or "").replace("\r\n", "\n") == told for name, told in self._told.items()
        ):
            return None  # left as it was
        if not self.fields.is_valid():
            raise Unfinished
        return self._of_fields(self.fields)

    def _tell(self, path: str, message: str) -> None:
        """Put a fault beside the field that it is about."""
        kind, _, rest = path.partition(".")
        if kind != "arguments":
            self._fault({"tool": "tool", "offered": "tool", "position": "place"}.get(kind, ""), message)
            return
        if self.mode == FIELDS and self.fields is not None:
            for field, name in self.fields.names.items():
                if rest == name or rest.startswith(f"{name}."):
                    inner = rest[len(name) + 1 :]
                    self.fields.add_error(field, f"{inner}: {message}" if inner else message)
                    return
            self.fields.add_error("more", f"{rest}: {message}" if rest else message)
            return
        self._fault("arguments", f"{rest}: {message}" if rest else message)

    def _fault(self, where: str, message: str) -> None:
        self._faults.setdefault(where, []).append(message)

    @property
    def whole(self) -> list[str]:
        """Faults of no field."""
        return self._faults.get("", [])

    @property
    def tool_faults(self) -> list[str]:
        return self._faults.get("tool", [])

    @property
    def place_faults(self) -> list[str]:
        return self._faults.get("place", [])

    @property
    def argument_faults(self) -> list[str]:
        return self._faults.get("arguments", [])


def _values(nodes: Mapping[str, Node]) -> dict[str, Any]:
    values = {}
    for name, node in nodes.items():
        try:
            values[name] = read_json(node.text)
        except StrictJsonError:
            values[name] = node.value
    return values


def _spelled(field: forms.Field, text: str, value: Any) -> str:
    """A value as JSON, numbers as they were typed."""
    if isinstance(field, JsonField | ChoiceOfJson):
        return text.strip()
    if isinstance(field, forms.IntegerField):  # a FloatField is one, too
        try:
            return parse(text.strip().encode()).text
        except JsonError:
            return dump(value)
    return dump(text)


def _one_line(nodes: Mapping[str, Node]) -> str:
    return "{" + ", ".join(f"{dump(name)}: {node.text}" for name, node in nodes.items()) + "}"


def _pretty(nodes: Mapping[str, Node]) -> str:
    """An object on several lines, its numbers as they are spelled."""
    return "\n".join(["{", *_lines(nodes), "}"]) if nodes else "{}"


def _lines(nodes: Mapping[str, Node]) -> Iterator[str]:
    last = len(nodes) - 1
    for number, (name, node) in enumerate(nodes.items()):
        yield f"  {json.dumps(name, ensure_ascii=False)}: {node.text}{'' if number == last else ','}"
