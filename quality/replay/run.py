"""A replay is carried out, slice by slice: claimed with a lease, asked, judged, settled.

The row is the truth, a Celery message only says that it is there. Each sample is written as it lands, under the lease's
token: a worker that lost its lease writes nothing more, and what is finished is never asked again. A slice begins no
sample after REPLAY_SLICE_S; then the replay queues up again, so that other jobs get their turn.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from django.conf import settings
from django.db import connection
from django.db.models import Count, F, QuerySet

from engine.net import Guard
from quality import tasks
from quality.cases import replay as runner
from quality.cases.attempt import Attempt
from quality.cases.budgets import Spent
from quality.cases.confirm import FRESH, Pairs, Round, confirming
from quality.cases.record import Case
from quality.cases.replay import Job, Side
from quality.cases.sample import Verdict
from quality.models import Replay, ReplayCase, ReplaySample, ReplayState
from quality.replay import ending, judging, lease, outcome, spending, stored
from quality.replay.lease import NotOurs, lost, ours
from quality.replay.outcome import Standing
from quality.replay.sides import BASELINE, SideUnusable, opened
from quality.replay.wanted import RunSettings
from tenants import outbound
from tenants.scope import tenant_scope
from tenants.threads import in_scope

__all__ = ["lost", "run_replay"]

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5  # between two looks at whether it is still wanted
RENEWALS: Final = 3  # of a lease in its time
SAMPLE_S: Final = 600.0  # the longest that one sample may take

type Place = tuple[str, str, int]  # side, case, index


def run_replay(replay_id: int, *, tenant_id: int) -> Replay | None:
    """One slice, and what follows the last one; None if it is another worker's, or wanted no more."""
    with tenant_scope(tenant_id):
        replay = lease.claim(replay_id)
        if replay is None:
            return None
        try:
            sides, guard = opened(replay), outbound.guard()
        except SideUnusable as error:
            ending.fail(replay, str(error))
            return replay
    under_way = _Slice(replay, sides, guard, tenant_id)
    end = asyncio.run(under_way.run())
    if end is _End.COMPLETE:
        try:
            outcome.settle(replay, tenant_id=tenant_id, seconds=under_way.elapsed())
        except NotOurs:
            end = _End.OPEN  # it was paused at the last moment, or it is lost
    if end is _End.LOST:
        logger.info("replay %s was stopped", replay_id)
        return None
    with tenant_scope(tenant_id):
        is_queued = end is _End.OPEN and lease.give_back(replay, seconds=under_way.elapsed())
        replay.refresh_from_db()
    if is_queued:
        tasks.publish(tasks.run_replay, tenant_id, replay_id)
    return replay


