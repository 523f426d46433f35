"""The expectation language: its JSON Schema, `check` for people who write by hand, and `parse`."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import jsonschema

from engine.errors import EngineError
from engine.strict_json import JsonError
from quality.cases.expectation import (
    Argument,
    Calls,
    CallShape,
    Count,
    Expectation,
    Extra,
    Limits,
    Mode,
    Reply,
    Rule,
    Step,
    ToolName,
    When,
)
from quality.cases.matchers import MATCHERS, Judged, Scope, matcher, matcher_schema, read_range
from quality.cases.reading import Fault, Reader, hint, kind
from quality.cases.replies import UsesResult, check_schema, read_check
from quality.cases.toolset import Toolset
from quality.cases.values import ABSENT, exact, is_number, plain, pointer_to, read_exact, steps_of
from quality.cases.wording import MATCHER, POINTER, TEXT, TRUE, WHOLE, Schema, array_of, object_of, range_of

__all__ = ["EXPECTATION_SCHEMA", "ExpectationError", "Fault", "advise", "check", "examine", "parse"]

VERSION: Final = 1
MAX_STEPS = 50
MAX_SAMPLES = 1_000
RETRIES: Final = ("same_tool", "stop", "ask")
NEEDS: Final = ("all", "majority")

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_STEPLESS = (Mode.NONE, Mode.ANY)


class ExpectationError(EngineError):
    """An expectation that cannot be used; `faults` say why and where."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{fault.path or 'the expectation'}: {fault.message}" for fault in faults[:5]))
        self.faults = tuple(faults)


def parse(expectation: Any) -> Expectation:
    """The expectation as values, from an object or JSON text; raises `ExpectationError`."""
    if isinstance(expectation, Expectation):
        return expectation
    parsed, faults = _read(expectation)
    if faults or parsed is None:
        raise ExpectationError(faults)
    return parsed


def check(expectation: Any, tools: Any = None) -> list[Fault]:
    """Everything that is wrong with an expectation, each fault with its place; with `tools` also what these make
    impossible. Never raises."""
    return examine(expectation, tools)[1]


def examine(expectation: Any, tools: Any = None) -> tuple[Expectation | None, list[Fault]]:
    """`check` and `parse` at once: the values that could be read, and what is wrong. Never raises."""
    parsed, faults = _read(expectation)
    if parsed is not None and not faults:
        faults = _against_tools(parsed, Toolset.read(tools))
    return parsed, faults


def advise(expectation: Any, tools: Any = None) -> list[Fault]:
    """What is not wrong, but probably not meant; nothing for an expectation that has faults. Never raises."""
    parsed, faults = _read(expectation)
    return [] if faults or parsed is None else _doubts(parsed, Toolset.read(tools))


def _read(expectation: Any) -> tuple[Expectation | None, list[Fault]]:
    try:
        value = read_exact(expectation) if isinstance(expectation, str) else exact(expectation)
    except (JsonError, RecursionError) as error:
        return None, [Fault("", "not_json", f"this is no JSON that can be used: {error}")]
    reader = Reader()
    parsed = _expectation(value, reader)
    if not reader.faults:  # the published schema has the last word, so that it can be trusted
        for found in _validator().iter_errors(plain(value)):
            reader.fault(pointer_to(*found.absolute_path), "schema", found.message[:300])
    return parsed, reader.faults


# Reading, from the whole to the parts.


def _expectation(value: Any, reader: Reader) -> Expectation:
    members = reader.members(value, "", _PROPERTIES, "an expectation")
    if isinstance(value, dict):
        version = members.get("version")
        if not is_number(version) or version != VERSION:
            path = "/version" if "version" in members else ""
            reader.fault(path, "bad_version", f'an expectation needs "version": {VERSION}')
    calls = _calls(members["calls"], reader) if "calls" in members else None
    forbid = reader.items(members.get("forbid", []), "/forbid", '"forbid"', most=MAX_STEPS)
    retry = reader.members(members.get("retry", {}), "/retry", ("on_error",), '"retry"')
    if "retry" in members and "on_error" not in retry and isinstance(members["retry"], dict):
        reader.fault("/retry", "missing_key", '"retry" needs "on_error": same_tool, stop or ask')
    read = Expectation(
        calls=calls,
        forbid=tuple(_forbidden(item, reader, f"/forbid/{place}") for place, item in enumerate(forbid)),
        limits=_limits(members.get("limits", {}), reader),
        retry=reader.choice(retry["on_error"], "/retry/on_error", 'value of "on_error"', RETRIES)
        if "on_error" in retry
        else None,
        reply=_reply(members.get("reply", {}), reader),
        verdict=_rule(members.get("verdict", {}), reader),
        null_is_absent=reader.flag(members.get("null_is_absent", False), "/null_is_absent", '"null_is_absent"'),
        source=plain(value),
    )
    _check_together(read, reader)
    return read


