"""Celery's side of the work: thin shells around use cases. Running one twice is harmless.

A message only says that there is a row; `tick` publishes again what a lost message or a lost worker left behind.
"""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from django.db import connections
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


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def run_export(tenant_id: int, export_id: int) -> None:
    from quality import export_jobs

    export_jobs.run_export(export_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=240)  # below the message's lease
def deliver_notification(tenant_id: int, notification_id: int) -> None:
    from quality.replay import notify

    notify.deliver(notification_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def run_replay(tenant_id: int, replay_id: int) -> None:
    """A slice of a replay: more follow until it is done."""
    from quality.replay import run

    run.run_replay(replay_id, tenant_id=tenant_id)


@shared_task(acks_late=True, ignore_result=True, time_limit=300)
def make_hints(tenant_id: int) -> None:
    """Hints of a tenant's turns that wait; what is left after a minute goes into another message."""
    from quality.review import hinting

    if hinting.make(tenant_id):
        publish(make_hints, tenant_id)


@shared_task(ignore_result=True, time_limit=60)
def tick() -> None:
    """What is due: imports, exports, replays and turns whose worker or message is gone, schedules, notifications,
    turns without hints or with those of older rules, events and files past their time."""
    from quality import export_jobs
    from quality.improve.coach import runs as coach
    from quality.ingest import importer, otlp_store, taking_back
    from quality.replay import notify
    from quality.replay import run as replays
    from quality.replay import schedules as replay_schedules
    from quality.review import hinting
    from quality.turns import events, leases, schedules

    if "janitor" not in connections:
        logger.warning("DATABASE_JANITOR_URL is not set: what was lost is not taken up again.")
        return
    for tenant_id, import_id in importer.expired().values_list("tenant_id", "pk"):
        publish(import_traces, tenant_id, import_id)
    for tenant_id, import_id in taking_back.lost().values_list("tenant_id", "pk"):
        publish(take_back_import, tenant_id, import_id)
    for tenant_id, trace_id in otlp_store.unread().values_list("tenant_id", "pk"):
        publish(read_spans, tenant_id, trace_id)
    for tenant_id, export_id in export_jobs.lost().values_list("tenant_id", "pk"):
        publish(run_export, tenant_id, export_id)
    for tenant_id, run_id in coach.overdue().values_list("tenant_id", "pk"):
        publish(run_coach, tenant_id, run_id)
    for tenant_id, replay_id in replays.lost().values_list("tenant_id", "pk"):
        publish(run_replay, tenant_id, replay_id)
    for tenant_id, turn_id in leases.overdue(settings.TURN_SWEEP_S):
        publish(run_turn, tenant_id, turn_id)
    schedules.fire_due()
    replay_schedules.fire_due()
    notify.deliver_due()
    hinting.sweep_outdated()
    for tenant_id in hinting.waiting():
        publish(make_hints, tenant_id)
    events.delete_old()
    otlp_store.delete_old()
    export_jobs.sweep()
    importer.discard_undecided()
