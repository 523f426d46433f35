"""Bulk actions: what was chosen in a list, looked at before it happens, followed while it does, undone."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality import calls
from quality.calls import CallPage
from quality.filters import CallFilterForm
from quality.models import LIVE_BULK, BulkAction, BulkItem, BulkKind, BulkState, Label, ReviewQueue
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.call_filter import chips, filter_query
from quality.review.blind import veiled_page
from quality.review.bulk import preview, run, scope
from quality.review.bulk.run import Decided, NotYours, Stale, Wanted
from quality.review.labelling import MAX_NOTE_CHARS
from quality.review.queues.people import queues_of
from quality.review.tags import MAX_TAG_CHARS
from tenants.models import Role

PAGE_SIZE = 50
REPORT_SIZE = 100

SKIPPED = {
    "labelled": gettext_lazy("labelled by you already"),
    "unfinished": gettext_lazy("not at their end"),
    "tagged": gettext_lazy("with the tag already"),
    "not_tagged": gettext_lazy("without the tag"),
    "in_queue": gettext_lazy("in the queue already"),
    "archived": gettext_lazy("in the archive already"),
    "not_archived": gettext_lazy("not in the archive"),
}
"""Of a preview: how the calls are, by the code of what is skipped."""

TOLD = {
    "labelled": gettext_lazy("You had labelled it already."),
    "unfinished": gettext_lazy("The call has not come to its end."),
    "tagged": gettext_lazy("It had the tag already."),
    "not_tagged": gettext_lazy("It did not have the tag."),
    "in_queue": gettext_lazy("It was in the queue already."),
    "archived": gettext_lazy("It was in the archive already."),
    "not_archived": gettext_lazy("It was not in the archive."),
    "no_queue": gettext_lazy("The queue is gone."),
    "too_many": gettext_lazy("It has as many tags as it can have. Take one off first."),
    "newer": gettext_lazy("You gave it another label since."),
    "taken_back": gettext_lazy("You took it back before."),
    "too_old": gettext_lazy("Its label is older than 24 hours. Give it another label instead."),
    "retagged": gettext_lazy("It was taken off, or put on again, since."),
    "tagged_again": gettext_lazy("It was tagged again since."),
    "moved": gettext_lazy("It was taken out of the archive since."),
    "archived_again": gettext_lazy("It was archived again since."),
    "begun": gettext_lazy("Somebody has begun with it, or it is done."),
}
"""Of a report: why nothing was done to a call, by its code. Other codes have their words with them."""


class LookForm(forms.Form):
    """What was chosen in a list: calls one by one, or all that its filter lets through."""

    kind = forms.ChoiceField(choices=BulkKind.choices)
    query = forms.CharField(required=False, max_length=4_000)
    all = forms.BooleanField(required=False)
    back = forms.CharField(required=False, max_length=200)


class ConfirmForm(forms.Form):
    """What is to be done, as far as the kind of action asks for it, and what was looked at."""

    seen = forms.RegexField(r"^[0-9a-f]{64}\Z")
    label = forms.ChoiceField(required=False, choices=Label.choices)
    note = forms.CharField(required=False, max_length=MAX_NOTE_CHARS)
    tag = forms.CharField(required=False, max_length=4 * MAX_TAG_CHARS)
    queue = forms.IntegerField(required=False, min_value=1)
    reason = forms.CharField(required=False, max_length=2 * run.MAX_REASON_CHARS)

    def wanted(self, request: TenantRequest) -> Wanted:
        """What the form says; only of a valid one."""
        data = self.cleaned_data
        queue = queues_of(request.user).filter(pk=data["queue"]).first() if data["queue"] else None
        return Wanted(label=data["label"], note=data["note"], tag=data["tag"], queue=queue, reason=data["reason"])


@require_GET
@tenant_view()
def bulk_list(request: TenantRequest) -> HttpResponse:
    """Past bulk actions, newest first."""
    before = request.GET.get("before", "")
    rows = BulkAction.objects.exclude(state=BulkState.PREVIEW).select_related("created_by", "queue").order_by("-id")
    if before.isascii() and before.isdecimal() and len(before) < 19:
        rows = rows.filter(pk__lt=int(before))
    found = list(rows[: PAGE_SIZE + 1])
    waiting = BulkAction.objects.filter(state=BulkState.PREVIEW, created_by=request.user).order_by("-id")
    context = {
        "actions": found[:PAGE_SIZE],
        "older": found[PAGE_SIZE - 1].pk if len(found) > PAGE_SIZE else None,
        "waiting": [] if before else list(waiting[:5]),
    }
    return render(cast(HttpRequest, request), "quality/bulk_list.html", context)


@require_POST
@tenant_view(Role.OPERATOR)
def bulk_look(request: TenantRequest) -> HttpResponse:
    """Begin an action with what was chosen, and show what it would do."""
    form = LookForm(request.POST)
    if not form.is_valid():
        raise Http404("There is no such action.")
    data = form.cleaned_data
    query = filter_query(QueryDict(data["query"]))
    asked = CallFilterForm(query)
    ids = [int(pk) for pk in request.POST.getlist("call") if pk.isascii() and pk.isdecimal() and len(pk) < 19]
    try:
        if data["all"] and not asked.is_valid():
            raise ValidationError(_("The filter is not valid. Correct it, then choose again."))
        action = preview.make(
            kind=data["kind"],
            by=request.user,
            wanted=asked.wanted if data["all"] else None,
            call_ids=() if data["all"] else ids,
        )
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return redirect(f"{reverse('call-list', args=[request.tenant.slug])}?{query.urlencode()}".removesuffix("?"))
    address = reverse("bulk-detail", args=[request.tenant.slug, action.pk])
    label = request.POST.get("label", "")
    return redirect(f"{address}?label={label}" if label in Label.values else address)


def _action_or_404(request: TenantRequest, pk: int) -> BulkAction:
    """An action; a preview is its maker's alone."""
    rows = BulkAction.objects.select_related("created_by", "undone_by", "queue")
    action = rows.filter(pk=pk).first()
    if action is None or (action.state == BulkState.PREVIEW and action.created_by_id != request.user.pk):
        raise Http404("There is no such bulk action.")
    return action


