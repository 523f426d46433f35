"""Schedules of replays as people keep them, and the lists of what follows replays up: roles, faults, secrets, words."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from quality import tasks
from quality.models import Case, Replay, ReplayNotification, ReplaySchedule
from quality.replay import findings, notify, quarantine, schedules
from quality.replay.schedules import ScheduleData
from quality.replay.wanted import RunSettings, SideSpec
from tenants.models import AuditEvent, ModelEndpoint, Tenant
from tenants.scope import tenant_scope
from tests.engine.loopback import Answer, Server, serving
from tests.factories import CaseFactory, ToolsetFactory, UserFactory
from tests.pages.conftest import HTMX
from tests.replay.rows import FIRST_NIGHT, make_replay, make_schedule

PAGE = "/t/acme/replays/schedules/"
FORM = {
    "name": "Nightly",
    "cron": "0 2 * * *",
    "zone": "Europe/Berlin",
    "is_enabled": "on",
    "candidate_model": "main",
    "candidate_prompt": "",
    "candidate_tools": "recorded",
    "against": "previous",
    "baseline_model": "main",
    "baseline_prompt": "",
    "baseline_tools": "recorded",
    "samples": "5",
    "concurrency": "4",
    "max_cycles": "8",
    "on_miss": "stop",
    "seed": "1",
    "confirm": "on",
    "notify_on": "regression",
}


@pytest.fixture(autouse=True)
def ready(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model and two cases; no message goes to the broker."""
    for name in ("publish", "publish_aside"):
        monkeypatch.setattr(tasks, name, lambda _task, *args: None)
    with tenant_scope(tenant):
        ModelEndpoint.objects.create(
            label="main", base_url="https://llm.example.com/v1", model="m", price_prompt=1.0, price_completion=2.0
        )
        CaseFactory()
        CaseFactory(tags=["smoke"])


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    with serving() as found:
        settings.OUTBOUND_ALLOW_CIDRS, settings.OUTBOUND_ALLOW_PORTS = ["127.0.0.1/32"], [found.port]
        yield found


@pytest.fixture
def schedule(inside: Callable[[], Any], member: Callable[..., Any]) -> ReplaySchedule:
    data = ScheduleData(name="Nightly", cron="0 2 * * *", sides=(SideSpec(model_label="main"),))
    admin = member("admin").user
    with inside():
        return schedules.keep_schedule(data, actor=admin).schedule


def saved(inside: Callable[[], Any]) -> ReplaySchedule:
    with inside():
        return ReplaySchedule.objects.get()


