"""Turns at set times: once a slot, over changes of clocks, restarts and two beats (W11)."""

import datetime as dt
import threading

import pytest
from django.core.exceptions import ValidationError
from django.db import connections

from quality.models import Schedule, ScheduleSlot, Turn, TurnRun
from quality.turns.cron import next_slot
from quality.turns.schedules import fire_due, save_schedule
from tenants.scope import tenant_scope


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def quiet(hints: list) -> None:
    """No message goes out."""


@pytest.fixture
def every_minute(tenant) -> Schedule:
    with tenant_scope(tenant):
        schedule = Schedule(name="check", text="Are you well?", cron="* * * * *", style_id="safe")
        return save_schedule(schedule, now=at("2026-03-01 11:59:30"))


def slots(tenant) -> list[tuple[dt.datetime, bool]]:
    with tenant_scope(tenant):
        return [(slot.slot, slot.is_missed) for slot in ScheduleSlot.objects.order_by("slot")]


def test_a_slot_that_is_due_becomes_a_turn(tenant, every_minute) -> None:
    assert fire_due(at("2026-03-01 11:59:59")) == 0
    assert fire_due(at("2026-03-01 12:00:05")) == 1
    with tenant_scope(tenant):
        turn = Turn.objects.get()
        assert (TurnRun.objects.get().channel, turn.state, turn.style_id) == ("schedule", "queued", "safe")
        assert "Are you well?" in turn.messages
        assert Schedule.objects.get().next_at == at("2026-03-01 12:01")


def test_two_beats_fire_ten_slots_ten_times(tenant, every_minute) -> None:
    together = threading.Barrier(2)

    def beat() -> None:
        for minute in range(10):
            together.wait(10)
            fire_due(at(f"2026-03-01 12:0{minute}:10"))
        connections.close_all()

    beats = [threading.Thread(target=beat) for _ in range(2)]
    for thread in beats:
        thread.start()
    for thread in beats:
        thread.join()
    assert len(slots(tenant)) == 10
    with tenant_scope(tenant):
        assert Turn.objects.count() == 10


def test_a_slot_fires_once_even_if_the_clock_goes_back(tenant, every_minute) -> None:
    assert fire_due(at("2026-03-01 12:00:05")) == 1
    with tenant_scope(tenant):
        Schedule.objects.update(next_at=at("2026-03-01 12:00"))
    assert fire_due(at("2026-03-01 12:00:20")) == 0
    assert len(slots(tenant)) == 1


def test_of_slots_missed_within_the_hour_the_last_one_fires(tenant, every_minute) -> None:
    assert fire_due(at("2026-03-01 12:04:30")) == 1
    assert slots(tenant) == [(at(f"2026-03-01 12:0{minute}"), minute < 4) for minute in range(5)]


def test_slots_missed_for_longer_do_not_fire(tenant) -> None:
    with tenant_scope(tenant):
        save_schedule(Schedule(name="daily", text="Hello", cron="0 8 * * *"), now=at("2026-03-01 00:00"))
    assert fire_due(at("2026-03-01 12:00")) == 0
    assert slots(tenant) == [(at("2026-03-01 08:00"), True)]
    assert fire_due(at("2026-03-02 08:00:10")) == 1


def test_a_schedule_that_is_switched_off_does_not_fire(tenant, every_minute) -> None:
    with tenant_scope(tenant):
        Schedule.objects.update(is_enabled=False)
    assert fire_due(at("2026-03-01 12:00:05")) == 0


def test_each_day_has_its_slot_when_clocks_change() -> None:
    """Berlin: forward on 29 March 2026 at 02:00, back on 25 October at 03:00."""

    def days(cron: str, first: str, number: int) -> list[str]:
        moment, found = at(first), []
        for _ in range(number):
            slot = next_slot(cron, "Europe/Berlin", moment)
            assert slot is not None
            found.append(f"{slot:%d %H:%M}")
            moment = slot
        return found

    assert days("0 8 * * *", "2026-03-28 00:00", 3) == ["28 07:00", "29 06:00", "30 06:00"]
    assert days("30 2 * * *", "2026-03-28 00:00", 3) == ["28 01:30", "29 01:00", "30 00:30"]
    assert days("30 2 * * *", "2026-10-24 00:00", 3) == ["24 00:30", "25 00:30", "26 01:30"]


