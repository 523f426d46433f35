"""Bulk actions: looked at, confirmed, done to each item as a single one would be, gone on with, undone."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from quality import tasks
from quality.calls import CallFilter
from quality.models import (
    Assignment,
    BulkAction,
    BulkItem,
    BulkState,
    Feedback,
    FeedbackEvent,
    ItemTag,
    Label,
    QueueEntry,
    Review,
    ReviewQueue,
    ToolCall,
)
from quality.review import archive, tags
from quality.review.bulk import preview, run, scope
from quality.review.bulk.run import Decided, NotYours, Stale, Wanted
from quality.review.items import item_of_call
from quality.review.labelling import record_label, undo
from quality.review.queues import adding
from tenants.models import AuditEvent, Membership, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory

SAID = Wanted(label="bad_args", note="The city is misspelled.", reason="A typo in one release")


@pytest.fixture
def ada(member: Callable[..., Membership]) -> User:
    return member().user


@pytest.fixture
def inside(tenant: Tenant, ada: User) -> Iterator[None]:
    with tenant_scope(tenant):
        yield


def done(kind: str, by: User, wanted: Wanted, **which: Any) -> BulkAction:
    which = which or {"wanted": CallFilter()}
    action = preview.make(kind=kind, by=by, **which)
    return run.confirm(action.pk, by=by, wanted=wanted, seen_sha256=action.seen_sha256)


def told(action: BulkAction) -> dict[int | None, tuple[str, str]]:
    return {row.call_id: (row.state, row.code) for row in BulkItem.objects.filter(action=action)}


@pytest.mark.usefixtures("inside")
def test_each_label_is_one_as_a_single_key_press_would_give_it(ada: User) -> None:
    made = ToolCallFactory.create_batch(3)
    action = done("label", ada, SAID)
    assert (action.state, action.num_items, action.num_done) == (BulkState.DONE, 3, 3)
    for feedback in Feedback.objects.all():
        assert (feedback.label, feedback.reviewer_id, feedback.tool_name) == ("bad_args", ada.pk, "get_weather")
        assert feedback.faults == ["arg:"]
        assert feedback.note == f"The city is misspelled.\n\nBulk action {action.pk}: A typo in one release"
    assert FeedbackEvent.objects.filter(action="label").count() == 3
    assert AuditEvent.objects.filter(action="feedback.labelled").count() == 3
    assert set(Review.objects.values_list("label", "version", "num_labels")) == {("bad_args", 1, 1)}
    assert told(action) == {call.pk: ("done", "") for call in made}


def written(call: ToolCall) -> list[dict[str, Any]]:
    """All that stands of a call's labels, without what tells one call and one moment from another."""
    own = (
        "id",
        "turn_id",
        "call_id",
        "created_at",
        "updated_at",
        "started_at",
        "object_id",
        "at",
        "request_id",
        "nonce",
    )
    rows: list[dict[str, Any]] = []
    for model in (Feedback, FeedbackEvent, Review):
        rows += model.objects.filter(call=call).order_by("pk").values()
    rows += AuditEvent.objects.filter(object_type="tool_call", object_id=str(call.pk)).order_by("pk").values()
    return [{name: value for name, value in row.items() if name not in own} for row in rows]


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("label", list(Label))
def test_a_label_and_its_undo_are_written_as_by_a_key_press(
    ada: User, member: Callable[..., Membership], label: str
) -> None:
    """Set-wise is only faster: every column of every row is the same, whatever was there before."""
    said = Wanted(label=label, note="n", reason="r")

    def prepared() -> tuple[ToolCall, ToolCall, ToolCall]:
        plain, shared, again = (
            ToolCallFactory(args='{"unit": "kelvin"}', tool_name=name) for name in ("get_weather", "get_weather", "x")
        )
        record_label(item=item_of_call(shared.pk), reviewer=other, label="other")
        record_label(item=item_of_call(again.pk), reviewer=ada, label="other")
        undo(item=item_of_call(again.pk), reviewer=ada)
        return plain, shared, again

    other = member().user
    at_once, one_by_one = prepared(), prepared()
    action = done("label", ada, said, call_ids=[call.pk for call in at_once])
    note = f"n\n\nBulk action {action.pk}: r"
    for call in one_by_one:
        record_label(item=item_of_call(call.pk), reviewer=ada, label=label, note=note)
    for left, right in zip(at_once, one_by_one, strict=True):
        assert written(left) == written(right)
    run.undo(action, by=ada, may_any=False)
    for call in one_by_one:
        undo(item=item_of_call(call.pk), reviewer=ada)
    for left, right in zip(at_once, one_by_one, strict=True):
        assert written(left) == written(right)
    assert action.num_done == 3


