"""The Celery application: workers run imports (and later turns), beat holds one static tick.

The truth of a job is a row in PostgreSQL; a message is a hint that carries an id, so a lost one costs time, never work.
"""

import logging
import os
from typing import Any

import redis
from celery import Celery
from celery.signals import worker_init, worker_process_shutdown, worker_ready, worker_shutdown
from kombu import Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "quality.settings")

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from quality import file_broker

logger = logging.getLogger(__name__)

app = Celery("quality")


def transport() -> dict[str, Any]:
    """Broker settings: Redis where there is one, else files in the state folder (one machine only)."""
    if settings.REDIS_URL:
        return {
            "broker_url": settings.REDIS_URL,
            "broker_transport_options": {
                "visibility_timeout": 3600,
                "unacked_restore_throttle": 1,
                "socket_timeout": 2,
                "socket_connect_timeout": 2,
                "retry_on_timeout": True,
            },
        }
    folder = settings.STATE_DIR / "broker"
    for name in ("messages", "control"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {
        "broker_url": f"{file_broker.SCHEME}://",
        "broker_transport_options": {
            "data_folder_in": str(folder / "messages"),
            "data_folder_out": str(folder / "messages"),
            "control_folder": str(folder / "control"),
            "polling_interval": 0.1,
        },
    }


app.conf.update(
    **transport(),
    task_acks_late=True,
    task_acks_on_failure_or_timeout=True,
    task_reject_on_worker_lost=False,  # rows and the sweep bring work back; requeueing would loop for ever
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    task_publish_retry_policy={"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "interval_max": 0.5},
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    # For the queue of other jobs, with the prefork pool; turns have deadlines of their own.
    task_time_limit=900,
    worker_max_tasks_per_child=200,
    broker_connection_retry_on_startup=True,
    broker_channel_error_retry=True,  # a Redis that is full refuses what a worker notes of a message: no reason to end
    timezone="UTC",
    # Turns have a queue of their own: they are many, mostly wait, and run on one event loop a process (threads pool).
    task_queues=[Queue("celery"), Queue("turns")],
    task_default_queue="celery",
    task_routes={"quality.tasks.run_turn": {"queue": "turns"}},
    beat_schedule={"tick": {"task": "quality.tasks.tick", "schedule": 15.0}},
    beat_schedule_filename=str(settings.STATE_DIR / "beat-schedule"),
)
app.autodiscover_tasks(["quality"])


@worker_init.connect
def refuse_unsafe_role(**_: object) -> None:
    """A worker whose database role could read every tenant does not start."""
    from tenants.start import refuse_unsafe_start

    let_go_of_locks()  # before the first query: a pool keeps the options that it was opened with
    refuse_unsafe_start()
    refuse_evicting_broker()


def let_go_of_locks() -> None:
    """A worker that is stopped in the middle of a transaction holds rows that nobody else can take up. So the database
    ends its session when the lease on them has passed: all of a worker's transactions are short."""
    options = settings.DATABASES["default"]["OPTIONS"]
    limit = f"-c idle_in_transaction_session_timeout={settings.TURN_LEASE_S * 1000:.0f}"
    options["options"] = f"{options.get('options', '')} {limit}".strip()


def refuse_evicting_broker() -> None:
    """A Redis that throws keys away when it is full would throw messages away, and say nothing."""
    if not settings.REDIS_URL:
        return
    try:
        with redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2) as client:
            policy = client.config_get("maxmemory-policy").get("maxmemory-policy", "noeviction")
    except redis.RedisError as error:  # it may be away for now, or a hosted one that hides its settings
        logger.warning("The broker's maxmemory-policy is not known: %s", error)
        return
    if policy != "noeviction":
        raise ImproperlyConfigured(
            f"REDIS_URL: maxmemory-policy is {policy}. Set it to noeviction: messages must not be thrown away."
        )


@worker_ready.connect
def look_for_turns(sender: Any, **_: object) -> None:
    """A worker of the queue `turns` begins with what is there already."""
    if "turns" in sender.app.amqp.queues.consume_from:
        from quality.turns.worker import process_worker

        process_worker().wake()


@worker_shutdown.connect
@worker_process_shutdown.connect
def give_turns_back(**_: object) -> None:
    """Let turns under way end, then give the others back."""
    from quality.turns.worker import stop_process_worker

    stop_process_worker()
