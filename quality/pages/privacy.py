"""Privacy: which values are masked, for whom, and whether they are stored at all."""

from dataclasses import dataclass
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core import signing
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from quality import mask_trial
from quality.calls import tool_names
from quality.mask_trial import EXPORT, MAX_TEXT, NEWEST
from quality.pages.access import TenantRequest, tenant_view
from tenants import masks
from tenants.masking.patterns import PRESETS
from tenants.models import MaskRule, Role

MAX_EXPRESSION = 500  # characters
PRESET = "preset:"
UNDO_SALT, UNDO_SECONDS = "privacy.undo", 3600
FIELDS = ("name", "kind", "expression", "seen_by", "keeps_raw", "masks_exports", "is_enabled")
PRESET_WORDS: dict[str, Promise] = {
    "email": gettext_lazy("E-mail addresses"),
    "phone": gettext_lazy("Phone numbers"),
    "card": gettext_lazy("Card numbers"),
    "iban": gettext_lazy("Bank accounts (IBAN)"),
    "ip-address": gettext_lazy("IP addresses"),
}
EXAMPLE = """{
  "customer": {"full_name": "Alex Example", "email": "alex@example.com", "phone": "+44 20 7946 0958"},
  "payment": {"card": "4111 1111 1111 1111", "iban": "DE89 3704 0044 0532 0130 00"},
  "note": "Alex Example called from 192.0.2.10"
}"""


@dataclass(frozen=True, slots=True)
class Starter:
    """What a new rule begins with."""

    key: str
    words: str | Promise
    kind: str
    expression: str
    name: str


STARTERS = (
    *(Starter(name, PRESET_WORDS[name], MaskRule.Kind.PATTERN, f"{PRESET}{name}", name) for name in PRESETS),
    Starter("names", gettext_lazy("Members by name"), MaskRule.Kind.KEY, "full_name, phone", "person"),
    Starter("path", gettext_lazy("A place in JSON"), MaskRule.Kind.PATH, "$.customer.full_name", "customer"),
)


class MaskForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=32,
        help_text=gettext_lazy("Stands in each mark: {masked:email:1a2b3c4d}. Small letters, digits, dashes."),
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off", "class": "mono"}),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("How it finds values"), choices=MaskRule.Kind.choices, widget=forms.RadioSelect
    )
    expression = forms.CharField(
        label=gettext_lazy("What it finds"),
        max_length=MAX_EXPRESSION,
        widget=forms.TextInput(
            attrs={"spellcheck": "false", "autocomplete": "off", "class": "mono", "list": "expressions"}
        ),
    )
    seen_by = forms.ChoiceField(
        label=gettext_lazy("Who reads the value itself"),
        choices=MaskRule.SeenBy.choices,
        initial=MaskRule.SeenBy.ADMIN,
        widget=forms.RadioSelect,
    )
    raw = forms.ChoiceField(
        label=gettext_lazy("The value itself"),
        choices=[("kept", gettext_lazy("is stored, and masked when somebody reads it")),
                 ("dropped", gettext_lazy("is never stored: only its mark is"))],
        initial="kept",
        widget=forms.RadioSelect,
    )  # fmt: skip
    understood = forms.BooleanField(
        label=gettext_lazy("I know that what comes in from now on cannot be brought back"), required=False
    )
    masks_exports = forms.BooleanField(label=gettext_lazy("Exports hold marks, whoever orders them"), required=False)
    is_enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False, initial=True)
    version = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, rule: MaskRule | None = None, **options: Any) -> None:
        if rule is not None:
            options["initial"] = {name: getattr(rule, name) for name in (*FIELDS, "version")} | {
                "raw": "kept" if rule.keeps_raw else "dropped"
            }
        super().__init__(*args, **options)
        self.rule = rule

    def clean(self) -> dict[str, Any]:
        data = cast(dict[str, Any], super().clean())
        drops_anew = data.get("raw") == "dropped" and (self.rule is None or self.rule.keeps_raw)
        if drops_anew and not data.get("understood"):
            self.add_error("understood", _("Say that you know it, or choose that the value is stored."))
        return data

    def wanted(self) -> dict[str, Any]:
        """Fields of the rule; only of a valid form."""
        data = self.cleaned_data
        return {name: data[name] for name in FIELDS if name != "keeps_raw"} | {"keeps_raw": data["raw"] == "kept"}

    def take(self, error: ValidationError) -> None:
        """Faults that only the store finds, each at its field."""
        faults = error.error_dict if hasattr(error, "error_dict") else {"": error.error_list}
        for name, found in faults.items():
            self.add_error(name if name in self.fields else None, found)


