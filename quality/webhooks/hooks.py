"""Keeping webhooks: made, changed, tested, switched off; their messages listed and sent again.

All functions but `send_test` need an open tenant scope.
"""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from quality.models import Webhook, WebhookDelivery
from quality.webhooks import events, outbox, sending, tries
from quality.webhooks.sending import Answer
from tenants import audit, outbound, secrets
from tenants.envelope import NoKeys
from tenants.models import ApiToken, Purpose, Tenant, User
from tenants.scope import tenant_scope

MAX_WEBHOOKS = 20
MAX_URL_CHARS = 2_000
MAX_REPEATED = 10_000
PAGE_SIZE = 50


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A webhook as it is asked for. `events` are names of kinds, or `*`."""

    name: str
    url: str
    events: tuple[str, ...]
    is_enabled: bool = True


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A webhook as it was saved. `secret` is given this once, when it was made."""

    webhook: Webhook
    secret: str | None = None


def every() -> list[Webhook]:
    return list(Webhook.objects.select_related("created_by").order_by("name"))


@transaction.atomic
def keep(wanted: Wanted, *, actor: User, token: ApiToken | None = None, pk: int | None = None) -> Kept:
    """Make a webhook, or change one. Raises ValidationError by field, and Webhook.DoesNotExist."""
    rows = Webhook.objects.select_for_update()
    hook = Webhook(created_by=actor) if pk is None else rows.get(pk=pk)
    before = _said(hook) if pk is not None else None
    hook.name, hook.url, hook.events = wanted.name.strip(), wanted.url.strip(), list(dict.fromkeys(wanted.events))
    hook.is_enabled, hook.updated_at = wanted.is_enabled, timezone.now()
    if wanted.is_enabled:
        hook.disabled_why = ""
    _check(hook)
    hook.save()
    secret = _make_secret(hook, actor, token) if hook.secret is None else None
    _record("webhook.changed" if before else "webhook.created", hook, actor, token, before=before)
    return Kept(webhook=hook, secret=secret)


@transaction.atomic
def rotate_secret(hook: Webhook, *, actor: User, token: ApiToken | None = None) -> str:
    """A new secret, given this once; the one before signs nothing any more. Raises ValidationError."""
    text = _make_secret(hook, actor, token)
    _record("webhook.secret_rotated", hook, actor, token)
    return text


@transaction.atomic
def delete(hook: Webhook, *, actor: User, token: ApiToken | None = None) -> None:
    """With its messages and its secret."""
    _record("webhook.deleted", hook, actor, token, before=_said(hook))
    secret = hook.secret
    hook.delete()
    if secret is not None:
        secrets.delete_secret(secret=secret, actor=actor, token=token)


def send_test(pk: int, *, tenant_id: int, by: User) -> Answer:
    """Call it now, with a message that says that it is a test. Opens scopes of its own: none is open while it travels.

    Raises Webhook.DoesNotExist.
    """
    with tenant_scope(tenant_id):
        hook = Webhook.objects.select_related("secret").get(pk=pk)
        tenant = Tenant.objects.get(pk=tenant_id)
        secret = outbox.secret_of(hook, run=f"test by {by.email}")
        if isinstance(secret, Answer):
            return secret
        guard, body = outbound.guard(), events.test_body(hook.name, tenant, timezone.now())
    return sending.post(guard, hook.url, secret=secret, message_id=uuid.uuid4(), body=body)


def deliveries(
    hook: Webhook, *, state: str = "", event: str = "", before: int | None = None, page_size: int = PAGE_SIZE
) -> tuple[list[WebhookDelivery], int | None]:
    """Its messages, the newest first, and the id before which the next page begins (None: this was the last)."""
    rows = WebhookDelivery.objects.filter(webhook=hook)
    if state:
        rows = rows.filter(state=state)
    if event:
        rows = rows.filter(event=event)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: page_size + 1])
    return found[:page_size], found[page_size - 1].pk if len(found) > page_size else None


@transaction.atomic
def send_again(delivery: WebhookDelivery, *, actor: User, token: ApiToken | None = None) -> WebhookDelivery:
    """Once more from the first try, under the same id. Raises tries.OnItsWay, and ValidationError if it is disabled."""
    row = WebhookDelivery.objects.select_for_update(of=("self",)).select_related("webhook").get(pk=delivery.pk)
    _check_enabled(row.webhook)
    tries.again(row)
    _record("webhook.resent", row.webhook, actor, token, delivery=row.pk, event=row.event)
    outbox.publish_on_commit(row)
    return row


