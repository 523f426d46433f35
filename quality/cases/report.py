"""A run as one value, `Report`, and as JSON. `junit`, `markdown` and `terminal` write it for others to read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from engine.providers.protocol import Usage
from engine.text import well_formed
from quality.cases.comparison import Compared, Comparison
from quality.cases.explain import describe, explain, place_of, quote
from quality.cases.gate import Exit, Gate
from quality.cases.record import Case, LineFault
from quality.cases.replay import Side
from quality.cases.results import CaseResult, Judged, Standing, SuiteResult, tags_of
from quality.cases.sample import Reason, Verdict
from quality.cases.values import jsonable

KIND: Final = "tool_call_regressions"
VERSION: Final = 1
MAX_DETAILS: Final = 30  # lines that are told of one case


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"  # could not be decided
    SKIPPED = "skipped"  # not looked at, or looked at and not gated


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One case for people: a headline, and details line by line. `data` is what the JSON report holds of it."""

    case: str
    tool: str | None
    outcome: Outcome
    headline: str
    details: tuple[str, ...] = ()
    time_s: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    mode: str  # validate, replay or rejudge
    source: str
    started_at: str
    duration_s: float
    exit: Exit
    entries: Sequence[Entry] = ()
    verdict: str = ""  # the outcome in one sentence
    reasons: Sequence[str] = ()
    notices: Sequence[str] = ()
    faults: Sequence[str] = ()  # of the source as a whole
    summary: Mapping[str, Any] = field(default_factory=dict)
    sides: Sequence[Mapping[str, Any]] = ()
    comparison: Comparison | None = None
    judge: Mapping[str, Any] | None = None  # the model that judged meaning, with its votes

    def count(self, outcome: Outcome) -> int:
        return sum(entry.outcome is outcome for entry in self.entries)

    def as_dict(self) -> dict[str, Any]:
        return {
            "report": KIND,
            "reportVersion": VERSION,
            "mode": self.mode,
            "source": self.source,
            "startedAt": self.started_at,
            "durationS": round(self.duration_s, 3),
            "outcome": self.exit.name.lower(),
            "exitCode": int(self.exit),
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "notices": list(self.notices),
            "faults": list(self.faults),
            "counts": {str(outcome): self.count(outcome) for outcome in Outcome},
            "summary": dict(self.summary),
            "sides": list(self.sides),
            "comparison": self.comparison and self.comparison.as_dict(),
            "judge": self.judge,
            "cases": [
                {"id": entry.case, "toolName": entry.tool, "outcome": str(entry.outcome), "headline": entry.headline}
                | {"details": list(entry.details)}
                | dict(entry.data)
                for entry in self.entries
            ],
        }

    def json(self) -> str:
        """A member a line, and a case a line: large reports are written fast, and can be compared line by line."""
        whole = self.as_dict()
        cases = ",\n  ".join(_json(case) for case in whole.pop("cases"))
        members = [f"{_json(name)}: {_json(value)}" for name, value in whole.items()]
        members.append(f'"cases": [\n  {cases}\n ]' if cases else '"cases": []')
        inside = ",\n ".join(members)
        return well_formed(f"{{\n {inside}\n}}\n")


def _json(value: Any) -> str:
    """A fraction of a case is a `Decimal`, written as a double."""
    return json.dumps(value, ensure_ascii=False, default=float)


# Entries of a validation.


def validated(case: Case) -> Entry:
    return Entry(case=case.id, tool=case.tool, outcome=Outcome.PASSED, headline="valid", data=_about(case))


def skipped(case: Case, why: str) -> Entry:
    return Entry(case=case.id, tool=case.tool, outcome=Outcome.SKIPPED, headline=why, data=_about(case))


def faulty(faults: Sequence[LineFault]) -> Entry:
    """All faults of one line."""
    first = faults[0]
    rest = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
    return Entry(
        case=first.case or f"line {first.line}",
        tool=first.tool,
        outcome=Outcome.FAILED,
        headline=f"{first.path or first.code}: {first.message}{rest}",
        details=tuple(str(fault) for fault in faults),
        data={
            "line": first.line,
            "faults": [
                {"line": fault.line, "code": fault.code, "path": fault.path, "message": fault.message}
                for fault in faults
            ],
        },
    )


# Entries of a replay.


def replayed(result: CaseResult, gate: Gate, compared: Compared | None, baseline: CaseResult | None = None) -> Entry:
    case = result.case
    outcome = _outcome(result, gate, has_baseline=compared is not None)
    latencies = [latency for each in result.samples for latency in each.attempt.latencies_ms]
    data = _about(case) | {
        "need": result.need,
        "expectedSamples": result.expected,
        "passes": result.passes,
        "judged": result.judged,
        "state": str(result.state),
        "standing": str(result.standing),
        "quarantined": result.quarantined,
        **result.rates(),
        "served": result.served(),
        "passedOnDriftedResults": result.drifted,
        "invalidCalls": result.num_invalid_calls,
        "samples": [_sample(each) for each in result.samples],
    }
    if baseline is not None:
        data["baseline"] = {
            "passes": baseline.passes,
            "judged": baseline.judged,
            "state": str(baseline.state),
            "samples": [_sample(each) for each in baseline.samples],
        }
    return Entry(
        case=case.id,
        tool=case.tool,
        outcome=outcome,
        headline=_headline(result, compared),
        details=tuple(_details(result)),
        time_s=sum(latencies) / 1000,
        data=data,
    )


def _about(case: Case) -> dict[str, Any]:
    return {
        "line": case.line,
        "version": case.version,
        "status": case.status,
        "label": case.label,
        "tags": list(tags_of(case)),
        "behavior": case.behavior,
    }


