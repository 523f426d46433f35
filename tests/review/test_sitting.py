"""Undo and redo through the whole history of a sitting, read from the events alone."""

import datetime as dt

import pytest

from quality.models import Feedback, FeedbackEvent, Label
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import StaleLabel, record_label, undo
from quality.review.sitting import sitting_of
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory, TurnFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(member, tenant):
    with tenant_scope(tenant):
        yield member().user


def label(item, reviewer, word, **more):
    return record_label(item=item, reviewer=reviewer, label=word, **more)


def item_of(step):
    return item_of_call(step.call_id) if step.call_id else item_of_turn(step.turn_id, step.cycle)


def back(reviewer):
    """One step back, as the screen takes it; the label that was taken back."""
    sitting = sitting_of(reviewer)
    step = sitting.undo
    undo(item=item_of(step), reviewer=reviewer, step=step.version, seen_version=sitting.undo_seen)
    return step.label


def forth(reviewer):
    sitting = sitting_of(reviewer)
    step = sitting.redo
    outcome = undo(item=item_of(step), reviewer=reviewer, step=step.version, seen_version=sitting.redo_seen)
    return outcome.event.label


def current():
    return {(one.turn_id, one.call_id): one.label for one in Feedback.objects.all()}


def test_all_is_taken_back_step_by_step_and_given_again(ada):
    calls = [item_of_call(ToolCallFactory().pk) for _ in range(3)]
    turn = item_of_turn(TurnFactory().pk)
    states = [current()]
    for item, word in [
        (calls[0], Label.GOOD_REPLY),
        (calls[1], Label.BAD_ARGS),
        (calls[0], Label.WRONG_TOOL),  # another label in place of the first
        (turn, Label.MISSING_TOOL),
        (calls[0], Label.OTHER),
        (calls[2], Label.GOOD_REPLY),
    ]:
        label(item, ada, word)
        states.append(current())
    for state in reversed(states[:-1]):
        back(ada)
        assert current() == state
    assert sitting_of(ada).undo is None
    for state in states[1:]:
        forth(ada)
        assert current() == state
    assert sitting_of(ada).redo is None
    for state in reversed(states[:-1]):  # and once more, over events that are redone
        back(ada)
        assert current() == state
    assert FeedbackEvent.objects.count() == 6 * 4


def test_a_new_label_ends_what_could_be_redone(ada):
    first, second = (item_of_call(ToolCallFactory().pk) for _ in range(2))
    label(first, ada, Label.GOOD_REPLY)
    assert back(ada) == Label.GOOD_REPLY
    assert sitting_of(ada).redo is not None
    label(second, ada, Label.OTHER)
    sitting = sitting_of(ada)
    assert (sitting.redo, sitting.num_undo, sitting.undo.call_id) == (None, 1, second.call_id)


def test_what_another_reviewer_did_is_no_step_of_mine(ada, member):
    bob = member().user
    item = item_of_call(ToolCallFactory().pk)
    label(item, ada, Label.GOOD_REPLY)
    label(item, bob, Label.OTHER)
    back(ada)
    assert current() == {(item.turn_id, item.call_id): Label.OTHER}
    assert (sitting_of(ada).num_undo, sitting_of(bob).num_undo) == (0, 1)


def test_a_step_taken_back_elsewhere_leaves_the_others_in_their_order(ada):
    first, second = (item_of_call(ToolCallFactory().pk) for _ in range(2))
    label(first, ada, Label.GOOD_REPLY)
    label(second, ada, Label.OTHER)
    undo(item=first, reviewer=ada)  # by the API: not the newest one
    sitting = sitting_of(ada)
    assert (sitting.undo.call_id, sitting.redo.call_id) == (second.call_id, first.call_id)


def test_the_same_step_sent_twice_is_one(ada):
    item = item_of_call(ToolCallFactory().pk)
    label(item, ada, Label.GOOD_REPLY)
    label(item, ada, Label.OTHER)
    sitting = sitting_of(ada)
    for created in (True, False):
        outcome = undo(item=item, reviewer=ada, step=sitting.undo.version, seen_version=sitting.undo_seen)
        assert outcome.created is created
    assert current() == {(item.turn_id, item.call_id): Label.GOOD_REPLY}


def test_a_step_that_was_seen_otherwise_is_refused(ada):
    item = item_of_call(ToolCallFactory().pk)
    label(item, ada, Label.GOOD_REPLY)
    seen = sitting_of(ada)
    label(item, ada, Label.OTHER)
    with pytest.raises(StaleLabel):
        undo(item=item, reviewer=ada, step=seen.undo.version, seen_version=seen.undo_seen)


def test_what_is_older_than_a_day_is_history(ada):
    item = item_of_call(ToolCallFactory().pk)
    old = FeedbackEvent._meta.get_field("created_at").default() - dt.timedelta(hours=25)
    label(item, ada, Label.GOOD_REPLY, at=old)
    assert sitting_of(ada).undo is None
