"""Is the gate passed? With a baseline only what got worse counts; without one every case has to pass.

A gate that has failed stays failed, whatever else is missing. One that has not is passed only if the run is complete.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from quality.cases.comparison import Compared, Comparison
from quality.cases.confirm import ROUNDS
from quality.cases.results import CaseResult, Standing, SuiteResult

MAX_NAMED = 10


class Exit(IntEnum):
    """What the command tells the shell."""

    PASSED = 0
    FAILED = 1
    BAD_INPUT = 2
    INCOMPLETE = 3


@dataclass(frozen=True, slots=True)
class Gate:
    """`failed` and `missing` say why it is not passed; `red` and `open` name the cases concerned."""

    failed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    red: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()

    @property
    def exit(self) -> Exit:
        return Exit.FAILED if self.failed else Exit.INCOMPLETE if self.missing else Exit.PASSED


def gate_of(suite: SuiteResult, comparison: Comparison | None = None, *, strict: bool = False) -> Gate:
    """`strict`: a case that got worse fails the gate even where chance could have done it."""
    failing, undecided = _ids(suite.standing(Standing.FAILED)), _ids(suite.standing(Standing.UNDECIDED))
    missing = [f"{named(undecided)} could not be decided: samples are missing."] if undecided else []
    if comparison is None:
        failed = (f"{named(failing)} failed.",) if failing else ()
        return Gate(failed, tuple(missing), frozenset(failing), frozenset(undecided))
    gated = {each.case.id for each in suite.gated}
    if unsure := [each.case for each in comparison.cases if each.case in gated and _lacks_fresh(each)]:
        missing.append(f"{named(unsure)} got worse, and fresh samples that would confirm it are missing.")
    confirmed = [each.case for each in comparison.confirmed]
    must = _ids(each for each in suite.standing(Standing.FAILED) if each.is_must)
    suspected = [each.case for each in comparison.cases if strict and each.suspect and each.case in gated]
    reasons = [f"{named(confirmed)}: newly failing, and more than chance." if confirmed else ""]
    reasons += [f"{named(must)} must pass, and failed." if must else ""]
    reasons += [f"{named(suspected)} got worse." if suspected else ""]
    if comparison.is_down:
        reasons.append(
            f"The suite got worse: {comparison.broken} cases broke, {comparison.mended} were mended "
            f"(McNemar p = {comparison.p:.3g})."
        )
    red = frozenset([*confirmed, *must, *suspected])
    return Gate(tuple(filter(None, reasons)), tuple(missing), red, frozenset([*undecided, *unsure]))


def _lacks_fresh(each: Compared) -> bool:
    """It was run again, nothing is confirmed, and too few of the fresh samples could be judged to say so."""
    return each.fresh is not None and not each.confirmed and min(judged for _, judged in each.fresh) < ROUNDS[0]


def _ids(results: Iterable[CaseResult]) -> list[str]:
    return [each.case.id for each in results]


def named(cases: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(cases) - MAX_NAMED
    return ", ".join(cases[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
