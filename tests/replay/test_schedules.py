"""Replays at set times: once a slot, over changes of clocks, two beats and runs that take long."""

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connections

from quality import tasks
from quality.models import Replay, ReplayCase, ReplaySchedule, ReplayState
from quality.replay import schedules
from quality.replay.schedules import ScheduleData, StillGoing
from quality.replay.wanted import RunSettings, SideSpec
from tenants import secrets
from tenants.models import AuditEvent, ModelEndpoint, Secret, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import CaseFactory
from tests.replay.rows import make_schedule

NIGHTLY = {"name": "Nightly", "cron": "0 2 * * *", "zone": "Europe/Berlin"}


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def nightly(**changes: Any) -> ScheduleData:
    return ScheduleData(**{"sides": (SideSpec(model_label="main"),), **NIGHTLY, **changes})


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message goes to the broker."""
    monkeypatch.setattr(tasks, "publish_aside", lambda _task, *args: None)


def furnish(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        ModelEndpoint.objects.create(label="main", base_url="https://llm.example.com/v1", model="m")
        CaseFactory()
        CaseFactory(tags=["smoke"])


@pytest.fixture
def ready(tenant: Tenant) -> Tenant:
    furnish(tenant)
    return tenant


@pytest.fixture
def admin(member: Callable[..., Any]) -> User:
    user: User = member("admin", user__email="ada@example.com", user__name="Ada").user
    return user


def due(tenant: Tenant, **fields: Any) -> ReplaySchedule:
    """A schedule whose first slot is on 1 March 2026 at 12:00."""
    with tenant_scope(tenant):
        return make_schedule(**{"cron": "0 12 * * *", "next_at": at("2026-03-01 12:00"), **fields})


def told(tenant: Tenant) -> list[tuple[dt.datetime, str, str]]:
    with tenant_scope(tenant):
        rows = Replay.objects.order_by("slot").values_list("slot", "state", "failure")
        return list(rows)


def end_all(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        Replay.objects.filter(state="queued").update(state=ReplayState.DONE, exit_code=0)


class TestSlots:
    def test_a_slot_begins_the_cases_that_match_then(self, ready, admin) -> None:
        schedule = due(ready, query="tag=smoke", settings={"samples": 3}, created_by=admin)
        assert schedules.fire_due(at("2026-03-01 11:59:59")) == 0
        assert schedules.fire_due(at("2026-03-01 12:00:05")) == 1
        with tenant_scope(ready):
            replay = Replay.objects.get()
            assert (replay.schedule, replay.slot, replay.state) == (schedule, at("2026-03-01 12:00"), "queued")
            assert (replay.name, replay.created_by, replay.num_expected) == (schedule.name, admin, 3)
            assert [row.number for row in ReplayCase.objects.all()] == [2]
            CaseFactory(tags=["smoke"])
        end_all(ready)
        assert schedules.fire_due(at("2026-03-02 12:00:05")) == 1
        with tenant_scope(ready):
            assert Replay.objects.order_by("-slot")[0].num_cases == 2

    def test_two_beats_begin_each_slot_once(self, ready, other_tenant) -> None:
        furnish(other_tenant)
        due(ready)
        due(other_tenant)
        together, begun = threading.Barrier(2), list[int]()

        def beat() -> None:
            for day in range(1, 6):
                together.wait(60)
                begun.append(schedules.fire_due(at(f"2026-03-0{day} 12:00:10")))
                together.wait(60)
                end_all(ready)
                end_all(other_tenant)
            connections.close_all()

        beats = [threading.Thread(target=beat) for _ in range(2)]
        for thread in beats:
            thread.start()
        for thread in beats:
            thread.join()
        assert sum(begun) == 10
        for tenant in (ready, other_tenant):
            assert [(slot.day, state) for slot, state, _ in told(tenant)] == [(day, "done") for day in range(1, 6)]

    def test_a_slot_begins_once_even_if_the_clock_goes_back(self, ready) -> None:
        due(ready)
        assert schedules.fire_due(at("2026-03-01 12:00:05")) == 1
        end_all(ready)
        with tenant_scope(ready):
            ReplaySchedule.objects.update(next_at=at("2026-03-01 12:00"))
        assert schedules.fire_due(at("2026-03-01 12:00:20")) == 0
        assert len(told(ready)) == 1

    @pytest.mark.parametrize(
        ("first", "slot"),
        [
            ("2026-03-28 22:30", "2026-03-29 01:00"),  # 02:30 is not there: right after the gap, at 03:00
            ("2026-10-24 21:30", "2026-10-25 00:30"),  # 02:30 is there twice: at the first
        ],
    )
    def test_a_night_has_one_run_when_clocks_change(self, ready, first: str, slot: str) -> None:
        due(ready, cron="30 2 * * *", zone="Europe/Berlin", next_at=at(slot))
        for number in range(36):
            schedules.fire_due(at(first) + dt.timedelta(minutes=10 * number))
            end_all(ready)
        assert told(ready) == [(at(slot), "done", "")]

    def test_what_was_missed_is_told_and_the_last_hour_is_caught_up(self, ready) -> None:
        due(ready, cron="0 * * * *")
        assert schedules.fire_due(at("2026-03-01 15:30")) == 1
        (missed, caught_up) = told(ready)
        assert missed[:2] == (at("2026-03-01 14:00"), "failed")
        assert missed[2].startswith("Missed: nobody looked in time")
        assert "So were the 2 slots before it, from 2026-03-01 12:00 UTC on." in missed[2]
        assert caught_up == (at("2026-03-01 15:00"), "queued", "")
        with tenant_scope(ready):
            assert ReplaySchedule.objects.get().next_at == at("2026-03-01 16:00")

    def test_a_slot_waits_for_the_run_before_and_is_missed_after_an_hour(self, ready) -> None:
        due(ready, cron="0 * * * *")
        assert schedules.fire_due(at("2026-03-01 12:00:05")) == 1
        assert schedules.fire_due(at("2026-03-01 13:00:05")) == 0
        assert schedules.fire_due(at("2026-03-01 13:40")) == 0
        assert len(told(ready)) == 1
        end_all(ready)
        assert schedules.fire_due(at("2026-03-01 13:45")) == 1
        assert schedules.fire_due(at("2026-03-01 15:10")) == 0
        *_, (slot, state, why) = told(ready)
        assert (slot, state) == (at("2026-03-01 14:00"), "failed")
        assert "of this schedule was still going" in why
        end_all(ready)
        assert schedules.fire_due(at("2026-03-01 15:20")) == 1
        assert told(ready)[-1][:2] == (at("2026-03-01 15:00"), "queued")

    def test_a_run_that_cannot_begin_is_told_as_one_that_failed(self, ready) -> None:
        due(ready, query="tag=nothing-has-it")
        due(ready, sides=[{"modelLabel": "gone"}])
        assert schedules.fire_due(at("2026-03-01 12:00:05")) == 0
        told_why = sorted(why for _, state, why in told(ready) if state == "failed")
        assert [why.partition(":")[0] for why in told_why] == ["It could not begin"] * 2
        assert "No active case is chosen" in told_why[0]
        assert "gone" in told_why[1]

    def test_a_schedule_that_is_paused_begins_nothing(self, ready, admin) -> None:
        schedule = due(ready)
        with tenant_scope(ready):
            schedules.switch_schedule(schedule, is_enabled=False, actor=admin)
        assert schedules.fire_due(at("2026-03-01 12:00:05")) == 0
        with tenant_scope(ready):
            resumed = schedules.switch_schedule(schedule, is_enabled=True, actor=admin, now=at("2026-03-03 13:00"))
            assert resumed.next_at == at("2026-03-04 12:00")  # nothing is made up for


class TestBaseline:
    def test_one_side_is_compared_with_the_run_before(self, ready, admin) -> None:
        schedule = due(ready)
        schedules.fire_due(at("2026-03-01 12:00:05"))
        end_all(ready)
        schedules.fire_due(at("2026-03-02 12:00:05"))
        with tenant_scope(ready):
            first, second = Replay.objects.order_by("slot")
            assert (first.baseline_replay, second.baseline_replay) == (None, first)
            Replay.objects.filter(pk=second.pk).update(state="failed")
            assert schedules.run_now(schedule, actor=admin).baseline_replay == first  # the last that came to its end

    def test_two_sides_and_none_have_no_earlier_run(self, ready) -> None:
        due(ready, baseline="none")
        due(ready, sides=[{"modelLabel": "main"}, {"modelLabel": "main", "tools": "current"}])
        for day in (1, 2):
            schedules.fire_due(at(f"2026-03-0{day} 12:00:05"))
            end_all(ready)
        with tenant_scope(ready):
            assert Replay.objects.count() == 4
            assert not Replay.objects.exclude(baseline_replay=None).exists()


class TestKeeping:
    @pytest.fixture(autouse=True)
    def scope(self, ready: Tenant, admin: User) -> Any:
        with tenant_scope(ready):
            yield

    def test_a_schedule_with_a_webhook_gives_its_secret_once(self, admin) -> None:
        kept = schedules.keep_schedule(nightly(webhook_url="https://hooks.example.com/x?key=1"), actor=admin)
        assert kept.secret is not None
        assert kept.secret.startswith("whsec_")
        assert secrets.read(kept.schedule.webhook_secret, used_by="test", run="1") == kept.secret
        again = schedules.keep_schedule(
            nightly(webhook_url="https://hooks.example.com/y"), actor=admin, pk=kept.schedule.pk
        )
        assert again.secret is None
        rotated = schedules.rotate_secret(again.schedule, actor=admin)
        assert rotated != kept.secret
        assert Secret.objects.count() == 1
        created = AuditEvent.objects.get(action="replay_schedule.created")
        assert created.detail["webhook"] == "https://hooks.example.com:443"  # the path may be a secret
        schedules.keep_schedule(nightly(), actor=admin, pk=kept.schedule.pk)
        assert not Secret.objects.exists()

    def test_deleting_takes_the_secret_along_and_leaves_the_replays(self, admin) -> None:
        schedule = schedules.keep_schedule(nightly(webhook_url="https://hooks.example.com/x"), actor=admin).schedule
        replay = schedules.run_now(schedule, actor=admin)
        schedules.delete_schedule(schedule, actor=admin)
        assert not Secret.objects.exists()
        assert Replay.objects.get().pk == replay.pk
        assert Replay.objects.get().schedule is None
        told = AuditEvent.objects.filter(object_type="replay_schedule").order_by("pk").values_list("action", flat=True)
        assert [action.partition(".")[2] for action in told] == ["created", "run", "deleted"]

    @pytest.mark.parametrize(
        ("change", "field", "told"),
        [
            ({"cron": "61 2 * * *"}, "cron", "“61” cannot stand for the minute"),
            ({"zone": "Mars/Olympus"}, "zone", "There is no time zone"),
            ({"name": " "}, "name", "cannot be blank"),
            ({"name": "Nightly\r\nBcc: x@example.com"}, "name", "one line"),
            ({"query": "colour=red"}, "query", "There is no filter colour"),
            ({"sides": ()}, "sides", "length >= 1"),
            ({"sides": (SideSpec(model_label="gone"),)}, "sides.0.modelLabel", "no enabled model"),
            (
                {"sides": (SideSpec(model_label="main"), SideSpec(model_label="main", style_id="x"))},
                "sides.1.styleId",
                "no style",
            ),
            ({"settings": RunSettings(judge_label="gone")}, "settings.judgeLabel", "no enabled model"),
            ({"settings": RunSettings(samples=0)}, "settings.samples", ">= 1"),
            ({"baseline": "best"}, "baseline", "not a valid choice"),
            ({"notify_on": "never"}, "notify_on", "not a valid choice"),
            ({"webhook_url": "http://169.254.169.254/"}, "webhook_url", "Nobody may call this address"),
            ({"webhook_url": "https://user:pass@example.com/"}, "webhook_url", "Nobody may call this address"),
            ({"emails": ("eve@example.com",)}, "emails", "no member’s address"),
            ({"emails": ("ada@example.com",)}, "emails", "no mail server"),
        ],
    )
    def test_what_cannot_be_names_its_fault(self, admin, change, field, told) -> None:
        with pytest.raises(ValidationError) as raised:
            schedules.keep_schedule(nightly(**change), actor=admin)
        assert list(raised.value.message_dict) == [field]
        assert told in raised.value.message_dict[field][0]
        assert not ReplaySchedule.objects.exists()

    def test_a_filter_that_matches_nothing_today_may_match_tomorrow(self, admin) -> None:
        kept = schedules.keep_schedule(nightly(query="?tag=new"), actor=admin)
        assert kept.schedule.query == "tag=new"

    def test_a_slot_that_is_due_this_moment_is_not_lost_by_another_name(self, admin) -> None:
        schedule = schedules.keep_schedule(nightly(), actor=admin).schedule
        ReplaySchedule.objects.update(next_at=at("2026-03-01 12:00"))
        kept = schedules.keep_schedule(nightly(name="Each night"), actor=admin, pk=schedule.pk)
        assert kept.schedule.next_at == at("2026-03-01 12:00")
        kept = schedules.keep_schedule(nightly(cron="0 3 * * *"), actor=admin, pk=schedule.pk)
        assert kept.schedule.next_at > at("2026-04-01 12:00")

    def test_pressing_run_now_twice_begins_one(self, admin) -> None:
        schedule = schedules.keep_schedule(nightly(), actor=admin).schedule
        replay = schedules.run_now(schedule, actor=admin)
        with pytest.raises(StillGoing, match=f"Replay {replay.pk} of this schedule is still going"):
            schedules.run_now(schedule, actor=admin)
        (listed,) = schedules.with_last_run()
        assert listed.last == replay
        assert list(schedules.history(schedule)) == [replay]


def test_another_tenant_reaches_no_schedule_of_this_one(ready, other_tenant, admin) -> None:
    with tenant_scope(ready):
        schedule = schedules.keep_schedule(nightly(), actor=admin).schedule
    with tenant_scope(other_tenant):
        assert schedules.with_last_run() == []
        with pytest.raises(ReplaySchedule.DoesNotExist):
            schedules.run_now(schedule, actor=admin)
        with pytest.raises(ReplaySchedule.DoesNotExist):
            schedules.keep_schedule(nightly(), actor=admin, pk=schedule.pk)
