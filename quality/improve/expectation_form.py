"""An expectation as rows of a form, and back. Pure: text in, text out, numbers as they were spelled.

The form shows the calls that a case expects and forbids, with one matcher for each argument. Members that it does not
show (limits, reply, verdict …) are carried along. What has no place in it at all is for the JSON editor: `NotPlain`
says what and where.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from quality.ingest.jsontext import JsonError, Node, parse

MODES = {
    "first": gettext_lazy("The first reply makes exactly these calls"),
    "exact": gettext_lazy("Exactly these calls, in this order"),
    "any_order": gettext_lazy("Exactly these calls, in any order"),
    "in_order": gettext_lazy("These calls in this order, others between"),
    "contains": gettext_lazy("These calls, any order, others too"),
    "only": gettext_lazy("No calls but these; some may be missing"),
    "any": gettext_lazy("At least one call, whichever"),
    "none": gettext_lazy("No call at all: an answer in words"),
}
"""Ways to judge which calls are made, in the order in which they are offered."""

STEPLESS = ("any", "none")
MAX_ROWS = 20
PLUS_MINUS = "±"


class NotPlain(ValueError):
    """The expectation is not one that the form can show."""


@dataclass(frozen=True, slots=True)
class Argument:
    """`matcher` is a name of MATCHERS, `text` its value as a person types it."""

    name: str
    matcher: str = "equal"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A call by tool (a name, or a glob) and arguments. `extra` says of arguments that are not listed: forbid, allow;
    of a forbidden call nothing is said, so it is empty."""

    tool: str
    arguments: tuple[Argument, ...] = ()
    extra: str = "forbid"


@dataclass(frozen=True, slots=True)
class Plain:
    """`mode` is empty where nothing is said of the calls that have to be made. `rest` is JSON text of the members that
    the form does not show."""

    mode: str = ""
    steps: tuple[Step, ...] = ()
    forbid: tuple[Step, ...] = ()
    rest: Mapping[str, str] = field(default_factory=dict)


# Matchers: how a value is shown, and what is written of the text that a person typed.


def _value(node: Node) -> str:
    return node.text


def _text_of(node: Node) -> str:
    """Text as a line: a browser takes line breaks out of a field of one line."""
    if not isinstance(node.value, str) or not _is_line(node.value):
        raise NotPlain
    return node.value


def _is_line(text: str) -> bool:
    return "\n" not in text and "\r" not in text


def _true(node: Node) -> str:
    if node.value is not True:
        raise NotPlain
    return ""


def _folded(node: Node) -> str:
    members = {name: part.value for name, part in node.members.items()}
    if "of" not in members or members != {**_FOLDED, "of": members["of"]}:
        raise NotPlain
    return _text_of(node.members["of"])


def _near(node: Node) -> str:
    if set(node.members) != {"of", "abs"}:
        raise NotPlain
    return f"{node.members['of'].text} {PLUS_MINUS} {node.members['abs'].text}"


def _rubric(node: Node) -> str:
    if set(node.members) != {"rubric"}:
        raise NotPlain
    return _text_of(node.members["rubric"])


def _write_value(text: str) -> str:
    """JSON as it stands; what is no JSON is taken for text."""
    try:
        return parse(text.encode("utf-8", "surrogatepass")).text if text.strip() else _quoted(text)
    except (JsonError, UnicodeError):
        return _quoted(text)


def _write_near(text: str) -> str:
    of, found, off = text.partition(PLUS_MINUS)
    if not found:
        of, _, off = text.partition("+-")
    return f'{{"of":{_number(of)},"abs":{_number(off or "0")}}}'


def _number(text: str) -> str:
    """The number as spelled; what is none is written as text, which the check of the whole then names."""
    try:
        node = parse(text.strip().encode())
        return node.text if isinstance(node.value, int | float) and not isinstance(node.value, bool) else _quoted(text)
    except (JsonError, UnicodeError):
        return _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _write_true(text: str) -> str:
    return "true"


