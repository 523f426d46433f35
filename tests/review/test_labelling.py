"""Labels: one per reviewer and item, with a history that loses nothing."""

import datetime as dt
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone

from quality.models import Feedback, FeedbackEvent, Review, ToolCall
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn
from quality.review.labelling import (
    NothingToUndo,
    Outcome,
    StaleLabel,
    current_labels,
    history,
    last_event_of,
    record_label,
    undo,
    version_of,
)
from tenants.models import AuditEvent, Membership, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory, TurnFactory

type Members = Callable[..., Membership]

GENT = '{"arguments":{"city":"Gent"}}'


@pytest.fixture
def call(tenant: Tenant) -> ToolCall:
    with tenant_scope(tenant):
        return ToolCallFactory()


@pytest.fixture
def item(tenant: Tenant, call: ToolCall) -> Item:
    with tenant_scope(tenant):
        return item_of_call(call.pk)


@pytest.fixture
def ada(member: Members) -> User:
    return member(user__name="Ada").user


@pytest.fixture
def bob(member: Members) -> User:
    return member(user__name="Bob").user


def labels_of(item: Item) -> dict[str, str]:
    return {str(feedback.reviewer): feedback.label for feedback in current_labels(item)}


def in_parallel(tenant: Tenant, *writes: Callable[[], Outcome]) -> list[Outcome | Exception]:
    """Each write in a thread and transaction of its own, all let go at once."""
    gate = threading.Barrier(len(writes))

    def run(write: Callable[[], Outcome]) -> Outcome | Exception:
        gate.wait(10)
        try:
            with tenant_scope(tenant):
                return write()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(writes)) as pool:
        return list(pool.map(run, writes))


def test_a_label_is_stored_with_its_event_state_and_audit_row(tenant: Tenant, item: Item, ada: User) -> None:
    with tenant_scope(tenant):
        outcome = record_label(
            item=item,
            reviewer=ada,
            label="bad_args",
            note=" wrong unit ",
            correction='{"arguments": {"city": "Ghent", "n": 1.50}}',
        )
        assert (outcome.created, outcome.event.version) == (True, 1)
        feedback = Feedback.objects.get()
        assert (feedback.label, feedback.note, feedback.correction) == (
            "bad_args",
            "wrong unit",
            '{"arguments": {"city": "Ghent", "n": 1.50}}',
        )
        review = Review.objects.get()
        assert (review.version, review.label, review.num_labels) == (1, "bad_args", 1)
        assert (review.tool_name, review.started_at) == ("get_weather", item.started_at)
        audit = AuditEvent.objects.get(action="feedback.labelled")
        assert (audit.actor, audit.object_type, audit.object_id) == (ada, "tool_call", str(item.call_id))
        assert audit.detail == {"from": None, "to": "bad_args", "cycle": 0, "version": 1}


def test_an_unknown_label_is_refused_with_the_known_ones(tenant: Tenant, item: Item, ada: User) -> None:
    with tenant_scope(tenant), pytest.raises(ValidationError) as refusal:
        record_label(item=item, reviewer=ada, label="great")
    (message,) = refusal.value.message_dict["label"]
    assert "'great'" in message
    assert "good_reply, wrong_tool, missing_tool, bad_args, other" in message
    with tenant_scope(tenant):
        assert not FeedbackEvent.objects.exists()
        assert not Review.objects.exists()


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({"note": "x" * 10_001}, "note", "too_long"),
        ({"note": "a\x00b"}, "note", "unstorable"),
        ({"note": "a\ud800b"}, "note", "unstorable"),
        ({"correction": "{'a': 1}"}, "correction", "malformed_json"),
        ({"correction": "[1]"}, "correction", "not_an_object"),
        ({"correction": '{"a":1,"a":2}'}, "correction", "duplicate_key"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    tenant: Tenant, item: Item, ada: User, fields: dict[str, str], field: str, code: str
) -> None:
    with tenant_scope(tenant), pytest.raises(ValidationError) as refusal:
        record_label(item=item, reviewer=ada, label="other", **fields)
    assert [error.code for error in refusal.value.error_dict[field]] == [code]


def test_a_reviewer_changes_his_label_and_the_history_keeps_both(tenant: Tenant, item: Item, ada: User) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="good_reply", seen_version=0)
        record_label(item=item, reviewer=ada, label="bad_args", seen_version=1)
        assert labels_of(item) == {"Ada": "bad_args"}
        assert [event.label for event in history(item)] == ["good_reply", "bad_args"]


