"""What the samples of a run say: of each case, of the suite, and whether the gate is passed.

A sample that ended in an error enters no rate. If those that are missing could still change what a case is told to be,
the case is `undecided` and the run incomplete: a missing sample is not a passing one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import quantiles
from typing import Any, Final

from quality.cases.attempt import Attempt
from quality.cases.judge import Ask, CaseJudge
from quality.cases.record import Case
from quality.cases.sample import Judgement, Verdict
from quality.cases.statistics import (
    Interval,
    State,
    bootstrap_mean,
    case_state,
    meets,
    pass_at_k,
    pass_hat_k,
    wilson,
)
from quality.cases.stubs import Source
from quality.cases.toolset import Toolset

MUST: Final = "must"  # tag of cases that have to pass, whatever the statistics say
QUARANTINE: Final = "quarantine"  # tag of cases that are run and not gated
SEED: Final = 20_261_130  # of the bootstrap: the same counts give the same interval


class Standing(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Judged:
    attempt: Attempt
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case on one side."""

    case: Case
    expected: int
    samples: tuple[Judged, ...]
    quarantined: bool = False

    @property
    def judged(self) -> int:
        return sum(each.judgement.verdict is not Verdict.ERROR for each in self.samples)

    @property
    def passes(self) -> int:
        return sum(each.judgement.passed for each in self.samples)

    @property
    def counts(self) -> tuple[int, int]:
        return self.passes, self.judged

    @property
    def state(self) -> State:
        return case_state(self.passes, self.judged)

    @property
    def need(self) -> str | float:
        return self.case.expectation.verdict.need

    @property
    def standing(self) -> Standing:
        missing = max(0, max(self.expected, len(self.samples)) - self.judged)
        if not self.judged:
            return Standing.UNDECIDED
        worst = meets(self.need, self.passes, self.judged + missing)
        best = meets(self.need, self.passes + missing, self.judged + missing)
        if worst != best:
            return Standing.UNDECIDED
        return Standing.PASSED if best else Standing.FAILED

    @property
    def is_must(self) -> bool:
        return MUST in tags_of(self.case)

    @property
    def drifted(self) -> bool:
        """Some sample passed on results that were recorded for other calls."""
        return any(each.judgement.passed and Source.DRIFTED in each.attempt.counts for each in self.samples)

    @property
    def num_invalid_calls(self) -> int:
        return sum(not call.valid for each in self.samples for call in each.judgement.validity)

    def served(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in self.samples:
            for source, count in each.attempt.counts.items():
                found[source] = found.get(source, 0) + count
        return found

    def rates(self) -> dict[str, Any]:
        n, c = self.judged, self.passes
        if not n:
            return {"rate": None, "interval": None, "passAtK": None, "passHatK": None}
        k = min(n, self.expected)
        interval = wilson(c, n)
        return {
            "rate": c / n,
            "interval": [interval.low, interval.high],
            "passAtK": pass_at_k(n, c, k),
            "passHatK": pass_hat_k(n, c, k),
        }


def tags_of(case: Case) -> tuple[str, ...]:
    tags = case.record.get("tags")
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def results_of(
    cases: Iterable[Case],
    attempts: Iterable[Attempt],
    *,
    expected: Mapping[str, int],
    tools: Any = None,
    quarantined: Collection[str] = (),
    ask: Ask | None = None,
) -> list[CaseResult]:
    """Judge the attempts of one side, case by case. `tools` are those that were offered in place of the cases' own."""
    by_case: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_case.setdefault(attempt.case, []).append(attempt)
    found = []
    offered = None if tools is None else Toolset.read(tools)
    for case in cases:
        toolset = case.toolset if offered is None else offered
        judge = CaseJudge(case.expectation, tools=toolset, now=case.now, ask=ask)
        samples = tuple(
            Judged(attempt, judge.judge(attempt.sample))
            for attempt in sorted(by_case.get(case.id, ()), key=lambda attempt: attempt.index)
        )
        is_quarantined = case.id in quarantined or QUARANTINE in tags_of(case)
        found.append(CaseResult(case=case, expected=expected[case.id], samples=samples, quarantined=is_quarantined))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """One side as a whole. The rate is the mean over cases, its interval drawn over cases."""

    results: Sequence[CaseResult]

    @property
    def rate(self) -> tuple[float, Interval] | None:
        rates = [each.passes / each.judged for each in self.results if each.judged]
        if not rates:
            return None
        return sum(rates) / len(rates), bootstrap_mean(rates, seed=SEED)

    @property
    def gated(self) -> list[CaseResult]:
        return [each for each in self.results if not each.quarantined]

    def standing(self, standing: Standing) -> list[CaseResult]:
        return [each for each in self.gated if each.standing is standing]

    def summary(self) -> dict[str, Any]:
        attempts = [judged.attempt for each in self.results for judged in each.samples]
        verdicts = {str(verdict): 0 for verdict in Verdict}
        for each in self.results:
            for judged in each.samples:
                verdicts[str(judged.judgement.verdict)] += 1
        latencies = [latency for attempt in attempts for latency in attempt.latencies_ms]
        rate = self.rate
        return {
            "cases": len(self.results),
            "passed": len(self.standing(Standing.PASSED)),
            "failed": len(self.standing(Standing.FAILED)),
            "undecided": len(self.standing(Standing.UNDECIDED)),
            "flaky": sum(each.state is State.FLAKY for each in self.results),
            "quarantined": len(self.results) - len(self.gated),
            "samples": len(attempts),
            "verdicts": verdicts,
            "invalidCalls": sum(each.num_invalid_calls for each in self.results),
            "rate": rate and rate[0],
            "interval": rate and [rate[1].low, rate[1].high],
            "requests": sum(attempt.requests for attempt in attempts),
            "cached": sum(attempt.cached for attempt in attempts),
            "promptTokens": sum(attempt.prompt_tokens for attempt in attempts),
            "completionTokens": sum(attempt.completion_tokens for attempt in attempts),
            "latencyMs": {"p50": _percentile(latencies, 50), "p95": _percentile(latencies, 95)},
            "models": sorted({model for attempt in attempts for model in attempt.models}),
            "fingerprints": sorted({each for attempt in attempts for each in attempt.fingerprints}),
        }


def _percentile(values: Sequence[int], percent: int) -> int | None:
    if len(values) < 2:
        return values[0] if values else None
    return round(quantiles(values, n=100, method="inclusive")[percent - 1])
