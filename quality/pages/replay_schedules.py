"""Replays at set times: which there are, when they come next, what became of them, and who was told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from quality.models import Replay, ReplayNotification, ReplaySchedule
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.replay_form import ReplayForm, estimated, first
from quality.pages.replay_schedule_form import ReplayScheduleForm, as_sent, initial_of
from quality.pages.replays import Verdict, verdict_of
from quality.pages.schedules import preview, zone_names
from quality.replay import findings, notify, quarantine, schedules
from quality.replay.notify import NotificationConflict
from quality.replay.schedules import Kept, StillGoing
from quality.turns.cron import in_words
from quality.webhooks.sending import Answer
from tenants.models import Role
from tenants.scope import tenant_scope

MAX_RUNS = 30
UNNAMED = "new"  # what a run would take does not wait for a name
NIGHTLY = {"cron": "0 2 * * *", "against": "previous", "notify_on": "regression", "is_enabled": True, "samples": 5}


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message as people see it."""

    row: ReplayNotification
    target: str


@require_GET
@tenant_view()
def replay_schedule_list(request: TenantRequest) -> HttpResponse:
    rows = [
        (each, in_words(each.cron), verdict_of(each.last) if each.last else None) for each in schedules.with_last_run()
    ]
    context = {
        "schedules": rows,
        "num_disputes": findings.num_open(),
        "num_proposals": quarantine.num_pending(),
        "can_mail": notify.can_mail(),
    }
    return render(cast(HttpRequest, request), "quality/replay_schedules.html", context)


@require_http_methods(["GET", "POST"])
@tenant_view(Role.ADMIN)
def replay_schedule_new(request: TenantRequest) -> HttpResponse:
    """The form with what a run would take. `?tool=`, `?tag=` and the like fill in the filter, as on the page of
    cases."""
    if request.method == "POST":
        return _saved(request, None)
    values = first(request) | NIGHTLY | {"zone": timezone.get_current_timezone_name()}
    return _page(request, ReplayScheduleForm(initial=values), None, sent=as_sent({"name": UNNAMED} | values))


@require_GET
@tenant_view()
def replay_schedule(request: TenantRequest, pk: int) -> HttpResponse:
    """One schedule: admins change it, others read it."""
    return _shown(request, _schedule(pk))


@require_POST
@tenant_view(Role.ADMIN)
def replay_schedule_save(request: TenantRequest, pk: int) -> HttpResponse:
    return _saved(request, _schedule(pk))


@require_POST
@tenant_view(Role.ADMIN)
def replay_schedule_preview(request: TenantRequest) -> HttpResponse:
    """When it will come and what a run would take, while it is written."""
    data = request.POST.copy()
    data["name"] = data.get("name") or UNNAMED
    context = _foreseen(ReplayScheduleForm(data))
    return render(cast(HttpRequest, request), "quality/replay_schedule.html#foreseen", context)


@require_POST
@tenant_view(Role.ADMIN)
def replay_schedule_step(request: TenantRequest, pk: int, step: str) -> HttpResponse:
    """Run it now, pause, resume, delete it, or give its webhook another secret."""
    return _STEPS[step](request, _schedule(pk))


@require_POST
@tenant_view(Role.ADMIN, scope=False)
def replay_schedule_test(request: TenantRequest, pk: int) -> HttpResponse:
    """Call its webhook with a message that says that it is a test. No transaction is open while it answers."""
    with tenant_scope(request.tenant):
        _schedule(pk)
    answer = notify.send_test(pk, tenant_id=request.tenant.pk, by=request.user)
    with tenant_scope(request.tenant):
        return _shown(request, _schedule(pk), answer=answer)


