"""Messages about replays: written by the schedule's rule, signed, sent until they arrive, kept for people to see."""

import asyncio
import base64
import datetime as dt
import hashlib
import hmac
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiosmtpd.handlers import Message
from aiosmtpd.smtp import SMTP
from django.core import mail
from django.db import connections, transaction
from django.utils import timezone, translation
from standardwebhooks import Webhook

from quality import tasks
from quality.models import Replay, ReplayCase, ReplayNotification, ReplaySchedule
from quality.replay import notify, schedules
from quality.replay.notify import NotificationConflict
from quality.replay.schedules import ScheduleData
from quality.replay.wanted import SideSpec
from quality.webhooks import sending, tries
from tenants.models import AuditEvent, Membership, ModelEndpoint, Secret, Tenant, User
from tenants.scope import tenant_scope
from tests.engine.loopback import Answer, Server, serving
from tests.factories import CaseFactory
from tests.replay.rows import make_replay

ADA = "ada@example.com"


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    with serving() as found:
        settings.OUTBOUND_ALLOW_CIDRS, settings.OUTBOUND_ALLOW_PORTS = ["127.0.0.1/32"], [found.port]
        yield found


@pytest.fixture
def admin(member: Callable[..., Membership]) -> User:
    return member("admin", user__email=ADA).user


@pytest.fixture
def with_mail(settings: Any) -> None:
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}


@pytest.fixture
def lab(tenant: Tenant, admin: User, published: list[Any], settings: Any) -> "Lab":
    settings.PUBLIC_URL = "https://lab.example.com"
    return Lab(tenant, admin)


def hint(row: ReplayNotification) -> tuple[str, int, int]:
    """The message to a worker that this one waits."""
    return "quality.tasks.deliver_notification", row.tenant_id, row.pk


class Lab:
    """Schedules of acme whose replays end as a test likes."""

    def __init__(self, tenant: Tenant, admin: User) -> None:
        self.tenant, self.admin = tenant, admin
        self.secret = ""
        with tenant_scope(tenant):
            ModelEndpoint.objects.create(label="main", base_url="https://llm.example.com/v1", model="m")

    def schedule(self, server: Server | None = None, **fields: Any) -> ReplaySchedule:
        if server:
            fields["webhook_url"] = f"http://127.0.0.1:{server.port}/hook?key=k"
        data = ScheduleData(
            **{"name": "Nightly", "cron": "0 2 * * *", "sides": (SideSpec(model_label="main"),)} | fields
        )
        with tenant_scope(self.tenant):
            kept = schedules.keep_schedule(data, actor=self.admin)
        self.secret = kept.secret or ""
        return kept.schedule

    def end(self, schedule: ReplaySchedule, *, exit_code: int | None = 1, **fields: Any) -> list[ReplayNotification]:
        """A replay of one case that failed, and what is written of it."""
        with tenant_scope(self.tenant):
            case = CaseFactory()
            result = {"verdict": "Regression shown.", "gate": {"failed": ["REG-1: newly failing."], "red": [case.ref]}}
            replay = make_replay(case, counts=(0, 5), schedule=schedule, exit_code=exit_code, result=result, **fields)
            ReplayCase.objects.filter(replay=replay).update(change="newly_failing", is_confirmed=True)
            return notify.after(replay)

    def deliver(self, row: ReplayNotification, now: dt.datetime | None = None) -> ReplayNotification:
        notify.deliver(row.pk, tenant_id=self.tenant.pk, now=now)
        return self.seen(row)

    def seen(self, row: ReplayNotification) -> ReplayNotification:
        with tenant_scope(self.tenant):
            return ReplayNotification.objects.get(pk=row.pk)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("regression", {"failed": True, "incomplete": False, "passed": False, "broken": False, "cancelled": False}),
        ("not_passed", {"failed": True, "incomplete": True, "passed": False, "broken": True, "cancelled": False}),
        ("always", {"failed": True, "incomplete": True, "passed": True, "broken": True, "cancelled": False}),
    ],
)
def test_the_rule_says_what_is_told(lab, rule, told) -> None:
    schedule = lab.schedule(webhook_url="https://hooks.example.com/x", notify_on=rule)
    ends = {
        "failed": {"exit_code": 1},
        "incomplete": {"exit_code": 3},
        "passed": {"exit_code": 0},
        "broken": {"exit_code": None, "state": "failed", "failure": "The model is gone."},
        "cancelled": {"exit_code": None, "state": "cancelled"},
    }
    assert {name: bool(lab.end(schedule, **end)) for name, end in ends.items()} == told