class TestKeeping:
    def test_a_schedule_is_made_and_the_list_tells_when_it_comes(self, browse, inside) -> None:
        client = browse("admin")
        assert "No schedule yet" in client.get(PAGE).text
        new = client.get(f"{PAGE}new/")
        assert "2 cases" in new.text  # what a run would take, before anything is saved
        page = client.post(f"{PAGE}new/", FORM | {"tag": "smoke"}, follow=True).text
        assert "Nightly is saved." in page
        assert page.count("02:00 C") == 5  # five slots in the schedule's own zone, CET or CEST
        assert "1 case" in page
        kept = saved(inside)
        assert (kept.query, kept.baseline, kept.notify_on) == ("tag=smoke", "previous", "regression")
        assert kept.sides == [SideSpec(model_label="main").to_json()]
        assert RunSettings.from_json(kept.settings).samples == 5
        listed = client.get(PAGE).text
        assert "At 02:00 every day" in listed
        assert "tag=smoke" in listed
        assert "none yet" in listed

    def test_what_is_saved_stands_in_the_form_again(self, browse, inside) -> None:
        client = browse("admin")
        with inside():
            sha256 = ToolsetFactory().sha256
        sent = FORM | {"against": "side", "baseline_tools": sha256, "budget_cost": "2.5", "label": ["bad_args"]}
        page = client.post(f"{PAGE}new/", sent | {"confirm": ""}, follow=True)
        first = saved(inside)
        assert [side["tools"] for side in first.sides] == [sha256, "recorded"]
        form = page.context["form"]
        again = {name: form[name].value() for name in form.fields}
        again = {name: value for name, value in again.items() if value not in (None, False)}
        client.post(f"{PAGE}{first.pk}/save/", again)
        second = saved(inside)
        for name in ("sides", "settings", "query", "baseline", "cron", "zone", "emails", "is_enabled"):
            assert getattr(second, name) == getattr(first, name), name

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"cron": "61 * * * *"}, "“61” cannot stand for the minute: 0–59"),
            ({"zone": "Mars/Olympus"}, "There is no time zone"),
            ({"name": ""}, "required"),
            ({"candidate_model": "gone"}, "There is no enabled model"),
            ({"webhook_url": "http://10.0.0.1/x"}, "Nobody may call this address"),
            ({"emails": ["eve@example.com"]}, "not one of the available choices"),
        ],
    )
    def test_what_cannot_be_is_told_back_with_what_was_written(self, browse, inside, change, told) -> None:
        page = browse("admin").post(f"{PAGE}new/", FORM | {"q": "the weather"} | change)
        assert page.status_code == 400
        assert told in page.text
        assert 'value="the weather"' in page.text
        with inside():
            assert not ReplaySchedule.objects.exists()

    def test_the_secret_is_shown_once_and_again_when_it_is_renewed(self, browse, inside) -> None:
        client = browse("admin")
        page = client.post(f"{PAGE}new/", FORM | {"webhook_url": "https://hooks.example.com/T1/key"}).text
        assert page.count("whsec_") == 1
        kept = saved(inside)
        url = f"{PAGE}{kept.pk}/"
        assert "whsec_" not in client.get(url).text
        assert "whsec_" not in client.post(f"{url}save/", FORM | {"webhook_url": kept.webhook_url}, follow=True).text
        renewed = client.post(f"{url}rotate/").text
        assert renewed.count("whsec_") == 1
        assert renewed.partition("whsec_")[2][:20] != page.partition("whsec_")[2][:20]
        assert "T1/key" in client.get(url).text
        read = browse("operator").get(url).text  # the path of such an address is a secret itself
        assert "T1/key" not in read
        assert "https://hooks.example.com:443/…" in read

    def test_the_preview_follows_what_is_written(self, browse) -> None:
        client = browse("admin")
        page = client.post(f"{PAGE}preview/", FORM | {"cron": "30 8 * * MON"}, headers=HTMX).text
        assert page.count("08:30 C") == 5
        assert "2 cases" in page
        assert "<html" not in page
        page = client.post(f"{PAGE}preview/", FORM | {"tag": "nothing", "cron": "x"}, headers=HTMX).text
        assert "Five fields are needed" in page
        assert "No active case is chosen" in page

    def test_it_is_paused_resumed_and_deleted(self, browse, inside, schedule) -> None:
        client = browse("admin")
        url = f"{PAGE}{schedule.pk}/"
        assert "Nightly is paused" in client.post(f"{url}pause/", follow=True).text
        assert not saved(inside).is_enabled
        assert "Nightly goes on" in client.post(f"{url}resume/", follow=True).text
        assert "Yes, delete" in client.get(url).text
        assert "Nightly is deleted" in client.post(f"{url}delete/", follow=True).text
        with inside():
            assert not ReplaySchedule.objects.exists()

    def test_run_now_begins_one_and_says_why_not_another(self, browse, inside, schedule) -> None:
        client = browse("admin")
        client.post(f"{PAGE}{schedule.pk}/run/")
        page = client.post(f"{PAGE}{schedule.pk}/run/", follow=True).text
        assert "of this schedule is still going" in page
        assert "run by hand" in page
        with inside():
            assert Replay.objects.count() == 1

    def test_others_read_and_change_nothing(self, browse, outsider, schedule) -> None:
        client = browse("operator")
        page = client.get(f"{PAGE}{schedule.pk}/")
        assert page.status_code == 200
        assert '<fieldset class="plain stack" disabled>' in page.text
        assert "Run now" not in page.text
        assert "Run now" not in client.get(PAGE).text
        for name in ("save", "run", "pause", "resume", "delete", "rotate", "test"):
            assert client.post(f"{PAGE}{schedule.pk}/{name}/", FORM).status_code == 403
            assert outsider.post(f"{PAGE}{schedule.pk}/{name}/", FORM).status_code == 404
        for url in ("new/", "preview/"):
            assert client.post(f"{PAGE}{url}", FORM).status_code == 403
        assert outsider.get(PAGE).status_code == 404


class TestMessages:
    @pytest.fixture
    def row(self, inside, schedule, server: Server) -> ReplayNotification:
        """A message that the receiver did not take."""
        with inside():
            ReplaySchedule.objects.update(webhook_url=f"http://127.0.0.1:{server.port}/T1/key", notify_on="always")
            schedule.refresh_from_db()
            replay = make_replay(CaseFactory(), schedule=schedule, result={"verdict": "No regression shown."})
            (row,) = notify.after(replay)
            ReplayNotification.objects.update(state="failed", attempt=8, status=500, error="The receiver answered 500.")
            return row

    def test_what_was_sent_is_shown_and_sent_again(self, browse, inside, schedule, row) -> None:
        client = browse("admin")
        page = client.get(f"{PAGE}{schedule.pk}/").text
        assert "given up" in page
        assert "The receiver answered 500." in page
        assert "No regression shown." in page
        page = client.post(f"/t/acme/replays/notifications/{row.pk}/again/", follow=True).text
        assert "It is on its way again." in page
        assert "Send again" not in page
        page = client.post(f"/t/acme/replays/notifications/{row.pk}/again/", follow=True).text
        assert "on its way already" in page
        read = browse("viewer").get(f"{PAGE}{schedule.pk}/").text
        assert "T1/key" not in read
        assert "No regression shown." not in read

    def test_only_admins_of_the_tenant_send_again(self, browse, outsider, row) -> None:
        url = f"/t/acme/replays/notifications/{row.pk}/again/"
        assert browse("operator").post(url).status_code == 403
        assert outsider.post(url).status_code == 404
        assert outsider.post(url.replace("acme", "globex")).status_code == 404

    def test_a_test_says_what_came_of_it(self, browse, inside, server: Server) -> None:
        client = browse("admin")
        client.post(f"{PAGE}new/", FORM | {"webhook_url": f"http://127.0.0.1:{server.port}/"})
        url = f"{PAGE}{saved(inside).pk}/test/"
        server.answers = [Answer(204), Answer(404)]
        assert "it answered 204" in client.post(url).text
        assert "The receiver answered 404." in client.post(url).text
        assert [asked.method for asked in server.seen] == ["POST", "POST"]


