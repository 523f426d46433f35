"""The form of a replay schedule: a replay as it is asked for, when, what it is compared with and who is told."""

from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from quality.models import ReplaySchedule
from quality.pages.replay_form import SIDES, ReplayForm, of_settings
from quality.replay import schedules
from quality.replay.schedules import ScheduleData
from quality.replay.wanted import RunSettings, SideSpec
from quality.webhooks import sending

AGAINST: Final = {
    "previous": gettext_lazy("The run before, by its counts"),
    "none": gettext_lazy("Nothing: each case has to pass"),
    "side": gettext_lazy("A baseline that is asked each time as well"),
}


class ReplayScheduleForm(ReplayForm):
    """`data` is what it comes to. Cases are chosen by the filter alone: it is read anew for each run."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=120)
    cron = forms.CharField(
        label=gettext_lazy("When (cron)"),
        max_length=120,
        help_text=gettext_lazy("Minute, hour, day of the month, month, weekday. “0 2 * * *”: each night at 02:00."),
        widget=forms.TextInput(attrs={"placeholder": "0 2 * * *", "spellcheck": "false", "class": "mono"}),
    )
    zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=64,
        widget=forms.TextInput(attrs={"list": "zones", "spellcheck": "false", "autocomplete": "off"}),
    )
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)
    against = forms.ChoiceField(
        label=gettext_lazy("Compared with"), choices=list(AGAINST.items()), widget=forms.RadioSelect
    )
    notify_on = forms.ChoiceField(label=gettext_lazy("After"), choices=ReplaySchedule.NotifyOn.choices)
    webhook_url = forms.CharField(
        label=gettext_lazy("Webhook"),
        required=False,
        max_length=schedules.MAX_URL_CHARS,
        help_text=gettext_lazy("Called with POST and JSON, signed by the Standard Webhooks specification."),
        widget=forms.TextInput(
            attrs={"placeholder": "https://hooks.example.com/…", "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    emails = forms.MultipleChoiceField(
        label=gettext_lazy("E-mail"), required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        del self.fields["cases"], self.fields["baseline_replay"]
        people = [(email, f"{name} ({email})" if name else email) for email, name in schedules.addresses()]
        known = {email for email, _ in people}
        kept = [
            (email, _("%(email)s (no member)") % {"email": email})
            for email in self.initial.get("emails", ())
            if email not in known
        ]
        self._choose(("emails",), [*people, *kept])

    def clean(self) -> dict[str, Any]:
        return super().clean() | {"cases": ()}

    @property
    def schedule_data(self) -> ScheduleData:
        """Only of a valid form."""
        data, wanted = self.cleaned_data, self.wanted
        return ScheduleData(
            name=data["name"],
            cron=data["cron"],
            zone=data["zone"],
            is_enabled=data["is_enabled"],
            query=wanted.query,
            sides=wanted.sides,
            settings=wanted.settings,
            baseline="previous" if data["against"] == "previous" else "none",
            notify_on=data["notify_on"],
            webhook_url=data["webhook_url"],
            emails=tuple(data["emails"]),
        )

    def _field_of(self, path: str) -> str | None:
        return "against" if path == "baseline" else super()._field_of(path)

    @property
    def has_open_fold(self) -> bool:
        return super().has_open_fold or any(self[name].errors for name in ("on_miss", "miss_result"))


def initial_of(schedule: ReplaySchedule, *, may_configure: bool) -> dict[str, Any]:
    """What the form of a schedule begins with."""
    values = {name: getattr(schedule, name) for name in ("name", "cron", "zone", "is_enabled", "notify_on", "emails")}
    values["webhook_url"] = sending.shown(schedule.webhook_url, in_full=may_configure)
    try:
        values |= of_settings(RunSettings.from_json(schedule.settings))
        specs = [SideSpec.from_json(side) for side in schedule.sides]
    except ValidationError:  # kept by another release: it is asked for anew
        return values
    for name, spec in zip(SIDES[-len(specs) :], specs, strict=True):
        prompt = f"{spec.style_id}@{spec.style_version or ''}" if spec.style_id else ""
        values |= {f"{name}_model": spec.model_label, f"{name}_prompt": prompt, f"{name}_tools": spec.tools}
    query = QueryDict(schedule.query)
    values |= {name: query[name] for name in ("tool", "tag", "q", "proposal") if name in query}
    values["label"] = query.getlist("label")
    values["against"] = "side" if len(specs) == 2 else schedule.baseline
    return values


def as_sent(values: dict[str, Any]) -> ReplayScheduleForm:
    """The form as if these values had been sent, to say what they come to."""
    return ReplayScheduleForm({name: "" if value is None else value for name, value in values.items()})
