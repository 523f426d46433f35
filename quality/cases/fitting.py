"""Does a call fit a shape? Everything the judge asks about single calls, answered once for all samples of a case."""

from dataclasses import dataclass, field
from typing import Any, Final

from engine.strict_json import JsonError
from quality.cases.expectation import Argument, CallShape, Step, ToolName, When
from quality.cases.matchers import YES, Match, Miss, Scope, every
from quality.cases.sample import Call, CallValidity, Sample
from quality.cases.toolset import Facts, Toolset
from quality.cases.values import ABSENT, equal, pointer_to, read_exact, resolve, steps_of

MAX_KNOWN: Final = 1_000  # different calls of a case that are kept


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a call fits a step: the match with the shape that it comes nearest to."""

    match: Match
    shape: CallShape
    same_tool: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A call as the judge looks at it. `arguments` is None where they are no JSON object. `fits` are those of a step,
    by its id; calls that are alike share them."""

    call: Call
    validity: CallValidity
    arguments: dict[str, Any] | None
    fits: dict[int, Fit] = field(compare=False)


class Fitting:
    """What fits what, with the tools of one case. What was found out about a call is kept while this lives, and so must
    the steps: samples of a case often make the same calls."""

    def __init__(self, tools: Toolset, scope: Scope) -> None:
        self._tools = tools
        self._scope = scope
        self._known: dict[tuple[str, str | None, str], tuple[Facts, dict[int, Fit]]] = {}

    def reading(self, call: Call, *, number: int, cycle: int, index: int) -> Reading:
        facts, fits = self._facts(call)
        validity = CallValidity(
            call=number,
            cycle=cycle,
            index=index,
            tool=call.name,
            code=facts.code,
            path=facts.path,
            message=facts.message,
        )
        return Reading(call, validity, facts.arguments, fits)

    def _facts(self, call: Call) -> tuple[Facts, dict[int, Fit]]:
        if call.arguments is not None and not isinstance(call.arguments, str):
            return self._tools.facts(call), {}
        key = (call.name, call.arguments, call.fault)
        found = self._known.get(key)
        if found is None:
            found = self._tools.facts(call), {}
            if len(self._known) < MAX_KNOWN:
                self._known[key] = found
        return found

    def fit(self, step: Step, reading: Reading) -> Fit:
        """A step of several shapes is fitted by the best of them."""
        found = reading.fits.get(id(step))
        if found is None:
            fits = [self._fit(shape, reading) for shape in step.shapes]
            found = reading.fits[id(step)] = fits[0] if len(fits) == 1 else min(fits, key=_distance)
        return found

    def _fit(self, shape: CallShape, reading: Reading) -> Fit:
        if not shape.tool.fits(reading.call.name):
            return Fit(Match(False, (Miss("wrong_tool", shape.tool.text, reading.call.name),)), shape, same_tool=False)
        if not reading.validity.valid or reading.arguments is None:
            miss = Miss("invalid_call", None, reading.validity.message, reading.validity.path)
            return Fit(Match(False, (miss,)), shape, same_tool=True)
        return Fit(self._arguments(shape, reading.call.name, reading.arguments), shape, same_tool=True)

    def _arguments(self, shape: CallShape, tool: str, arguments: dict[str, Any]) -> Match:
        defaults = {**self._tools.defaults(tool), **shape.extra.defaults}
        matches = [self._argument(argument, arguments, defaults) for argument in shape.args]
        matches += self._extras(shape, arguments, defaults)
        return every(matches)

    def _argument(self, argument: Argument, arguments: dict[str, Any], defaults: dict[str, Any]) -> Match:
        value = self._at(arguments, argument.pointer)
        left_out = value is ABSENT and self._at(arguments, pointer_to(argument.name)) is ABSENT
        if left_out and argument.name in defaults and not argument.matcher.any_part(lambda part: part.about_presence):
            value = resolve(defaults, argument.pointer)  # the tool takes its default: it was given in effect
        match = argument.matcher.match(value, self._scope)
        return match if match.ok else Match(match.ok, tuple(miss.under(argument.pointer) for miss in match.misses))

    def _at(self, value: Any, pointer: str) -> Any:
        found = resolve(value, pointer)
        return ABSENT if found is None and self._scope.null_is_absent else found

    def _extras(self, shape: CallShape, arguments: dict[str, Any], defaults: dict[str, Any]) -> list[Match]:
        if shape.extra.allowed:
            return []
        named = {argument.name for argument in shape.args}
        found = []
        for name, value in arguments.items():
            harmless = (
                name in named
                or shape.extra.ignores(name)
                or (name in defaults and equal(value, defaults[name]))
                or (value is None and self._scope.null_is_absent)
            )
            if not harmless:
                found.append(Match(False, (Miss("extra_argument", ABSENT, value, pointer_to(name)),)))
        return found

    def forbidden(self, shape: CallShape, reading: Reading) -> Match:
        """Is this call one that must not be made? An attempt counts, even if it could not have run."""
        if not shape.tool.fits(reading.call.name):
            return Match(False)
        if not shape.args:
            return YES
        if reading.arguments is None:
            return Match(False)
        arguments = reading.arguments
        return every(self._argument(argument, arguments, {}) for argument in shape.args)

    def holds(self, when: When, reading: Reading) -> bool | None:
        """Is the condition met, if the earlier step was this call?"""
        if reading.call.served is None:
            return False
        return when.matcher.match(served_value(reading.call, when.pointer), self._scope).ok


