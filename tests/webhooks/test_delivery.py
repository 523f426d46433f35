"""On the way: signed, retried for a day, given up, taken up after a crash, sent again, kept for a while."""

import datetime as dt
import threading
import uuid
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from standardwebhooks import Webhook as Receiver

from quality import tasks
from quality.models import Webhook, WebhookDelivery
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from quality.webhooks import hooks, outbox, tries
from tenants.models import AuditEvent, Secret
from tenants.scope import tenant_scope
from tests.engine.loopback import Answer, serving
from tests.factories import ToolCallFactory


def label(lab) -> WebhookDelivery:
    with tenant_scope(lab.tenant):
        record_label(item=item_of_call(ToolCallFactory().pk), reviewer=lab.admin, label="good_reply")
    return lab.written()[-1]


def test_it_arrives_signed(lab, server, published) -> None:
    lab.keep("label.given")
    row = label(lab)
    assert published == [("quality.tasks.deliver_webhook", lab.tenant.pk, row.pk)]
    row = lab.deliver(row)
    assert (row.state, row.status, row.attempt) == ("sent", 200, 1)
    (asked,) = server.seen
    assert (asked.method, asked.target) == ("POST", "/hook?key=k")
    assert Receiver(lab.secret).verify(asked.body, dict(asked.headers))["type"] == "label.given"
    assert outbox.deliver(row.pk, tenant_id=lab.tenant.pk) is None  # it has arrived


def test_it_is_tried_for_a_day_under_one_id_and_then_given_up(lab, server) -> None:
    server.answers = [Answer(503)]
    lab.keep("label.given")
    row = label(lab)
    now = begun = timezone.now()
    for number in range(1, tries.MAX_TRIES + 1):
        row = lab.deliver(row, now)
        assert (row.attempt, row.status) == (number, 503)
        now = row.next_at
    assert row.state == "failed"
    assert dt.timedelta(hours=20) < now - begun < dt.timedelta(hours=26)
    assert len({asked.header("webhook-id") for asked in server.seen}) == 1


def test_gone_disables_the_webhook_and_what_waits_is_not_sent(lab, server) -> None:
    server.answers = [Answer(410), Answer(200)]
    hook = lab.keep("label.given")
    first, second = label(lab), label(lab)
    assert lab.deliver(first).state == "failed"
    with tenant_scope(lab.tenant):
        hook = Webhook.objects.get(pk=hook.pk)
        assert (hook.is_enabled, "gone" in hook.disabled_why) == (False, True)
        assert AuditEvent.objects.get(action="webhook.disabled").detail["to"] == f"http://127.0.0.1:{server.port}"
    second = lab.deliver(second)
    assert (second.state, second.error) == ("failed", "The webhook is disabled.")
    assert len(server.seen) == 1


def test_gone_of_an_address_that_was_changed_since_disables_nothing(lab, server) -> None:
    hook = lab.keep("label.given")
    row = label(lab)
    changed = hooks.Wanted(name="Desk", url=f"{hook.url}&moved=yes", events=("label.given",))

    def moved(handler: BaseHTTPRequestHandler) -> None:
        """While the try is under way, an admin enters the new address."""
        with tenant_scope(lab.tenant):
            hooks.keep(changed, actor=lab.admin, pk=hook.pk)
        connections.close_all()
        handler.send_response(410)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers = [Answer(send=moved), Answer(200)]
    row = lab.deliver(row)
    assert (row.state, row.status, "changed since" in row.error) == ("pending", 410, True)
    assert [one.is_enabled for one in lab.hooks()] == [True]
    assert lab.deliver(row, row.next_at).state == "sent"
    assert server.seen[-1].target.endswith("moved=yes")


def test_no_tenant_waits_for_the_backlog_of_another(lab, other_tenant, server, published, monkeypatch) -> None:
    monkeypatch.setattr(outbox, "PUBLISHED_AT_ONCE", 4)
    now = timezone.now()
    waiting = {}
    for tenant, number, age in ((lab.tenant, 9, dt.timedelta(hours=1)), (other_tenant, 2, dt.timedelta(minutes=1))):
        with tenant_scope(tenant):
            hook = Webhook.objects.create(name="Desk", url="http://127.0.0.1/", events=["*"], created_by=lab.admin)
            WebhookDelivery.objects.bulk_create(
                WebhookDelivery(webhook=hook, message_id=uuid.uuid4(), next_at=now - age + dt.timedelta(seconds=place))
                for place in range(number)
            )
            waiting[tenant] = list(WebhookDelivery.objects.order_by("next_at").values_list("pk", flat=True))
    assert outbox.deliver_due(now) == 4
    mine, theirs = waiting[lab.tenant], waiting[other_tenant]
    assert [pk for _task, _tenant, pk in published] == [mine[0], theirs[0], mine[1], theirs[1]]


def test_redirects_are_not_followed_and_the_guard_judges_each_try(lab, server, settings) -> None:
    with serving() as elsewhere:
        server.answers = [Answer(307, headers={"Location": f"http://127.0.0.1:{elsewhere.port}/"})]
        lab.keep("label.given")
        assert "redirect" in lab.deliver(label(lab)).error
        assert elsewhere.seen == []
    settings.OUTBOUND_ALLOW_CIDRS = []
    assert "address_not_allowed" in lab.deliver(label(lab)).error
    assert len(server.seen) == 1


