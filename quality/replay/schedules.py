"""Replays at set times, of the cases that match a filter then.

Slots are told as those of scheduled turns (`quality.turns.cron`), and each has one replay at most: its row has a unique
key. A slot waits while the run before is still going, or the tenant has as many replays as it may; when it is more than
an hour late it is missed. What was missed or could not begin is a failed replay that says so.
"""

import datetime as dt
import logging
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections, transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import languages
from quality.models import Replay, ReplaySchedule, ReplayState
from quality.models.replays import LIVE_REPLAYS
from quality.replay import ending, notify, plan, sides
from quality.replay.plan import RunSettings, SideSpec, Wanted
from quality.turns.cron import Passed, next_slot, passed_slots
from quality.webhooks import sending
from tenants import audit, outbound, secrets
from tenants.envelope import NoKeys
from tenants.models import ApiToken, Membership, Purpose, User
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

MAX_SCHEDULES = 50  # of one tenant
MAX_EMAILS = 20
MAX_URL_CHARS = 2_000

Baseline, NotifyOn = ReplaySchedule.Baseline, ReplaySchedule.NotifyOn


class StillGoing(Exception):
    """A replay of the schedule has not ended yet."""

    code = "still_going"

    def __init__(self, replay: Replay) -> None:
        super().__init__(
            _("Replay %(number)s of this schedule is still going. Wait for its end, or cancel it.")
            % {"number": replay.pk}
        )
        self.replay = replay


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleData:
    """What a person says of a schedule. `query` chooses the cases, as on their page; of two sides the first is the
    baseline; one side is compared with `baseline`. `emails` are addresses of members."""

    name: str
    cron: str
    zone: str = "UTC"
    is_enabled: bool = True
    query: str = ""
    sides: tuple[SideSpec, ...]
    settings: RunSettings = field(default_factory=RunSettings)
    baseline: str = Baseline.PREVIOUS
    notify_on: str = NotifyOn.REGRESSION
    webhook_url: str = ""
    emails: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """A schedule as it was saved. `secret` signs its webhook and is given this once, when it was made."""

    schedule: ReplaySchedule
    secret: str | None = None


@transaction.atomic
def keep_schedule(data: ScheduleData, *, actor: User, token: ApiToken | None = None, pk: int | None = None) -> Kept:
    """Make a schedule, or change the one with this `pk`, in the open scope. Raises ValidationError with each field at
    fault, ReplaySchedule.DoesNotExist."""
    if pk is None and ReplaySchedule.objects.count() >= MAX_SCHEDULES:
        raise ValidationError(
            _("A tenant keeps %(limit)s schedules of replays at most. Delete one first.") % {"limit": MAX_SCHEDULES}
        )
    # Locked, so that the tick does not tell another next slot at the same time.
    found = ReplaySchedule.objects.select_for_update()
    schedule = ReplaySchedule(created_by=actor) if pk is None else found.get(pk=pk)
    was_due = (schedule.cron, schedule.zone, schedule.is_enabled), schedule.next_at
    schedule.name, schedule.cron, schedule.zone = data.name.strip(), " ".join(data.cron.split()), data.zone.strip()
    schedule.is_enabled, schedule.query = data.is_enabled, data.query.strip().removeprefix("?")
    schedule.sides, schedule.settings = [side.to_json() for side in data.sides], data.settings.to_json()
    schedule.baseline, schedule.notify_on = data.baseline, data.notify_on
    schedule.webhook_url = data.webhook_url.strip()
    schedule.emails = list(dict.fromkeys(email.strip().lower() for email in data.emails))
    _check(schedule)
    is_due_as_before = pk is not None and was_due[0] == (schedule.cron, schedule.zone, schedule.is_enabled)
    if not is_due_as_before:  # a slot that is due this moment is not lost by another name or filter
        schedule.next_at = next_slot(schedule.cron, schedule.zone, timezone.now())
    schedule.full_clean(exclude=["next_at", "created_by", "webhook_secret", "sides", "settings", "emails"])
    schedule.save()
    secret = _keep_secret(schedule, actor, token)
    _record("replay_schedule.created" if pk is None else "replay_schedule.changed", schedule, actor, token)
    return Kept(schedule, secret)