class Sitting:
    """The calls of one sample by their numbers. `has_doubts`: some answer was that it cannot be told."""

    def __init__(self, sample: Sample, fitting: Fitting, *, most: int) -> None:
        self.sample = sample
        self.readings: list[Reading] = []
        self.has_doubts = False
        self._fitting = fitting
        for cycle, calls in enumerate(sample.cycles):
            for index, call in enumerate(calls):
                if len(self.readings) < most:
                    number = len(self.readings)
                    self.readings.append(fitting.reading(call, number=number, cycle=cycle, index=index))

    def cycle_of(self, call: int) -> int:
        return self.readings[call].validity.cycle

    def fit(self, step: Step, call: int) -> Fit:
        found = self._fitting.fit(step, self.readings[call])
        if found.match.ok is None:
            self.has_doubts = True
        return found

    def forbidden(self, shape: CallShape, call: int) -> Match:
        return self._fitting.forbidden(shape, self.readings[call])

    def holds(self, when: When, call: int | None) -> bool | None:
        """Is the condition met, if the earlier step was this call?"""
        holds = False if call is None else self._fitting.holds(when, self.readings[call])
        if holds is None:
            self.has_doubts = True
        return holds

    def served(self, call: int, pointer: str) -> Any:
        """What stands at a pointer of a call's result; ABSENT where it was not answered."""
        return served_value(self.readings[call].call, pointer)

    def results(
        self, pairs: tuple[tuple[int, int], ...], step: int | None, tool: str | None, pointer: str
    ) -> list[Any]:
        """The values at a pointer of the results served to a step, or to a tool."""
        if tool is not None:
            name = ToolName(tool)
            fitting = [number for number, reading in enumerate(self.readings) if name.fits(reading.call.name)]
            return [self.served(number, pointer) for number in fitting]
        return [self.served(call, pointer) for place, call in pairs if place == step]


def served_value(call: Call, pointer: str) -> Any:
    if call.served is None:
        return ABSENT
    value = _json_or_text(call.served.text)
    if isinstance(value, str) and steps_of(pointer):  # JSON that the tool wrote as text
        value = _json_or_text(value)
    return resolve(value, pointer)


def _json_or_text(text: str) -> Any:
    try:
        return read_exact(text)
    except (JsonError, RecursionError):
        return text


def _distance(fit: Fit) -> tuple[int, int]:
    order = {True: 0, None: 1, False: 2}[fit.match.ok]
    return (order if fit.same_tool else 3, len(fit.match.misses))