def _calls(value: Any, reader: Reader) -> Calls:
    members = reader.members(value, "/calls", ("mode", "steps", "parallel"), '"calls"')
    mode = reader.choice(members.get("mode", "first"), "/calls/mode", "mode", tuple(Mode), "unknown_mode")
    parallel = reader.flag(members.get("parallel", False), "/calls/parallel", '"parallel"')
    if "steps" not in members:
        return Calls(mode=Mode(mode or "first"), parallel=parallel)
    items = reader.items(members["steps"], "/calls/steps", '"steps"', least=1, most=MAX_STEPS)
    steps: list[Step] = []
    for number, item in enumerate(items):
        steps += _steps(item, reader, f"/calls/steps/{number}", number, 0 if parallel else None)
    return Calls(mode=Mode(mode or "first"), steps=tuple(steps), parallel=parallel)


def _steps(value: Any, reader: Reader, path: str, number: int, group: int | None) -> list[Step]:
    """One entry of `steps`: a call, any of several calls, or a group of them in one reply."""
    if not (isinstance(value, dict) and "steps" in value):
        return [_step(value, reader, path, ("count", "when"), number=number, group=group)]
    members = reader.members(value, path, ("steps", "parallel", "when"), "a group of steps")
    if members.get("parallel") is not True:
        reader.fault(path, "missing_key", 'a group of steps needs "parallel": true, calls of one reply')
    when = _when(members["when"], reader, f"{path}/when") if "when" in members else None
    items = reader.items(members["steps"], f"{path}/steps", '"steps"', least=1, most=MAX_STEPS)
    own = number if group is None else group
    parts = [
        _step(item, reader, f"{path}/steps/{place}", ("count",), number=number, group=own)
        for place, item in enumerate(items)
    ]
    return [Step(number=number, shapes=part.shapes, count=part.count, when=when, group=own) for part in parts]


def _step(value: Any, reader: Reader, path: str, beside: tuple[str, ...], *, number: int, group: int | None) -> Step:
    if isinstance(value, dict) and "any_of" in value:
        members = reader.members(value, path, ("any_of", *beside), 'a step with "any_of"')
        options = reader.items(members["any_of"], f"{path}/any_of", '"any_of"', least=1, most=MAX_STEPS)
        shapes = tuple(
            _shape(option, reader, f"{path}/any_of/{place}", ("tool", "args", "extra_args"), 'a step in "any_of"')
            for place, option in enumerate(options)
        )
    else:
        members = reader.members(value, path, ("tool", "args", "extra_args", *beside), "a step")
        shape = {name: item for name, item in members.items() if name in _SHAPE}
        shapes = (_shape(shape, reader, path, _SHAPE, "a step"),) if isinstance(value, dict) else ()
    count = when = None
    if "count" in members:
        least, most = read_range(members["count"], reader, f"{path}/count", '"count"')
        count = Count(least or 0, most)
    if "when" in members:
        when = _when(members["when"], reader, f"{path}/when")
    return Step(number=number, shapes=shapes, count=count, when=when, group=group)


_SHAPE = ("tool", "args", "extra_args")


def _forbidden(value: Any, reader: Reader, path: str) -> CallShape:
    return _shape(value, reader, path, ("tool", "args"), "a forbidden call")


def _shape(value: Any, reader: Reader, path: str, known: tuple[str, ...], what: str) -> CallShape:
    members = reader.members(value, path, known, what)
    if isinstance(value, dict) and "tool" not in members:
        reader.fault(path, "missing_key", f'{what} needs "tool", a name or a pattern such as "cancel_*"')
    tool = reader.text(members["tool"], f"{path}/tool", '"tool"', most=200) if "tool" in members else ""
    args = members.get("args", {})
    if not isinstance(args, dict):
        reader.fault(f"{path}/args", "wrong_type", f'"args" must be an object of names and matchers, not {kind(args)}')
        args = {}
    return CallShape(
        tool=ToolName(tool),
        args=tuple(_argument(name, item, reader, f"{path}/args") for name, item in args.items()),
        extra=_extra(members.get("extra_args", "forbid"), reader, f"{path}/extra_args"),
        source=plain({name: item for name, item in members.items() if name in ("tool", "args")}),
    )


