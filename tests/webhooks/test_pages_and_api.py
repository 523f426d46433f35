"""Webhooks as admins keep them, in the browser's way and over the API."""

import json

from django.urls import reverse

from quality.models import Webhook, WebhookDelivery
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import Scope
from tenants.scope import tenant_scope
from tests.engine.loopback import Answer
from tests.factories import ToolCallFactory


def url(name: str, **parts: int) -> str:
    return reverse(name, kwargs={"slug": "acme", **parts})


def label(lab) -> WebhookDelivery:
    with tenant_scope(lab.tenant):
        record_label(item=item_of_call(ToolCallFactory().pk), reviewer=lab.admin, label="good_reply")
    return lab.written()[-1]


class TestPages:
    def test_an_admin_adds_changes_tests_and_deletes_one(self, lab, client, server) -> None:
        client.force_login(lab.admin)
        assert "No webhook yet" in client.get(url("webhook-list")).text
        sent = {
            "name": "Desk", "url": f"http://127.0.0.1:{server.port}/x", "events": ["label.given"], "is_enabled": "on",
        }  # fmt: skip
        page = client.post(url("webhook-list"), sent).text
        assert "whsec_" in page  # told this once
        (hook,) = lab.hooks()
        assert "whsec_" not in client.get(url("webhook-detail", pk=hook.pk)).text
        refused = client.post(url("webhook-detail", pk=hook.pk), sent | {"url": "http://10.0.0.1/"})
        assert (refused.status_code, "Nobody may call this address" in refused.text) == (400, True)
        assert client.post(url("webhook-detail", pk=hook.pk), sent | {"name": "Tickets"}).status_code == 302
        assert "The receiver took the test" in client.post(url("webhook-test", pk=hook.pk)).text
        server.answers = [Answer(500)]
        assert "did not arrive" in client.post(url("webhook-test", pk=hook.pk)).text
        assert "whsec_" in client.post(url("webhook-rotate", pk=hook.pk)).text
        client.post(url("webhook-delete", pk=hook.pk))
        assert lab.hooks() == []

    def test_the_log_is_paged_filtered_and_sent_again(self, lab, client) -> None:
        client.force_login(lab.admin)
        hook = lab.keep("label.given")
        rows = [label(lab) for _ in range(52)]
        lab.deliver(rows[-1])
        page = client.get(url("webhook-detail", pk=hook.pk)).text
        assert page.count("<tr>") == 51  # with the head
        older = client.get(url("webhook-detail", pk=hook.pk), {"before": rows[2].pk}).text
        assert older.count("<tr>") == 3
        sent = client.get(url("webhook-detail", pk=hook.pk), {"state": "sent"}).text
        assert sent.count("<tr>") == 2
        assert "None yet" in client.get(url("webhook-detail", pk=hook.pk), {"event": "case.created"}).text
        again = client.post(url("webhook-again", pk=rows[-1].pk), follow=True).text
        assert "It is on its way again." in again
        assert "on its way already" in client.post(url("webhook-again", pk=rows[-1].pk), follow=True).text
        lab.deliver(rows[-1])
        repeated = client.post(url("webhook-repeat", pk=hook.pk), {"since": "2020-01-01"}, follow=True).text
        assert "1 message is on its way again." in repeated
        assert client.post(url("webhook-repeat", pk=hook.pk), {"since": "soon"}).status_code == 400

    def test_operators_do_not_see_them(self, lab, client, member) -> None:
        hook = lab.keep()
        client.force_login(member("operator").user)
        for address in (url("webhook-list"), url("webhook-detail", pk=hook.pk)):
            assert client.get(address).status_code == 403


class TestApi:
    def test_one_is_made_changed_tested_and_deleted(self, lab, api, server) -> None:
        admin = api(Scope.READ, Scope.SETTINGS_WRITE)
        sent = {"name": "Desk", "url": f"http://127.0.0.1:{server.port}/x", "events": ["label.given"]}
        made = admin.post("/api/webhooks", sent)
        assert made.status_code == 201, made.text
        hook = made.json()
        assert hook["secret"].startswith("whsec_")
        changed = admin.patch(f"/api/webhooks/{hook['id']}", {"events": ["*"], "enabled": False}).json()
        assert (changed["events"], changed["enabled"], changed["secret"], changed["name"]) == (
            ["*"],
            False,
            None,
            "Desk",
        )
        (listed,) = api(Scope.READ).get("/api/webhooks").json()["webhooks"]
        assert listed["url"] == f"http://127.0.0.1:{server.port}/…"  # the path may be a secret
        assert admin.post(f"/api/webhooks/{hook['id']}/test").json() == {"arrived": True, "status": 200, "error": ""}
        refused = admin.post("/api/webhooks", sent)
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "name")  # it is taken
        refused = admin.post("/api/webhooks", sent | {"name": "Other", "events": ["label.lost"]})
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "events")
        assert api(Scope.READ).post("/api/webhooks", sent).status_code == 403
        assert admin.delete(f"/api/webhooks/{hook['id']}").status_code == 204
        assert admin.get(f"/api/webhooks/{hook['id']}").status_code == 404

    def test_deliveries_are_listed_and_sent_again(self, lab, api, server) -> None:
        hook = lab.keep("label.given")
        rows = [label(lab) for _ in range(2)]
        lab.deliver(rows[0])
        admin = api(Scope.READ, Scope.SETTINGS_WRITE)
        page = admin.get(f"/api/webhooks/{hook.pk}/deliveries").json()
        assert [one["id"] for one in page["items"]] == [rows[1].pk, rows[0].pk]
        assert page["nextCursor"] is None
        (sent,) = admin.get(f"/api/webhooks/{hook.pk}/deliveries?state=sent").json()["items"]
        assert (sent["messageId"], sent["status"]) == (server.seen[0].header("webhook-id"), 200)
        assert admin.get(f"/api/webhooks/{hook.pk}/deliveries?status=sent").status_code == 400
        assert admin.post(f"/api/webhooks/deliveries/{rows[0].pk}/again").json()["state"] == "pending"
        assert admin.post(f"/api/webhooks/deliveries/{rows[0].pk}/again").status_code == 409

    def test_another_tenants_do_not_exist(self, lab, api, member, other_tenant) -> None:
        hook = lab.keep("label.given")
        row = label(lab)
        stranger = api(member=member("admin", tenant=other_tenant))
        assert stranger.get("/api/webhooks").json() == {"webhooks": []}
        for send, path in (
            (stranger.get, f"/api/webhooks/{hook.pk}"),
            (stranger.delete, f"/api/webhooks/{hook.pk}"),
            (stranger.post, f"/api/webhooks/{hook.pk}/test"),
            (stranger.get, f"/api/webhooks/{hook.pk}/deliveries"),
            (stranger.post, f"/api/webhooks/deliveries/{row.pk}/again"),
        ):
            assert send(path).status_code == 404, path
        assert json.loads(row.body)["tenant"] == "acme"
        with tenant_scope(lab.tenant):
            assert Webhook.objects.filter(pk=hook.pk).exists()
