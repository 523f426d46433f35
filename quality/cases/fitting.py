"""Does a call fit a shape? Everything the judge asks about single calls of one sample, answered once."""

from dataclasses import dataclass
from typing import Any

from engine.strict_json import JsonError
from quality.cases.expectation import Argument, CallShape, Step, ToolName, When
from quality.cases.matchers import YES, Match, Miss, Scope, every
from quality.cases.sample import Call, Sample
from quality.cases.toolset import Reading, Toolset
from quality.cases.values import ABSENT, equal, pointer_to, read_exact, resolve, steps_of


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a call fits a step: the match with the shape that it comes nearest to."""

    match: Match
    shape: CallShape
    same_tool: bool


class Sitting:
    """The calls of one sample, read; and what fits what. `has_doubts`: some answer was that it cannot be told."""

    def __init__(self, sample: Sample, tools: Toolset, scope: Scope, *, most: int) -> None:
        self.sample = sample
        self.tools = tools
        self.scope = scope
        self.readings: list[Reading] = []
        for cycle, calls in enumerate(sample.cycles):
            for index, call in enumerate(calls):
                if len(self.readings) < most:
                    number = len(self.readings)
                    self.readings.append(tools.reading(call, number=number, cycle=cycle, index=index))
        self.has_doubts = False
        self._fits: dict[tuple[int, int], Fit] = {}

    def cycle_of(self, call: int) -> int:
        return self.readings[call].validity.cycle

    def fit(self, step: Step, call: int) -> Fit:
        """A step of several shapes is fitted by the best of them."""
        key = (id(step), call)
        found = self._fits.get(key)
        if found is None:
            fits = [self._fit(shape, self.readings[call]) for shape in step.shapes]
            found = self._fits[key] = fits[0] if len(fits) == 1 else min(fits, key=_distance)
            self.has_doubts |= found.match.ok is None
        return found

    def _fit(self, shape: CallShape, reading: Reading) -> Fit:
        if not shape.tool.fits(reading.call.name):
            return Fit(Match(False, (Miss("wrong_tool", shape.tool.text, reading.call.name),)), shape, same_tool=False)
        if not reading.validity.valid or reading.arguments is None:
            miss = Miss("invalid_call", None, reading.validity.message, reading.validity.path)
            return Fit(Match(False, (miss,)), shape, same_tool=True)
        return Fit(self._arguments(shape, reading.call.name, reading.arguments), shape, same_tool=True)

    def _arguments(self, shape: CallShape, tool: str, arguments: dict[str, Any]) -> Match:
        defaults = {**self.tools.defaults(tool), **shape.extra.defaults}
        matches = [self._argument(argument, arguments, defaults) for argument in shape.args]
        matches += self._extras(shape, arguments, defaults)
        return every(matches)

    def _argument(self, argument: Argument, arguments: dict[str, Any], defaults: dict[str, Any]) -> Match:
        value = self._at(arguments, argument.pointer)
        left_out = value is ABSENT and self._at(arguments, pointer_to(argument.name)) is ABSENT
        if left_out and argument.name in defaults and not argument.matcher.any_part(lambda part: part.about_presence):
            value = resolve(defaults, argument.pointer)  # the tool takes its default: it was given in effect
        match = argument.matcher.match(value, self.scope)
        return match if match.ok else Match(match.ok, tuple(miss.under(argument.pointer) for miss in match.misses))

    def _at(self, value: Any, pointer: str) -> Any:
        found = resolve(value, pointer)
        return ABSENT if found is None and self.scope.null_is_absent else found

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
                or (value is None and self.scope.null_is_absent)
            )
            if not harmless:
                found.append(Match(False, (Miss("extra_argument", ABSENT, value, pointer_to(name)),)))
        return found

    def forbidden(self, shape: CallShape, call: int) -> Match:
        """Is this call one that must not be made? An attempt counts, even if it could not have run."""
        reading = self.readings[call]
        if not shape.tool.fits(reading.call.name):
            return Match(False)
        if not shape.args:
            return YES
        if reading.arguments is None:
            return Match(False)
        arguments = reading.arguments
        return every(self._argument(argument, arguments, {}) for argument in shape.args)

    def served(self, call: int, pointer: str) -> Any:
        """What stands at a pointer of a call's result; ABSENT where it was not answered."""
        return served_value(self.readings[call].call, pointer)

    def holds(self, when: When, call: int | None) -> bool | None:
        """Is the condition met, if the earlier step was this call?"""
        if call is None or self.readings[call].call.served is None:
            return False
        holds = when.matcher.match(self.served(call, when.pointer), self.scope).ok
        self.has_doubts |= holds is None
        return holds

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
