"""Calls like one: kinds of errors, shapes of arguments, what is found and in which order."""

import json
from collections.abc import Callable

import pytest

from quality.calls import Cursor
from quality.models import Hint, ToolCall
from quality.review import similar
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.review.similar import error_class, likeness, traits_of
from tenants.models import Membership, Tenant
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Order 4711 not found", "Order 12 not found"),
        ('No city named "Zurich"', 'No city named "Bern, CH"'),
        ("no user 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "no user 9b2504e0-4f89-11d3-9a0c-0305e82c33ff"),
        ("Timeout after 15.0 s", "timeout  after 3 s"),
        ("id ord_9f8a7b6c is gone", "id ord_1a2b3c4d is gone"),
        ("limit 1,000 reached", "limit 20 reached"),
    ],
)
def test_numbers_ids_and_quoted_strings_make_no_other_error(one: str, other: str) -> None:
    assert error_class(one) == error_class(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("not found", "not allowed"),
        ("Timeout after 3 s", "Refused after 3 s"),
        ("", "x"),
        ("city missing", "unit missing"),
    ],
)
def test_other_words_are_another_error(one: str, other: str) -> None:
    assert error_class(one) != error_class(other)


def traits(args: object, error: str = "", faults: tuple[str, ...] = ()) -> similar.Traits:
    return traits_of(args if isinstance(args, str) else json.dumps(args), error, faults)


def test_arguments_are_alike_by_shape_then_by_their_values() -> None:
    mine = traits({"city": "Bern", "days": [1, 2], "unit": "c"})
    assert (likeness(mine, traits({"city": "Bern", "days": [1, 2], "unit": "f"})).equal) == 3
    same = likeness(mine, traits({"unit": "f", "city": "Bern", "days": [1, 2, 3]}))
    assert (same.same_shape, same.equal, same.whole, same.by) == (True, 3, 5, ("args",))
    assert not likeness(mine, traits({"city": "Bern", "days": ["1", "2"], "unit": "c"})).same_shape
    assert not likeness(mine, traits({"city": "Bern", "days": [1]})).same_shape
    assert likeness(mine, traits({"city": "Rome", "days": [7, 8], "unit": "f"})).by == ()


@pytest.mark.parametrize("args", ["not json", "[1]", '"x"', "[" * 5000, '{"a": ' + "9" * 30_000 + "}", ""])
def test_arguments_that_cannot_be_compared_are_like_nothing(args: str) -> None:
    assert likeness(traits(args), traits(args)).by == ()


def test_no_arguments_are_like_no_arguments() -> None:
    assert likeness(traits({}), traits({})).by == ("args",)


def found_in(call: ToolCall, member: Membership, **how: object) -> dict[int, similar.Likeness]:
    return {one.row.id: one.likeness for one in similar.find(call.pk, user=member.user, **how).calls}  # type: ignore[arg-type]


def test_the_most_similar_come_first_and_each_says_why(tenant: Tenant, member: Callable[..., Membership]) -> None:
    ada = member()
    with tenant_scope(tenant):
        args = {"is_error": True, "result": None}
        call = ToolCallFactory(error="No city 12", **args)
        near = ToolCallFactory(args='{"city": "Zürich", "unit":"fahrenheit"}')
        failed = ToolCallFactory(error="No city 99", args='{"town": 1}', **args)
        labelled = ToolCallFactory(args='{"place": "x"}')
        hinted = ToolCallFactory(args='{"spot": "x"}')
        ToolCallFactory(tool_name="other_tool")
        ToolCallFactory(args='{"nothing": "alike"}')
        for one in (call, labelled):
            record_label(
                item=item_of_call(one.pk),
                reviewer=ada.user,
                label="bad_args",
                correction='{"arguments": {"city": "B"}}',
            )
        for one in (call, hinted):
            Hint.objects.create(turn=one.turn, call=one, cycle=0, rule="schema_violation", path="/city", sentence="x",
                                started_at=one.started_at)  # fmt: skip
        found = found_in(call, ada)
        assert list(found) == [labelled.pk, hinted.pk, failed.pk, near.pk]
        assert found[labelled.pk].faults == ("arg:/city",)
        assert found[hinted.pk].faults == ("hint:schema_violation:/city",)
        assert (found[failed.pk].error, found[failed.pk].faults) == (True, ())
        assert (found[near.pk].equal, found[near.pk].whole) == (1, 2)
        assert set(found_in(call, ada, by=["error"])) == {failed.pk}
        assert labelled.pk not in found_in(call, ada, unlabelled=True)


def test_a_look_has_a_size_and_goes_on_where_it_ended(
    tenant: Tenant, member: Callable[..., Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similar, "WINDOW", 3)
    ada = member()
    with tenant_scope(tenant):
        calls = ToolCallFactory.create_batch(6)
        first = similar.find(calls[0].pk, user=ada.user)
        assert [one.row.id for one in first.calls] == [call.pk for call in calls[1:4]]
        assert (first.num_seen, first.num_similar) == (3, 3)
        assert first.older
        second = similar.find(calls[0].pk, user=ada.user, cursor=Cursor.read(first.older))
        assert [one.row.id for one in second.calls] == [call.pk for call in calls[4:]]
        assert second.older is None
