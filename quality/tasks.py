"""Celery's side of the work: thin shells around use cases. Running one twice is harmless.

A message only says that there is a row; `tick` publishes again what a lost message or a lost worker left behind.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from django.db import close_old_connections, connections
from django.db.models import QuerySet
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

MAX_UNSENT = 1_000


def publish(task: Task, *args: Any) -> None:
    """Send a task's message. If the broker is down the sweep finds the row: logged, never raised."""
    try:
        task.delay(*args)
    except (OperationalError, OSError):
        logger.exception("%s%r was not published; the sweep will do it", task.name, args)


def publish_aside(task: Task, *args: Any) -> None:
    """The same in a thread, for messages that somebody waits behind: a broker that hangs makes nobody wait."""
    publisher = _publisher(os.getpid())
    if publisher._work_queue.qsize() > MAX_UNSENT:
        logger.warning("%s%r was not published: the broker does not keep up; the sweep will do it", task.name, args)
        return
    publisher.submit(publish, task, *args)


@cache
def _publisher(pid: int) -> ThreadPoolExecutor:
    """One for each process: threads do not survive a fork."""
    return ThreadPoolExecutor(1, "publish")


@shared_task(ignore_result=True, acks_late=False)
def run_turn(tenant_id: int, turn_id: int) -> None:
    """Wake the turns of this process. The row says which of them are to be run, and by whom."""
    from quality.turns.worker import process_worker

    process_worker().wake(tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def import_traces(tenant_id: int, import_id: int) -> None:
    from quality.ingest import importer

    importer.run_import(import_id, tenant=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def take_back_import(tenant_id: int, import_id: int) -> None:
    from quality.ingest import taking_back

    taking_back.run(import_id, tenant=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=300)
def read_spans(tenant_id: int, trace_id: int) -> None:
    """A trace that came over OTLP, if there is more of it than was read."""
    from quality.ingest import otlp_store

    otlp_store.run(trace_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=300)
def run_coach(tenant_id: int, run_id: int) -> None:
    from quality.improve.coach import runs

    runs.run(run_id, tenant=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=600)
def run_suggestions(tenant_id: int, run_id: int) -> None:
    """A slice of a run: more follow until it is done."""
    from quality.review.suggesting import runs

    runs.run(run_id, tenant=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def run_export(tenant_id: int, export_id: int) -> None:
    from quality import export_jobs

    export_jobs.run_export(export_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=240)  # below the message's lease
def deliver_notification(tenant_id: int, notification_id: int) -> None:
    from quality.replay import notify

    notify.deliver(notification_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=240)  # below the message's lease
def deliver_webhook(tenant_id: int, delivery_id: int) -> None:
    from quality.webhooks import outbox

    outbox.deliver(delivery_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def run_replay(tenant_id: int, replay_id: int) -> None:
    """A slice of a replay: more follow until it is done."""
    from quality.replay import run

    run.run_replay(replay_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def run_bulk_action(tenant_id: int, action_id: int) -> None:
    """Do, or undo, what is left of a bulk action."""
    from quality.review.bulk import run

    run.run(action_id, tenant=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=300)
def count_hours(tenant_id: int) -> None:
    """Hours of a tenant whose calls changed since they were counted."""
    from quality import rollups
    from tenants.scope import tenant_scope

    with tenant_scope(tenant_id):
        more = rollups.count_marked()
    if more:
        publish(count_hours, tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=300)
def make_hints(tenant_id: int) -> None:
    """Hints of a tenant's turns that wait; what is left after a minute goes into another message."""
    from quality.review import hinting

    if hinting.make(tenant_id):
        publish(make_hints, tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=300)
def fill_queue(tenant_id: int, queue_id: int) -> None:
    """A slice of what was ordered into a review queue; more follow until it is done."""
    from quality.review.queues import adding

    if adding.run(queue_id, tenant=tenant_id):
        publish(fill_queue, tenant_id, queue_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=120)
def refresh_queue(tenant_id: int, queue_id: int) -> None:
    """The order of a queue "most useful next", if labels came in since."""
    from quality.review.queues import refreshing

    refreshing.run(queue_id, tenant=tenant_id)


@shared_task(ignore_result=True, time_limit=60)
def tick() -> None:
    """What is due: imports, exports, replays and turns whose worker or message is gone, schedules, notifications,
    turns without hints or with those of older rules, events and files past their time. A step that fails is logged and
    tried again by the next tick; the others do not wait for it."""
    if "janitor" not in connections:
        logger.warning("DATABASE_JANITOR_URL is not set: what was lost is not taken up again.")
        return
    for name, step in _steps():
        try:
            step()
        except Exception:
            logger.exception("The tick could not do this: %s. The next one tries again.", name)
            close_old_connections()  # one that broke is of no use to the next step


def _steps() -> Sequence[tuple[str, Callable[[], object]]]:
    """What a tick does, in its order, by names for the log."""
    from quality import export_jobs, rollups
    from quality.improve.coach import runs as coach
    from quality.ingest import importer, otlp_store, taking_back, uploads
    from quality.replay import notify
    from quality.replay import run as replays
    from quality.replay import schedules as replay_schedules
    from quality.review import hinting
    from quality.review.bulk import run as bulk
    from quality.review.queues import adding, making, refreshing
    from quality.review.suggesting import runs as suggestions
    from quality.turns import events, leases, schedules
    from quality.webhooks import outbox
    from tenants import throttle

    return (
        ("imports", lambda: _publish_again(import_traces, importer.expired())),
        ("imports to be taken back", lambda: _publish_again(take_back_import, taking_back.lost())),
        ("traces to be read", lambda: _publish_again(read_spans, otlp_store.unread())),
        ("exports", lambda: _publish_again(run_export, export_jobs.lost())),
        ("runs of the coach", lambda: _publish_again(run_coach, coach.overdue())),
        ("suggestions", lambda: _publish_again(run_suggestions, suggestions.overdue())),
        ("bulk actions", lambda: _publish_again(run_bulk_action, bulk.lost())),
        ("previews of bulk actions", bulk.forget_previews),
        ("replays", lambda: _publish_again(run_replay, replays.lost())),
        ("turns", lambda: _publish_turns(leases.overdue(settings.TURN_SWEEP_S))),
        ("schedules of turns", schedules.fire_due),
        ("schedules of replays", replay_schedules.fire_due),
        ("notifications", notify.deliver_due),
        ("webhooks", outbox.deliver_due),
        ("hints of older rules", hinting.sweep_outdated),
        ("hints", lambda: _publish_each(make_hints, hinting.waiting())),
        ("counts by the hour", lambda: _publish_each(count_hours, rollups.waiting())),
        ("calls for queues", lambda: _publish_queues(fill_queue, adding.unfinished())),
        ("order of queues", lambda: _publish_queues(refresh_queue, refreshing.overdue())),
        ("deleted queues", making.purge),
        ("old events", events.delete_old),
        ("old spans", otlp_store.delete_old),
        ("old messages of webhooks", outbox.sweep_old),
        ("old exports", export_jobs.sweep),
        ("previews", importer.discard_undecided),
        ("uploads", uploads.sweep),
        ("tries to sign in", throttle.forget_old),
    )


def _publish_again(task: Task, rows: QuerySet[Any]) -> None:
    for tenant_id, pk in rows.values_list("tenant_id", "pk"):
        publish(task, tenant_id, pk)


def _publish_turns(turns: Iterable[tuple[int, int]]) -> None:
    for tenant_id, turn_id in turns:
        publish(run_turn, tenant_id, turn_id)


def _publish_queues(task: Task, queues: Iterable[tuple[int, int]]) -> None:
    for tenant_id, queue_id in queues:
        publish(task, tenant_id, queue_id)


def _publish_each(task: Task, tenants: Iterable[int]) -> None:
    for tenant_id in tenants:
        publish(task, tenant_id)
