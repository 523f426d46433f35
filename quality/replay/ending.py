"""What follows the end of a replay, however it ended, in the transaction that ends it. Needs an open tenant scope."""

import logging
from collections.abc import Callable

from django.db import transaction
from django.utils import timezone

from quality.models import Replay, ReplayState
from tenants import audit

logger = logging.getLogger(__name__)


def fail(replay: Replay, failure: str) -> None:
    """End a replay that cannot be carried out; the caller holds it."""
    replay.state, replay.failure, replay.finished_at = ReplayState.FAILED, failure, timezone.now()
    replay.lease_token = replay.lease_until = None
    replay.save(update_fields=["state", "failure", "finished_at", "lease_token", "lease_until"])
    ended(replay)


def ended(replay: Replay) -> None:
    """Put it on record, tell who wants to know, look for cases that flicker. `exit_code` is None where it failed."""
    from quality.replay import notify, quarantine

    audit.record(
        f"replay.{replay.state}",
        object_type="replay",
        object_id=replay.pk,
        actor=replay.created_by,
        detail={"name": replay.name, "samples": replay.num_finished, "errors": replay.num_errors}
        | ({"failure": replay.failure} if replay.failure else {"exitCode": replay.exit_code}),
    )
    for follow in (notify.after, quarantine.propose_after):
        _followed(follow, replay)


def _followed(follow: Callable[[Replay], object], replay: Replay) -> None:
    """What follows may fail; the replay has come to its end nevertheless, and says so."""
    try:
        with transaction.atomic():
            follow(replay)
    except Exception:
        logger.exception("%s: what follows its end failed", replay)
