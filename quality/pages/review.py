"""Review: one item at a time, one key a label, the next item at once.

The page works by itself. With scripts, static/js/review.js asks for the next item ahead, shows it on the key, and sends
the label meanwhile (`X-Ahead: 1`): such a write is answered with what is to be told of it alone, or, where nothing
was saved, with the judgement that brings the item back (409, or `X-Not-Saved`).
"""

import uuid
from functools import partial
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from quality.models import FeedbackEvent, Label
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.call_filter import chips
from quality.pages.calls import item_context, page_of_call
from quality.pages.correction_form import ASKED, CorrectionForm, Unfinished
from quality.pages.labels import ItemForm, LabelForm, StepForm, describe, label_context, last_label
from quality.pages.prose import prose
from quality.pages.review_source import FilterSource, item_of, source_of
from quality.pages.views import opened, views_context
from quality.review import items, labelling
from quality.review.evidence import ItemEvidence, evidence_for
from quality.review.items import Item, NoSuchItem
from quality.review.keys import goes_on
from quality.review.queues.source import QueueSource
from quality.review.sources import Desk, Lost, Source
from tenants.models import Role

TEMPLATE = "quality/review.html"
AHEAD = "X-Ahead"
ON_SCREEN = "X-On-Screen"
NOT_SAVED = "X-Not-Saved"  # tells a script that asked ahead what a person sees


@require_GET
@tenant_view()
def review(request: TenantRequest) -> HttpResponseBase:
    """The item of the address, else the first open one; with `done`, that there is none after the last one."""
    if elsewhere := opened(request, "review"):
        return elsewhere
    return shown(request, FilterSource(request.tenant.slug, request.GET, request.user))


def shown(request: TenantRequest, source: Source) -> HttpResponse:
    """Review over a source: the item of the address; `after` an item, the next open one (a queue claims it); else the
    one to go on with."""
    item = item_of(request.GET)
    if after := request.GET.get("after"):
        item = source.following(_item_named(after))
    elif item is None and "done" not in request.GET and not source.faults:
        item = source.first()
    label = request.GET.get("correct", "")
    if item and label in ASKED and request.membership.may(Role.OPERATOR):
        return _shown(request, source, item, correcting=_begun(request, item, label))
    return _shown(request, source, item)


def _item_named(name: str) -> Item:
    try:
        return items.item_of_name(name)
    except NoSuchItem as error:
        raise Http404(str(error)) from error


@require_GET
@tenant_view(Role.OPERATOR)
def review_correct(request: TenantRequest) -> HttpResponse:
    """Ask what would have been right with the label `label`, in the place of the labels' buttons; without one, the
    buttons again."""
    source = source_of(request, request.GET)
    item, label = item_of(request.GET), request.GET.get("label", "")
    if item is None:
        raise Http404("Say which item this is for.")
    stay = bool(request.GET.get("stay"))
    if label in ASKED:
        return _asked(request, source, item, _begun(request, item, label), stay=stay)
    if request.htmx:
        return _judgement(request, source, item, stay=stay)
    return redirect(item_address(request, item) if stay else source.address(item))


def _begun(request: TenantRequest, item: Item, label: str) -> CorrectionForm:
    """The form as it begins: with what this reviewer said before, else with what the call had."""
    found = evidence_for(item, request.user)
    mine = next((one for one in found.labels if one.reviewer_id == request.user.pk), None)
    return CorrectionForm(label, found, mine=mine)


def _asked(
    request: TenantRequest, source: Source, item: Item, form: CorrectionForm, *, note: str | None = None, stay: bool
) -> HttpResponse:
    """The judgement with the form of a correction; for a browser alone, on the page of Review."""
    context: dict[str, Any] = {"correcting": form, "stay": stay, "sent_note": note}
    if request.htmx:
        return _not_saved(_judgement(request, source, item, **context))
    return _shown(request, source, item, **context)


