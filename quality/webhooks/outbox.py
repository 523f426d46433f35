"""From what happens to messages that are sent: a row each, written in the transaction of the event itself.

`deliver` and `deliver_due` open scopes of their own: none is open while a message travels. The rest needs one.
"""

import datetime as dt
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.db.models import Q
from django.utils import timezone

from engine import net
from quality import tasks
from quality.models import Webhook, WebhookDelivery
from quality.webhooks import events, sending, tries
from quality.webhooks.sending import Answer
from tenants import audit, outbound, secrets
from tenants.envelope import SecretInvalid
from tenants.models import AuditEvent, Tenant
from tenants.scope import current_tenant_id, tenant_scope

logger = logging.getLogger(__name__)

PUBLISHED_AT_ONCE = 200


def on_audited(sender: Any, rows: Sequence[AuditEvent], **more: Any) -> None:
    """Receiver of `tenants.audit.recorded`: tell the webhooks that ask for it. What fails here fails nothing else."""
    told = [row for row in rows if row.action in events.BY_ACTION]
    if not told:
        return
    try:
        with transaction.atomic():
            _write(told)
    except Exception:
        logger.exception("Webhooks were not told of %s", ", ".join(sorted({row.action for row in told})))


def _write(rows: Sequence[AuditEvent]) -> None:
    names = {events.BY_ACTION[row.action].name for row in rows}
    asked = Q(events__overlap=[*names, events.EVERY])
    hooks = list(Webhook.objects.filter(asked, is_enabled=True))
    if not hooks:
        return
    tenant = Tenant.objects.get(pk=current_tenant_id())
    written = [
        WebhookDelivery(webhook=hook, message_id=uuid.uuid4(), **vars(message))
        for message in events.messages_of(rows, tenant)
        for hook in hooks
        if message.event in hook.events or events.EVERY in hook.events
    ]
    for made in WebhookDelivery.objects.bulk_create(written)[:PUBLISHED_AT_ONCE]:  # the tick publishes the rest
        publish_on_commit(made)


def publish_on_commit(row: WebhookDelivery) -> None:
    transaction.on_commit(partial(tasks.publish_aside, tasks.deliver_webhook, row.tenant_id, row.pk))


# --- on the way ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Try:
    """One try at a message: all that is needed once the transaction is over."""

    row: WebhookDelivery
    url: str
    guard: net.Guard
    secret: str


def deliver(delivery_id: int, *, tenant_id: int, now: dt.datetime | None = None) -> Answer | None:
    """One try; None if it is not due, or another worker's."""
    now = now or timezone.now()
    with tenant_scope(tenant_id):
        claimed = _claim(delivery_id, now)
    if not isinstance(claimed, _Try):
        return claimed
    row = claimed.row
    answer = sending.post(claimed.guard, claimed.url, secret=claimed.secret, message_id=row.message_id, body=row.body)
    with tenant_scope(tenant_id):
        if answer.status == sending.GONE and not _disable(row.webhook, answer.error):
            answer = replace(
                answer, error="The receiver said that it is gone; the webhook was changed since.", is_final=False
            )
        tries.keep(row, answer, now)
    return answer


def _disable(hook: Webhook, why: str) -> bool:
    """Switch a webhook off that is gone. False if somebody has changed it since it was read, say its address, or has
    switched it on again: then what the old one says binds nobody."""
    same = Webhook.objects.filter(pk=hook.pk, url=hook.url, updated_at=hook.updated_at)
    if not same.update(is_enabled=False, disabled_why=why):
        return False
    detail = {"name": hook.name, "to": outbound.origin(hook.url), "why": why}
    audit.record("webhook.disabled", object_type="webhook", object_id=hook.pk, detail=detail)
    return True


def _claim(delivery_id: int, now: dt.datetime) -> _Try | Answer | None:
    row = tries.due(WebhookDelivery.objects.select_related("webhook__secret"), delivery_id, now)
    if row is None:
        return None
    if row.attempt >= tries.MAX_TRIES:  # a worker was lost with the last one
        return tries.give_up(row, Answer(None, "The last try was broken off.", is_final=True))
    if not row.webhook.is_enabled:
        return tries.give_up(row, Answer(None, "The webhook is disabled.", is_final=True))
    secret = secret_of(row.webhook, run=f"delivery {row.pk}")
    if isinstance(secret, Answer):
        return tries.give_up(row, secret)
    tries.begin(row, now)
    return _Try(row, row.webhook.url, outbound.guard(), secret)


def secret_of(hook: Webhook, *, run: str) -> str | Answer:
    """What signs its messages, or why none can be sent."""
    if hook.secret is None:
        return Answer(None, "The webhook has no secret to sign with. Make a new one.", is_final=True)
    try:
        return secrets.read(hook.secret, used_by=f"webhook {hook.name}", run=run)
    except SecretInvalid:
        return Answer(None, "The webhook’s secret cannot be read. Make a new one.", is_final=True)


def deliver_due(now: dt.datetime | None = None) -> int:
    """Publish what is due in every tenant, by turns; how many that were."""
    found = tries.due_by_turns(WebhookDelivery, now or timezone.now(), PUBLISHED_AT_ONCE)
    for tenant_id, pk in found:
        tasks.publish(tasks.deliver_webhook, tenant_id, pk)
    return len(found)


def sweep_old(now: dt.datetime | None = None) -> int:
    """Delete messages past WEBHOOK_KEEP_DAYS that are on their way no more; how many that were."""
    before = (now or timezone.now()) - dt.timedelta(days=settings.WEBHOOK_KEEP_DAYS)
    with connections["janitor"].cursor() as cursor:
        cursor.execute("SELECT DISTINCT tenant_id FROM webhook_deliveries WHERE created_at < %s", [before])
        found = [tenant_id for (tenant_id,) in cursor.fetchall()]
    deleted = 0
    for tenant_id in found:
        with tenant_scope(tenant_id):
            rows = WebhookDelivery.objects.filter(created_at__lt=before).exclude(state=tries.PENDING)
            deleted += rows.delete()[0]
    return deleted
