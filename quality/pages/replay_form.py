"""Starting a replay: which cases, what is asked with, how often; what it will take is told before it begins."""

import re
from collections.abc import Iterable
from typing import Any, Final, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from quality import languages
from quality.improve.cases import NoSuchCase, parse_ref
from quality.models import Case, CaseStatus, Label, Replay, ReplayCase, ReplaySide, ReplayState, Toolset
from quality.pages.access import TenantRequest, tenant_view
from quality.replay import plan
from quality.replay.wanted import (
    MAX_CONCURRENCY,
    MAX_REFS,
    MAX_SAMPLES,
    Budget,
    RunSettings,
    SideSpec,
    Wanted,
)
from tenants.models import ModelEndpoint, Role, Style, StyleVersion

MAX_VERSIONS: Final = 20  # of a style
MAX_TOOLSETS: Final = 20
MAX_REPLAYS: Final = 30
MAX_NAMED: Final = 12  # cases that the estimate names
SIDES: Final = ("baseline", "candidate")
ON_MISS: Final = {
    "stop": gettext_lazy("The sample ends; it is judged by what there is"),
    "fifo": gettext_lazy("The next recorded result of the same tool (drifted)"),
    "error": gettext_lazy("The tool says that it is not available"),
    "fixed": gettext_lazy("One given result"),
}
AGAINST: Final = {
    "none": gettext_lazy("Nothing: each case has to pass"),
    "side": gettext_lazy("A baseline that is asked now as well"),
    "replay": gettext_lazy("An earlier replay, by its counts"),
}
LIMITS: Final = ("calls", "tokens", "cost", "time")
OF_A_SIDE: Final[dict[str, str | Promise]] = {
    "candidate_model": gettext_lazy("Candidate model"),
    "candidate_prompt": gettext_lazy("Candidate prompt"),
    "candidate_tools": gettext_lazy("Candidate tools"),
    "baseline_model": gettext_lazy("Baseline model"),
    "baseline_prompt": gettext_lazy("Baseline prompt"),
    "baseline_tools": gettext_lazy("Baseline tools"),
}
"""Fields of the two sides with the side: alone they have the same label."""

BUDGETS: Final[dict[str, str | Promise]] = {
    "budget_calls": gettext_lazy("Requests of all"),
    "budget_tokens": gettext_lazy("Tokens of all"),
    "budget_cost": gettext_lazy("Cost of all"),
    "budget_time": gettext_lazy("Seconds of work of all"),
    "case_budget_calls": gettext_lazy("Requests of a case"),
    "case_budget_tokens": gettext_lazy("Tokens of a case"),
    "case_budget_cost": gettext_lazy("Cost of a case"),
    "case_budget_time": gettext_lazy("Seconds of work of a case"),
}