@require_POST
@tenant_view(Role.OPERATOR)
def review_label(request: TenantRequest) -> HttpResponse:
    """Store one label. From Review the next item follows, unless this reviewer stays (`here`); from an item's own page
    (`stay`) the same one."""
    source = source_of(request, request.POST)
    form = LabelForm(request.POST)
    if not form.is_valid():
        return _refused(request, source, form)
    item = _existing(form)
    correction = _sent_correction(request, source, item, form.cleaned_data)
    if isinstance(correction, HttpResponse):
        return correction
    try:
        _check_screen(request, item)
        labelling.locked(item)  # before the entry that `check` locks: labels of others go this way, too
        source.check(item)
        _record(request, item, form, correction)
    except Lost as lost:
        return _told(request, source, item, str(lost), status=409)
    except labelling.StaleLabel as stale:
        return _conflict(request, source, item, stale)
    except ValidationError as error:
        form.add_error(None, error.messages)
        return _refused(request, source, form)
    return _after_label(request, source, item)


def _record(request: TenantRequest, item: Item, form: LabelForm, correction: str | None) -> None:
    data = form.cleaned_data
    labelling.record_label(
        item=item,
        reviewer=request.user,
        label=data["label"],
        note=data["note"],
        correction=correction,
        seen_version=data["version"],
        nonce=data["nonce"],
    )


def _after_label(request: TenantRequest, source: Source, item: Item) -> HttpResponse:
    if AHEAD in request.headers and request.htmx:
        return _saved(request, source, item)
    if request.POST.get("stay"):
        return _moved(request, source, item, stay=True)
    return _moved(request, source, item if request.POST.get("here") else source.following(item))


def _check_screen(request: TenantRequest, item: Item) -> None:
    """Refuse what was sent while another item was on the screen: whoever pressed the key judged that one."""
    if request.headers.get(ON_SCREEN, "") not in ("", item.name):
        raise Lost(_("Another item was on the screen when this was sent: nothing is saved. Look again, then label it."))


@require_POST
@tenant_view(Role.OPERATOR)
def review_undo(request: TenantRequest, *, is_redo: bool = False) -> HttpResponse:
    """Take a step of one's own back, or one that was taken back forth again, and go to its item."""
    source = source_of(request, request.POST)
    form = StepForm(request.POST)
    if not form.is_valid():
        return _refused(request, source, form)
    item = _existing(form)
    data = form.cleaned_data
    stay = bool(request.POST.get("stay"))
    try:
        outcome = labelling.undo(
            item=item,
            reviewer=request.user,
            seen_version=data["version"],
            step=data["step"],
            nonce=data["nonce"],
        )
    except labelling.StaleLabel as stale:
        return _conflict(request, source, item, stale)
    except labelling.NothingToUndo as nothing:
        return _moved(request, source, item, notice=str(nothing), stay=stay)
    return _moved(request, source, item, notice=_undone(outcome.event, is_redo=is_redo), stay=stay)


def _undone(event: FeedbackEvent, *, is_redo: bool) -> str:
    item = {"turn_id": event.turn_id, "call_id": event.call_id}
    if event.call_id is None:
        item["cycle"] = event.cycle
    taken = FeedbackEvent.objects.filter(**item, version=event.undoes or 0).first()
    names = {"item": describe(event), "label": Label(event.label).label if event.label else _("no label")}
    if is_redo:
        return _("Redone: %(label)s on %(item)s") % names
    was = Label(taken.label).label if taken and taken.label else _("no label")
    if event.label:
        return _("Undone: %(was)s on %(item)s, %(label)s again") % {"was": was, **names}
    return _("Undone: %(was)s on %(item)s") % {"was": was, **names}


def _existing(form: ItemForm) -> Item:
    try:
        return form.item()
    except NoSuchItem as error:
        raise Http404(str(error)) from error


def _sent_correction(
    request: TenantRequest, source: Source, item: Item, data: dict[str, Any]
) -> str | HttpResponse | None:
    """The correction that goes with a label; where its form is not done with, the form again."""
    if not request.POST.get("correcting") or data["label"] not in ASKED:
        return data["correction"] or _kept_correction(request, item, data["label"])
    form = CorrectionForm(data["label"], evidence_for(item, request.user), data=request.POST)
    again = partial(_asked, request, source, item, form, note=data["note"], stay=bool(request.POST.get("stay")))
    if request.POST.get("as"):
        return again()
    try:
        correction = form.correction()
    except Unfinished:
        return again()
    form.asks_note_again = data["label"] == Label.OTHER and not data["note"] and not request.POST.get("sure")
    return again() if form.asks_note_again else correction


