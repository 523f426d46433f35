"""Quarantine: proposed after three flaky nights in a row with nothing changed, decided by a person, left again."""

import datetime as dt
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connections

from quality.improve import cases
from quality.improve.cases import StaleCase
from quality.models import Case, CaseVersion, QuarantineProposal, ReplaySchedule, ReplaySide
from quality.replay import quarantine
from quality.replay.quarantine import QuarantineConflict
from tenants.models import AuditEvent, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, UserFactory
from tests.replay.rows import FIRST_NIGHT, make_replay, make_schedule


@pytest.fixture(autouse=True)
def scope(tenant: Tenant) -> Iterator[None]:
    with tenant_scope(tenant):
        yield


@pytest.fixture
def ada(db: None) -> User:
    return UserFactory(name="Ada")


@pytest.fixture
def schedule(scope: None) -> ReplaySchedule:
    return make_schedule()


def night(number: int, schedule: ReplaySchedule, *found: Case, **fields: Any) -> list[QuarantineProposal]:
    """A night's replay in which the cases are flaky, and what was proposed after it."""
    slot = FIRST_NIGHT + dt.timedelta(days=number)
    fields = {"counts": (2, 3), "slot": slot, "created_at": slot} | fields
    return quarantine.propose_after(make_replay(*found, schedule=schedule, **fields))


@pytest.fixture
def proposal(schedule: ReplaySchedule) -> QuarantineProposal:
    case = CaseFactory()
    night(1, schedule, case)
    night(2, schedule, case)
    (made,) = night(3, schedule, case)
    return made


def test_three_flaky_nights_make_one_proposal_and_the_fourth_none(schedule) -> None:
    flaky, steady = CaseFactory(), CaseFactory()
    assert night(1, schedule, flaky) == []
    assert night(2, schedule, flaky) == []
    (made,) = night(3, schedule, flaky, steady)
    assert (made.case_id, made.case_version, len(made.replay_ids)) == (flaky.pk, 1, 3)
    assert [each.case for each in quarantine.pending()] == [flaky]
    assert night(4, schedule, flaky, steady) == []
    assert made.replay_ids == sorted(made.replay_ids, reverse=True)


@pytest.mark.parametrize(
    "second",
    [
        {"counts": (3, 3)},  # it passed
        {"counts": (0, 3)},  # it failed, and was not flaky
        {"same": "b"},  # another prompt, or another model
        {"case_fields": {"is_quarantined": True}},
    ],
)
def test_a_night_that_was_another_begins_the_count_again(schedule, second) -> None:
    case = CaseFactory()
    assert night(1, schedule, case) == []
    night(2, schedule, case, **second)
    assert night(3, schedule, case) == []
    later = night(4, schedule, case)
    assert later == []


def test_runs_of_other_schedules_and_by_hand_do_not_count(schedule) -> None:
    case, other = CaseFactory(), make_schedule()
    night(1, schedule, case)
    night(2, other, case)
    night(3, schedule, case, slot=None)
    night(4, schedule, case, state="cancelled")
    assert night(5, schedule, case) == []
    assert len(night(6, schedule, case)) == 1


def test_an_unchanged_baseline_is_enough_while_candidates_change(schedule) -> None:
    case = CaseFactory()
    counts = {"baseline_passes": 2, "baseline_judged": 3}
    for number in (1, 2, 3):
        slot = FIRST_NIGHT + dt.timedelta(days=number)
        replay = make_replay(case, schedule=schedule, slot=slot, counts=(3, 3), same=str(number), case_fields=counts)
        ReplaySide.objects.create(
            replay=replay, name="baseline", endpoint_id=1, model_label="m", base_url="", model="m", same_sha256="f" * 64
        )
        made = quarantine.propose_after(replay)
    assert [each.case_id for each in made] == [case.pk]


def test_another_version_is_flaky_in_its_own_right(schedule, proposal, ada) -> None:
    cases.edit(1, by=ada, seen_version=1, behavior="Asks for the weather in Zürich, once.")
    assert quarantine.pending() == []
    case = Case.objects.get()
    assert night(4, schedule, case) == []
    assert night(5, schedule, case) == []
    (again,) = night(6, schedule, case)
    assert again.case_version == 2
    with pytest.raises(QuarantineConflict, match="changed since it was flaky"):
        quarantine.accept(proposal, ada)


def test_accepting_makes_a_version_with_the_tag_and_dismissing_is_final(schedule, proposal, ada) -> None:
    case = quarantine.accept(proposal, ada)
    assert (case.version, case.tags) == (2, ["quarantine"])
    assert "flaky in replays" in CaseVersion.objects.get(case=case, number=2).note
    with pytest.raises(QuarantineConflict, match="decided meanwhile, by Ada: accepted"):
        quarantine.dismiss(proposal, ada, "No.")
    assert quarantine.pending() == []
    assert [each.pk for each in quarantine.decided()] == [proposal.pk]
    events = AuditEvent.objects.filter(object_type="quarantine").values_list("action", "detail")
    assert list(events) == [("quarantine.accepted", {"case": "REG-1", "version": 1, "replays": proposal.replay_ids})]
    assert night(4, schedule, case) == []


def test_a_dismissed_version_is_not_proposed_again(schedule, proposal, ada) -> None:
    with pytest.raises(ValidationError):
        quarantine.dismiss(proposal, ada, " ")
    quarantine.dismiss(proposal, ada, "The tool was down.")
    assert night(4, schedule, Case.objects.get()) == []
    assert QuarantineProposal.objects.get().reason == "The tool was down."


def test_the_age_counts_from_the_last_time_it_was_put_in(proposal, ada) -> None:
    case = quarantine.accept(proposal, ada)
    case = quarantine.release(case, ada)
    assert case.tags == []
    assert quarantine.since(case) is None
    case = cases.edit(1, by=ada, seen_version=3, tags=["slow", "quarantine"])
    case = cases.edit(1, by=ada, seen_version=4, behavior="Asks for it, once.")
    begun = CaseVersion.objects.get(case=case, number=4).at
    assert quarantine.since(case) == begun
    assert quarantine.quarantined() == [(case, begun)]
    stale = Case(number=1, version=4, tags=["quarantine"])
    with pytest.raises(StaleCase):
        quarantine.release(stale, ada)


def test_another_tenant_has_proposals_of_its_own() -> None:
    """In a thread of its own, since one scope is open here."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_proposed_elsewhere).result() == 1
    assert quarantine.pending() == []
    assert quarantine.quarantined() == []


def _proposed_elsewhere() -> int:
    try:
        with tenant_scope(Tenant.objects.create_tenant(slug="globex", name="Globex")):
            marked, flaky, schedule = CaseFactory(tags=["quarantine"]), CaseFactory(), make_schedule()
            for number in (1, 2, 3):
                night(number, schedule, marked, flaky)
            return len(quarantine.pending())
    finally:
        connections.close_all()