@pytest.mark.usefixtures("inside")
def test_queues_and_suggestions_hear_of_each_label(ada: User) -> None:
    queued, alone = ToolCallFactory.create_batch(2)
    queue = ReviewQueue.objects.create(name="All", created_by=ada)
    adding.add_items(queue, [item_of_call(queued.pk)], actor=ada)
    action = done("label", ada, SAID)
    assert QueueEntry.objects.get(call=queued).state == "done"
    run.undo(action, by=ada, may_any=False)
    assert QueueEntry.objects.get(call=queued).state == "open"
    assert not QueueEntry.objects.filter(call=alone).exists()


@pytest.mark.usefixtures("inside")
def test_what_is_skipped_is_told_before_and_after(ada: User, member: Callable[..., Membership]) -> None:
    mine, theirs, pending, free = ToolCallFactory.create_batch(4)
    ToolCall.objects.filter(pk=pending.pk).update(state="pending")
    record_label(item=item_of_call(mine.pk), reviewer=ada, label="good_reply")
    record_label(item=item_of_call(theirs.pk), reviewer=member().user, label="good_reply")
    action = preview.make(kind="label", by=ada, wanted=CallFilter())
    seen = preview.of_action(action)
    assert {(skip.code, skip.number) for skip in seen.skips} == {("labelled", 1), ("unfinished", 1)}
    assert (seen.seen.count, seen.num_left) == (4, 2)
    assert [row.id for row in seen.sample] == [mine.pk, theirs.pk, pending.pk, free.pk]
    action = run.confirm(action.pk, by=ada, wanted=SAID, seen_sha256=seen.seen.sha256)
    assert told(action) == {
        mine.pk: ("skipped", "labelled"),
        theirs.pk: ("done", ""),
        pending.pk: ("skipped", "unfinished"),
        free.pk: ("done", ""),
    }
    assert (action.num_done, action.num_skipped, action.num_failed) == (2, 2, 0)
    assert Feedback.objects.get(call=mine).label == "good_reply"


@pytest.mark.usefixtures("inside")
def test_a_call_that_came_in_since_is_not_meant(ada: User) -> None:
    ToolCallFactory.create_batch(2)
    action = preview.make(kind="label", by=ada, wanted=CallFilter())
    late = ToolCallFactory(created_at=timezone.now())  # older by its own time than the two
    action = run.confirm(action.pk, by=ada, wanted=SAID, seen_sha256=action.seen_sha256)
    assert action.num_done == 2
    assert not Feedback.objects.filter(call=late).exists()


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("change", ["another", "relabelled"])
def test_a_preview_of_what_has_changed_is_refused_once(
    ada: User, member: Callable[..., Membership], change: str
) -> None:
    calls = ToolCallFactory.create_batch(3)
    wanted = CallFilter(labels=("none",)) if change == "another" else CallFilter()
    action = preview.make(kind="label", by=ada, wanted=wanted)
    record_label(item=item_of_call(calls[0].pk), reviewer=member().user, label="other")
    with pytest.raises(Stale) as stale:
        run.confirm(action.pk, by=ada, wanted=SAID, seen_sha256=action.seen_sha256)
    assert (stale.value.before, stale.value.now) == (3, 2 if change == "another" else 3)
    assert not Feedback.objects.filter(reviewer=ada).exists()
    action.refresh_from_db()
    assert run.confirm(action.pk, by=ada, wanted=SAID, seen_sha256=action.seen_sha256).num_done == stale.value.now


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize(
    ("kind", "wanted", "field"),
    [
        ("label", Wanted(label="bad_args"), "reason"),
        ("label", Wanted(label="splendid", reason="x"), "label"),
        ("tag", Wanted(), "tag"),
        ("tag", Wanted(tag="x" * 61), "tag"),
        ("enqueue", Wanted(), "queue"),
        ("archive", Wanted(reason="x" * 501), "reason"),
    ],
)
def test_what_is_not_said_is_asked_for(ada: User, kind: str, wanted: Wanted, field: str) -> None:
    ToolCallFactory()
    with pytest.raises(ValidationError) as refused:
        done(kind, ada, wanted)
    assert set(refused.value.error_dict) == {field}
    assert BulkAction.objects.get().state == BulkState.PREVIEW


