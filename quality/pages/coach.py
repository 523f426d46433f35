"""The coach: asked about a style, read, and accepted item by item."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality.improve.coach import decisions, runs
from quality.models import ACTIONABLE, CoachItem, CoachRun, CoachState, Feedback, Proposal
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.diff import diff
from tenants import endpoints, styles
from tenants.models import Role, Style, StyleVersion

MAX_RUNS = 50
LIVE = (CoachState.QUEUED, CoachState.RUNNING)


class AskForm(forms.Form):
    style_id = forms.ChoiceField(label=gettext_lazy("Style"))
    model = forms.ChoiceField(label=gettext_lazy("Who writes"), required=False)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = Style.objects.order_by("style_id").values_list("style_id", "name")
        cast(forms.ChoiceField, self.fields["style_id"]).choices = [(one, f"{name} ({one})") for one, name in names]
        models = [
            (one.label, _("Model %(label)s (%(model)s)") % {"label": one.label, "model": one.model})
            for one in endpoints.models_to_ask()
        ]
        cast(forms.ChoiceField, self.fields["model"]).choices = [*models, (runs.RULES, _("Rules, no model"))]


@require_GET
@tenant_view()
def coach(request: TenantRequest) -> HttpResponse:
    """What was asked so far, and the form to ask."""
    return _list(request, AskForm(initial={"style_id": request.GET.get("style", "")}))


def _list(request: TenantRequest, form: AskForm, *, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "runs": CoachRun.objects.select_related("created_by")
        .defer("exchanges")
        .order_by("-created_at", "-pk")[:MAX_RUNS],
        "has_styles": bool(cast(forms.ChoiceField, form.fields["style_id"]).choices),
        "num_feedback": Feedback.objects.filter(label__in=ACTIONABLE).exclude(style_id="").count(),
    }
    return render(cast(HttpRequest, request), "quality/coach.html", context, status=status)


@require_POST
@tenant_view(Role.OPERATOR)
def coach_ask(request: TenantRequest) -> HttpResponse:
    form = AskForm(request.POST)
    if form.is_valid():
        try:
            run = runs.start(
                style_id=form.cleaned_data["style_id"], model_label=form.cleaned_data["model"], by=request.user
            )
        except ValidationError as error:
            form.add_error(None, ValidationError(error.messages))
        else:
            return redirect("coach-run", slug=request.tenant.slug, pk=run.pk)
    return _list(request, form, status=400)


@require_GET
@tenant_view()
def coach_run(request: TenantRequest, pk: int) -> HttpResponse:
    """One answer of the coach; while a model is asked the page looks again by itself."""
    return _shown(request, _run(pk))


@require_POST
@tenant_view()
def coach_preview(request: TenantRequest, pk: int) -> HttpResponse:
    """What the chosen items would make of the style."""
    run = _run(pk)
    chosen = set(_chosen(request))
    context = _preview(run, [item for item, _labels in runs.shown_to(run, request.user).items if item.pk in chosen])
    return render(cast(HttpRequest, request), "quality/coach_run.html#preview", context)


@require_POST
@tenant_view(Role.ADMIN)
def coach_decide(request: TenantRequest, pk: int) -> HttpResponse:
    """Accept or dismiss the chosen items, or take an accepted one back."""
    run = _run(pk)
    try:
        told = _decided(request, run)
    except (decisions.ItemsDecided, ValidationError) as error:
        text = " ".join(error.messages) if isinstance(error, ValidationError) else str(error)
        return _shown(request, run, fault=text, status=409 if isinstance(error, decisions.ItemsDecided) else 400)
    messages.success(request, told)
    return redirect("coach-run", slug=request.tenant.slug, pk=pk)


def _decided(request: TenantRequest, run: CoachRun) -> str:
    if revoked := request.POST.get("revoke", ""):
        item = next((one for one, _labels in runs.shown_to(run, request.user).items if str(one.pk) == revoked), None)
        if item is None:
            raise Http404(_("There is no such item."))
        style = decisions.revoke(item, by=request.user)
        told = _("Taken back: %(style)s is at version %(version)s.")
        return told % {"style": style.style_id, "version": style.version}
    chosen = _chosen(request)
    if request.POST.get("decision") == "dismiss":
        decisions.dismiss(run, chosen, by=request.user)
        return _("Dismissed: %(count)s.") % {"count": len(chosen)}
    accepted = decisions.accept(run, chosen, by=request.user)
    told = _("%(style)s is at version %(version)s; new turns use it.")
    if accepted.proposals:
        told = _("%(style)s is at version %(version)s; new turns use it. Proposals applied: %(count)s.")
    style = accepted.style
    return told % {"style": style.style_id, "version": style.version, "count": len(accepted.proposals)}


def _shown(request: TenantRequest, run: CoachRun, *, fault: str = "", status: int = 200) -> HttpResponse:
    seen = runs.shown_to(run, request.user)
    items = [item for item, _labels in seen.items]
    is_open = [item for item in items if item.state == CoachItem.State.OPEN]
    context = {
        "run": run,
        "is_live": run.state in LIVE,
        "rows": seen.items,
        "summary": seen.summary,
        "has_open": bool(is_open),
        "num_gone": seen.num_gone,
        "applied": _applied(items, run),
        "fault": fault,
    } | _preview(run, is_open)
    template = "quality/coach_run.html"
    if request.htmx and not request.htmx.history_restore_request and request.method == "GET":
        template += "#answer"
    return render(cast(HttpRequest, request), template, context, status=status)


def _preview(run: CoachRun, chosen: list[CoachItem]) -> dict[str, Any]:
    style = Style.objects.filter(style_id=run.style_id).first()
    if style is None:
        return {"style": None, "lines": [], "num_chosen": len(chosen)}
    text = styles.text_of(StyleVersion.objects.get(style=style, number=style.version))
    lines = diff(text.to_text(), decisions.with_items(text, chosen).to_text())
    return {"style": style, "lines": lines, "num_chosen": len(chosen), "preview_of": run}


def _applied(items: list[CoachItem], run: CoachRun) -> list[Proposal]:
    refs = {f"{run.style_id}@{item.style_version}" for item in items if item.style_version}
    return list(Proposal.objects.filter(resolution_ref__in=refs).order_by("pk"))


def _run(pk: int) -> CoachRun:
    run = CoachRun.objects.select_related("created_by").filter(pk=pk).first()
    if run is None:
        raise Http404(_("The coach was never asked this."))
    return run


def _chosen(request: TenantRequest) -> list[int]:
    return [int(value) for value in request.POST.getlist("item") if value.isdecimal() and len(value) < 19]
