"""A tenant with reviewers, calls and queues."""

from collections.abc import Callable
from typing import Any

import pytest

from quality.models import QueueEntry, ReviewQueue, ToolCall
from quality.review.items import Item, item_of_call
from quality.review.queues import adding, making
from tenants.models import Membership, Role, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory

type Members = Callable[..., Membership]
type MakeQueue = Callable[..., ReviewQueue]


@pytest.fixture
def lead(member: Members) -> User:
    return member(Role.ADMIN, user__name="Lea").user


@pytest.fixture
def ada(member: Members) -> User:
    return member(user__name="Ada").user


@pytest.fixture
def bob(member: Members) -> User:
    return member(user__name="Bob").user


@pytest.fixture
def calls(tenant: Tenant) -> list[ToolCall]:
    """Six calls, newest first."""
    with tenant_scope(tenant):
        return [ToolCallFactory() for _ in range(6)]


@pytest.fixture
def make_queue(tenant: Tenant, lead: User) -> MakeQueue:
    """`make_queue(calls, labels_needed=2, …)`: a queue with these calls in it."""

    def make(calls: list[ToolCall] | tuple[ToolCall, ...] = (), **said: Any) -> ReviewQueue:
        with tenant_scope(tenant):
            name = f"Queue {ReviewQueue.objects.count() + 1}"
            queue = making.keep_queue(making.QueueData(**{"name": name, **said}), actor=lead)
            adding.add_items(queue, [item_of_call(call.pk) for call in calls], actor=lead)
            return queue

    return make


def items_of(tenant: Tenant, calls: list[ToolCall]) -> list[Item]:
    with tenant_scope(tenant):
        return [item_of_call(call.pk) for call in calls]


def entry_of(queue: ReviewQueue, call: ToolCall) -> QueueEntry:
    return QueueEntry.objects.get(queue=queue, call=call)