def _argument(name: str, value: Any, reader: Reader, path: str) -> Argument:
    """A name that begins with a slash is a pointer to a nested value."""
    place = f"{path}{pointer_to(name)}"
    pointer = reader.pointer(name, place, "the name") if name.startswith("/") else pointer_to(name)
    return Argument(pointer, steps_of(pointer)[0], matcher(value, reader, place))


def _extra(value: Any, reader: Reader, path: str) -> Extra:
    if not isinstance(value, dict):
        return Extra(allowed=reader.choice(value, path, 'value of "extra_args"', ("forbid", "allow")) == "allow")
    members = reader.members(value, path, ("defaults", "ignore"), '"extra_args"')
    defaults = members.get("defaults", {})
    if not isinstance(defaults, dict):
        reader.fault(f"{path}/defaults", "wrong_type", f'"defaults" must be an object, not {kind(defaults)}')
        defaults = {}
    globs = reader.items(members.get("ignore", []), f"{path}/ignore", '"ignore"')
    ignored = tuple(reader.text(item, f"{path}/ignore/{place}", "a name") for place, item in enumerate(globs))
    return Extra(defaults=defaults, ignored=ignored)


def _when(value: Any, reader: Reader, path: str) -> When:
    known = ("result", "path", *MATCHERS, "strict_type")
    if not isinstance(value, dict):
        reader.members(value, path, known, '"when"')
        return When(0, "", matcher(None, reader, path), None)
    for name in ("result", "path"):
        if name not in value:
            message = f'"when" needs "result" (the number of a step) and "path"; "{name}" is missing'
            reader.fault(path, "missing_key", message)
    rest = {name: item for name, item in value.items() if name not in ("result", "path")}
    if not rest:
        reader.fault(path, "missing_key", '"when" needs a matcher beside "result" and "path", such as "equal"')
        rest = {"present": True}
    return When(
        reader.whole(value.get("result", 0), f"{path}/result", '"result"', most=MAX_STEPS),
        reader.pointer(value.get("path", ""), f"{path}/path", '"path"'),
        matcher(rest, reader, path),
        plain(value),
    )


def _limits(value: Any, reader: Reader) -> Limits:
    members = reader.members(value, "/limits", ("max_calls", "max_cycles"), '"limits"')
    bounds = {name: reader.whole(item, f"/limits/{name}", f'"{name}"') for name, item in members.items()}
    return Limits(max_calls=bounds.get("max_calls"), max_cycles=bounds.get("max_cycles"))


def _reply(value: Any, reader: Reader) -> Reply:
    members = reader.members(value, "/reply", ("must", "must_not", "judge"), '"reply"')
    checks = {}
    for name in ("must", "must_not"):
        items = reader.items(members.get(name, []), f"/reply/{name}", f'"{name}"')
        read = [read_check(item, reader, f"/reply/{name}/{place}") for place, item in enumerate(items)]
        checks[name] = tuple(each for each in read if each is not None)
    asked = members.get("judge")
    judge = Judged.read(asked, reader, "/reply/judge") if asked is not None else None
    return Reply(must=checks["must"], must_not=checks["must_not"], judge=judge)


def _rule(value: Any, reader: Reader) -> Rule:
    members = reader.members(value, "/verdict", ("k", "need"), '"verdict"')
    need = members.get("need", "all")
    if is_number(need):
        if not 0 < need <= 1:
            reader.fault("/verdict/need", "out_of_range", "a share of samples is above 0 and at most 1")
    else:
        need = reader.choice(need, "/verdict/need", 'value of "need", and no share either', NEEDS)
    k = reader.whole(members["k"], "/verdict/k", '"k"', least=1, most=MAX_SAMPLES) if "k" in members else None
    return Rule(k=k, need=need if isinstance(need, str) else float(need))


# What has to fit together.