def _outcome(result: CaseResult, gate: Gate, *, has_baseline: bool) -> Outcome:
    if result.quarantined:
        return Outcome.SKIPPED
    if result.case.id in gate.red:
        return Outcome.FAILED
    if result.case.id in gate.open:
        return Outcome.ERROR
    if has_baseline and result.standing is Standing.FAILED:
        return Outcome.SKIPPED  # not shown to be a regression, and not to be called passed
    return Outcome.PASSED


def _headline(result: CaseResult, compared: Compared | None) -> str:
    told = f"{result.passes} of {result.judged} passed, {result.state}"
    missing = result.expected - result.judged
    told += f", {missing} missing" if missing > 0 else ""
    told += ", quarantined" if result.quarantined else ""
    told += ", on results recorded for other calls" if result.drifted else ""
    if compared is not None:
        told += f", {str(compared.change).replace('_', ' ')}"
        if compared.suspect and compared.p is not None:
            told += f" ({'confirmed' if compared.confirmed else 'not confirmed'}, p = {compared.p:.3g})"
        told += f". {compared.note}" if compared.note else ""
    return told


def _details(result: CaseResult) -> list[str]:
    """What went wrong, each thing once with the number of samples that it went wrong in."""
    counts: dict[str, int] = {}
    for each in result.samples:
        if not each.judgement.passed:
            for line in dict.fromkeys(_told(each)):
                counts[line] = counts.get(line, 0) + 1
    lines = [f"{count} of {len(result.samples)}: {line}" for line, count in counts.items()]
    notes = dict.fromkeys(note for each in result.samples for note in each.attempt.notes)
    lines += [f"note: {note}" for note in notes]
    more = len(lines) - MAX_DETAILS
    return lines[:MAX_DETAILS] + ([f"and {more} lines more"] if more > 0 else [])


def _told(each: Judged) -> list[str]:
    lines = [explain(reason) for reason in each.judgement.reasons]
    if each.judgement.verdict is Verdict.DIVERGED:
        missed = [
            call.name
            for calls, sources in zip(each.attempt.sample.cycles, each.attempt.sources, strict=False)
            for call, source in zip(calls, sources, strict=False)
            if source == "missed"
        ]
        lines += [f"No recorded result answers this call of {name}." for name in missed]
    return lines


def difference(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    """Arguments that are not as expected, path by path."""
    found = []
    for reason in reasons:
        if reason.code in ("wrong_argument", "missing_argument", "extra_argument"):
            expected = "nothing" if reason.code == "extra_argument" else describe(jsonable(reason.expected))
            got = "nothing" if reason.code == "missing_argument" else quote(reason.got)
            found.append(
                {
                    "tool": reason.tool,
                    "path": reason.path,
                    "place": place_of(reason.path),
                    "expected": expected,
                    "got": got,
                }
            )
    return found


def _sample(each: Judged) -> dict[str, Any]:
    attempt, judgement = each.attempt, each.judgement
    sample = attempt.sample
    return {
        "index": attempt.index,
        "verdict": str(judgement.verdict),
        "reasons": [{**reason.as_dict(), "text": explain(reason)} for reason in judgement.reasons],
        "difference": difference(judgement.reasons),
        "invalidCalls": [each.as_dict() for each in judgement.validity if not each.valid],
        "ending": str(sample.ending),
        "error": sample.error,
        "reply": jsonable(sample.reply),
        "calls": [
            [{"name": call.name, "arguments": jsonable(call.arguments)} for call in cycle] for cycle in sample.cycles
        ],
        "sources": attempt.sources,
        "requests": attempt.requests,
        "cached": attempt.cached,
        "promptTokens": attempt.prompt_tokens,
        "completionTokens": attempt.completion_tokens,
        "latenciesMs": attempt.latencies_ms,
        "requestSha256": attempt.request_sha256,
    }


def told_side(name: str, results: Sequence[CaseResult], side: Side | None = None) -> dict[str, Any]:
    """One side in a report. Stored answers have no endpoint."""
    summary, endpoint = SuiteResult(results=results).summary(), side and side.endpoint
    used = Usage(summary["promptTokens"], summary["completionTokens"])
    return {
        "name": name,
        "model": endpoint and endpoint.model,
        "baseUrl": endpoint and endpoint.base_url,
        "cost": endpoint.price.of(used) if endpoint and endpoint.price else None,
        **summary,
    }


def notices_of_sides(candidate: Sequence[CaseResult], baseline: Sequence[CaseResult] | None = None) -> list[str]:
    """What a reader of the counts should know."""
    found = []
    if baseline is not None and _fingerprints(candidate) != _fingerprints(baseline):
        found.append("The servers' system fingerprints differ between the sides.")
    if drifted := [each.case.id for each in candidate if each.drifted]:
        found.append(f"Passed on results that were recorded for other calls: {', '.join(drifted)}.")
    return found


def notices_of_comparison(comparison: Comparison) -> list[str]:
    gone = [each.case for each in comparison.cases if each.after is None]
    found = [comparison.warning] if comparison.warning else []
    return found + ([f"Not in this run, though in the baseline: {', '.join(gone)}."] if gone else [])


def _fingerprints(results: Sequence[CaseResult]) -> set[str]:
    return {found for each in results for judged in each.samples for found in judged.attempt.fingerprints}


def verdict_of(gate: Gate, comparison: Comparison | None, suite: SuiteResult) -> str:
    """The run in one sentence. Nothing can show that there is no regression."""
    if gate.exit is Exit.FAILED:
        return "Regression shown." if comparison is not None else "Cases failed."
    if gate.exit is Exit.INCOMPLETE:
        return "Incomplete: no verdict."
    return "No regression shown." if comparison is not None or suite.results else "No case was run."
