"""Review: one item at a time, one key a label, the next item at once."""

import uuid
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_GET, require_POST

from quality.calls import ANY_HINT, CallFilter
from quality.filters import CallFilterForm
from quality.models import FeedbackEvent, Label, Review
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.calls import chips, filter_query, item_context, page_of_call
from quality.pages.correction_form import ASKED, CorrectionForm, Unfinished
from quality.pages.labels import ItemForm, LabelForm, describe, label_context, last_label
from quality.review import items, labelling
from quality.review.evidence import ItemEvidence, evidence_of
from quality.review.items import Item, NoSuchItem
from tenants.models import Role

RAIL_BEFORE, RAIL_AFTER = 6, 16
TEMPLATE = "quality/review.html"


class Queue:
    """What Review goes through: the filter of the address, and of it what has no label unless labels are asked for."""

    def __init__(self, data: QueryDict) -> None:
        form = CallFilterForm(data)
        self.faults = [] if form.is_valid() else form.faults()
        self.query = filter_query(data)
        self.wanted = form.wanted if not self.faults else CallFilter()
        self.open = self.wanted if self.wanted.labels else items.unlabelled(self.wanted)

    @property
    def browses(self) -> bool:
        """Are items with a label gone through, too?"""
        return bool(self.wanted.labels)

    def hints_address(self, slug: str) -> str:
        """The same queue, of what has a hint alone; of that, all of it."""
        query = self.query.copy()
        if query.pop("hint", None) is None:
            query["hint"] = ANY_HINT
        return f"{reverse('review', args=[slug])}?{query.urlencode()}".removesuffix("?")

    def address(self, slug: str, item: Item | None = None, **more: str) -> str:
        query = self.query.copy()
        for name, value in (_item_query(item) | more).items():
            query[name] = value
        return f"{reverse('review', args=[slug])}?{query.urlencode()}".removesuffix("?")


def _item_address(request: TenantRequest, item: Item) -> str:
    """The item's own page."""
    name, pk = ("call-detail", item.call_id) if item.call_id else ("turn-detail", item.turn_id)
    return reverse(name, args=[request.tenant.slug, pk])


def _item_query(item: Item | None) -> dict[str, str]:
    if item is None:
        return {}
    if item.call_id:
        return {"call": str(item.call_id)}
    return {"turn": str(item.turn_id), "cycle": str(item.cycle)}


def _place_of_call(queue: Queue, slug: str, pk: int) -> str:
    """Where Review shows this call."""
    query = queue.query.copy()
    query["call"] = str(pk)
    return f"{reverse('review', args=[slug])}?{query.urlencode()}"


def _item_of(data: QueryDict) -> Item | None:
    """The item that an address names, None if none; raises Http404."""
    call, turn, cycle = (str(data.get(name) or "") for name in ("call", "turn", "cycle"))
    try:
        if call:
            return items.item_of_call(int(call))
        if turn:
            return items.item_of_turn(int(turn), int(cycle) if cycle else None)
    except (ValueError, NoSuchItem) as error:
        raise Http404(f"{error}") from error
    return None


@require_GET
@tenant_view()
def review(request: TenantRequest) -> HttpResponse:
    """The item of the address, else the first open one; with `done`, that there is none after the last one."""
    queue = Queue(request.GET)
    item = _item_of(request.GET)
    if item is None and "done" not in request.GET and not queue.faults:
        item = items.next_item(None, queue.open)
    label = request.GET.get("correct", "")
    if item and label in ASKED and request.membership.may(Role.OPERATOR):
        return _shown(request, queue, item, correcting=_begun(request, item, label))
    return _shown(request, queue, item)


@require_GET
@tenant_view(Role.OPERATOR)
def review_correct(request: TenantRequest) -> HttpResponse:
    """Ask what would have been right with the label `label`, in the place of the labels' buttons; without one, the
    buttons again."""
    queue = Queue(QueryDict(request.GET.get("filter", "")))
    item, label = _item_of(request.GET), request.GET.get("label", "")
    if item is None:
        raise Http404("Say which item this is for.")
    stay = bool(request.GET.get("stay"))
    if label in ASKED:
        return _asked(request, queue, item, _begun(request, item, label), stay=stay)
    if request.htmx:
        return _judgement(request, queue, item, stay=stay)
    return redirect(_item_address(request, item) if stay else queue.address(request.tenant.slug, item))