class TrialForm(forms.Form):
    """The rule as it is being written, and what it is tried on."""

    name = forms.RegexField(r"^[a-z0-9][a-z0-9-]{0,31}\Z", required=False)
    kind = forms.ChoiceField(choices=MaskRule.Kind.choices)
    expression = forms.CharField(required=False, max_length=MAX_EXPRESSION)
    seen_by = forms.ChoiceField(choices=MaskRule.SeenBy.choices)
    raw = forms.ChoiceField(choices=[("kept", ""), ("dropped", "")])
    masks_exports = forms.BooleanField(required=False)
    rule = forms.IntegerField(required=False)
    reader = forms.ChoiceField(
        label=gettext_lazy("As read by"),
        required=False,
        choices=[
            ("", gettext_lazy("this rule alone")),
            (Role.VIEWER.value, gettext_lazy("a viewer, with all rules")),
            (Role.OPERATOR.value, gettext_lazy("an operator, with all rules")),
            (Role.ADMIN.value, gettext_lazy("an admin, with all rules")),
            (EXPORT, gettext_lazy("an export that an admin orders")),
        ],
    )
    source = forms.CharField(required=False, max_length=500)
    text = forms.CharField(required=False, strip=False, max_length=MAX_TEXT)

    def draft(self) -> MaskRule:
        """The rule; only of a valid form, or one that is at fault in its name alone."""
        data = self.cleaned_data
        return MaskRule(
            pk=data["rule"], name=data.get("name") or "rule", kind=data["kind"], expression=data["expression"].strip(),
            seen_by=data["seen_by"], keeps_raw=data["raw"] == "kept", masks_exports=data["masks_exports"],
        )  # fmt: skip


@require_GET
@tenant_view()
def mask_list(request: TenantRequest) -> HttpResponse:
    """The rules. All members see that there are such; what each finds is for admins, for it may itself be personal."""
    rows = [
        {"rule": rule, "finds": _preset(rule),
         "hides": rule.is_enabled and masks.kept_as(rule).hides_from(Role(request.membership.role))}
        for rule in MaskRule.objects.order_by("name")
    ]  # fmt: skip
    undo = request.session.pop("mask_undo", None)
    if undo and undo["tenant"] != request.tenant.pk:
        undo = None
    context = {
        "rows": rows,
        "starters": STARTERS,
        "undo": undo and {"said": undo["said"], "signed": signing.dumps(undo, salt=UNDO_SALT)},
    }
    return _show(request, "privacy.html", context)


@require_http_methods(["GET", "POST"])
@tenant_view(Role.ADMIN)
def mask_new(request: TenantRequest) -> HttpResponse:
    """The form of a new rule, begun with a preset where one is named."""
    if request.method == "POST":
        return _saved(request, None)
    start = next((start for start in STARTERS if start.key == request.GET.get("start")), STARTERS[0])
    taken = set(MaskRule.objects.values_list("name", flat=True))
    names = (start.name, *(f"{start.name}-{number}" for number in range(2, masks.MAX_RULES + 2)))
    name = next(name for name in names if name not in taken)
    initial = {"name": name, "kind": start.kind, "expression": start.expression}
    return _form_page(request, MaskForm(initial=initial), None)


@require_http_methods(["GET", "POST"])
@tenant_view(Role.ADMIN)
def mask_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """One rule; a POST changes it, unless somebody else did in between."""
    rule = _rule(pk)
    return _saved(request, rule) if request.method == "POST" else _form_page(request, MaskForm(rule=rule), rule)


