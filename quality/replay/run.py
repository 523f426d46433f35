"""A replay is carried out, slice by slice: claimed with a lease, asked, judged, settled.

The row is the truth, a Celery message only says that it is there. Each sample is written as it lands, under the lease's
token: a worker that lost its lease writes nothing more, and what is finished is never asked again. A slice begins no
sample after REPLAY_SLICE_S; then the replay queues up again, so that other jobs get their turn.
"""

from django.db import models

from quality.models import Replay


def run_replay(replay_id: int, *, tenant_id: int) -> Replay | None:
    """One slice, and what follows the last one; None if it is another worker's, or wanted no more."""
    raise NotImplementedError


def lost() -> models.QuerySet[Replay]:
    """Replays whose message or worker was lost, in every tenant the `janitor` may see."""
    raise NotImplementedError
