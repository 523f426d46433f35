"""What people say of failing cases: one open dispute a case, settled by what became of its expectation."""

import json
import threading
from collections.abc import Iterator

import pytest
from django.core.exceptions import ValidationError
from django.db import connections

from quality.improve import cases
from quality.models import Case, Replay, ReplayCase, ReplayFinding
from quality.replay import findings
from quality.replay.findings import FindingConflict
from tenants.models import AuditEvent, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, UserFactory
from tests.replay.rows import make_replay, make_sample


@pytest.fixture
def scope(tenant: Tenant) -> Iterator[None]:
    with tenant_scope(tenant):
        yield


@pytest.fixture
def ada(db: None) -> User:
    return UserFactory(name="Ada")


@pytest.fixture
def bob(db: None) -> User:
    return UserFactory(name="Bob")


@pytest.fixture
def case(scope: None) -> Case:
    return CaseFactory()


@pytest.fixture
def replay(case: Case) -> Replay:
    return make_replay(case, counts=(1, 3))


def dispute(replay: Replay, by: User, note: str = "Zurich is spelled so, too.") -> ReplayFinding:
    return findings.dispute(replay, 1, sample_id=None, note=note, by=by)


def audited() -> list[tuple[str, dict]]:
    events = AuditEvent.objects.filter(object_type="finding").order_by("pk")
    return list(events.values_list("action", "detail"))


def code_of(error: pytest.ExceptionInfo[ValidationError]) -> dict[str, str | None]:
    return {name: faults[0].code for name, faults in error.value.error_dict.items()}


def test_a_dispute_waits_for_somebody_and_says_who_raised_it(replay, case, ada) -> None:
    sample = make_sample(replay, case)
    finding = findings.dispute(replay, 1, sample_id=sample.pk, note=" Both spellings are right. ", by=ada)
    (listed,) = findings.open_disputes()
    assert (listed.pk, listed.by, listed.note, listed.sample) == (finding.pk, ada, "Both spellings are right.", sample)
    assert findings.num_open() == 1
    assert [each.pk for each in findings.of_replay(replay, 1)] == [finding.pk]
    assert audited() == [("finding.disputed", {"case": "REG-1", "version": 1, "replay": replay.pk})]


def test_a_case_has_one_open_dispute_whichever_replay_it_comes_from(replay, case, ada, bob) -> None:
    first = dispute(replay, ada)
    other = make_replay(case, counts=(0, 3))
    with pytest.raises(FindingConflict, match="in dispute already, by Ada") as refused:
        dispute(other, bob)
    assert refused.value.finding == first
    with pytest.raises(FindingConflict):
        findings.confirm(other, 1, sample_id=None, by=bob)
    findings.settle(first, outcome="holds", by=bob)
    assert dispute(other, bob).is_open


def test_two_who_dispute_at_once_make_one(tenant, ada, bob) -> None:
    with tenant_scope(tenant):
        replay = make_replay(CaseFactory(), counts=(0, 3))
    together, told = threading.Barrier(2), list[str]()

    def run(by: User) -> None:
        with tenant_scope(tenant):
            found = Replay.objects.get(pk=replay.pk)
            together.wait(30)
            try:
                dispute(found, by)
            except FindingConflict as conflict:
                told.append(conflict.code)
        connections.close_all()

    threads = [threading.Thread(target=run, args=[user]) for user in (ada, bob)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == ["finding_conflict"]
    with tenant_scope(tenant):
        assert findings.num_open() == 1


def test_confirming_needs_a_failure_and_is_said_once(replay, case, ada) -> None:
    failing, passing = make_sample(replay, case), make_sample(replay, case, verdict="pass", index=1)
    with pytest.raises(ValidationError) as refused:
        findings.confirm(replay, 1, sample_id=passing.pk, by=ada)
    assert code_of(refused) == {"sample": "not_failing"}
    once = findings.confirm(replay, 1, sample_id=failing.pk, note="It books the wrong day.", by=ada)
    assert findings.confirm(replay, 1, sample_id=failing.pk, by=ada) == once
    assert not once.is_open
    assert findings.open_disputes() == []
    assert [action for action, _ in audited()] == ["finding.confirmed"]
    passed = make_replay(case, counts=(3, 3))
    with pytest.raises(ValidationError) as refused:
        findings.confirm(passed, 1, sample_id=None, by=ada)
    assert code_of(refused) == {"sample": "not_failing"}


def test_changed_needs_another_expectation_and_leads_to_its_version(replay, case, ada, bob) -> None:
    finding = dispute(replay, ada)
    cases.edit(1, by=bob, seen_version=1, behavior="Asks for the weather in Zurich.")
    with pytest.raises(ValidationError, match="as it was in version 1"):
        findings.settle(finding, outcome="changed", by=bob)
    wanted = json.loads(case.expectation)
    wanted["calls"]["steps"][0]["args"]["city"] = {"one_of": ["Zürich", "Zurich"]}
    cases.edit(1, by=bob, seen_version=2, expectation=json.dumps(wanted))
    settled = findings.settle(finding, outcome="changed", note="Both count.", by=bob)
    assert (settled.is_open, settled.settled_by, settled.outcome_note) == (False, bob, "Both count.")
    assert findings.with_changes(findings.settled_disputes()) == [(settled, 3)]
    with pytest.raises(FindingConflict, match="settled meanwhile: expectation changed"):
        findings.settle(finding, outcome="holds", by=ada)
    assert audited()[-1] == (
        "finding.settled",
        {"case": "REG-1", "version": 1, "replay": replay.pk, "outcome": "changed"},
    )


@pytest.mark.parametrize(
    ("note", "sample", "told"), [(" ", None, {"note": "required"}), ("Wrong.", -1, {"sample": "no_such_sample"})]
)
def test_a_dispute_that_says_nothing_is_refused(replay, ada, note, sample, told) -> None:
    with pytest.raises(ValidationError) as refused:
        findings.dispute(replay, 1, sample_id=sample, note=note, by=ada)
    assert code_of(refused) == told


def test_a_sample_of_another_case_is_none_of_this_one(replay, ada) -> None:
    both = make_replay(*Case.objects.all(), other := CaseFactory(), counts=(0, 3))
    theirs = make_sample(both, other)
    with pytest.raises(ValidationError) as refused:
        findings.confirm(both, 1, sample_id=theirs.pk, by=ada)
    assert code_of(refused) == {"sample": "no_such_sample"}


def test_another_tenant_sees_and_says_nothing_of_it(tenant, other_tenant, ada) -> None:
    with tenant_scope(tenant):
        replay = make_replay(CaseFactory(), counts=(0, 3))
        finding = dispute(replay, ada)
    with tenant_scope(other_tenant):
        CaseFactory()
        assert findings.open_disputes() == []
        with pytest.raises(ReplayCase.DoesNotExist):
            dispute(replay, ada)
        with pytest.raises(ReplayFinding.DoesNotExist):
            findings.settle(finding, outcome="holds", by=ada)