@require_GET
@tenant_view()
def bulk_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """What an action would do; once it is confirmed, how far it is and what came of it."""
    action = _action_or_404(request, pk)
    if action.state == BulkState.PREVIEW:
        return _preview(request, action, given=request.GET)
    return render(cast(HttpRequest, request), "quality/bulk_detail.html", _detail(request, action))


@require_GET
@tenant_view()
def bulk_progress(request: TenantRequest, pk: int) -> HttpResponse:
    """The part of the page that changes while the action is at work; of a preview, what changes with a tag or queue."""
    action = _action_or_404(request, pk)
    if action.state == BulkState.PREVIEW:
        return _preview(request, action, given=request.GET, part="#effect" if request.htmx else "")
    template = "quality/bulk_detail.html#progress" if request.htmx else "quality/bulk_detail.html"
    return render(cast(HttpRequest, request), template, _detail(request, action))


def _preview(
    request: TenantRequest,
    action: BulkAction,
    *,
    given: QueryDict,
    part: str = "",
    faults: dict[str, list[str]] | None = None,
    notice: str = "",
    status: int = 200,
) -> HttpResponse:
    """A fresh look: what is shown is what is kept as looked at, and what will be confirmed."""
    queues = list(queues_of(request.user).exclude(kind=ReviewQueue.Kind.ADJUDICATION))
    queue = next((one for one in queues if str(one.pk) == given.get("queue")), None)
    try:
        seen = preview.of_action(action, tag=" ".join(given.get("tag", "").split()), queue=queue)
    except scope.FilterBroken as broken:
        messages.error(request, str(broken))
        return redirect("call-list", slug=request.tenant.slug)
    if seen.seen.sha256 != action.seen_sha256:
        preview.note_seen(action, seen.seen)
        action.save(update_fields=["seen_count", "seen_sha256", "seen_at"])
    sample = veiled_page(CallPage(rows=list(seen.sample), next=None, previous=None), request.user).rows
    context = {
        "action": action,
        "seen": seen,
        "sample": sample,
        "hints_asked": (),
        "more": max(0, seen.seen.count - len(sample)),
        "skips": [(skip.number, SKIPPED[skip.code]) for skip in seen.skips],
        "chips": chips(_without_bound(action)),
        "back": _list_address(request, action),
        "labels": Label.choices,
        "tags": calls.tag_names() if action.kind in (BulkKind.TAG, BulkKind.UNTAG) else [],
        "queues": queues,
        "given": {name: given.get(name, "") for name in ("label", "note", "tag", "queue", "reason")},
        "faults": faults or {},
        "notice": notice,
        "max_items": scope.MAX_ITEMS,
    }
    return render(cast(HttpRequest, request), f"quality/bulk_preview.html{part}", context, status=status)