class ReplayForm(forms.Form):
    """A replay as it is asked for; `wanted` is what it comes to."""

    name = forms.CharField(
        label=gettext_lazy("Name"), required=False, max_length=120, help_text=gettext_lazy("To find it again.")
    )
    cases = forms.CharField(
        label=gettext_lazy("These cases"),
        required=False,
        max_length=80_000,
        help_text=gettext_lazy(
            "REG-1, 7, 12-20. Where some are named the filter is not used, and archived ones count too."
        ),
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "class": "mono"}),
    )
    q = forms.CharField(label=gettext_lazy("Text"), required=False, max_length=200)
    label = forms.MultipleChoiceField(
        label=gettext_lazy("Labels"), required=False, choices=Label.choices, widget=forms.CheckboxSelectMultiple
    )
    tool = forms.ChoiceField(label=gettext_lazy("Tool"), required=False)
    tag = forms.CharField(label=gettext_lazy("Tag"), required=False, max_length=200)
    proposal = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    candidate_model = forms.ChoiceField(label=gettext_lazy("Model"))
    candidate_prompt = forms.ChoiceField(label=gettext_lazy("Prompt"), required=False)
    candidate_tools = forms.ChoiceField(label=gettext_lazy("Tools"))
    against = forms.ChoiceField(
        label=gettext_lazy("Compared with"), choices=list(AGAINST.items()), widget=forms.RadioSelect
    )
    baseline_model = forms.ChoiceField(label=gettext_lazy("Model"), required=False)
    baseline_prompt = forms.ChoiceField(label=gettext_lazy("Prompt"), required=False)
    baseline_tools = forms.ChoiceField(label=gettext_lazy("Tools"), required=False)
    baseline_replay = forms.ChoiceField(label=gettext_lazy("Earlier replay"), required=False)

    samples = forms.IntegerField(
        label=gettext_lazy("Samples of each case"),
        required=False,
        min_value=1,
        max_value=MAX_SAMPLES,
        help_text=gettext_lazy("Empty: as many as each case asks for, else one."),
    )
    concurrency = forms.IntegerField(label=gettext_lazy("At once"), min_value=1, max_value=MAX_CONCURRENCY)
    on_miss = forms.ChoiceField(
        label=gettext_lazy("A call that no recorded result answers"), choices=list(ON_MISS.items())
    )
    miss_result = forms.CharField(label=gettext_lazy("The given result"), required=False, max_length=20_000)
    max_cycles = forms.IntegerField(label=gettext_lazy("Replies at most"), min_value=1, max_value=32)
    seed = forms.IntegerField(
        label=gettext_lazy("Seed"),
        required=False,
        min_value=0,
        max_value=2**31 - 1,
        help_text=gettext_lazy("Each sample adds its number. Empty: none is sent."),
    )
    confirm = forms.BooleanField(label=gettext_lazy("Ask suspects again with fresh samples"), required=False)
    judge = forms.ChoiceField(label=gettext_lazy("Who judges what no matcher can"), required=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, label in BUDGETS.items():
            whole = name.endswith(("calls", "tokens"))
            kind = forms.IntegerField if whole else forms.FloatField
            self.fields[name] = kind(label=str(label), required=False, min_value=1 if whole else None, max_value=10**12)
        models = [(one.label, f"{one.label} ({one.model})") for one in _models()]
        gone = self._given("candidate_model", "baseline_model") - {label for label, _ in models}
        asked = [*models, *((label, _("%(label)s (not there any more)") % {"label": label}) for label in sorted(gone))]
        self._choose(("candidate_model", "baseline_model"), asked)
        self._choose(("judge",), [("", _("Nobody")), *models])
        self._choose(("candidate_prompt", "baseline_prompt"), _prompts())
        self._choose(("candidate_tools", "baseline_tools"), _toolsets(self._given("candidate_tools", "baseline_tools")))
        self._choose(("tool",), [("", _("any")), *((name, name) for name in _tool_names(self._given("tool")))])
        self._choose(("baseline_replay",), _replays(self._given("baseline_replay")))

    def _choose(self, names: Iterable[str], choices: Any) -> None:
        for name in names:
            cast(forms.ChoiceField, self.fields[name]).choices = choices

    def _given(self, *names: str) -> set[str]:
        return {str(value) for name in names if (value := self.data.get(name, self.initial.get(name)))}

    def clean_cases(self) -> tuple[str, ...]:
        return tuple(named(self.cleaned_data["cases"]))

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        against = data.get("against")
        if against == "side" and not data.get("baseline_model"):
            self.add_error("baseline_model", _("Choose the model of the baseline."))
        if against == "replay" and not data.get("baseline_replay"):
            self.add_error("baseline_replay", _("Choose a replay that has ended."))
        if data.get("on_miss") == "fixed" and not data.get("miss_result"):
            self.add_error("miss_result", _("Write the result that such a call is answered with."))
        return data

    @property
    def query(self) -> str:
        """The filter of the cases as their page spells it."""
        query = QueryDict(mutable=True)
        for name in ("label", "tool", "tag", "proposal", "q"):
            value = self.cleaned_data.get(name)
            if value:
                query.setlist(name, [str(one) for one in value] if isinstance(value, list) else [str(value)])
        return query.urlencode()

    @property
    def wanted(self) -> Wanted:
        """Only of a valid form."""
        data = self.cleaned_data
        names = SIDES if data["against"] == "side" else ("candidate",)
        return Wanted(
            sides=tuple(self._side(name) for name in names),
            query="" if data["cases"] else self.query,
            cases=data["cases"],
            name=data["name"],
            baseline_replay_id=int(data["baseline_replay"]) if data["against"] == "replay" else None,
            settings=RunSettings(
                samples=data["samples"],
                concurrency=data["concurrency"],
                max_cycles=data["max_cycles"],
                on_miss=data["on_miss"],
                miss_result=data["miss_result"] if data["on_miss"] == "fixed" else "",
                seed=data["seed"],
                budget=self._budget("budget"),
                case_budget=self._budget("case_budget"),
                confirm=data["confirm"],
                judge_label=data["judge"],
            ),
        )

    def _side(self, name: str) -> SideSpec:
        data = self.cleaned_data
        style, _, version = data[f"{name}_prompt"].rpartition("@")
        return SideSpec(
            model_label=data[f"{name}_model"],
            style_id=style,
            style_version=int(version) if version else None,
            tools=data[f"{name}_tools"] or "recorded",
        )

    def _budget(self, prefix: str) -> Budget:
        return Budget(**{name: self.cleaned_data[f"{prefix}_{name}"] for name in LIMITS})

    def take(self, error: ValidationError) -> None:
        """Put the faults of a `Wanted` at the fields that they come from."""
        if not hasattr(error, "error_dict"):
            self.add_error(None, error)
            return
        for path, faults in error.error_dict.items():
            field = self._field_of(path)
            is_named = field or path == NON_FIELD_ERRORS
            told = faults if is_named else [f"{path}: {' '.join(fault.messages)}" for fault in faults]
            self.add_error(field, cast(Any, told))

    def _field_of(self, path: str) -> str | None:
        names = SIDES if self.cleaned_data.get("against") == "side" else ("candidate",)
        member = {"modelLabel": "model", "styleId": "prompt", "styleVersion": "prompt", "tools": "tools"}
        if (found := re.fullmatch(r"sides\.(\d)\.(\w+)", path)) and int(found[1]) < len(names):
            field = f"{names[int(found[1])]}_{member.get(found[2], found[2])}"
        else:
            plain = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", path.removeprefix("settings."))
            field = {"query": "q", "baseline_replay_id": "baseline_replay", "judge_label": "judge"}.get(
                plain, plain.replace(".", "_")
            )
        return field if field in self.fields else None

    # What the template shows, in its order.

    @property
    def filter_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("tool", "tag", "q")]

    @property
    def candidate_fields(self) -> list[forms.BoundField]:
        return [self[f"candidate_{name}"] for name in ("model", "prompt", "tools")]

    @property
    def baseline_fields(self) -> list[forms.BoundField]:
        return [self[f"baseline_{name}"] for name in ("model", "prompt", "tools")]

    @property
    def budget_fields(self) -> list[list[forms.BoundField]]:
        return [[self[f"{prefix}_{name}"] for name in LIMITS] for prefix in ("budget", "case_budget")]

    @property
    def has_open_fold(self) -> bool:
        """Something in the part that is folded away was set, or is wrong."""
        usual = RunSettings()
        inside = ["judge", "seed", *(field.name for fields in self.budget_fields for field in fields)]
        set_ = [name for name in inside if str(self[name].value() or "") not in ("", str(usual.seed))]
        return bool(set_) or any(self[name].errors for name in (*inside, "max_cycles", "concurrency"))