def test_a_lost_worker_leaves_it_to_another_and_the_tick_finds_it(lab, server, published) -> None:
    lab.keep("label.given")
    row, now = label(lab), timezone.now()
    with tenant_scope(lab.tenant):
        outbox._claim(row.pk, now)  # and then it is gone
    assert outbox.deliver_due(now + dt.timedelta(minutes=1)) == 0
    published.clear()
    assert outbox.deliver_due(now + dt.timedelta(minutes=6)) == 1
    assert published == [("quality.tasks.deliver_webhook", lab.tenant.pk, row.pk)]
    row = lab.deliver(row, now + dt.timedelta(minutes=6))
    assert (row.state, row.attempt) == ("sent", 2)


def test_two_workers_with_one_message_send_it_once(lab, server) -> None:
    lab.keep("label.given")
    row, together = label(lab), threading.Barrier(2)

    def work() -> None:
        together.wait(60)
        outbox.deliver(row.pk, tenant_id=lab.tenant.pk)
        connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(server.seen) == 1


def test_sent_again_it_keeps_its_id(lab, server, published) -> None:
    server.answers = [Answer(500), Answer(200)]
    hook = lab.keep("label.given")
    row = label(lab)
    with tenant_scope(lab.tenant), pytest.raises(tries.OnItsWay):
        hooks.send_again(row, actor=lab.admin)
    lab.deliver(row)
    with tenant_scope(lab.tenant):
        WebhookDelivery.objects.update(state="failed")
        hooks.send_again(row, actor=lab.admin)
        assert AuditEvent.objects.filter(action="webhook.resent").count() == 1
    assert lab.deliver(row).state == "sent"
    assert len({asked.header("webhook-id") for asked in server.seen}) == 1
    hooks_off = lab.keep("label.given", name="Other", is_enabled=False)
    with tenant_scope(lab.tenant):
        Webhook.objects.filter(pk=hook.pk).update(is_enabled=False)
        for step in (
            lambda: hooks.send_again(row, actor=lab.admin),
            lambda: hooks.send_all_again(hooks_off, timezone.now(), actor=lab.admin),
        ):
            with pytest.raises(ValidationError, match="disabled"):
                step()


def test_all_since_a_moment_are_sent_again(lab, server, published) -> None:
    hook = lab.keep("label.given")
    rows = [label(lab) for _ in range(3)]
    for row in rows[:2]:
        lab.deliver(row)
    with tenant_scope(lab.tenant):
        WebhookDelivery.objects.filter(pk=rows[0].pk).update(created_at=timezone.now() - dt.timedelta(hours=2))
        ago = timezone.now() - dt.timedelta(hours=1)
        with CaptureQueriesContext(connection) as asked:
            assert hooks.send_all_again(hook, ago, actor=lab.admin) == 1
        assert sum("UPDATE" in one["sql"] for one in asked.captured_queries) == 1
    assert [lab.seen(row).state for row in rows] == ["sent", "pending", "pending"]


def test_a_test_says_that_it_is_one_and_a_broken_secret_is_told(lab, server) -> None:
    hook = lab.keep("label.given")
    assert hooks.send_test(hook.pk, tenant_id=lab.tenant.pk, by=lab.admin).was_taken
    (asked,) = server.seen
    assert Receiver(lab.secret).verify(asked.body, dict(asked.headers))["type"] == "webhook.test"
    with tenant_scope(lab.tenant):
        Secret.objects.update(ciphertext=b"broken")
    row = lab.deliver(label(lab))
    assert (row.state, "cannot be read" in row.error) == ("failed", True)


def test_a_new_secret_signs_and_the_old_one_does_not(lab, server) -> None:
    hook = lab.keep("label.given")
    old = lab.secret
    with tenant_scope(lab.tenant):
        new = hooks.rotate_secret(Webhook.objects.select_related("secret").get(pk=hook.pk), actor=lab.admin)
    lab.deliver(label(lab))
    (asked,) = server.seen
    assert Receiver(new).verify(asked.body, dict(asked.headers))
    with pytest.raises(Exception, match="signature"):
        Receiver(old).verify(asked.body, dict(asked.headers))


def test_old_messages_are_deleted_but_not_those_on_their_way(lab, server, settings) -> None:
    hook = lab.keep("label.given")
    done, waiting = label(lab), label(lab)
    lab.deliver(done)
    later = timezone.now() + dt.timedelta(days=settings.WEBHOOK_KEEP_DAYS, hours=1)
    assert outbox.sweep_old(later) == 1
    assert [row.pk for row in lab.written()] == [waiting.pk]
    with tenant_scope(lab.tenant):
        hooks.delete(Webhook.objects.select_related("secret").get(pk=hook.pk), actor=lab.admin)
        assert not Secret.objects.exists()
    assert lab.written() == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "http://169.254.169.254/latest"}, "url"),
        ({"name": ""}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"events": ("label.lost",)}, "events"),
        ({"events": ()}, "events"),
    ],
)
def test_what_cannot_work_is_refused_by_field(lab, fields: dict[str, Any], path: str) -> None:
    with tenant_scope(lab.tenant), pytest.raises(ValidationError) as refused:
        hooks.keep(
            hooks.Wanted(**{"name": "Desk", "url": "https://hooks.example.com/x", "events": ("*",)} | fields),
            actor=lab.admin,
        )
    assert list(refused.value.error_dict) == [path]


def test_the_task_delivers(lab, server) -> None:
    lab.keep("label.given")
    row = label(lab)
    tasks.deliver_webhook(lab.tenant.pk, row.pk)
    assert lab.seen(row).state == "sent"