def _without_bound(action: BulkAction) -> QueryDict:
    """The filter as the list showed it: the moment of the look is said beside it."""
    query = QueryDict(action.query).copy()
    query.pop("arrived_to", None)
    return query


def _list_address(request: TenantRequest, action: BulkAction) -> str:
    return f"{reverse('call-list', args=[request.tenant.slug])}?{_without_bound(action).urlencode()}".removesuffix("?")


@require_POST
@tenant_view(Role.OPERATOR)
def bulk_confirm(request: TenantRequest, pk: int) -> HttpResponse:
    """Have done what was looked at; if it has changed since, show what there is now."""
    action = _action_or_404(request, pk)
    form = ConfirmForm(request.POST)
    if not form.is_valid():
        faults = {name: [str(message) for message in found] for name, found in form.errors.items()}
        return _preview(request, action, given=request.POST, faults=faults, status=400)
    try:
        run.confirm(pk, by=request.user, wanted=form.wanted(request), seen_sha256=form.cleaned_data["seen"])
    except Stale as stale:
        action.refresh_from_db()
        return _preview(request, action, given=request.POST, notice=_changed(stale), status=409)
    except ValidationError as error:
        faults = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
        return _preview(request, action, given=request.POST, faults=faults, status=400)
    except scope.FilterBroken as broken:
        messages.error(request, str(broken))
        return redirect("call-list", slug=request.tenant.slug)
    except (Decided, NotYours) as refused:
        messages.info(request, str(refused))
    return redirect("bulk-detail", slug=request.tenant.slug, pk=pk)


def _changed(stale: Stale) -> str:
    if stale.before == stale.now:
        return _("Some of these calls changed since you looked: others match, or have other labels. Look again.")
    return _("It changed since you looked: there were %(before)s calls, there are %(now)s now. Look again.") % {
        "before": stale.before,
        "now": stale.now,
    }


@require_POST
@tenant_view(Role.OPERATOR)
def bulk_stop(request: TenantRequest, pk: int) -> HttpResponse:
    """Let it end after the batch under way."""
    try:
        run.stop(_action_or_404(request, pk), by=request.user, may_any=request.membership.may(Role.ADMIN))
    except (Decided, NotYours) as refused:
        messages.info(request, str(refused))
    return redirect("bulk-detail", slug=request.tenant.slug, pk=pk)


@require_POST
@tenant_view(Role.OPERATOR)
def bulk_undo(request: TenantRequest, pk: int) -> HttpResponse:
    """Take the whole action back."""
    try:
        run.undo(_action_or_404(request, pk), by=request.user, may_any=request.membership.may(Role.ADMIN))
    except (Decided, NotYours) as refused:
        messages.info(request, str(refused))
    return redirect("bulk-detail", slug=request.tenant.slug, pk=pk)


def _detail(request: TenantRequest, action: BulkAction) -> dict[str, Any]:
    after = request.GET.get("after", "")
    told = BulkItem.objects.filter(action=action).exclude(code="").select_related("call").order_by("pk")
    told = told.only("pk", "turn_id", "call_id", "cycle", "state", "code", "message", "call__tool_name", "action_id")
    if after.isascii() and after.isdecimal() and len(after) < 19:
        told = told.filter(pk__gt=int(after))
    rows = list(told[: REPORT_SIZE + 1])
    is_undo = action.state in (BulkState.UNDOING, BulkState.UNDONE)
    whole = action.num_done if is_undo else action.num_items
    progress = action.num_undone + action.num_left if is_undo else sum(_counts(action))
    may_any = request.membership.may(Role.ADMIN)
    return {
        "action": action,
        "is_live": action.state in LIVE_BULK,
        "is_undo": is_undo,
        "whole": whole,
        "progress": progress,
        "percent": min(100, 100 * progress // whole) if whole else 0,
        "num_waiting": action.num_items - sum(_counts(action)),
        "told": [{"row": row, "message": TOLD.get(row.code) or row.message} for row in rows[:REPORT_SIZE]],
        "older": rows[REPORT_SIZE - 1].pk if len(rows) > REPORT_SIZE else None,
        "is_first": not after,
        "chips": chips(_without_bound(action)),
        "back": _list_address(request, action),
        "may_undo": run.may_undo(action, request.user, may_any=may_any),
        "may_stop": action.state in (BulkState.QUEUED, BulkState.RUNNING)
        and (may_any or action.created_by_id == request.user.pk),
        "report_size": REPORT_SIZE,
    }


def _counts(action: BulkAction) -> tuple[int, int, int]:
    return action.num_done, action.num_skipped, action.num_failed
