"""What people do to a replay that is there. Each step is a guarded update and a row of the audit log.

All functions need an open tenant scope, and give the replay as it is after the step.
"""

from quality.models import Replay
from tenants.models import ApiToken, User


class WrongState(Exception):
    """The replay is in a state that this step does not apply to; the text says which, and what does apply."""

    def __init__(self, message: str, replay: Replay) -> None:
        super().__init__(message)
        self.replay = replay


def pause(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """Begin no more samples; those under way end and are kept. Raises WrongState."""
    raise NotImplementedError


def resume(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """Go on with what a pause left. Raises WrongState."""
    raise NotImplementedError


def cancel(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """End it for good: samples under way are broken off, finished ones stay. Raises WrongState."""
    raise NotImplementedError


def retry_errors(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """Ask again for samples that ended in an error, of a replay that is done or failed; budgets begin anew. Raises
    WrongState, also where there are none."""
    raise NotImplementedError