def _check_together(read: Expectation, reader: Reader) -> None:
    calls = read.calls
    if calls is not None:
        if calls.mode in _STEPLESS and calls.steps:
            reader.fault("/calls/steps", "steps_not_used", f'mode "{calls.mode}" takes no steps')
        if calls.mode not in _STEPLESS and calls.steps is None and not (calls.mode is Mode.FIRST and read.forbid):
            reader.fault("/calls", "steps_missing", f'mode "{calls.mode}" needs "steps"')
        _check_whens(calls, reader)
    for place, each in (*enumerate(read.reply.must), *enumerate(read.reply.must_not)):
        side = "must" if each in read.reply.must else "must_not"
        if isinstance(each, UsesResult) and each.step is not None:
            _check_reference(calls, each.step, f"/reply/{side}/{place}/uses_result/result", reader)
    if read.first_cycle_only and read.reply:
        message = 'mode "first" stops before the final reply; choose another mode, or leave "reply" out'
        reader.fault("/reply", "not_reached", message)
    if read.first_cycle_only and read.retry:
        reader.fault("/retry", "not_reached", 'mode "first" stops before any result; choose another mode')


def _check_whens(calls: Calls, reader: Reader) -> None:
    for step in calls.steps or ():
        if step.when is None:
            continue
        path = f"/calls/steps/{step.number}/when"
        if calls.mode is Mode.FIRST:
            reader.fault(path, "not_reached", 'in mode "first" no result is seen yet; choose another mode')
        elif step.when.result >= step.number:
            reader.fault(f"{path}/result", "bad_reference", '"result" must be the number of an earlier step, from 0')
        else:
            _check_reference(calls, step.when.result, f"{path}/result", reader)


def _check_reference(calls: Calls | None, number: int, path: str, reader: Reader) -> None:
    """A result can be told only of a step that is one call."""
    found = [step for step in (calls.steps if calls else None) or () if step.number == number]
    if not found:
        reader.fault(path, "bad_reference", f"there is no step {number}; steps are counted from 0")
    elif len(found) > 1 or (found[0].count is not None and found[0].count.most != 1):
        reader.fault(path, "bad_reference", f"step {number} can be more than one call, so its result is not certain")


def _against_tools(read: Expectation, tools: Toolset) -> list[Fault]:
    """Steps that no call could meet with these tools."""
    reader = Reader()
    for path, shape in _shapes(read) if tools else ():
        if not any(shape.tool.fits(name) for name in tools.names):
            near = hint(shape.tool.text, tools.names)
            reader.fault(f"{path}/tool", "unknown_tool", f'the case has no tool "{shape.tool.text[:80]}"{near}')
            continue
        declared = None if shape.tool.is_glob else tools.declared(shape.tool.text)
        for argument in shape.args if declared is not None else ():
            assert declared is not None
            wants_it = argument.matcher.match(ABSENT, Scope()).ok is False
            if argument.name not in declared and wants_it:
                near = hint(argument.name, declared)
                place = f"{path}/args{pointer_to(argument.name)}"
                reader.fault(place, "unknown_argument", f'{shape.tool.text} takes no "{argument.name[:80]}"{near}')
    return reader.faults


def _shapes(read: Expectation) -> list[tuple[str, CallShape]]:
    """The shapes of all steps with their places, as they were written."""
    found = []
    source = ((read.source or {}).get("calls") or {}).get("steps") or []
    steps = iter((read.calls.steps if read.calls else None) or ())
    for number, item in enumerate(source):
        inner = item.get("steps")
        at = f"/calls/steps/{number}"
        for path, part in (
            [(f"{at}/steps/{place}", part) for place, part in enumerate(inner)] if inner else [(at, item)]
        ):
            step = next(steps)
            many = "any_of" in part
            found += [(f"{path}/any_of/{place}" if many else path, shape) for place, shape in enumerate(step.shapes)]
    return found


def _doubts(read: Expectation, tools: Toolset) -> list[Fault]:
    reader = Reader()
    if not (read.calls or read.forbid or read.reply or read.retry or read.limits != Limits()):
        reader.fault("", "expects_nothing", "nothing is expected: every sample passes")
    for place, shape in enumerate(read.forbid if tools else ()):
        if not any(shape.tool.fits(name) for name in tools.names):
            near = hint(shape.tool.text, tools.names)
            message = f'the case has no tool "{shape.tool.text[:80]}"{near}'
            reader.fault(f"/forbid/{place}/tool", "unknown_tool", message)
    for path, shape in _shapes(read):
        if not shape.args and shape.extra == Extra() and not shape.tool.is_glob and tools.declared(shape.tool.text):
            message = 'no argument is named, so any argument fails; name them, or say "extra_args": "allow"'
            reader.fault(path, "no_arguments", message)
    return reader.faults


