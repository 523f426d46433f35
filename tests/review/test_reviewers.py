"""How reviewers work, read from their labels."""

import datetime as dt
import random
import statistics
import uuid
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from quality.calls import BadCursor
from quality.models import FeedbackEvent, QueueEntry, QueueReviewer, ReviewQueue, Suggestion, SuggestionRun, ToolCall
from quality.review import blind, reviewers
from quality.review.agreement_data import AnswerFilter, answers
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label, undo
from quality.review.reviewers import HIDDEN, crew, said_by
from tenants.models import Membership, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory, TurnFactory

NOW = timezone.now()
WEEK = dt.timedelta(days=7)


@pytest.fixture
def ada(member: Callable[..., Membership]) -> User:
    return member(Role.OPERATOR).user


@pytest.fixture
def bob(member: Callable[..., Membership]) -> User:
    return member(Role.OPERATOR).user


def say(by: User, label: str, *, ago: float = 60, call: ToolCall | None = None, by_hand: bool = True, note: str = ""):
    """A label given so many seconds ago, on a call of its own unless `call=` is given."""
    return record_label(
        item=item_of_call((call or ToolCallFactory()).pk),
        reviewer=by,
        label=label,
        note=note,
        nonce=uuid.uuid4() if by_hand else None,
        at=NOW - dt.timedelta(seconds=ago),
    )


def work_of(user: User, **asked):
    found = crew(NOW - WEEK, viewer=asked.pop("viewer", user), **asked)
    return next(work for work in found.works if work.user == user)