class TestWebhook:
    def test_it_arrives_signed_and_names_the_failing_cases(self, lab, server, published) -> None:
        schedule = lab.schedule(server)
        (row,) = lab.end(schedule, name="Nightly", cost=0.25)
        assert published == [hint(row)]
        row = lab.deliver(row)
        assert (row.state, row.status, row.attempt) == ("sent", 200, 1)
        (asked,) = server.seen
        assert (asked.method, asked.target) == ("POST", "/hook?key=k")
        sent_id, moment = asked.header("webhook-id"), asked.header("webhook-timestamp")
        assert abs(int(moment) - time.time()) < 300
        key = base64.b64decode(lab.secret.removeprefix("whsec_"))
        signed = f"{sent_id}.{moment}.".encode() + asked.body
        mac = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        assert asked.header("webhook-signature") == f"v1,{mac}"
        body = Webhook(lab.secret).verify(asked.body, dict(asked.headers))
        link = f"https://lab.example.com/t/acme/replays/{row.replay_id}/"
        assert body["event"] == "replay.finished"
        assert body["schedule"] == {"id": schedule.pk, "name": "Nightly", "slot": None}
        assert body["failing"] == [{"ref": "REG-1", "confirmed": True, "url": f"{link}REG-1/"}]
        replay = body["replay"]
        assert (replay["url"], replay["verdict"], replay["exitCode"], replay["cost"]) == (
            link,
            "Regression shown.",
            1,
            0.25,
        )
        assert replay["gate"] == {"failed": ["REG-1: newly failing."], "missing": []}
        assert replay["counts"]["newlyFailing"] == replay["counts"]["failed"] == 1
        assert "Zurich" not in asked.body.decode()  # no evidence
        with tenant_scope(lab.tenant):
            assert AuditEvent.objects.filter(action="secret.used").count() == 1

    def test_it_is_tried_for_a_day_under_one_id_and_then_given_up(self, lab, server) -> None:
        server.answers = [Answer(500)]
        (row,) = lab.end(lab.schedule(server))
        now = begun = timezone.now()
        for number in range(1, tries.MAX_TRIES + 1):
            assert notify.deliver(row.pk, tenant_id=lab.tenant.pk, now=now - dt.timedelta(seconds=1)) is None
            row = lab.deliver(row, now)
            assert (row.attempt, row.status, row.error) == (number, 500, "The receiver answered 500.")
            now = row.next_at
        assert row.state == "failed"
        assert dt.timedelta(hours=20) < now - begun < dt.timedelta(hours=26)
        assert len({asked.header("webhook-id") for asked in server.seen}) == 1
        assert len(server.seen) == tries.MAX_TRIES
        assert notify.deliver(row.pk, tenant_id=lab.tenant.pk, now=now + dt.timedelta(days=9)) is None

    def test_sent_again_it_arrives(self, lab, server, published) -> None:
        server.answers = [Answer(410), Answer(204)]
        (row,) = lab.end(lab.schedule(server))
        with tenant_scope(lab.tenant), pytest.raises(NotificationConflict):
            notify.send_again(row, actor=lab.admin)
        row = lab.deliver(row)
        assert (row.state, row.status) == ("failed", 410)  # the receiver is gone: no second try
        with tenant_scope(lab.tenant):
            notify.send_again(row, actor=lab.admin)
            assert AuditEvent.objects.get(action="notification.resent").actor == lab.admin
        assert published == [hint(row)] * 2
        row = lab.deliver(row)
        assert (row.state, row.status, row.error) == ("sent", 204, "")
        assert row.sent_at is not None

    def test_redirects_are_not_followed(self, lab, server) -> None:
        with serving() as elsewhere:
            server.answers = [Answer(307, headers={"Location": f"http://127.0.0.1:{elsewhere.port}/"})]
            (row,) = lab.end(lab.schedule(server))
            row = lab.deliver(row)
            assert (row.state, row.status) == ("pending", 307)
            assert "redirect" in row.error
            assert elsewhere.seen == []

    def test_the_guard_judges_each_try(self, lab, server, settings) -> None:
        (row,) = lab.end(lab.schedule(server))
        settings.OUTBOUND_ALLOW_CIDRS = []
        row = lab.deliver(row)
        assert (row.state, row.status) == ("pending", None)
        assert "address_not_allowed" in row.error
        assert server.seen == []

    def test_it_goes_only_where_the_schedule_says_now(self, lab, server) -> None:
        schedule = lab.schedule(server)
        rows = [*lab.end(schedule), *lab.end(schedule)]
        with tenant_scope(lab.tenant):
            ReplaySchedule.objects.update(webhook_url="https://hooks.example.com/other")
        assert lab.deliver(rows[0]).error == "The schedule names another address by now."
        with tenant_scope(lab.tenant):
            schedules.delete_schedule(ReplaySchedule.objects.get(), actor=lab.admin)
        assert lab.deliver(rows[1]).error == "Its schedule was deleted."
        assert server.seen == []
        assert {lab.seen(row).state for row in rows} == {"failed"}

    def test_a_worker_that_is_lost_with_a_message_leaves_it_to_another(self, lab, server) -> None:
        (row,) = lab.end(lab.schedule(server))
        now = timezone.now()
        with tenant_scope(lab.tenant):
            notify._claim(row.pk, now)  # and then it is gone
        assert notify.deliver(row.pk, tenant_id=lab.tenant.pk, now=now + dt.timedelta(minutes=1)) is None
        row = lab.deliver(row, now + dt.timedelta(minutes=6))
        assert (row.state, row.attempt) == ("sent", 2)

    def test_two_workers_with_one_message_send_it_once(self, lab, server) -> None:
        (row,) = lab.end(lab.schedule(server))
        together = threading.Barrier(2)

        def work() -> None:
            together.wait(60)
            notify.deliver(row.pk, tenant_id=lab.tenant.pk)
            connections.close_all()

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(server.seen) == 1
        assert lab.seen(row).state == "sent"

    def test_a_test_is_sent_at_once_and_says_so(self, lab, server) -> None:
        schedule = lab.schedule(server)
        answer = notify.send_test(schedule.pk, tenant_id=lab.tenant.pk, by=lab.admin)
        assert answer.was_taken
        (asked,) = server.seen
        body = Webhook(lab.secret).verify(asked.body, dict(asked.headers))
        assert (body["event"], body["schedule"]["name"]) == ("webhook.test", "Nightly")
        with tenant_scope(lab.tenant):
            Secret.objects.update(ciphertext=b"broken")
        answer = notify.send_test(schedule.pk, tenant_id=lab.tenant.pk, by=lab.admin)
        assert "cannot be read" in answer.error
        assert len(server.seen) == 1


