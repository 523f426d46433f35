"""Turns at set times: which there are, when they come next, and what became of them."""

import uuid
import zoneinfo
from functools import cache
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality.models import Schedule
from quality.pages.access import TenantRequest, tenant_view
from quality.turns import schedules
from quality.turns.create import MAX_TEXT_CHARS, TurnConflict
from quality.turns.cron import in_words, next_slots
from tenants.models import ModelEndpoint, Role, Style

MAX_HISTORY = 100
NUM_SLOTS = 5


@cache
def zone_names() -> list[str]:
    """Zones of regions, and UTC, as people look for them."""
    regions = [name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith("Etc/")]
    return ["UTC", *sorted(regions)]


class ScheduleForm(forms.Form):
    """Fields as `ScheduleData` has them."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=120)
    text = forms.CharField(
        label=gettext_lazy("Message"),
        max_length=MAX_TEXT_CHARS,
        strip=False,
        help_text=gettext_lazy("Sent to the agent as a user’s message."),
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    cron = forms.CharField(
        label=gettext_lazy("When (cron)"),
        max_length=120,
        help_text=gettext_lazy(
            "Minute, hour, day of the month, month, weekday. “30 8 * * MON-FRI”: at 08:30 on working days."
        ),
        widget=forms.TextInput(attrs={"placeholder": "30 8 * * MON-FRI", "spellcheck": "false", "class": "mono"}),
    )
    zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=64,
        help_text=gettext_lazy("Its clocks tell the hours, summer time included."),
        widget=forms.TextInput(attrs={"list": "zones", "spellcheck": "false", "autocomplete": "off"}),
    )
    model_label = forms.ChoiceField(label=gettext_lazy("Model"), required=False)
    style_id = forms.ChoiceField(label=gettext_lazy("Style"), required=False)
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        labels = ModelEndpoint.objects.order_by("label").values_list("label", flat=True)
        style_ids = Style.objects.order_by("style_id").values_list("style_id", flat=True)
        for name, default, values in (
            ("model_label", _("the one for schedules"), [*labels]),
            ("style_id", _("the default one"), [*style_ids]),
        ):
            if (kept := self.initial.get(name)) and kept not in values:
                values.append(kept)  # of a schedule that was made before it went away
            choices = [("", default), *((value, value) for value in values)]
            cast(forms.ChoiceField, self.fields[name]).choices = choices

    @classmethod
    def of(cls, schedule: Schedule) -> "ScheduleForm":
        return cls(initial=_initial(schedule))


def preview(cron: str, zone: str) -> dict[str, Any]:
    """When it comes, in words and as the next slots; or `cron_faults`."""
    if not cron.strip():
        return {}
    try:
        slots = next_slots(cron, zone.strip() or "UTC", timezone.now(), NUM_SLOTS)
        return {"words": in_words(cron), "slots": slots, "slot_zone": zone.strip() or "UTC"}
    except ValidationError as error:
        return {"cron_faults": error.messages}


def _form_page(request: TenantRequest, form: ScheduleForm, schedule: Schedule | None) -> HttpResponse:
    history = schedules.history(schedule)[:MAX_HISTORY] if schedule is not None else ()
    context = {
        "form": form,
        "schedule": schedule,
        "history": [(slot, schedules.is_by_hand(slot)) for slot in history],
        "zones": zone_names(),
        "nonce": uuid.uuid4().hex,
        **preview(form["cron"].value() or "", form["zone"].value() or ""),
    }
    return render(cast(HttpRequest, request), "settings/schedule.html", context)


def _schedule(pk: int) -> Schedule:
    return get_object_or_404(Schedule.objects.all(), pk=pk)


def _save(request: TenantRequest, schedule: Schedule | None) -> HttpResponse:
    form = ScheduleForm(request.POST, initial=_initial(schedule))
    if form.is_valid():
        try:
            saved = schedules.keep_schedule(
                schedules.ScheduleData(**form.cleaned_data),
                actor=request.user,
                pk=schedule.pk if schedule is not None else None,
            )
        except ValidationError as error:
            form.add_error(None, error)
        else:
            messages.success(request, _("%(name)s is saved.") % {"name": saved.name})
            return redirect("schedule-detail", slug=request.tenant.slug, pk=saved.pk)
    return _form_page(request, form, schedule)


def _initial(schedule: Schedule | None) -> dict[str, Any]:
    return {} if schedule is None else {name: getattr(schedule, name) for name in schedules.ScheduleData.__slots__}


@require_GET
@tenant_view()
def schedule_list(request: TenantRequest) -> HttpResponse:
    rows = [(schedule, in_words(schedule.cron)) for schedule in schedules.with_last_slot()]
    context = {"schedules": rows, "nonce": uuid.uuid4().hex}
    return render(cast(HttpRequest, request), "settings/schedules.html", context)


@require_GET
@tenant_view(Role.ADMIN)
def schedule_new(request: TenantRequest) -> HttpResponse:
    zone = timezone.get_current_timezone_name()
    return _form_page(request, ScheduleForm(initial={"zone": zone}), None)


@require_POST
@tenant_view(Role.ADMIN)
def schedule_preview(request: TenantRequest) -> HttpResponse:
    """When it will come, while it is written."""
    context = preview(request.POST.get("cron", "")[:120], request.POST.get("zone", "")[:64])
    return render(cast(HttpRequest, request), "settings/schedule.html#preview", context)


@require_POST
@tenant_view(Role.ADMIN)
def schedule_create(request: TenantRequest) -> HttpResponse:
    return _save(request, None)


@require_GET
@tenant_view()
def schedule_detail(request: TenantRequest, pk: int) -> HttpResponse:
    schedule = _schedule(pk)
    return _form_page(request, ScheduleForm.of(schedule), schedule)


@require_POST
@tenant_view(Role.ADMIN)
def schedule_save(request: TenantRequest, pk: int) -> HttpResponse:
    return _save(request, _schedule(pk))


@require_POST
@tenant_view(Role.ADMIN)
def schedule_switch(request: TenantRequest, pk: int) -> HttpResponse:
    schedule = _schedule(pk)
    is_enabled = request.POST.get("is_enabled") == "on"
    schedules.switch_schedule(schedule, is_enabled=is_enabled, actor=request.user)
    told = _("%(name)s goes on.") if is_enabled else _("%(name)s is paused.")
    messages.success(request, told % {"name": schedule.name})
    return redirect("schedule-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def schedule_run(request: TenantRequest, pk: int) -> HttpResponse:
    schedule = _schedule(pk)
    nonce = request.POST.get("nonce", "")
    try:
        turn = schedules.run_now(schedule, actor=request.user, nonce=nonce[:64])
    except TurnConflict:
        told = _("%(name)s was changed since this page was opened. Press Run now again.")
        messages.error(request, told % {"name": schedule.name})
    else:
        told = _("Turn %(number)s of %(name)s is queued.")
        messages.success(request, told % {"number": turn.pk, "name": schedule.name})
    return redirect("schedule-detail", slug=request.tenant.slug, pk=pk)


@require_POST
@tenant_view(Role.ADMIN)
def schedule_delete(request: TenantRequest, pk: int) -> HttpResponse:
    schedule = _schedule(pk)
    schedules.delete_schedule(schedule, actor=request.user)
    told = _("%(name)s is deleted. The turns that it made stay.")
    messages.success(request, told % {"name": schedule.name})
    return redirect("schedule-list", slug=request.tenant.slug)