@require_POST
@tenant_view(Role.ADMIN)
def mask_switch(request: TenantRequest, pk: int) -> HttpResponse:
    """Switch a rule on or off."""
    rule = _rule(pk)
    before = _fields(rule)
    rule.is_enabled = request.POST.get("is_enabled") == "on"
    if rule.is_enabled != before["is_enabled"]:
        masks.save_rule(rule, actor=request.user)
        said = _("The rule %(name)s is on.") if rule.is_enabled else _("The rule %(name)s is off.")
        _remember(request, said % {"name": rule.name}, rule, before)
    return redirect("mask-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def mask_delete(request: TenantRequest, pk: int) -> HttpResponse:
    rule = _rule(pk)
    before = _fields(rule)
    masks.delete_rule(rule, actor=request.user)
    _remember(request, _("The rule %(name)s is deleted.") % {"name": rule.name}, None, before)
    return redirect("mask-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def mask_undo(request: TenantRequest) -> HttpResponse:
    """Take the last step back, unless somebody else has taken another one since."""
    try:
        undo = signing.loads(request.POST.get("undo", ""), salt=UNDO_SALT, max_age=UNDO_SECONDS)
    except signing.BadSignature:
        undo = None
    if not undo or undo["tenant"] != request.tenant.pk:
        messages.error(request, _("It is too late to undo that here. Change the rule itself."))
        return redirect("mask-list", slug=request.tenant.slug)
    try:
        _take_back(request, undo)
    except (masks.StaleRule, MaskRule.DoesNotExist):
        messages.error(request, _("Somebody changed the rule since. Nothing was undone."))
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, _("It is undone."))
    return redirect("mask-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def mask_try(request: TenantRequest) -> HttpResponse:
    """What a rule that is being written makes of a text, or of the newest call of a tool. What was counted before is of
    another rule by now: it goes."""
    return _show(request, "privacy_rule.html#tried", _tried(request.POST))


@require_POST
@tenant_view(Role.ADMIN)
def mask_count(request: TenantRequest) -> HttpResponse:
    """In how many of the newest calls it would hide something."""
    form = TrialForm(request.POST)
    fault = _fault(form)
    touched = None if fault else mask_trial.count_touched(masks.try_out(mask_trial.rules_for(form.draft(), "")))
    return _show(request, "privacy_rule.html#touched", {"touched": touched, "fault": fault, "newest": NEWEST})


def _show(request: TenantRequest, template: str, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    return render(cast(HttpRequest, request), f"settings/{template}", context, status=status)


def _rule(pk: int) -> MaskRule:
    return get_object_or_404(MaskRule.objects.all(), pk=pk)


def _fields(rule: MaskRule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in FIELDS}


def _preset(rule: MaskRule) -> str | Promise:
    """What a rule finds by a preset, in words; "" where it goes by an expression of its own."""
    is_preset = rule.kind == MaskRule.Kind.PATTERN and rule.expression.startswith(PRESET)
    return PRESET_WORDS[rule.expression.removeprefix(PRESET)] if is_preset else ""


def _saved(request: TenantRequest, rule: MaskRule | None) -> HttpResponse:
    form = MaskForm(request.POST, rule=rule)
    if not form.is_valid():
        return _form_page(request, form, rule, status=400)
    before = _fields(rule) if rule else None
    changed = rule or MaskRule()
    for name, value in form.wanted().items():
        setattr(changed, name, value)
    try:
        masks.save_rule(changed, actor=request.user, version=form.cleaned_data["version"] if rule else None)
    except masks.StaleRule as stale:
        return _stale(request, form, stale.current)
    except MaskRule.DoesNotExist as error:
        raise Http404 from error
    except ValidationError as error:
        form.take(error)
        return _form_page(request, form, _rule(rule.pk) if rule else None, status=400)
    _remember(request, _("The rule %(name)s is saved.") % {"name": changed.name}, changed, before)
    return redirect("mask-list", slug=request.tenant.slug)


def _stale(request: TenantRequest, form: MaskForm, current: MaskRule) -> HttpResponse:
    """Both values, field by field; saved once more, theirs goes."""
    sent = form.wanted()
    told = [
        {"label": label, "yours": _said(name, sent[name]), "theirs": _said(name, getattr(current, name))}
        for name, label in _LABELS.items()
        if sent[name] != getattr(current, name)
    ]
    data = request.POST.copy()
    data["version"] = str(current.version)
    again = MaskForm(data, rule=current)
    return _form_page(request, again, current, stale=told, status=409)


_LABELS: dict[str, Any] = {
    "name": gettext_lazy("Name"),
    "kind": gettext_lazy("How it finds values"),
    "expression": gettext_lazy("What it finds"),
    "seen_by": gettext_lazy("Who reads the value itself"),
    "keeps_raw": gettext_lazy("Stored"),
    "masks_exports": gettext_lazy("Exports hold marks"),
    "is_enabled": gettext_lazy("Enabled"),
}


def _said(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    choices = {"kind": MaskRule.Kind.choices, "seen_by": MaskRule.SeenBy.choices}.get(name)
    return str(dict(choices)[value]) if choices else str(value)


def _form_page(
    request: TenantRequest, form: MaskForm, rule: MaskRule | None, *, stale: list[Any] | None = None, status: int = 200
) -> HttpResponse:
    values = {name: form[name].value() for name in ("name", "kind", "expression", "seen_by", "raw", "masks_exports")}
    data = values | {"rule": rule.pk if rule else "", "text": request.POST.get("text", EXAMPLE),
                     "source": request.POST.get("source", ""), "reader": request.POST.get("reader", "")}  # fmt: skip
    context = {
        "form": form,
        "rule": rule,
        "stale": stale,
        "starters": STARTERS,
        "presets": [(f"{PRESET}{name}", words) for name, words in PRESET_WORDS.items()],
        "tools": tool_names(),
        "trial": TrialForm(data),
        "newest": NEWEST,
        "counted": mask_trial.MAX_COUNTED,
        **_tried(data),
    }
    return _show(request, "privacy_rule.html", context, status=status)


def _fault(form: TrialForm) -> str:
    """Why the rule cannot be tried; a name that is not finished is no reason."""
    form.is_valid()
    if "expression" not in form.cleaned_data:
        return " ".join(map(str, form.errors["expression"]))
    if faulty := set(form.errors) - {"name"}:
        return " ".join(str(error) for name in sorted(faulty) for error in form.errors[name])
    if not form.cleaned_data["expression"].strip():
        return _("Say what it finds, and it is tried at once.")
    return masks.fault_of(form.cleaned_data["kind"], form.cleaned_data["expression"].strip()) or ""


def _tried(data: Any) -> dict[str, Any]:
    form = TrialForm(data)
    if fault := _fault(form):
        return {"fault": fault}
    masker = masks.try_out(mask_trial.rules_for(form.draft(), form.cleaned_data["reader"]))
    if tool := form.cleaned_data["source"]:
        tried, call = mask_trial.try_last_call(masker, tool)
        return {"tried": tried, "call": call, "tool": tool}
    return {"tried": mask_trial.try_text(masker, form.cleaned_data["text"])}


def _remember(request: TenantRequest, said: str, rule: MaskRule | None, before: dict[str, Any] | None) -> None:
    """What the next page offers to undo. No `rule`: it was deleted; no `before`: it was made."""
    request.session["mask_undo"] = {
        "tenant": request.tenant.pk,
        "said": said,
        "rule": rule.pk if rule else None,
        "version": rule.version if rule else None,
        "before": before,
    }


def _take_back(request: TenantRequest, undo: dict[str, Any]) -> None:
    if undo["rule"] is None:
        masks.save_rule(MaskRule(**undo["before"]), actor=request.user)
        return
    rule = MaskRule.objects.get(pk=undo["rule"])
    if undo["before"] is None:
        masks.delete_rule(rule, actor=request.user, version=undo["version"])
        return
    for name, value in undo["before"].items():
        setattr(rule, name, value)
    masks.save_rule(rule, actor=request.user, version=undo["version"])