def test_a_stale_label_is_refused_with_both_values(tenant: Tenant, item: Item, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="good_reply", seen_version=0)
    with tenant_scope(tenant), pytest.raises(StaleLabel) as conflict:
        record_label(item=item, reviewer=bob, label="wrong_tool", note="mine", seen_version=0)
    assert conflict.value.version == 1
    assert [(str(feedback.reviewer), feedback.label) for feedback in conflict.value.current] == [("Ada", "good_reply")]
    assert conflict.value.sent
    assert (conflict.value.sent.label, conflict.value.sent.note) == ("wrong_tool", "mine")
    with tenant_scope(tenant):
        record_label(item=item, reviewer=bob, label="wrong_tool", note="mine", seen_version=1)
        assert labels_of(item) == {"Ada": "good_reply", "Bob": "wrong_tool"}
        review = Review.objects.get()
        assert (review.label, review.num_labels, review.version) == ("wrong_tool", 2, 2)


def test_the_same_form_sent_twice_is_one_label(tenant: Tenant, item: Item, ada: User) -> None:
    nonce = uuid.uuid4()
    with tenant_scope(tenant):
        first = record_label(item=item, reviewer=ada, label="other", seen_version=0, nonce=nonce)
        undo(item=item, reviewer=ada, seen_version=1)
        again = record_label(item=item, reviewer=ada, label="other", seen_version=0, nonce=nonce)
        assert (again.created, again.event) == (False, first.event)
        assert labels_of(item) == {}


def test_a_nonce_belongs_to_one_item(tenant: Tenant, item: Item, ada: User) -> None:
    nonce = uuid.uuid4()
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="other", nonce=nonce)
        other = item_of_call(ToolCallFactory().pk)
        with pytest.raises(ValidationError, match="another item"):
            record_label(item=other, reviewer=ada, label="other", nonce=nonce)
        assert labels_of(other) == {}


@pytest.mark.parametrize("nonce", [None, uuid.uuid4()])
@pytest.mark.parametrize("seen_version", [None, 0])
def test_ten_parallel_identical_writes_are_one_label(
    tenant: Tenant, item: Item, ada: User, nonce: uuid.UUID | None, seen_version: int | None
) -> None:
    def write() -> Outcome:
        return record_label(item=item, reviewer=ada, label="wrong_tool", seen_version=seen_version, nonce=nonce)

    outcomes = in_parallel(tenant, *[write] * 10)
    assert all(isinstance(outcome, Outcome) for outcome in outcomes), outcomes
    assert sum(outcome.created for outcome in outcomes) == 1
    assert len({outcome.event.pk for outcome in outcomes}) == 1
    with tenant_scope(tenant):
        assert Feedback.objects.count() == FeedbackEvent.objects.count() == Review.objects.count() == 1
        assert AuditEvent.objects.filter(action="feedback.labelled").count() == 1


def test_of_parallel_different_labels_one_wins_and_the_other_is_told(
    tenant: Tenant, item: Item, ada: User, bob: User
) -> None:
    outcomes = in_parallel(
        tenant,
        lambda: record_label(item=item, reviewer=ada, label="good_reply", seen_version=0),
        lambda: record_label(item=item, reviewer=bob, label="bad_args", seen_version=0),
    )
    (won,) = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    (lost,) = [outcome for outcome in outcomes if isinstance(outcome, StaleLabel)]
    assert [feedback.label for feedback in lost.current] == [won.event.label]
    assert lost.sent
    assert lost.sent.label != won.event.label
    with tenant_scope(tenant):
        assert [event.version for event in history(item)] == [1]


def test_parallel_writes_without_a_version_lose_nothing(tenant: Tenant, item: Item, ada: User, bob: User) -> None:
    in_parallel(
        tenant,
        lambda: record_label(item=item, reviewer=ada, label="good_reply"),
        lambda: record_label(item=item, reviewer=bob, label="bad_args"),
    )
    with tenant_scope(tenant):
        assert labels_of(item) == {"Ada": "good_reply", "Bob": "bad_args"}
        assert [event.version for event in history(item)] == [1, 2]