def named(text: str) -> list[str]:
    """The cases that a text names (`REG-1, 7, 12-20`) as REG-<number>, in its order. Raises ValidationError."""
    found: dict[str, None] = {}
    for word in re.split(r"[\s,;]+", text.strip()):
        if not word:
            continue
        span = re.fullmatch(r"(?:REG-)?(\d{1,9})\s*[-–]\s*(?:REG-)?(\d{1,9})", word, re.IGNORECASE)
        try:
            numbers = range(int(span[1]), int(span[2]) + 1) if span else [parse_ref(word)]
        except NoSuchCase as error:
            raise ValidationError(str(error)) from error
        if span and not numbers:
            raise ValidationError(_("%(span)s ends before it begins.") % {"span": word})
        if len(found) + len(numbers) > MAX_REFS:
            told = _("More than %(limit)s cases. Name fewer, or use the filter.")
            raise ValidationError(told % {"limit": languages.number(MAX_REFS)})
        found.update((f"REG-{number}", None) for number in numbers)
    return list(found)


def _models() -> Iterable[ModelEndpoint]:
    return ModelEndpoint.objects.filter(is_enabled=True).order_by("label")


def _tool_names(given: set[str]) -> list[str]:
    named = Case.objects.exclude(tool_name="").order_by().values_list("tool_name", flat=True).distinct()
    return sorted({*named, *given})