def _begun(request: TenantRequest, item: Item, label: str) -> CorrectionForm:
    """The form as it begins: with what this reviewer said before, else with what the call had."""
    found = evidence_of(item)
    mine = next((one for one in found.labels if one.reviewer_id == request.user.pk), None)
    return CorrectionForm(label, found, mine=mine)


def _asked(
    request: TenantRequest, queue: Queue, item: Item, form: CorrectionForm, *, note: str | None = None, stay: bool
) -> HttpResponse:
    """The judgement with the form of a correction; for a browser alone, on the page of Review."""
    context: dict[str, Any] = {"correcting": form, "stay": stay, "sent_note": note}
    if request.htmx:
        return _judgement(request, queue, item, **context)
    return _shown(request, queue, item, **context)


@require_POST
@tenant_view(Role.OPERATOR)
def review_label(request: TenantRequest) -> HttpResponse:
    """Store one label. From Review the next item follows, from an item's own page (`stay`) the same one."""
    queue = Queue(QueryDict(request.POST.get("filter", "")))
    form = LabelForm(request.POST)
    if not form.is_valid():
        return _refused(request, queue, form)
    item = _existing(form)
    data = form.cleaned_data
    correction = _sent_correction(request, queue, item, data)
    if isinstance(correction, HttpResponse):
        return correction
    try:
        labelling.record_label(
            item=item,
            reviewer=request.user,
            label=data["label"],
            note=data["note"],
            correction=correction,
            seen_version=data["version"],
            nonce=data["nonce"],
        )
    except labelling.StaleLabel as stale:
        return _conflict(request, queue, item, stale)
    except ValidationError as error:
        form.add_error(None, error.messages)
        return _refused(request, queue, form)
    if request.POST.get("stay"):
        return _moved(request, queue, item, stay=True)
    return _moved(request, queue, items.next_item(item, queue.open))


@require_POST
@tenant_view(Role.OPERATOR)
def review_undo(request: TenantRequest) -> HttpResponse:
    """Take back a label of one's own, and go to its item."""
    queue = Queue(QueryDict(request.POST.get("filter", "")))
    form = ItemForm(request.POST)
    if not form.is_valid():
        return _refused(request, queue, form)
    item = _existing(form)
    data = form.cleaned_data
    stay = bool(request.POST.get("stay"))
    try:
        outcome = labelling.undo(item=item, reviewer=request.user, seen_version=data["version"], nonce=data["nonce"])
    except labelling.StaleLabel as stale:
        return _conflict(request, queue, item, stale)
    except labelling.NothingToUndo as nothing:
        return _moved(request, queue, item, notice=str(nothing), stay=stay)
    return _moved(request, queue, item, notice=_undone(outcome.event), stay=stay)


def _undone(event: FeedbackEvent) -> str:
    item = {"turn_id": event.turn_id, "call_id": event.call_id}
    if event.call_id is None:
        item["cycle"] = event.cycle
    taken = FeedbackEvent.objects.filter(**item, version=event.undoes or 0).first()
    was = Label(taken.label).label if taken and taken.label else "no label"
    now = f", {Label(event.label).label} again" if event.label else ""
    return f"Undone: {was} on {describe(event)}{now}"


def _existing(form: ItemForm) -> Item:
    try:
        return form.item()
    except NoSuchItem as error:
        raise Http404(str(error)) from error


def _sent_correction(
    request: TenantRequest, queue: Queue, item: Item, data: dict[str, Any]
) -> str | HttpResponse | None:
    """The correction that goes with a label; where its form is not done with, the form again."""
    if not request.POST.get("correcting") or data["label"] not in ASKED:
        return data["correction"] or _kept_correction(request, item, data["label"])
    form = CorrectionForm(data["label"], evidence_of(item), data=request.POST)
    again = partial(_asked, request, queue, item, form, note=data["note"], stay=bool(request.POST.get("stay")))
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


def _moved(
    request: TenantRequest, queue: Queue, item: Item | None, *, notice: str = "", stay: bool = False
) -> HttpResponse:
    """Show an item after a write: htmx gets it in the answer, a browser is sent there."""
    slug = request.tenant.slug
    if stay and item:
        address = _item_address(request, item)
    else:
        address = queue.address(slug, item, **({} if item else {"done": "1"}))
    if not request.htmx:
        if notice:
            messages.info(request, notice)
        return redirect(address)
    if stay and item:
        return _judgement(request, queue, item, notice=notice)
    response = _shown(request, queue, item, notice=notice)
    response["HX-Push-Url"] = address
    return response


