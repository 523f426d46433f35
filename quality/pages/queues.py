"""Queues: which there are, how far each is, what is in it, who labels, and the way into its review."""

import json
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from quality import calls
from quality.calls import COUNT_CAP
from quality.filters import CallFilterForm
from quality.models import Assignment, QueueEntry, ReviewQueue
from quality.pages import review
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.call_filter import chips, filter_context, filter_query
from quality.pages.prose import prose
from quality.pages.queue_form import ORDER_HELP, QueueForm
from quality.pages.render import render_page
from quality.pages.review_source import item_of, queue_source
from quality.review import blind
from quality.review.items import Item
from quality.review.queues import adding, adjudication, claiming, listing, making, ordering, progress, wording
from quality.review.queues.claiming import NotHere
from quality.review.queues.people import may_label, reviewers_of
from tenants.models import Role, User

STATES = ("open", "paused", "closed")
STEPS = ("skip", "unskip", "send-back", "hand-over")
ENTRY_STEPS = ("take-out", "put-back", "reopen")
ASKED = ("tool", "hint", "error", "label", "source", "model", "style")  # what the form asks of the filter
MAX_IDS = 2_000  # of calls that are named in one go


def _queue(pk: int) -> ReviewQueue:
    return get_object_or_404(ReviewQueue, pk=pk, deleted_at__isnull=True)


def _page(request: TenantRequest, queue: ReviewQueue) -> HttpResponse:
    return redirect("queue-detail", slug=request.tenant.slug, pk=queue.pk)


@require_GET
@tenant_view()
def queue_list(request: TenantRequest) -> HttpResponse:
    """All queues with their progress: those to work on first."""
    found = making.queues()
    told = progress.of_queues(found)
    mine = {queue.pk for queue in found if request.membership.may(Role.OPERATOR) and may_label(queue, request.user)}
    order = {state: place for place, state in enumerate(STATES)}
    rows = [
        {"queue": queue, "progress": told[queue.pk], "is_mine": queue.pk in mine, "adding": _adding(queue)}
        for queue in sorted(found, key=lambda one: (order[one.state], told[one.pk].is_finished, one.name.lower()))
    ]
    deleted = ReviewQueue.objects.filter(deleted_at__isnull=False).order_by("-deleted_at")[:20]
    context = {"rows": rows, "deleted": deleted if request.membership.may(Role.ADMIN) else []}
    return render(cast(HttpRequest, request), "quality/queue_list.html", context)


# --- making and changing ----------------------------------------------------------------------------------------------
@require_http_methods(["GET", "POST"])
@tenant_view(Role.ADMIN)
def queue_new(request: TenantRequest) -> HttpResponse:
    """Make a queue; a filter of Calls in the address is its filter."""
    if request.method == "POST":
        return _keep(request, None)
    query = filter_query(request.GET)
    return _form_page(request, QueueForm(), query, None)


@require_http_methods(["GET", "POST"])
@tenant_view(Role.ADMIN)
def queue_edit(request: TenantRequest, pk: int) -> HttpResponse:
    queue = _queue(pk)
    if request.method == "POST":
        return _keep(request, queue)
    return _form_page(request, QueueForm.of(queue), QueryDict(queue.query), queue)


def _keep(request: TenantRequest, queue: ReviewQueue | None) -> HttpResponse:
    form = QueueForm(request.POST, queue=queue)
    query = filter_query(request.POST)
    if form.is_valid():
        try:
            data = form.data_for(request.POST)
            saved = making.keep_queue(data, actor=request.user, pk=queue.pk if queue else None)
            if request.POST.get("existing") and saved.kind != ReviewQueue.Kind.ADJUDICATION:
                _add_matching(request, saved, query)
        except ValidationError as error:
            form.take_faults(error)
        else:
            messages.success(request, _("%(name)s is saved.") % {"name": saved.name})
            return _page(request, saved)
    return _form_page(request, form, query, queue, status=400)


