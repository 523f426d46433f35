"""What the samples of a replay say: cases, sides, comparison, gate. All read from what was stored when they landed.

Functions need an open tenant scope unless they say otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Count, Q
from django.utils import timezone

from quality.cases.attempt import Attempt
from quality.cases.comparison import Comparison, Counts, compare
from quality.cases.confirm import FRESH, Pairs, Round, confirming
from quality.cases.gate import Gate, gate_of, named
from quality.cases.record import Case, read_stored
from quality.cases.report import (
    Report,
    notices_of_comparison,
    notices_of_sides,
    replayed,
    told_side,
    verdict_of,
)
from quality.cases.results import CaseResult, Judged, SuiteResult
from quality.cases.sample import Verdict
from quality.cases.statistics import State
from quality.models import LIVE_REPLAYS, CaseVersion, Replay, ReplayCase, ReplaySample, ReplaySide, ReplayState
from quality.replay import ending, sides, stored
from quality.replay.lease import NotOurs, ours
from quality.replay.sides import BASELINE, CANDIDATE
from tenants.masking import reading
from tenants.scope import tenant_scope

ROWS_AT_ONCE: Final = 200


def cases_of(replay: Replay) -> list[Case]:
    """The cases in the versions that were frozen, by number."""
    return list(read_cases(rows_of(replay)).values())


def attempts_of(replay: Replay, side: str, *, fresh: bool = False) -> Iterator[Attempt]:
    """The stored attempts of a side; with `fresh` those alone that were made to confirm suspects."""
    samples = ReplaySample.objects.filter(replay=replay, side=side)
    samples = samples.filter(index__gte=FRESH) if fresh else samples.filter(index__lt=FRESH)
    ordered = samples.order_by("replay_case_id", "index")
    return map(stored.read_attempt, ordered.only("data").iterator(chunk_size=ROWS_AT_ONCE))


def rows_of(replay: Replay) -> list[ReplayCase]:
    """The cases of a replay as rows, by number."""
    return list(ReplayCase.objects.filter(replay=replay).order_by("number"))


def read_cases(rows: Sequence[ReplayCase]) -> dict[int, Case]:
    """The records of these rows by their keys."""
    wanted = {(row.case_id, row.version): row for row in rows}
    versions = CaseVersion.objects.filter(
        case__in={row.case_id for row in rows}, number__in={row.version for row in rows}
    )
    columns = versions.values_list("case_id", "number", "data")
    with reading.as_stored():  # a mark in place of a matcher's number would make it unreadable; records are not shown
        found = {
            row.pk: read_stored(data, row.number)
            for case_id, number, data in columns.iterator(chunk_size=ROWS_AT_ONCE)
            if (row := wanted.get((case_id, number)))
        }
    return {row.pk: found[row.pk] for row in rows}


# Judged.


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that is known of a replay's cases: `results` by side, and `fresh` samples of suspects by side and case."""

    replay: Replay
    sides: Sequence[ReplaySide]
    rows: Sequence[ReplayCase]
    results: Mapping[str, Sequence[CaseResult]]
    fresh: Mapping[tuple[str, str], Sequence[Judged]]
    earlier: Mapping[str, Counts] | None

    @property
    def candidate(self) -> Sequence[CaseResult]:
        return self.results[CANDIDATE]

    @property
    def before(self) -> Mapping[str, Counts] | None:
        """What the candidate is compared with."""
        if BASELINE in self.results:
            return {each.case.id: Counts(each.case.version, *each.counts) for each in self.results[BASELINE]}
        return self.earlier

    def counts(self, wanted: Round) -> Pairs:
        """Of the fresh samples of these cases, as far as the round goes."""
        return {
            case: (self._count(BASELINE, case, wanted), self._count(CANDIDATE, case, wanted)) for case in wanted.cases
        }

    def _count(self, side: str, case: str, wanted: Round) -> tuple[int, int]:
        samples = [each.judgement for each in self.fresh.get((side, case), ()) if each.attempt.index in wanted]
        return sum(each.passed for each in samples), sum(each.verdict is not Verdict.ERROR for each in samples)


