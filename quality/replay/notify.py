"""Who is told that a scheduled replay has ended, and how it gets there.

A message is a row, written with the replay's end; a worker sends it, and tries again for a day. It is sent at least
once: a receiver drops what it has by the id, which is the same on each try. All but `deliver`, `deliver_due` and
`send_test` need an open tenant scope.
"""

import datetime as dt
import logging
import uuid
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.core.mail import EmailMessage, mailers
from django.db import transaction
from django.utils import timezone, translation

from engine import net
from quality import languages, tasks
from quality.cases.gate import Exit
from quality.models import Replay, ReplayNotification, ReplaySchedule, ReplayState
from quality.replay import messages
from quality.webhooks import sending, tries
from quality.webhooks.sending import Answer
from tenants import audit, outbound, secrets
from tenants.envelope import SecretInvalid
from tenants.models import ApiToken, Membership, Tenant, User
from tenants.scope import current_tenant_id, tenant_scope

logger = logging.getLogger(__name__)

Kind, NotifyOn = ReplayNotification.Kind, ReplaySchedule.NotifyOn

MAX_LISTED = 50
PUBLISHED_AT_ONCE = 200
_ANEW = ("message_id", "body", "state", "attempt", "next_at", "status", "error", "created_at", "sent_at")


class NotificationConflict(Exception):
    """The message is on its way already."""

    code = "notification_conflict"


@transaction.atomic
def after(replay: Replay) -> list[ReplayNotification]:
    """Write the messages about a replay that has ended, by its schedule's rule. A replay has each of them once; one
    that was retried has them anew, in place of what was said of it before, and corrects that whatever the rule is."""
    schedule = replay.schedule
    if schedule is None or not (is_told(replay, schedule.notify_on) or _is_corrected(replay)):
        return []
    tenant = Tenant.objects.get(pk=current_tenant_id())
    wanted: list[ReplayNotification] = []
    if schedule.webhook_url:
        body = messages.webhook_body(replay, tenant)
        wanted.append(_message(replay, Kind.WEBHOOK, schedule.webhook_url, body))
    if schedule.emails:
        wanted += [_message(replay, Kind.EMAIL, email, _mail_for(email, replay, tenant)) for email in schedule.emails]
    if _was_retried(replay):
        ReplayNotification.objects.bulk_create(
            wanted,
            update_conflicts=True,
            unique_fields=["tenant", "replay", "kind", "target"],
            update_fields=_ANEW,
        )
    else:
        ReplayNotification.objects.bulk_create(wanted, ignore_conflicts=True)
    made = list(ReplayNotification.objects.filter(message_id__in=[each.message_id for each in wanted]).order_by("pk"))
    for row in made:
        _publish_on_commit(row)
    return made


def is_told(replay: Replay, rule: str) -> bool:
    """Does the rule ask for a message about how this replay ended? What a person cancelled is told to nobody."""
    if replay.state not in (ReplayState.DONE, ReplayState.FAILED):
        return False
    if rule == NotifyOn.REGRESSION:
        return replay.exit_code == Exit.FAILED
    return rule == NotifyOn.ALWAYS or replay.exit_code != Exit.PASSED


def _was_retried(replay: Replay) -> bool:
    return bool(replay.spent_before)


def _is_corrected(replay: Replay) -> bool:
    """Was something else said of it before somebody retried it?"""
    is_over = replay.state in (ReplayState.DONE, ReplayState.FAILED)
    return is_over and _was_retried(replay) and ReplayNotification.objects.filter(replay=replay).exists()


def of_schedule(schedule: ReplaySchedule) -> list[ReplayNotification]:
    """What was said of its replays, the newest first."""
    rows = ReplayNotification.objects.filter(replay__schedule=schedule).select_related("replay").defer("replay__result")
    return list(rows.order_by("-created_at", "-pk")[:MAX_LISTED])


def target_of(row: ReplayNotification, *, in_full: bool) -> str:
    """Where it goes, as people see it."""
    return sending.shown(row.target, in_full=in_full) if row.kind == Kind.WEBHOOK else row.target


def can_mail() -> bool:
    """Whether the operator has named a mail server."""
    return "default" in mailers


@transaction.atomic
def send_again(notification: ReplayNotification, *, actor: User, token: ApiToken | None = None) -> ReplayNotification:
    """Once more from the first try, under the same id. Raises NotificationConflict while it is on its way."""
    row: ReplayNotification = ReplayNotification.objects.select_for_update().get(pk=notification.pk)
    try:
        tries.again(row)
    except tries.OnItsWay as conflict:
        raise NotificationConflict(str(conflict)) from conflict
    detail = {"replay": row.replay_id, "kind": row.kind}
    audit.record(
        "notification.resent", object_type="notification", object_id=row.pk, actor=actor, token=token, detail=detail
    )
    _publish_on_commit(row)
    return row


