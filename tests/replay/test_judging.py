"""A model that judges what others meant: votes that are kept, budgets that hold, labels that it is held against."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine.providers import behaviours
from engine.providers.behaviours import Ask, Line
from engine.providers.wire import Completion
from quality.cases.judge_model import MIN_LABELS
from quality.models import Case, JudgeVote, Label, Replay, ReplayCase, ReplaySample, ReplayState
from quality.replay import findings, judging, outcome, steps
from quality.replay.plan import Budget, RunSettings, SideSpec, Wanted, start
from quality.replay.run import run_replay
from quality.review import agreement_data
from tenants import endpoints
from tenants.endpoints import EndpointData
from tenants.models import ModelEndpoint, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.cases.suite import Playing, playing
from tests.factories import CaseFactory

RUBRIC = "Names the largest city of Switzerland."


def expects(rubric: str = RUBRIC, **more: Any) -> str:
    args = {"city": {"judge": {"rubric": rubric, "of": "Zürich", **more}}, "unit": {"ignore": True}}
    step = {"tool": "get_weather", "args": args}
    return json.dumps({"version": 1, "calls": {"mode": "first", "steps": [step]}}, ensure_ascii=False)


def weather(city: str) -> Completion:
    return Completion(calls=(("get_weather", json.dumps({"city": city})),))


async def knows_zurich(ask: Ask, line: Line) -> None:
    """A judge that finds right whatever begins with a Z."""
    answer = json.loads(ask.messages[1]["content"])["answer"]
    said = {"rationale": f"It says {answer}.", "passed": answer.startswith("Z")}
    await behaviours.send(ask, line, Completion(json.dumps(said)))


class House:
    """A tenant with two endpoints: `main`, which is tried, and `judge`."""

    def __init__(self, tenant: Tenant, user: User, main: Playing, judge: Playing) -> None:
        self.tenant, self.user, self.main, self.judge = tenant, user, main, judge
        for label, play in (("main", main), ("judge", judge)):
            data = EndpointData(
                label=label, base_url=play.base_url, model=f"{label}-model", price_prompt=1, price_completion=1
            )
            with tenant_scope(tenant):
                endpoints.save_endpoint(data, actor=user)

    def replayed(self, *, samples: int = 1, **settings: Any) -> Replay:
        with tenant_scope(self.tenant):
            wanted = Wanted(
                sides=(SideSpec(model_label="main"),),
                settings=RunSettings(samples=samples, judge_label="judge", concurrency=1, **settings),
            )
            replay = start(wanted, actor=self.user)
        return self.carried_out(replay)

    def carried_out(self, replay: Replay) -> Replay:
        run_replay(replay.pk, tenant_id=self.tenant.pk)
        with tenant_scope(self.tenant):
            return Replay.objects.get(pk=replay.pk)

    def verdicts(self, replay: Replay) -> list[str]:
        with tenant_scope(self.tenant):
            samples = ReplaySample.objects.filter(replay=replay).order_by("replay_case__number", "index")
            return list(samples.values_list("verdict", flat=True))

    def notices(self, replay: Replay) -> str:
        with tenant_scope(self.tenant):
            return "\n".join(outcome.report_of(replay).notices)


@pytest.fixture
def script() -> list[Completion]:
    """What the model that is tried says, sample by sample."""
    return [weather("Zurich")] * 8


@pytest.fixture
def house(tenant: Tenant, member: Any, settings: Any, script: list[Completion]) -> Iterator[House]:
    with playing(*script) as main, playing(*[knows_zurich] * 200) as judge:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [int(play.base_url.split(":")[2].split("/")[0]) for play in (main, judge)]
        yield House(tenant, member(Role.ADMIN).user, main, judge)


def labelled(tenant: Tenant, number: int, city: str, label: str, rubric: str = RUBRIC) -> list[Case]:
    """Cases that leave the city to a judge, with this city recorded and labelled so."""
    with tenant_scope(tenant):
        return [
            CaseFactory(
                label=label, args=json.dumps({"city": city}), expectation=expects(rubric), messages="[]", tags=["label"]
            )
            for _ in range(number)
        ]


@pytest.mark.parametrize("script", [[weather("Zurich"), weather("Bern"), weather("Zurich")]])
def test_votes_decide_are_kept_and_are_not_asked_for_again(house: House) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects())
    replay = house.replayed(samples=2)
    assert (replay.state, replay.exit_code) == (ReplayState.DONE, 1)
    assert house.verdicts(replay) == ["pass", "fail"]
    with tenant_scope(house.tenant):
        kept = list(JudgeVote.objects.order_by("pk"))
        assert {(row.model, row.verdict) for row in kept} == {("judge-model", True), ("judge-model", False)}
        assert [vote["swapped"] for vote in kept[0].votes] == [False, True, False]
        assert kept[0].votes[0]["rationale"].startswith("It says ")
        failed = ReplaySample.objects.get(replay=replay, verdict="fail")
        assert failed.reasons[0]["code"] == "wrong_argument"
    asked = len(house.judge.bodies)
    assert asked == 6  # two questions of three votes: the recorded call says what one of the samples says
    assert (replay.requests, {body["temperature"] for body in house.judge.bodies}) == (2 + asked, {0})
    assert replay.prompt_tokens > sum(row.prompt_tokens for row in kept) > 0
    assert replay.cost == pytest.approx((replay.prompt_tokens + replay.completion_tokens) / 1e6)
    again = house.replayed(samples=1)
    assert (again.exit_code, again.requests, len(house.judge.bodies)) == (0, 1, asked)


def test_as_many_votes_as_the_case_wants(house: House) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects(votes=5))
    house.replayed()
    assert len(house.judge.bodies) == 5


def test_a_judge_that_is_away_decides_nothing_and_is_asked_again_on_retry(house: House) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects())
        ModelEndpoint.objects.filter(label="judge").update(base_url=f"{house.main.base_url}/nothing")
    replay = house.replayed()
    assert (replay.exit_code, replay.num_errors, house.verdicts(replay)) == (3, 1, ["error"])
    asked = len(house.main.bodies)
    with tenant_scope(house.tenant):
        ModelEndpoint.objects.filter(label="judge").update(base_url=house.judge.base_url)
        steps.retry_errors(replay, actor=house.user)
    replay = house.carried_out(replay)
    assert (replay.exit_code, house.verdicts(replay)) == (0, ["pass"])
    assert len(house.main.bodies) == asked  # the model that is tried has said what it has to say


def test_a_judge_that_was_switched_off_is_told(house: House) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects())
        replay = start(
            Wanted(sides=(SideSpec(model_label="main"),), settings=RunSettings(judge_label="judge")), actor=house.user
        )
        ModelEndpoint.objects.filter(label="judge").update(is_enabled=False)
    replay = house.carried_out(replay)
    assert replay.exit_code == 3
    assert "The judge judge is gone or switched off" in house.notices(replay)


def test_the_budget_of_the_run_holds_for_the_judge(house: House) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects("One."))
        CaseFactory(expectation=expects("Two."))
    replay = house.replayed(budget=Budget(calls=3))
    assert (replay.exit_code, len(house.judge.bodies)) == (3, 3)
    assert sorted(house.verdicts(replay)) == ["error", "pass"]


def test_a_question_that_names_another_model_is_not_put_to_this_judge(house: House) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects(model="another-model"))
        CaseFactory(expectation=expects(model="judge"))
    replay = house.replayed()
    assert house.verdicts(replay) == ["error", "pass"]


def test_a_rubric_that_the_judge_and_people_read_otherwise_is_not_left_to_it(house: House) -> None:
    half = MIN_LABELS // 2
    labelled(house.tenant, half, "Zug", Label.BAD_ARGS)
    labelled(house.tenant, half, "Bern", Label.GOOD_REPLY)
    with tenant_scope(house.tenant):
        Case.objects.filter(tags__contains=["label"]).update(status="archived")
        CaseFactory(expectation=expects(), label=Label.GOOD_REPLY)
    replay = house.replayed()
    assert (replay.exit_code, house.verdicts(replay)) == (3, ["error"])
    assert f"Not left to the judge judge: “{RUBRIC}”" in house.notices(replay)
    with tenant_scope(house.tenant):
        told = judging.told(replay, outcome.cases_of(replay))
    assert told is not None
    (rubric,) = told["rubrics"]
    assert (rubric["labels"], rubric["state"]) == (MIN_LABELS + 1, "refused")
    assert rubric["kappa"] < 0


def test_a_judge_that_agrees_with_people_is_trusted_and_findings_are_labels(house: House) -> None:
    """What people say later changes what is known of the judge, and nothing of what it has said."""
    labelled(house.tenant, 9, "Zug", Label.GOOD_REPLY)
    labelled(house.tenant, 9, "Bern", Label.BAD_ARGS)
    with tenant_scope(house.tenant):
        Case.objects.filter(tags__contains=["label"]).update(status="archived")
        CaseFactory(expectation=expects(), label=Label.GOOD_REPLY)
    replay = house.replayed()
    assert replay.exit_code == 0
    assert f"is not calibrated on “{RUBRIC}”: 19 of 20 labels" in house.notices(replay)
    with tenant_scope(house.tenant):
        sample = ReplaySample.objects.get(replay=replay)
        ReplaySample.objects.filter(pk=sample.pk).update(verdict="fail")
        number = Case.objects.get(status="active").number
        findings.confirm(replay, number, sample_id=sample.pk, by=house.user)
        told = judging.told(replay, outcome.cases_of(replay))
    assert told is not None
    (rubric,) = told["rubrics"]
    assert (rubric["labels"], rubric["state"]) == (20, "calibrated")
    assert rubric["agreement"] == 19 / 20
    assert rubric["kappa"] == pytest.approx(0.9, abs=0.01)
    assert "judge" not in house.notices(replay)


def test_what_was_asked_about_a_sample_is_told_with_every_vote(house: House) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects())
    replay = house.replayed()
    with tenant_scope(house.tenant):
        (case,), sample = outcome.cases_of(replay), ReplaySample.objects.get(replay=replay)
        (told,) = judging.votes_on(replay, case, sample)
    assert (told["rubric"], told["passed"], len(told["votes"])) == (RUBRIC, True, 3)


@pytest.mark.parametrize("stopped", ["time", "person"])
def test_a_slice_that_is_over_leaves_the_rest_for_the_next(house: House, stopped: str) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects())
        ModelEndpoint.objects.filter(label="judge").update(is_enabled=False)
        replay = start(
            Wanted(sides=(SideSpec(model_label="main"),), settings=RunSettings(judge_label="main")), actor=house.user
        )
        Replay.objects.filter(pk=replay.pk).update(settings=RunSettings(judge_label="judge").to_json())
    replay = house.carried_out(replay)
    with tenant_scope(house.tenant):
        ModelEndpoint.objects.filter(label="judge").update(is_enabled=True)
        ReplaySample.objects.filter(replay=replay).update(awaits_judge=True)
    until = time.monotonic() + (-1 if stopped == "time" else 600)

    def ask_open(until: float, *, goes_on: bool) -> bool:
        return judging.ask_open(replay.pk, tenant_id=house.tenant.pk, until=until, go_on=lambda: goes_on)

    assert not ask_open(until, goes_on=stopped != "person")
    assert house.judge.bodies == []
    assert ask_open(time.monotonic() + 600, goes_on=True)
    assert len(house.judge.bodies) == 3


def test_nobody_but_the_tenant_sees_its_votes(house: House, other_tenant: Tenant) -> None:
    with tenant_scope(house.tenant):
        CaseFactory(expectation=expects())
    house.replayed()
    with tenant_scope(other_tenant):
        assert not JudgeVote.objects.exists()


async def breaks_off(ask: Ask, line: Line) -> None:
    await line.whole(400, {"error": {"message": "no more of it"}})


def test_votes_on_a_question_that_came_to_nothing_are_paid_for(tenant: Tenant, member: Any, settings: Any) -> None:
    with playing(weather("Zurich")) as main, playing(knows_zurich, *[breaks_off] * 9) as judge:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [int(play.base_url.split(":")[2].split("/")[0]) for play in (main, judge)]
        house = House(tenant, member(Role.ADMIN).user, main, judge)
        with tenant_scope(tenant):
            CaseFactory(expectation=expects(), label=Label.BAD_ARGS, index=None)
        replay = house.replayed()
        with tenant_scope(tenant):
            sample = ReplaySample.objects.get()
            assert not JudgeVote.objects.exists()
    assert (replay.exit_code, replay.requests) == (3, sample.requests + 2)
    assert replay.prompt_tokens > sample.prompt_tokens
    assert replay.cost == pytest.approx((replay.prompt_tokens + replay.completion_tokens) / 1e6)


def test_how_far_the_judge_agrees_with_people_is_told_by_rubric_with_intervals(house: House) -> None:
    labelled(house.tenant, 3, "Zug", Label.GOOD_REPLY)
    labelled(house.tenant, 2, "Bern", Label.GOOD_REPLY)
    labelled(house.tenant, 4, "Bern", Label.BAD_ARGS, rubric="Another.")
    with tenant_scope(house.tenant):
        Case.objects.filter(tags__contains=["label"]).update(status="archived")
        CaseFactory(expectation=expects(), label=Label.GOOD_REPLY)
        CaseFactory(expectation=expects("Another."), label=Label.GOOD_REPLY)
        assert agreement_data.judge_figures() == [], "nobody was asked yet"
    house.replayed()
    with tenant_scope(house.tenant):
        found = {one.rubric: one for one in agreement_data.judge_figures()}
        every = found[""]
        assert set(found) == {"", RUBRIC, "Another."}
        assert {one.model for one in found.values()} == {"judge-model"}
        assert (every.lenient, every.strict) == (found["Another."].lenient, found[RUBRIC].strict)
        assert every.raw.n == found[RUBRIC].raw.n + found["Another."].raw.n
        known = judging.agreements(Replay.objects.get(), outcome.read_cases(list(ReplayCase.objects.all())).values())
        for each in known:
            assert (found[each.rubric].kappa.value, found[each.rubric].raw.value) == (each.kappa, each.agreed)
            assert found[each.rubric].raw.n == each.num_labels
        assert found["Another."].raw.low is not None
