"""Replays run: what is asked of whom, what is kept, and that a slice, a pause or a loss asks nothing twice."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from quality.models import Replay, ReplayState
from quality.replay import lease, run, steps
from quality.replay.wanted import Budget
from tenants.models import Membership, ModelEndpoint, Role, Tenant
from tenants.scope import tenant_scope
from tests.replay.lab import Lab, Models
from tests.turns.conftest import eventually


class Worker:
    """Runs slices of a replay in a thread, until nothing is queued."""

    def __init__(self, lab: Lab, replay: Replay) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(lab, replay), daemon=True)
        self._thread.start()

    def _run(self, lab: Lab, replay: Replay) -> None:
        try:
            run.run_replay(replay.pk, tenant_id=lab.tenant.pk)
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()

    def ends(self) -> None:
        self._thread.join(90)
        assert not self._thread.is_alive()
        assert self.error is None, self.error


def test_a_side_is_asked_for_each_sample_and_judged(lab: Lab, models: Models) -> None:
    lab.endpoint("flaky", price_prompt=1.0, price_completion=2.0)
    lab.cases(2)
    replay = lab.ran("flaky", samples=4)
    assert (replay.state, replay.exit_code, replay.num_finished, replay.num_errors) == (ReplayState.DONE, 1, 8, 0)
    assert models.places == {("flaky", case, seed): 1 for case in (1, 2) for seed in (1, 2, 3, 4)}
    verdicts = [sample.verdict for sample in lab.samples(replay)]
    assert verdicts == ["pass", "fail", "pass", "fail"] * 2
    for row in lab.rows(replay):
        assert (row.candidate_passes, row.candidate_judged) == (2, 4)
        assert (row.standing, row.is_flaky, row.change) == ("failed", True, "")
    [failed, *_] = lab.samples(replay, verdict="fail")
    assert failed.reasons[0]["code"] == "wrong_argument"
    used = [(sample.requests, sample.prompt_tokens, sample.completion_tokens) for sample in lab.samples(replay)]
    assert (replay.requests, replay.prompt_tokens, replay.completion_tokens) == tuple(map(sum, zip(*used, strict=True)))
    assert replay.cost == pytest.approx((replay.prompt_tokens + 2 * replay.completion_tokens) / 1e6)
    assert replay.result["gate"]["red"] == ["REG-1", "REG-2"]
    assert {asked.key for asked in models.asked} == {"Bearer sk-acme-4711"}


def test_two_sides_take_turns_and_a_drop_is_confirmed_by_fresh_samples(lab: Lab, models: Models) -> None:
    lab.endpoint("right")
    lab.endpoint("wrong")
    lab.cases(1)
    replay = lab.ran("right", "wrong", samples=5, concurrency=1)
    assert [asked.model for asked in models.asked[:10]] == ["right", "wrong"] * 5
    [row] = lab.rows(replay)
    assert (row.baseline_passes, row.baseline_judged, row.candidate_passes, row.candidate_judged) == (5, 5, 0, 5)
    assert (row.change, row.is_suspect, row.is_confirmed) == ("newly_failing", True, True)
    assert row.fresh == [[10, 10], [0, 10]]
    assert (replay.exit_code, replay.num_finished, replay.num_expected) == (1, 30, 10)
    assert replay.result["gate"]["red"] == ["REG-1"]
    assert set(models.places.values()) == {1}


def test_a_flaky_suspect_gets_more_fresh_samples_and_is_not_confirmed(lab: Lab, models: Models) -> None:
    lab.endpoint("flaky")
    lab.endpoint("flaky-two", model="flaky-two")
    lab.cases(1)
    replay = lab.ran("flaky", "flaky-two", samples=1)
    [row] = lab.rows(replay)
    assert not row.is_suspect
    lab.endpoint("wrong")
    replay = lab.ran("flaky", "wrong", samples=1, confirm=False)
    [row] = lab.rows(replay)
    assert (row.is_suspect, row.is_confirmed, row.fresh) == (True, False, None)
    assert replay.exit_code == 0
    assert replay.result["verdict"] == "No regression shown."


def test_one_side_is_compared_with_an_earlier_replay(lab: Lab) -> None:
    lab.endpoint("right")
    cases = lab.cases(2)
    first = lab.ran("right", samples=8)
    lab.endpoint("right", model="wrong")
    with tenant_scope(lab.tenant):
        from quality.improve import cases as use_cases

        use_cases.edit(cases[1].number, by=lab.actor, seen_version=1, behavior="Asks for Zürich, and nothing else.")
    second = lab.ran("right", samples=8, baseline_replay_id=first.pk)
    same, changed = lab.rows(second)
    assert (same.baseline_passes, same.candidate_passes, same.is_confirmed) == (8, 0, True)
    assert (changed.version, changed.change, changed.baseline_judged) == (2, "not_compared", 0)
    assert second.exit_code == 1
    assert second.result["before"] == {"REG-1": [1, 8, 8], "REG-2": [1, 8, 8]}


def test_slices_give_others_their_turn_and_ask_nothing_twice(
    lab: Lab, models: Models, settings: Any, published: list[tuple[str, int, int]]
) -> None:
    lab.endpoint("right")
    lab.cases(6)
    settings.REPLAY_SLICE_S = 0.2
    models.delay_s = 0.15
    replay = lab.start("right", samples=2, concurrency=2)
    states = []
    while lab.fresh(replay).state in (ReplayState.QUEUED, ReplayState.RUNNING):
        found = run.run_replay(replay.pk, tenant_id=lab.tenant.pk)
        assert found is not None
        states.append(found.state)
    assert states[-1] == ReplayState.DONE
    assert len(states) > 2
    assert set(states[:-1]) == {ReplayState.QUEUED}
    assert published.count(("quality.tasks.run_replay", lab.tenant.pk, replay.pk)) == len(states)
    done = lab.fresh(replay)
    assert (done.exit_code, done.num_finished, done.lease_token) == (0, 12, None)
    assert len(models.asked) == 12
    assert set(models.places.values()) == {1}


def test_fresh_samples_are_asked_once_over_slices(lab: Lab, models: Models, settings: Any) -> None:
    lab.endpoint("flaky")
    lab.endpoint("right")
    lab.cases(2)
    settings.REPLAY_SLICE_S = 0.2
    models.delay_s = 0.02
    replay = lab.ran("right", "flaky", samples=4)
    assert [row.fresh for row in lab.rows(replay)] == [[[10, 10], [5, 10]]] * 2
    assert all(row.is_confirmed for row in lab.rows(replay))
    assert replay.num_finished == 2 * 2 * (4 + 10)
    assert set(models.places.values()) == {1}


def test_a_budget_goes_over_slices_and_what_is_over_it_is_not_asked(lab: Lab, models: Models, settings: Any) -> None:
    lab.endpoint("right")
    lab.cases(5)
    settings.REPLAY_SLICE_S = 0.1
    models.delay_s = 0.06
    replay = lab.ran("right", samples=2, concurrency=1, budget=Budget(calls=7))
    assert len(models.asked) == 7
    assert (replay.exit_code, replay.num_finished, replay.num_errors) == (3, 10, 3)
    errors = lab.samples(replay, verdict="error")
    assert {error.reasons[0]["got"] for error in errors} == {"budget: 7 of 7 calls to the model used by the run"}
    assert replay.result["verdict"] == "Incomplete: no verdict."
    with tenant_scope(lab.tenant):
        steps.retry_errors(replay, actor=lab.actor)
    again = lab.run(replay)
    assert (again.exit_code, again.num_finished, again.num_errors, again.requests) == (0, 10, 0, 10)
    assert set(models.places.values()) == {1}


def test_a_case_has_a_budget_over_slices(lab: Lab, models: Models, settings: Any) -> None:
    lab.endpoint("right")
    lab.cases(2)
    settings.REPLAY_SLICE_S = 0.01
    replay = lab.ran("right", samples=3, concurrency=1, case_budget=Budget(calls=2))
    assert [sample.verdict for sample in lab.samples(replay)] == ["pass", "pass", "error"] * 2
    assert len(models.asked) == 4
    with tenant_scope(lab.tenant):
        steps.retry_errors(replay, actor=lab.actor)
    assert lab.run(replay).exit_code == 0  # its budgets begin anew
    assert len(models.asked) == 6


def test_errors_enter_no_rate(lab: Lab, models: Models) -> None:
    lab.endpoint("right")
    lab.cases(2)
    models.broken = {2}
    replay = lab.ran("right", samples=2)
    good, broken = lab.rows(replay)
    assert (good.candidate_passes, good.candidate_judged, good.standing) == (2, 2, "passed")
    assert (broken.candidate_passes, broken.candidate_judged, broken.num_errors) == (0, 0, 2)
    assert (broken.standing, replay.exit_code, replay.num_errors) == ("undecided", 3, 2)
    assert replay.result["summaries"]["candidate"]["rate"] == 1.0
    models.broken = set()
    with tenant_scope(lab.tenant):
        steps.retry_errors(replay, actor=lab.actor)
    assert lab.run(replay).exit_code == 0
    assert models.places["right", 1, 1] == 1


def test_a_pause_lets_samples_under_way_end_and_a_resume_goes_on(lab: Lab, models: Models) -> None:
    lab.endpoint("right")
    lab.cases(6)
    models.gate.clear()
    replay = lab.start("right", concurrency=3)
    worker = Worker(lab, replay)
    eventually(lambda: len(models.asked) == 3, 60)
    with tenant_scope(lab.tenant):
        steps.pause(replay, actor=lab.actor)
    threading.Event().wait(run.LOOK_S * 3)  # it has looked by then
    models.gate.set()
    worker.ends()
    paused = lab.fresh(replay)
    assert (paused.state, paused.num_finished, paused.lease_token) == (ReplayState.PAUSED, 3, None)
    assert len(models.asked) == 3
    assert run.run_replay(replay.pk, tenant_id=lab.tenant.pk) is None
    with tenant_scope(lab.tenant):
        steps.resume(replay, actor=lab.actor)
    assert lab.run(replay).num_finished == 6
    assert set(models.places.values()) == {1}


def test_a_resume_while_samples_still_end_is_taken_up_again(
    lab: Lab, models: Models, published: list[tuple[str, int, int]]
) -> None:
    lab.endpoint("right")
    lab.cases(4)
    models.gate.clear()
    replay = lab.start("right", concurrency=2)
    worker = Worker(lab, replay)
    eventually(lambda: len(models.asked) == 2, 60)
    with tenant_scope(lab.tenant):
        steps.pause(replay, actor=lab.actor)
    threading.Event().wait(run.LOOK_S * 3)
    with tenant_scope(lab.tenant):
        steps.resume(replay, actor=lab.actor)
    assert run.run_replay(replay.pk, tenant_id=lab.tenant.pk) is None  # the other worker holds it
    published.clear()
    models.gate.set()
    worker.ends()
    assert published == [("quality.tasks.run_replay", lab.tenant.pk, replay.pk)]
    assert lab.run(replay).num_finished == 4
    assert set(models.places.values()) == {1}


def test_a_cancel_breaks_off_what_is_under_way(lab: Lab, models: Models) -> None:
    lab.endpoint("right")
    lab.cases(4)
    models.gate.clear()
    replay = lab.start("right", concurrency=2)
    worker = Worker(lab, replay)
    eventually(lambda: len(models.asked) == 2, 60)
    with tenant_scope(lab.tenant):
        steps.cancel(replay, actor=lab.actor)
    worker.ends()  # though nobody was answered
    eventually(lambda: models.server.num_open == 0, 60)
    ended = lab.fresh(replay)
    assert (ended.state, ended.num_finished, ended.exit_code) == (ReplayState.CANCELLED, 0, None)
    assert lab.samples(replay) == []


def test_a_worker_that_lost_its_lease_writes_nothing_more(lab: Lab, models: Models) -> None:
    lab.endpoint("right")
    lab.cases(2)
    models.gate.clear()
    replay = lab.start("right", concurrency=2)
    sleeper = Worker(lab, replay)
    eventually(lambda: len(models.asked) == 2, 60)
    with tenant_scope(lab.tenant):  # as if it had been stopped for as long as the lease
        Replay.objects.filter(pk=replay.pk).update(lease_until=timezone.now())
        other = lease.claim(replay.pk)
    assert other is not None
    models.gate.set()
    sleeper.ends()
    assert lab.samples(replay) == []
    kept = lab.fresh(replay)
    assert (kept.state, kept.lease_token, kept.num_finished) == (ReplayState.RUNNING, other.lease_token, 0)
    with tenant_scope(lab.tenant):
        assert lease.give_back(other, seconds=0)
    assert lab.run(replay).num_finished == 2


def test_a_replay_that_loses_its_workers_is_given_up(lab: Lab, settings: Any) -> None:
    lab.endpoint("right")
    lab.cases(1)
    replay = lab.start("right")
    for _ in range(lease.MAX_ATTEMPTS):
        with tenant_scope(lab.tenant):
            assert lease.claim(replay.pk) is not None
            Replay.objects.filter(pk=replay.pk).update(lease_until=timezone.now())
        assert lease.lost().values_list("tenant_id", "pk").get() == (lab.tenant.pk, replay.pk)
    assert run.run_replay(replay.pk, tenant_id=lab.tenant.pk) is None
    ended = lab.fresh(replay)
    assert ended.state == ReplayState.FAILED
    assert "lost 3 times" in ended.failure
    with tenant_scope(lab.tenant):
        steps.retry_errors(replay, actor=lab.actor)
    assert lab.run(replay).exit_code == 0


def test_a_key_goes_to_the_server_that_it_was_set_for(lab: Lab, models: Models) -> None:
    endpoint = lab.endpoint("right")
    lab.cases(1)
    replay = lab.start("right")
    with tenant_scope(lab.tenant):
        ModelEndpoint.objects.filter(pk=endpoint.pk).update(base_url="https://elsewhere.example/v1")
    assert lab.run(replay).state == ReplayState.FAILED
    assert "moved to another server" in lab.fresh(replay).failure
    with tenant_scope(lab.tenant):
        ModelEndpoint.objects.filter(pk=endpoint.pk).update(base_url=models.server.base_url, is_enabled=False)
        steps.retry_errors(replay, actor=lab.actor)
    assert "switched off" in lab.run(replay).failure
    assert models.asked == []


def test_tenants_ask_with_their_own_keys_and_see_their_own(
    lab: Lab, models: Models, other_tenant: Tenant, member: Callable[..., Membership]
) -> None:
    other = Lab(other_tenant, member(Role.ADMIN, tenant=other_tenant).user, models)
    for each in (lab, other):
        each.endpoint("right")
        each.cases(1)
    mine, theirs = lab.start("right"), other.start("right")
    assert run.run_replay(theirs.pk, tenant_id=lab.tenant.pk) is None
    assert (lab.run(mine).exit_code, other.run(theirs).exit_code) == (0, 0)
    assert [asked.key for asked in models.asked] == ["Bearer sk-acme-4711", "Bearer sk-globex-4711"]
    with tenant_scope(lab.tenant):
        assert Replay.objects.get().pk == mine.pk
