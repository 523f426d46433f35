"""What counts of passes allow to say. Exact tests in whole numbers; every random draw has a seed."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from random import Random
from statistics import NormalDist, fmean
from typing import Final

SIGNIFICANT: Final = 0.05
POWER: Final = 0.8
RESAMPLES: Final = 2_000
FEW_CASES: Final = 30  # below, nothing is said about a suite as a whole

# Cases that a suite needs to show a change (80 % power, alpha 0.05): share that breaks, share that is mended, cases.
SMALLEST_SUITES: Final = (
    (0.10, 0.00, 80),
    (0.05, 0.00, 160),
    (0.10, 0.02, 160),
    (0.05, 0.01, 310),
    (0.20, 0.05, 100),
)


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


class State(StrEnum):
    """What the samples of one case say together."""

    PASSING = "passing"
    FLAKY = "flaky"  # some passed and some did not
    FAILING = "failing"
    UNKNOWN = "unknown"  # no sample could be judged


class Change(StrEnum):
    """A case on two sides: the first is the baseline."""

    NEWLY_FAILING = "newly_failing"
    NEWLY_PASSING = "newly_passing"
    FLAKY_CHANGED = "flaky_changed"
    UNCHANGED = "unchanged"
    NOT_COMPARED = "not_compared"  # missing or without a judged sample on one side


# One side.


def wilson(passes: int, n: int, confidence: float = 0.95) -> Interval:
    """The interval of the true rate behind `passes` of `n`; nothing is known without samples."""
    _check_counts(passes, n)
    if n == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = passes / n
    centre = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if passes == 0 else (centre - spread) / scale
    high = 1.0 if passes == n else (centre + spread) / scale
    return Interval(low, high)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k samples passes, from c passes among n: 1 - C(n-c, k) / C(n, k)."""
    _check_k(n, c, k)
    return float(1 - Fraction(math.comb(n - c, k), math.comb(n, k)))


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k samples pass (pass^k): C(c, k) / C(n, k), unbiased, unlike the rate to the k."""
    _check_k(n, c, k)
    return float(Fraction(math.comb(c, k), math.comb(n, k)))


def case_state(passes: int, n: int) -> State:
    _check_counts(passes, n)
    if n == 0:
        return State.UNKNOWN
    if 0 < passes < n:
        return State.FLAKY
    return State.PASSING if passes else State.FAILING


def meets(need: str | float, passes: int, n: int) -> bool:
    """Does a case pass: `all` of its samples, the `majority` (more than half), or a share of them."""
    _check_counts(passes, n)
    if n == 0:
        return False
    if need == "all":
        return passes == n
    if need == "majority":
        return 2 * passes > n
    return Fraction(passes, n) >= Fraction(str(need))


def bootstrap_mean(
    rates: Sequence[float], *, seed: int, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """The interval of a suite's rate: the mean over its cases, drawn anew by whole cases. Samples of one case are not
    independent of each other, so they are never pooled."""
    return _bootstrap(rates, seed=seed, confidence=confidence, resamples=resamples)


# Two sides.


def fisher_drop(passes_a: int, n_a: int, passes_b: int, n_b: int) -> float:
    """One-sided exact test of one case: how likely are so few passes on side B, if both sides are alike?"""
    _check_counts(passes_a, n_a)
    _check_counts(passes_b, n_b)
    passes, total = passes_a + passes_b, n_a + n_b
    ways = sum(
        math.comb(passes, of_b) * math.comb(total - passes, n_b - of_b)
        for of_b in range(max(0, n_b - (total - passes)), passes_b + 1)
        if of_b <= passes
    )
    return float(Fraction(ways, math.comb(total, n_b)))


def mcnemar(b: int, c: int) -> float:
    """Two-sided exact test of a suite on paired cases: b passed on the first side alone, c on the second alone."""
    if b < 0 or c < 0:
        raise ValueError("counts are not negative")
    n = b + c
    tail = sum(math.comb(n, count) for count in range(min(b, c) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**n)))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values adjusted for testing many at once (Holm), in the order given."""
    order = sorted(range(len(p_values)), key=lambda place: (p_values[place], place))
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = highest
    return adjusted


