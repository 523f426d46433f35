"""What people do to a replay that is there. Each step is a guarded update and a row of the audit log.

All functions need an open tenant scope, and give the replay as it is after the step.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any, Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from quality import tasks
from quality.cases.sample import Verdict
from quality.models import LIVE_REPLAYS, Replay, ReplaySample, ReplayState
from quality.replay import lease, spending
from tenants import audit
from tenants.models import ApiToken, User

_NOT_JUDGED: Final = [{"code": "not_judged"}]
_REFUSED: Final = {
    "paused": gettext_lazy("A replay that is %(state)s cannot be paused: it has to be %(states)s."),
    "resumed": gettext_lazy("A replay that is %(state)s cannot be resumed: it has to be %(states)s."),
    "cancelled": gettext_lazy("A replay that is %(state)s cannot be cancelled: it has to be %(states)s."),
    "retried": gettext_lazy("A replay that is %(state)s cannot be retried: it has to be %(states)s."),
}
_UNSETTLED: Final = {
    "standing": "",
    "is_flaky": False,
    "change": "",
    "is_suspect": False,
    "is_confirmed": False,
    "p": None,
    "fresh": None,
}


class WrongState(Exception):
    """The replay is in a state that this step does not apply to; the text says which, and what does apply."""

    def __init__(self, message: str, replay: Replay) -> None:
        super().__init__(message)
        self.replay = replay


def pause(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """Begin no more samples; those under way end and are kept. Raises WrongState."""
    return _step(replay, "paused", (ReplayState.QUEUED, ReplayState.RUNNING), actor, token, state=ReplayState.PAUSED)


@transaction.atomic
def resume(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """Go on with what a pause left. Raises WrongState."""
    changed = _step(replay, "resumed", (ReplayState.PAUSED,), actor, token, state=ReplayState.QUEUED, attempt=0)
    # A worker that still ends what was under way queues it again by itself when it lets go.
    Replay.objects.filter(pk=replay.pk, lease_token=None).update(lease_until=lease.lease_end())
    _publish(changed)
    return changed


def cancel(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """End it for good: samples under way are broken off, finished ones stay. Raises WrongState."""
    ended = {"finished_at": timezone.now(), "lease_token": None, "lease_until": None}
    return _step(replay, "cancelled", LIVE_REPLAYS, actor, token, state=ReplayState.CANCELLED, **ended)


@transaction.atomic
def retry_errors(replay: Replay, *, actor: User | None, token: ApiToken | None = None) -> Replay:
    """Ask again for samples that ended in an error, of a replay that is done or failed; budgets begin anew. Where the
    judge alone gave no answer, it alone is asked again. Raises WrongState, also where there are none."""
    states = (ReplayState.DONE, ReplayState.FAILED)
    held = Replay.objects.select_for_update().filter(pk=replay.pk, state__in=states).first()
    errors = ReplaySample.objects.filter(replay=replay, verdict=Verdict.ERROR)
    if held is None:
        raise _wrong(replay, "retried", states)
    if not held.num_cases:
        raise _wrong(replay, "retried", states, _("It never began: there is nothing to ask again. Start a new replay."))
    if held.state == ReplayState.DONE and not errors.exists():
        raise _wrong(replay, "retried", states, _("It has no sample that ended in an error."))
    errors.filter(reasons__contains=_NOT_JUDGED).update(awaits_judge=True)
    num_gone, _by_model = errors.filter(awaits_judge=False).delete()
    changed = _step(
        replay,
        "retried",
        states,
        actor,
        token,
        state=ReplayState.QUEUED,
        stage=Replay.Stage.SAMPLES,
        attempt=0,
        failure="",
        exit_code=None,
        result=None,
        finished_at=None,
        lease_token=None,
        lease_until=lease.lease_end(),
        num_finished=F("num_finished") - num_gone,
        num_errors=0,
        spent_before=spending.begun_anew(held),
    )
    changed.cases.update(num_errors=0, **_UNSETTLED)
    _publish(changed)
    return changed


@transaction.atomic
def _step(
    replay: Replay, step: str, states: Iterable[str], actor: User | None, token: ApiToken | None, **changes: Any
) -> Replay:
    if not Replay.objects.filter(pk=replay.pk, state__in=states).update(**changes):
        raise _wrong(replay, step, states)
    found: Replay = Replay.objects.get(pk=replay.pk)
    audit.record(
        f"replay.{step}",
        object_type="replay",
        object_id=replay.pk,
        actor=actor,
        token=token,
        detail={"name": found.name, "samples": found.num_finished},
    )
    return found


def _wrong(replay: Replay, step: str, states: Iterable[str], why: str = "") -> WrongState:
    found: Replay = Replay.objects.get(pk=replay.pk)
    if why:
        return WrongState(why, found)
    named = [str(ReplayState(state).label).lower() for state in states]
    told = {"state": found.get_state_display().lower(), "states": reduce(_or, named)}
    return WrongState(str(_REFUSED[step]) % told, found)


def _or(left: str, right: str) -> str:
    return _("%(left)s or %(right)s") % {"left": left, "right": right}


def _publish(replay: Replay) -> None:
    tenant_id, replay_id = replay.tenant_id, replay.pk
    transaction.on_commit(lambda: tasks.publish_aside(tasks.run_replay, tenant_id, replay_id))
