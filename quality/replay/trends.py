"""How a suite, and a case, came out over its replays. A run on another side than the one before is marked as such: what
changed is then not chance alone.

All functions need an open tenant scope.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import F, QuerySet
from django.http import QueryDict
from django.utils.translation import gettext as _

from quality.cases.statistics import State, case_state, wilson
from quality.models import Case, Replay, ReplayCase, ReplaySchedule, ReplaySide, ReplayState

MAX_RUNS: Final = 60
MAX_SUITES: Final = 40
_CANDIDATE: Final = ReplaySide.Name.CANDIDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share with its interval."""

    rate: float
    low: float
    high: float

    @property
    def percent(self) -> float:
        return round(100 * self.rate, 2)

    @property
    def low_percent(self) -> float:
        return round(100 * self.low, 2)

    @property
    def high_percent(self) -> float:
        return round(100 * self.high, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What is replayed again and again: a schedule, or the cases of one filter. `query` is None for a schedule."""

    key: str
    name: str
    schedule_id: int | None = None
    query: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One replay of a suite. `summary` is that of the candidate; `is_other_side`: it was asked with something else than
    the run before."""

    replay: Replay
    side: ReplaySide | None
    rate: Rate | None
    summary: Mapping[str, Any] = field(default_factory=dict)
    is_other_side: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """One replay of a case, on its candidate. `is_other_version`: the case was changed since the run before."""

    row: ReplayCase
    side: ReplaySide | None
    state: State
    rate: Rate | None
    is_other_side: bool = False
    is_other_version: bool = False


def rate_of(summary: Mapping[str, Any] | None) -> Rate | None:
    """The suite's rate in a side's summary; None where nothing was judged."""
    if not summary or summary.get("rate") is None or not summary.get("interval"):
        return None
    low, high = summary["interval"]
    return Rate(rate=summary["rate"], low=low, high=high)


def suites() -> list[Suite]:
    """What there are replays of, what ran last first."""
    ended = Replay.objects.filter(state=ReplayState.DONE, exit_code__isnull=False)
    newest = ended.order_by("-created_at", "-pk").values_list("schedule_id", "query")[:1_000]
    places = list(dict.fromkeys((schedule, "" if schedule else query) for schedule, query in newest))[:MAX_SUITES]
    names = dict(
        ReplaySchedule.objects.filter(pk__in=[schedule for schedule, _query in places if schedule]).values_list(
            "pk", "name"
        )
    )
    return [
        Suite(key=f"schedule-{schedule}", name=names.get(schedule, _("a schedule that is gone")), schedule_id=schedule)
        if schedule
        else Suite(key=f"query-{query}", name=in_words(query) or _("all cases, or named ones"), query=query)
        for schedule, query in places
    ]


def in_words(query: str) -> str:
    """The filter of cases that a query string is."""
    return ", ".join(f"{name} {value}" for name, values in QueryDict(query).lists() for value in values)


def suite_of(replay: Replay) -> str:
    """The key of the suite that a replay belongs to."""
    return f"schedule-{replay.schedule_id}" if replay.schedule_id else f"query-{replay.query}"


def runs(suite: Suite, *, limit: int = MAX_RUNS) -> list[Run]:
    """The newest runs of a suite that came to a verdict, the oldest first."""
    ended = Replay.objects.filter(state=ReplayState.DONE, exit_code__isnull=False)
    if suite.schedule_id is not None:
        ended = ended.filter(schedule_id=suite.schedule_id)
    else:
        ended = ended.filter(schedule=None, query=suite.query or "")
    newest = ended.defer("result").annotate(summaries=F("result__summaries")).order_by("-created_at", "-pk")[:limit]
    replays = list(newest)[::-1]
    sides = _candidates(ReplaySide.objects.filter(replay__in=replays))
    found: list[Run] = []
    for replay in replays:
        summary = (replay.summaries or {}).get(_CANDIDATE) or {}
        side = sides.get(replay.pk)
        found.append(
            Run(
                replay=replay,
                side=side,
                rate=rate_of(summary),
                summary=summary,
                is_other_side=bool(found) and _is_other(found[-1].side, side),
            )
        )
    return found


def runs_of_case(case: Case, *, limit: int = MAX_RUNS) -> list[CaseRun]:
    """The newest runs of a case that have ended, the oldest first."""
    ended = ReplayCase.objects.filter(case=case, replay__state=ReplayState.DONE).select_related("replay")
    rows = list(ended.defer("replay__result").order_by("-replay_id")[:limit])[::-1]
    sides = _candidates(ReplaySide.objects.filter(replay_id__in=[row.replay_id for row in rows]))
    found: list[CaseRun] = []
    for row in rows:
        side, before = sides.get(row.replay_id), found[-1] if found else None
        passes, judged = row.candidate_passes, row.candidate_judged
        interval = wilson(passes, judged)
        found.append(
            CaseRun(
                row=row,
                side=side,
                state=case_state(passes, judged),
                rate=Rate(rate=passes / judged, low=interval.low, high=interval.high) if judged else None,
                is_other_side=before is not None and _is_other(before.side, side),
                is_other_version=before is not None and before.row.version != row.version,
            )
        )
    return found


def _candidates(sides: QuerySet[ReplaySide]) -> dict[int, ReplaySide]:
    wanted = sides.filter(name=_CANDIDATE).defer("tools", "system_prompt", "parameters")
    return {side.replay_id: side for side in wanted}


def _is_other(before: ReplaySide | None, now: ReplaySide | None) -> bool:
    return before is not None and now is not None and before.same_sha256 != now.same_sha256


# The chart, in the units of an SVG.

WIDTH: Final = 720
HEIGHT: Final = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`x` and `y` of a rate, `top` and `bottom` of its interval; `run` is what it is of. `before` is the place between
    it and the run before."""

    run: Run | CaseRun
    x: float
    y: float
    top: float
    bottom: float
    before: float
    is_other: bool


def chart(found: Iterable[Run | CaseRun]) -> list[Point]:
    """A point for each run that has a rate, at even distances."""
    rated = list(found)
    step = WIDTH / max(1, len(rated))
    return [
        Point(
            run=run,
            x=round(step * (number + 0.5), 2),
            y=_height(run.rate.rate),
            top=_height(run.rate.high),
            bottom=_height(run.rate.low),
            before=round(step * number, 2),
            is_other=run.is_other_side,
        )
        for number, run in enumerate(rated)
        if run.rate is not None
    ]


def _height(share: float) -> float:
    return round(HEIGHT * (1 - share), 2)
