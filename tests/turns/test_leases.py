"""Claims, fencing, fairness, and giving turns back (W2, W9, W10, W12, W16)."""

import asyncio
import threading
import uuid

import pytest
from django.db import connection, transaction

from quality import tasks
from quality.models import ToolCall, TurnEvent, TurnRun, TurnState
from quality.turns import leases
from quality.turns.claim import Claim
from quality.turns.journal import Entry, Journal, LeaseLost
from quality.turns.rows import FINISH
from tenants.scope import tenant_scope
from tests.turns.conftest import Lab, eventually


def expire(lab: Lab) -> None:
    """As if the workers had been gone for longer than a lease."""
    with tenant_scope(lab.tenant), connection.cursor() as cursor:
        cursor.execute("UPDATE agent_turn_runs SET lease_until = now() - interval '1 s' WHERE state = 'running'")


def write(claim: Claim, **end: str) -> None:
    async def go() -> None:
        journal = Journal()
        try:
            row = {"tenant_id": claim.tenant_id, "turn_id": claim.turn_id, "state": "done", "error": "", **end}
            await journal.write(Entry(claim, [(FINISH, row)], ['{"type": "assistant_end"}']))
        finally:
            journal.close()

    asyncio.run(go())


def test_a_turn_is_claimed_once(lab: Lab) -> None:
    lab.turn()
    (claim,) = leases.claim_turns(lab.tenant.pk, 10)
    assert claim.attempt == 1
    assert leases.claim_turns(lab.tenant.pk, 10) == []


def test_twenty_claims_at_once_give_one(lab: Lab) -> None:
    lab.turn()
    found: list[Claim] = []

    def claim() -> None:
        found.extend(leases.claim_turns(lab.tenant.pk, 10))
        connection.close()

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_a_lease_that_ran_out_is_anothers_and_the_first_can_write_no_more(lab: Lab) -> None:
    turn = lab.turn()
    (first,) = leases.claim_turns(lab.tenant.pk, 10)
    expire(lab)
    (second,) = leases.claim_turns(lab.tenant.pk, 10)
    assert (second.attempt, second.token == first.token) == (2, False)
    with pytest.raises(LeaseLost):
        write(first)
    with tenant_scope(lab.tenant):
        assert not TurnEvent.objects.filter(data__contains="assistant_end").exists()
    write(second)
    assert lab.run_of(turn).state == TurnState.DONE
    with pytest.raises(LeaseLost):  # what has ended takes no more, whoever asks
        write(second)


def test_one_turns_lost_lease_does_not_touch_the_others_of_its_batch(lab: Lab) -> None:
    turns = [lab.turn() for _ in range(3)]
    claims = leases.claim_turns(lab.tenant.pk, 10)
    stale = Claim(lab.tenant.pk, claims[1].turn_id, uuid.uuid4(), 1)

    async def go() -> list[object]:
        journal = Journal()
        entries = [Entry(claim, events=['{"type": "x"}']) for claim in (claims[0], stale, claims[2])]
        try:
            return await asyncio.gather(*(journal.write(entry) for entry in entries), return_exceptions=True)
        finally:
            journal.close()

    outcomes = asyncio.run(go())
    assert [type(outcome) for outcome in outcomes] == [type(None), LeaseLost, type(None)]
    assert [lab.run_of(turn).last_seq for turn in turns] == [2, 1, 2]  # the first tells of the claim


def test_renewing_tells_what_is_lost_and_what_is_called_off(lab: Lab) -> None:
    turns = [lab.turn() for _ in range(2)]
    kept, called_off = leases.claim_turns(lab.tenant.pk, 10)
    with tenant_scope(lab.tenant):
        TurnRun.objects.filter(turn=turns[1]).update(cancel_requested_at="2026-01-01T00:00Z")
    lost = uuid.uuid4()
    renewed = leases.renew(lab.tenant.pk, [kept.token, called_off.token, lost])
    assert renewed.kept == {kept.token, called_off.token}
    assert renewed.cancelled == {called_off.token}


def test_a_row_that_somebody_holds_keeps_no_other_claim_waiting(lab: Lab) -> None:
    """A reaper that hangs with a row in its hands stops nobody."""
    held = lab.turn()
    lab.turn()
    with tenant_scope(lab.tenant):
        TurnRun.objects.select_for_update().get(turn=held)
        found: list[Claim] = []

        def claim() -> None:
            found.extend(leases.claim_turns(lab.tenant.pk, 10))
            connection.close()

        thread = threading.Thread(target=claim)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
    assert [claim.turn_id == held.pk for claim in found] == [False]


