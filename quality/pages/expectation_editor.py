"""The editor of an expectation: as a form or as JSON, with its faults and what it says of the recorded call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from quality.cases import schema
from quality.cases.explain import explain
from quality.cases.judge import CaseCheck
from quality.cases.sample import Judgement
from quality.improve import cases
from quality.improve.cases import Draft
from quality.improve.expectation_form import (
    MATCHERS,
    MAX_ROWS,
    MODES,
    STEPLESS,
    Argument,
    NotPlain,
    Plain,
    Step,
    read,
    write,
)
from quality.models import Case
from quality.review.offered import offered_tools

MAX_TEXT = 200_000
VERDICTS: dict[str, str | Promise] = {
    "pass": pgettext_lazy("verdict", "pass"),
    "fail": pgettext_lazy("verdict", "fail"),
    "invalid_call": pgettext_lazy("verdict", "invalid_call"),
    "diverged": pgettext_lazy("verdict", "diverged"),
    "error": pgettext_lazy("verdict", "error"),
}


@dataclass(frozen=True, kw_only=True)
class Editor:
    """An expectation on the screen. `text` is its JSON, whichever way it is edited; `plain` are the form's rows, None
    where the form cannot show it (`not_plain` says why). `focus` is the part that a key goes to after a button: the key
    of a row, or what a button is for."""

    text: str
    source: Case | Draft
    is_form: bool
    plain: Plain | None = None
    not_plain: str = ""
    focus: str = ""

    @classmethod
    def of(cls, source: Case | Draft, text: str) -> "Editor":
        """What is stored, as a form if that can show it."""
        if not text.strip():
            return cls(text=write(Plain(mode="first")), source=source, is_form=True, plain=Plain(mode="first"))
        return cls._shown(source, text, is_form=True)

    @classmethod
    def sent(cls, source: Case | Draft, data: QueryDict) -> "Editor":
        """What a form sent, after the step that one of its buttons asks for (`do`)."""
        do = _sent(data, "do")
        if _sent(data, "as") == "json":
            text = _sent(data, "expectation")[:MAX_TEXT]
            return replace(cls._shown(source, text, is_form=do == "as:form"), focus=do)
        plain = _changed(_read(data), do)
        is_form = do != "as:json"
        return cls(text=write(plain), source=source, is_form=is_form, plain=plain, focus=_focus(plain, do))

    @classmethod
    def _shown(cls, source: Case | Draft, text: str, *, is_form: bool) -> "Editor":
        try:
            plain = read(text)
        except NotPlain as error:
            return cls(text=text, source=source, is_form=False, not_plain=str(error))
        return cls(text=text, source=source, is_form=is_form, plain=plain)

    @property
    def faults(self) -> list[schema.Fault]:
        return schema.check(self.text)

    @property
    def doubts(self) -> list[schema.Fault]:
        """A tool that was not offered then is among them: it may well be what is expected."""
        return cases.doubts(self.text, self.source.tools)

    @property
    def check(self) -> CaseCheck | None:
        """What it says of the recorded and the corrected call; None while there are faults."""
        return None if self.faults else cases.judge_recorded(self.source, expectation=self.text)

    @property
    def warnings(self) -> tuple[str, ...]:
        check = self.check
        return check.warnings if check else ()

    @property
    def verdict(self) -> dict[str, Any]:
        """All of this in words, judged once."""
        faults = self.faults
        check = None if faults else cases.judge_recorded(self.source, expectation=self.text)
        return {
            "faults": faults,
            "doubts": self.doubts,
            "warnings": check.warnings if check else (),
            "recorded": _told(check.recorded) if check else None,
            "corrected": _told(check.corrected) if check and check.corrected else None,
        }

    @property
    def rows(self) -> dict[str, Any]:
        """What the form's template shows."""
        plain = self.plain or Plain()
        has_steps = bool(plain.mode) and plain.mode not in STEPLESS
        return {
            "mode": plain.mode,
            "modes": [("", _("Nothing is said of calls")), *MODES.items()],
            "groups": [
                ("step", _("Expected calls"), _numbered("step", plain.steps), has_steps, "add:step"),
                ("forbid", _("Forbidden calls"), _numbered("forbid", plain.forbid), True, "add:forbid"),
            ],
            "matchers": [(name, kind.label, kind.hint) for name, kind in MATCHERS.items()],
            "rest": plain.rest.items(),
            "tool_names": [tool.name for tool in self._tools],
            "names": sorted({name for tool in self._tools for name in _properties(tool.parameters)}),
        }

    @property
    def _tools(self) -> Any:
        return offered_tools(self.source.tools) if self.source.tools else ()


