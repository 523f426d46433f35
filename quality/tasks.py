"""Celery's side of the work: thin shells around use cases. Running one twice is harmless.

A message only says that there is a row; `tick` publishes again what a lost message or a lost worker left behind.
"""

import logging
from typing import Any

from celery import Task, shared_task
from django.db import connections
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


def publish(task: Task, *args: Any) -> None:
    """Send a task's message. If the broker is down the sweep finds the row: logged, never raised."""
    try:
        task.delay(*args)
    except (OperationalError, OSError):
        logger.exception("%s%r was not published; the sweep will do it", task.name, args)


@shared_task(acks_late=True, ignore_result=True, time_limit=3000)  # below the visibility timeout
def import_traces(tenant_id: int, import_id: int) -> None:
    from quality.ingest import importer

    importer.run_import(import_id, tenant=tenant_id)


@shared_task(ignore_result=True, time_limit=60)
def tick() -> None:
    """What is due: imports whose worker or message is gone."""
    from quality.ingest import importer

    if "janitor" not in connections:
        logger.warning("DATABASE_JANITOR_URL is not set: lost imports are not taken up again.")
        return
    for tenant_id, import_id in importer.expired().values_list("tenant_id", "pk"):
        publish(import_traces, tenant_id, import_id)