def read_standing(replay: Replay, *, with_attempts: bool = True) -> Standing:
    """`with_attempts` False: verdicts alone, which is all that comparing needs."""
    rows = rows_of(replay)
    cases = read_cases(rows)
    by_pk = {row.pk: row for row in rows}
    asked = sides.sides_of(replay)
    made: dict[tuple[str, int], list[Judged]] = {}
    fresh: dict[tuple[str, str], list[Judged]] = {}
    for pk, judged in _samples(replay, by_pk, with_attempts=with_attempts):
        if judged.attempt.index < FRESH:
            made.setdefault((judged.attempt.side, pk), []).append(judged)
        else:
            fresh.setdefault((judged.attempt.side, judged.attempt.case), []).append(judged)
    results = {
        side.name: [
            CaseResult(
                case=cases[row.pk],
                expected=row.num_samples,
                samples=tuple(made.get((side.name, row.pk), ())),
                quarantined=row.is_quarantined,
            )
            for row in rows
        ]
        for side in asked
    }
    return Standing(replay=replay, sides=asked, rows=rows, results=results, fresh=fresh, earlier=_earlier(replay))


def _samples(replay: Replay, rows: Mapping[int, ReplayCase], *, with_attempts: bool) -> Iterator[tuple[int, Judged]]:
    samples = ReplaySample.objects.filter(replay=replay).order_by("replay_case_id", "side", "index")
    if with_attempts:
        for sample in samples.iterator(chunk_size=ROWS_AT_ONCE):
            yield sample.replay_case_id, stored.read_judged(sample)
    else:
        for pk, side, index, verdict in samples.values_list("replay_case_id", "side", "index", "verdict").iterator():
            yield pk, stored.counted(rows[pk], side, index, verdict)


def _earlier(replay: Replay) -> dict[str, Counts] | None:
    """The counts that one side is compared with: as they were when it was settled, else as they are now."""
    if replay.result and replay.result.get("before") is not None:
        return {case: Counts(*counts) for case, counts in replay.result["before"].items()}
    if replay.baseline_replay_id is None:
        return None
    rows = ReplayCase.objects.filter(replay=replay.baseline_replay_id)
    counts = rows.values_list("number", "version", "candidate_passes", "candidate_judged")
    return {f"REG-{number}": Counts(*found) for number, *found in counts}


# Settled.


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    standing: Standing
    comparison: Comparison | None
    gate: Gate

    @property
    def verdict(self) -> str:
        return verdict_of(self.gate, self.comparison, SuiteResult(results=self.standing.candidate))

    @property
    def told(self) -> list[dict[str, Any]]:
        """The sides for a report, the candidate first."""
        told = {
            side.name: told_side(side.name, self.standing.results[side.name], sides.without_key(side))
            for side in self.standing.sides
        }
        return [told[name] for name in (CANDIDATE, BASELINE) if name in told]

    @property
    def notices(self) -> list[str]:
        found = notices_of_sides(self.standing.candidate, self.standing.results.get(BASELINE))
        if self.comparison is None:
            return found
        again = [each.case for each in self.comparison.cases if each.fresh is not None]
        found += [f"Suspects run again with fresh samples: {named(again)}."] if again else []
        return found + notices_of_comparison(self.comparison)


def decide(standing: Standing) -> Settled:
    """Touches no database."""
    before, comparison = standing.before, None
    if before is not None:
        fresh = _fresh(before, standing) if BASELINE in standing.results and standing.fresh else {}
        comparison = compare(before, standing.candidate, fresh=fresh)
    return Settled(
        standing=standing,
        comparison=comparison,
        gate=gate_of(SuiteResult(results=standing.candidate), comparison),
    )


def _fresh(before: Mapping[str, Counts], standing: Standing) -> Pairs:
    """The counts of fresh samples that decide."""
    rounds = confirming(before, standing.candidate)
    try:
        wanted = next(rounds)
        while True:
            wanted = rounds.send(standing.counts(wanted))
    except StopIteration as decided:
        found: Pairs = decided.value
        return found


def settle(replay: Replay, *, tenant_id: int, seconds: float) -> None:
    """Say how the replay came out, in its rows, and end it. Opens scopes of its own; raises NotOurs where the replay
    is no longer this claim's (`replay.lease_token`), or was paused. `seconds` of work were not told of yet.

    `Replay.result`: `{"verdict": sentence, "gate": {"failed", "missing", "red", "open"}, "summaries": {side: …},
    "comparison": null | {…without its cases}, "before": null | {case: [version, passes, judged]}, "drifted": [case, …],
    "notices": […]}`, in the words of the command's report.
    """
    with tenant_scope(tenant_id):
        standing = read_standing(replay)
    settled = decide(standing)
    result = _result(settled)
    with tenant_scope(tenant_id):
        held = ours(replay).filter(state=ReplayState.RUNNING).select_for_update().first()
        if held is None:
            raise NotOurs
        _write_rows(settled)
        samples = ReplaySample.objects.filter(replay=replay)
        held.num_finished, held.num_errors = samples.aggregate(
            all=Count("pk"), errors=Count("pk", filter=Q(verdict=Verdict.ERROR))
        ).values()
        held.result, held.exit_code = result, int(settled.gate.exit)
        held.state, held.failure, held.finished_at = ReplayState.DONE, "", timezone.now()
        held.lease_token, held.lease_until, held.seconds = None, None, held.seconds + seconds
        held.save()
        ending.ended(held)