@transaction.atomic
def send_all_again(hook: Webhook, since: dt.datetime, *, actor: User, token: ApiToken | None = None) -> int:
    """All messages since a moment that were sent or given up, oldest first; how many. Raises ValidationError."""
    _check_enabled(hook)
    rows = WebhookDelivery.objects.filter(webhook=hook, created_at__gte=since).exclude(state=tries.PENDING)
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[: MAX_REPEATED + 1])
    if len(ids) > MAX_REPEATED:
        told = _("These are more than %(limit)s messages. Choose a later moment.")
        raise ValidationError({"since": ValidationError(told % {"limit": number_format(MAX_REPEATED)}, "too_many")})
    repeated = tries.all_again(WebhookDelivery.objects.filter(pk__in=ids))
    _record("webhook.replayed", hook, actor, token, since=since.isoformat(), messages=repeated)
    for row in WebhookDelivery.objects.filter(pk__in=ids[: outbox.PUBLISHED_AT_ONCE]).only("tenant_id", "pk"):
        outbox.publish_on_commit(row)  # the tick publishes the rest
    return repeated


def _check_enabled(hook: Webhook) -> None:
    if not hook.is_enabled:
        raise ValidationError(
            {"is_enabled": ValidationError(_("The webhook is disabled. Enable it first."), "disabled")}
        )


def _make_secret(hook: Webhook, actor: User, token: ApiToken | None) -> str:
    text = sending.new_secret()
    try:
        hook.secret = secrets.set_secret(
            name=f"webhook:hook-{hook.pk}", value=text, actor=actor, token=token, purpose=Purpose.WEBHOOK
        )
    except NoKeys as error:
        raise ValidationError({"url": ValidationError(str(error), "no_keys")}) from error
    hook.save(update_fields=["secret"])
    return text


def _check(hook: Webhook) -> None:
    hook.full_clean(exclude=["events", "secret", "created_by"], validate_constraints=False, validate_unique=False)
    faults = {}
    if Webhook.objects.filter(name=hook.name).exclude(pk=hook.pk).exists():
        faults["name"] = ValidationError(_("There is a webhook of this name already."), "taken")
    if any(ord(character) < 32 for character in hook.name):
        faults["name"] = ValidationError(_("A name is one line."), "control_character")
    if len(hook.url) > MAX_URL_CHARS:
        told = _("At most %(limit)s characters.") % {"limit": number_format(MAX_URL_CHARS)}
        faults["url"] = ValidationError(told, "too_long")
    elif reason := outbound.url_fault(hook.url):
        faults["url"] = ValidationError(_("Nobody may call this address: %(why)s.") % {"why": reason}, "not_allowed")
    if fault := _events_fault(hook.events):
        faults["events"] = fault
    if hook.pk is None and Webhook.objects.count() >= MAX_WEBHOOKS:
        told = _("At most %(limit)s webhooks. Delete one first.") % {"limit": MAX_WEBHOOKS}
        faults["name"] = ValidationError(told, "too_many")
    if faults:
        raise ValidationError(faults)


def _events_fault(names: Sequence[str]) -> ValidationError | None:
    if not names:
        return ValidationError(_("Choose at least one kind of event."), "required")
    unknown = [name for name in names if name != events.EVERY and name not in events.BY_NAME]
    if unknown:
        known = ", ".join([events.EVERY, *events.BY_NAME])
        told = _("%(given)s is no event. Use one of %(allowed)s.") % {"given": repr(unknown[0]), "allowed": known}
        return ValidationError(told, "unknown_event")
    return None


def _said(hook: Webhook) -> dict[str, object]:
    return {"name": hook.name, "url": hook.url, "events": hook.events, "is_enabled": hook.is_enabled}


def _record(
    action: str,
    hook: Webhook,
    actor: User,
    token: ApiToken | None,
    *,
    before: dict[str, object] | None = None,
    **more: object,
) -> None:
    detail = {"name": hook.name, "to": outbound.origin(hook.url), "events": hook.events, **more}  # paths may be secrets
    audit.record(
        action, object_type="webhook", object_id=hook.pk, actor=actor, token=token, before=before,
        after=_said(hook), detail=detail,
    )  # fmt: skip
