"""How far reviewers agree about labels, beyond what chance alone would give. Pure: plain values in, figures out.

| figure | of | interval (95 %) |
| --- | --- | --- |
| Krippendorff's alpha, nominal | any number of reviewers, answers may be missing | bootstrap over items, fixed seed |
| raw agreement | the same: how often two answers on one item are equal | the same draws |
| Cohen's kappa | two reviewers on the items that both answered | large samples: Fleiss, Cohen, Everitt (1969) |
| shares: precision, recall, agreement of a pair | counts | Wilson |

Each is told for all labels, and for each label against the rest. Where all agree, resampling and large samples would
both claim certainty, and of few items the formula for large ones claims too much: the interval is then Wilson's of raw
agreement, taken beyond chance as it was observed.
What cannot be told is None with a reason, never a number that means nothing. docs/agreement.md says how to read them.
"""

import math
import statistics as plain
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from random import Random
from typing import Final

from quality.cases.statistics import Interval, agreed_shares, kappa_of, wilson

SEED: Final = 2011
RESAMPLES: Final = 1_000
KEPT: Final = 512  # resampled figures; they are of counts alone, so the same ones of any tenant are the same
FEW: Final = 20  # items; below, a figure is said to be of few
MAX_PAIRED: Final = 30  # reviewers that are held against each other in pairs, those with most shared items
_Z: Final = plain.NormalDist().inv_cdf(0.975)

type Triple = tuple[Hashable, Hashable, str]
"""An item, a reviewer, and the label that the reviewer gave it."""
type Sheet = dict[Hashable, dict[Hashable, str]]
"""Labels by item and reviewer."""
type Table = Mapping[tuple[str, str], int]
"""On how many items one said this and the other that."""
type Pattern = tuple[str, ...]
"""All answers on one item, sorted."""
type Counts = tuple[tuple[Pattern, int], ...]
"""How many items have which answers, sorted."""


class Why(StrEnum):
    """Why a figure, or its interval, cannot be told."""

    NO_ITEMS = "no_items"  # nothing that it could be of
    ONE_ANSWER = "one_answer"  # all answers are the same: nothing is left to agree on beyond chance
    ONE_ITEM = "one_item"  # a figure, but no interval
    ONE_SIDED = "one_sided"  # one of two always says the same: kappa is 0 whatever the other says, so has no interval