# The published schemas.


def _expectation_schema() -> Schema:
    shape = {
        "tool": {
            **TEXT,
            "maxLength": 200,
            "description": "A name, or a pattern with * and ?. Dots count as underscores.",
        },
        "args": {
            "type": "object",
            "additionalProperties": MATCHER,
            "description": "Matchers by the name of an argument, or by a JSON pointer to a nested value.",
        },
        "extra_args": {
            "anyOf": [
                {"enum": ["forbid", "allow"]},
                object_of({"defaults": {"type": "object"}, "ignore": array_of(TEXT)}),
            ],
            "description": "Arguments that args does not name. Defaults that the tool declares are never extra.",
        },
    }
    count = {**range_of(WHOLE), "description": "How often; without it once."}
    option = object_of(shape, required=["tool"])
    when = {"$ref": "#/$defs/when"}
    single = [
        object_of({**shape, "count": count}, required=["tool"]),
        object_of({"any_of": array_of(option, least=1, most=MAX_STEPS), "count": count}, required=["any_of"]),
    ]
    steps = [{**each, "properties": {**each["properties"], "when": when}} for each in single]
    group = object_of(
        {"parallel": TRUE, "steps": array_of({"anyOf": single}, least=1, most=MAX_STEPS), "when": when},
        required=["parallel", "steps"],
        description="Calls that have to be made in one reply, in any order.",
    )
    matchers: Mapping[str, Any] = {name: each.schema for name, each in MATCHERS.items()}
    when_schema = object_of(
        {"result": WHOLE, "path": POINTER, **matchers, "strict_type": {"type": "boolean"}},
        required=["result", "path"],
        description="The step is expected only if the result served to step number `result` is so.",
    )
    properties: Schema = {
        "version": {"const": VERSION},
        "calls": object_of(
            {
                "mode": {"enum": [str(mode) for mode in Mode], "default": "first"},
                "steps": array_of({"anyOf": [*steps, group]}, least=1, most=MAX_STEPS),
                "parallel": {"type": "boolean", "description": "All steps have to be called in one reply."},
            },
            description="Which calls have to be made.",
        ),
        "forbid": array_of(
            object_of({"tool": shape["tool"], "args": shape["args"]}, required=["tool"]),
            most=MAX_STEPS,
            description="Calls that must not be made. A call with all these arguments is one, whatever else it has.",
        ),
        "limits": object_of({"max_calls": WHOLE, "max_cycles": WHOLE}),
        "retry": object_of(
            {"on_error": {"enum": list(RETRIES)}},
            required=["on_error"],
            description="After an error: call the same tool again, call nothing more, or ask the user.",
        ),
        "reply": object_of(
            {
                "must": array_of({"$ref": "#/$defs/check"}),
                "must_not": array_of({"$ref": "#/$defs/check"}),
                "judge": {"anyOf": [{"type": "null"}, Judged.schema]},
            },
            description="What the final reply has to say.",
        ),
        "verdict": object_of(
            {
                "k": {"type": "integer", "minimum": 1, "maximum": MAX_SAMPLES},
                "need": {"anyOf": [{"enum": list(NEEDS)}, {"type": "number", "exclusiveMinimum": 0, "maximum": 1}]},
            },
            description="How many samples, and how many of them have to pass.",
        ),
        "null_is_absent": {"type": "boolean", "description": "An argument that is null counts as left out."},
    }
    return {
        "$schema": _DIALECT,
        "$id": "urn:quality-lab:schema:expectation:1",
        "title": "What a regression case expects",
        **object_of(properties, required=["version"]),
        "$defs": {
            "matcher": matcher_schema(),
            "check": check_schema(),
            "when": {**when_schema, "minProperties": 3},
        },
    }


EXPECTATION_SCHEMA: Final[Schema] = _expectation_schema()
_PROPERTIES = tuple(EXPECTATION_SCHEMA["properties"])


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(EXPECTATION_SCHEMA)
