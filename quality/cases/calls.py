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
from quality.cases.pairing import covering
from quality.cases.sample import Reason

MAX_SCENARIOS: Final = 512

_CERTAIN: Final = (True,)
_POSSIBLE: Final = (True, None)
_CLOSED: Final = (Mode.EXACT, Mode.ANY_ORDER, Mode.FIRST, Mode.ONLY)  # a call that is no step fails
_ORDERED: Final = (Mode.EXACT, Mode.IN_ORDER)
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
    settled = mode is Mode.FIRST or (mode in (Mode.CONTAINS, Mode.IN_ORDER) and not bounded)
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
    """`pairs` are as many as can be; `holds` says whether that is what the mode asks. `can_mend`: more calls could."""

    scenario: _Scenario
    pairs: Pairs = ()
    holds: bool = False
    can_mend: bool = False
    too_often: list[tuple[Step, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Slots:
    """Steps as often as they may be called: `needed` says which of them have to be."""

    steps: tuple[Step, ...]
    needed: tuple[bool, ...]
    edges: tuple[tuple[int, ...], ...]


def _attempt(mode: Mode, scenario: _Scenario, sitting: Sitting) -> _Attempt:
    calls = range(len(sitting.readings))
    slots = _slots(mode, scenario.active, calls, scenario, sitting)
    partners = covering(slots.edges, len(calls), slots.needed)
    attempt = _Attempt(scenario, _pairs(slots, partners))
    complete = all(partner is not None for partner, needed in zip(partners, slots.needed, strict=True) if needed)
    all_calls = len(attempt.pairs) == len(calls)
    attempt.can_mend = mode not in _CLOSED or (all_calls and mode is not Mode.ONLY)
    if mode not in _CLOSED:
        attempt.too_often = _too_often(scenario, calls, sitting)
    attempt.holds = complete and (all_calls or mode not in _CLOSED) and not attempt.too_often
    if mode is Mode.EXACT:
        walk = _Walk(scenario, sitting)
        pairs = walk.exactly()
        attempt.can_mend = walk.may_go_on
        attempt.holds, attempt.pairs = pairs is not None, attempt.pairs if pairs is None else pairs
    elif mode is Mode.IN_ORDER and attempt.holds:
        pairs = _Walk(scenario, sitting).among_others()
        attempt.holds, attempt.pairs = pairs is not None, attempt.pairs if pairs is None else pairs
    return attempt


def _slots(mode: Mode, steps: Sequence[Step], calls: Sequence[int], scenario: _Scenario, sitting: Sitting) -> _Slots:
    """The calls are counted from 0 within `calls`."""
    rows: list[tuple[Step, bool, tuple[int, ...]]] = []
    for step in steps:
        fitting = tuple(place for place, call in enumerate(calls) if scenario.allows(step, call, sitting))
        least, most = bounds(mode, step, len(calls))
        rows += [(step, place < least, fitting) for place in range(max(least, min(most, len(fitting))))]
    return _Slots(tuple(row[0] for row in rows), tuple(row[1] for row in rows), tuple(row[2] for row in rows))


def bounds(mode: Mode, step: Step, num_calls: int) -> tuple[int, int]:
    """How often a step has to be called, and how often it may be. More than there are calls is one more."""
    if step.count is None:
        return (0, num_calls) if mode is Mode.ONLY else (1, 1)
    least = 0 if mode is Mode.ONLY else min(step.count.least, num_calls + 1)
    return least, num_calls if step.count.most is None else step.count.most


def _pairs(slots: _Slots, partners: Sequence[int | None]) -> Pairs:
    return tuple((step, call) for step, call in zip(slots.steps, partners, strict=True) if call is not None)


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
        by_group = groupby(scenario.active, key=_block_of)
        self.blocks = [list(block) for _, block in by_group]
        self.may_go_on = False

    def exactly(self) -> Pairs | None:
        """Each call is a step, each step a call; None where that cannot be."""
        reached: dict[int, Pairs] = {0: ()}
        for block in self.blocks:
            self.may_go_on |= self.num_calls in reached
            following: dict[int, Pairs] = {}
            for place, pairs in reached.items():
                for end, added in self._take(block, place):
                    following.setdefault(end, pairs + added)
            reached = following
        return reached.get(self.num_calls)

    def _take(self, block: list[Step], start: int) -> Iterator[tuple[int, Pairs]]:
        """The places up to which this block can take calls from `start` on."""
        for end in range(start, self.num_calls + 1):
            part = range(start, end)
            slots = _slots(Mode.EXACT, block, part, self.scenario, self.sitting)
            partners = covering(slots.edges, len(part), slots.needed)
            pairs = tuple((step, start + call) for step, call in _pairs(slots, partners))
            if len(pairs) < len(part):
                return  # a call that fits nothing here: further ones cannot help
            if end == self.num_calls and (not part or block[0].group is None):
                self.may_go_on = True  # the last reply is over: a group cannot be completed in another
            if all(partner is not None for partner, needed in zip(partners, slots.needed, strict=True) if needed):
                yield end, pairs

    def among_others(self) -> Pairs | None:
        """The steps in order, other calls between them. Taking the earliest that will do leaves most to the rest."""
        place = 0
        found: Pairs = ()
        for block in self.blocks:
            taken = next(
                filter(None, (self._first(block, place, end) for end in range(place, self.num_calls + 1))), None
            )
            if taken is None:
                return None
            found += taken[1]
            place = taken[0]
        return found

    def _first(self, block: list[Step], start: int, end: int) -> tuple[int, Pairs] | None:
        part = range(start, end)
        slots = _slots(Mode.EXACT, block, part, self.scenario, self.sitting)
        partners = covering(slots.edges, len(part), slots.needed)
        if any(partner is None for partner, needed in zip(partners, slots.needed, strict=True) if needed):
            return None
        return end, tuple((step, start + call) for step, call in _pairs(slots, partners))


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