def _prompts() -> list[Any]:
    """As recorded, and each style in its newest versions."""
    groups: list[Any] = [("", _("As recorded in each case"))]
    for style in Style.objects.order_by("style_id"):
        numbers = StyleVersion.objects.filter(style=style).order_by("-number").values_list("number", flat=True)
        newest = _("%(style)s, newest (version %(version)s)") % {"style": style.style_id, "version": style.version}
        options = [(f"{style.style_id}@", newest)]
        options += [(f"{style.style_id}@{number}", f"{style.style_id}@{number}") for number in numbers[:MAX_VERSIONS]]
        groups.append((style.name or style.style_id, options))
    return groups


def _toolsets(given: set[str]) -> list[tuple[str, str]]:
    known = [(ReplaySide.Tools.RECORDED.value, _("As recorded in each case")), ("current", _("Today's"))]
    rows = Toolset.objects.defer("tools").order_by("-created_at")
    found = {one.sha256: one for one in [*rows.filter(sha256__in=given), *rows[:MAX_TOOLSETS]]}
    return known + [(sha256, _toolset_words(one)) for sha256, one in found.items()]


def _toolset_words(one: Toolset) -> str:
    day = date_format(timezone.localtime(one.created_at), "d M")
    told = _("Toolset %(sha256)s, %(day)s, tools: %(count)s")
    return told % {"sha256": one.sha256[:8], "day": day, "count": one.num_tools}


def _replays(given: set[str]) -> list[tuple[str, str]]:
    ended = Replay.objects.filter(state=ReplayState.DONE, exit_code__isnull=False).defer("result")
    rows = [*ended.filter(pk__in=[pk for pk in given if pk.isdecimal() and len(pk) < 19])]
    rows += ended.order_by("-created_at", "-pk")[:MAX_REPLAYS]
    return [("", _("none")), *{str(one.pk): _replay_words(one) for one in rows}.items()]


def _replay_words(one: Replay) -> str:
    name = one.name or _("Replay %(number)s") % {"number": one.pk}
    return f"{name}, {date_format(timezone.localtime(one.created_at), 'd M H:i')}"


# What the form begins with.


def first(request: TenantRequest) -> dict[str, Any]:
    """From the address: an earlier replay (`again`), named cases, or the filter of the page of cases."""
    usual = RunSettings()
    values = of_settings(usual) | {"against": "none", "candidate_tools": "recorded", "baseline_tools": "recorded"}
    if model := next(iter(_models()), None):
        values |= {"candidate_model": model.label, "baseline_model": model.label}
    if pk := request.GET.get("again", ""):
        values |= _of_replay(pk)
    values |= {name: request.GET[name] for name in ("cases", "tool", "tag", "q", "proposal") if request.GET.get(name)}
    if labels := [label for label in request.GET.getlist("label") if label]:
        values["label"] = labels
    return values


def _of_replay(pk: str) -> dict[str, Any]:
    replay = Replay.objects.defer("result").filter(pk=int(pk)).first() if pk.isdecimal() and len(pk) < 19 else None
    if replay is None:
        raise Http404(_("There is no such replay."))
    values = of_settings(RunSettings.from_json(replay.settings)) | {"name": replay.name}
    sides = ReplaySide.objects.filter(replay=replay).defer("tools").select_related("toolset").defer("toolset__tools")
    for side in sides:
        values |= _of_side(side)
    if len(sides) > 1:
        values["against"] = "side"
    elif replay.baseline_replay_id:
        values |= {"against": "replay", "baseline_replay": str(replay.baseline_replay_id)}
    if replay.query:
        query = QueryDict(replay.query)
        values |= {name: query[name] for name in ("tool", "tag", "q", "proposal") if name in query}
        values["label"] = query.getlist("label")
    else:
        numbers = ReplayCase.objects.filter(replay=replay).order_by("number").values_list("number", flat=True)
        values["cases"] = ", ".join(_spans(list(numbers)))
    return values