def test_no_slot_is_told_again_in_the_second_of_two_like_hours() -> None:
    """At 02:10 winter time, the slot at 02:30 summer time has passed."""
    assert next_slot("30 2 * * *", "Europe/Berlin", at("2026-10-25 01:10")) == at("2026-10-26 01:30")


@pytest.mark.parametrize(
    ("first", "slot"),
    [
        ("2026-03-28 22:30", "2026-03-29 01:00"),  # 02:30 is not there: right after the gap, at 03:00
        ("2026-10-24 21:30", "2026-10-25 00:30"),  # 02:30 is there twice: at the first
    ],
)
def test_beats_fire_each_slot_once_while_clocks_change(tenant, first: str, slot: str) -> None:
    """Two beats look every ten minutes, in threads with connections of their own. Every hour is an hour, be it called
    as the one before; a fixed time comes once a day."""
    start = at(first) - dt.timedelta(minutes=5)
    with tenant_scope(tenant):
        for name, cron in (("hourly", "30 * * * *"), ("daily", "30 2 * * *")):
            save_schedule(Schedule(name=name, text="Hello", cron=cron, zone="Europe/Berlin"), now=start)
    together = threading.Barrier(2)

    def beat() -> None:
        for number in range(36):
            together.wait(10)
            fire_due(start + dt.timedelta(minutes=10 * number))
        connections.close_all()

    beats = [threading.Thread(target=beat) for _ in range(2)]
    for thread in beats:
        thread.start()
    for thread in beats:
        thread.join()
    with tenant_scope(tenant):
        daily = ScheduleSlot.objects.filter(schedule__name="daily")
        hourly = ScheduleSlot.objects.filter(schedule__name="hourly")
        assert [one.slot for one in daily] == [at(slot)]
        assert hourly.count() == 6
        assert Turn.objects.count() == 7
        assert not ScheduleSlot.objects.filter(is_missed=True).exists()


def test_a_restart_between_slots_loses_and_doubles_none(tenant, every_minute) -> None:
    """What is due is told by rows alone: a tick that knows nothing of the one before goes on where it was."""
    assert fire_due(at("2026-03-01 12:00:05")) == 1
    connections.close_all()  # beat and its worker are gone for two minutes
    assert fire_due(at("2026-03-01 12:02:40")) == 1
    assert fire_due(at("2026-03-01 12:02:41")) == 0
    assert slots(tenant) == [
        (at("2026-03-01 12:00"), False),
        (at("2026-03-01 12:01"), True),
        (at("2026-03-01 12:02"), False),
    ]


def test_after_a_long_rest_the_last_slot_still_fires(tenant, every_minute) -> None:
    assert fire_due(at("2026-03-08 12:00:30")) == 1
    assert slots(tenant)[-1] == (at("2026-03-08 12:00"), False)
    assert sum(is_missed for _, is_missed in slots(tenant)) < 1_200


def test_a_schedule_whose_zone_is_gone_does_not_hold_up_the_others(tenant, every_minute) -> None:
    with tenant_scope(tenant):
        save_schedule(Schedule(name="a", text="Hello", cron="* * * * *"), now=at("2026-03-01 11:59:30"))
        Schedule.objects.filter(name="a").update(zone="Atlantis/Capital")
    assert fire_due(at("2026-03-01 12:00:05")) == 1


@pytest.mark.parametrize(("field", "value"), [("cron", "every day"), ("zone", "Mars/Olympus")])
def test_a_schedule_that_cannot_be_names_its_fault(tenant, field: str, value: str) -> None:
    wanted = {"name": "x", "text": "Hello", "cron": "0 8 * * *", "zone": "UTC", field: value}
    with tenant_scope(tenant), pytest.raises(ValidationError) as raised:
        save_schedule(Schedule(**wanted))
    assert field in raised.value.message_dict