def _properties(parameters: Mapping[str, Any] | None) -> list[str]:
    properties = (parameters or {}).get("properties")
    return list(properties) if isinstance(properties, dict) else []


def _told(judgement: Judgement) -> dict[str, Any]:
    return {
        "verdict": str(judgement.verdict),
        "word": VERDICTS.get(str(judgement.verdict), str(judgement.verdict)),
        "passed": judgement.passed,
        "reasons": [explain(reason) for reason in judgement.reasons[:10]],
        "more": max(0, len(judgement.reasons) - 10),
    }


def _numbered(group: str, steps: tuple[Step, ...]) -> list[dict[str, Any]]:
    return [
        {
            "key": f"{group}-{place}",
            "number": place + 1,
            "step": step,
            "arguments": [
                {"key": f"{group}-{place}-arg-{at}", "argument": argument, "hint": MATCHERS[argument.matcher].hint}
                for at, argument in enumerate(step.arguments)
            ],
            "add": f"add:{group}-{place}-arg",
        }
        for place, step in enumerate(steps)
    ]


def _read(data: QueryDict) -> Plain:
    """The rows of a sent form."""
    mode = _sent(data, "mode")
    return Plain(
        mode=mode if mode in MODES else "",
        steps=_steps(data, "step"),
        forbid=_steps(data, "forbid"),
        rest={name.removeprefix("rest-"): _sent(data, name) for name in data if name.startswith("rest-")},
    )


def _sent(data: QueryDict, name: str) -> str:
    return str(data.get(name, ""))


def _steps(data: QueryDict, group: str) -> tuple[Step, ...]:
    found = []
    for place in range(MAX_ROWS):
        key = f"{group}-{place}"
        if f"{key}-tool" not in data:
            break
        extra = "allow" if _sent(data, f"{key}-extra") == "allow" else "forbid"
        found.append(Step(_sent(data, f"{key}-tool").strip(), _arguments(data, key), extra if group == "step" else ""))
    return tuple(found)


def _arguments(data: QueryDict, step: str) -> tuple[Argument, ...]:
    found = []
    for place in range(MAX_ROWS):
        key = f"{step}-arg-{place}"
        if f"{key}-name" not in data:
            break
        name, matcher = _sent(data, f"{key}-name").strip(), _sent(data, f"{key}-matcher")
        text = _sent(data, f"{key}-text").replace("\r\n", "\n")
        found.append(Argument(name, matcher if matcher in MATCHERS else "equal", text))
    return tuple(found)


def _changed(plain: Plain, do: str) -> Plain:
    """The rows after a button: `add:step`, `drop:forbid-0`, `add:step-0-arg`, `drop:step-0-arg-1`."""
    action, _, what = do.partition(":")
    group, *rest = what.split("-")
    if action not in ("add", "drop") or group not in ("step", "forbid"):
        return plain
    steps = plain.steps if group == "step" else plain.forbid
    steps = _add(group, steps, rest) if action == "add" else _drop(steps, rest)
    return replace(plain, steps=steps) if group == "step" else replace(plain, forbid=steps)


def _focus(plain: Plain, do: str) -> str:
    """Where the keyboard goes on: in the row that was added, or at the button that adds where one was taken away."""
    action, _, what = do.partition(":")
    group, *rest = what.split("-")
    if action == "drop":
        return f"add:{'-'.join([group, *rest[:-1]])}"
    if action != "add":
        return do
    steps = plain.steps if group == "step" else plain.forbid
    if not rest:
        return f"{group}-{len(steps) - 1}"
    num_arguments = next((len(step.arguments) for place, step in enumerate(steps) if str(place) == rest[0]), 0)
    return f"{what}-{num_arguments - 1}"


def _add(group: str, steps: tuple[Step, ...], rest: list[str]) -> tuple[Step, ...]:
    if not rest:
        return (*steps, Step("", extra="forbid" if group == "step" else ""))[:MAX_ROWS]
    return _at(steps, rest[0], lambda step: replace(step, arguments=(*step.arguments, Argument(""))[:MAX_ROWS]))


def _drop(steps: tuple[Step, ...], rest: list[str]) -> tuple[Step, ...]:
    if len(rest) == 1:
        return tuple(step for place, step in enumerate(steps) if str(place) != rest[0])
    if len(rest) == 3:
        return _at(
            steps,
            rest[0],
            lambda step: replace(
                step, arguments=tuple(one for place, one in enumerate(step.arguments) if str(place) != rest[2])
            ),
        )
    return steps


def _at(steps: tuple[Step, ...], place: str, change: Callable[[Step], Step]) -> tuple[Step, ...]:
    return tuple(change(step) if str(number) == place else step for number, step in enumerate(steps))
