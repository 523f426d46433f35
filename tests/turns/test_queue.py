"""How Celery is set up for what it carries."""

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured

from quality import tasks
from quality.celery import app, refuse_evicting_broker, transport


def test_a_message_is_given_to_another_worker_only_after_its_task_must_have_ended(settings) -> None:
    settings.REDIS_URL = "redis://localhost"
    visible_s = transport()["broker_transport_options"]["visibility_timeout"]
    limits = [app.conf.task_time_limit, *(task.time_limit or 0 for task in (tasks.import_traces, tasks.tick))]
    assert max(limits) < visible_s


def test_turns_have_a_queue_of_their_own() -> None:
    assert app.amqp.router.route({}, "quality.tasks.run_turn")["queue"].name == "turns"
    assert app.amqp.router.route({}, "quality.tasks.import_traces")["queue"].name == "celery"


@pytest.mark.redis
def test_a_broker_that_throws_messages_away_is_refused(redis_url: str, settings) -> None:
    settings.REDIS_URL = redis_url
    refuse_evicting_broker()
    with redis.from_url(redis_url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(ImproperlyConfigured, match="noeviction"):
                refuse_evicting_broker()
        finally:
            client.config_set("maxmemory-policy", "noeviction")


def test_a_broker_that_is_away_does_not_stop_the_start(settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    refuse_evicting_broker()