def test_pace_leaves_breaks_out(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        for ago in (1000, 990, 970, 964, 300, 290):  # a break of eleven minutes between
            say(ada, "other", ago=ago)
        pace = work_of(ada).pace
    assert pace.num_timed == 4
    assert pace.active.total_seconds() == pytest.approx(10 + 20 + 6 + 10)
    assert pace.median_s == pytest.approx(10)
    assert pace.per_hour == pytest.approx(3600 * 4 / 46)


def test_labels_that_were_not_given_on_the_screen_have_no_pace(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        say(ada, "other", ago=100)
        for _ in range(5):
            say(ada, "good_reply", ago=95, by_hand=False)
        say(ada, "other", ago=80)
        work = work_of(ada)
    assert work.labels == {"other": 2, "good_reply": 5}
    assert (work.pace.num_timed, work.pace.median_s) == (1, pytest.approx(20))


def test_nobody_is_fast_without_two_answers_in_a_row(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        say(ada, "other")
        pace = work_of(ada).pace
    assert (pace.per_hour, pace.median_s, pace.num_timed) == (None, None, 0)


def test_pace_is_that_of_plain_arithmetic(tenant: Tenant, ada: User, bob: User) -> None:
    """Gaps drawn at random, and undone labels among them, against the same done by hand."""
    draw = random.Random(5)
    with tenant_scope(tenant):
        ago, gaps = 50_000.0, []
        for user in (ada, bob):
            ago = 50_000.0
            for number in range(30):
                gap = draw.choice((1, 7.5, 40, 299, 300, 301, 4000))
                ago -= gap
                say(user, "other", ago=ago)
                if number and gap <= 300 and user == ada:
                    gaps.append(gap)
        pace = work_of(ada).pace
    assert pace.active.total_seconds() == pytest.approx(sum(gaps))
    assert pace.median_s == pytest.approx(statistics.median(gaps))


def test_undone_and_notes_and_the_period(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        say(ada, "other", note="odd")
        taken_back = ToolCallFactory()
        record_label(item=item_of_call(taken_back.pk), reviewer=ada, label="other")
        undo(item=item_of_call(taken_back.pk), reviewer=ada)
        say(ada, "bad_args")
        say(ada, "bad_args", ago=8 * 86_400)
        work = work_of(ada)
    assert work.labels == {"other": 1, "bad_args": 1}
    assert work.pace.num_undone == 1
    assert work.notes.value == 0.5


def test_agreement_is_with_most_of_the_others(tenant: Tenant, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        for mine, theirs in (("other", "other"), ("bad_args", "good_reply"), ("good_reply", "good_reply")):
            call = ToolCallFactory()
            say(ada, mine, call=call)
            say(bob, theirs, call=call)
        rest = work_of(ada).rest
    assert rest is not None
    assert rest.raw.value == pytest.approx(2 / 3)
    assert rest.kappa.n == 3


def test_suggestions_that_were_taken(tenant: Tenant, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        run = SuggestionRun.objects.create(endpoint_label="expert", max_items=10, created_by=bob)
        for state, by, at in (
            ("accepted", ada, NOW),
            ("overruled", ada, NOW),
            ("accepted", bob, NOW),
            ("open", None, None),
        ):
            call = ToolCallFactory()
            Suggestion.objects.create(
                run=run,
                turn=call.turn,
                cycle=0,
                call=call,
                model="m",
                label="other",
                state=state,
                decided_by=by,
                decided_at=at,
            )
        taken = work_of(ada).taken
    assert (taken.value, taken.n) == (0.5, 2)


def blind_entry(call: ToolCall, by: User) -> QueueEntry:
    queue = ReviewQueue.objects.create(name=f"queue {call.pk}", is_blind=True, labels_needed=2, created_by=by)
    return QueueEntry.objects.create(
        queue=queue, turn=call.turn, cycle=call.cycle, call=call, started_at=call.started_at, is_blind=True
    )


def test_what_waits_in_a_blind_queue_is_told_to_its_author_alone(tenant: Tenant, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory()
        say(ada, "bad_args", call=call)
        say(ada, "other")
        entry = blind_entry(call, ada)
        assert work_of(ada, viewer=ada).labels == {"bad_args": 1, "other": 1}
        assert work_of(ada, viewer=bob).labels == {HIDDEN: 1, "other": 1}
        assert [row.label for row in said_by(ada, viewer=ada).rows] == ["other", "bad_args"]
        assert [row.label for row in said_by(ada, viewer=bob).rows] == ["other", None]
        assert said_by(ada, viewer=bob, labels=("bad_args",)).rows == []
        assert [row.label for row in said_by(ada, viewer=ada, labels=("bad_args",)).rows] == ["bad_args"]
        entry.state = QueueEntry.State.DONE
        entry.save()
        assert work_of(ada, viewer=bob).labels == {"bad_args": 1, "other": 1}


@pytest.mark.parametrize("state", ["open", "paused", "closed"])
@pytest.mark.parametrize("named", [None, "ada", "viewer"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_is_hidden_is_what_the_rule_of_blind_queues_hides(
    tenant: Tenant, member, ada: User, state: str, named: str | None, is_deleted: bool
) -> None:
    viewer = member(Role.ADMIN).user
    with tenant_scope(tenant):
        call, turn = ToolCallFactory(), TurnFactory()
        say(ada, "bad_args", call=call)
        record_label(item=item_of_turn(turn.pk), reviewer=ada, label="missing_tool")
        queue = blind_entry(call, ada).queue
        QueueEntry.objects.create(queue=queue, turn=turn, cycle=0, started_at=turn.started_at, is_blind=True)
        queue.state, queue.for_everyone = state, named is None
        queue.deleted_at = NOW if is_deleted else None
        queue.save()
        if named:
            QueueReviewer.objects.create(queue=queue, reviewer={"ada": ada, "viewer": viewer}[named])
        hidden = blind.hidden_from(viewer, [item_of_call(call.pk), item_of_turn(turn.pk)])
        rows = said_by(ada, viewer=viewer).rows
        assert [row.label is None for row in rows] == [bool(hidden)] * 2
        assert len(hidden) in (0, 2)
        assert work_of(ada, viewer=viewer).labels.get(HIDDEN, 0) == len(hidden)
        is_waiting = state != "closed" and not is_deleted
        assert answers(AnswerFilter()).num_hidden == (2 if is_waiting else 0), "of figures for everybody"


def test_everybody_who_may_label_is_there_and_who_did(tenant: Tenant, member, ada: User, bob: User) -> None:
    viewer, gone = member(Role.VIEWER).user, member(Role.OPERATOR)
    with tenant_scope(tenant):
        say(gone.user, "other")
        Membership.objects.filter(pk=gone.pk).delete()
        found = crew(NOW - WEEK, viewer=ada)
        assert [work.user for work in found.works[:1]] == [gone.user]
        assert {work.user for work in found.works} == {ada, bob, gone.user}
        assert viewer not in {work.user for work in found.works}
        assert [work.user for work in crew(NOW - WEEK, viewer=ada, only=ada).works] == [ada]


def test_work_is_paged_newest_first(tenant: Tenant, ada: User, bob: User) -> None:
    with tenant_scope(tenant):
        calls = [ToolCallFactory() for _ in range(5)]
        for call in calls:
            say(ada, "other", call=call)
            say(bob, "good_reply", call=call)
        say(ada, "bad_args", call=calls[2], note="city")
        silent = TurnFactory()
        record_label(item=item_of_turn(silent.pk), reviewer=ada, label="missing_tool")
        seen, cursor, pages = [], "", 0
        while cursor is not None:
            page = said_by(ada, viewer=ada, cursor=cursor, page_size=2)
            seen += [(row.item.call_id or -row.item.turn_id, row.label) for row in page.rows]
            cursor, pages = page.next, pages + 1
        assert seen == [
            (-silent.pk, "missing_tool"),
            (calls[2].pk, "bad_args"),
            *[(call.pk, "other") for call in (calls[4], calls[3], calls[1], calls[0])],
        ]
        assert pages == 3
        assert said_by(ada, viewer=ada, labels=("bad_args",)).rows[0].note == "city"
        with pytest.raises(BadCursor):
            said_by(ada, viewer=ada, cursor="nonsense")


def test_an_undone_label_shows_what_holds_again(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        call = ToolCallFactory()
        item = item_of_call(call.pk)
        record_label(item=item, reviewer=ada, label="other")
        record_label(item=item, reviewer=ada, label="bad_args")
        undo(item=item, reviewer=ada)
        assert [row.label for row in said_by(ada, viewer=ada).rows] == ["other"]
        assert FeedbackEvent.objects.count() == 3


def test_queries_do_not_grow_with_reviewers_and_labels(tenant: Tenant, member, ada: User) -> None:
    def queries(what) -> int:
        with CaptureQueriesContext(connection) as caught:
            what()
        return len(caught)

    with tenant_scope(tenant):
        say(ada, "other")
        first = queries(lambda: crew(NOW - WEEK, viewer=ada)), queries(lambda: said_by(ada, viewer=ada))
        for _ in range(4):
            user = member(Role.OPERATOR).user
            for _ in range(3):
                say(user, "other")
                say(ada, "other")
        assert (queries(lambda: crew(NOW - WEEK, viewer=ada)), queries(lambda: said_by(ada, viewer=ada))) == first
        assert first <= (6, 2)


def test_another_tenants_work_is_nobodys(tenant: Tenant, other_tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        say(ada, "other")
    with tenant_scope(other_tenant):
        assert crew(NOW - WEEK, viewer=ada).works == ()
        assert said_by(ada, viewer=ada).rows == []


def test_events_of_a_reviewer_are_read_by_their_index(tenant: Tenant, ada: User, bob: User) -> None:
    with tenant_scope(tenant), connection.cursor() as cursor:
        call = ToolCallFactory()  # of an empty table every index costs the same
        rows = (
            FeedbackEvent(
                turn=call.turn, cycle=0, call=call, reviewer=bob, action="label", label="other", version=number
            )
            for number in range(1, 1_001)
        )
        FeedbackEvent.objects.bulk_create(rows)
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        plan = reviewers._standing(ada).order_by("-pk")[:10].explain()
    assert "agent_tool_call_events_mine" in plan
