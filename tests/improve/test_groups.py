"""Feedback in groups, against data grouped by hand."""

import datetime as dt
import json
from collections.abc import Iterator

import pytest

from quality.calls import BadCursor
from quality.improve import groups
from quality.improve.groups import GroupFilter, GroupKey, NoSuchGroup, feedback_of, find, get
from quality.models import ArtifactKind, Proposal, ProposalState
from tenants.models import Tenant
from tenants.scope import tenant_scope
from tests.factories import FeedbackFactory, ProposalFactory, ToolCallFactory, TurnFactory, UserFactory

NOON = dt.datetime(2026, 3, 10, 12, 0, tzinfo=dt.UTC)
CITY = GroupKey(label="bad_args", tool_name="get_weather", style_id="friendly", fault="arg:/city")


@pytest.fixture(autouse=True)
def scope(tenant: Tenant) -> Iterator[None]:
    with tenant_scope(tenant):
        yield


def say(at: dt.datetime = NOON, **fields):
    return FeedbackFactory(created_at=at, **fields)


def shown(page: groups.GroupPage) -> list[tuple[str, str, int, int]]:
    return [(group.key.fault, group.state, group.num_items, group.num_feedback) for group in page.groups]


def decide(proposal: Proposal, at: dt.datetime, state: str = ProposalState.APPLIED) -> Proposal:
    proposal.state, proposal.decided_at, proposal.decided_by = state, at, proposal.created_by
    proposal.resolution_kind = "other" if state == ProposalState.APPLIED else ""
    proposal.save()
    return proposal


def test_groups_are_told_apart_by_label_tool_style_and_fault() -> None:
    say()
    say()
    say(faults=["arg:/unit"])
    say(style_id="formal")
    say(tool_name="get_forecast")
    say(label="wrong_tool", faults=["tool:get_time"])
    say(label="missing_tool", call=None, faults=["missing:get_weather"])
    found = {
        (group.key.label, group.key.tool_name, group.key.style_id, group.key.fault): group.num_items
        for group in find(GroupFilter()).groups
    }
    assert found == {
        ("bad_args", "get_weather", "friendly", "arg:/city"): 2,
        ("bad_args", "get_weather", "friendly", "arg:/unit"): 1,
        ("bad_args", "get_weather", "formal", "arg:/city"): 1,
        ("bad_args", "get_forecast", "friendly", "arg:/city"): 1,
        ("wrong_tool", "get_weather", "friendly", "tool:get_time"): 1,
        ("missing_tool", "", "friendly", "missing:get_weather"): 1,
    }


def test_a_label_with_two_faults_is_in_two_groups_and_one_without_in_none() -> None:
    say(faults=["arg:/city", "arg:/unit"])
    say(faults=[])
    say(label="other")
    say(label="good_reply")
    assert sorted(shown(find(GroupFilter()))) == [("arg:/city", "untracked", 1, 1), ("arg:/unit", "untracked", 1, 1)]


def test_two_reviewers_of_one_call_are_one_item_and_both_are_named() -> None:
    call = ToolCallFactory()
    ada, bob = UserFactory(name="Ada"), UserFactory(name="Bob")
    say(call=call, reviewer=ada, correction='{"arguments": {"city": "Zurich"}}', note="a note")
    say(NOON + dt.timedelta(hours=1), call=call, reviewer=bob, faults=["arg:/city", "arg:/unit"])
    say(NOON - dt.timedelta(hours=1), reviewer=ada)
    group = get(CITY)
    assert (group.num_items, group.num_feedback) == (2, 3)
    assert (group.first_at, group.newest_at) == (NOON - dt.timedelta(hours=1), NOON + dt.timedelta(hours=1))
    first, second = group.examples
    assert first.call_id == call.pk
    assert [reviewer.name for reviewer in first.reviewers] == ["Ada", "Bob"]
    assert first.args_preview == '{"city": "Zürich", "unit":"celsius"}'
    assert [reviewer.name for reviewer in second.reviewers] == ["Ada"]
    assert [reviewer.name for reviewer in get(CITY_UNIT).examples[0].reviewers] == ["Bob"]


CITY_UNIT = GroupKey(label="bad_args", tool_name="get_weather", style_id="friendly", fault="arg:/unit")


def test_examples_are_the_newest_items_and_bounded() -> None:
    long = json.dumps({"arguments": {"city": "x" * 5_000}})
    for hour in range(5):
        say(
            NOON + dt.timedelta(hours=hour),
            call=ToolCallFactory(args=json.dumps({"city": "y" * 900})),
            correction=long,
            note="n" * 900,
        )
    examples = get(CITY).examples
    assert [example.at.hour for example in examples] == [16, 15, 14]
    assert {len(example.args_preview or "") for example in examples} == {groups.PREVIEW_CHARS}
    assert {len(example.correction or "") for example in examples} == {groups.CORRECTION_CHARS}
    assert {len(example.note_preview) for example in examples} == {groups.NOTE_CHARS}


def test_a_reply_without_a_call_is_an_example_too() -> None:
    turn = TurnFactory()
    say(label="missing_tool", call=None, turn=turn, faults=["missing:"])
    (group,) = find(GroupFilter()).groups
    (example,) = group.examples
    assert (example.turn_id, example.cycle, example.call_id, example.args_preview) == (turn.pk, 0, None, None)
    assert group.title == "A call was left out"


