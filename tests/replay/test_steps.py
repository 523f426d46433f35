"""Steps of people: each applies to some states, is on record, and says what does apply where it does not."""

from collections.abc import Callable

import pytest

from quality.models import Replay, ReplayState
from quality.replay import lease, steps
from quality.replay.steps import WrongState
from tenants.models import AuditEvent
from tenants.scope import tenant_scope
from tests.replay.lab import Lab, Models

type Step = Callable[..., Replay]
STEPS: dict[Step, tuple[set[ReplayState], ReplayState]] = {
    steps.pause: ({ReplayState.QUEUED, ReplayState.RUNNING}, ReplayState.PAUSED),
    steps.resume: ({ReplayState.PAUSED}, ReplayState.QUEUED),
    steps.cancel: ({ReplayState.QUEUED, ReplayState.RUNNING, ReplayState.PAUSED}, ReplayState.CANCELLED),
    steps.retry_errors: ({ReplayState.FAILED}, ReplayState.QUEUED),  # of a done one: only where it has errors
}


@pytest.mark.parametrize("state", ReplayState)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_applies_to_its_states_alone(lab: Lab, step: Step, state: ReplayState) -> None:
    lab.endpoint("right")
    lab.cases(1)
    replay = lab.start("right")
    applies, after = STEPS[step]
    with tenant_scope(lab.tenant):
        Replay.objects.filter(pk=replay.pk).update(state=state)
        if state in applies:
            assert step(replay, actor=lab.actor).state == after
            assert AuditEvent.objects.filter(object_type="replay", object_id=str(replay.pk)).count() == 2
        else:
            with pytest.raises(WrongState) as refusal:
                step(replay, actor=lab.actor)
            assert refusal.value.replay.state == state
            assert str(refusal.value)
    assert lab.fresh(replay).state == (after if state in applies else state)


def test_what_never_began_is_not_asked_again(lab: Lab) -> None:
    with tenant_scope(lab.tenant):
        missed = Replay.objects.create(state=ReplayState.FAILED, failure="Missed: the service was down.")
        with pytest.raises(WrongState, match="Start a new replay"):
            steps.retry_errors(missed, actor=lab.actor)
    assert lab.fresh(missed).state == ReplayState.FAILED


def test_a_step_tells_workers_of_what_it_queues(
    lab: Lab, models: Models, published: list[tuple[str, int, int]]
) -> None:
    lab.endpoint("right")
    lab.cases(1)
    replay = lab.start("right")
    message = ("quality.tasks.run_replay", lab.tenant.pk, replay.pk)
    with tenant_scope(lab.tenant):
        steps.pause(replay, actor=lab.actor)
        assert not lease.lost().exists()
        steps.resume(replay, actor=lab.actor)
    assert published == [message, message]
    models.broken = {1}
    assert lab.run(replay).exit_code == 3
    with tenant_scope(lab.tenant):
        steps.retry_errors(replay, actor=lab.actor)
    assert published == [message] * 3
    again = lab.fresh(replay)
    assert (again.num_finished, again.num_errors, again.exit_code, again.result) == (0, 0, None, None)
