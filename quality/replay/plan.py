"""A replay is planned: cases are chosen, what is asked is frozen, a row says that it is to be run.

All functions need an open tenant scope.
"""

import datetime as dt
from typing import Final

from quality.models import Case, Replay, ReplaySchedule
from quality.replay.estimate import Estimate, SideEstimate, estimate
from quality.replay.wanted import Budget, RunSettings, SideSpec, Wanted
from tenants.models import ApiToken, User

__all__ = [
    "MAX_CASES",
    "MAX_LIVE",
    "Budget",
    "Estimate",
    "RunSettings",
    "SideEstimate",
    "SideSpec",
    "Wanted",
    "chosen_cases",
    "estimate",
    "start",
]

MAX_CASES: Final = 5_000
MAX_SAMPLES: Final = 100_000  # of all cases and sides together
MAX_LIVE: Final = 5  # of one tenant at once


def chosen_cases(wanted: Wanted) -> list[Case]:
    """The cases that are asked for, by number, without evidence but for the expectation. Raises ValidationError."""
    raise NotImplementedError


def start(
    wanted: Wanted,
    *,
    actor: User | None,
    token: ApiToken | None = None,
    schedule: ReplaySchedule | None = None,
    slot: dt.datetime | None = None,
) -> Replay:
    """Freeze what is asked and queue it. Raises ValidationError, whose names are those of the JSON (`sides.0.tools`),
    and IntegrityError where this slot of the schedule has its replay already."""
    raise NotImplementedError