def test_what_was_said_up_to_a_decision_belongs_to_it_and_what_comes_later_is_open_again() -> None:
    old, same_instant = say(NOON - dt.timedelta(hours=1)), say(NOON)
    proposal = decide(ProposalFactory(), NOON)
    assert shown(find(GroupFilter())) == []
    (group,) = find(GroupFilter(states=("applied",))).groups
    assert (group.num_items, group.proposal_id, group.again_since) == (2, proposal.pk, None)
    assert {example.feedback_id for example in group.examples} == {old.pk, same_instant.pk}

    later = say(NOON + dt.timedelta(microseconds=1))
    (group,) = find(GroupFilter()).groups
    assert (group.state, group.num_items, group.proposal_id, group.again_since) == ("untracked", 1, None, proposal.pk)
    assert [example.feedback_id for example in group.examples] == [later.pk]
    assert find(GroupFilter(states=("applied",))).groups == []

    following = ProposalFactory(covers_since=NOON)
    (group,) = find(GroupFilter()).groups
    assert (group.state, group.proposal_id, group.again_since) == ("pending", following.pk, proposal.pk)
    assert list(feedback_of(following)) == [later]
    assert set(feedback_of(proposal)) == {old, same_instant}

    decide(following, NOON + dt.timedelta(hours=1), ProposalState.DISMISSED)
    (group,) = find(GroupFilter(states=groups.STATES)).groups
    assert (group.state, group.num_items, group.proposal_id) == ("dismissed", 1, following.pk)


def test_a_decision_on_one_group_leaves_the_others_open() -> None:
    say(faults=["arg:/city", "arg:/unit"])
    decide(ProposalFactory(), NOON + dt.timedelta(hours=1))
    assert shown(find(GroupFilter())) == [("arg:/unit", "untracked", 1, 1)]


def test_the_newest_day_comes_first_and_in_it_the_largest_group() -> None:
    yesterday = NOON - dt.timedelta(days=1)
    for number, fault, at in ((3, "arg:/a", yesterday), (1, "arg:/b", NOON), (2, "arg:/c", NOON)):
        for _ in range(number):
            say(at, faults=[fault])
    assert [group.key.fault for group in find(GroupFilter()).groups] == ["arg:/c", "arg:/b", "arg:/a"]
    assert [group.key.fault for group in find(GroupFilter(), order="largest").groups] == ["arg:/a", "arg:/c", "arg:/b"]


@pytest.mark.parametrize("order", ["newest", "largest"])
def test_pages_show_each_group_once(order: groups.Order) -> None:
    for number in range(7):
        say(NOON - dt.timedelta(days=number // 3), faults=[f"arg:/{number}"])
    say(NOON, faults=["arg:/3"])
    whole = [group.key.fault for group in find(GroupFilter(), order=order).groups]
    assert len(whole) == 7
    paged, cursor = [], None
    while True:
        page = find(GroupFilter(), order=order, page_size=2, cursor=cursor)
        paged += [group.key.fault for group in page.groups]
        if not (cursor := page.next):
            break
    assert paged == whole


@pytest.mark.parametrize("cursor", ["x", "bm8", "WzFd", "bnVsbA", "[", "é", "WyJ4IiwxLCJ4IiwiYSIsImIiLCJjIiwiZCJd"])
def test_a_cursor_of_somebody_elses_making_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        find(GroupFilter(), cursor=cursor)


def test_filters_narrow() -> None:
    say()
    say(label="wrong_tool", style_id="formal", faults=["tool:"])
    ProposalFactory()
    for wanted, number in (
        (GroupFilter(labels=("wrong_tool",)), 1),
        (GroupFilter(tool="get_weather"), 2),
        (GroupFilter(tool="other"), 0),
        (GroupFilter(style="formal"), 1),
        (GroupFilter(fault="arg:/city"), 1),
        (GroupFilter(states=("pending",)), 1),
        (GroupFilter(states=("untracked",)), 1),
        (GroupFilter(labels=("good_reply",)), 0),
    ):
        assert len(find(wanted).groups) == number, wanted


def test_a_page_takes_as_many_queries_for_one_group_as_for_many(django_assert_num_queries) -> None:
    say()
    with django_assert_num_queries(3):
        find(GroupFilter())
    for number in range(12):
        say(faults=[f"arg:/{number}"])
    with django_assert_num_queries(3):
        assert len(find(GroupFilter()).groups) == 13


@pytest.mark.parametrize(
    ("label", "fault", "correction", "kind"),
    [
        ("bad_args", "arg:/city", None, ArtifactKind.TOOL_SCHEMA_PATCH),
        ("wrong_tool", "tool:", None, ArtifactKind.PROMPT_PATCH),
        ("wrong_tool", "tool:get_time", {"tool": "get_time"}, ArtifactKind.TOOL_SCHEMA_PATCH),
        ("wrong_tool", "tool:get_time", {"tool": "get_time", "offered": False}, ArtifactKind.PROMPT_PATCH),
        ("missing_tool", "missing:get_time", {"tool": "get_time"}, ArtifactKind.PROMPT_PATCH),
    ],
)
def test_a_kind_of_fix_is_suggested(label: str, fault: str, correction: object, kind: ArtifactKind) -> None:
    say(label=label, faults=[fault], correction=correction and json.dumps(correction))
    (group,) = find(GroupFilter()).groups
    assert group.suggested_kind == kind


def test_what_nobody_says_is_no_group() -> None:
    with pytest.raises(NoSuchGroup):
        get(CITY)
    feedback = say()
    feedback.delete()
    with pytest.raises(NoSuchGroup):
        get(CITY)


def test_hostile_names_are_data() -> None:
    name = "'; DROP TABLE x; -- %s %(tenant)s \u202e{}"
    say(tool_name=name, style_id=name, faults=[f"arg:/{name}"])
    (group,) = find(GroupFilter(tool=name, style=name, fault=f"arg:/{name}")).groups
    assert get(group.key).num_items == 1