_FOLDED = {"case": "fold", "space": "collapse", "trim": True}


@dataclass(frozen=True, slots=True)
class Kind:
    """One matcher of the form. `hint` is what the field beside it takes; empty: it takes nothing."""

    label: str | Promise
    hint: str | Promise
    read: Callable[[Node], str]
    write: Callable[[str], str]


MATCHERS: dict[str, Kind] = {
    "equal": Kind(gettext_lazy("is"), gettext_lazy('JSON, such as "Zürich" or 12'), _value, _write_value),
    "one_of": Kind(gettext_lazy("is one of"), gettext_lazy('a JSON list, such as ["a", "b"]'), _value, _write_value),
    "text": Kind(
        gettext_lazy("is the text, whatever case and spaces"),
        gettext_lazy("text"),
        _folded,
        lambda text: f'{{"of":{_quoted(text)},"case":"fold","space":"collapse","trim":true}}',
    ),
    "number": Kind(gettext_lazy("is the number, about"), f"12.5 {PLUS_MINUS} 0.1", _near, _write_near),
    "gt": Kind(gettext_lazy("is more than"), gettext_lazy("a number"), _value, _number),
    "gte": Kind(gettext_lazy("is at least"), gettext_lazy("a number"), _value, _number),
    "lt": Kind(gettext_lazy("is less than"), gettext_lazy("a number"), _value, _number),
    "lte": Kind(gettext_lazy("is at most"), gettext_lazy("a number"), _value, _number),
    "regex": Kind(gettext_lazy("matches the pattern"), gettext_lazy("a pattern for the whole text"), _text_of, _quoted),
    "judge": Kind(
        gettext_lazy("means, as a model judges"),
        gettext_lazy("what counts as right"),
        _rubric,
        lambda text: f'{{"rubric":{_quoted(text)}}}',
    ),
    "ignore": Kind(gettext_lazy("is anything, or missing"), "", _true, _write_true),
    "present": Kind(gettext_lazy("is there"), "", _true, _write_true),
    "absent": Kind(gettext_lazy("is not there"), "", _true, _write_true),
}


def read(text: str) -> Plain:
    """The form's rows of an expectation; raises NotPlain."""
    try:
        root = parse(text.encode("utf-8", "surrogatepass"))
    except (JsonError, UnicodeError) as error:
        raise NotPlain(_("It is not JSON: %(why)s") % {"why": error}) from error
    if not isinstance(root.value, dict):
        raise NotPlain(_("An expectation is a JSON object."))
    members = dict(root.members)
    calls, forbid = members.pop("calls", None), members.pop("forbid", None)
    members.pop("version", None)
    mode, steps = _calls(calls) if calls else ("", ())
    return Plain(
        mode=mode,
        steps=steps,
        forbid=_steps(forbid, "forbid", extra="") if forbid else (),
        rest={name: node.text for name, node in members.items()},
    )


def write(plain: Plain) -> str:
    """The expectation that the rows say, as JSON text of one member a line."""
    members = {"version": "1"}
    if plain.mode:
        calls = {"mode": _quoted(plain.mode)}
        if plain.steps and plain.mode not in STEPLESS:
            calls["steps"] = _array(map(_written, plain.steps))
        members["calls"] = _object(calls)
    if plain.forbid:
        members["forbid"] = _array(map(_written, plain.forbid))
    return _object({**members, **plain.rest}, separator=",\n ")


def _calls(node: Node) -> tuple[str, tuple[Step, ...]]:
    _only(node, {"mode", "steps"}, "calls")
    mode = node.members["mode"].value if "mode" in node.members else "first"
    if mode not in MODES:
        raise NotPlain(_("calls.mode is %(mode)s, which the form does not know.") % {"mode": repr(mode)})
    steps = node.members.get("steps")
    return mode, _steps(steps, "calls.steps") if steps else ()


