"""Replays as rows, as a finished run leaves them."""

import datetime as dt
import itertools
from typing import Any

from django.utils import timezone

from quality.models import Case, Replay, ReplayCase, ReplaySample, ReplaySchedule, ReplaySide, ReplayState

_numbers = itertools.count(1)
FIRST_NIGHT = dt.datetime(2026, 3, 1, 2, 0, tzinfo=dt.UTC)


def make_schedule(**fields: Any) -> ReplaySchedule:
    """Nightly, of every active case, against one model. It is not due by itself."""
    fields = {"name": f"Nightly {next(_numbers)}", "cron": "0 2 * * *", "sides": [{"modelLabel": "main"}]} | fields
    return ReplaySchedule.objects.create(**fields)


def make_replay(
    *cases: Case,
    counts: tuple[int, int] = (3, 3),
    same: str = "a",
    case_fields: dict[str, Any] | None = None,
    **fields: Any,
) -> Replay:
    """A replay that came to its end, with one side and a row for each case: passes and judged samples as `counts`."""
    now = timezone.now()
    fields = {"state": ReplayState.DONE, "exit_code": 0, "started_at": now, "finished_at": now} | fields
    replay = Replay.objects.create(num_cases=len(cases), **fields)
    ReplaySide.objects.create(
        replay=replay, endpoint_id=1, model_label="main", base_url="https://m.example", model="m", same_sha256=same * 64
    )
    passes, judged = counts
    for case in cases:
        ReplayCase.objects.create(
            replay=replay,
            case=case,
            number=case.number,
            version=case.version,
            num_samples=judged,
            candidate_passes=passes,
            candidate_judged=judged,
            is_flaky=0 < passes < judged,
            standing="passed" if passes == judged else "failed",
            **(case_fields or {}),
        )
    return replay


def make_sample(replay: Replay, case: Case, *, verdict: str = "fail", index: int = 0) -> ReplaySample:
    row = ReplayCase.objects.get(replay=replay, case=case)
    return ReplaySample.objects.create(
        replay=replay, replay_case=row, side="candidate", index=index, verdict=verdict, data="{}"
    )
