"""What the samples of a replay say: cases, sides, comparison, gate. All read from what was stored when they landed.

Functions need an open tenant scope unless they say otherwise.
"""

from collections.abc import Iterator

from quality.cases.attempt import Attempt
from quality.cases.record import Case
from quality.cases.report import Report
from quality.models import Replay


def cases_of(replay: Replay) -> list[Case]:
    """The cases in the versions that were frozen, by number."""
    raise NotImplementedError


def attempts_of(replay: Replay, side: str, *, fresh: bool = False) -> Iterator[Attempt]:
    """The stored attempts of a side; with `fresh` those alone that were made to confirm suspects."""
    raise NotImplementedError


def settle(replay: Replay) -> None:
    """Say how the replay came out, in its rows, and end it, if it is still ours (`replay.lease_token`). Opens scopes of
    its own.

    `Replay.result`: `{"verdict": sentence, "gate": {"failed", "missing", "red", "open"}, "summaries": {side: …},
    "comparison": null | {…without cases}, "notices": […]}`, as the report of the command holds them.
    """
    raise NotImplementedError


def report_of(replay: Replay) -> Report:
    """The report of a replay that has ended, as the command writes it."""
    raise NotImplementedError