def _form_page(
    request: TenantRequest, form: QueueForm, query: QueryDict, queue: ReviewQueue | None, *, status: int = 200
) -> HttpResponse:
    context = {
        **filter_context(CallFilterForm(query), query),
        "form": form,
        "queue": queue,
        "kept": [(name, value) for name, values in query.lists() if name not in ASKED for value in values],
        "order_help": ORDER_HELP,
        "matches": _matches(query),
        "count_cap": COUNT_CAP,
    }
    return render(cast(HttpRequest, request), "quality/queue_form.html", context, status=status)


@require_GET
@tenant_view(Role.ADMIN)
def queue_preview(request: TenantRequest) -> HttpResponse:
    """How many calls pass the filter by now, while it is chosen."""
    context = {"matches": _matches(filter_query(request.GET)), "count_cap": COUNT_CAP}
    return render(cast(HttpRequest, request), "quality/queue_form.html#matches", context)


def _matches(query: QueryDict) -> dict[str, Any]:
    """How many there are, up to a cap; or why the filter cannot be read."""
    form = CallFilterForm(query)
    if not form.is_valid():
        return {"faults": form.faults()}
    number = calls.count(form.wanted)
    return {"number": min(number, COUNT_CAP), "capped": number > COUNT_CAP}


@require_POST
@tenant_view(Role.ADMIN)
def queue_state(request: TenantRequest, pk: int) -> HttpResponse:
    """Open, pause or close a queue."""
    state = request.POST.get("state", "")
    if state not in STATES:
        raise Http404("There is no such state.")
    queue = making.set_state(_queue(pk), state, actor=request.user)
    told = {
        "open": _("%(name)s is open."),
        "paused": _("%(name)s does not fill any more. What is in it can still be labelled."),
        "closed": _("%(name)s is closed: nobody is served from it. Its labels stay."),
    }
    messages.success(request, told[queue.state] % {"name": queue.name})
    return _page(request, queue)


@require_POST
@tenant_view(Role.ADMIN)
def queue_delete(request: TenantRequest, pk: int) -> HttpResponse:
    queue = _queue(pk)
    try:
        making.delete_queue(queue, actor=request.user)
    except making.NotClosed as error:
        messages.error(request, str(error))
        return _page(request, queue)
    messages.success(
        request,
        _("%(name)s is deleted; its labels stay. For %(days)d days it can be brought back, at the end of this page.")
        % {"name": queue.name, "days": making.KEPT_DAYS},
    )
    return redirect("queue-list", slug=request.tenant.slug)


@require_POST
@tenant_view(Role.ADMIN)
def queue_restore(request: TenantRequest, pk: int) -> HttpResponse:
    try:
        queue = making.restore_queue(pk, actor=request.user)
    except ReviewQueue.DoesNotExist as error:
        raise Http404("There is no such queue.") from error
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return redirect("queue-list", slug=request.tenant.slug)
    messages.success(request, _("%(name)s is back, closed as it was.") % {"name": queue.name})
    return _page(request, queue)


# --- one queue --------------------------------------------------------------------------------------------------------
@require_GET
@tenant_view()
def queue_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """How far it is, as a whole and by reviewer, and its entries."""
    queue = _queue(pk)
    context = {"queue": queue, **_entries(request, queue)}
    if not request.htmx or request.htmx.history_restore_request:
        context |= _whole(request, queue)
    return render_page(cast(HttpRequest, request), "quality/queue_detail.html", context, partial="entries")


def _whole(request: TenantRequest, queue: ReviewQueue) -> dict[str, Any]:
    told, days = progress.of_queue(queue), progress.days(queue)
    most = max((day.left for day in days), default=0)
    collected = None if queue.kind == ReviewQueue.Kind.ADJUDICATION else adjudication.adjudication_of(queue)
    return {
        "progress": told,
        "shares": progress.by_reviewer(queue),
        "days": days,
        "most_left": max(most, 1),
        "days_left": progress.days_left(told, days),
        "is_reviewer": may_label(queue, request.user),
        "collected": collected,
        "collected_progress": progress.of_queue(collected) if collected else None,
        "source": ReviewQueue.objects.filter(pk=queue.of_queue_id).first() if queue.of_queue_id else None,
        "chips": chips(QueryDict(queue.query)),
        "order_help": ORDER_HELP[queue.ordering],
        "adding": _adding(queue),
        "guidelines": prose(queue.guidelines) if queue.guidelines else "",
        "share_percent": f"{queue.sample_rate * 100:g}",
    }