def bootstrap_difference(
    pairs: Sequence[tuple[float, float]], *, seed: int, confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """The interval of (second side minus first side), drawn anew by whole cases with both their sides."""
    differences = [second - first for first, second in pairs]
    return _bootstrap(differences, seed=seed, confidence=confidence, resamples=resamples)


def change_of(first: tuple[int, int] | None, second: tuple[int, int] | None) -> Change:
    """How a case moved between (passes, samples) of two sides. A case that is missing is not a passing case."""
    if first is None or second is None or not first[1] or not second[1]:
        return Change.NOT_COMPARED
    before, after = case_state(*first), case_state(*second)
    if before is after:
        return Change.UNCHANGED
    if State.FLAKY in (before, after):
        return Change.FLAKY_CHANGED
    return Change.NEWLY_FAILING if before is State.PASSING else Change.NEWLY_PASSING


def is_suspect(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Did a case get worse at all? Suspects are run again with fresh samples on both sides, and judged by these."""
    return bool(first[1] and second[1]) and Fraction(second[0], second[1]) < Fraction(first[0], first[1])


def kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Cohen's kappa of two judges; None where there is nothing to agree on beyond chance."""
    return kappa_of(Counter(pairs))


def kappa_of(table: Mapping[tuple[str, str], int]) -> float | None:
    """Cohen's kappa of how often two judges said what: counts by (what one said, what the other said)."""
    shares = agreed_shares(table)
    if shares is None or shares[1] == 1:
        return None
    agreed, chance = shares
    return float((agreed - chance) / (1 - chance))


def agreed_shares(table: Mapping[tuple[str, str], int]) -> tuple[Fraction, Fraction] | None:
    """On which share of the items two judges agree, and on which they would by chance; None: there are no items."""
    n = sum(table.values())
    if not n:
        return None
    lefts, rights = Counter[str](), Counter[str]()
    for (left, right), count in table.items():
        lefts[left] += count
        rights[right] += count
    agreed = sum(count for (left, right), count in table.items() if left == right)
    return Fraction(agreed, n), Fraction(sum(lefts[label] * rights[label] for label in lefts), n * n)


# How many cases are enough.


def suite_power(n: int, broken: float, mended: float, alpha: float = SIGNIFICANT) -> float:
    """The chance that McNemar's test finds the drop, if this share of n cases breaks and that share is mended."""
    moved = broken + mended
    if not moved:
        return 0.0
    power = 0.0
    for changed in range(n + 1):
        found = sum(_binomial(changed, down, broken / moved) for down in range(_needed(changed, alpha), changed + 1))
        power += _binomial(n, changed, moved) * found
    return power


def smallest_suite(
    broken: float, mended: float, *, power: float = POWER, alpha: float = SIGNIFICANT, step: int = 10
) -> int | None:
    """Cases needed to find such a drop, in steps of `step`; None beyond 2,000."""
    return next((n for n in range(step, 2_001, step) if suite_power(n, broken, mended, alpha) >= power), None)


def suite_warning(n: int) -> str | None:
    """What to print beside the result of a small suite."""
    if n < FEW_CASES:
        return f"{n} cases are too few for a suite-level statement: only named cases are gated."
    smallest = min(cases for _, _, cases in SMALLEST_SUITES)
    if n < smallest:
        return (
            f"With {n} cases a suite-level test misses most regressions: {smallest} cases find a drop of 10 % of the "
            "cases in 4 of 5 runs."
        )
    return None


@cache
def _needed(changed: int, alpha: float) -> int:
    """How many of the changed cases have to have broken for McNemar's test to be significant."""
    return next(
        (down for down in range(changed // 2 + 1, changed + 1) if mcnemar(down, changed - down) < alpha), changed + 1
    )


def _binomial(n: int, count: int, chance: float) -> float:
    if chance >= 1:
        return float(count == n)
    logarithm = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
    return math.exp(logarithm + count * math.log(chance) + (n - count) * math.log1p(-chance))


def _bootstrap(
    values: Sequence[float],
    *,
    seed: int,
    confidence: float,
    resamples: int,
    of: Callable[[Sequence[float]], float] = fmean,
) -> Interval:
    if not values:
        raise ValueError("there is nothing to draw from")
    random = Random(seed)  # noqa: S311 (resampling, no secret)
    means = sorted(of(random.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - confidence) / 2
    return Interval(_quantile(means, tail), _quantile(means, 1 - tail))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _check_counts(passes: int, n: int) -> None:
    if not 0 <= passes <= n:
        raise ValueError(f"{passes} passes of {n} samples cannot be")


def _check_k(n: int, c: int, k: int) -> None:
    _check_counts(c, n)
    if not 1 <= k <= n:
        raise ValueError(f"{k} of {n} samples cannot be drawn")
