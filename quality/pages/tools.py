"""Tools of a tenant: the list of all kinds, and HTTP tools from writing to trying."""

import json
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_GET, require_POST

from engine.errors import ToolError
from quality import tool_use
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.argument_form import argument_form
from quality.pages.diff import diff
from quality.pages.tool_form import JsonForm, ToolForm, faults_of, pretty
from quality.pages.uploads import too_large
from tenants import databases, limits, scripts, tools, trial
from tenants.active import shown_definition
from tenants.catalogue import catalogue
from tenants.envelope import SecretInvalid
from tenants.models import HttpToolRow, HttpToolVersion, Role, TenantSettings
from tenants.models.tool import MODES, SAFETIES
from tenants.scope import tenant_scope

MAX_VERSIONS = 50
MAX_FAULTS = 20


class SwitchForm(forms.Form):
    is_enabled = forms.BooleanField(required=False)
    mode = forms.ChoiceField(choices=[("", "its own"), *((mode, mode) for mode in MODES)], required=False)
    safety = forms.ChoiceField(choices=[("", "its own"), *((safety, safety) for safety in SAFETIES)], required=False)


class LimitsForm(forms.Form):
    """Empty fields take the operator's defaults."""

    max_cycles = forms.IntegerField(label=gettext_lazy("Model replies in a turn"), required=False, min_value=1)
    tool_timeout_s = forms.FloatField(label=gettext_lazy("Seconds for a call"), required=False)
    result_max_chars = forms.IntegerField(label=gettext_lazy("Characters of a result"), required=False, min_value=1)
    max_calls = forms.IntegerField(label=gettext_lazy("Calls in a turn"), required=False, min_value=1)
    max_tokens = forms.IntegerField(label=gettext_lazy("Tokens of a turn"), required=False, min_value=1)
    max_cost = forms.FloatField(
        label=gettext_lazy("Money of a turn"),
        required=False,
        help_text=gettext_lazy("In the currency of the models’ prices."),
    )
    wall_time_s = forms.FloatField(label=gettext_lazy("Seconds of a turn"), required=False)


