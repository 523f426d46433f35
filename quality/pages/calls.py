"""One call or turn with everything needed to judge it."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_GET

from quality.models import ToolCall, Turn, TurnRun
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.diff import diff
from quality.pages.labels import label_context
from quality.review import jsonview
from quality.review.conversation import Conversation, message_text, read_conversation
from quality.review.evidence import ItemEvidence, Sibling, evidence_for, siblings, turn_without_payload
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn
from quality.review.offered import CHANGED, since
from quality.review.sources import Desk
from quality.review.todays import todays
from quality.starts import Octets
from quality.turns.transcript import transcript_of


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

    found = evidence_for(item, request.user)
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
    found = evidence_for(item, request.user)
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
        "offered": _offered(found, address_of),
        "desk": Desk(),
    }


def _offered(found: ItemEvidence, address_of: Callable[[int], str]) -> list[dict[str, Any]]:
    """The tools offered then: what became of each since, line by line where it changed, and its calls in the turn."""
    today = todays() if found.tools else {}
    return [
        {
            "tool": one.tool,
            "word": one.word,
            "lines": diff(one.tool.text, today[one.tool.name].text) if one.word == CHANGED else [],
            "numbers": [
                (call.number, address_of(call.id)) for call in found.siblings if call.tool_name == one.tool.name
            ],
        }
        for one in since(found.tools, today)
    ]


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


MAX_BRANCH_BYTES = 4 * 1024 * 1024
MAX_LOADED_STRING = 200_000


@require_GET
@tenant_view()
def call_branch(request: TenantRequest, pk: int, name: str) -> HttpResponse:
    """A part of a call's arguments or result, named by a JSON pointer (`at`): its members from `from` on, to stand in
    place of those that were left out; with `raw` what it says, as text."""
    stored = ToolCall.objects.filter(pk=pk)
    if (stored.annotate(size=Octets(F(name))).values_list("size", flat=True).first() or 0) > MAX_BRANCH_BYTES:
        return _raw(gettext("This is too large to be laid out here. Download it."), f"call-{pk}-{name}", is_json=False)
    text = _stored(stored, name)
    pointer = request.GET.get("at", "")
    try:
        value = jsonview.at(jsonview.decode(text), pointer)
    except (ValueError, LookupError) as error:
        if pointer or "raw" not in request.GET:
            raise Http404("There is no such part.") from error
        value = text
    if "raw" in request.GET:
        said = value if isinstance(value, str) else (jsonview.spelled(value) if pointer else text)
        return _raw(said, f"call-{pk}-{name}", is_json=False)
    start = request.GET.get("from", "")
    return _branch(request, value, pointer, int(start) if start.isdecimal() and len(start) < 10 else 0)


def _branch(request: TenantRequest, value: Any, pointer: str, start: int) -> HttpResponse:
    is_container = isinstance(value, list)
    node = jsonview.tree(value, max_string=jsonview.MAX_STRING if is_container else MAX_LOADED_STRING, start=start)
    context = {"node": node, "branch": request.path, "pointer": pointer, "is_members": is_container and start > 0}
    return render(cast(HttpRequest, request), "components/branch.html", context)