def _kept_correction(request: TenantRequest, item: Item, label: str) -> str | None:
    """A correction that came by another way stays as long as the label does."""
    mine = next((one for one in labelling.current_labels(item) if one.reviewer_id == request.user.pk), None)
    return mine.correction if mine and mine.label == label else None


@require_POST
@tenant_view(Role.OPERATOR)
def review_advance(request: TenantRequest) -> HttpResponse:
    """Go on to the next item after a label, or stay: kept on the account. Shows the item again."""
    source = source_of(request, request.POST)
    form = ItemForm(request.POST)
    if not form.is_valid():
        return _refused(request, source, form)
    item = _existing(form)
    user = request.user
    user.review_settings = {**user.review_settings, "advance": not goes_on(user)}
    user.save(update_fields=["review_settings"])
    return _moved(request, source, item)


# What is shown


def item_address(request: TenantRequest, item: Item) -> str:
    """The item's own page."""
    name, pk = ("call-detail", item.call_id) if item.call_id else ("turn-detail", item.turn_id)
    return reverse(name, args=[request.tenant.slug, pk])


def _moved(
    request: TenantRequest, source: Source, item: Item | None, *, notice: str = "", stay: bool = False
) -> HttpResponse:
    """Show an item after a write: htmx gets it in the answer, a browser is sent there."""
    address = item_address(request, item) if stay and item else _place_of(source, item)
    if not request.htmx:
        if notice:
            messages.info(request, notice)
        return redirect(address)
    if stay and item:
        return _judgement(request, source, item, notice=notice)
    response = _shown(request, source, item, notice=notice)
    response["HX-Push-Url"] = address
    return response


def _saved(request: TenantRequest, source: Source, item: Item) -> HttpResponse:
    """What is to be told of a label that was saved while the next item is on the screen."""
    context = {
        "source": source,
        "standing": source.standing(),
        "last": last_label(request),
        "item_name": item.name,
        "label": request.POST.get("label"),
    }
    return render(cast(HttpRequest, request), f"{TEMPLATE}#saved", context)


def _shown(request: TenantRequest, source: Source, item: Item | None, *, notice: str = "", **more: Any) -> HttpResponse:
    context = _frame(source, item) | {"notice": notice} | more
    if isinstance(source, FilterSource):
        context |= views_context(request, "review", source.query)
    if item is None:
        context["last"] = last_label(request)
    else:
        found = _found(request, item, more)
        context |= item_context(found, partial(_place_of_call, source)) | label_context(request, found) | context
    response = _render(request, TEMPLATE, context, partial="review")
    if request.method == "GET" and request.htmx:
        response["HX-Push-Url"] = context["address"]
    return response


def _place_of(source: Source, item: Item | None) -> str:
    """Where Review shows this item, or that there is none after the last one."""
    return source.address(item) if item else source.address(done="1")


def _place_of_call(source: Source, pk: int) -> str:
    """Where Review shows this call."""
    return source.address(call=str(pk))


def _found(request: TenantRequest, item: Item, more: dict[str, Any]) -> ItemEvidence:
    """What is known of an item: the form of a correction has read it already."""
    form = more.get("correcting")
    return form.found if isinstance(form, CorrectionForm) else evidence_for(item, request.user)