@transaction.atomic
def switch_schedule(
    schedule: ReplaySchedule,
    *,
    is_enabled: bool,
    actor: User,
    token: ApiToken | None = None,
    now: dt.datetime | None = None,
) -> ReplaySchedule:
    """Pause or resume: slots that passed meanwhile are nobody's, the next one is told from now on."""
    schedule.is_enabled = is_enabled
    schedule.next_at = next_slot(schedule.cron, schedule.zone, now or timezone.now())
    schedule.save(update_fields=["is_enabled", "next_at"])
    _record("replay_schedule.resumed" if is_enabled else "replay_schedule.paused", schedule, actor, token)
    return schedule


@transaction.atomic
def delete_schedule(schedule: ReplaySchedule, *, actor: User, token: ApiToken | None = None) -> None:
    """The replays that it made stay; messages about them that have not left are not sent any more."""
    _record("replay_schedule.deleted", schedule, actor, token)
    secret = schedule.webhook_secret
    schedule.delete()
    if secret is not None:
        secrets.delete_secret(secret=secret, actor=actor, token=token)


@transaction.atomic
def rotate_secret(schedule: ReplaySchedule, *, actor: User, token: ApiToken | None = None) -> str:
    """A new secret for its webhook, given this once; the one before signs nothing any more. Raises ValidationError."""
    schedule = ReplaySchedule.objects.select_for_update().get(pk=schedule.pk)
    if not schedule.webhook_url:
        raise ValidationError({"webhook_url": ValidationError(_("Enter the webhook’s address first."), "required")})
    text = _make_secret(schedule, actor, token)
    _record("replay_schedule.secret_rotated", schedule, actor, token)
    return text


@transaction.atomic
def run_now(schedule: ReplaySchedule, *, actor: User, token: ApiToken | None = None) -> Replay:
    """Its replay at once, beside its slots. Raises StillGoing, and ValidationError as `plan.start` does."""
    schedule = ReplaySchedule.objects.select_for_update().get(pk=schedule.pk)
    if (going := _going(schedule)) is not None:
        raise StillGoing(going)
    replay = plan.start(wanted_by(schedule), actor=actor, token=token, schedule=schedule)
    _record("replay_schedule.run", schedule, actor, token, replay=replay.pk)
    return replay


def wanted_by(schedule: ReplaySchedule) -> Wanted:
    """What a run of it asks for now. Raises ValidationError if it was kept by an older release and cannot be read."""
    specs = tuple(SideSpec.from_json(side, path=f"sides.{at}") for at, side in enumerate(schedule.sides))
    previous = None
    if schedule.pk and len(specs) == 1 and schedule.baseline == Baseline.PREVIOUS:
        ended = Replay.objects.filter(schedule=schedule, state=ReplayState.DONE, exit_code__isnull=False)
        previous = ended.order_by("-created_at", "-pk").values_list("pk", flat=True).first()
    return Wanted(
        name=schedule.name,
        query=schedule.query,
        sides=specs,
        settings=RunSettings.from_json(schedule.settings, path="settings"),
        baseline_replay_id=previous,
    )


def history(schedule: ReplaySchedule) -> QuerySet[Replay]:
    """Its replays, the newest first, with what was missed."""
    runs: QuerySet[Replay] = Replay.objects.filter(schedule=schedule).select_related("created_by")
    return runs.order_by("-created_at", "-pk")


def with_last_run() -> list[Any]:
    """The schedules of the open scope's tenant by name, each with its newest replay as `last` (None: it has none)."""
    newest = Replay.objects.filter(schedule=OuterRef("pk")).order_by("-created_at", "-pk").values("pk")[:1]
    found: list[Any] = list(ReplaySchedule.objects.annotate(last_pk=Subquery(newest)).order_by("name"))
    runs = Replay.objects.in_bulk([one.last_pk for one in found if one.last_pk])
    for one in found:
        one.last = runs.get(one.last_pk)
    return found


def addresses() -> list[tuple[str, str]]:
    """E-mail address and name of each member who may be written to."""
    people = [each.user for each in Membership.objects.filter(user__is_active=True).select_related("user")]
    return sorted((user.email, user.name) for user in people)


# --- the tick --------------------------------------------------------------------------------------------------------


