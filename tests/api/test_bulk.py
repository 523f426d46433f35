"""Tags, the archive, bulk actions, similar calls and saved views over the API."""

import pytest

from quality.models import BulkAction, Feedback, ItemTag, SavedView
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory, TurnFactory

BASE = "/api/admin/quality"


@pytest.fixture
def calls(tenant):
    with tenant_scope(tenant):
        return ToolCallFactory.create_batch(3)


def test_a_call_is_tagged_archived_and_found_by_both(api, calls, tenant):
    operator = api()
    path = f"{BASE}/tool-calls/{calls[0].pk}"
    told = operator.post(f"{path}/tags", {"tag": " refund  case "}).json()
    assert [one["tag"] for one in told["tags"]] == ["refund case"]
    assert told["tags"][0]["by"]["email"] == operator.user.email
    assert operator.post(f"{path}/tags", {"tag": "refund case"}).json() == told
    assert operator.get(f"{BASE}/tool-call-tags").json() == {"items": ["refund case"]}
    listed = operator.get(f"{BASE}/tool-calls", {"tag": "refund case"}).json()["items"]
    assert [(one["id"], one["tags"], one["archived"]) for one in listed] == [(calls[0].pk, ["refund case"], False)]
    assert operator.post(f"{path}/archive").json()["archived"] is True
    assert [one["id"] for one in operator.get(f"{BASE}/tool-calls").json()["items"]] == [call.pk for call in calls[1:]]
    assert len(operator.get(f"{BASE}/tool-calls", {"archived": "any"}).json()["items"]) == 3
    assert operator.post(f"{path}/restore").json()["archived"] is False
    assert operator.delete(f"{path}/tags?tag=refund+case").json()["tags"] == []
    with tenant_scope(tenant):
        assert not ItemTag.objects.exists()


def test_a_turn_without_a_call_has_tags_too(api, tenant):
    with tenant_scope(tenant):
        turn = TurnFactory()
    operator = api()
    told = operator.post(f"{BASE}/turns/{turn.pk}/tags", {"tag": "asked back"}).json()
    assert (told["callId"], told["turnId"], told["cycle"]) == (None, turn.pk, 0)
    assert operator.post(f"{BASE}/turns/{turn.pk}/archive").json()["archived"] is True


@pytest.mark.parametrize("tag", ["", "   ", "x" * 61, "a\u0000b", "a\u200bb"])
def test_a_tag_that_cannot_be_kept_is_refused(api, calls, tag):
    response = api().post(f"{BASE}/tool-calls/{calls[0].pk}/tags", {"tag": tag})
    assert response.status_code == 400
    assert response.json()["errors"][0]["path"] == "tag"


def test_an_action_is_looked_at_confirmed_followed_and_undone(api, calls, tenant):
    operator = api()
    with tenant_scope(tenant):
        record_label(item=item_of_call(calls[0].pk), reviewer=operator.user, label="good_reply")
    response = operator.post(f"{BASE}/bulk-actions", {"kind": "label", "filter": "tool=get_weather"})
    assert response.status_code == 201
    looked = response.json()
    assert (looked["state"], looked["count"], looked["capped"]) == ("preview", 3, False)
    assert looked["skips"] == [{"code": "labelled", "number": 1}]
    assert [one["id"] for one in looked["sample"]] == [call.pk for call in calls]
    path = response["Location"]
    said = {"seen": looked["seen"], "label": "bad_args", "reason": "One release"}
    done = operator.post(f"{path}/confirm", said)
    assert done.status_code == 200
    told = done.json()
    assert (told["state"], told["items"], told["done"], told["skipped"]) == ("done", 3, 2, 1)
    assert operator.get(path).json() == told
    report = operator.get(f"{path}/items").json()["items"]
    assert [(one["callId"], one["state"], one["code"]) for one in report] == [
        (calls[0].pk, "skipped", "labelled"), (calls[1].pk, "done", ""), (calls[2].pk, "done", ""),
    ]  # fmt: skip
    again = operator.post(f"{path}/confirm", said)
    assert (again.status_code, again.json()["type"]) == (409, "urn:quality-lab:problem:decided")
    with tenant_scope(tenant):
        assert BulkAction.objects.get().token_id == operator.token.pk
    undone = operator.post(f"{path}/undo").json()
    assert (undone["state"], undone["undone"], undone["left"]) == ("undone", 2, 0)
    assert operator.post(f"{path}/undo").status_code == 409
    with tenant_scope(tenant):
        assert Feedback.objects.count() == 1
    assert [one["id"] for one in operator.get(f"{BASE}/bulk-actions").json()["items"]] == [told["id"]]


