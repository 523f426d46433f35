"""Agreement as it is read from what reviewers, rules and models said."""

import datetime as dt
from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality.models import Hint, QueueEntry, ReviewQueue, Suggestion, SuggestionRun, ToolCall, Turn
from quality.review import agreement_data as data
from quality.review.agreement_data import AnswerFilter, answers, apart, figures, item_key
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label, undo
from tenants.models import Membership, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import LATEST, FeedbackFactory, ToolCallFactory, TurnFactory

DAY = dt.timedelta(days=1)


@pytest.fixture
def people(member: Callable[..., Membership]) -> tuple[User, User, User]:
    return member().user, member().user, member().user


def label(call: ToolCall, **said: str) -> None:
    """`label(call, ada="other")`: the people of a test by position: ada, bob, cyd."""
    for user, word in said.items():
        record_label(item=item_of_call(call.pk), reviewer=User.objects.get(email=f"{user}@example.com"), label=word)


@pytest.fixture
def named(tenant: Tenant, member: Callable[..., Membership]) -> Tenant:
    """Ada, Bob and Cyd label in this tenant."""
    for name in ("ada", "bob", "cyd"):
        user = member().user
        User.objects.filter(pk=user.pk).update(email=f"{name}@example.com", name=name.title())
    return tenant


def queue(tenant: Tenant, **fields: object) -> ReviewQueue:
    by = User.objects.order_by("pk")[0]
    return ReviewQueue.objects.create(name=f"queue {ReviewQueue.objects.count()}", created_by=by, **fields)


def enter(into: ReviewQueue, call: ToolCall | None = None, *, turn: Turn | None = None, **fields: object) -> QueueEntry:
    on = {"turn": call.turn, "cycle": call.cycle, "call": call} if call else {"turn": turn, "cycle": 0}
    at = call.started_at if call else turn.started_at  # type: ignore[union-attr]
    return QueueEntry.objects.create(queue=into, **on, started_at=at, is_blind=into.is_blind, **fields)


def test_answers_are_current_labels_newest_first(named: Tenant) -> None:
    with tenant_scope(named):
        call, turn = ToolCallFactory(), TurnFactory()
        label(call, ada="other", bob="good_reply")
        label(call, ada="bad_args")
        ada = User.objects.get(name="Ada")
        record_label(item=item_of_turn(turn.pk), reviewer=ada, label="missing_tool")
        found = answers(AnswerFilter())
        assert [(row.item, row.label) for row in found.rows] == [
            (item_key(turn.pk, 0, None), "missing_tool"),
            (item_key(call.turn_id, 0, call.pk), "bad_args"),
            (item_key(call.turn_id, 0, call.pk), "good_reply"),
        ]
        undo(item=item_of_turn(turn.pk), reviewer=ada)
        assert len(answers(AnswerFilter()).rows) == 2, "what was taken back is no answer"
        capped = answers(AnswerFilter(), limit=1)
        assert [row.label for row in capped.rows] == ["bad_args"]
        assert capped.is_capped
        assert not found.is_capped


def test_answers_are_narrowed_by_time_tool_style_and_queue(named: Tenant) -> None:
    with tenant_scope(named):
        old = FeedbackFactory(created_at=LATEST - 40 * DAY, call__tool_name="get_time")
        new = FeedbackFactory(created_at=LATEST, call__turn__style_id="support")
        silent = FeedbackFactory(created_at=LATEST, call=None, turn=TurnFactory())
        mine = queue(named)
        enter(mine, new.call)
        enter(mine, turn=silent.turn)
        other = queue(named)

        def ids(**fields: object) -> set[int]:
            return {row.id for row in answers(AnswerFilter(**fields)).rows}  # type: ignore[arg-type]

        assert ids() == {old.pk, new.pk, silent.pk}
        assert ids(since=LATEST - DAY) == {new.pk, silent.pk}
        assert ids(until=LATEST) == {old.pk}
        assert ids(tools=("get_time",)) == {old.pk}
        assert ids(style="support") == {new.pk}
        assert ids(queue=mine.pk) == {new.pk, silent.pk}
        assert ids(queue=other.pk) == set()


def test_labels_of_items_that_wait_in_a_blind_queue_are_in_no_figure(named: Tenant) -> None:
    with tenant_scope(named):
        blind, seen = queue(named, is_blind=True), queue(named)
        call, turn, open_one = ToolCallFactory(), TurnFactory(), ToolCallFactory()
        label(call, ada="other", bob="bad_args")
        label(open_one, ada="other")
        record_label(item=item_of_turn(turn.pk), reviewer=User.objects.get(name="Ada"), label="missing_tool")
        waiting = [enter(blind, call), enter(blind, turn=turn)]
        enter(seen, open_one)
        found = answers(AnswerFilter())
        assert [row.item for row in found.rows] == [item_key(open_one.turn_id, 0, open_one.pk)]
        assert found.num_hidden == 3
        assert figures(AnswerFilter(queue=blind.pk)).people.num_labels == 0
        for entry in waiting:
            entry.state = QueueEntry.State.DONE
            entry.save()
        assert len(answers(AnswerFilter()).rows) == 4
        assert answers(AnswerFilter()).num_hidden == 0


def test_another_turn_of_a_blind_queue_hides_nothing(named: Tenant) -> None:
    with tenant_scope(named):
        call, other = ToolCallFactory(), TurnFactory()
        label(call, ada="other")
        enter(queue(named, is_blind=True), turn=call.turn)
        record_label(item=item_of_turn(other.pk), reviewer=User.objects.get(name="Ada"), label="other")
        assert answers(AnswerFilter()).num_hidden == 0