def fire_due(now: dt.datetime | None = None) -> int:
    """Begin what is due in every tenant; how many replays that made. Two that look at once make no more."""
    now = now or timezone.now()
    with connections["janitor"].cursor() as cursor:
        cursor.execute("SELECT tenant_id, id FROM replay_schedules WHERE is_enabled AND next_at <= %s", [now])
        due = cursor.fetchall()
    num_replays = 0
    for tenant_id, schedule_id in due:
        try:
            num_replays += _fire(tenant_id, schedule_id, now)
        except ValidationError as error:  # a zone that is gone, say; the other schedules are not to wait for it
            logger.error("Replay schedule %s of tenant %s does not fire: %s", schedule_id, tenant_id, error)
    return num_replays


def _fire(tenant_id: int, schedule_id: int, now: dt.datetime) -> int:
    with tenant_scope(tenant_id):
        # Whoever comes second waits here no longer than it takes, and then finds nothing due.
        schedule = (
            ReplaySchedule.objects.select_for_update(skip_locked=True)
            .filter(pk=schedule_id, is_enabled=True, next_at__lte=now)
            .first()
        )
        if schedule is None or schedule.next_at is None:
            return 0
        passed = passed_slots(schedule.cron, schedule.zone, schedule.next_at, now)
        waits_for = _waits_for(schedule)
        if waits_for and passed.fires is not None and not passed.missed:
            return 0  # the next tick looks again
        schedule.next_at = passed.fires if waits_for and passed.fires else passed.following
        schedule.save(update_fields=["next_at"])
        if passed.missed:
            _tell_missed(schedule, passed, waits_for)
        return 0 if passed.fires is None or waits_for else _begin(schedule, passed.fires)


def _begin(schedule: ReplaySchedule, slot: dt.datetime) -> int:
    try:
        with transaction.atomic():
            plan.start(wanted_by(schedule), actor=schedule.created_by, schedule=schedule, slot=slot)
    except IntegrityError:  # this slot has its replay: the clock went back
        return 0
    except ValidationError as error:
        _tell(schedule, slot, f"It could not begin: {' '.join(error.messages)}")
        return 0
    return 1


def _going(schedule: ReplaySchedule) -> Replay | None:
    replay: Replay | None = Replay.objects.filter(schedule=schedule, state__in=LIVE_REPLAYS).order_by("pk").first()
    return replay


def _waits_for(schedule: ReplaySchedule) -> str:
    """What keeps a slot of it waiting, or nothing."""
    if (going := _going(schedule)) is not None:
        return f"replay {going.pk} of this schedule was still going"
    if Replay.objects.filter(state__in=LIVE_REPLAYS).count() >= plan.MAX_LIVE:
        return f"{plan.MAX_LIVE} replays were going, which is as many as a tenant may have"
    return ""


def _tell_missed(schedule: ReplaySchedule, passed: Passed, waits_for: str) -> None:
    first, last = passed.missed[0], passed.missed[-1]
    why = waits_for or "nobody looked in time: the service was down, or busy"
    several = f" So were the {len(passed.missed) - 1} slots before it, from {first:%Y-%m-%d %H:%M} UTC on."
    _tell(schedule, last, f"Missed: {why}.{several if len(passed.missed) > 1 else ''}")


def _tell(schedule: ReplaySchedule, slot: dt.datetime, why: str) -> None:
    """A slot that came to nothing is a replay that failed, and is told as one."""
    replay, is_new = Replay.objects.get_or_create(
        schedule=schedule,
        slot=slot,
        defaults={
            "name": schedule.name,
            "state": ReplayState.FAILED,
            "failure": why,
            "query": schedule.query,
            "settings": schedule.settings,
            "created_by": schedule.created_by,
            "finished_at": timezone.now(),
        },
    )
    if is_new:
        ending.ended(replay)


# --- keeping ---------------------------------------------------------------------------------------------------------


def _keep_secret(schedule: ReplaySchedule, actor: User, token: ApiToken | None) -> str | None:
    """A webhook has a secret as long as it has an address."""
    if schedule.webhook_url and schedule.webhook_secret is None:
        return _make_secret(schedule, actor, token)
    if not schedule.webhook_url and (secret := schedule.webhook_secret) is not None:
        schedule.webhook_secret = None
        schedule.save(update_fields=["webhook_secret"])
        secrets.delete_secret(secret=secret, actor=actor, token=token)
    return None