def _spans(numbers: list[int]) -> Iterable[str]:
    """`1, 2, 3, 7` as `1-3, 7`."""
    start = None
    for place, number in enumerate(numbers):
        start = number if start is None else start
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            yield f"REG-{start}" if start == number else f"{start}-{number}"
            start = None


def of_settings(settings: RunSettings) -> dict[str, Any]:
    values: dict[str, Any] = {
        "samples": settings.samples,
        "concurrency": settings.concurrency,
        "max_cycles": settings.max_cycles,
        "on_miss": settings.on_miss,
        "miss_result": settings.miss_result,
        "seed": settings.seed,
        "confirm": settings.confirm,
        "judge": settings.judge_label,
    }
    for prefix, budget in (("budget", settings.budget), ("case_budget", settings.case_budget)):
        values |= {f"{prefix}_{name}": getattr(budget, name) for name in LIMITS}
    return values


def _of_side(side: ReplaySide) -> dict[str, Any]:
    tools = side.toolset.sha256 if side.tools_from == ReplaySide.Tools.STORED and side.toolset else side.tools_from
    return {
        f"{side.name}_model": side.model_label,
        f"{side.name}_prompt": f"{side.style_id}@{side.style_version}" if side.style_id else "",
        f"{side.name}_tools": tools,
    }


def _swapped(data: QueryDict) -> QueryDict:
    """The sides the other way round."""
    swapped = data.copy()
    for name in ("model", "prompt", "tools"):
        one, other = (f"{side}_{name}" for side in SIDES)
        swapped[one], swapped[other] = data.get(other, ""), data.get(one, "")
    swapped["against"] = "side"
    return swapped


# The pages.


@require_http_methods(["GET", "POST"])
@tenant_view(Role.OPERATOR)
def replay_new(request: TenantRequest) -> HttpResponse:
    """The form with what it would take; sent, the replay is begun."""
    if request.method == "GET":
        values = first(request)
        form = ReplayForm(initial=values)
        return _page(
            request, form, ReplayForm({name: "" if value is None else value for name, value in values.items()})
        )
    if request.POST.get("do") == "swap":
        form = ReplayForm(_swapped(request.POST))
        return _page(request, form, form)
    form = ReplayForm(request.POST)
    if request.POST.get("do") == "estimate" or not form.is_valid():
        return _page(request, form, form, status=200 if form.is_valid() else 400)
    try:
        replay = plan.start(form.wanted, actor=request.user)
    except ValidationError as error:
        form.take(error)
        return _page(request, form, form, status=400)
    messages.success(cast(HttpRequest, request), _("It is on its way."))
    return redirect("replay-detail", slug=request.tenant.slug, pk=replay.pk)


@require_POST
@tenant_view(Role.OPERATOR)
def replay_estimate(request: TenantRequest) -> HttpResponse:
    """What the form as it is now would take."""
    return render(cast(HttpRequest, request), "quality/replay_new.html#estimate", estimated(ReplayForm(request.POST)))


def _page(request: TenantRequest, form: ReplayForm, sent: ReplayForm, *, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "has_models": bool(_models()),
        "has_cases": Case.objects.filter(status=CaseStatus.ACTIVE).exists(),
        **estimated(sent),
    }
    return render(cast(HttpRequest, request), "quality/replay_new.html", context, status=status)


def estimated(form: ReplayForm) -> dict[str, Any]:
    """How many cases, what it takes, or what stands in the way."""
    if not form.is_valid():
        told = [_told(form, name, " ".join(map(str, errors))) for name, errors in form.errors.items()]
        return {"estimate": None, "obstacles": told}
    try:
        wanted = form.wanted
        chosen = plan.chosen_cases(wanted)
        return {
            "num_cases": len(chosen),
            "named": [case.ref for case in chosen[:MAX_NAMED]],
            "num_more": max(0, len(chosen) - MAX_NAMED),
            "estimate": plan.estimate(wanted),
            "obstacles": [],
        }
    except ValidationError as error:
        return {"estimate": None, "obstacles": error.messages}


def _told(form: ReplayForm, field: str, faults: str) -> str:
    """What is wrong, after the name of the field that it is wrong in."""
    return faults if field == NON_FIELD_ERRORS else f"{_name_of(form, field)}: {faults}"


def _name_of(form: ReplayForm, field: str) -> str:
    return str(OF_A_SIDE.get(field, form[field].label))
