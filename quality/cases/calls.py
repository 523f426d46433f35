"""Which calls were made, and are they the steps that the case expects?

A step is expected or not depending on what earlier steps were served (`when`), and steps of a group belong into one
reply. Both are questions of which call stands for which step: each possible answer is a scenario, and in each the rest
is a matching of steps and calls, or for the modes that keep an order a walk along both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, product
from typing import Any, Final

from quality.cases.expectation import Calls, Mode, Step
from quality.cases.findings import Finding
from quality.cases.fitting import Sitting
from quality.cases.matchers import Miss
from quality.cases.pairing import Covering
from quality.cases.sample import Reason

MAX_SCENARIOS: Final = 512

_CERTAIN: Final = (True,)
_POSSIBLE: Final = (True, None)
_CLOSED: Final = (Mode.EXACT, Mode.ANY_ORDER, Mode.FIRST, Mode.ONLY)  # a call that is no step fails
_OPEN_CODES: Final = ("check_timeout", "not_judged", "no_now")

type Pairs = tuple[tuple[Step, int], ...]
type Accepted = tuple[bool | None, ...]


def judge_calls(calls: Calls, sitting: Sitting) -> Finding:
    """Judge the calls that were made against the mode and its steps."""
    if calls.mode is Mode.NONE:
        return _judge_none(sitting)
    if calls.mode is Mode.ANY:
        return _judge_any(sitting)
    if calls.steps is None:
        return Finding(settled=bool(sitting.sample.cycles))
    return _judge_steps(calls.mode, calls.steps, sitting)


def _judge_none(sitting: Sitting) -> Finding:
    finding = Finding(settled=False)
    for number in range(len(sitting.readings)):
        finding.reasons.append(_invalid(sitting, number) or _unexpected(sitting, number))
    return finding


def _judge_any(sitting: Sitting) -> Finding:
    if any(reading.validity.valid for reading in sitting.readings):
        return Finding()
    invalid = [reason for number in range(len(sitting.readings)) if (reason := _invalid(sitting, number))]
    return Finding(missing=invalid or [Reason(code="no_call")], settled=False)


def _judge_steps(mode: Mode, steps: tuple[Step, ...], sitting: Sitting) -> Finding:
    for accepted in (_CERTAIN, _POSSIBLE):
        attempts = [_attempt(mode, scenario, sitting) for scenario in _scenarios(steps, sitting, accepted)]
        for attempt in attempts:
            if attempt.holds:
                return _held(mode, steps, attempt, accepted, sitting)
        if not sitting.has_doubts:
            break  # nothing is possible that is not certain
    best = max(attempts, key=lambda attempt: len(attempt.pairs))  # the first of equals
    reasons = _reasons(mode, steps, best, sitting)
    can_mend = any(attempt.can_mend for attempt in attempts) or _may_turn(steps, best.scenario)
    if mode in (Mode.EXACT, Mode.ANY_ORDER, Mode.ONLY) and not can_mend:
        return Finding(reasons=reasons, settled=False, pairs=_numbered(best.pairs))
    final = [reason for reason in reasons if reason.code == "called_too_often"]
    missing = [reason for reason in reasons if reason.code != "called_too_often"]
    settled = mode is Mode.FIRST and bool(sitting.sample.cycles)
    return Finding(reasons=final, missing=missing, settled=settled, pairs=_numbered(best.pairs))


def _held(mode: Mode, steps: tuple[Step, ...], attempt: "_Attempt", accepted: Accepted, sitting: Sitting) -> Finding:
    bounded = any(step.count is not None and step.count.most is not None for step in steps)
    settled = mode in (Mode.CONTAINS, Mode.IN_ORDER) and not bounded
    if mode is Mode.FIRST:
        settled = bool(sitting.sample.cycles)
    finding = Finding(settled=settled, pairs=_numbered(attempt.pairs))
    if accepted is _POSSIBLE:
        for step, call in attempt.pairs:
            finding.open += [_of_miss(miss, step, call, sitting) for miss in sitting.fit(step, call).match.misses]
        finding.open = finding.open or [Reason(code="not_judged")]
    return finding


def _may_turn(steps: tuple[Step, ...], scenario: "_Scenario") -> bool:
    """Some condition hangs on a step that was not called yet."""
    return any(step.when is not None and scenario.chosen.get(step.when.result) is None for step in steps)


def _numbered(pairs: Pairs) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((step.number, call) for step, call in pairs))


# Scenarios.


@dataclass(frozen=True, slots=True)
class _Scenario:
    """`active` steps are expected. `chosen`: which call a step that others look back at stands for. `cycles`: the reply
    that a group is looked for in."""

    active: tuple[Step, ...]
    chosen: dict[int, int | None]
    cycles: dict[int, int | None]
    accepted: Accepted

    def allows(self, step: Step, call: int, sitting: Sitting) -> bool:
        if step.number in self.chosen and self.chosen[step.number] != call:
            return False
        if step.group is not None and self.cycles.get(step.group) != sitting.cycle_of(call):
            return False
        return sitting.fit(step, call).match.ok in self.accepted


def _scenarios(steps: tuple[Step, ...], sitting: Sitting, accepted: Accepted) -> Iterator[_Scenario]:
    return islice(_all_scenarios(steps, sitting, accepted), MAX_SCENARIOS)


def _all_scenarios(steps: tuple[Step, ...], sitting: Sitting, accepted: Accepted) -> Iterator[_Scenario]:
    if all(step.when is None and step.group is None for step in steps):
        yield _Scenario(steps, {}, {}, accepted)
        return
    looked_at = sorted({step.when.result for step in steps if step.when})
    choices = [_candidates(number, steps, sitting, accepted) for number in looked_at]
    for chosen in product(*choices):
        given = dict(zip(looked_at, chosen, strict=True))
        for active in _active(steps, given, sitting, accepted):
            numbers = {step.number for step in active}
            if any(call is not None and number not in numbers for number, call in given.items()):
                continue  # the same as with no call chosen
            groups = sorted({step.group for step in active if step.group is not None})
            for cycles in product(*(_cycles(group, active, sitting, accepted) for group in groups)):
                yield _Scenario(active, given, dict(zip(groups, cycles, strict=True)), accepted)


def _candidates(number: int, steps: tuple[Step, ...], sitting: Sitting, accepted: Accepted) -> list[int | None]:
    step = next(step for step in steps if step.number == number)
    fitting = [call for call in range(len(sitting.readings)) if sitting.fit(step, call).match.ok in accepted]
    return [*fitting, None]


def _active(
    steps: tuple[Step, ...], chosen: dict[int, int | None], sitting: Sitting, accepted: Accepted
) -> list[tuple[Step, ...]]:
    """The steps that are expected; several answers where a condition could not be decided."""
    found: list[tuple[Step, ...]] = [()]
    for step in steps:
        following: list[tuple[Step, ...]] = []
        for active in found:
            holds: bool | None = True
            if step.when is not None:
                is_active = any(each.number == step.when.result for each in active)
                holds = sitting.holds(step.when, chosen[step.when.result] if is_active else None)
            if holds or (holds is None and None in accepted):
                following.append((*active, step))
            if holds is False or (holds is None and None in accepted):
                following.append(active)
        found = following[:MAX_SCENARIOS]
    return found


def _cycles(group: int, active: tuple[Step, ...], sitting: Sitting, accepted: Accepted) -> Sequence[int | None]:
    members = [step for step in active if step.group == group]
    cycles = {
        sitting.cycle_of(call)
        for call in range(len(sitting.readings))
        if any(sitting.fit(step, call).match.ok in accepted for step in members)
    }
    return sorted(cycles) or [None]


# One scenario.


@dataclass(slots=True)
class _Attempt:
    """`pairs` are those of a walk where the mode keeps an order and it is kept, else as many as can be without order:
    they tell why. `holds` says whether that is what the mode asks. `can_mend`: more calls could."""

    scenario: _Scenario
    pairs: Pairs = ()
    holds: bool = False
    can_mend: bool = False
    too_often: list[tuple[Step, int]] = field(default_factory=list)


def _attempt(mode: Mode, scenario: _Scenario, sitting: Sitting) -> _Attempt:
    if mode is Mode.EXACT:
        return _in_exact_order(scenario, sitting)
    num_calls = len(sitting.readings)
    met, pairs = _pair(mode, scenario.active, range(num_calls), scenario, sitting)
    all_calls = len(pairs) == num_calls
    attempt = _Attempt(scenario, pairs)
    attempt.can_mend = mode not in _CLOSED or (all_calls and mode is not Mode.ONLY)
    if mode not in _CLOSED:
        attempt.too_often = _too_often(scenario, range(num_calls), sitting)
    attempt.holds = met and (all_calls or mode not in _CLOSED) and not attempt.too_often
    if mode is Mode.IN_ORDER and attempt.holds:
        in_order = _Walk(scenario, sitting).among_others()
        attempt.holds = in_order is not None
        attempt.pairs = pairs if in_order is None else in_order
    return attempt


def _in_exact_order(scenario: _Scenario, sitting: Sitting) -> _Attempt:
    walk = _Walk(scenario, sitting)
    pairs = walk.exactly()
    if pairs is not None:
        return _Attempt(scenario, pairs, holds=True, can_mend=walk.may_go_on)
    _, pairs = _pair(Mode.EXACT, scenario.active, range(walk.num_calls), scenario, sitting)
    return _Attempt(scenario, pairs, can_mend=walk.may_go_on)


def _pair(mode: Mode, steps: Sequence[Step], calls: range, scenario: _Scenario, sitting: Sitting) -> tuple[bool, Pairs]:
    """As many steps and calls as can be; and whether each step has the calls that it needs."""
    edges = [[place for place, call in enumerate(calls) if scenario.allows(step, call, sitting)] for step in steps]
    counts = [bounds(mode, step, len(calls)) for step in steps]
    found = Covering(edges, len(calls), [least for least, _ in counts], [most for _, most in counts])
    return found.is_met, tuple((steps[left], calls[right]) for left, right in found.pairs)


def bounds(mode: Mode, step: Step, num_calls: int) -> tuple[int, int]:
    """How often a step has to be called, and how often it may be. More than there are calls is one more."""
    if step.count is None:
        return (0, num_calls) if mode is Mode.ONLY else (1, 1)
    least = 0 if mode is Mode.ONLY else min(step.count.least, num_calls + 1)
    return least, num_calls if step.count.most is None else step.count.most


def _too_often(scenario: _Scenario, calls: Sequence[int], sitting: Sitting) -> list[tuple[Step, int]]:
    """Where other calls are allowed, a `max` that is written down still binds."""
    found = []
    for step in scenario.active:
        if step.count is not None and step.count.most is not None:
            made = sum(sitting.fit(step, call).match.ok is True for call in calls)
            if made > step.count.most:
                found.append((step, made))
    return found


class _Walk:
    """Along steps and calls in their order. The steps of a group have no order among themselves: calls of one reply
    have none either."""

    def __init__(self, scenario: _Scenario, sitting: Sitting) -> None:
        self.scenario = scenario
        self.sitting = sitting
        self.num_calls = len(sitting.readings)
        self.blocks = [list(block) for _, block in groupby(scenario.active, key=_block_of)]
        self.may_go_on = False

    def exactly(self) -> Pairs | None:
        """Each call is a step, each step a call; None where that cannot be."""
        came_from: list[dict[int, int]] = [{0: 0}]  # for each block: where it can end, and where it then begins
        for block in self.blocks:
            self.may_go_on |= self.num_calls in came_from[-1]
            ends: dict[int, int] = {}
            for start in came_from[-1]:
                for end in self._ends(block, start):
                    ends.setdefault(end, start)
            came_from.append(ends)
        if self.num_calls not in came_from[-1]:
            return None
        return self._along(came_from)

    def _along(self, came_from: list[dict[int, int]]) -> Pairs:
        end = self.num_calls
        pairs: Pairs = ()
        for block, ends in zip(reversed(self.blocks), reversed(came_from), strict=False):
            part = range(ends[end], end)
            taken = tuple((block[0], call) for call in part) if len(block) == 1 else self._take(block, part)[1]
            pairs, end = taken + pairs, part.start
        return pairs

    def _ends(self, block: list[Step], start: int) -> Iterator[int]:
        """The places up to which this block can take calls from `start` on."""
        if len(block) == 1:
            yield from self._ends_of_one(block[0], start)
            return
        for end in range(start, self.num_calls + 1):
            met, pairs = self._take(block, range(start, end))
            if len(pairs) < end - start:
                return  # a call that fits nothing here: further ones cannot help
            if end == self.num_calls and end == start:
                self.may_go_on = True  # a group that has begun cannot be completed in another reply
            if met:
                yield end

    def _ends_of_one(self, step: Step, start: int) -> Iterator[int]:
        least, most = bounds(Mode.EXACT, step, self.num_calls)
        for end in range(start, min(start + most, self.num_calls) + 1):
            if end > start and not self.scenario.allows(step, end - 1, self.sitting):
                return
            if end == self.num_calls and (end == start or step.group is None):
                self.may_go_on = True
            if end - start >= least:
                yield end

    def _take(self, block: list[Step], part: range) -> tuple[bool, Pairs]:
        return _pair(Mode.EXACT, block, part, self.scenario, self.sitting)

    def among_others(self) -> Pairs | None:
        """The steps in order, other calls between them. Taking the earliest that will do leaves most to the rest."""
        place = 0
        found: Pairs = ()
        for block in self.blocks:
            for end in range(place, self.num_calls + 1):
                met, pairs = self._take(block, range(place, end))
                if met:
                    place, found = end, found + pairs
                    break
            else:
                return None
        return found


def _block_of(step: Step) -> tuple[bool, int]:
    return (step.group is None, step.number if step.group is None else step.group)


# Why not.


def _reasons(mode: Mode, steps: tuple[Step, ...], attempt: _Attempt, sitting: Sitting) -> list[Reason]:
    """The fewest words that tell all: calls near a step are told by what is wrong with them."""
    scenario = attempt.scenario
    paired = {call for _, call in attempt.pairs}
    left = [call for call in range(len(sitting.readings)) if call not in paired]
    wanted = _unmet(mode, attempt, len(sitting.readings))
    reasons = [
        Reason(code="called_too_often", step=step.number, tool=_tools(step), expected=_most(step), got=made)
        for step, made in attempt.too_often
    ]
    if mode is Mode.ONLY:
        wanted = [step for step in scenario.active for _ in left]
    near = sorted(
        (
            (len(sitting.fit(step, call).match.misses), place, call)
            for place, step in enumerate(wanted)
            for call in left
            if sitting.fit(step, call).same_tool
        ),
    )
    met: set[int] = set()
    for _, place, call in near:
        if place not in met and call in left:
            met.add(place)
            left.remove(call)
            reasons += _near(wanted[place], call, sitting)
    wanted = [] if mode is Mode.ONLY else [step for place, step in enumerate(wanted) if place not in met]
    if mode in _CLOSED:
        for call in left:
            step = wanted.pop(0) if wanted else None
            reasons.append(_stranger(step, call, steps, scenario, sitting))
    for _, group in groupby(wanted, key=id):
        again = list(group)
        reasons.append(_missing(again[0], len(again), attempt))
    reasons = reasons or _wrong_order(scenario, sitting)
    far = len(sitting.readings)
    return sorted(reasons, key=lambda reason: (far if reason.call is None else reason.call, reason.step or 0))


def _unmet(mode: Mode, attempt: _Attempt, num_calls: int) -> list[Step]:
    """Steps that still need a call, as often as they do."""
    unmet: list[Step] = []
    for step in attempt.scenario.active:
        have = sum(each is step for each, _ in attempt.pairs)
        unmet += [step] * max(0, bounds(mode, step, num_calls)[0] - have)
    return unmet


def _near(step: Step, call: int, sitting: Sitting) -> list[Reason]:
    """What is wrong with a call of the right tool."""
    match = sitting.fit(step, call).match
    if match.ok:
        return [Reason(code="not_same_cycle", step=step.number, call=call, tool=sitting.readings[call].call.name)]
    decided = [miss for miss in match.misses if miss.code not in _OPEN_CODES]
    return [_of_miss(miss, step, call, sitting) for miss in decided or match.misses]


def _of_miss(miss: Miss, step: Step, call: int, sitting: Sitting) -> Reason:
    return Reason(
        code=miss.code,
        step=step.number,
        call=call,
        tool=sitting.readings[call].call.name,
        path=miss.path,
        expected=miss.expected,
        got=miss.got,
    )


def _stranger(step: Step | None, call: int, steps: tuple[Step, ...], scenario: _Scenario, sitting: Sitting) -> Reason:
    """A call that is like none of the steps, told beside the step that nothing was called for."""
    name = sitting.readings[call].call.name
    if invalid := _invalid(sitting, call, step):
        return invalid
    if step is not None:
        return Reason(code="wrong_tool", step=step.number, call=call, tool=name, expected=_tools(step), got=name)
    for each in steps:
        if each.when is not None and each not in scenario.active and sitting.fit(each, call).match.ok:
            return Reason(code="condition_not_met", step=each.number, call=call, tool=name, expected=each.when.source)
    return _unexpected(sitting, call)


def _missing(step: Step, times: int, attempt: _Attempt) -> Reason:
    sources = [shape.source for shape in step.shapes]
    expected: Any = sources[0] if len(sources) == 1 else {"any_of": sources}
    have = sum(each is step for each, _ in attempt.pairs)
    got = {"calls": have, "needed": have + times} if have + times > 1 else None
    return Reason(code="missing_call", step=step.number, tool=_tools(step), expected=expected, got=got)


def _wrong_order(scenario: _Scenario, sitting: Sitting) -> list[Reason]:
    """Told by the names of the tools; where these are in order, by what is wrong in each place."""
    if len(scenario.active) == len(sitting.readings):
        fits = [sitting.fit(step, call) for call, step in enumerate(scenario.active)]
        if all(fit.same_tool for fit in fits):
            wrong = [(step, call) for call, step in enumerate(scenario.active) if not fits[call].match.ok]
            return list(chain.from_iterable(_near(step, call, sitting) for step, call in wrong))
    expected = [_tools(step) for step in scenario.active]
    return [Reason(code="wrong_order", expected=expected, got=[reading.call.name for reading in sitting.readings])]


def _tools(step: Step) -> str:
    return " or ".join(dict.fromkeys(shape.tool.text for shape in step.shapes))


def _most(step: Step) -> int | None:
    return step.count.most if step.count else 1


def _invalid(sitting: Sitting, call: int, step: Step | None = None) -> Reason | None:
    validity = sitting.readings[call].validity
    if validity.valid:
        return None
    return Reason(
        code="invalid_call",
        step=None if step is None else step.number,
        call=call,
        tool=validity.tool,
        path=validity.path,
        expected=None if step is None else _tools(step),
        got=validity.message,
    )


def _unexpected(sitting: Sitting, call: int) -> Reason:
    reading = sitting.readings[call]
    return Reason(code="unexpected_call", call=call, tool=reading.call.name, got=reading.arguments)