def _steps(node: Node, path: str, *, extra: str = "forbid") -> tuple[Step, ...]:
    if not isinstance(node.value, list) or len(node.value) > MAX_ROWS:
        raise NotPlain(_("%(path)s is no list of at most %(limit)s calls.") % {"path": path, "limit": MAX_ROWS})
    return tuple(_step(element, f"{path}[{place}]", extra) for place, element in enumerate(node.elements))


def _step(node: Node, path: str, extra: str) -> Step:
    _only(node, {"tool", "args", *(["extra_args"] if extra else [])}, path)
    tool = node.members.get("tool")
    if tool is None or not isinstance(tool.value, str):
        raise NotPlain(_("%(path)s names no tool.") % {"path": path})
    _tidy(tool.value, f"{path}.tool")
    if "extra_args" in node.members:
        extra = node.members["extra_args"].value
    if extra not in ("", "forbid", "allow"):
        raise NotPlain(_("%(path)s.extra_args lists defaults or names, which the form does not show.") % {"path": path})
    args = node.members.get("args")
    if args is not None and (not isinstance(args.value, dict) or len(args.value) > MAX_ROWS):
        raise NotPlain(
            _("%(path)s.args is no object of at most %(limit)s arguments.") % {"path": path, "limit": MAX_ROWS}
        )
    arguments = args.members.items() if args else ()
    return Step(tool.value, tuple(_argument(name, part, f"{path}.args.{name}") for name, part in arguments), extra)


def _argument(name: str, node: Node, path: str) -> Argument:
    _tidy(name, path)
    if not name:
        raise NotPlain(_("%(path)s has an empty name.") % {"path": path})
    if not isinstance(node.value, dict):
        return Argument(name, "equal", node.text)
    if len(node.members) != 1:
        raise NotPlain(_("%(path)s has several matchers.") % {"path": path})
    ((matcher, value),) = node.members.items()
    if matcher not in MATCHERS:
        raise NotPlain(
            _("%(path)s uses %(matcher)s, which the form does not show.") % {"path": path, "matcher": repr(matcher)}
        )
    try:
        return Argument(name, matcher, MATCHERS[matcher].read(value))
    except NotPlain as error:
        raise NotPlain(
            _("%(path)s uses %(matcher)s with options that the form does not show.")
            % {"path": path, "matcher": repr(matcher)}
        ) from error


def _only(node: Node, known: set[str], path: str) -> None:
    if not isinstance(node.value, dict):
        raise NotPlain(_("%(path)s is no object.") % {"path": path})
    if unknown := sorted(set(node.members) - known):
        raise NotPlain(
            _("%(path)s has %(members)s, which the form does not show.") % {"path": path, "members": ", ".join(unknown)}
        )


def _tidy(name: str, path: str) -> None:
    """Names are typed by people, so blanks around them are not part of them; where they are, it is no form's matter."""
    if name != name.strip() or not _is_line(name):
        raise NotPlain(_("%(path)s is a name with blanks around it or line breaks in it.") % {"path": path})


def _written(step: Step) -> str:
    members = {"tool": _quoted(step.tool)}
    rows = [one for one in step.arguments if one.name or one.text]  # a row that was only added says nothing yet
    if rows:
        members["args"] = _pairs(
            (one.name, f'{{"{one.matcher}":{MATCHERS[one.matcher].write(one.text)}}}') for one in rows
        )
    if step.extra == "allow":
        members["extra_args"] = _quoted(step.extra)
    return _object(members)


def _object(members: Mapping[str, str], *, separator: str = ", ") -> str:
    return _pairs(members.items(), separator=separator)


def _pairs(members: Iterable[tuple[str, str]], *, separator: str = ", ") -> str:
    """A name that was given twice stands there twice: the check of the whole then says so, and none is lost."""
    return f"{{{separator.join(f'{_quoted(name)}: {text}' for name, text in members)}}}"


def _array(elements: Iterable[str]) -> str:
    return f"[{', '.join(elements)}]"
