"""Imports: upload a file, look at what it is taken for, import or discard it, follow it while it is read, see what was
refused and why, and take it all back."""

import json
from collections.abc import Generator
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect

from quality.ingest import formats, importer, otlp_failures, preview, store, taking_back
from quality.ingest.preview import Preview
from quality.models import Import, ImportIssue, ImportState
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.render import render_page
from quality.pages.uploads import too_large
from quality.streaming import stream
from tenants.models import Role
from tenants.scope import tenant_scope

FORMATS = [
    (name, gettext_lazy("Recognise it") if name == importer.DETECT else formats.FORMATS[name].LABEL)
    for name in importer.FORMAT_CHOICES
]
PAGE_SIZE = 50
LIVE = (ImportState.QUEUED, ImportState.RUNNING, ImportState.TAKING_BACK)


class FormatForm(forms.Form):
    format = forms.ChoiceField(choices=FORMATS, initial="auto")


@require_GET
@tenant_view()
def import_list(request: TenantRequest) -> HttpResponse:
    """The form, and past imports newest first."""
    return _list(request)


def _is_number(text: str, *, digits: int = 18) -> bool:
    """Digits that fit the column; `isdigit` alone would let a superscript through."""
    return text.isascii() and text.isdecimal() and len(text) <= digits


def _list(request: TenantRequest, faults: list[str] | None = None) -> HttpResponse:
    before = request.GET.get("before", "")
    rows = Import.objects.select_related("created_by").order_by("-id")
    if _is_number(before):
        rows = rows.filter(pk__lt=int(before))
    imports = list(rows[: PAGE_SIZE + 1])
    more = len(imports) > PAGE_SIZE
    context = {
        "imports": imports[:PAGE_SIZE],
        "older": imports[PAGE_SIZE - 1].pk if more else None,
        "formats": FORMATS,
        "faults": faults or [],
        "max_bytes": settings.IMPORT_MAX_BYTES,
        **_failed_traces(first=not before),
    }
    return render_page(cast(HttpRequest, request), "quality/import_list.html", context, partial="imports")


def _failed_traces(*, first: bool) -> dict[str, Any]:
    """What came over OTLP and could not be read, on the first page of the list."""
    traces, more = otlp_failures.newest() if first else ((), False)
    return {"failed_traces": traces, "more_failed_traces": more}


@require_POST
@tenant_view(Role.OPERATOR)
def import_upload(request: TenantRequest) -> HttpResponse:
    """Keep each file of the form as a preview; what cannot be a trace file is told back by name."""
    form = FormatForm(request.POST)
    limit = settings.IMPORT_MAX_BYTES // (1024 * 1024)
    told = _("The file is larger than %(limit)s MiB. Split it.") % {"limit": limit}
    faults = [f"{name}: {told}" for name in too_large(request)]
    if not form.is_valid():
        return _list(request, [f"{_('Format')}: {message}" for message in form.errors.get("format", [])])
    jobs: list[Import] = []
    files = cast(list[TemporaryUploadedFile], request.FILES.getlist("files"))
    for upload in files:
        try:
            if not upload.size:
                raise importer.UploadRefused(_("The file is empty."))
            jobs.append(
                importer.accept_upload(upload=upload, format_name=form.cleaned_data["format"], created_by=request.user)
            )
        except importer.UploadRefused as refusal:
            faults.append(f"{upload.name}: {refusal}")
    if not files and not faults:
        faults.append(_("Choose at least one file."))
    if faults:
        return _list(request, faults)
    address = reverse("import-detail", args=[request.tenant.slug, jobs[0].pk])
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


@require_GET
@tenant_view()
def import_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """One import: the preview, progress while it runs, then the report."""
    job = get_object_or_404(Import.objects.select_related("created_by", "taken_back_by"), pk=pk)
    if job.state == ImportState.PREVIEW:
        return _preview(request, job)
    return render(cast(HttpRequest, request), "quality/import_detail.html", _detail(request, job))


def _preview(request: TenantRequest, job: Import, *, part: str = "") -> HttpResponse:
    context = {
        "job": job,
        "formats": FORMATS,
        "seen": _look_at(job),
        "others": _waiting(request, job),
        "days": importer.UNDECIDED_FOR.days,
        "max_items": preview.MAX_ITEMS,
    }
    return render(cast(HttpRequest, request), f"quality/import_preview.html{part}", context)


def _look_at(job: Import) -> Preview:
    try:
        with importer.stored_path(job.stored_as).open("rb") as file:
            return preview.look_at(
                file, max_bytes=settings.IMPORT_MAX_BYTES, format_name=job.format, foresee=store.foresee
            )
    except OSError as error:
        told = _("The file cannot be read (%(reason)s). Discard it and upload it again.")
        return Preview(failure=told % {"reason": error.strerror})


def _waiting(request: TenantRequest, job: Import) -> list[Import]:
    """Other files of this person that wait for a decision, the oldest first."""
    mine = Import.objects.filter(state=ImportState.PREVIEW, created_by=request.user)
    return list(mine.exclude(pk=job.pk).order_by("pk")[:PAGE_SIZE])


