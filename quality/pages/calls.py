"""The list of calls, and one call or turn with everything needed to judge it."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET

from quality import calls
from quality.filters import CallListForm
from quality.models import Label, ToolCall, Turn, TurnRun
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import Words, conditions
from quality.pages.conditions import chips as conditions_in_words
from quality.pages.labels import label_context
from quality.pages.render import render_page
from quality.review.conversation import Conversation, message_text, read_conversation
from quality.review.evidence import ItemEvidence, Sibling, evidence_of, siblings, turn_without_payload
from quality.review.hints import RULES
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn
from quality.turns.transcript import transcript_of

FILTER_WORDS = {
    "tool": "tool",
    "label": "label",
    "hint": "hint",
    "error": "outcome",
    "source": "source",
    "style": "style",
    "model": "model",
    "toolset": "toolset",
    "conversation": "conversation",
    "message": "message",
    "outbound_message": "outbound message",
    "contact": "contact",
    "from": "from",
    "to": "until",
}
PRIMARY = ("tool", "label", "hint", "error", "source")
_SHOWN: Words = {
    "error": {"yes": "failed", "no": "worked", "none": "not recorded"},
    "label": {**dict(Label.choices), calls.UNLABELLED: "none yet"},
    "hint": {**{rule.name: rule.word for rule in RULES}, calls.ANY_HINT: "any"},
}


def filter_query(data: QueryDict) -> QueryDict:
    """What of a query string is the filter of calls."""
    return conditions(data, FILTER_WORDS)


def chips(query: QueryDict) -> list[dict[str, str]]:
    """The filter of calls in words."""
    return conditions_in_words(query, FILTER_WORDS, _SHOWN)


def filter_context(form: CallListForm, query: QueryDict) -> dict[str, Any]:
    """What the filter component shows; three queries."""
    return {
        "form": form,
        "query": query.urlencode(),
        "chips": chips(query),
        "more_open": any(name not in PRIMARY for name in query),
        "values": {name: query.get(name, "") for name in FILTER_WORDS},
        "others": [(name, value) for name in ("tool", "label", "hint") for value in query.getlist(name)[1:]],
        "tools": calls.tool_names(),
        "sources": calls.sources(),
        "labels": [*Label.choices, (calls.UNLABELLED, "Unlabelled")],
        "hints": _hint_choices(query.get("hint", "")),
    }


def _hint_choices(chosen: str) -> list[tuple[str, str, str]]:
    """Value, word, and how many calls there are of each rule that says anything, and of the one chosen."""
    counts = calls.hint_counts()
    return [
        (rule.name, rule.word, f"{counts[rule.name]:,}" if counts[rule.name] <= calls.COUNT_CAP else "many")
        for rule in RULES
        if counts[rule.name] or rule.name == chosen
    ]


@require_GET
@tenant_view()
def call_list(request: TenantRequest) -> HttpResponse:
    """Calls newest first. Bad filters are told back with no rows: a wider list would be taken for the answer."""
    form = CallListForm(request.GET)
    query = filter_query(request.GET)
    context = filter_context(form, query) | {"unknown": form.unknown(), "page": None, "count": 0}
    if form.is_valid():
        wanted = form.wanted
        context["page"] = calls.find(wanted, cursor=form.cleaned_data["cursor"], page_size=form.page_size_or_default)
        context["asked_hints"] = wanted.hints
        context["count"] = calls.count(wanted)
        context["capped"] = context["count"] > calls.COUNT_CAP
        context["count_cap"] = calls.COUNT_CAP
        context["has_any"] = bool(context["page"].rows) or bool(context["tools"])
    response = render_page(cast(HttpRequest, request), "quality/call_list.html", context, partial="list")
    if request.htmx:
        response["HX-Push-Url"] = f"{request.path}?{_without_empty(request.GET)}".removesuffix("?")
    return response


def _without_empty(data: QueryDict) -> str:
    query = QueryDict(mutable=True)
    for name, values in data.lists():
        if kept := [value for value in values if value]:
            query.setlist(name, kept)
    return query.urlencode()


@require_GET
@tenant_view()
def call_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """One call, its conversation, and what reviewers said of it."""
    return _item_page(request, _item_or_404(call_id=pk))


@require_GET
@tenant_view()
def turn_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """One turn; the whole page, or for htmx its messages alone, to be unfolded inside another turn's page."""
    if request.htmx and not request.htmx.history_restore_request:
        try:
            turn = turn_without_payload(pk)
        except Turn.DoesNotExist as error:
            raise Http404 from error
        conversation = read_conversation(turn.messages_start)  # type: ignore[attr-defined]
        said = placed(conversation, siblings(pk), page_of_call(request))
        context = {"turn": turn, "conversation": conversation, "said": said}
        return render(cast(HttpRequest, request), "components/conversation.html", context)
    return _turn_page(request, _item_or_404(turn_id=pk))