def _frame(source: Source, item: Item | None) -> dict[str, Any]:
    """The rail: progress, neighbours, filter; and where each key leads."""
    rail = source.rail(item)
    stops = [*rail.before, *([rail.here] if rail.here else []), *rail.after]
    desk = source.desk(item)
    context = {
        "source": source,
        "desk": desk,
        "queue_guidelines": prose(desk.guidelines) if desk.guidelines else "",
        "standing": source.standing(),
        "actions": {action.name: action for action in source.actions(item)},
        "item_name": item.name if item else "",
        "address": _place_of(source, item),
        "rail": [
            {
                "stop": one,
                "name": one.item.name,
                "url": source.address(one.item),
                "is_current": one.item == item,
            }
            for one in stops
        ],
        "next_url": source.address(rail.after[0].item) if rail.after else "",
        "previous_url": source.address(rail.before[-1].item) if rail.before else "",
        "following_url": source.following_address(item) if item else "",
        "start_url": source.address(),
    }
    if isinstance(source, QueueSource):
        return context | {"queue_url": reverse("queue-detail", args=[source.slug, source.queue.pk])}
    return context | (_of_filter(source, item) if isinstance(source, FilterSource) else {})


def _of_filter(source: FilterSource, item: Item | None) -> dict[str, Any]:
    """What a filter alone has: its words, and what of it was passed over."""
    return {
        "filter": source,
        "query": source.query.urlencode(),
        "chips": chips(source.query),
        "hints_url": source.hints_address(),
        "first_open": None if item else source.first(),
    }


def _judgement(request: TenantRequest, source: Source, item: Item, *, status: int = 200, **more: Any) -> HttpResponse:
    """The judgement alone, in the place where it stands."""
    found = _found(request, item, more)
    stay = bool(more.pop("stay", request.POST.get("stay")))
    context = item_context(found, page_of_call(request)) | label_context(request, found)
    context |= {
        "source": source,
        "desk": Desk() if stay else source.desk(item),
        "actions": {} if stay else {action.name: action for action in source.actions(item)},
        "stay": stay,
    } | more
    response = render(cast(HttpRequest, request), "components/judgement.html", context, status=status)
    # The form may ask for the whole screen; what did not move on goes back to where it stands.
    response["HX-Retarget"], response["HX-Reswap"] = "#judgement", "outerHTML"
    return response


def _conflict(request: TenantRequest, source: Source, item: Item, stale: labelling.StaleLabel) -> HttpResponse:
    """409 with both values: the reviewer decides whose holds."""
    context: dict[str, Any] = {
        "stale": stale,
        "sent_note": stale.sent.note if stale.sent else None,
        "mine_nonce": uuid.uuid4(),
        "theirs_url": item_address(request, item) if request.POST.get("stay") else source.following_address(item),
    }
    if request.htmx:
        return _judgement(request, source, item, status=409, **context)
    response = _shown(request, source, item, **context)
    response.status_code = 409
    return response


def _told(request: TenantRequest, source: Source, item: Item, fault: str, *, status: int, **more: Any) -> HttpResponse:
    """The item again, with why nothing was saved."""
    if request.htmx:
        return _judgement(request, source, item, status=status, faults=[fault], **more)
    response = _shown(request, source, item, faults=[fault], **more)
    response.status_code = status
    return response


def _refused(request: TenantRequest, source: Source, form: ItemForm) -> HttpResponse:
    """Bad input is told back where it came from; without a usable item, as a page of its own."""
    faults = [
        f"{'' if name == '__all__' else name + ': '}{message}"
        for name, messages_of_field in form.errors.items()
        for message in messages_of_field
    ]
    try:
        item = form.item()
    except (KeyError, NoSuchItem):
        return render(cast(HttpRequest, request), "400.html", {"exception": " ".join(faults)}, status=400)
    if request.htmx:
        note = form.cleaned_data.get("note")
        return _not_saved(_judgement(request, source, item, faults=faults, sent_note=note))
    response = _shown(request, source, item, faults=faults)
    response.status_code = 400
    return response


def _not_saved(response: HttpResponse) -> HttpResponse:
    response[NOT_SAVED] = "1"
    return response


def _render(request: TenantRequest, template: str, context: dict[str, Any], *, partial: str) -> HttpResponse:
    htmx = request.htmx
    if htmx and not htmx.history_restore_request:
        template = f"{template}#{partial}"
    response = render(cast(HttpRequest, request), template, context)
    patch_vary_headers(response, ["HX-Request"])
    return response
