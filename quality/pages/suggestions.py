"""Suggested labels: have a model judge items in advance, and see what people made of it."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from quality.models import ReviewQueue, SuggestionRun
from quality.pages.access import TenantRequest, tenant_view
from quality.review.suggesting import runs
from tenants import endpoints
from tenants.models import Role

DEFAULT_ITEMS = 200


class SuggestionForm(forms.Form):
    endpoint_label = forms.ChoiceField(label=gettext_lazy("Model"), choices=())
    queue = forms.ChoiceField(
        label=gettext_lazy("Items of the queue"),
        required=False,
        choices=(),
        help_text=gettext_lazy("Blind queues are not offered: nobody there may see a suggestion."),
    )
    query = forms.CharField(
        label=gettext_lazy("Or of a filter of Calls"),
        required=False,
        max_length=2_000,
        help_text=gettext_lazy("As it stands behind the ? in the address of Calls; empty: all calls, newest first."),
        widget=forms.TextInput(attrs={"placeholder": "tool=find_slots&error=yes", "class": "mono"}),
    )
    max_items = forms.IntegerField(
        label=gettext_lazy("Items at most"), min_value=1, max_value=runs.MAX_ITEMS, initial=DEFAULT_ITEMS
    )
    max_tokens = forms.IntegerField(
        label=gettext_lazy("Tokens at most"),
        required=False,
        min_value=1_000,
        help_text=gettext_lazy("Question and answer together. What is under way when it is reached is still paid."),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        models = [(each.label, f"{each.label} ({each.model})") for each in endpoints.models_to_ask()]
        queues = ReviewQueue.objects.filter(is_blind=False, deleted_at=None).exclude(state="closed").order_by("name")
        cast(forms.ChoiceField, self.fields["endpoint_label"]).choices = models
        cast(forms.ChoiceField, self.fields["queue"]).choices = [
            ("", _("No queue: by a filter")),
            *((str(each.pk), each.name) for each in queues),
        ]

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        fields["query"] = fields.get("query", "").strip().removeprefix("?")
        if fields.get("queue") and fields["query"]:
            self.add_error("query", ValidationError(_("Choose a queue or a filter, not both."), "both"))
        return fields


@require_http_methods(["GET", "POST"])
@tenant_view()
def suggestion_list(request: TenantRequest) -> HttpResponse:
    """The runs, and the form of a new one for admins."""
    may_start = request.membership.may(Role.ADMIN)
    if request.method == "POST":
        return _start(request) if may_start else HttpResponse(status=403)
    first = {name: request.GET[name] for name in ("queue", "query") if name in request.GET}
    return _page(request, SuggestionForm(initial={"max_items": DEFAULT_ITEMS, **first}))


@require_GET
@tenant_view()
def suggestion_progress(request: TenantRequest, pk: int) -> HttpResponse:
    """The row of one run, while it is going: all others are not counted again."""
    run = get_object_or_404(runs.with_outcomes([pk]))
    context = {"run": run, "live": runs.LIVE, "may_start": request.membership.may(Role.ADMIN)}
    return render(cast(HttpRequest, request), "quality/suggestions.html#run", context)


@require_POST
@tenant_view(Role.ADMIN)
def suggestion_step(request: TenantRequest, pk: int, step: str) -> HttpResponse:
    """Cancel a run, or take it back with all it suggested."""
    run: SuggestionRun = get_object_or_404(SuggestionRun.objects.all(), pk=pk)
    if step == "delete":
        runs.delete(run, by=request.user)
        messages.success(cast(HttpRequest, request), _("It is taken back, with all it suggested."))
    elif runs.cancel(run, by=request.user):
        messages.success(cast(HttpRequest, request), _("It is cancelled. What it suggested stays."))
    else:
        messages.error(cast(HttpRequest, request), _("It had come to its end already."))
    return redirect("suggestion-list", slug=request.tenant.slug)


STEPS = ("cancel", "delete")


def _start(request: TenantRequest) -> HttpResponse:
    form = SuggestionForm(request.POST)
    if form.is_valid():
        data = form.cleaned_data
        try:
            runs.start(
                endpoint_label=data["endpoint_label"],
                queue_id=int(data["queue"]) if data["queue"] else None,
                query=data["query"],
                max_items=data["max_items"],
                max_tokens=data["max_tokens"],
                by=request.user,
            )
        except ValidationError as error:
            for name, found in error.error_dict.items():
                form.add_error(name, found)
        else:
            messages.success(cast(HttpRequest, request), _("The model is at work."))
            return redirect("suggestion-list", slug=request.tenant.slug)
    return _page(request, form, status=400)


def _page(request: TenantRequest, form: SuggestionForm, *, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "runs": runs.every(),
        "live": runs.LIVE,
        "models": endpoints.models_to_ask(),
        "may_start": request.membership.may(Role.ADMIN),
    }
    return render(cast(HttpRequest, request), "quality/suggestions.html", context, status=status)