def _turn_page(request: TenantRequest, item: Item) -> HttpResponse:
    """A turn of ours tells how it is run, too; until it has ended it is shown live, and not judged."""
    from quality.pages.turns import live_context

    found = evidence_of(item)
    context = item_context(found, page_of_call(request)) | label_context(request, found) | {"stay": True}
    if TurnRun.objects.filter(turn=item.turn_id).exists():
        context |= live_context(request, transcript_of(item.turn_id), "turn")
    return render(cast(HttpRequest, request), "quality/turn_detail.html", context)


def page_of_call(request: TenantRequest) -> Callable[[int], str]:
    """Addresses of calls' own pages."""
    return lambda pk: reverse("call-detail", args=[request.tenant.slug, pk])


def _item_or_404(*, call_id: int | None = None, turn_id: int | None = None) -> Item:
    try:
        return item_of_call(call_id) if call_id is not None else item_of_turn(cast(int, turn_id))
    except NoSuchItem as error:
        raise Http404(str(error)) from error


def _item_page(request: TenantRequest, item: Item) -> HttpResponse:
    found = evidence_of(item)
    context = item_context(found, page_of_call(request)) | label_context(request, found) | {"stay": True}
    return render(cast(HttpRequest, request), "quality/call_detail.html", context)


def item_context(found: ItemEvidence, address_of: Callable[[int], str]) -> dict[str, Any]:
    """What the components of one item need. `address_of` a call is its own page, or its place in Review."""
    key = (found.call.call.cycle, found.call.call.index) if found.call else None
    return {
        "found": found,
        "turn": found.turn,
        "conversation": found.conversation,
        "said": placed(found.conversation, found.siblings, address_of, key),
        "history": placed(found.history, (), address_of),
        "siblings": [(one, address_of(one.id)) for one in found.siblings],
    }


def placed(
    conversation: Conversation,
    recorded: Iterable[Sibling],
    address_of: Callable[[int], str],
    current: tuple[int, int] | None = None,
) -> list[dict[str, Any]]:
    """The messages, each with the calls that it asked for: as recorded (`sibling`, with `url`), and whether it is the
    one shown."""
    by_key = {one.key: one for one in recorded}
    return [
        {
            "message": said,
            "calls": [
                {
                    "asked": call,
                    "sibling": by_key.get(call.key),
                    "url": address_of(by_key[call.key].id) if call.key in by_key else "",
                    "is_current": call.key == current,
                }
                for call in said.calls
            ],
        }
        for said in conversation.messages
    ]


@require_GET
@tenant_view()
def call_evidence(request: TenantRequest, pk: int, name: str) -> HttpResponse:
    """Arguments, result or error of a call, whole, byte for byte as stored; never shown by the browser as a page."""
    return _raw(_stored(ToolCall.objects.filter(pk=pk), name), f"call-{pk}-{name}", is_json=name != "error")


@require_GET
@tenant_view()
def turn_messages(request: TenantRequest, pk: int) -> HttpResponse:
    """The messages of a turn, whole."""
    return _raw(_stored(Turn.objects.filter(pk=pk), "messages"), f"turn-{pk}-messages", is_json=True)


@require_GET
@tenant_view()
def turn_message(request: TenantRequest, pk: int, position: int) -> HttpResponse:
    """The whole text of one message, to stand in place of its beginning."""
    text = message_text(_stored(Turn.objects.filter(pk=pk), "messages"), position)
    if text is None:
        raise Http404("No such message.")
    if request.htmx:
        return render(cast(HttpRequest, request), "components/conversation.html#whole", {"text": text})
    return _raw(text, f"turn-{pk}-message-{position}", is_json=False)


def _stored(rows: QuerySet[Any], name: str) -> str:
    """One column of one row; raises Http404 where there is no row, or nothing in it."""
    text = rows.values_list(name, flat=True).first()
    if text is None:
        raise Http404("Nothing was recorded.")
    return str(text)


def _raw(text: str, name: str, *, is_json: bool) -> HttpResponse:
    kind = "application/json" if is_json else "text/plain"
    response = HttpResponse(text.encode(errors="backslashreplace"), content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.{"json" if is_json else "txt"}"'
    return response
