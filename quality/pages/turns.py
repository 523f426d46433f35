"""Turns: the list, and a turn that we run: live, stopped, its calls decided."""

from dataclasses import replace
from functools import partial
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality import calls
from quality.filters import CursorField, MomentField, QueryForm
from quality.models import Channel, Turn, TurnRun, TurnState
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import Words, chips, conditions
from quality.pages.decisions import DECLINE_LABELS, Card, address, card_of, carry_out, find_call, place_of, veiled
from quality.pages.render import render_page
from quality.pages.views import opened, views_context, with_view
from quality.turns import listing
from quality.turns.create import cancel_turn
from quality.turns.decide import NoSuchTurn, decide
from quality.turns.listing import TurnFilter
from quality.turns.live import NotLive, stream_turn
from quality.turns.transcript import Transcript, transcript_of
from tenants.access import membership_in, session_user
from tenants.models import Role
from tenants.scope import tenant_scope

FILTER_WORDS = {
    "state": gettext_lazy("state"),
    "source": gettext_lazy("source"),
    "channel": gettext_lazy("channel"),
    "ours": gettext_lazy("run by"),
    "style": gettext_lazy("style"),
    "model": gettext_lazy("model"),
    "conversation": gettext_lazy("conversation"),
    "from": gettext_lazy("from"),
    "to": gettext_lazy("until"),
}
PRIMARY = ("state", "source", "channel", "ours")

# Why a turn ended, and what to do about it: words, and the page where it is done.
ADVICE: dict[str, tuple[str | Promise, str]] = {
    "answered": ("", ""),
    "exhausted": (
        gettext_lazy("The model used all of its replies for calls and gave no answer. More may be set under Tools."),
        "tool-list",
    ),
    "empty": (gettext_lazy("Test the model: it says what its server supports."), "model-list"),
    "timed_out": (gettext_lazy("Look at which call or reply took so long, then send the message again."), ""),
    "budget_exceeded": (
        gettext_lazy("Look at the calls above: a model that repeats itself needs a clearer style or tools."),
        "style-list",
    ),
    "provider_error": (
        gettext_lazy("Test the model: it says whether its server can be reached and what it supports."),
        "model-list",
    ),
    "no_model": (gettext_lazy("Add a model, or enable one."), "model-list"),
    "no_style": (gettext_lazy("Choose another style, or add this one."), "style-list"),
    "secret_invalid": (gettext_lazy("Enter the secret again."), "secret-list"),
    "invalid_tools": (gettext_lazy("Correct the tool it names."), "tool-list"),
    "worker_lost": (
        gettext_lazy(
            "Workers died while they ran this turn. Ask the operator of the service to look at their log; "
            "then send the message again."
        ),
        "",
    ),
    "internal_error": (gettext_lazy("Ask the operator of the service to look at the workers' log."), ""),
    "not_answered": (gettext_lazy("The next message came before the open calls were decided; they were closed."), ""),
    "cancelled": (gettext_lazy("It was stopped. What ran before stays as it is."), ""),
}


SHOWN: Words = {
    "state": dict(TurnState.choices),
    "channel": dict(Channel.choices),
    "ours": {"on": gettext_lazy("us"), "true": gettext_lazy("us")},
}


class TurnFilterForm(QueryForm):
    """The filter of the list."""

    state = forms.ChoiceField(required=False, choices=TurnState.choices)
    source = forms.CharField(required=False, max_length=200)
    channel = forms.ChoiceField(required=False, choices=Channel.choices)
    ours = forms.BooleanField(required=False)
    style = forms.CharField(required=False, max_length=200)
    model = forms.CharField(required=False, max_length=200)
    conversation = forms.CharField(required=False, max_length=512)
    since = MomentField(required=False)
    until = MomentField(required=False, end=True)

    @property
    def wanted(self) -> TurnFilter:
        fields = TurnFilter.__dataclass_fields__
        return TurnFilter(**{name: value for name, value in self.cleaned_data.items() if name in fields})


class TurnListForm(TurnFilterForm):
    """The filter with the place in the list, and the saved view that is open."""

    cursor = CursorField(required=False, max_length=200)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=calls.MAX_PAGE_SIZE)
    view = forms.CharField(required=False, max_length=20)


@require_GET
@tenant_view()
def turn_list(request: TenantRequest) -> HttpResponseBase:
    """Turns of all sources, newest first. Bad filters are told back with no rows."""
    if elsewhere := opened(request, "turns"):
        return elsewhere
    form = TurnListForm(request.GET)
    query = conditions(request.GET, FILTER_WORDS)
    sources = calls.distinct("source", Turn)
    context: dict[str, Any] = {
        "form": form,
        "query": query.urlencode(),
        "chips": chips(query, FILTER_WORDS, SHOWN),
        "more_open": any(name not in PRIMARY for name in query),
        "values": {name: query.get(name, "") for name in FILTER_WORDS},
        "sources": sources,
        "states": TurnState.choices,
        "channels": Channel.choices,
        "unknown": form.unknown(),
        "page": None,
        "count_cap": calls.COUNT_CAP,
        "here": with_view(query, request).urlencode(),
        "kept": [("view", request.GET["view"])] if request.GET.get("view") else [],
        **views_context(request, "turns", query),
    }
    for chip in context["chips"]:
        chip["without"] = with_view(QueryDict(chip["without"]), request).urlencode()
    if form.is_valid():
        size = form.cleaned_data["page_size"] or calls.PAGE_SIZE
        count = listing.count(form.wanted)
        context |= {
            "page": listing.find(form.wanted, cursor=form.cleaned_data["cursor"], page_size=size),
            "count": count,
            "capped": count > calls.COUNT_CAP,
            "has_any": bool(sources),
        }
    response = render_page(cast(HttpRequest, request), "quality/turn_list.html", context, partial="list")
    if request.htmx:
        response["HX-Push-Url"] = f"{request.path}?{context['here']}".removesuffix("?")
    return response