@require_POST
@tenant_view(Role.ADMIN)
def notification_again(request: TenantRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(ReplayNotification.objects.select_related("replay"), pk=pk)
    try:
        notify.send_again(row, actor=request.user)
    except NotificationConflict as conflict:
        messages.error(cast(HttpRequest, request), str(conflict))
    else:
        messages.success(cast(HttpRequest, request), _("It is on its way again."))
    if row.replay.schedule_id is None:
        return redirect("replay-schedule-list", slug=request.tenant.slug)
    return redirect("replay-schedule", slug=request.tenant.slug, pk=row.replay.schedule_id)


def _schedule(pk: int) -> ReplaySchedule:
    found: ReplaySchedule = get_object_or_404(ReplaySchedule.objects.all(), pk=pk)
    return found


def _saved(request: TenantRequest, schedule: ReplaySchedule | None) -> HttpResponse:
    initial = {} if schedule is None else initial_of(schedule, may_configure=True)
    form = ReplayScheduleForm(request.POST, initial=initial)
    if form.is_valid():
        try:
            kept = schedules.keep_schedule(
                form.schedule_data, actor=request.user, pk=schedule.pk if schedule is not None else None
            )
        except ValidationError as error:
            form.take(error)
        else:
            return _after_saving(request, kept)
    return _page(request, form, schedule, sent=form, status=400)


def _after_saving(request: TenantRequest, kept: Kept) -> HttpResponse:
    """A new secret is shown in the answer itself: nothing of it is kept for another page."""
    if kept.secret:
        return _shown(request, kept.schedule, secret=kept.secret)
    messages.success(cast(HttpRequest, request), _("%(schedule)s is saved.") % {"schedule": kept.schedule.name})
    return redirect("replay-schedule", slug=request.tenant.slug, pk=kept.schedule.pk)


def _run(request: TenantRequest, schedule: ReplaySchedule) -> HttpResponse:
    try:
        replay = schedules.run_now(schedule, actor=request.user)
    except StillGoing as going:
        messages.error(cast(HttpRequest, request), str(going))
    except ValidationError as error:
        messages.error(cast(HttpRequest, request), _("It could not begin: %(why)s") % {"why": " ".join(error.messages)})
    else:
        messages.success(cast(HttpRequest, request), _("%(schedule)s is on its way.") % {"schedule": schedule.name})
        return redirect("replay-detail", slug=request.tenant.slug, pk=replay.pk)
    return redirect("replay-schedule", slug=request.tenant.slug, pk=schedule.pk)


def _switch(request: TenantRequest, schedule: ReplaySchedule, *, is_enabled: bool) -> HttpResponse:
    schedules.switch_schedule(schedule, is_enabled=is_enabled, actor=request.user)
    told = _("%(schedule)s goes on.") if is_enabled else _("%(schedule)s is paused.")
    messages.success(cast(HttpRequest, request), told % {"schedule": schedule.name})
    return redirect("replay-schedule-list", slug=request.tenant.slug)


def _delete(request: TenantRequest, schedule: ReplaySchedule) -> HttpResponse:
    schedules.delete_schedule(schedule, actor=request.user)
    told = _("%(schedule)s is deleted. The replays that it made stay.")
    messages.success(cast(HttpRequest, request), told % {"schedule": schedule.name})
    return redirect("replay-schedule-list", slug=request.tenant.slug)


def _rotate(request: TenantRequest, schedule: ReplaySchedule) -> HttpResponse:
    try:
        secret = schedules.rotate_secret(schedule, actor=request.user)
    except ValidationError as error:
        messages.error(cast(HttpRequest, request), " ".join(error.messages))
        return redirect("replay-schedule", slug=request.tenant.slug, pk=schedule.pk)
    return _shown(request, _schedule(schedule.pk), secret=secret)


_STEPS: dict[str, Callable[[TenantRequest, ReplaySchedule], HttpResponse]] = {
    "run": _run,
    "pause": lambda request, schedule: _switch(request, schedule, is_enabled=False),
    "resume": lambda request, schedule: _switch(request, schedule, is_enabled=True),
    "delete": _delete,
    "rotate": _rotate,
}
STEPS = tuple(_STEPS)


def _shown(
    request: TenantRequest, schedule: ReplaySchedule, *, secret: str = "", answer: Answer | None = None
) -> HttpResponse:
    values = initial_of(schedule, may_configure=request.membership.may(Role.ADMIN))
    form = ReplayScheduleForm(initial=values)
    return _page(request, form, schedule, sent=as_sent(values), secret=secret, answer=answer)


def _page(
    request: TenantRequest,
    form: ReplayScheduleForm,
    schedule: ReplaySchedule | None,
    *,
    sent: ReplayScheduleForm,
    secret: str = "",
    answer: Answer | None = None,
    status: int = 200,
) -> HttpResponse:
    """`sent` is the form as it would be sent now, to say what it comes to."""
    may_configure = request.membership.may(Role.ADMIN)
    context = {
        "form": form,
        "schedule": schedule,
        "runs": _runs(schedule) if schedule is not None else (),
        "notifications": _notifications(schedule, may_configure) if schedule is not None else (),
        "zones": zone_names(),
        "can_mail": notify.can_mail(),
        "secret": secret,
        "answer": answer,
        **_foreseen(sent),
    }
    return render(cast(HttpRequest, request), "quality/replay_schedule.html", context, status=status)


def _foreseen(form: ReplayForm) -> dict[str, Any]:
    values = form.data
    return preview(values.get("cron", "")[:120], values.get("zone", "")[:64]) | estimated(form)


def _runs(schedule: ReplaySchedule) -> list[tuple[Replay, Verdict]]:
    return [(each, verdict_of(each)) for each in schedules.history(schedule)[:MAX_RUNS]]


def _notifications(schedule: ReplaySchedule, may_configure: bool) -> list[_Sent]:
    return [_Sent(row, notify.target_of(row, in_full=may_configure)) for row in notify.of_schedule(schedule)]