def _shown(request: TenantRequest, queue: Queue, item: Item | None, *, notice: str = "", **more: Any) -> HttpResponse:
    context = _frame(request, queue, item) | {"notice": notice} | more
    if item is None:
        context["last"] = last_label(request)
    if item is not None:
        found = _found(item, more)
        address_of = partial(_place_of_call, queue, request.tenant.slug)
        context |= item_context(found, address_of) | label_context(request, found) | context
    return _render(request, TEMPLATE, context, partial="review")


def _found(item: Item, more: dict[str, Any]) -> ItemEvidence:
    """What is known of an item: the form of a correction has read it already."""
    form = more.get("correcting")
    return form.found if isinstance(form, CorrectionForm) else evidence_of(item)


def _frame(request: TenantRequest, queue: Queue, item: Item | None) -> dict[str, Any]:
    """The rail: progress, neighbours, filter; and where each key leads."""
    slug = request.tenant.slug
    before = items.items_before(item, queue.wanted, limit=RAIL_BEFORE) if item else []
    after = items.items_after(item, queue.wanted, limit=RAIL_AFTER) if item else []
    around = [*before[::-1], *([item] if item else []), *after]
    labels = _labels_of(around)
    open_after = [one for one in after if queue.browses or not labels.get((one.turn_id, one.cycle, one.call_id))]
    # Beyond the rail's end only a query knows.
    following = next(iter(open_after), None) or (items.next_item(after[-1], queue.open) if after else None)
    return {
        "queue": queue,
        "query": queue.query.urlencode(),
        "chips": chips(queue.query),
        "progress": items.progress(replace(queue.wanted, labels=()), request.user),
        "first_open": None if item else items.next_item(None, queue.open),
        "rail": [
            {
                "item": one,
                "url": queue.address(slug, one),
                "label": labels.get((one.turn_id, one.cycle, one.call_id)),
                "is_current": one == item,
            }
            for one in around
        ],
        "next_url": queue.address(slug, after[0]) if after else "",
        "previous_url": queue.address(slug, before[0]) if before else "",
        "skip_url": queue.address(slug, following, **({} if following else {"done": "1"})) if item else "",
        "start_url": queue.address(slug),
        "hints_url": queue.hints_address(slug),
    }


def _labels_of(around: Iterable[Item]) -> dict[tuple[int, int, int | None], str | None]:
    around = list(around)
    calls = Q(call_id__in=[item.call_id for item in around if item.call_id])
    turns = Q(call_id=None, turn_id__in=[item.turn_id for item in around if not item.call_id])
    rows = Review.objects.filter(calls | turns).values_list("turn_id", "cycle", "call_id", "label")
    return {(turn, cycle, call): label for turn, cycle, call, label in rows}


def _judgement(request: TenantRequest, queue: Queue, item: Item, *, status: int = 200, **more: Any) -> HttpResponse:
    """The judgement alone, in the place where it stands."""
    found = _found(item, more)
    context = item_context(found, page_of_call(request)) | label_context(request, found)
    context |= {"query": queue.query.urlencode(), "stay": bool(request.POST.get("stay"))} | more
    response = render(cast(HttpRequest, request), "components/judgement.html", context, status=status)
    # The form may ask for the whole screen; what did not move on goes back to where it stands.
    response["HX-Retarget"], response["HX-Reswap"] = "#judgement", "outerHTML"
    return response


def _conflict(request: TenantRequest, queue: Queue, item: Item, stale: labelling.StaleLabel) -> HttpResponse:
    """409 with both values: the reviewer decides whose holds."""
    context: dict[str, Any] = {
        "stale": stale,
        "sent_note": stale.sent.note if stale.sent else None,
        "mine_nonce": uuid.uuid4(),
        "theirs_url": _item_address(request, item)
        if request.POST.get("stay")
        else queue.address(request.tenant.slug, items.next_item(item, queue.open)),
    }
    if request.htmx:
        return _judgement(request, queue, item, status=409, **context)
    response = _shown(request, queue, item, **context)
    response.status_code = 409
    return response


def _refused(request: TenantRequest, queue: Queue, form: ItemForm) -> HttpResponse:
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
        return _judgement(request, queue, item, faults=faults, sent_note=form.cleaned_data.get("note"))
    response = _shown(request, queue, item, faults=faults)
    response.status_code = 400
    return response


def _render(request: TenantRequest, template: str, context: dict[str, Any], *, partial: str) -> HttpResponse:
    htmx = request.htmx
    if htmx and not htmx.history_restore_request:
        template = f"{template}#{partial}"
    response = render(cast(HttpRequest, request), template, context)
    patch_vary_headers(response, ["HX-Request"])
    return response
