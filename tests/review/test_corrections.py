"""Corrections: what each label takes, and what they are checked against."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from quality.improve import guidelines
from quality.models import Feedback, FeedbackEvent
from quality.review.items import Item, item_of_call, item_of_turn
from quality.review.labelling import last_event_of, record_label, undo
from tenants.models import Membership, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import TOOLS, ToolCallFactory, ToolsetFactory, TurnFactory

type Members = Callable[..., Membership]

WITH_TIME: list[dict[str, Any]] = [*TOOLS, {"type": "function", "function": {"name": "get_time", "parameters": {}}}]


@pytest.fixture
def ada(member: Members) -> User:
    return member(user__name="Ada").user


@pytest.fixture
def item(tenant: Tenant) -> Item:
    """The second of two calls of one reply; a third reply answers."""
    with tenant_scope(tenant):
        toolset = ToolsetFactory(tools=json.dumps(WITH_TIME))
        turn = TurnFactory(num_cycles=2, toolset=toolset)
        ToolCallFactory(turn=turn, toolset=toolset)
        return item_of_call(ToolCallFactory(turn=turn, toolset=toolset, args='{"city": "Gent", "unit": "C"}').pk)


def given(item: Item, reviewer: User, label: str, correction: Any = None, **more: Any) -> Feedback:
    text = correction if correction is None or isinstance(correction, str) else json.dumps(correction)
    record_label(item=item, reviewer=reviewer, label=label, correction=text, **more)
    return Feedback.objects.get(**item.key, reviewer=reviewer)


@pytest.mark.parametrize(
    ("label", "correction", "faults"),
    [
        ("wrong_tool", {"tool": "get_time"}, ["tool:get_time"]),
        ("wrong_tool", {"tool": "get_time", "offered": True}, ["tool:get_time"]),
        ("wrong_tool", {"tool": "teleport", "offered": False, "arguments": {"to": "Ghent"}}, ["tool:teleport"]),
        ("wrong_tool", None, ["tool:"]),
        ("bad_args", {"arguments": {"city": "Ghent", "unit": "celsius"}}, ["arg:/city", "arg:/unit"]),
        ("bad_args", None, ["arg:/unit"]),
        ("missing_tool", {"tool": "get_time", "position": {"cycle": 0, "index": 2}}, ["missing:get_time"]),
        ("missing_tool", {"tool": "get_weather", "arguments": {"city": "Ghent"}}, ["missing:get_weather"]),
        ("missing_tool", {"position": {"cycle": 1, "index": 0}}, ["missing:"]),
        ("good_reply", None, []),
        ("other", None, []),
    ],
)
def test_a_label_is_kept_with_its_correction_and_what_groups_are_read_from(
    tenant: Tenant, ada: User, item: Item, label: str, correction: Any, faults: list[str]
) -> None:
    with tenant_scope(tenant):
        feedback = given(item, ada, label, correction)
        assert feedback.faults == faults
        assert (feedback.tool_name, feedback.style_id) == ("get_weather", "friendly")
        assert feedback.correction == (None if correction is None else json.dumps(correction))


@pytest.mark.parametrize(
    ("label", "correction", "path", "code"),
    [
        ("good_reply", {"tool": "get_time"}, "correction.tool", "unknown_member"),
        ("other", {"arguments": {}}, "correction.arguments", "unknown_member"),
        ("bad_args", {"tool": "get_time"}, "correction.tool", "unknown_member"),
        ("wrong_tool", {"position": {"cycle": 0, "index": 0}}, "correction.position", "unknown_member"),
        ("wrong_tool", {"args": {}}, "correction.args", "unknown_member"),
        ("wrong_tool", {"tool": "teleport"}, "correction.tool", "not_offered"),
        ("wrong_tool", {"tool": "teleport", "offered": True}, "correction.tool", "not_offered"),
        ("wrong_tool", {"tool": "get_time", "offered": False}, "correction.offered", "was_offered"),
        ("wrong_tool", {"tool": "get_weather"}, "correction.tool", "same_tool"),
        ("wrong_tool", {"tool": ""}, "correction.tool", "not_a_name"),
        ("wrong_tool", {"tool": 5}, "correction.tool", "not_a_name"),
        ("wrong_tool", {"tool": "x" * 501, "offered": False}, "correction.tool", "too_long"),
        ("wrong_tool", {"tool": "x\x00", "offered": False}, "correction.tool", "unstorable"),
        ("wrong_tool", {"offered": False}, "correction.offered", "without_tool"),
        ("wrong_tool", {"tool": "x", "offered": "no"}, "correction.offered", "not_a_boolean"),
        ("wrong_tool", {"arguments": {}}, "correction.tool", "required"),
        ("bad_args", {"arguments": []}, "correction.arguments", "not_an_object"),
        ("bad_args", {"arguments": {}}, "correction.arguments.city", "unfit"),
        ("bad_args", {"arguments": {"city": 5}}, "correction.arguments.city", "unfit"),
        ("missing_tool", {"tool": "get_weather", "arguments": {}}, "correction.arguments.city", "unfit"),
        ("missing_tool", {"position": 1}, "correction.position", "not_an_object"),
        ("missing_tool", {"position": {"cycle": 0}}, "correction.position.index", "required"),
        ("missing_tool", {"position": {"cycle": 0, "index": True}}, "correction.position.index", "not_a_place"),
        ("missing_tool", {"position": {"cycle": -1, "index": 0}}, "correction.position.cycle", "not_a_place"),
        ("missing_tool", {"position": {"cycle": 2, "index": 0}}, "correction.position.cycle", "no_such_cycle"),
        ("missing_tool", {"position": {"cycle": 0, "index": 3}}, "correction.position.index", "no_such_place"),
        ("missing_tool", {"position": {"cycle": 0, "index": 0, "at": 1}}, "correction.position.at", "unknown_member"),
        ("bad_args", "[]", "correction", "not_an_object"),
        ("bad_args", "{", "correction", "malformed_json"),
        ("bad_args", '{"arguments":{"n":1e999}}', "correction", "number_out_of_range"),
        ("bad_args", '"\ud800"', "correction", "malformed_json"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(
    tenant: Tenant, ada: User, item: Item, label: str, correction: Any, path: str, code: str
) -> None:
    with tenant_scope(tenant):
        with pytest.raises(ValidationError) as refusal:
            given(item, ada, label, correction)
        assert [error.code for error in refusal.value.error_dict[path]] == [code]
        assert not FeedbackEvent.objects.exists()


def test_every_fault_is_told_at_once(tenant: Tenant, ada: User, item: Item) -> None:
    with tenant_scope(tenant), pytest.raises(ValidationError) as refusal:
        given(item, ada, "bad_args", {"arguments": {"unit": "kelvin"}, "why": 1})
    assert set(refusal.value.error_dict) == {
        "correction.why",
        "correction.arguments.city",
        "correction.arguments.unit",
    }


@pytest.mark.parametrize("correction", ["{}", '{"arguments":{"unit":"C","city":"Gent"}}'])
def test_a_correction_that_says_nothing_is_none(tenant: Tenant, ada: User, item: Item, correction: str) -> None:
    with tenant_scope(tenant):
        toolset = ToolsetFactory(tools="[]", num_tools=0)  # no schema to be against
        call = ToolCallFactory(toolset=toolset, args='{"city": "Gent", "unit": "C"}')
        assert given(item_of_call(call.pk), ada, "bad_args", correction).correction is None


def test_numbers_keep_their_spelling(tenant: Tenant, ada: User, item: Item) -> None:
    text = '{"arguments": {"city": "Ghent", "n": 1.50, "big": 123456789012345678901234567890}}'
    with tenant_scope(tenant):
        assert given(item, ada, "bad_args", text).correction == text
        assert FeedbackEvent.objects.get().correction == text


def test_what_was_not_recorded_is_not_checked(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        turn = TurnFactory(toolset=None)
        item = item_of_call(ToolCallFactory(turn=turn, toolset=None).pk)
        assert given(item, ada, "wrong_tool", {"tool": "anything"}).faults == ["tool:anything"]
        assert given(item, ada, "bad_args", {"arguments": {"city": 5}}).faults == ["arg:/city", "arg:/unit"]


def test_a_schema_that_is_none_is_not_checked_against(tenant: Tenant, ada: User) -> None:
    broken = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "string"}}}]
    with tenant_scope(tenant):
        call = ToolCallFactory(toolset=ToolsetFactory(tools=json.dumps(broken)))
        assert given(item_of_call(call.pk), ada, "bad_args", {"arguments": {"city": 5}}).faults == [
            "arg:/city",
            "arg:/unit",
        ]


def test_a_call_can_be_missing_in_a_turn_without_any(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        item = item_of_turn(TurnFactory(num_cycles=1).pk)
        said = {"tool": "get_weather", "position": {"cycle": 0, "index": 0}, "arguments": {"city": "Ghent"}}
        feedback = given(item, ada, "missing_tool", said)
        assert (feedback.tool_name, feedback.style_id, feedback.faults) == ("", "friendly", ["missing:get_weather"])


def test_undo_brings_back_faults_and_guidelines_of_then(tenant: Tenant, ada: User, item: Item) -> None:
    with tenant_scope(tenant):
        assert given(item, ada, "bad_args").guideline_version is None
        guidelines.write(text="# Be strict", by=ada)
        feedback = given(item, ada, "wrong_tool", {"tool": "get_time"})
        assert (feedback.faults, feedback.guideline_version) == (["tool:get_time"], 1)
        undo(item=item, reviewer=ada)
        feedback = Feedback.objects.get()
        assert (feedback.label, feedback.faults, feedback.guideline_version) == ("bad_args", ["arg:/unit"], None)
        versions = FeedbackEvent.objects.order_by("version").values_list("guideline_version", flat=True)
        assert list(versions) == [None, 1, None]


def test_labels_from_elsewhere_keep_their_time(tenant: Tenant, ada: User, item: Item) -> None:
    then = timezone.now() - dt.timedelta(days=9)
    with tenant_scope(tenant):
        feedback = given(item, ada, "good_reply", at=then)
        assert (feedback.created_at, feedback.updated_at) == (then, then)
        assert FeedbackEvent.objects.get().created_at == then
        assert last_event_of(ada) is None  # too old to be taken back by `u`


def test_a_corrected_label_is_another_step(tenant: Tenant, ada: User, item: Item) -> None:
    with tenant_scope(tenant):
        given(item, ada, "bad_args")
        given(item, ada, "bad_args", {"arguments": {"city": "Ghent"}})
        outcome = record_label(
            item=item, reviewer=ada, label="bad_args", correction='{"arguments": {"city": "Ghent"}}', seen_version=0
        )
        assert (outcome.created, FeedbackEvent.objects.count()) == (False, 2)