@require_POST
@tenant_view(Role.OPERATOR)
def import_format(request: TenantRequest, pk: int) -> HttpResponse:
    """Correct what a preview's file is taken for, and look at it again."""
    form = FormatForm(request.POST)
    job = get_object_or_404(Import.objects.all(), pk=pk)
    if form.is_valid() and importer.correct_format(pk, form.cleaned_data["format"]):
        job.format = form.cleaned_data["format"]
        if request.htmx:
            return _preview(request, job, part="#preview")
    address = reverse("import-detail", args=[request.tenant.slug, pk])
    return HttpResponseClientRedirect(address) if request.htmx else redirect(address)


@require_POST
@tenant_view(Role.OPERATOR)
def import_begin(request: TenantRequest, pk: int) -> HttpResponse:
    """Import what was previewed."""
    job = get_object_or_404(Import.objects.all(), pk=pk)
    began = importer.begin(job)
    told = _("%(file)s is being imported.") % {"file": job.filename} if began else _("That was decided before.")
    return _go_on(request, job, told)


@require_POST
@tenant_view(Role.OPERATOR)
def import_discard(request: TenantRequest, pk: int) -> HttpResponse:
    """Forget a preview and its file."""
    job = get_object_or_404(Import.objects.all(), pk=pk)
    gone = importer.discard(pk)
    discarded = _("%(file)s was discarded, nothing of it was stored.") % {"file": job.filename}
    told = discarded if gone else _("That was decided before.")
    return _go_on(request, None if gone else job, told)


def _go_on(request: TenantRequest, job: Import | None, told: str) -> HttpResponse:
    """To the next file that waits for this person; else to the import, or to the list if it is gone."""
    waiting = Import.objects.filter(state=ImportState.PREVIEW, created_by=request.user).order_by("pk").first()
    following = waiting or job
    if following is None or following is waiting:
        messages.info(cast(HttpRequest, request), told)
    if following is None:
        return redirect("import-list", slug=request.tenant.slug)
    return redirect("import-detail", slug=request.tenant.slug, pk=following.pk)


@require_POST
@tenant_view(Role.OPERATOR)
def import_take_back(request: TenantRequest, pk: int) -> HttpResponse:
    """Take the whole import back."""
    get_object_or_404(Import.objects.all(), pk=pk)
    if not taking_back.order(pk, actor=request.user):
        messages.info(cast(HttpRequest, request), _("It was taken back before, or is not at its end."))
    return redirect("import-detail", slug=request.tenant.slug, pk=pk)


@require_GET
@tenant_view()
def import_progress(request: TenantRequest, pk: int) -> HttpResponse:
    """The part of the page that changes while the import runs; asked for again and again until it is done."""
    job = get_object_or_404(Import.objects.select_related("created_by", "taken_back_by"), pk=pk)
    template = "quality/import_detail.html#progress" if request.htmx else "quality/import_detail.html"
    return render(cast(HttpRequest, request), template, _detail(request, job))


def _detail(request: TenantRequest, job: Import) -> dict[str, Any]:
    after = request.GET.get("after", "")
    issues = ImportIssue.objects.filter(import_job_id=job.pk).order_by("index", "id")
    index, _, issue_id = after.partition("-")
    if _is_number(index, digits=9) and _is_number(issue_id):
        issues = issues.filter(index__gte=int(index)).exclude(index=int(index), pk__lte=int(issue_id))
    rows = list(issues[: PAGE_SIZE + 1])
    last = rows[PAGE_SIZE - 1] if len(rows) > PAGE_SIZE else None
    is_asked = request.GET.get("ask") == "take-back" and job.state in taking_back.ENDED
    whole, done = (job.num_turns, job.num_taken_back) if job.taken_back_at else (job.bytes_total, job.bytes_read)
    return {
        "job": job,
        "is_live": job.state in LIVE,
        "issues": rows[:PAGE_SIZE],
        "older": f"{last.index}-{last.pk}" if last else "",
        "is_first": not after,
        "percent": min(100, 100 * done // whole) if whole else 0,
        "may_take_back": job.state in taking_back.ENDED and job.num_turns > 0,
        "hanging": taking_back.hanging(job) if is_asked else None,
    }


@require_GET
@tenant_view(scope=False)
def import_issues(request: TenantRequest, pk: int) -> HttpResponseBase:
    """The whole report as JSON lines."""
    with tenant_scope(request.tenant):
        job = get_object_or_404(Import.objects.all(), pk=pk)
    lines = _issue_lines(request.tenant.pk, job)
    return stream(request, lines, content_type="application/x-ndjson", filename=f"import-{pk}-report.jsonl")


def _issue_lines(tenant_id: int, job: Import) -> Generator[bytes]:
    with tenant_scope(tenant_id):
        issues = ImportIssue.objects.filter(import_job_id=job.pk).order_by("index", "id")
        for issue in issues.values("index", "line", "code", "path", "message").iterator(chunk_size=500):
            yield json.dumps({"file": job.filename, **issue}, ensure_ascii=False).encode() + b"\n"
