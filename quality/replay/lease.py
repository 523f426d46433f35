"""Who may write of a replay: claimed with a lease, kept by heartbeats, given back. Needs an open tenant scope."""

import datetime as dt
import os
import socket
import uuid
from typing import Final

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from quality.models import LIVE_REPLAYS, Replay, ReplayState
from quality.replay import ending

MAX_ATTEMPTS: Final = 3  # claims in a row that got nothing done


class NotOurs(Exception):
    """The replay is no longer ours to write of: cancelled, or another worker has it."""


def lease_end() -> dt.datetime:
    return timezone.now() + dt.timedelta(seconds=settings.REPLAY_LEASE_S)


def ours(replay: Replay) -> models.QuerySet[Replay]:
    """The row, if the lease is still this claim's. Each write of a worker goes through it."""
    return Replay.objects.filter(pk=replay.pk, lease_token=replay.lease_token, state__in=LIVE_REPLAYS)


def claim(replay_id: int) -> Replay | None:
    """Make a replay ours, by a guarded update; None if it is not to be had. Too many losses end it."""
    now = timezone.now()
    free = Q(state=ReplayState.QUEUED) & (Q(lease_token=None) | Q(lease_until__lt=now))
    waiting = Replay.objects.filter(free | Q(state=ReplayState.RUNNING, lease_until__lt=now), pk=replay_id)
    for given_up in waiting.filter(attempt__gte=MAX_ATTEMPTS).select_for_update(skip_locked=True):
        ending.fail(given_up, f"Its worker was lost {MAX_ATTEMPTS} times without getting any further. Retry it.")
        return None
    token = uuid.uuid4()
    claimed = waiting.update(
        state=ReplayState.RUNNING,
        attempt=F("attempt") + 1,
        lease_token=token,
        lease_until=lease_end(),
        worker=f"{socket.gethostname()}:{os.getpid()}",
        started_at=Coalesce(F("started_at"), now),
    )
    return Replay.objects.get(pk=replay_id, lease_token=token) if claimed else None


def give_back(replay: Replay, *, seconds: float) -> bool:
    """Let go of it; True if it is to be run again. A pause leaves it, a resume meanwhile has queued it."""
    held = ours(replay).select_for_update().first()
    if held is None:
        return False
    if held.state == ReplayState.RUNNING:
        held.state = ReplayState.QUEUED
    is_queued = held.state == ReplayState.QUEUED
    held.lease_token, held.lease_until = None, lease_end() if is_queued else None
    held.attempt, held.seconds = 0, held.seconds + seconds
    held.save(update_fields=["state", "attempt", "lease_token", "lease_until", "seconds"])
    return is_queued


def lost() -> models.QuerySet[Replay]:
    """Replays whose message or worker was lost, in every tenant the `janitor` may see. One that is queued has until
    `lease_until` to be claimed."""
    live = Q(state__in=(ReplayState.QUEUED, ReplayState.RUNNING))
    return models.QuerySet(Replay).using("janitor").filter(live, lease_until__lt=timezone.now())