class _End(Enum):
    COMPLETE = "all samples are there"
    OPEN = "there is more to do"
    LOST = "it is not ours any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    """What is still to be asked."""

    rows: Sequence[ReplayCase]
    cases: Sequence[Case]
    finished: frozenset[Place]


class _Slice:
    """One claim of a replay, until all is there or its time is over."""

    def __init__(self, replay: Replay, sides: Sequence[Side], guard: Guard, tenant_id: int) -> None:
        self._replay, self._sides, self._guard, self._tenant_id = replay, sides, guard, tenant_id
        self._wanted = RunSettings.from_json(replay.settings)
        self._settings = self._wanted.of_runner(sample_time_s=min(SAMPLE_S, self._time_s()))
        self._rows: dict[str, ReplayCase] = {}
        self._cases: dict[str, Case] = {}
        self._by_name = {side.name: side for side in sides}
        self._until = time.monotonic() + settings.REPLAY_SLICE_S
        self._is_stopped = False
        self._told_at = time.monotonic()

    async def run(self) -> _End:
        end = _End.LOST
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                end = _End.COMPLETE if await self._is_complete() else _End.OPEN
                watch.cancel()
        except* NotOurs:
            end = _End.LOST
        finally:
            self._is_stopped = True
        return end

    def elapsed(self) -> float:
        """Seconds of work that nobody was told of yet."""
        now = time.monotonic()
        seconds, self._told_at = now - self._told_at, now
        return seconds

    def _time_s(self) -> float:
        return settings.MODEL_TIMEOUT_S * (self._wanted.max_cycles + 1)

    @property
    def _is_over(self) -> bool:
        """May nothing more be begun?"""
        return self._is_stopped or time.monotonic() >= self._until

    async def _watch(self) -> None:
        """Keeps the lease, and sees when the replay is paused (nothing more is begun) or is not ours any more."""
        renew_s = settings.REPLAY_LEASE_S / RENEWALS
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            is_due = time.monotonic() - renewed_at >= renew_s
            seconds = self.elapsed() if is_due else None
            if await self._in_scope(partial(self._look, seconds)) != ReplayState.RUNNING:
                self._is_stopped = True
            if is_due:
                renewed_at = time.monotonic()

    def _look(self, seconds: float | None) -> str:
        """With `seconds` of work that nobody was told of, the lease is renewed."""
        if seconds is not None:
            ours(self._replay).update(lease_until=lease.lease_end(), seconds=F("seconds") + seconds)
        state = ours(self._replay).values_list("state", flat=True).first()
        if state is None:
            raise NotOurs
        return state

    async def _in_scope[T](self, work: Callable[[], T]) -> T:
        return await in_scope(self._tenant_id, work)

    # Stages. Each says whether nothing of it is left.

    async def _is_complete(self) -> bool:
        if not (await self._samples() and await self._judge()):
            return False
        return len(self._sides) == 1 or not self._wanted.confirm or await self._confirm()

    async def _samples(self) -> bool:
        missing = await self._in_scope(self._missing)
        if not missing.rows:
            return True
        await self._enter(Replay.Stage.SAMPLES)
        self._know(missing.rows, missing.cases)
        asked = await self._runner(missing.cases)
        await asked.attempts(self._in_time(asked.jobs(finished=missing.finished)))
        return not self._is_over

    async def _judge(self) -> bool:
        """What waits for the judge model: it is asked in a thread of its own, then verdicts are read anew."""
        if not await self._in_scope(lambda: self._waiting().exists()):
            return True
        await self._enter(Replay.Stage.JUDGE)
        if not await asyncio.to_thread(self._ask_judge):
            return False
        while await self._in_scope(self._judge_waiting):
            pass
        return True

    async def _confirm(self) -> bool:
        """Suspects are run again with fresh samples, round by round."""
        standing = await self._in_scope(partial(outcome.read_standing, self._replay, with_attempts=False))
        rounds = confirming(standing.before or {}, standing.candidate)
        self._know(standing.rows, [each.case for each in standing.candidate])
        try:
            wanted = next(rounds)
            while True:
                await self._enter(Replay.Stage.CONFIRM)
                if not (await self._ask_again(wanted) and await self._judge()):
                    return False
                wanted = rounds.send(await self._in_scope(partial(self._counts, wanted)))
        except StopIteration:
            return True

    async def _ask_again(self, wanted: Round) -> bool:
        finished = await self._in_scope(partial(self._finished, fresh=True))
        cases = [self._cases[ref] for ref in wanted.cases]
        jobs = [
            (case, side, index)
            for index in wanted.indexes
            for case in cases
            for side in self._sides
            if (side.name, case.id, index) not in finished
        ]
        asked = await self._runner(cases)
        await asked.attempts(self._in_time(jobs))
        return not self._is_over

    # Asking.

    async def _runner(self, cases: Sequence[Case]) -> runner.Replay:
        spent, spent_of = await self._in_scope(self._spent)
        return runner.Replay(
            cases,
            self._sides,
            self._settings,
            guard=self._guard,
            on_attempt=self._land,
            spent=spent,
            spent_of=spent_of,
        )

    def _in_time(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Jobs to begin: one at least, so that each slice gets further."""
        for place, job in enumerate(jobs):
            if self._is_stopped or (place and self._is_over):
                return
            yield job

    async def _land(self, attempt: Attempt) -> None:
        """Judge a sample and write it."""
        row, case, side = self._rows[attempt.case], self._cases[attempt.case], self._by_name[attempt.side]
        judgement = stored.judged(case, side, attempt)
        awaits_judge = bool(self._wanted.judge_label) and stored.waits_for_judge(judgement)
        sample = stored.sample_of(row, side, attempt, judgement, awaits_judge=awaits_judge)
        await self._in_scope(partial(self._write, sample, self.elapsed()))

    def _write(self, sample: ReplaySample, seconds: float) -> None:
        is_error = int(sample.verdict == Verdict.ERROR and not sample.awaits_judge)
        changed = ours(self._replay).update(
            num_finished=F("num_finished") + 1,
            num_errors=F("num_errors") + is_error,
            requests=F("requests") + sample.requests,
            prompt_tokens=F("prompt_tokens") + sample.prompt_tokens,
            completion_tokens=F("completion_tokens") + sample.completion_tokens,
            cost=F("cost") + sample.cost,
            seconds=F("seconds") + seconds,
            attempt=0,
        )
        if not changed:
            raise NotOurs
        sample.save(force_insert=True)
        _count(sample)

    def _know(self, rows: Iterable[ReplayCase], cases: Iterable[Case]) -> None:
        self._rows |= {row.ref: row for row in rows}
        self._cases |= {case.id: case for case in cases}

    async def _enter(self, stage: Replay.Stage) -> None:
        await self._in_scope(partial(self._say, stage))

    def _say(self, stage: Replay.Stage) -> None:
        if not ours(self._replay).update(stage=stage):
            raise NotOurs

    # Judging.

    def _waiting(self) -> QuerySet[ReplaySample]:
        return ReplaySample.objects.filter(replay=self._replay, awaits_judge=True)

    def _ask_judge(self) -> bool:
        try:
            return judging.ask_open(
                self._replay.pk, tenant_id=self._tenant_id, until=self._until, go_on=lambda: not self._is_stopped
            )
        finally:
            connection.close()

    def _judge_waiting(self) -> bool:
        """Some of what waits, by what the judge has said; True: there may be more."""
        waiting = list(self._waiting().select_related("replay_case")[: outcome.ROWS_AT_ONCE])
        if not ours(self._replay).update(attempt=0):
            raise NotOurs
        ask = judging.asker(self._replay)
        cases = outcome.read_cases(list({sample.replay_case_id: sample.replay_case for sample in waiting}.values()))
        num_errors = 0
        for sample in waiting:
            case, side = cases[sample.replay_case_id], self._by_name[sample.side]
            judgement = stored.judged(case, side, stored.read_attempt(sample), ask)
            changes = {**stored.columns_of(judgement), "awaits_judge": False}
            for name, value in changes.items():
                setattr(sample, name, value)
            sample.save(update_fields=list(changes))
            _count(sample)
            num_errors += sample.verdict == Verdict.ERROR
        ours(self._replay).update(num_errors=F("num_errors") + num_errors)
        return bool(waiting)

    # What is there.

    def _missing(self) -> _Missing:
        samples = ReplaySample.objects.filter(replay=self._replay, index__lt=FRESH).order_by()
        there = dict(samples.values_list("replay_case_id").annotate(Count("pk")))
        rows = [
            row for row in outcome.rows_of(self._replay) if there.get(row.pk, 0) < row.num_samples * len(self._sides)
        ]
        cases = outcome.read_cases(rows)
        return _Missing(rows=rows, cases=list(cases.values()), finished=self._finished(fresh=False))

    def _finished(self, *, fresh: bool) -> frozenset[Place]:
        samples = ReplaySample.objects.filter(replay=self._replay)
        samples = samples.filter(index__gte=FRESH) if fresh else samples.filter(index__lt=FRESH)
        places = samples.values_list("side", "replay_case__number", "index")
        return frozenset((side, f"REG-{number}", index) for side, number, index in places)

    def _counts(self, wanted: Round) -> Pairs:
        standing: Standing = outcome.read_standing(self._replay, with_attempts=False)
        return standing.counts(wanted)

    def _spent(self) -> tuple[Spent, Mapping[tuple[str, str], Spent]]:
        """By the run since its budgets last began, and by each case, if cases have a budget."""
        now: Replay = Replay.objects.get(pk=self._replay.pk)
        of_cases = {} if self._settings.case_budget == runner.NO_LIMIT else spending.of_cases(now)
        return spending.of_run(now), of_cases


def _count(sample: ReplaySample) -> None:
    """Count a sample in its case, for those who watch: settling counts anew."""
    if sample.index >= FRESH or sample.awaits_judge:
        return
    side = "baseline" if sample.side == BASELINE else "candidate"
    is_error, passed = int(sample.verdict == Verdict.ERROR), int(sample.verdict == Verdict.PASS)
    ReplayCase.objects.filter(pk=sample.replay_case_id).update(
        num_errors=F("num_errors") + is_error,
        **{
            f"{side}_judged": F(f"{side}_judged") + 1 - is_error,
            f"{side}_passes": F(f"{side}_passes") + passed,
        },
    )