def _result(settled: Settled) -> dict[str, Any]:
    gate, comparison, earlier = settled.gate, settled.comparison, settled.standing.earlier
    compared = comparison.as_dict() if comparison else None
    both = [each for results in settled.standing.results.values() for each in results]
    if compared is not None:
        del compared["cases"]  # they are in rows
    found: dict[str, Any] = stored.plain(
        {
            "verdict": settled.verdict,
            "gate": {
                "failed": gate.failed,
                "missing": gate.missing,
                "red": sorted(gate.red, key=_number),
                "open": sorted(gate.open, key=_number),
            },
            "summaries": {side["name"]: side for side in settled.told},
            "comparison": compared,
            "before": earlier and {case: [each.version, *each.pair] for case, each in earlier.items()},
            "drifted": sorted({each.case.id for each in both if each.drifted}, key=_number),
            "notices": settled.notices,
        }
    )
    return found


def _number(ref: str) -> int:
    return int(ref.removeprefix("REG-"))


def _write_rows(settled: Settled) -> None:
    standing, before = settled.standing, settled.standing.before or {}
    compared = {each.case: each for each in settled.comparison.cases} if settled.comparison else {}
    others = {each.case.id: each for each in standing.results.get(BASELINE, ())}
    for row, result in zip(standing.rows, standing.candidate, strict=True):
        both = [result, *([others[row.ref]] if row.ref in others else [])]
        first, told = before.get(row.ref), compared.get(row.ref)
        row.candidate_passes, row.candidate_judged = result.counts
        is_same = first is not None and first.version == row.version
        row.baseline_passes, row.baseline_judged = first.pair if first is not None and is_same else (0, 0)
        row.num_errors = sum(len(each.samples) - each.judged for each in both)
        row.standing, row.is_flaky = str(result.standing), result.state is State.FLAKY
        row.change = str(told.change) if told else ""
        row.is_suspect, row.is_confirmed = bool(told and told.suspect), bool(told and told.confirmed)
        row.p, row.fresh = (told.p, told.fresh) if told else (None, None)
    # An update of thousands of rows by keys takes thirty times as long.
    ReplayCase.objects.bulk_create(
        standing.rows, update_conflicts=True, unique_fields=["id"], update_fields=_COLUMNS, batch_size=ROWS_AT_ONCE
    )


_COLUMNS: Final = (
    "baseline_passes",
    "baseline_judged",
    "candidate_passes",
    "candidate_judged",
    "num_errors",
    "standing",
    "is_flaky",
    "change",
    "is_suspect",
    "is_confirmed",
    "p",
    "fresh",
)


def has_report(replay: Replay) -> bool:
    """It has ended; a slot that was missed never began."""
    return replay.state not in LIVE_REPLAYS and replay.num_cases > 0


def report_of(replay: Replay) -> Report:
    """The report of a replay that has one, as the command writes it."""
    from quality.replay import judging

    settled = decide(read_standing(replay))
    standing = settled.standing
    compared = {each.case: each for each in settled.comparison.cases} if settled.comparison else {}
    others = {each.case.id: each for each in standing.results.get(BASELINE, ())}
    cases = [each.case for each in standing.candidate]
    told = settled.told
    return Report(
        mode="replay",
        source=f"replay {replay.pk}",
        started_at=(replay.started_at or replay.created_at).isoformat(timespec="seconds"),
        duration_s=replay.seconds,
        exit=settled.gate.exit,
        entries=[
            replayed(each, settled.gate, compared.get(each.case.id), others.get(each.case.id))
            for each in standing.candidate
        ],
        verdict=settled.verdict,
        reasons=(*settled.gate.failed, *settled.gate.missing),
        notices=[*settled.notices, *judging.notices(replay, cases)],
        summary=told[0],
        sides=told,
        comparison=settled.comparison,
        judge=judging.told(replay, cases),
    )