def test_turns_of_one_conversation_run_one_after_the_other(lab: Lab) -> None:
    first = lab.turn(conversation_id="c-1")
    lab.turn(conversation_id="c-1")
    other = lab.turn(conversation_id="c-2")
    assert [claim.turn_id for claim in leases.claim_turns(lab.tenant.pk, 10)] == [first.pk, other.pk]
    assert leases.claim_turns(lab.tenant.pk, 10) == []


def test_a_tenant_gets_no_more_than_its_places(lab: Lab, settings) -> None:
    settings.TURN_TENANT_SLOTS = 2
    for _ in range(4):
        lab.turn()
    assert len(leases.claim_turns(lab.tenant.pk, 10)) == 2
    assert leases.claim_turns(lab.tenant.pk, 10) == []


def test_many_turns_of_one_tenant_do_not_keep_another_waiting(lab: Lab, other_tenant, settings, monkeypatch) -> None:
    settings.TURN_SLOTS = 4
    monkeypatch.setenv("TEST_MODEL_DELAY_S", "0.2")
    many = [lab.turn("plain_text", "") for _ in range(30)]
    late = lab.turn("plain_text", "", tenant=other_tenant)
    lab.worker()
    lab.rests(late)
    with tenant_scope(lab.tenant):
        assert TurnRun.objects.filter(state=TurnState.QUEUED).count() > len(many) / 2


def test_a_released_turn_has_lost_no_attempt(lab: Lab) -> None:
    turn = lab.turn()
    (claim,) = leases.claim_turns(lab.tenant.pk, 10)
    leases.release(claim)
    run = lab.run_of(turn)
    assert (run.state, run.turn.state, run.attempt, run.lease_token) == ("queued", "queued", 0, None)


def test_a_worker_that_stops_gives_its_turns_back_and_another_ends_them(lab: Lab) -> None:
    lab.tools.hold.clear()
    turn = lab.turn()
    first = lab.worker()
    eventually(lambda: lab.tools.count("/weather") == 1)
    first.stop(0.1)
    assert (lab.run_of(turn).state, lab.run_of(turn).attempt) == (TurnState.QUEUED, 0)
    lab.tools.hold.set()
    lab.worker()
    assert lab.rests(turn).state == TurnState.DONE


def test_two_workers_run_each_turn_once(lab: Lab) -> None:
    turns = [lab.turn(tools="unsafe") for _ in range(12)]
    workers = [lab.worker(), lab.worker()]
    for worker in workers * 5:
        worker.wake(lab.tenant.pk)
    assert {lab.rests(turn).state for turn in turns} == {TurnState.DONE}
    assert lab.tools.count() == 12
    assert set(lab.tools.counts_by_key().values()) == {1}
    with tenant_scope(lab.tenant):
        assert ToolCall.objects.count() == 12


def test_the_sweep_finds_turns_whose_hint_or_worker_was_lost_in_any_tenant(lab: Lab, other_tenant, settings) -> None:
    settings.TURN_SWEEP_S = 30
    lab.turn()
    assert leases.overdue(30) == []
    lost = lab.turn(tenant=other_tenant)
    leases.claim_turns(other_tenant.pk, 10)
    with tenant_scope(other_tenant), connection.cursor() as cursor:
        cursor.execute("UPDATE agent_turn_runs SET lease_until = now() - interval '1 s'")
    assert leases.overdue(30) == [(other_tenant.pk, lost.pk)]
    with tenant_scope(lab.tenant), connection.cursor() as cursor:
        cursor.execute("UPDATE agent_turn_runs SET queued_at = now() - interval '1 min'")
    assert len(leases.overdue(30)) == 2


def test_a_message_carries_ids_and_no_more(lab: Lab, hints: list) -> None:
    turn = lab.turn()
    assert hints == [(lab.tenant.pk, turn.pk)]


def test_nothing_is_published_of_a_turn_that_is_rolled_back(lab: Lab, hints: list) -> None:
    with tenant_scope(lab.tenant):
        lab.turn()
        assert hints == []
        transaction.set_rollback(True)
    assert hints == []


def test_a_broker_that_hangs_keeps_nobody_waiting(tenant, monkeypatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(tasks.run_turn, "delay", lambda *args: hangs.wait(20))
    began = threading.Event()
    thread = threading.Thread(target=lambda: (tasks.publish_aside(tasks.run_turn, 1, 2), began.set()))
    thread.start()
    assert began.wait(3)
    hangs.set()
    thread.join()
