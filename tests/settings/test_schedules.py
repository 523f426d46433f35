"""Schedules as people and programs keep them: pages and API, faults by field, roles, audit."""

import datetime as dt

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from quality.models import Schedule, ScheduleSlot, Turn, TurnRun
from quality.turns import schedules
from tenants.models import AuditEvent
from tenants.scope import tenant_scope

PAGE = "/t/acme/schedules/"
API = "/api/admin/schedules"
FORM = {
    "name": "Morning check",
    "text": "Is order 7 on its way?",
    "cron": "30 8 * * MON-FRI",
    "zone": "Europe/Berlin",
    "model_label": "",
    "style_id": "",
    "is_enabled": "on",
}
BODY = {"name": "Morning check", "text": "Is order 7 on its way?", "cron": "30 8 * * MON-FRI", "zone": "Europe/Berlin"}


@pytest.fixture
def schedule(inside, member) -> Schedule:
    with inside():
        data = schedules.ScheduleData(name="Hourly", text="Are you well?", cron="0 * * * *")
        return schedules.keep_schedule(data, actor=member("admin").user)


def audited(inside) -> list[str]:
    with inside():
        return list(
            AuditEvent.objects.filter(action__startswith="schedule.").order_by("pk").values_list("action", flat=True)
        )


class TestPages:
    def test_a_schedule_is_made_and_the_list_tells_when_it_comes(self, browse, inside):
        client = browse()
        assert "No schedule yet" in client.get(PAGE).text
        page = client.post(f"{PAGE}create/", FORM, follow=True).text
        assert "Morning check is saved" in page
        assert "At 08:30 on Monday through Friday" in page
        assert page.count("08:30 C") == 5  # five slots in the schedule's own zone, CET or CEST
        listed = client.get(PAGE).text
        assert "Morning check" in listed
        assert "Europe/Berlin" in listed
        assert "none yet" in listed
        assert audited(inside) == ["schedule.created"]

    def test_five_slots_are_shown_in_its_zone_and_in_the_viewers(self, browse):
        client = browse()
        client.cookies["tz"] = "Asia/Tokyo"
        page = client.post(f"{PAGE}preview/", {"cron": "0 12 * * *", "zone": "UTC"}).text
        assert page.count("12:00 UTC") == 5
        assert page.count("21:00 JST") == 5
        assert "<html" not in page

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"cron": "61 * * * *"}, "“61” cannot stand for the minute: 0–59"),
            ({"cron": "0 8 * * FUNDAY"}, "“FUNDAY” cannot stand for the weekday"),
            ({"cron": "every day"}, "Five fields are needed"),
            ({"cron": "0 0 30 2 *"}, "“30” cannot stand for the day of the month"),
            ({"cron": "* * * * * *"}, "this has 6"),
            ({"zone": "Mars/Olympus"}, "There is no time zone"),
            ({"text": "  "}, "Say what is sent"),
            ({"name": ""}, "required"),
            ({"style_id": "gone"}, "not one of the available choices"),
        ],
    )
    def test_what_cannot_be_is_told_back_with_what_was_written(self, browse, inside, change, told):
        page = browse().post(f"{PAGE}create/", FORM | change)
        assert page.status_code == 200
        assert told in page.text
        if "text" not in change:
            assert "Is order 7 on its way?" in page.text
        with inside():
            assert not Schedule.objects.exists()

    def test_two_schedules_of_one_name_are_refused(self, browse, schedule):
        assert "already exists" in browse().post(f"{PAGE}create/", FORM | {"name": "Hourly"}).text

    def test_it_is_paused_and_resumed(self, browse, inside, schedule):
        client = browse()
        assert "Hourly is paused" in client.post(f"{PAGE}{schedule.pk}/switch/", {}, follow=True).text
        with inside():
            assert Schedule.objects.get().due_at is None
            Schedule.objects.update(next_at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        client.post(f"{PAGE}{schedule.pk}/switch/", {"is_enabled": "on"})
        with inside():
            assert Schedule.objects.get().due_at > dt.datetime(2026, 1, 1, tzinfo=dt.UTC)  # nothing is made up for
        assert audited(inside) == ["schedule.created", "schedule.paused", "schedule.resumed"]

    def test_run_now_makes_one_turn_however_often_it_is_sent(self, browse, inside, schedule, settings):
        client = browse()
        for _ in range(2):
            page = client.post(f"{PAGE}{schedule.pk}/run/", {"nonce": "n-1"}, follow=True).text
        assert "is queued" in page
        assert "run by hand" in page
        with inside():
            turn = Turn.objects.get()
            assert TurnRun.objects.get().channel == "schedule"
            assert ScheduleSlot.objects.get().turn == turn
        assert f"/turns/{turn.pk}/" in client.get(PAGE).text
        client.post(f"{PAGE}{schedule.pk}/run/", {"nonce": "n-2"})
        with inside():
            assert Turn.objects.count() == 2
        assert audited(inside).count("schedule.run") == 2

    def test_missed_slots_are_in_the_history(self, browse, inside, schedule):
        with inside():
            ScheduleSlot.objects.create(
                schedule=schedule, slot=dt.datetime(2026, 3, 1, 8, tzinfo=dt.UTC), is_missed=True
            )
        page = browse("viewer").get(f"{PAGE}{schedule.pk}/").text
        assert "2026-03-01 08:00" in page
        assert "missed" in page

    def test_deleting_asks_first_and_leaves_the_turns(self, browse, inside, schedule):
        client = browse()
        client.post(f"{PAGE}{schedule.pk}/run/")
        page = client.get(f"{PAGE}{schedule.pk}/").text
        assert "Yes, delete" in page
        assert "Hourly is deleted" in client.post(f"{PAGE}{schedule.pk}/delete/", follow=True).text
        with inside():
            assert not Schedule.objects.exists()
            assert Turn.objects.count() == 1
        assert audited(inside)[-1] == "schedule.deleted"

    def test_a_viewer_reads_and_changes_nothing(self, browse, schedule):
        client = browse("operator")
        page = client.get(f"{PAGE}{schedule.pk}/")
        assert page.status_code == 200
        assert "disabled" in page.text
        assert "Run now" not in page.text
        assert client.get(PAGE).status_code == 200
        assert client.get(f"{PAGE}new/").status_code == 403
        for name in ("save", "switch", "run", "delete"):
            assert client.post(f"{PAGE}{schedule.pk}/{name}/", FORM).status_code == 403
        assert client.post(f"{PAGE}create/", FORM).status_code == 403

    def test_outsiders_get_404(self, outsider, schedule):
        assert outsider.get(PAGE).status_code == 404
        assert outsider.get(f"{PAGE}{schedule.pk}/").status_code == 404

    def test_the_list_takes_as_many_queries_for_twenty_as_for_one(
        self, browse, inside, schedule, django_assert_num_queries, member
    ):
        client = browse()
        actor = member("admin").user
        client.post(f"{PAGE}{schedule.pk}/run/")
        client.get(PAGE)
        with CaptureQueriesContext(connection) as for_one:
            client.get(PAGE)
        with inside():
            for number in range(20):
                data = schedules.ScheduleData(name=f"s{number}", text="Hello", cron="0 8 * * *")
                schedules.run_now(schedules.keep_schedule(data, actor=actor), actor=actor)
        with django_assert_num_queries(len(for_one)):
            assert "s19" in client.get(PAGE).text


class TestApi:
    def test_it_is_kept_read_changed_and_deleted(self, api, inside):
        client = api()
        made = client.post(API, BODY)
        assert made.status_code == 201, made.content
        told = made.json()
        assert (told["name"], told["zone"], told["enabled"], told["model"], told["slots"], told["last"]) == (
            "Morning check", "Europe/Berlin", True, "", [], None,
        )  # fmt: skip
        assert told["words"] == "At 08:30 on Monday through Friday"
        assert told["nextSlot"].endswith("Z")
        path = f"{API}/{told['id']}"
        changed = client.client.patch(path, {"enabled": False}, "application/json", headers=client.headers)
        assert changed.status_code == 200, changed.content
        assert (changed.json()["enabled"], changed.json()["nextSlot"], changed.json()["cron"]) == (
            False, None, BODY["cron"],
        )  # fmt: skip
        assert client.get(API).json()["schedules"][0]["id"] == told["id"]
        ran = client.post(f"{path}/run")
        assert ran.status_code == 201
        (slot,) = client.get(path).json()["slots"]
        assert (slot["turnId"], slot["byHand"], slot["missed"], slot["state"]) == (
            ran.json()["turnId"], True, False, "queued",
        )  # fmt: skip
        assert client.client.delete(path, headers=client.headers).status_code == 204
        assert client.get(path).status_code == 404
        assert audited(inside) == ["schedule.created", "schedule.changed", "schedule.run", "schedule.deleted"]
        with inside():
            assert set(
                AuditEvent.objects.filter(action__startswith="schedule.").values_list("token_id", flat=True)
            ) == {client.token.pk}

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"cron": "61 * * * *"}, "cron"),
            ({"zone": "Mars/Olympus"}, "zone"),
            ({"model": "gone"}, "model"),
            ({"styleId": "gone"}, "styleId"),
            ({"text": " "}, "text"),
            ({"name": None}, "name"),
            ({"createdBy": 1}, "createdBy"),
        ],
    )
    def test_faults_name_their_fields(self, api, inside, change, path):
        response = api().post(API, BODY | change)
        assert response.status_code == 400
        assert [error["path"] for error in response.json()["errors"]] == [path]
        with inside():
            assert not Schedule.objects.exists()

    def test_every_fault_is_told_at_once(self, api):
        response = api().post(API, BODY | {"cron": "x", "model": "gone", "styleId": "gone"})
        assert {error["path"] for error in response.json()["errors"]} == {"cron", "model", "styleId"}

    def test_read_is_enough_to_look_and_not_to_change(self, api, schedule):
        client = api("read")
        assert client.get(API).status_code == 200
        assert client.get(f"{API}/{schedule.pk}").status_code == 200
        assert client.post(API, BODY).status_code == 403
        assert client.post(f"{API}/{schedule.pk}/run").status_code == 403
        for send in (client.client.patch, client.client.delete):
            assert send(f"{API}/{schedule.pk}", {}, "application/json", headers=client.headers).status_code == 403

    def test_another_tenants_schedule_does_not_exist(self, api, other_tenant, member):
        theirs = member("admin", tenant=other_tenant).user
        with tenant_scope(other_tenant):
            data = schedules.ScheduleData(name="theirs", text="Hello", cron="0 8 * * *")
            pk = schedules.keep_schedule(data, actor=theirs).pk
        assert api().get(f"{API}/{pk}").status_code == 404
        assert api().post(f"{API}/{pk}/run").status_code == 404


def test_a_slot_that_is_due_is_not_lost_by_another_message(inside, member, schedule):
    due = dt.datetime(2026, 3, 1, 8, tzinfo=dt.UTC)
    with inside():
        Schedule.objects.update(next_at=due)
        data = schedules.ScheduleData(name="Hourly", text="Still well?", cron="0 * * * *")
        changed = schedules.keep_schedule(data, actor=member("admin").user, pk=schedule.pk)
        assert Schedule.objects.get().next_at == due
        data = schedules.ScheduleData(name="Hourly", text="Still well?", cron="5 * * * *")
        assert schedules.keep_schedule(data, actor=member("admin").user, pk=changed.pk).next_at > due
