"""Guidelines: what reviewers go by, with all its versions."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality.improve import guidelines
from quality.models import GuidelineVersion
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.diff import diff
from quality.pages.prose import prose
from tenants.models import Role

TEMPLATE = "quality/guidelines.html"
MAX_VERSIONS = 50
BEGINNING = gettext_lazy("""# How we label

Label what the agent did with what it knew then.

- **Good reply**: right tool, right arguments, right moment.
- **Wrong tool**: another tool, or none, was called for. Name it.
- **Missing tool**: a call was needed and not made. Say which, and where.
- **Bad arguments**: right tool, wrong arguments. Correct them.
- **Other**: say it in the note.
""")


class GuidelineForm(forms.Form):
    text = forms.CharField(
        label="Markdown",
        strip=False,
        required=False,  # the use case says what is missing
        widget=forms.Textarea(attrs={"rows": 22, "class": "mono", "data-key": "n"}),
    )
    number = forms.IntegerField(min_value=0, widget=forms.HiddenInput)


def _page(request: TenantRequest, *, status: int = 200, **more: Any) -> HttpResponse:
    found = guidelines.versions()
    holds = found[0] if found else None
    context: dict[str, Any] = {
        "holds": holds,
        "text": prose(holds.text) if holds else "",
        "versions": _with_diffs(found),
        "hidden": max(0, len(found) - MAX_VERSIONS),
    }
    return render(cast(HttpRequest, request), TEMPLATE, context | more, status=status)


def _with_diffs(found: list[GuidelineVersion]) -> list[dict[str, Any]]:
    older = [version.text for version in found[1:]] + [""]
    return [
        {"version": version, "lines": diff(before, version.text)}
        for version, before in zip(found[:MAX_VERSIONS], older, strict=False)
    ]


@require_GET
@tenant_view()
def guideline_page(request: TenantRequest) -> HttpResponse:
    """The guidelines that hold; for htmx only their text, to stand beside an item."""
    if request.htmx and not request.htmx.history_restore_request:
        holds = guidelines.newest()
        context = {"holds": holds, "text": prose(holds.text) if holds else ""}
        response = render(cast(HttpRequest, request), f"{TEMPLATE}#text", context)
    elif "edit" in request.GET and request.membership.may(Role.ADMIN):
        holds = guidelines.newest()
        initial = {"text": holds.text if holds else str(BEGINNING), "number": holds.number if holds else 0}
        response = _page(request, form=GuidelineForm(initial=initial))
    else:
        response = _page(request)
    patch_vary_headers(response, ["HX-Request"])
    return response


@require_POST
@tenant_view(Role.ADMIN)
def guideline_save(request: TenantRequest) -> HttpResponse:
    """Write a version. One that was written meanwhile is shown first, and nothing is overwritten."""
    form = GuidelineForm(request.POST)
    if not form.is_valid():
        return _page(request, form=form, status=400)
    try:
        made, is_new = guidelines.write(
            text=form.cleaned_data["text"], by=request.user, seen_number=form.cleaned_data["number"]
        )
    except ValidationError as error:
        form.add_error("text", error.error_dict["text"])
        return _page(request, form=form, status=400)
    except guidelines.StaleGuidelines as stale:
        newest = stale.newest
        sent = form.cleaned_data["text"].replace("\r\n", "\n").strip()
        again = GuidelineForm(initial={"text": sent, "number": newest.number if newest else 0})
        lines = diff(newest.text if newest else "", sent)
        return _page(request, form=again, stale=stale, lines=lines, status=409)
    words = _("Version %(number)s holds now.") % {"number": made.number} if is_new else _("Nothing was changed.")
    messages.success(cast(HttpRequest, request), words)
    return redirect("guidelines", slug=request.tenant.slug)