def test_two_reviewers_are_told_with_what_they_disagree_on(named: Tenant) -> None:
    with tenant_scope(named):
        calls = [ToolCallFactory() for _ in range(4)]
        label(calls[0], ada="good_reply", bob="good_reply")
        label(calls[1], ada="bad_args", bob="good_reply")
        label(calls[2], ada="wrong_tool", cyd="good_reply")
        label(calls[3], bob="other", ada="wrong_tool")
        found = figures(AnswerFilter())
        ids = {name: pk for pk, name in found.names.items()}
        assert set(ids) == {"Ada", "Bob", "Cyd"}
        pair = next(pair for pair in found.people.pairs if {pair.left, pair.right} == {ids["Ada"], ids["Bob"]})
        assert (pair.num_items, pair.num_apart) == (3, 2)
        differing = apart(found.answers, ids["Ada"], ids["Bob"])
        assert [(one.label, other.label) for one, other in differing] == [
            ("wrong_tool", "other"),
            ("bad_args", "good_reply"),
        ]
        assert [one.item for one, _ in differing] == [
            item_key(call.turn_id, 0, call.pk) for call in (calls[3], calls[1])
        ]


def test_two_people_of_one_name_are_told_apart(named: Tenant) -> None:
    User.objects.filter(name="Cyd").update(name="Bob")
    with tenant_scope(named):
        label(ToolCallFactory(), ada="other", bob="other", cyd="other")
        assert set(figures(AnswerFilter()).names.values()) == {
            "Ada",
            "Bob (bob@example.com)",
            "Bob (cyd@example.com)",
        }


def hint(call: ToolCall | None, rule: str, turn: Turn | None = None, path: str = "") -> None:
    Hint.objects.create(
        turn=call.turn if call else turn, call=call, rule=rule, path=path, sentence="…", started_at=LATEST
    )


def test_hints_are_held_against_what_most_people_say(named: Tenant) -> None:
    with tenant_scope(named):
        wrong, right, split, missed = (ToolCallFactory() for _ in range(4))
        silent = TurnFactory()
        label(wrong, ada="bad_args", bob="wrong_tool", cyd="good_reply")
        label(right, ada="good_reply")
        label(split, ada="good_reply", bob="bad_args")
        label(missed, ada="missing_tool")
        record_label(item=item_of_turn(silent.pk), reviewer=User.objects.get(name="Ada"), label="missing_tool")
        hint(wrong, "unknown_tool")
        hint(wrong, "unknown_tool", path="/city")
        hint(right, "unknown_tool")
        hint(split, "unknown_tool")
        hint(None, "call_in_prose", turn=silent)
        hint(ToolCallFactory(), "unknown_tool")
        hint(right, "a_rule_of_old")
        found = {figure.rule and figure.rule.name: figure.prediction for figure in figures(AnswerFilter()).hints}
    assert next(iter(found)) is None
    counts = {name: (each.hits, each.false_alarms, each.missed, each.neither) for name, each in found.items()}
    assert counts == {None: (2, 1, 1, 0), "unknown_tool": (1, 1, 2, 0), "call_in_prose": (1, 0, 2, 1)}


def suggest(run: SuggestionRun, call: ToolCall, label: str, state: str = "open") -> None:
    Suggestion.objects.create(
        run=run, turn=call.turn, cycle=call.cycle, call=call, model="expert", label=label, state=state
    )


def test_suggestions_are_held_against_what_most_people_say(named: Tenant) -> None:
    with tenant_scope(named):
        by = User.objects.order_by("pk")[0]
        run = SuggestionRun.objects.create(endpoint_label="expert", max_items=10, created_by=by)
        same, other, split = (ToolCallFactory() for _ in range(3))
        label(same, ada="bad_args")
        label(other, ada="good_reply")
        label(split, ada="good_reply", bob="other")
        suggest(run, same, "bad_args", "accepted")
        suggest(run, other, "bad_args", "overruled")
        suggest(run, split, "other", "accepted")
        suggest(run, ToolCallFactory(), "other", "accepted")
        (found,) = figures(AnswerFilter()).suggestions
    assert (found.model, found.accepted, found.overruled) == ("expert", 2, 1)
    assert found.table == {("bad_args", "bad_args"): 1, ("bad_args", "good_reply"): 1}
    assert found.raw.value == 0.5
    assert found.taken.value == pytest.approx(2 / 3)


def test_an_empty_tenant_has_figures_of_nothing(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        found = figures(AnswerFilter())
        assert data.judge_figures() == []
    assert (found.people.num_labels, found.people.pairs, found.hints, found.suggestions, found.names) == (
        0,
        (),
        (),
        (),
        {},
    )


def test_the_figures_take_as_many_queries_for_many_labels_as_for_two(named: Tenant) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as caught:
            figures(AnswerFilter(since=LATEST - 90 * DAY))
        return len(caught)

    with tenant_scope(named):
        label(ToolCallFactory(), ada="wrong_tool", bob="bad_args")
        first = queries()
        for _ in range(5):
            label(ToolCallFactory(), ada="other", bob="bad_args", cyd="good_reply")
        assert queries() == first
        assert first <= 4


def test_newest_labels_are_read_by_their_index(named: Tenant) -> None:
    with tenant_scope(named), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        rows = data._labels(AnswerFilter(since=LATEST)).annotate(is_hidden=data.waits_blind())
        plan = rows.order_by("-updated_at", "-pk")[:10].explain()
    assert "agent_tool_call_feedback_new" in plan
    assert "Seq Scan on agent_tool_calls" not in plan