def _adding(queue: ReviewQueue) -> dict[str, Any] | None:
    """What a worker is adding right now."""
    return queue.backfill if queue.backfill and not queue.backfill.get("done") else None


def _entries(request: TenantRequest, queue: ReviewQueue) -> dict[str, Any]:
    data = request.GET
    reviewer = data.get("reviewer", "")
    wanted = listing.EntryFilter(
        state=data.get("state", "") if data.get("state", "") in QueueEntry.State.values else QueueEntry.State.OPEN,
        tools=tuple(filter(None, data.getlist("tool"))),
        agreed=data.get("agreed", "") if data.get("agreed", "") in listing.AGREED else "",
        reviewer=int(reviewer) if reviewer.isdecimal() and len(reviewer) < 19 else None,
        assignment=data.get("assignment", "") if data.get("assignment", "") in Assignment.State.values else "",
    )
    try:
        page = listing.find(queue, wanted, cursor=data.get("cursor", ""))
    except listing.BadCursor as error:
        raise Http404(str(error)) from error
    hidden = blind.hidden_from(request.user, [claiming.item_of(entry) for entry in page.rows])
    query = data.copy()
    query.pop("cursor", None)
    return {
        "rows": [
            {"entry": entry, "is_hidden": claiming.item_of(entry) in hidden, "why": wording.why_of(queue, entry)}
            for entry in page.rows
        ],
        "next_cursor": page.next,
        "entry_query": query.urlencode(),
        "wanted": wanted,
        "entry_tools": ordering.tools_of(queue),
        "entry_states": QueueEntry.State.choices,
        "assignment_states": Assignment.State.choices,
        "people": reviewers_of(queue),
        "is_first_page": not data.get("cursor"),
    }


@require_POST
@tenant_view(Role.ADMIN)
def queue_adjudicate(request: TenantRequest, pk: int) -> HttpResponse:
    """Collect the disagreements of a queue in another one."""
    queue = _queue(pk)
    try:
        made = adjudication.make(queue, actor=request.user)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
        return _page(request, queue)
    messages.success(
        request,
        _("%(name)s collects what reviewers disagree on, from now on too. You decide it; name others on its page.")
        % {"name": made.name},
    )
    return _page(request, made)


# --- what is in it ----------------------------------------------------------------------------------------------------
@require_POST
@tenant_view(Role.ADMIN)
def queue_add(request: TenantRequest, pk: int) -> HttpResponse:
    """Put calls in by their ids."""
    queue = _queue(pk)
    words = request.POST.get("calls", "").replace(",", " ").split()
    wrong = [word for word in words if not word.isdecimal() or len(word) > 18]
    if not words or wrong or len(words) > MAX_IDS:
        named = f" {', '.join(wrong[:5])}" if wrong else ""
        messages.error(
            request, _("Give ids of calls, up to %(most)d, with blanks between.") % {"most": MAX_IDS} + named
        )
        return _page(request, queue)
    found, missing = adding.items_of([int(word) for word in words])
    try:
        added = adding.add_items(queue, found, actor=request.user)
    except (adding.QueueFull, adding.QueueClosed) as error:
        messages.error(request, " ".join(getattr(error, "messages", [str(error)])))
        return _page(request, queue)
    messages.success(request, _added(added, len(found)))
    if missing:
        messages.warning(request, _("Not found: %(names)s.") % {"names": ", ".join(missing[:10])})
    return _page(request, queue)


def _added(added: int, seen: int) -> str:
    told = ngettext("%(number)d call is added.", "%(number)d calls are added.", added) % {"number": added}
    if seen > added:
        there = ngettext(
            "%(number)d was in the queue already.", "%(number)d were in the queue already.", seen - added
        ) % {"number": seen - added}
        return f"{told} {there}"
    return told