@pytest.mark.usefixtures("inside")
def test_it_is_confirmed_once_and_by_who_looked_at_it(ada: User, member: Callable[..., Membership]) -> None:
    ToolCallFactory()
    action = preview.make(kind="archive", by=ada, wanted=CallFilter())
    with pytest.raises(NotYours):
        run.confirm(action.pk, by=member().user, wanted=Wanted(), seen_sha256=action.seen_sha256)
    run.confirm(action.pk, by=ada, wanted=Wanted(), seen_sha256=action.seen_sha256)
    with pytest.raises(Decided):
        run.confirm(action.pk, by=ada, wanted=Wanted(), seen_sha256=action.seen_sha256)


# --- undo -------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("inside")
def test_the_undo_of_labels_leaves_what_is_newer(ada: User, member: Callable[..., Membership]) -> None:
    plain, again, undone, others = ToolCallFactory.create_batch(4)
    action = done("label", ada, SAID)
    record_label(item=item_of_call(again.pk), reviewer=ada, label="other")
    undo(item=item_of_call(undone.pk), reviewer=ada)
    record_label(item=item_of_call(others.pk), reviewer=member().user, label="other")
    action = run.undo(action, by=ada, may_any=False)
    assert (action.state, action.num_undone, action.num_left) == (BulkState.UNDONE, 2, 2)
    assert told(action) == {
        plain.pk: ("undone", ""),
        again.pk: ("left", "newer"),
        undone.pk: ("left", "taken_back"),
        others.pk: ("undone", ""),
    }
    assert dict(Feedback.objects.filter(reviewer=ada).values_list("call_id", "label")) == {again.pk: "other"}
    assert Feedback.objects.get(call=others).reviewer != ada
    assert FeedbackEvent.objects.filter(action="undo").count() == 3
    with pytest.raises(Decided):
        run.undo(action, by=ada, may_any=False)


