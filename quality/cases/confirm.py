"""Suspects are put to both sides again: decided is by these fresh samples alone, and by more of them where in doubt.

rounds = confirming(before, after)
wanted = next(rounds)                        # samples `wanted.indexes` of `wanted.cases`, on both sides
wanted = rounds.send({case: (counts of the baseline, of the candidate)})
…                                            # StopIteration holds the counts that decide
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quality.cases.comparison import Counts, compare, suspects
from quality.cases.results import CaseResult

FRESH: Final = 1_000_000  # number of the first sample that confirms a suspect: none of an earlier run
ROUNDS: Final = (10, 20)  # fresh samples of a suspect on each side; the second number where the first left doubt

type Pairs = Mapping[str, tuple[tuple[int, int], tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Round:
    """`first` and `last` count fresh samples: those before `first` are there from the round before."""

    cases: tuple[str, ...]
    first: int
    last: int

    @property
    def indexes(self) -> range:
        return range(FRESH + self.first, FRESH + self.last)

    def __contains__(self, index: int) -> bool:
        """Is a sample one of those that this round is decided by?"""
        return FRESH <= index < FRESH + self.last


def confirming(before: Mapping[str, Counts], after: Sequence[CaseResult]) -> Generator[Round, Pairs, Pairs]:
    """The rounds that are needed. Each is answered with the counts of all fresh samples of its cases up to `last`;
    returned are those that decide, by case."""
    doubtful = tuple(suspects(before, after))
    found: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
    first = 0
    for last in ROUNDS:
        if not doubtful:
            break
        counts = yield Round(doubtful, first, last)
        found |= {case: counts[case] for case in doubtful}
        told = compare(before, after, fresh=found)
        doubtful = tuple(each.case for each in told.cases if each.case in doubtful and not each.confirmed)
        first = last
    return found