class How(StrEnum):
    """What an interval comes from."""

    ANALYTIC = "analytic"
    BOOTSTRAP = "bootstrap"
    WILSON = "wilson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure, the number of items it rests on, and its interval. `value` None: see `why`, which also says why there
    is a value without an interval."""

    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    how: How | None = None
    why: Why | None = None

    @property
    def is_small(self) -> bool:
        """Too few items to lean on."""
        return self.n < FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class OfLabel:
    """One label against the rest. `again`: where one reviewer said it, how often another said it too (specific
    agreement); its n counts the items on which anybody said it."""

    label: str
    num_given: int
    alpha: Measure
    raw: Measure
    again: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two reviewers on the items that both answered; `labels` has kappa for each label against the rest."""

    left: Hashable
    right: Hashable
    kappa: Measure
    raw: Measure
    labels: dict[str, Measure]
    table: Table

    @property
    def num_items(self) -> int:
        return sum(self.table.values())

    @property
    def num_apart(self) -> int:
        """Items on which they disagree."""
        return sum(count for (left, right), count in self.table.items() if left != right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """One reviewer against what most of the others say; items on which the others are split do not count."""

    kappa: Measure
    raw: Measure
    num_split: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What all reviewers' answers say together. `num_shared` items have two answers or more; the figures are of them.
    `confusion` counts pairs of answers on one item, the labels of a pair in the order of `labels`. `num_left_out`
    reviewers share items, but are in no pair, for there are too many of them."""

    num_items: int
    num_labels: int
    num_reviewers: int
    num_shared: int
    alpha: Measure
    raw: Measure
    labels: tuple[OfLabel, ...]
    pairs: tuple[Pair, ...]
    confusion: dict[tuple[str, str], int]
    num_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How well something predicts what people say, in counts of items: foretold and so, foretold and not so, missed,
    and neither."""

    hits: int
    false_alarms: int
    missed: int
    neither: int

    @property
    def n(self) -> int:
        return self.hits + self.false_alarms + self.missed + self.neither

    @property
    def precision(self) -> Measure:
        """Of what was foretold, the share that people say too."""
        return share(self.hits, self.hits + self.false_alarms)

    @property
    def recall(self) -> Measure:
        """Of what people say, the share that was foretold."""
        return share(self.hits, self.hits + self.missed)

    @property
    def kappa(self) -> Measure:
        yes, no = "yes", "no"
        counts = (self.hits, self.false_alarms, self.missed, self.neither)
        return kappa(dict(zip(((yes, yes), (yes, no), (no, yes), (no, no)), counts, strict=True)))


# What is handed in.


def sheet_of(triples: Iterable[Triple]) -> Sheet:
    """Answers by item and reviewer. Of two by one reviewer on one item, the first counts."""
    sheet: Sheet = {}
    for item, reviewer, label in triples:
        sheet.setdefault(item, {}).setdefault(reviewer, label)
    return sheet


def majority[T: Hashable](said: Iterable[T]) -> T | None:
    """What most say; None where nothing is said more often than all else, or nothing at all."""
    ranked = Counter(said).most_common(2)
    if not ranked or (len(ranked) > 1 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


# All reviewers together.


def agreement(sheet: Sheet, labels: Sequence[str] = ()) -> Agreement:
    """All figures of a sheet. `labels` gives the order of the labels, and names those that nobody gave; others follow.

    Time grows with the number of answers, and with that of pairs of answers on one item (of MAX_PAIRED reviewers).
    """
    patterns = Counter(tuple(sorted(said.values())) for said in sheet.values() if len(said) > 1)
    names = (*labels, *sorted({label for pattern in patterns for label in pattern} - set(labels)))
    alpha, raw = alpha_and_raw(patterns)
    paired, num_left_out = pairs(sheet, names)
    return Agreement(
        num_items=len(sheet),
        num_labels=sum(map(len, sheet.values())),
        num_reviewers=len({reviewer for said in sheet.values() for reviewer in said}),
        num_shared=patterns.total(),
        alpha=alpha,
        raw=raw,
        labels=tuple(_of_label(label, patterns) for label in names),
        pairs=paired,
        confusion=_confusion(patterns, names),
        num_left_out=num_left_out,
    )


def alpha_and_raw(patterns: Mapping[Pattern, int]) -> tuple[Measure, Measure]:
    """Krippendorff's alpha, and the raw agreement in it, of how many items have which answers; items with one answer
    say nothing."""
    return _alpha_and_raw(tuple(sorted(patterns.items())))


@lru_cache(maxsize=KEPT)
def _alpha_and_raw(patterns: Counts) -> tuple[Measure, Measure]:
    sample = _Sample(dict(patterns))
    chance = sample.chance
    if sample.raw is None:
        nothing = Measure(value=None, n=0, why=Why.NO_ITEMS)
        return nothing, nothing
    if chance is None:
        return Measure(value=None, n=sample.n, why=Why.ONE_ANSWER), share(sample.n, sample.n)
    value = (sample.raw - chance) / (1 - chance)
    if sample.n == 1:
        return tuple(Measure(value=float(each), n=1, why=Why.ONE_ITEM) for each in (value, sample.raw))  # type: ignore[return-value]
    if sample.raw in (0, 1):
        known = wilson(sample.n if sample.raw else 0, sample.n)
        of_alpha = _corrected(known, float(chance))
        return _measure(value, sample.n, of_alpha, How.WILSON), _measure(sample.raw, sample.n, known, How.WILSON)
    alphas, raws = sample.resampled()
    return (
        _measure(value, sample.n, _middle(alphas), How.BOOTSTRAP),
        _measure(sample.raw, sample.n, _middle(raws), How.BOOTSTRAP),
    )


def _of_label(label: str, patterns: Mapping[Pattern, int]) -> OfLabel:
    against = Counter[Pattern]()
    for pattern, count in patterns.items():
        against[_against(label, pattern)] += count
    alpha, raw = alpha_and_raw(against)
    return OfLabel(
        label=label,
        num_given=sum(pattern.count(_THIS) * count for pattern, count in against.items()),
        alpha=alpha,
        raw=raw,
        again=_again(against),
    )


_THIS, _OTHER = "this", "other"


def _against(label: str, pattern: Pattern) -> Pattern:
    given = pattern.count(label)
    return (_OTHER,) * (len(pattern) - given) + (_THIS,) * given


def _again(against: Mapping[Pattern, int]) -> Measure:
    """Specific agreement on `_THIS`: each answer weighs the share of the item's other answers that are the same."""
    return _again_of(tuple(sorted((pattern, count) for pattern, count in against.items() if _THIS in pattern)))


@lru_cache(maxsize=KEPT)
def _again_of(patterns: Counts) -> Measure:
    given = dict(patterns)
    n = sum(given.values())
    if not n:
        return Measure(value=None, n=0, why=Why.NO_ITEMS)
    parts = [(said := pattern.count(_THIS), said * (said - 1) / (len(pattern) - 1)) for pattern in given]
    counts = list(given.values())

    def ratio(weights: Sequence[int]) -> float:
        told = sum(weight * said for weight, (said, _) in zip(weights, parts, strict=True))
        return sum(weight * again for weight, (_, again) in zip(weights, parts, strict=True)) / told

    value = ratio(counts)
    if value in (0, 1):
        return _measure(value, n, wilson(n if value else 0, n), How.WILSON)
    if n == 1:
        return Measure(value=value, n=1, why=Why.ONE_ITEM)
    random = Random(SEED)  # noqa: S311 (resampling, no secret)
    return _measure(value, n, _middle([ratio(_drawn(random, counts)) for _ in range(RESAMPLES)]), How.BOOTSTRAP)


def _confusion(patterns: Mapping[Pattern, int], names: Sequence[str]) -> dict[tuple[str, str], int]:
    found = Counter[tuple[str, str]]()
    for pattern, count in patterns.items():
        given = Counter(pattern)
        said = [name for name in names if name in given]
        for place, one in enumerate(said):
            found[one, one] += count * math.comb(given[one], 2)
            for other in said[place + 1 :]:
                found[one, other] += count * given[one] * given[other]
    return {key: count for key, count in found.items() if count}


class _Sample:
    """Items by their answers, from which other samples of the same size are drawn."""

    def __init__(self, patterns: Mapping[Pattern, int]) -> None:
        # Sorted: the draws of a seed must not depend on the order in which items came.
        shared = sorted((pattern, count) for pattern, count in patterns.items() if len(pattern) > 1)
        self.counts = [count for _, count in shared]
        self.n = sum(self.counts)
        given = [Counter(pattern) for pattern, _ in shared]
        labels = sorted({label for counts in given for label in counts})
        self.num_labels = len(labels)
        self.said = [[(labels.index(label), number) for label, number in counts.items()] for counts in given]
        self.sizes = [counts.total() for counts in given]
        agreed = [Fraction(sum(k * (k - 1) for k in counts.values()), counts.total() - 1) for counts in given]
        self.agreed = [float(each) for each in agreed]
        total = sum(count * size for count, size in zip(self.counts, self.sizes, strict=True))
        of_labels = self._of_labels(self.counts)
        self.raw: Fraction | None = None
        self.chance: Fraction | None = None
        if total:
            self.raw = sum((c * a for c, a in zip(self.counts, agreed, strict=True)), Fraction()) / total
            chance = Fraction(sum(k * (k - 1) for k in of_labels), total * (total - 1))
            self.chance = None if chance == 1 else chance

    def _of_labels(self, counts: Sequence[int]) -> list[int]:
        """How often each label is given in so many items of each pattern."""
        totals = [0] * self.num_labels
        for count, said in zip(counts, self.said, strict=True):
            if count:
                for label, number in said:
                    totals[label] += count * number
        return totals

    def resampled(self) -> tuple[list[float], list[float]]:
        """Alpha (where it is defined) and raw agreement of RESAMPLES samples."""
        random = Random(SEED)  # noqa: S311 (resampling, no secret)
        alphas, raws = [], []
        for _ in range(RESAMPLES):
            counts = _drawn(random, self.counts)
            total = sum(map(int.__mul__, counts, self.sizes))
            raw = sum(map(float.__mul__, map(float, counts), self.agreed)) / total
            chance = sum(k * (k - 1) for k in self._of_labels(counts)) / (total * (total - 1))
            raws.append(raw)
            if chance < 1:
                alphas.append((raw - chance) / (1 - chance))
        return alphas, raws


def _drawn(random: Random, counts: Sequence[int]) -> list[int]:
    """A sample with replacement, of as many items as there are, told by kind: a kind at a time, so that it costs the
    number of kinds and not that of items."""
    left = rest = sum(counts)
    drawn = []
    for count in counts:
        number = left if count == rest else random.binomialvariate(left, count / rest) if left else 0
        drawn.append(number)
        left -= number
        rest -= count
    return drawn


def _middle(values: Sequence[float]) -> Interval | None:
    """The middle 95 % of what was drawn; None where too little of it was defined."""
    if len(values) < RESAMPLES / 2:
        return None
    cuts = plain.quantiles(values, n=40, method="inclusive")
    return Interval(cuts[0], cuts[-1])


# Two reviewers.


def kappa(table: Table) -> Measure:
    """Cohen's kappa of a table of two reviewers' answers."""
    n = sum(table.values())
    value = kappa_of(table)
    shares = agreed_shares(table)
    if shares is None:
        return Measure(value=None, n=0, why=Why.NO_ITEMS)
    if value is None:
        return Measure(value=None, n=n, why=Why.ONE_ANSWER)
    if n == 1:
        return Measure(value=value, n=1, why=Why.ONE_ITEM)
    if any(len({cell[side] for cell, count in table.items() if count}) == 1 for side in (0, 1)):
        return Measure(value=value, n=n, why=Why.ONE_SIDED)
    agreed, chance = shares
    if agreed == 1 or n < FEW:
        return _measure(value, n, _corrected(wilson(round(agreed * n), n), float(chance)), How.WILSON)
    spread = _Z * kappa_error(table)
    return _measure(value, n, Interval(max(-1.0, value - spread), min(1.0, value + spread)), How.ANALYTIC)


def kappa_error(table: Table) -> float:
    """The standard error of kappa in large samples: Fleiss, Cohen and Everitt, Psychological Bulletin 72 (1969), 323.
    The table has items, and kappa is defined."""
    n = sum(table.values())
    lefts, rights = Counter[str](), Counter[str]()
    for (left, right), count in table.items():
        lefts[left] += count
        rights[right] += count
    shares = agreed_shares(table)
    assert shares is not None
    agreed, chance = map(float, shares)
    on = off = 0.0
    for (left, right), count in table.items():
        if left == right:
            on += count / n * ((1 - chance) - (lefts[left] + rights[left]) / n * (1 - agreed)) ** 2
        else:
            off += count / n * ((rights[left] + lefts[right]) / n) ** 2
    variance = on + (1 - agreed) ** 2 * off - (agreed * chance - 2 * chance + agreed) ** 2
    return math.sqrt(max(0.0, variance) / n) / (1 - chance) ** 2


def share(part: int, whole: int) -> Measure:
    """A share with Wilson's interval."""
    if not whole:
        return Measure(value=None, n=0, why=Why.NO_ITEMS)
    return _measure(part / whole, whole, wilson(part, whole), How.WILSON)


def pair(left: Hashable, right: Hashable, table: Table, labels: Sequence[str]) -> Pair:
    agreed = sum(count for (one, other), count in table.items() if one == other)
    return Pair(
        left=left,
        right=right,
        kappa=kappa(table),
        raw=share(agreed, sum(table.values())),
        labels={label: kappa(one_against_rest(label, table)) for label in labels},
        table=table,
    )


def one_against_rest(label: str, table: Table) -> Table:
    found = Counter[tuple[str, str]]()
    for (left, right), count in table.items():
        found[_THIS if left == label else _OTHER, _THIS if right == label else _OTHER] += count
    return found


def pairs(sheet: Sheet, labels: Sequence[str], most: int = MAX_PAIRED) -> tuple[tuple[Pair, ...], int]:
    """Every two reviewers with an item in common, of the `most` who share most, and how many are left out for that."""
    shares = Counter(reviewer for said in sheet.values() if len(said) > 1 for reviewer in said)
    ranked = sorted(shares, key=lambda reviewer: (-shares[reviewer], str(reviewer)))
    rank = {reviewer: place for place, reviewer in enumerate(ranked[:most])}
    tables: dict[tuple[Hashable, Hashable], Counter[tuple[str, str]]] = {}
    for said in sheet.values():
        if len(said) > 1:
            known = sorted(said.keys() & rank.keys(), key=rank.__getitem__)
            for two in combinations(known, 2):
                tables.setdefault(two, Counter())[said[two[0]], said[two[1]]] += 1
    in_order = sorted(tables.items(), key=lambda entry: (rank[entry[0][0]], rank[entry[0][1]]))
    return tuple(pair(*two, table, labels) for two, table in in_order), max(0, len(ranked) - most)


def against_rest(sheet: Sheet) -> dict[Hashable, Rest]:
    """Each reviewer who shares an item with others, against what most of the others say of it."""
    tables: dict[Hashable, Counter[tuple[str, str]]] = {}
    splits = Counter[Hashable]()
    for reviewer, mine, others in _each_against_others(sheet):
        table = tables.setdefault(reviewer, Counter())
        if others is None:
            splits[reviewer] += 1
        else:
            table[mine, others] += 1
    return {
        reviewer: Rest(
            kappa=kappa(table),
            raw=share(sum(count for (mine, theirs), count in table.items() if mine == theirs), table.total()),
            num_split=splits[reviewer],
        )
        for reviewer, table in tables.items()
    }


def _each_against_others(sheet: Sheet) -> Iterator[tuple[Hashable, str, str | None]]:
    for said in sheet.values():
        if len(said) > 1:
            counts = Counter(said.values())
            for reviewer, mine in said.items():
                counts[mine] -= 1
                yield reviewer, mine, majority(counts.elements())
                counts[mine] += 1


# What foretells.


def predictions[R](truth: Mapping[Hashable, bool], flagged: Mapping[R, Iterable[Hashable]]) -> dict[R, Prediction]:
    """How well each of several flags foretells what people say. `truth` has what they say of each item; items that a
    flag names and nobody spoke of are passed over."""
    num_true = sum(truth.values())

    def of(items: Iterable[Hashable]) -> Prediction:
        known = Counter(truth[item] for item in set(items) if item in truth)
        return Prediction(
            hits=known[True],
            false_alarms=known[False],
            missed=num_true - known[True],
            neither=len(truth) - num_true - known[False],
        )

    return {name: of(items) for name, items in flagged.items()}


# What figures share.


def _measure(value: float | Fraction, n: int, interval: Interval | None, how: How) -> Measure:
    if interval is None:
        return Measure(value=float(value), n=n, why=Why.ONE_ANSWER)
    return Measure(value=float(value), n=n, low=interval.low, high=interval.high, how=how)


def _corrected(raw: Interval, chance: float) -> Interval:
    """An interval of raw agreement, taken beyond chance."""
    return Interval(*((end - chance) / (1 - chance) for end in (raw.low, raw.high)))
