"""Nights of a schedule, one after the other: begun by the tick, run against a model, told to a real receiver."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from quality.models import Replay, ReplayNotification, ReplaySchedule
from quality.replay import notify, quarantine, schedules
from quality.replay.schedules import Kept, ScheduleData
from quality.replay.wanted import RunSettings, SideSpec
from tenants.scope import tenant_scope
from tests.engine.loopback import Server, serving
from tests.replay.lab import Lab, Models

FIRST = dt.datetime(2026, 3, 1, 2, 0, tzinfo=dt.UTC)


@pytest.fixture
def server(models: Models, settings: Any) -> Iterator[Server]:
    with serving() as found:
        settings.OUTBOUND_ALLOW_PORTS = [models.port, found.port]
        yield found


@pytest.fixture
def kept(lab: Lab, server: Server) -> Kept:
    lab.endpoint("flaky")
    lab.cases(2)
    data = ScheduleData(
        name="Nightly",
        cron="0 2 * * *",
        sides=(SideSpec(model_label="flaky"),),
        settings=RunSettings(samples=8),
        notify_on="regression",
        webhook_url=f"http://127.0.0.1:{server.port}/hook",
    )
    with tenant_scope(lab.tenant):
        kept = schedules.keep_schedule(data, actor=lab.actor)
        ReplaySchedule.objects.update(next_at=FIRST)
        return kept


def night(lab: Lab, number: int) -> Replay:
    slot = FIRST + dt.timedelta(days=number - 1)
    assert schedules.fire_due(slot + dt.timedelta(seconds=20)) == 1
    with tenant_scope(lab.tenant):
        replay = Replay.objects.get(slot=slot)
    return lab.run(replay)


def deliver_all(lab: Lab) -> list[str]:
    with tenant_scope(lab.tenant):
        waiting = list(ReplayNotification.objects.filter(state="pending").values_list("pk", flat=True))
    for pk in waiting:
        notify.deliver(pk, tenant_id=lab.tenant.pk)
    with tenant_scope(lab.tenant):
        return list(ReplayNotification.objects.order_by("pk").values_list("state", flat=True))


def test_a_flaky_case_is_proposed_and_a_regression_is_told(lab: Lab, kept: Kept, server: Server) -> None:
    first, second = night(lab, 1), night(lab, 2)
    assert [row.is_flaky for row in lab.rows(second)] == [True, True]
    assert (first.baseline_replay_id, second.baseline_replay_id) == (None, first.pk)
    with tenant_scope(lab.tenant):
        assert quarantine.pending() == []
    third = night(lab, 3)
    assert (second.exit_code, third.exit_code) == (0, 0)  # as the night before: no regression shown
    with tenant_scope(lab.tenant):
        proposals = quarantine.pending()
        assert [each.case.number for each in proposals] == [1, 2]
        assert proposals[0].replay_ids == [third.pk, second.pk, first.pk]
        quarantine.accept(proposals[0], lab.actor)
    # The first night has nothing to be compared with, so each case has to pass: told. The others got no worse.
    assert deliver_all(lab) == ["sent"]

    lab.endpoint("flaky", model="right")
    assert night(lab, 4).exit_code == 0
    assert quarantine_of(lab) == [2]  # another model: nothing new is proposed
    lab.endpoint("flaky", model="wrong")
    fifth = night(lab, 5)
    rows = lab.rows(fifth)
    assert [(row.is_quarantined, row.candidate_passes) for row in rows] == [(True, 0), (False, 0)]
    assert fifth.exit_code == 1
    assert deliver_all(lab) == ["sent", "sent"]
    assert kept.secret is not None
    *_, asked = server.seen
    body = Webhook(kept.secret).verify(asked.body, dict(asked.headers))
    assert body["replay"]["id"] == fifth.pk
    assert body["replay"]["verdict"] == "Regression shown."
    assert [each["ref"] for each in body["failing"]] == ["REG-2"]  # what is in quarantine gates nothing
    assert body["schedule"]["slot"] == "2026-03-05T02:00:00Z"


def quarantine_of(lab: Lab) -> list[int]:
    """The cases that are proposed."""
    with tenant_scope(lab.tenant):
        return [each.case.number for each in quarantine.pending()]


def test_a_night_that_breaks_off_is_told_where_anything_but_a_pass_is(lab: Lab, kept: Kept, server: Server) -> None:
    with tenant_scope(lab.tenant):
        ReplaySchedule.objects.update(notify_on="not_passed")
    lab.models.broken = {1, 2}
    replay = night(lab, 1)
    assert replay.exit_code == 3
    assert deliver_all(lab) == ["sent"]
    body = Webhook(kept.secret or "").verify(server.seen[0].body, dict(server.seen[0].headers))
    assert (body["replay"]["exitCode"], body["failing"]) == (3, [])
    assert body["replay"]["counts"]["errors"] == 16