def send_test(schedule_id: int, *, tenant_id: int, by: User) -> Answer:
    """Call a schedule's webhook now, with a message that says that it is a test. Opens scopes of its own.

    Raises ReplaySchedule.DoesNotExist.
    """
    with tenant_scope(tenant_id):
        schedule = ReplaySchedule.objects.select_related("webhook_secret").get(pk=schedule_id)
        tenant = Tenant.objects.get(pk=tenant_id)
        secret = _secret_of(schedule, run=f"test by {by.email}")
        if isinstance(secret, Answer):
            return secret
        guard, body = outbound.guard(), messages.test_body(schedule, tenant, timezone.now())
    return sending.post(guard, schedule.webhook_url, secret=secret, message_id=uuid.uuid4(), body=body)


# --- on the way ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Try:
    """One try at a message: all that is needed once the transaction is over."""

    row: ReplayNotification
    guard: net.Guard
    secret: str


def deliver_due(now: dt.datetime | None = None) -> int:
    """Publish what is due in every tenant, by turns; how many that were."""
    due = tries.due_by_turns(ReplayNotification, now or timezone.now(), PUBLISHED_AT_ONCE)
    for tenant_id, pk in due:
        tasks.publish(tasks.deliver_notification, tenant_id, pk)
    return len(due)


def deliver(notification_id: int, *, tenant_id: int, now: dt.datetime | None = None) -> Answer | None:
    """One try; None if it is not due, or another worker's. Opens scopes of its own: none is open while it is sent."""
    now = now or timezone.now()
    with tenant_scope(tenant_id):
        claimed = _claim(notification_id, now)
    if not isinstance(claimed, _Try):
        return claimed
    answer = _sent(claimed)
    with tenant_scope(tenant_id):
        tries.keep(claimed.row, answer, now)
    return answer


def _claim(notification_id: int, now: dt.datetime) -> _Try | Answer | None:
    row = tries.due(ReplayNotification.objects.select_related("replay__schedule__webhook_secret"), notification_id, now)
    if row is None:
        return None
    if row.attempt >= tries.MAX_TRIES:  # a worker was lost with the last one
        return tries.give_up(row, Answer(None, "The last try was broken off.", is_final=True))
    secret = _may_send(row)
    if isinstance(secret, Answer):
        return tries.give_up(row, secret)
    tries.begin(row, now)
    return _Try(row, outbound.guard(), secret)


def _may_send(row: ReplayNotification) -> str | Answer:
    """The secret to sign with (nothing for a mail); or why the message is not to be sent any more."""
    schedule = row.replay.schedule
    if schedule is None:
        return Answer(None, "Its schedule was deleted.", is_final=True)
    if row.kind == Kind.WEBHOOK:
        if schedule.webhook_url != row.target:
            return Answer(None, "The schedule names another address by now.", is_final=True)
        return _secret_of(schedule, run=f"notification {row.pk}")
    is_member = Membership.objects.filter(user__email=row.target, user__is_active=True).exists()
    if not is_member or row.target not in schedule.emails:
        return Answer(None, "The schedule writes to this address no more, or it is no member’s.", is_final=True)
    return ""


def _secret_of(schedule: ReplaySchedule, *, run: str) -> str | Answer:
    if schedule.webhook_secret is None:
        return Answer(None, "The webhook has no secret to sign with. Make a new one.", is_final=True)
    try:
        return secrets.read(schedule.webhook_secret, used_by=f"webhook of {schedule.name}", run=run)
    except SecretInvalid:
        return Answer(None, "The webhook’s secret cannot be read. Make a new one.", is_final=True)


def _sent(claimed: _Try) -> Answer:
    row = claimed.row
    if row.kind == Kind.WEBHOOK:
        return sending.post(claimed.guard, row.target, secret=claimed.secret, message_id=row.message_id, body=row.body)
    return _mailed(row)


def _mailed(row: ReplayNotification) -> Answer:
    """What a mail server says of itself goes to the operator's log; tenants are told what they can do."""
    if not can_mail():
        return Answer(None, "The operator of the service has set no mail server (EMAIL_URL).")
    subject, _, text = row.body.partition("\n\n")
    headers = {"Message-ID": f"<{row.message_id.hex}@quality-lab>", "Auto-Submitted": "auto-generated"}
    try:
        EmailMessage(subject, text, to=[row.target], headers=headers).send(using="default")
    except OSError as error:  # that of smtplib is one, too
        logger.warning("Mail %s did not leave: %s", row.pk, error)
        if hasattr(error, "recipients"):
            return Answer(None, "The mail server refuses this address.")
        return Answer(None, "The mail server did not take it. The operator of the service finds why in the log.")
    return Answer()


def _mail_for(email: str, replay: Replay, tenant: Tenant) -> str:
    """In the language that its reader set; English where none is set."""
    language = User.objects.filter(email=email).values_list("language", flat=True).first()
    with translation.override(languages.known(language or "") or settings.LANGUAGE_CODE):
        return messages.mail(replay, tenant)


def _message(replay: Replay, kind: str, target: str, body: str) -> ReplayNotification:
    return ReplayNotification(replay=replay, kind=kind, target=target, message_id=uuid.uuid4(), body=body)


def _publish_on_commit(row: ReplayNotification) -> None:
    transaction.on_commit(partial(tasks.publish, tasks.deliver_notification, row.tenant_id, row.pk))