def _make_secret(schedule: ReplaySchedule, actor: User, token: ApiToken | None) -> str:
    text = sending.new_secret()
    try:
        schedule.webhook_secret = secrets.set_secret(
            name=f"webhook:{schedule.pk}", value=text, actor=actor, token=token, purpose=Purpose.WEBHOOK
        )
    except NoKeys as error:
        raise ValidationError({"webhook_url": ValidationError(str(error), "no_keys")}) from error
    schedule.save(update_fields=["webhook_secret"])
    return text


def _check(schedule: ReplaySchedule) -> None:
    """What only the time, the guard and the tenant's other settings make wrong."""
    faults = _time_faults(schedule) | _asked_faults(schedule) | _address_faults(schedule)
    if schedule.name and any(ord(character) < 32 for character in schedule.name):
        faults["name"] = ValidationError(_("A name is one line."), "control_character")
    if faults:
        raise ValidationError(faults)


def _time_faults(schedule: ReplaySchedule) -> dict[str, ValidationError]:
    try:
        if next_slot(schedule.cron, schedule.zone, timezone.now()) is None:
            return {"cron": ValidationError(_("%(cron)s never comes.") % {"cron": repr(schedule.cron)}, "invalid_cron")}
    except ValidationError as error:
        return {name: found[0] for name, found in error.error_dict.items()}
    return {}


def _asked_faults(schedule: ReplaySchedule) -> dict[str, ValidationError]:
    """Of the cases, sides and settings, named as `plan.start` names them. That no case matches today is no fault."""
    faults: dict[str, ValidationError] = {}
    wanted = wanted_by(schedule)
    checks = [_check_sides, _check_judge, plan.chosen_cases] if 1 <= len(wanted.sides) <= 2 else []
    for check in (_check_bounds, *checks):
        try:
            check(wanted)
        except ValidationError as error:
            faults |= {name: found[0] for name, found in error.error_dict.items() if found[0].code != "no_cases"}
    return faults


def _check_bounds(wanted: Wanted) -> None:
    Wanted.from_json(wanted.to_json())


def _check_sides(wanted: Wanted) -> None:
    sides.frozen(wanted.sides)


def _check_judge(wanted: Wanted) -> None:
    if wanted.settings.judge_label:
        sides.endpoint_of(wanted.settings.judge_label, "settings.judgeLabel")


def _address_faults(schedule: ReplaySchedule) -> dict[str, ValidationError]:
    faults: dict[str, ValidationError] = {}
    if len(schedule.webhook_url) > MAX_URL_CHARS:
        faults["webhook_url"] = ValidationError(
            _("At most %(limit)s characters.") % {"limit": languages.number(MAX_URL_CHARS)}, "too_long"
        )
    elif schedule.webhook_url and (reason := outbound.url_fault(schedule.webhook_url)):
        faults["webhook_url"] = ValidationError(
            _("Nobody may call this address: %(why)s.") % {"why": reason}, "not_allowed"
        )
    known = {email for email, _ in addresses()}
    strangers = [email for email in schedule.emails if email not in known]
    if strangers:
        text = _("%(email)s is no member’s address. Invite them first, or take it out.") % {
            "email": repr(strangers[0][:254])
        }
        faults["emails"] = ValidationError(text, "no_such_member")
    elif len(schedule.emails) > MAX_EMAILS:
        faults["emails"] = ValidationError(_("At most %(limit)s addresses.") % {"limit": MAX_EMAILS}, "too_many")
    elif schedule.emails and not notify.can_mail():
        text = _("The operator of the service has set no mail server (EMAIL_URL). Take the addresses out.")
        faults["emails"] = ValidationError(text, "no_mail_server")
    return faults


def _record(action: str, schedule: ReplaySchedule, actor: User, token: ApiToken | None, **more: int) -> None:
    said = {name: getattr(schedule, name) for name in ScheduleData.__slots__}
    detail = {"name": schedule.name, "cron": schedule.cron, "zone": schedule.zone, **more}
    if schedule.webhook_url:
        detail["webhook"] = outbound.origin(schedule.webhook_url)  # the rest of an address may be a secret
    audit.record(
        action,
        object_type="replay_schedule",
        object_id=schedule.pk,
        actor=actor,
        token=token,
        after=None if action == "replay_schedule.deleted" else said,
        detail=detail,
    )