# --- one turn, live ---------------------------------------------------------------------------------------------------
def live_context(request: TenantRequest, transcript: Transcript, place: str) -> dict[str, Any]:
    """What the component of a running turn shows. Who may not decide gets no forms."""
    may_decide = request.membership.may(Role.OPERATOR)
    words, page = ADVICE.get(transcript.turn.end_reason, ("", ""))
    return {
        "transcript": transcript,
        "turn": transcript.turn,
        "run": transcript.run,
        "place": place,
        "replies": [
            (reply, [card_of(one, place) for one in veiled(reply.calls, request.user)]) for reply in transcript.replies
        ],
        "may_decide": may_decide,
        "decline_labels": DECLINE_LABELS,
        "advice": words,
        "advice_page": page,
    }


@require_GET
@tenant_view()
def turn_live(request: TenantRequest, pk: int) -> HttpResponse:
    """A turn of ours as it stands, to be merged into the page that shows it."""
    context = live_context(request, transcript_or_404(pk), place_of(request))
    return render(cast(HttpRequest, request), "components/turn_live.html", context)


def transcript_or_404(pk: int) -> Transcript:
    try:
        return transcript_of(pk)
    except (TurnRun.DoesNotExist, Turn.DoesNotExist) as error:
        raise Http404(_("We do not run such a turn.")) from error


@require_GET
@tenant_view(scope=False)
def turn_events(request: TenantRequest, pk: int) -> HttpResponseBase:
    """Follow a turn by the session's right. 204, which ends a browser's asking, where there is no more to tell or
    this process serves no streams: the page then asks for the turn now and then."""
    with tenant_scope(request.tenant):
        if not TurnRun.objects.filter(turn=pk).exists():
            raise Http404(_("We do not run such a turn."))
    try:
        return stream_turn(
            cast(HttpRequest, request),
            tenant_id=request.tenant.pk,
            turn_id=pk,
            still_allowed=partial(still_may_watch, request.tenant.slug, str(request.session.session_key)),
        )
    except NotLive:
        return HttpResponse(status=204)


def still_may_watch(slug: str, session_key: str) -> bool:
    """Is the owner of a session still signed in, and a member of the tenant?"""
    user = session_user(session_key)
    return user is not None and membership_in(slug, user) is not None


@require_POST
@tenant_view(Role.OPERATOR)
def turn_stop(request: TenantRequest, pk: int) -> HttpResponse:
    """Call a turn off. One that runs ends within a moment; one that has ended stays as it is."""
    run = cancel_turn(pk, by=request.user)
    if run is None:
        raise Http404(_("We do not run such a turn."))
    if request.htmx:
        return HttpResponse(status=204)
    has_ended = run.state == TurnState.CANCELLED
    messages.info(request, _("The turn is stopped.") if has_ended else _("The turn is being stopped."))
    return redirect(address(request, place_of(request), pk))


@require_POST
@tenant_view(Role.OPERATOR)
def turn_go_on(request: TenantRequest, pk: int) -> HttpResponse:
    """Let a turn go on whose calls were all decided for the record only. Any other turn stays as it is."""
    try:
        decide(pk, [], by=request.user)
    except NoSuchTurn as error:
        raise Http404(_("We do not run such a turn.")) from error
    return HttpResponse(status=204) if request.htmx else redirect(address(request, place_of(request), pk))


@require_POST
@tenant_view(Role.OPERATOR)
def turn_decide(request: TenantRequest, pk: int) -> HttpResponse:
    """Decide on one call. htmx gets its card as it is now; a browser goes back to the page, or sees what was wrong."""
    call_id = request.POST.get("call", "")
    if not call_id.isascii() or not call_id.isdigit() or len(call_id) > 18:
        raise Http404(_("There is no such call."))
    place = place_of(request)
    came = carry_out(request, find_call(pk, int(call_id)), place)
    if request.htmx:
        return _card(request, came.card, 409 if came.status == 409 else 200)
    if came.status != 200:
        return _card(request, came.card, came.status, template="quality/call_decide.html")
    messages.success(request, came.words)
    return redirect(address(request, place, pk))


def _card(request: TenantRequest, card: Card, status: int, template: str = "components/turn_call.html") -> HttpResponse:
    (one,) = veiled([card.one], request.user)
    context = {
        "card": replace(card, one=one),
        "one": one,
        "place": card.place,
        "may_decide": True,
        "decline_labels": DECLINE_LABELS,
        "back": address(request, card.place, card.one.call.turn_id),
    }
    return render(cast(HttpRequest, request), template, context, status=status)
