"""A receiver on loopback, and a lab whose webhook names it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quality import tasks
from quality.models import Webhook, WebhookDelivery
from quality.webhooks import hooks, outbox
from quality.webhooks.hooks import Wanted
from tenants.models import Membership, Tenant, User
from tenants.scope import tenant_scope
from tests.engine.loopback import Server, serving


@pytest.fixture
def server(settings: Any) -> Iterator[Server]:
    with serving() as found:
        settings.OUTBOUND_ALLOW_CIDRS, settings.OUTBOUND_ALLOW_PORTS = ["127.0.0.1/32"], [found.port]
        yield found


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Messages that would have gone to the broker."""
    sent: list[tuple[Any, ...]] = []
    for name in ("publish", "publish_aside"):
        monkeypatch.setattr(tasks, name, lambda task, *args: sent.append((task.name, *args)))
    return sent


class Hooks:
    """Webhooks of acme."""

    def __init__(self, tenant: Tenant, admin: User, server: Server) -> None:
        self.tenant, self.admin, self.server = tenant, admin, server
        self.secret = ""

    def keep(self, *events: str, **fields: Any) -> Webhook:
        wanted = Wanted(
            **{"name": "Desk", "url": f"http://127.0.0.1:{self.server.port}/hook?key=k", "events": events or ("*",)}
            | fields
        )
        with tenant_scope(self.tenant):
            kept = hooks.keep(wanted, actor=self.admin)
        self.secret = kept.secret or self.secret
        return kept.webhook

    def hooks(self) -> list[Webhook]:
        with tenant_scope(self.tenant):
            return list(Webhook.objects.order_by("pk"))

    def written(self) -> list[WebhookDelivery]:
        with tenant_scope(self.tenant):
            return list(WebhookDelivery.objects.select_related("webhook").order_by("pk"))

    def deliver(self, row: WebhookDelivery, now: Any = None) -> WebhookDelivery:
        outbox.deliver(row.pk, tenant_id=self.tenant.pk, now=now)
        return self.seen(row)

    def seen(self, row: WebhookDelivery) -> WebhookDelivery:
        with tenant_scope(self.tenant):
            return WebhookDelivery.objects.select_related("webhook").get(pk=row.pk)


@pytest.fixture
def lab(
    tenant: Tenant,
    member: Callable[..., Membership],
    server: Server,
    published: list[tuple[Any, ...]],
    settings: Any,
) -> Hooks:
    settings.PUBLIC_URL = "https://lab.example.com"
    return Hooks(tenant, member("admin", user__name="Ada", user__email="ada@example.com").user, server)