def _show(request: TenantRequest, template: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    return render(cast(HttpRequest, request), f"settings/{template}", context, status=status)


def _row(pk: int) -> HttpToolRow:
    return get_object_or_404(HttpToolRow.objects.all(), pk=pk)


@require_GET
@tenant_view()
def tool_list(request: TenantRequest) -> HttpResponse:
    return _list_page(request, LimitsForm(initial=_own_limits()))


def _own_limits() -> dict[str, Any]:
    own = TenantSettings.objects.first()
    return {name: getattr(own, name) for name in limits.ALL} if own else {}


def _list_page(request: TenantRequest, form: LimitsForm, **more: Any) -> HttpResponse:
    used = tool_use.last_days()
    own = TenantSettings.objects.first()
    _, faults = scripts.loaded()
    context = {
        "entries": [(entry, used.get(entry.name, tool_use.Use())) for entry in catalogue()],
        "limits": limits.limits(own),
        "limits_form": form,
        "has_scripts": bool(scripts.loaded()[0]),
        "scripts_enabled": bool(own and own.scripts_enabled),
        "script_faults": faults,
        "databases": [
            (name, one.get("description", ""), own is not None and name in own.databases)
            for name, one in databases.configured().items()
        ],
        "modes": MODES,
        "safeties": SAFETIES,
    }
    return _show(request, "tools.html", context | more)


@require_POST
@tenant_view(Role.ADMIN)
def limits_set(request: TenantRequest) -> HttpResponse:
    form = LimitsForm(request.POST)
    if form.is_valid():
        try:
            limits.set_limits(**form.cleaned_data, actor=request.user)
        except ValidationError as error:
            form.add_error(None, error)
        else:
            messages.success(request, _("The limits are set; turns that begin from now on keep them."))
            return redirect("tool-list", slug=request.tenant.slug)
    return _list_page(request, form)


@require_POST
@tenant_view(Role.ADMIN)
def scripts_switch(request: TenantRequest) -> HttpResponse:
    is_enabled = request.POST.get("is_enabled") == "on"
    scripts.switch(is_enabled=is_enabled, actor=request.user)
    messages.success(request, _("Script tools are on.") if is_enabled else _("Script tools are off."))
    return redirect("tool-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def databases_choose(request: TenantRequest) -> HttpResponse:
    try:
        databases.choose(request.POST.getlist("name"), actor=request.user)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, _("The databases are chosen."))
    return redirect("tool-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def tool_switch(request: TenantRequest) -> HttpResponse:
    """Switches a tool that has no row of its own."""
    name = request.POST.get("name", "")
    if not any(entry.name == name and entry.row_pk is None for entry in catalogue()):
        raise Http404
    form = SwitchForm(request.POST)
    if form.is_valid():
        tools.set_switch(name=name, **form.cleaned_data, actor=request.user)
        messages.success(request, _("%(name)s is saved.") % {"name": name})
    else:
        messages.error(request, _("Mode and safety are chosen from the lists."))
    return redirect("tool-list", slug=request.tenant.slug)


def _form_page(request: TenantRequest, form: ToolForm | JsonForm, row: HttpToolRow | None) -> HttpResponse:
    return _show(request, "tool_form.html", {"form": form, "row": row, "as_json": isinstance(form, JsonForm)})


def _posted(request: TenantRequest) -> ToolForm | JsonForm:
    return JsonForm(request.POST) if "definition" in request.POST else ToolForm(request.POST)


@require_GET
@tenant_view(Role.ADMIN)
def tool_new(request: TenantRequest) -> HttpResponse:
    if request.GET.get("as") == "json":
        start = {"name": "", "description": "", "method": "POST", "url": "", "parameters": {"type": "object"}}
        return _form_page(request, JsonForm(initial={"definition": pretty(start)}), None)
    return _form_page(request, ToolForm(), None)


@require_GET
@tenant_view(Role.ADMIN)
def tool_edit(request: TenantRequest, pk: int) -> HttpResponse:
    row = _row(pk)
    if request.GET.get("as") == "json":
        text = pretty(json.loads(row.definition))
        return _form_page(request, JsonForm(initial={"definition": text, "is_enabled": row.is_enabled}), row)
    return _form_page(request, ToolForm.of(tools.definition_of(row), is_enabled=row.is_enabled), row)


@require_POST
@tenant_view(Role.ADMIN)
def tool_check(request: TenantRequest) -> HttpResponse:
    """What is wrong with a definition as it stands, while it is written."""
    return _show(request, "tool_form.html#faults", {"faults": faults_of(_posted(request)), "is_checked": True})


@require_POST
@tenant_view(Role.ADMIN)
def tool_create(request: TenantRequest) -> HttpResponse:
    return _save(request, None)


@require_POST
@tenant_view(Role.ADMIN)
def tool_save(request: TenantRequest, pk: int) -> HttpResponse:
    return _save(request, _row(pk))


def _save(request: TenantRequest, row: HttpToolRow | None) -> HttpResponse:
    form = _posted(request)
    if form.is_valid():
        try:
            saved = tools.save_tool(
                form.item(),
                actor=request.user,
                pk=row.pk if row is not None else None,
                is_enabled=form.cleaned_data["is_enabled"],
            )
        except ToolError as error:
            for text in tools.fault_texts(error):
                form.add_error(None, text)
        else:
            _tell_saved(request, saved)
            return redirect("tool-detail", slug=request.tenant.slug, pk=saved.row.pk)
    return _form_page(request, form, row)


def _tell_saved(request: TenantRequest, saved: tools.Saved) -> None:
    told = _("%(name)s is saved; turns that begin from now on use it.")
    messages.success(request, told % {"name": saved.row.name})
    for name in saved.missing:
        place = tools.place_of(tools.definition_of(saved.row))
        told = _("%(tool)s may not send %(secret)s to %(place)s yet: set it under Secrets.")
        messages.warning(request, told % {"tool": saved.row.name, "secret": name, "place": place.origin})


@require_GET
@tenant_view()
def tool_detail(request: TenantRequest, pk: int) -> HttpResponse:
    return _detail_page(request, _row(pk))


def _detail_page(
    request: TenantRequest, row: HttpToolRow, *, form: forms.Form | None = None, tried: trial.Tried | None = None
) -> HttpResponse:
    definition = tools.definition_of(row)
    missing = next(entry.missing for entry in catalogue() if entry.row_pk == row.pk)
    context = {
        "row": row,
        "definition": pretty(shown_definition(definition)),
        "place": tools.place_of(definition),
        "missing": missing,
        "is_plain_http": definition.url.startswith("http:"),
        "form": form or argument_form(definition.parameters),
        "tried": tried,
        "versions": _versions(row, reveal=request.membership.may(Role.ADMIN)),
        "is_unsafe": definition.safety == "unsafe",
    }
    return _show(request, "tool_detail.html", context)


def _versions(row: HttpToolRow, *, reveal: bool) -> list[dict[str, Any]]:
    """The newest versions with what each changed. Literal headers are for admins, who can edit them anyway."""
    found = list(HttpToolVersion.objects.filter(tool=row).select_related("by").order_by("-number")[: MAX_VERSIONS + 1])

    def text(version: HttpToolVersion) -> str:
        item = json.loads(version.definition)
        return pretty(item if reveal else shown_definition(tools.definition_of(version)))

    texts = [text(version) for version in found]
    return [
        {"version": version, "lines": diff(older, newer)}
        for version, newer, older in zip(found[:MAX_VERSIONS], texts, [*texts[1:], ""], strict=False)
    ]


@require_POST
@tenant_view(Role.ADMIN)
def tool_restore(request: TenantRequest, pk: int, number: int) -> HttpResponse:
    row = _row(pk)
    try:
        saved = tools.restore_version(row=row, number=number, actor=request.user)
    except HttpToolVersion.DoesNotExist as error:
        raise Http404 from error
    except ToolError as error:
        told = _("Version %(number)s cannot be used any more: %(why)s")
        messages.error(request, told % {"number": number, "why": error})
    else:
        _tell_saved(request, saved)
    return redirect("tool-detail", slug=request.tenant.slug, pk=pk)


@require_POST
@tenant_view(Role.ADMIN)
def tool_enable(request: TenantRequest, pk: int) -> HttpResponse:
    row = _row(pk)
    tools.switch_tool(row=row, is_enabled=request.POST.get("is_enabled") == "on", actor=request.user)
    told = _("%(name)s is enabled.") if row.is_enabled else _("%(name)s is off.")
    messages.success(request, told % {"name": row.name})
    return redirect("tool-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def tool_delete(request: TenantRequest, pk: int) -> HttpResponse:
    row = _row(pk)
    tools.delete_tool(row=row, actor=request.user)
    messages.success(request, _("%(name)s is deleted.") % {"name": row.name})
    return redirect("tool-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN, scope=False)
def tool_try(request: TenantRequest, pk: int) -> HttpResponse:
    """Calls the tool once, for real. No transaction is open while it answers."""
    with tenant_scope(request.tenant):
        row = _row(pk)
        definition = tools.definition_of(row)
        form = argument_form(definition.parameters, request.POST)
        if not form.is_valid():
            return _detail_page(request, row, form=form)
        try:
            prepared = trial.prepare(definition, actor=request.user)
        except SecretInvalid as error:
            form.add_error(None, str(error))
            return _detail_page(request, row, form=form)
    tried = trial.run(prepared, form.arguments())
    with tenant_scope(request.tenant):
        return _detail_page(request, row, form=form, tried=tried)


@require_GET
@tenant_view(Role.ADMIN)
def tools_export(request: TenantRequest) -> HttpResponse:
    """All kept definitions as an array, which Import takes."""
    response = HttpResponse(pretty(tools.export_tools()) + "\n", content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{request.tenant.slug}-tools.json"'
    return response


@require_POST
@tenant_view(Role.ADMIN)
def tools_import(request: TenantRequest) -> HttpResponse:
    """Takes in an array of definitions, a file or pasted: all of them or none. What was refused stays to be mended."""
    uploaded = request.FILES.get("file")
    text = request.POST.get("definitions", "")
    faults: list[str] = [_("%(name)s is larger than 5 MiB.") % {"name": name} for name in too_large(request)]
    if not faults and uploaded is None and not text.strip():
        faults = [_("Choose a file, or paste the array.")]
    if faults:
        return _list_page(request, LimitsForm(initial=_own_limits()), import_faults=faults, import_text=text)
    try:
        saved = tools.import_tools(uploaded.read() if uploaded else text, actor=request.user)
    except ToolError as error:
        faults = list(tools.fault_texts(error))[:MAX_FAULTS]
        return _list_page(request, LimitsForm(initial=_own_limits()), import_faults=faults, import_text=text)
    told = ngettext("%(count)s tool is taken in.", "%(count)s tools are taken in.", len(saved))
    messages.success(request, told % {"count": len(saved)})
    for one in saved:
        for name in one.missing:
            told = _("%(tool)s waits for the secret %(secret)s: set it under Secrets.")
            messages.warning(request, told % {"tool": one.row.name, "secret": name})
    return redirect("tool-list", slug=request.tenant.slug)
