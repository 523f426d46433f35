"""From a reviewer's label and correction to an expectation, as a proposal that the reviewer sees and edits.

A correction is `{"tool": name, "offered": bool, "arguments": {…}, "position": {"cycle": 0, "index": 1}}`, all members
optional; `position` belongs to `missing_tool` alone.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from engine.strict_json import JsonError
from quality.cases import moments
from quality.cases.sample import Call
from quality.cases.toolset import Toolset, arguments_of
from quality.cases.values import ABSENT, equal, exact, plain, pointer_to

LABELS: Final = ("good_reply", "wrong_tool", "missing_tool", "bad_args", "other")

_ONE_ATTEMPT = re.compile(
    r"(^|_)(idempotency|dedup\w*|request|correlation|trace|span|attempt)_?(key|id|token)$|^nonce$"
)
_CLOCK = re.compile(
    r"(^|_)(timestamp|ts|now)$|^(created|updated|sent|requested|issued|logged)_(at|on|time)$|^current_(time|date)$"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}|[0-7][0-9A-HJKMNP-TV-Z]{25}")
_CREATES = re.compile(r"^(create|add|new|insert|register|open|book|generate|start|make|issue|post)_|_(create|add|new)$")
_PROSE = re.compile(r"(^|_)(message|body|text|notes?|comment|description|summary|reason|subject|content|title|prompt)$")
_AROUND_NOW = timedelta(minutes=10)
_MANY_WORDS = 6


@dataclass(frozen=True, slots=True)
class Note:
    """Why a part of a proposal is as it is; `path` is a JSON pointer into the expectation."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """`expectation` is None where a label makes no case by itself."""

    expectation: dict[str, Any] | None
    notes: tuple[Note, ...] = ()


def expectation_for(
    label: str,
    correction: Mapping[str, Any] | None,
    call: Mapping[str, Any] | None,
    *,
    can_judge: bool = False,
) -> Proposal:
    """Propose what a case should expect.

    `call` is the labelled one: `name`, `arguments` (JSON text or an object), `tools` (as offered); optional are
    `messages` (what the model read, as text: values from there are no inventions), `now` (when it was made) and
    `beside` (the other calls of the same reply, each with a `name`). None: the model answered without a call.
    `can_judge`: a judging model is at hand for free text.
    """
    asked = _Correction.read(correction)
    draft = _Draft(call or {}, can_judge)
    if label == "good_reply":
        return draft.as_it_was()
    if label == "missing_tool":
        return draft.missing(asked)
    if label in ("wrong_tool", "bad_args"):
        if asked.tool or asked.arguments is not None:
            return draft.corrected(asked, label)
        return draft.forbidden(label)
    return Proposal(None, (Note("", 'A label "other" makes no case by itself: say in an expectation what is right.'),))


@dataclass(frozen=True, slots=True)
class _Correction:
    tool: str
    arguments: dict[str, Any] | None
    offered: bool

    @classmethod
    def read(cls, correction: Mapping[str, Any] | None) -> "_Correction":
        """What is not of the right type was not said."""
        given = correction if isinstance(correction, Mapping) else {}
        tool, arguments = given.get("tool"), given.get("arguments")
        try:
            read = exact(arguments) if isinstance(arguments, Mapping) else None
        except (JsonError, RecursionError):
            read = None
        return cls(
            tool if isinstance(tool, str) else "",
            read,
            given.get("offered") is not False,
        )


class _Draft:
    """One proposal in the making."""

    def __init__(self, call: Mapping[str, Any], can_judge: bool) -> None:
        self.name = str(call.get("name") or "")
        self.tools = Toolset.read(call.get("tools"))
        self.can_judge = can_judge
        self.messages = _text(call.get("messages"))
        self.now = _moment(call.get("now"))
        beside = call.get("beside")
        self.beside = [each for each in beside if isinstance(each, Mapping)] if isinstance(beside, list | tuple) else []
        self.notes: list[Note] = []
        try:
            self.made: dict[str, Any] | None = arguments_of(Call("", call.get("arguments")))
        except (JsonError, RecursionError):
            self.made = None

    def as_it_was(self) -> Proposal:
        if not self.name:
            self.note("/calls", "The model was right to call nothing.")
            return self.propose({"calls": {"mode": "none"}})
        if self.made is None:
            self.note("", "The arguments of this call cannot be read, so there is nothing to expect of them.")
            return Proposal(None, tuple(self.notes))
        return self.first(self.step(self.name, self.made))

    def corrected(self, asked: _Correction, label: str) -> Proposal:
        tool = asked.tool or self.name
        if asked.tool and not asked.offered:
            self.note(
                "/calls/steps/0/tool",
                "This tool was not offered then: no model can pass before the case's tools have it.",
            )
        arguments = asked.arguments
        if arguments is None and label == "bad_args" and tool == self.name:
            return self.forbidden(label)
        return self.first(self.step(tool, arguments))

    def missing(self, asked: _Correction) -> Proposal:
        if not asked.tool:
            self.note("/calls", "Which tool was missing is not said, so any call will do.")
            return self.propose({"calls": {"mode": "any"}})
        self.note("/calls/mode", "The missing call has to be made; others may be made beside it.")
        return self.propose({"calls": {"mode": "contains", "steps": [self.step(asked.tool, asked.arguments)]}})

    def forbidden(self, label: str) -> Proposal:
        """Without a correction all that is known is what was wrong."""
        if not self.name:
            return Proposal(None, (Note("", "There is no call that could be forbidden."),))
        if self.made is None:
            self.note("/calls/steps/0", "The arguments could not be read, so a call that can run is expected.")
            step = {"tool": self.name, "extra_args": "allow"}
            return self.propose({"calls": {"mode": "first", "steps": [step]}})
        args = {}
        for name, value in self.made.items():
            why = self._volatile(name, value, self.name)
            why = why or ("free text is never written twice alike." if self._is_prose(name, value, self.name) else "")
            if why and len(self.made) > 1:
                self.note("/forbid/0/args", f"{name} is left out: {why}")
                continue
            args[_key(name)] = _same(value)
        what = "this call" if label == "wrong_tool" else "these arguments"
        self.note("/forbid/0", f"What is right was not said, so only {what} must not come again.")
        self.note("/calls/mode", "Only the first model reply is looked at.")
        entry = {"tool": self.name, "args": args} if args else {"tool": self.name}
        return self.propose({"calls": {"mode": "first"}, "forbid": [entry]})

    def first(self, step: dict[str, Any]) -> Proposal:
        """The first model reply alone, with the calls that stood beside."""
        steps = [step]
        for each in self.beside:
            if isinstance(each.get("name"), str):
                self.note(
                    f"/calls/steps/{len(steps)}", "This call was made in the same reply; its arguments are not judged."
                )
                steps.append({"tool": each["name"], "extra_args": "allow"})
        return self.propose({"calls": {"mode": "first", "steps": steps}})

    def step(self, tool: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        if arguments is None:
            self.note("/calls/steps/0/extra_args", "The right arguments are not said, so any will do.")
            return {"tool": tool, "extra_args": "allow"}
        args = {}
        for name, value in arguments.items():
            path = f"/calls/steps/0/args{pointer_to(_key(name))}"
            args[_key(name)] = self.matcher(name, value, tool, path)
        return {"tool": tool, "args": args} if args else {"tool": tool}

    def matcher(self, name: str, value: Any, tool: str, path: str) -> Any:
        """What the value of an argument should be: itself, unless it is not the same every time."""
        before = (self.made or {}).get(name, ABSENT)
        chosen = before is not ABSENT and not equal(before, value)  # by the reviewer, against what the model wrote
        if why := self._volatile(name, value, tool):
            if chosen:
                self.note(path, f"Kept, because the reviewer set it; otherwise it would be ignored: {why}")
                return _same(value)
            self.note(path, f"Ignored: {why}")
            return {"ignore": True}
        if self._is_prose(name, value, tool):
            return self._prose(name, value, path, chosen=chosen)
        if isinstance(value, dict) and any(self._volatile(inner, item, tool) for inner, item in value.items()):
            fields = {
                inner: self._field(inner, item, tool, f"{path}/object/fields{pointer_to(inner)}")
                for inner, item in value.items()
            }
            return {"object": {"fields": fields}}
        if isinstance(value, str) and isinstance(moments.read(value), datetime):
            self.note(path, 'A time: if the user said "tomorrow", use a date that is told from the case\'s now.')
        return _same(value)

    def _field(self, name: str, value: Any, tool: str, path: str) -> Any:
        if why := self._volatile(name, value, tool):
            self.note(path, f"Ignored: {why}")
            return {"ignore": True}
        return _same(value)

    def _volatile(self, name: str, value: Any, tool: str) -> str:
        """Why a value is another one each time, or nothing. What stands in the conversation is no invention."""
        if not isinstance(value, str | int | Decimal) or isinstance(value, bool):
            return ""
        word = _snake(name)
        if _ONE_ATTEMPT.search(word):
            return "it names one attempt, and the next has another."
        if self.messages and str(value) in self.messages:
            return ""
        if self._is_clock(word, value):
            return "it is the time of the call."
        if _is_new_id(word, _snake(tool)):
            return "it names what this call creates, and each call creates another."
        is_random = isinstance(value, str) and _UUID.fullmatch(value) and re.search("[0-9]", value)
        return "it is a random identifier." if is_random else ""

    def _is_clock(self, word: str, value: Any) -> bool:
        """Named as the time of the call; or an instant near to it."""
        read = moments.read(value) if isinstance(value, str) else None
        if _CLOCK.search(word):
            return read is not None or not isinstance(value, str)
        return (
            self.now is not None and isinstance(read, datetime) and moments.near(read, self.now, _AROUND_NOW, self.now)
        )

    def _is_prose(self, name: str, value: Any, tool: str) -> bool:
        if not isinstance(value, str):
            return False
        properties = (self.tools.parameters(tool) or {}).get("properties")
        schema = properties.get(name) if isinstance(properties, Mapping) else None
        if isinstance(schema, Mapping) and any(key in schema for key in ("enum", "const", "pattern", "format")):
            return False
        num_words = len(value.split())
        return num_words >= _MANY_WORDS or (num_words >= 2 and bool(_PROSE.search(_snake(name))))

    def _prose(self, name: str, value: str, path: str, *, chosen: bool) -> Any:
        if self.can_judge:
            self.note(path, "Free text: a judging model compares what it means.")
            return {"judge": {"rubric": f"Says the same as the text of {name}, in whatever words.", "of": value}}
        if chosen:
            self.note(path, "Free text that the reviewer set: compared without case, blanks and punctuation.")
            folds = {"case": "fold", "space": "collapse", "trim": True, "unicode": "nfkc", "punct": "ignore"}
            return {"text": {"of": value, **folds}}
        self.note(path, "Ignored: free text, which no two models write alike.")
        return {"ignore": True}

    def note(self, path: str, why: str) -> None:
        self.notes.append(Note(path, why))

    def propose(self, expectation: dict[str, Any]) -> Proposal:
        return Proposal({"version": 1, **expectation}, tuple(self.notes))


def _same(value: Any) -> Any:
    """A matcher for exactly this value. A fraction of more digits than a double holds is met within its precision."""
    if isinstance(value, Decimal) and Decimal(repr(float(value))) != value:
        return {"number": {"of": float(value), "rel": 1e-15}}
    return {"equal": plain(value)}


def _key(name: str) -> str:
    """How an argument is named in `args`: what begins with a slash would be read as a pointer."""
    return pointer_to(name) if name.startswith("/") else name


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]", "_", name).lower()


def _is_new_id(word: str, tool: str) -> bool:
    """`order_id` of `create_order`; a bare `id` of anything that creates."""
    if not _CREATES.search(tool):
        return False
    if word in ("id", "uid", "uuid", "guid"):
        return True
    noun = re.sub(r"_(id|uuid|uid|ref|number)$", "", word)
    return noun != word and noun in tool


def _text(messages: Any) -> str:
    if isinstance(messages, str):
        return messages
    try:
        return json.dumps(messages, ensure_ascii=False) if messages else ""
    except (TypeError, ValueError, RecursionError):
        return ""


def _moment(now: Any) -> datetime | None:
    read = moments.read(now) if isinstance(now, str) else now
    return read if isinstance(read, datetime) else None
