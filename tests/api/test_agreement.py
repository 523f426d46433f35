"""Agreement by the API: the page's figures, and who may ask."""

from collections.abc import Callable

import pytest

from quality.models import QueueEntry, ReviewQueue, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import Membership, Tenant, User
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.factories import ToolCallFactory

type Apis = Callable[..., Api]

PLACE = "/api/admin/quality/agreement"


@pytest.fixture
def people(member: Callable[..., Membership]) -> tuple[User, User]:
    return member(user__name="Ada").user, member(user__name="Bob").user


@pytest.fixture
def say(tenant: Tenant, people: tuple[User, User]) -> Callable[..., ToolCall]:
    """`say("other", "bad_args")`: what Ada and Bob say of a new call."""

    def given(*labels: str, **fields: object) -> ToolCall:
        with tenant_scope(tenant):
            call = ToolCallFactory(**fields)
            for user, label in zip(people, labels, strict=False):
                record_label(item=item_of_call(call.pk), reviewer=user, label=label)
        return call

    return given


def test_the_figures_of_a_pair(api: Apis, say: Callable[..., ToolCall], people: tuple[User, User]) -> None:
    for _ in range(3):
        say("good_reply", "good_reply")
    say("bad_args", "bad_args")
    say("bad_args", "good_reply")
    body = api("read").get(PLACE).json()
    assert (body["numLabels"], body["numItems"], body["numShared"], body["numReviewers"]) == (10, 5, 5, 2)
    (pair,) = body["pairs"]
    assert {one["name"] for one in pair["reviewers"]} == {"Ada", "Bob"}
    assert {one["id"] for one in pair["reviewers"]} == {user.pk for user in people}
    assert (pair["numItems"], pair["numApart"]) == (5, 1)
    assert pair["kappa"]["value"] == pytest.approx(0.5455, abs=0.001)
    assert pair["kappa"] | {"value": 0, "low": 0, "high": 0} == {
        "value": 0, "low": 0, "high": 0, "n": 5, "how": "wilson", "why": None, "isSmall": True,
    }  # fmt: skip
    of_labels = {one["label"]: one["kappa"] for one in pair["labels"]}
    assert (of_labels["other"]["value"], of_labels["other"]["why"]) == (None, "one_answer")
    assert sum(one["count"] for one in body["confusion"]) == 5
    assert body["alpha"]["how"] == "bootstrap"
    assert (body["hints"], body["suggestions"], body["judges"], body["isCapped"]) == ([], [], [], False)


def test_a_filter_narrows_and_a_slip_is_refused_by_name(
    api: Apis, say: Callable[..., ToolCall], tenant: Tenant
) -> None:
    call = say("other", "bad_args", tool_name="get_time")
    say("other", "other", turn__style_id="support")
    with tenant_scope(tenant):
        queue = ReviewQueue.objects.create(name="q", created_by=User.objects.order_by("pk")[0])
        QueueEntry.objects.create(queue=queue, turn=call.turn, cycle=0, call=call, started_at=call.started_at)
    client = api("read")

    def number(**query: object) -> int:
        return int(client.get(PLACE, query).json()["numShared"])

    assert (number(), number(tool="get_time"), number(style="support"), number(queue=queue.pk)) == (2, 1, 1, 1)
    assert number(to="2020-01-01") == 0
    for query, path, code in [
        ({"tol": "x"}, "tol", "unknown_parameter"),
        ({"queue": 999_999}, "queue", "no_such_queue"),
        ({"queue": "x"}, "queue", "invalid"),
        ({"from": "yesterday"}, "from", "invalid_time"),
        ({"from": "2026-03-02", "to": "2026-03-01"}, "to", "empty_period"),
    ]:
        response = client.get(PLACE, query)
        assert response.status_code == 400, query
        assert [(error["path"], error["code"]) for error in response.json()["errors"]] == [(path, code)]


def test_what_waits_in_a_blind_queue_is_counted_and_not_told(
    api: Apis, say: Callable[..., ToolCall], tenant: Tenant
) -> None:
    call = say("other", "bad_args")
    with tenant_scope(tenant):
        by = User.objects.order_by("pk")[0]
        queue = ReviewQueue.objects.create(name="q", created_by=by, is_blind=True, labels_needed=3)
        QueueEntry.objects.create(
            queue=queue, turn=call.turn, cycle=0, call=call, started_at=call.started_at, is_blind=True
        )
    body = api("read").get(PLACE).json()
    assert (body["numHidden"], body["numLabels"], body["pairs"], body["confusion"]) == (2, 0, [], [])
    assert "Ada" not in str(body)


def test_a_token_sees_its_own_tenant_and_needs_the_scope(
    api: Apis, say: Callable[..., ToolCall], member: Callable[..., Membership], other_tenant: Tenant
) -> None:
    say("other", "bad_args")
    theirs = api("read", member=member("admin", tenant=other_tenant)).get(PLACE).json()
    assert (theirs["numLabels"], theirs["pairs"]) == (0, [])
    assert api("ingest:write").get(PLACE).status_code == 403
    assert api("read").post(PLACE, {}).status_code == 405
