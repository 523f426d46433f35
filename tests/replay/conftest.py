"""Replays for real: a model server over HTTP, and slices run as a worker runs them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quality import tasks
from tenants.models import Membership, Role, Tenant
from tests.replay.lab import Lab, Models


@pytest.fixture
def models(settings: Any) -> Iterator[Models]:
    with Models().serving() as models:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [models.port]
        yield models


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Messages that would have gone to the broker."""
    sent: list[tuple[str, int, int]] = []
    for name in ("publish", "publish_aside"):
        monkeypatch.setattr(tasks, name, lambda task, *args: sent.append((task.name, *args)))
    return sent


@pytest.fixture
def lab(
    tenant: Tenant, member: Callable[..., Membership], models: Models, published: list[tuple[str, int, int]]
) -> Lab:
    return Lab(tenant, member(Role.ADMIN).user, models)