@pytest.mark.usefixtures("inside")
def test_labels_are_taken_back_by_who_gave_them_and_within_a_day(
    ada: User, member: Callable[..., Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    ToolCallFactory()
    action = done("label", ada, SAID)
    for may_any in (False, True):
        with pytest.raises(NotYours):
            run.undo(action, by=member().user, may_any=may_any)
    BulkAction.objects.update(confirmed_at=timezone.now() - dt.timedelta(hours=25))
    action.refresh_from_db()
    with pytest.raises(Decided):
        run.undo(action, by=ada, may_any=False)


@pytest.mark.usefixtures("inside")
def test_tags_are_put_on_once_and_taken_back_where_they_are_the_same(ada: User) -> None:
    had, free, retagged = ToolCallFactory.create_batch(3)
    tags.add([item_of_call(had.pk)], "refund", by=ada)
    action = done("tag", ada, Wanted(tag="  refund "))
    assert told(action) == {had.pk: ("skipped", "tagged"), free.pk: ("done", ""), retagged.pk: ("done", "")}
    tags.remove([item_of_call(retagged.pk)], "refund", by=ada)
    tags.add([item_of_call(retagged.pk)], "refund", by=ada)
    action = run.undo(action, by=ada, may_any=False)
    assert (action.num_undone, action.num_left) == (1, 1)
    assert set(ItemTag.objects.values_list("call_id", flat=True)) == {had.pk, retagged.pk}


@pytest.mark.usefixtures("inside")
def test_a_tag_comes_back_as_it_was(ada: User, member: Callable[..., Membership]) -> None:
    call = ToolCallFactory()
    other = member(Role.ADMIN).user
    tags.add([item_of_call(call.pk)], "refund", by=other)
    before = ItemTag.objects.values("tag", "by_id", "at", "started_at").get()
    action = done("untag", ada, Wanted(tag="refund"))
    assert not ItemTag.objects.exists()
    run.undo(action, by=other, may_any=True)  # an admin may take this back
    assert ItemTag.objects.values("tag", "by_id", "at", "started_at").get() == before


@pytest.mark.usefixtures("inside")
def test_the_archive_is_filled_emptied_and_restored(ada: User) -> None:
    away, here = ToolCallFactory.create_batch(2)
    archive.archive([item_of_call(away.pk)], by=ada)
    before = Review.objects.get(call=away).archived_at
    action = done("archive", ada, Wanted(), call_ids=[away.pk, here.pk])
    assert told(action) == {away.pk: ("skipped", "archived"), here.pk: ("done", "")}
    restored = done("restore", ada, Wanted(), call_ids=[away.pk, here.pk])
    assert restored.num_done == 2
    run.undo(restored, by=ada, may_any=False)
    assert Review.objects.get(call=away).archived_at == before
    run.undo(action, by=ada, may_any=False)
    assert set(Review.objects.filter(archived_at=None).values_list("call_id", flat=True)) == {here.pk}


@pytest.mark.usefixtures("inside")
def test_entries_of_a_queue_are_taken_out_again_unless_somebody_has_begun(ada: User) -> None:
    calls = ToolCallFactory.create_batch(3)
    queue = ReviewQueue.objects.create(name="Refunds", created_by=ada)
    action = done("enqueue", ada, Wanted(queue=queue))
    assert action.num_done == QueueEntry.objects.filter(queue=queue, state="open").count() == 3
    again = done("enqueue", ada, Wanted(queue=queue))
    assert (again.num_done, again.num_skipped) == (0, 3)
    begun = QueueEntry.objects.get(call=calls[0])
    Assignment.objects.create(entry=begun, queue=queue, reviewer=ada)
    action = run.undo(action, by=ada, may_any=False)
    assert (action.num_undone, action.num_left) == (2, 1)
    assert set(QueueEntry.objects.filter(state="open").values_list("call_id", flat=True)) == {calls[0].pk}


# --- by a worker ------------------------------------------------------------------------------------------------------
@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What would have been sent to workers."""
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(tasks, "publish", lambda task, *args: sent.append((task.name, *args)))
    return sent


def test_many_are_left_to_a_worker_and_a_lost_one_is_taken_over(
    tenant: Tenant, ada: User, published: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "AT_ONCE", 3)
    monkeypatch.setattr(run, "BATCH", 2)
    with tenant_scope(tenant):
        ToolCallFactory.create_batch(5)
        action = done("label", ada, SAID)
        assert action.state == BulkState.QUEUED
    assert published == [("quality.tasks.run_bulk_action", tenant.pk, action.pk)]

    real, steps = run._batch, []

    def dies(row: BulkAction) -> int:
        steps.append(row.pk)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return real(row)

    monkeypatch.setattr(run, "_batch", dies)
    with pytest.raises(KeyboardInterrupt):
        tasks.run_bulk_action(tenant.pk, action.pk)
    with tenant_scope(tenant):
        action.refresh_from_db()
        assert (action.state, action.num_done) == (BulkState.RUNNING, 2)
        assert run.run(action.pk, tenant=tenant) is False  # its lease holds
        assert not run.lost().exists()
        BulkAction.objects.update(lease_until=timezone.now() - dt.timedelta(seconds=1))
    assert list(run.lost().values_list("pk", flat=True)) == [action.pk]
    tasks.run_bulk_action(tenant.pk, action.pk)
    with tenant_scope(tenant):
        action.refresh_from_db()
        assert (action.state, action.num_done) == (BulkState.DONE, 5)
        assert FeedbackEvent.objects.count() == 5
        run.undo(action, by=ada, may_any=False)
    tasks.run_bulk_action(tenant.pk, action.pk)
    with tenant_scope(tenant):
        action.refresh_from_db()
        assert (action.state, action.num_undone) == (BulkState.UNDONE, 5)
        assert not Feedback.objects.exists()


def test_who_may_not_label_any_more_ends_it(
    tenant: Tenant, ada: User, published: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "AT_ONCE", 0)
    with tenant_scope(tenant):
        ToolCallFactory()
        action = done("label", ada, SAID)
        Membership.objects.filter(user=ada).update(role=Role.VIEWER)
    tasks.run_bulk_action(tenant.pk, action.pk)
    with tenant_scope(tenant):
        action.refresh_from_db()
        assert (action.state, action.num_done) == (BulkState.STOPPED, 0)
        assert "may not" in action.failure


def test_it_can_be_stopped_and_what_was_done_undone(
    tenant: Tenant, ada: User, published: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "AT_ONCE", 1)
    monkeypatch.setattr(run, "BATCH", 2)
    real = run._batch

    def stopped_meanwhile(row: BulkAction) -> int:
        number = real(row)
        run.stop(row, by=ada, may_any=False)
        return number

    with tenant_scope(tenant):
        ToolCallFactory.create_batch(5)
        action = done("label", ada, SAID)
    monkeypatch.setattr(run, "_batch", stopped_meanwhile)
    assert run.run(action.pk, tenant=tenant) is False
    monkeypatch.setattr(run, "_batch", real)
    with tenant_scope(tenant):
        action.refresh_from_db()
        assert (action.state, action.num_done) == (BulkState.STOPPED, 2)
        run.undo(action, by=ada, may_any=False)
    run.run(action.pk, tenant=tenant)
    with tenant_scope(tenant):
        action.refresh_from_db()
        assert (action.state, action.num_undone) == (BulkState.UNDONE, 2)


def test_previews_that_nobody_confirms_are_forgotten(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        ToolCallFactory()
        old = preview.make(kind="archive", by=ada, wanted=CallFilter())
        new = preview.make(kind="archive", by=ada, wanted=CallFilter())
        BulkAction.objects.filter(pk=old.pk).update(created_at=timezone.now() - dt.timedelta(hours=25))
    run.forget_previews()
    with tenant_scope(tenant):
        assert list(BulkAction.objects.values_list("pk", flat=True)) == [new.pk]


@pytest.mark.usefixtures("inside")
def test_more_than_one_action_takes_is_refused(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "MAX_ITEMS", 2)
    ToolCallFactory.create_batch(3)
    action = preview.make(kind="archive", by=ada, wanted=CallFilter())
    assert preview.of_action(action).seen.is_capped
    with pytest.raises(ValidationError, match="Narrow the filter"):
        run.confirm(action.pk, by=ada, wanted=Wanted(), seen_sha256=action.seen_sha256)


def test_calls_of_others_are_not_there(ada: User, tenant: Tenant, other_tenant: Tenant) -> None:
    with tenant_scope(other_tenant):
        theirs = ToolCallFactory()
    with tenant_scope(tenant):
        own = ToolCallFactory()
        assert preview.make(kind="archive", by=ada, call_ids=[own.pk, theirs.pk]).call_ids == [own.pk]
        with pytest.raises(ValidationError, match="None of these"):
            preview.make(kind="archive", by=ada, call_ids=[theirs.pk])