class TestMail:
    def test_it_says_what_happened_and_where_to_look(self, lab, with_mail) -> None:
        (row,) = lab.end(lab.schedule(emails=(ADA,)))
        assert lab.deliver(row).state == "sent"
        (message,) = mail.outbox
        assert (message.to, message.subject) == ([ADA], "[Quality Lab] Nightly: Regression shown.")
        link = f"https://lab.example.com/t/acme/replays/{row.replay_id}/"
        assert link in message.body
        assert f"REG-1 (confirmed): {link}REG-1/" in message.body
        assert "Zurich" not in message.body
        assert "get_weather" not in message.body

    @pytest.mark.parametrize(("chosen", "written"), [("ru", "ru"), ("", "en"), ("xx", "en")])
    def test_it_is_written_in_the_language_of_its_reader(self, lab, with_mail, monkeypatch, chosen, written) -> None:
        User.objects.filter(email=ADA).update(language=chosen)
        monkeypatch.setattr(notify.messages, "mail", lambda replay, tenant: f"{translation.get_language()}\n\n")
        (row,) = lab.end(lab.schedule(emails=(ADA,)))
        assert row.body.strip() == written
        assert translation.get_language() == "en"

    def test_hostile_names_stay_in_their_line(self, lab, with_mail) -> None:
        schedule = lab.schedule(emails=(ADA,))
        hostile = "Nightly\r\nBcc: eve@example.com\u2028\n\nPay here:\u202e now\x00".replace("\x00", "\x7f")
        with tenant_scope(lab.tenant):
            ReplaySchedule.objects.update(name=hostile)
            schedule.refresh_from_db()
        (row,) = lab.end(schedule)
        assert lab.deliver(row).state == "sent"
        (message,) = mail.outbox
        assert message.subject == "[Quality Lab] Nightly Bcc: eve@example.com Pay here: now: Regression shown."
        assert message.recipients() == [ADA]
        assert message.message()["Bcc"] is None
        assert "Schedule: Nightly Bcc: eve@example.com Pay here: now\n" in message.body

    def test_who_has_left_is_written_to_no_more(self, lab, with_mail) -> None:
        (row,) = lab.end(lab.schedule(emails=(ADA,)))
        with tenant_scope(lab.tenant):
            Membership.objects.filter(user=lab.admin).delete()
        row = lab.deliver(row)
        assert row.state == "failed"
        assert "no member’s" in row.error
        assert mail.outbox == []

    def test_over_a_real_server(self, lab, settings) -> None:
        kept = _Kept()
        with smtp_server(kept) as port:
            options = {"host": "127.0.0.1", "port": port, "timeout": 30}
            settings.MAILERS = {
                "default": {"BACKEND": "django.core.mail.backends.smtp.EmailBackend", "OPTIONS": options}
            }
            (row,) = lab.end(lab.schedule(name="Nächtlich", emails=(ADA,)))
            assert lab.deliver(row).state == "sent"
        (message,) = kept.messages
        assert message["X-RcptTo"] == ADA
        assert message["Message-ID"] == f"<{row.message_id.hex}@quality-lab>"
        assert message["Auto-Submitted"] == "auto-generated"
        assert "Regression shown." in message.get_payload(decode=True).decode()
        # The server is down now: the next one is tried again later, and says nothing of the operator's network.
        (row,) = lab.end(lab.schedule(name="Weekly", emails=(ADA,)))
        row = lab.deliver(row)
        assert (row.state, row.attempt) == ("pending", 1)
        assert row.error.startswith("The mail server did not take it.")
        assert "127.0.0.1" not in row.error


