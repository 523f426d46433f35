"""Styles of a tenant: what the agent is told, in versions, and the skills that group its tools."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_GET, require_POST

from quality.pages.access import TenantRequest, tenant_view
from quality.pages.diff import diff
from quality.pages.tool_form import pretty, read
from tenants import styles
from tenants.catalogue import catalogue
from tenants.models import Role, Skill, Style, StyleVersion

MAX_VERSIONS = 50


class StyleForm(forms.Form):
    style_id = forms.CharField(
        label=gettext_lazy("Style id"), max_length=40, help_text=gettext_lazy("Turns name the style by it.")
    )
    name = forms.CharField(label=gettext_lazy("Name"), max_length=120)
    system_prompt = forms.CharField(
        label=gettext_lazy("System prompt"),
        required=False,
        strip=False,
        max_length=styles.MAX_PROMPT,
        widget=forms.Textarea(attrs={"rows": 12}),
    )
    examples = forms.CharField(
        label=gettext_lazy("Examples"),
        required=False,
        max_length=styles.MAX_PROMPT * 2,
        help_text=gettext_lazy('JSON array: [{"user": "Where is order 7?", "assistant": "It left on Monday."}]'),
        widget=forms.Textarea(attrs={"rows": 4, "class": "mono", "spellcheck": "false"}),
    )
    skills = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple)
    is_default = forms.BooleanField(label=gettext_lazy("Default: for turns that name no style"), required=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = Skill.objects.order_by("name").values_list("name", flat=True)
        cast(forms.MultipleChoiceField, self.fields["skills"]).choices = [(name, name) for name in names]

    def clean_examples(self) -> tuple[tuple[str, str], ...]:
        value = read(self.cleaned_data["examples"].strip() or "[]")
        if not isinstance(value, list):
            raise ValidationError(_("A JSON array is needed."))
        pairs = []
        for number, one in enumerate(value, start=1):
            if not isinstance(one, dict) or set(one) != {"user", "assistant"}:
                told = _("Example %(number)s needs user and assistant, and nothing else.")
                raise ValidationError(told % {"number": number})
            if not all(isinstance(part, str) for part in one.values()):
                raise ValidationError(_("Example %(number)s: both are texts.") % {"number": number})
            pairs.append((one["user"], one["assistant"]))
        return tuple(pairs)

    def text(self) -> styles.StyleText:
        cleaned = self.cleaned_data
        prompt = cleaned["system_prompt"].replace("\r\n", "\n")  # as browsers send lines
        return styles.StyleText(prompt, cleaned["examples"], tuple(cleaned["skills"]))


class SkillForm(forms.Form):
    name = forms.CharField(label=gettext_lazy("Name"), max_length=40)
    description = forms.CharField(label=gettext_lazy("Description"), max_length=500, required=False)
    tools = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = [(entry.name, entry.name) for entry in catalogue()]
        cast(forms.MultipleChoiceField, self.fields["tools"]).choices = names


def _show(request: TenantRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    return render(cast(HttpRequest, request), f"settings/{template}", context)


def _style(pk: int) -> Style:
    return get_object_or_404(Style.objects.all(), pk=pk)


def _list_page(request: TenantRequest, skill_form: SkillForm) -> HttpResponse:
    context = {
        "styles": Style.objects.order_by("style_id"),
        "skills": Skill.objects.order_by("name"),
        "skill_form": skill_form,
    }
    return _show(request, "styles.html", context)


def _form_page(request: TenantRequest, form: StyleForm, style: Style | None) -> HttpResponse:
    context = {"form": form, "style": style, "versions": _versions(style) if style is not None else []}
    return _show(request, "style_form.html", context)


def _versions(style: Style) -> list[dict[str, Any]]:
    found = StyleVersion.objects.filter(style=style).select_related("by").order_by("-number")[: MAX_VERSIONS + 1]
    texts = [styles.text_of(version).to_text() for version in found]
    pairs = zip(found[:MAX_VERSIONS], texts, [*texts[1:], ""], strict=False)
    return [{"version": version, "lines": diff(older, newer)} for version, newer, older in pairs]


@require_GET
@tenant_view()
def style_list(request: TenantRequest) -> HttpResponse:
    return _list_page(request, SkillForm())


@require_GET
@tenant_view(Role.ADMIN)
def style_new(request: TenantRequest) -> HttpResponse:
    return _form_page(request, StyleForm(), None)


@require_GET
@tenant_view()
def style_detail(request: TenantRequest, pk: int) -> HttpResponse:
    style = _style(pk)
    text = styles.text_of(StyleVersion.objects.get(style=style, number=style.version))
    examples = [{"user": user, "assistant": assistant} for user, assistant in text.examples]
    initial = {name: getattr(style, name) for name in ("style_id", "name", "is_default")}
    initial |= {"system_prompt": text.system_prompt, "skills": text.skills}
    return _form_page(request, StyleForm(initial=initial | {"examples": pretty(examples) if examples else ""}), style)


@require_POST
@tenant_view(Role.ADMIN)
def style_create(request: TenantRequest) -> HttpResponse:
    return _save(request, None)


@require_POST
@tenant_view(Role.ADMIN)
def style_save(request: TenantRequest, pk: int) -> HttpResponse:
    return _save(request, _style(pk))


def _save(request: TenantRequest, style: Style | None) -> HttpResponse:
    form = StyleForm(request.POST)
    if form.is_valid():
        try:
            saved = styles.save_style(
                style_id=form.cleaned_data["style_id"],
                name=form.cleaned_data["name"],
                text=form.text(),
                is_default=form.cleaned_data["is_default"],
                actor=request.user,
                pk=style.pk if style is not None else None,
            )
        except ValidationError as error:
            form.add_error(None, error)
        else:
            told = _("%(style)s is at version %(version)s; new turns use it.")
            messages.success(request, told % {"style": saved.style_id, "version": saved.version})
            return redirect("style-detail", slug=request.tenant.slug, pk=saved.pk)
    return _form_page(request, form, style)


@require_POST
@tenant_view(Role.ADMIN)
def style_restore(request: TenantRequest, pk: int, number: int) -> HttpResponse:
    style = _style(pk)
    try:
        saved = styles.restore_version(style=style, number=number, actor=request.user)
    except StyleVersion.DoesNotExist as error:
        raise Http404 from error
    except ValidationError as error:
        told = _("Version %(number)s cannot be used any more: %(why)s")
        messages.error(request, told % {"number": number, "why": " ".join(error.messages)})
    else:
        told = _("Version %(number)s is used again, as version %(version)s.")
        messages.success(request, told % {"number": number, "version": saved.version})
    return redirect("style-detail", slug=request.tenant.slug, pk=pk)


@require_POST
@tenant_view(Role.ADMIN)
def style_delete(request: TenantRequest, pk: int) -> HttpResponse:
    style = _style(pk)
    styles.delete_style(style=style, actor=request.user)
    messages.success(request, _("%(name)s is deleted.") % {"name": style.style_id})
    return redirect("style-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def skill_save(request: TenantRequest) -> HttpResponse:
    """Makes a skill, or changes the one that has this name."""
    form = SkillForm(request.POST)
    if form.is_valid():
        known = Skill.objects.filter(name=form.cleaned_data["name"]).values_list("pk", flat=True).first()
        try:
            skill = styles.save_skill(**form.cleaned_data, actor=request.user, pk=known)
        except ValidationError as error:
            form.add_error(None, error)
        else:
            count = len(skill.tools)
            told = ngettext("Skill %(name)s has %(count)s tool.", "Skill %(name)s has %(count)s tools.", count)
            messages.success(request, told % {"name": skill.name, "count": count})
            return redirect("style-list", slug=request.tenant.slug)
    return _list_page(request, form)


@require_POST
@tenant_view(Role.ADMIN)
def skill_delete(request: TenantRequest, pk: int) -> HttpResponse:
    skill = get_object_or_404(Skill.objects.all(), pk=pk)
    try:
        styles.delete_skill(skill=skill, actor=request.user)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, _("Skill %(name)s is deleted.") % {"name": skill.name})
    return redirect("style-list", slug=request.tenant.slug)