def test_label_undo_redo_is_three_events(tenant: Tenant, item: Item, ada: User) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="bad_args", note="why", correction=GENT, seen_version=0)
        undone = undo(item=item, reviewer=ada, seen_version=1)
        assert (undone.event.action, undone.event.undoes, undone.event.label) == ("undo", 1, None)
        assert labels_of(item) == {}
        review = Review.objects.get()
        assert (review.label, review.num_labels, review.version) == (None, 0, 2)
        redone = undo(item=item, reviewer=ada, seen_version=2)
        assert (redone.event.undoes, redone.event.label) == (2, "bad_args")
        (feedback,) = current_labels(item)
        assert (feedback.label, feedback.note, feedback.correction) == ("bad_args", "why", GENT)
        assert [event.action for event in history(item)] == ["label", "undo", "undo"]
        assert AuditEvent.objects.filter(action__startswith="feedback.").count() == 3


def test_undo_restores_the_label_before(tenant: Tenant, item: Item, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="good_reply")
        record_label(item=item, reviewer=ada, label="bad_args")
        record_label(item=item, reviewer=bob, label="other")
        undo(item=item, reviewer=ada, seen_version=2)
        assert labels_of(item) == {"Ada": "good_reply", "Bob": "other"}


def test_an_undo_sent_twice_is_one_undo(tenant: Tenant, item: Item, ada: User) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="good_reply")
    for seen_version in (1, None):
        outcomes = in_parallel(
            tenant, *[lambda seen=seen_version: undo(item=item, reviewer=ada, seen_version=seen)] * 4
        )
        assert all(isinstance(outcome, Outcome) for outcome in outcomes), outcomes
        with tenant_scope(tenant):
            assert version_of(item) == 2
            assert labels_of(item) == {}


def test_an_undo_of_what_was_changed_meanwhile_is_stale(tenant: Tenant, item: Item, ada: User) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="good_reply")
        record_label(item=item, reviewer=ada, label="other")
        with pytest.raises(StaleLabel) as conflict:
            undo(item=item, reviewer=ada, seen_version=1)
        assert [feedback.label for feedback in conflict.value.current] == ["other"]
        assert labels_of(item) == {"Ada": "other"}


def test_a_reviewer_takes_back_only_his_own(tenant: Tenant, item: Item, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="good_reply")
        with pytest.raises(NothingToUndo):
            undo(item=item, reviewer=bob)
        assert labels_of(item) == {"Ada": "good_reply"}


def test_what_is_older_than_a_day_is_not_taken_back(
    tenant: Tenant, item: Item, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tenant_scope(tenant):
        record_label(item=item, reviewer=ada, label="good_reply")
        assert last_event_of(ada)
    tomorrow = timezone.now() + dt.timedelta(hours=25)
    monkeypatch.setattr(timezone, "now", lambda: tomorrow)
    with tenant_scope(tenant):
        assert last_event_of(ada) is None
        with pytest.raises(NothingToUndo, match="24 hours"):
            undo(item=item, reviewer=ada)


def test_u_walks_back_through_the_reviewers_own_labels(tenant: Tenant, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        turn = TurnFactory()
        items = [item_of_call(ToolCallFactory().pk), item_of_turn(turn.pk), item_of_call(ToolCallFactory().pk)]
        for one in items:
            record_label(item=one, reviewer=ada, label="other")
        record_label(item=items[0], reviewer=bob, label="other")
        for one in reversed(items):
            event = last_event_of(ada)
            assert event
            assert (event.turn_id, event.call_id) == (one.turn_id, one.call_id)
            undo(item=one, reviewer=ada, seen_version=event.version)
        assert last_event_of(ada) is None
        assert last_event_of(bob)


def test_a_turn_without_call_is_labelled_on_its_last_cycle(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        turn = TurnFactory(num_cycles=2)
        item = item_of_turn(turn.pk)
        record_label(item=item, reviewer=ada, label="missing_tool")
        feedback = Feedback.objects.get()
        assert (feedback.turn_id, feedback.cycle, feedback.call_id) == (turn.pk, 1, None)
        assert AuditEvent.objects.get(action="feedback.labelled").object_type == "turn"
        with pytest.raises(NoSuchItem, match="no cycle 2"):
            item_of_turn(turn.pk, 2)


def test_items_of_another_tenant_do_not_exist(other_tenant: Tenant, call: ToolCall) -> None:
    with tenant_scope(other_tenant):
        with pytest.raises(NoSuchItem):
            item_of_call(call.pk)
        with pytest.raises(NoSuchItem):
            item_of_turn(call.turn_id)