class TestFollowUp:
    @pytest.fixture
    def disputed(self, inside) -> Replay:
        ada = UserFactory(name="Ada")
        with inside():
            replay = make_replay(Case.objects.get(number=1), counts=(0, 3))
            findings.dispute(replay, 1, sample_id=None, note="<b>Both</b> spellings are right.", by=ada)
            return replay

    def test_disputes_wait_on_a_page_and_are_settled_there(self, browse, disputed) -> None:
        client = browse("operator")
        page = client.get("/t/acme/replays/disputes/")
        assert "REG-1" in page.text
        assert "Ada" in page.text
        assert "&lt;b&gt;Both" in page.text
        assert "Disputes (1)" in client.get(PAGE).text
        assert "Disputes (1)" in client.get("/t/acme/replays/").text
        finding = page.context["disputes"][0]
        client.post(f"/t/acme/replays/findings/{finding.pk}/settle/", {"outcome": "holds", "note": "It is Zürich."})
        page = client.get("/t/acme/replays/disputes/").text
        assert "No expectation is in dispute" in page
        assert "Expectation holds" in page
        assert "It is Zürich." in page

    @pytest.fixture
    def flaky(self, inside) -> None:
        with inside():
            schedule, case = make_schedule(), Case.objects.get(number=1)
            for number in (1, 2, 3):
                slot = FIRST_NIGHT + dt.timedelta(days=number)
                replay = make_replay(case, counts=(1, 3), schedule=schedule, slot=slot)
                quarantine.propose_after(replay)

    def test_a_flaky_case_goes_into_quarantine_and_out_again(self, browse, inside, flaky) -> None:
        client = browse("operator")
        url = "/t/acme/replays/quarantine/"
        page = client.get(url)
        proposal = page.context["proposals"][0]
        assert "Quarantine (1)" in client.get(PAGE).text
        page = client.post(f"{url}{proposal.pk}/accept/", follow=True).text
        assert "REG-1 is in quarantine" in page
        assert "Release" in page
        page = client.post(f"{url}{proposal.pk}/accept/", follow=True).text
        assert "decided meanwhile" in page
        page = client.post(f"{url}REG-1/release/", follow=True).text
        assert "REG-1 gates again, as version 3." in page
        with inside():
            actions = AuditEvent.objects.filter(object_type__in=["case", "quarantine"]).order_by("pk")
            assert [event.action for event in actions][-3:] == ["case.edited", "quarantine.accepted", "case.edited"]

    def test_a_proposal_is_dismissed_with_a_reason(self, browse, flaky) -> None:
        client = browse("operator")
        url = "/t/acme/replays/quarantine/"
        proposal = client.get(url).context["proposals"][0]
        assert "Say why" in client.post(f"{url}{proposal.pk}/dismiss/", follow=True).text
        page = client.post(f"{url}{proposal.pk}/dismiss/", {"reason": "The shop was down."}, follow=True).text
        assert "is not proposed again" in page
        assert "The shop was down." in page

    def test_viewers_look_and_outsiders_do_not(self, browse, outsider: Client, disputed, flaky) -> None:
        viewer = browse("viewer")
        for name in ("disputes", "quarantine"):
            page = viewer.get(f"/t/acme/replays/{name}/")
            assert page.status_code == 200
            assert '<form method="post"' not in page.text.partition("<main")[2]
            assert outsider.get(f"/t/acme/replays/{name}/").status_code == 404
        proposal = viewer.get("/t/acme/replays/quarantine/").context["proposals"][0]
        assert viewer.post(f"/t/acme/replays/quarantine/{proposal.pk}/accept/").status_code == 403
        assert viewer.post("/t/acme/replays/quarantine/REG-1/release/").status_code == 403
        assert outsider.post(f"/t/globex/replays/quarantine/{proposal.pk}/accept/").status_code == 404


def test_a_run_that_was_missed_says_so_at_its_schedule(browse, inside, schedule) -> None:
    with inside():
        now = timezone.now()
        ReplaySchedule.objects.update(next_at=now - dt.timedelta(hours=30))
    schedules.fire_due(now)
    page = browse("viewer").get(f"{PAGE}{schedule.pk}/").text
    assert "Missed: nobody looked in time" in page
