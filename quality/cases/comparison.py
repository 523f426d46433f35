"""Two sides of a suite: which cases moved, which of that is more than chance, and what the suite as a whole says.

The first side is the baseline. A case that got worse is a suspect. Where both sides can be asked again, suspects are
run with fresh samples and judged by these alone; from counts that are there already, by an exact test. Either way the
p values are adjusted for the number of suspects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError
from quality.cases.results import SEED, CaseResult
from quality.cases.statistics import (
    SIGNIFICANT,
    Change,
    bootstrap_difference,
    change_of,
    fisher_drop,
    holm,
    is_suspect,
    mcnemar,
    meets,
    suite_warning,
)

__all__ = ["BadBaseline", "Compared", "Comparison", "Counts", "baseline_of", "compare", "suspects"]


class BadBaseline(EngineError):
    """A report that cannot be compared with."""


@dataclass(frozen=True, slots=True)
class Counts:
    """A case on the baseline."""

    version: int
    passes: int
    judged: int

    @property
    def pair(self) -> tuple[int, int]:
        return self.passes, self.judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`p` is that of the drop, adjusted; None where nothing got worse. `fresh` are counts of samples that were made to
    confirm it: baseline, candidate."""

    case: str
    change: Change
    before: tuple[int, int] | None
    after: tuple[int, int] | None
    suspect: bool = False
    p: float | None = None
    confirmed: bool = False
    fresh: tuple[tuple[int, int], tuple[int, int]] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`broken` and `mended` count cases by whether they met what they need."""

    cases: tuple[Compared, ...]
    broken: int
    mended: int
    p: float
    difference: tuple[float, float, float] | None  # mean, low, high
    warning: str | None

    @property
    def confirmed(self) -> list[Compared]:
        return [each for each in self.cases if each.confirmed]

    @property
    def is_down(self) -> bool:
        """The suite got worse, and not by chance. Small suites are not judged as a whole."""
        few = self.warning is not None and "too few" in self.warning
        return not few and self.broken > self.mended and self.p < SIGNIFICANT

    def of_change(self, change: Change) -> list[Compared]:
        return [each for each in self.cases if each.change is change]

    def as_dict(self) -> dict[str, Any]:
        return {
            "broken": self.broken,
            "mended": self.mended,
            "mcnemarP": self.p,
            "significantDrop": self.is_down,
            "difference": self.difference and {"mean": self.difference[0], "interval": list(self.difference[1:])},
            "warning": self.warning,
            "changes": {str(change): len(self.of_change(change)) for change in Change},
            "cases": [
                {
                    "case": each.case,
                    "change": str(each.change),
                    "before": each.before,
                    "after": each.after,
                    "suspect": each.suspect,
                    "p": each.p,
                    "confirmed": each.confirmed,
                    "fresh": each.fresh,
                    "note": each.note,
                }
                for each in self.cases
            ],
        }


def baseline_of(report: Any) -> dict[str, Counts]:
    """The counts of an earlier report (`--out-json`); raises `BadBaseline`."""
    try:
        if report["report"] != "tool_call_regressions":
            raise KeyError("report")
        if report["mode"] == "validate":
            raise BadBaseline("The baseline is a report of a validation: it has no samples. Make one with --replay.")
        return {
            str(case["id"]): Counts(int(case["version"]), int(case["passes"]), int(case["judged"]))
            for case in report["cases"]
            if case.get("judged") is not None
        }
    except (KeyError, TypeError, ValueError) as error:
        raise BadBaseline("The baseline is no report of this program. Name a file that --out-json wrote.") from error


def suspects(before: Mapping[str, Counts], after: Sequence[CaseResult]) -> list[str]:
    """The cases that got worse at all."""
    return [
        each.case.id
        for each in after
        if (first := _same_version(before, each))
        and first.judged
        and each.judged
        and is_suspect(first.pair, each.counts)
    ]


def compare(
    before: Mapping[str, Counts],
    after: Sequence[CaseResult],
    *,
    fresh: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] | None = None,
) -> Comparison:
    """`fresh`: for suspects that were run again, the counts of the fresh samples on both sides."""
    suspected = suspects(before, after)
    results = {each.case.id: each for each in after}
    decisive = {case: (fresh or {}).get(case) or (before[case].pair, results[case].counts) for case in suspected}
    adjusted = holm([fisher_drop(*first, *second) for first, second in decisive.values()])
    p_values = dict(zip(decisive, adjusted, strict=True))
    compared = []
    for case, each in results.items():
        first = _same_version(before, each)
        p = p_values.get(case)
        compared.append(
            Compared(
                case=case,
                change=change_of(first.pair if first else None, each.counts),
                before=first.pair if first else None,
                after=each.counts,
                suspect=case in p_values,
                p=p,
                confirmed=p is not None and p < SIGNIFICANT and not each.quarantined,
                fresh=(fresh or {}).get(case),
                note=_note(before.get(case), each),
            )
        )
    compared += [
        Compared(case=case, change=Change.NOT_COMPARED, before=first.pair, after=None, note="It is not in this run.")
        for case, first in before.items()
        if case not in results
    ]
    return _suite(before, after, tuple(compared))


def _same_version(before: Mapping[str, Counts], each: CaseResult) -> Counts | None:
    first = before.get(each.case.id)
    return first if first is not None and first.version == each.case.version else None


def _note(first: Counts | None, each: CaseResult) -> str:
    if first is None:
        return "It is not in the baseline."
    if first.version != each.case.version:
        return f"It was changed: version {first.version} in the baseline, {each.case.version} now."
    return "" if first.judged and each.judged else "It has no judged sample on one side."


def _suite(before: Mapping[str, Counts], after: Sequence[CaseResult], cases: tuple[Compared, ...]) -> Comparison:
    pairs = [
        (first, each)
        for each in after
        if not each.quarantined and (first := _same_version(before, each)) and first.judged and each.judged
    ]
    met = [(meets(each.need, *first.pair), meets(each.need, *each.counts)) for first, each in pairs]
    broken = sum(was and not now for was, now in met)
    mended = sum(now and not was for was, now in met)
    rates = [(first.passes / first.judged, each.passes / each.judged) for first, each in pairs]
    difference = None
    if rates:
        interval = bootstrap_difference(rates, seed=SEED)
        difference = (sum(now - was for was, now in rates) / len(rates), interval.low, interval.high)
    return Comparison(
        cases=cases,
        broken=broken,
        mended=mended,
        p=mcnemar(broken, mended),
        difference=difference,
        warning=suite_warning(len(pairs)),
    )