class _Kept(Message):
    """Keeps what arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Any] = []

    def handle_message(self, message: Any) -> None:
        self.messages.append(message)


@contextmanager
def smtp_server(handler: _Kept) -> Iterator[int]:
    """A mail server on loopback, in a loop of its own; gives its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    starting = loop.create_server(lambda: SMTP(handler, loop=loop), "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(30)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class TestRows:
    def test_they_are_written_with_the_replays_end_or_not_at_all(self, lab, published) -> None:
        schedule = lab.schedule(webhook_url="https://hooks.example.com/x")
        with tenant_scope(lab.tenant):
            assert lab.end(schedule)
            transaction.set_rollback(True)  # the worker is gone
        with tenant_scope(lab.tenant):
            assert not ReplayNotification.objects.exists()
        assert published == []

    def test_a_replay_that_ends_once_more_is_told_once(self, lab, published) -> None:
        (row,) = lab.end(lab.schedule(webhook_url="https://hooks.example.com/x"))
        with tenant_scope(lab.tenant):
            assert notify.after(Replay.objects.get()) == []
            assert ReplayNotification.objects.get() == row
        assert len(published) == 1

    def test_a_replay_that_was_retried_is_told_anew_even_if_it_has_passed(self, lab, published) -> None:
        (row,) = lab.end(lab.schedule(webhook_url="https://hooks.example.com/x"))
        with tenant_scope(lab.tenant):
            ReplayNotification.objects.update(state="sent", attempt=3, sent_at=timezone.now(), status=200)
            replay = Replay.objects.get()
            replay.exit_code, replay.result, replay.spent_before = 0, {"verdict": "No regression shown."}, {"calls": 1}
            (again,) = notify.after(replay)
            assert (again.pk, again.state, again.attempt, again.sent_at) == (row.pk, "pending", 0, None)
        assert again.message_id != row.message_id
        assert json.loads(again.body)["replay"]["verdict"] == "No regression shown."
        assert published == [hint(row)] * 2

    def test_an_answer_to_what_was_said_before_a_retry_settles_nothing(self, lab, server) -> None:
        (row,) = lab.end(lab.schedule(server))
        with tenant_scope(lab.tenant):
            ReplayNotification.objects.update(message_id=uuid.uuid4(), attempt=1)
            row.attempt = 1
            tries.keep(row, sending.Answer(200), timezone.now())
        assert lab.seen(row).state == "pending"

    def test_the_tick_publishes_what_was_not_sent_in_every_tenant(self, lab, published, other_tenant) -> None:
        (row,) = lab.end(lab.schedule(webhook_url="https://hooks.example.com/x"))
        published.clear()
        assert notify.deliver_due(timezone.now() - dt.timedelta(hours=1)) == 0
        tasks.tick()
        assert published == [hint(row)]
        assert notify.deliver(row.pk, tenant_id=other_tenant.pk) is None
        with tenant_scope(other_tenant):
            assert not ReplayNotification.objects.exists()