def test_what_has_changed_since_is_refused_and_can_be_looked_at_again(api, calls, tenant):
    operator, other = api(), api()
    looked = operator.post(f"{BASE}/bulk-actions", {"kind": "label", "filter": "label=none"}).json()
    with tenant_scope(tenant):
        record_label(item=item_of_call(calls[0].pk), reviewer=other.user, label="other")
    path = f"{BASE}/bulk-actions/{looked['id']}"
    said = {"seen": looked["seen"], "label": "bad_args", "reason": "x"}
    stale = operator.post(f"{path}/confirm", said)
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:quality-lab:problem:stale")
    fresh = operator.get(path).json()
    assert fresh["count"] == 2
    assert operator.post(f"{path}/confirm", said | {"seen": fresh["seen"]}).json()["done"] == 2


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"kind": "delete", "filter": ""}, "kind"),
        ({"kind": "tag"}, "filter"),
        ({"kind": "tag", "filter": "", "callIds": [1]}, "filter"),
        ({"kind": "tag", "callIds": []}, "callIds"),
        ({"kind": "tag", "callIds": [9_999_999]}, "callIds"),
        ({"kind": "tag", "filter": "error=perhaps"}, "filter.error"),
        ({"kind": "tag", "filter": "colour=red"}, "filter.colour"),
        ({"kind": "tag", "filter": "", "tag": "x"}, "tag"),
    ],
)
def test_what_cannot_be_begun_is_told_by_name(api, calls, body, path):
    response = api().post(f"{BASE}/bulk-actions", body)
    assert response.status_code == 400, response.text
    assert response.json()["errors"][0]["path"] == path


def test_who_may_what(api, member, calls):
    operator, other, viewer = (api(member=member(role)) for role in ("operator", "operator", "viewer"))
    assert viewer.post(f"{BASE}/bulk-actions", {"kind": "archive", "filter": ""}).status_code == 403
    assert viewer.post(f"{BASE}/tool-calls/{calls[0].pk}/tags", {"tag": "x"}).status_code == 403
    looked = operator.post(f"{BASE}/bulk-actions", {"kind": "archive", "callIds": [calls[0].pk]}).json()
    path = f"{BASE}/bulk-actions/{looked['id']}"
    assert other.get(path).status_code == 404
    assert other.post(f"{path}/confirm", {"seen": looked["seen"]}).status_code == 404
    assert operator.post(f"{path}/confirm", {"seen": looked["seen"]}).json()["done"] == 1
    assert other.post(f"{path}/undo").status_code == 403
    assert viewer.get(path).status_code == 200


def test_similar_calls_say_in_what(api, calls):
    found = api().get(f"{BASE}/tool-calls/{calls[0].pk}/similar").json()
    assert (found["similar"], found["seen"], found["nextCursor"]) == (2, 2, None)
    assert found["items"][0]["likeness"] == {
        "by": ["args"], "faults": [], "sameError": False, "sameShape": True, "equal": 2, "whole": 2,
    }  # fmt: skip
    assert api().get(f"{BASE}/tool-calls/{calls[0].pk}/similar", {"by": "fault"}).json()["items"] == []


def test_views_are_saved_changed_deleted_and_restored(api, member, tenant):
    ada, bob = api(), api(member=member("operator"))
    made = ada.post(f"{BASE}/saved-views", {"page": "calls", "name": "Failed", "filter": "error=yes"})
    assert made.status_code == 201
    path = made["Location"]
    assert bob.get(path).status_code == 404
    assert bob.get(f"{BASE}/saved-views").json()["items"] == []
    changed = ada.patch(path, {"shared": True, "name": "Failures", "filter": "error=yes&label=none"}).json()
    assert (changed["name"], changed["shared"], changed["filter"]) == ("Failures", True, "error=yes&label=none")
    assert [one["name"] for one in bob.get(f"{BASE}/saved-views?page=calls").json()["items"]] == ["Failures"]
    assert bob.get(f"{BASE}/saved-views?page=turns").json()["items"] == []
    assert bob.patch(path, {"name": "Mine"}).status_code == 403
    assert ada.delete(path).status_code == 204
    assert bob.get(path).status_code == 404
    assert ada.post(f"{path}/restore").json()["name"] == "Failures"
    with tenant_scope(tenant):
        assert SavedView.objects.get().deleted_at is None
    refused = ada.post(f"{BASE}/saved-views", {"page": "calls", "name": "Failures", "filter": ""})
    assert refused.json()["errors"][0]["code"] == "taken"