def _add_matching(request: TenantRequest, queue: ReviewQueue, query: QueryDict) -> None:
    """All that pass the filter now: few at once, many behind the request. Raises ValidationError."""
    form = CallFilterForm(query)
    if not form.is_valid():
        raise ValidationError({"query": [fault["message"] for fault in form.faults()]})
    wanted = adding.frozen(form.wanted)
    if calls.count(wanted) <= adding.MAX_AT_ONCE:
        added = adding.add_matching(queue, wanted, request.user)
        messages.info(request, _added(added, added))
        return
    adding.order(queue, wanted, actor=request.user)
    messages.info(request, _("The calls that match are being added; this page says how far that is."))


@require_GET
@tenant_view()
def queue_entry(request: TenantRequest, pk: int, entry: int) -> HttpResponse:
    """One entry: the answers side by side once they may be seen, and what its reviewers did."""
    queue = _queue(pk)
    found = get_object_or_404(QueueEntry.objects.select_related("queue"), pk=entry, queue=queue)
    item = claiming.item_of(found)
    is_hidden = blind.hides(request.user, item)
    given = Assignment.objects.filter(entry=found).select_related("reviewer", "handed_by").order_by("updated_at")
    context = {
        "queue": queue,
        "entry": found,
        "item": item,
        "is_hidden": is_hidden,
        "answers": [] if is_hidden else adjudication.answers(found),
        "given": given,
        "why": wording.why_of(queue, found),
        "review_url": queue_source(request, pk).address(item),
    }
    return render(cast(HttpRequest, request), "quality/queue_entry.html", context)


@require_POST
@tenant_view(Role.ADMIN)
def queue_entry_step(request: TenantRequest, pk: int, entry: int, step: str) -> HttpResponse:
    """Take an entry out, put it back, or ask for one more label."""
    queue = _queue(pk)
    found = get_object_or_404(QueueEntry.objects.select_related("queue"), pk=entry, queue=queue)
    try:
        if step == "reopen":
            claiming.reopen(found, actor=request.user)
            messages.success(request, _("It is open again, for one more label."))
        elif step == "take-out":
            adding.take_out(found, actor=request.user)
            messages.success(request, _("It is taken out. Labels that were given stay."))
        else:
            adding.put_back(found, actor=request.user)
            messages.success(request, _("It is in the queue again."))
    except NotHere as error:
        messages.error(request, str(error))
    return redirect("queue-entry", slug=request.tenant.slug, pk=queue.pk, entry=found.pk)


# --- its review -------------------------------------------------------------------------------------------------------
@require_GET
@tenant_view()
def queue_review(request: TenantRequest, pk: int) -> HttpResponse:
    """The review screen over this queue."""
    return review.shown(request, queue_source(request, pk))


@require_POST
@tenant_view(Role.OPERATOR)
def queue_step(request: TenantRequest, pk: int, step: str) -> HttpResponse:
    """Skip, take a skip back, send back or hand over; then the next one."""
    source = queue_source(request, pk)
    item = item_of(request.POST)
    note = request.POST.get("note", "")
    following: Item | None = None
    try:
        if step == "unskip":
            following = source.unskip()
            if following is None:
                messages.info(request, _("You skipped nothing here that others did not take."))
        elif item is None:
            raise Http404("Say which item this is for.")
        elif step == "hand-over":
            source.hand_over(item, to=_reviewer(request.POST.get("to", "")), note=note)
        else:
            (source.skip if step == "skip" else source.send_back)(item, note=note)
    except NotHere as error:
        messages.error(request, str(error))
        following = item
    following = following or source.following(item)
    return _gone_on(request, source.address(following, **({} if following else {"done": "1"})))


def _reviewer(name: str) -> User:
    found = User.objects.filter(pk=int(name)).first() if name.isdecimal() and len(name) < 19 else None
    if found is None:
        raise NotHere(_("Say who it goes to."))
    return found


def _gone_on(request: TenantRequest, address: str) -> HttpResponse:
    if not request.htmx:
        return redirect(address)
    response = HttpResponse()
    response["HX-Location"] = json.dumps({"path": address, "target": "#review", "swap": "outerHTML show:none"})
    return response
