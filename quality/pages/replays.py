"""Replays: what ran and what it cost, one of them live and judged, and how suites and cases came out over time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from django import forms
from django.contrib import messages
from django.db.models import Count, F, Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from quality.calls import BadCursor
from quality.cases.gate import Exit
from quality.filters import MomentField, QueryForm
from quality.improve import cases, keyset
from quality.models import LIVE_REPLAYS, Case, CaseStatus, Replay, ReplaySchedule, ReplaySide, ReplayState
from quality.pages.access import TenantRequest, tenant_view
from quality.pages.conditions import Words, chips, conditions
from quality.pages.render import render_page
from quality.replay import answers, findings, matrix, outcome, quarantine, steps, trends
from quality.replay.matrix import FLAGS, RowFilter
from quality.replay.sample_view import VERDICTS
from quality.replay.trends import Rate, rate_of
from quality.streaming import stream
from tenants import endpoints
from tenants.models import Role
from tenants.scope import tenant_scope

PAGE_SIZE: Final = 50
BY_HAND: Final = "none"
NUM_DUE: Final = 4
WORDS: Final = {
    "state": gettext_lazy("state"),
    "verdict": gettext_lazy("verdict"),
    "schedule": gettext_lazy("begun by"),
    "from": gettext_lazy("from"),
    "to": gettext_lazy("until"),
}
VERDICT_WORDS: Final = {
    "passed": gettext_lazy("passed"),
    "failed": gettext_lazy("failed"),
    "incomplete": gettext_lazy("incomplete"),
    "none": gettext_lazy("no verdict"),
}
_EXITS: Final = {"passed": Exit.PASSED, "failed": Exit.FAILED, "incomplete": Exit.INCOMPLETE}
_KINDS: Final = {Exit.PASSED: "done", Exit.FAILED: "failed", Exit.INCOMPLETE: "warn"}
_EXIT_WORDS: Final[dict[Exit, str | Promise]] = {
    Exit.PASSED: gettext_lazy("passed"),
    Exit.FAILED: gettext_lazy("failed"),
    Exit.BAD_INPUT: gettext_lazy("bad input"),
    Exit.INCOMPLETE: gettext_lazy("incomplete"),
}
ASKED: Final = ("cancel", "retry")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A replay in a word, with the class that colours it; `more` says how far it is."""

    kind: str
    word: str
    more: str = ""


def verdict_of(replay: Replay) -> Verdict:
    far = _("%(done)s of %(total)s") % {
        "done": replay.num_finished,
        "total": max(replay.num_expected, replay.num_finished),
    }
    if replay.state in LIVE_REPLAYS:
        return Verdict(replay.state, replay.get_state_display().lower(), far)
    if replay.state == ReplayState.CANCELLED:
        return Verdict("cancelled", _("cancelled"), far)
    if replay.state == ReplayState.FAILED or replay.exit_code is None:
        return Verdict("error", _("broke off"), far)
    exit_code = Exit(replay.exit_code)
    return Verdict(_KINDS.get(exit_code, "error"), str(_EXIT_WORDS[exit_code]))


# The list.


class ReplayListForm(QueryForm):
    """The filter of the list with the place in it."""

    state = forms.ChoiceField(required=False, choices=ReplayState.choices)
    verdict = forms.ChoiceField(required=False, choices=list(VERDICT_WORDS.items()))
    schedule = forms.RegexField(r"^(none|\d{1,18})$", required=False)
    since = MomentField(required=False)
    until = MomentField(required=False, end=True)
    cursor = forms.CharField(required=False, max_length=2_000)

    @property
    def replays(self) -> QuerySet[Replay]:
        """What it lets through, in no order yet; only of a valid form."""
        data = self.cleaned_data
        found = Replay.objects.all()
        columns = {"state": data["state"], "created_at__gte": data["since"], "created_at__lt": data["until"]}
        found = found.filter(**{name: value for name, value in columns.items() if value})
        if data["verdict"]:
            found = found.filter(exit_code=_EXITS.get(data["verdict"]))
        if data["schedule"]:
            found = found.filter(schedule=None if data["schedule"] == BY_HAND else int(data["schedule"]))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedReplay:
    replay: Replay
    sides: list[ReplaySide]
    verdict: Verdict
    rate: Rate | None
    samples: str
    tokens: int
    took: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPage:
    rows: list[ListedReplay]
    next: str | None


@require_GET
@tenant_view()
def replay_list(request: TenantRequest) -> HttpResponse:
    """What ran, when, what came of it and what it cost, the newest first."""
    form = ReplayListForm(request.GET)
    query = conditions(request.GET, WORDS)
    schedules = list(ReplaySchedule.objects.order_by("name"))
    shown: Words = {
        "state": dict(ReplayState.choices),
        "verdict": VERDICT_WORDS,
        "schedule": {BY_HAND: _("people and tokens"), **{str(one.pk): one.name for one in schedules}},
    }
    context: dict[str, Any] = {
        "form": form,
        "unknown": form.unknown(),
        "faults": form.faults(),
        "query": query.urlencode(),
        "values": {**{name: query.get(name, "") for name in WORDS}, "cursor": request.GET.get("cursor", "")},
        "chips": chips(query, WORDS, shown),
        "states": ReplayState.choices,
        "verdicts": VERDICT_WORDS.items(),
        "schedules": [(BY_HAND, _("people and tokens")), *((str(one.pk), one.name) for one in schedules)],
        "due": sorted(
            (one for one in schedules if one.is_enabled and one.next_at), key=lambda one: cast(Any, one.next_at)
        )[:NUM_DUE],
        "page": None,
        "has_any": Replay.objects.exists(),
        "has_cases": Case.objects.filter(status=CaseStatus.ACTIVE).exists(),
        "has_models": endpoints.has_enabled(),
        "num_disputes": findings.num_open(),
        "num_proposals": quarantine.num_pending(),
    }
    if not context["faults"]:
        try:
            context["page"] = _page(form)
            context["totals"] = _totals(form)
        except BadCursor as error:
            context["faults"] = [{"path": "cursor", "message": str(error)}]
    return render_page(cast(HttpRequest, request), "quality/replays.html", context, partial="list")


def _page(form: ReplayListForm) -> ReplayPage:
    found = form.replays.defer("result").select_related("schedule", "created_by")
    found = found.annotate(summaries=F("result__summaries")).order_by("-created_at", "-pk")
    if form.cleaned_data["cursor"]:
        at, pk = keyset.read(form.cleaned_data["cursor"], keyset.moment, keyset.number)
        found = found.filter(Q(created_at__lte=at) & (Q(created_at__lt=at) | Q(pk__lt=pk)))
    rows = list(found[: PAGE_SIZE + 1])
    more = len(rows) > PAGE_SIZE
    rows = rows[:PAGE_SIZE]
    sides: dict[int, list[ReplaySide]] = {row.pk: [] for row in rows}
    for side in ReplaySide.objects.filter(replay__in=rows).defer("tools", "parameters").order_by("name"):
        sides[side.replay_id].append(side)
    return ReplayPage(
        rows=[_listed(row, sides[row.pk]) for row in rows],
        next=keyset.write(rows[-1].created_at, rows[-1].pk) if more else None,
    )


def _listed(replay: Any, sides: list[ReplaySide]) -> ListedReplay:
    per_case = replay.num_expected / max(1, replay.num_cases * max(1, len(sides)))
    ended = replay.finished_at or (timezone.now() if replay.state in LIVE_REPLAYS else None)
    return ListedReplay(
        replay=replay,
        sides=sides,
        verdict=verdict_of(replay),
        rate=rate_of((replay.summaries or {}).get(ReplaySide.Name.CANDIDATE)),
        samples=f"{per_case:.0f}" if per_case == int(per_case) else f"{per_case:.1f}",
        tokens=replay.prompt_tokens + replay.completion_tokens,
        took=(ended - replay.started_at).total_seconds() if ended and replay.started_at else None,
    )


def _totals(form: ReplayListForm) -> dict[str, Any]:
    """What was spent by all that the filter lets through."""
    found: dict[str, Any] = form.replays.aggregate(
        count=Count("pk"),
        scheduled=Count("schedule_id"),
        samples=Sum("num_finished", default=0),
        requests=Sum("requests", default=0),
        prompt=Sum("prompt_tokens", default=0),
        completion=Sum("completion_tokens", default=0),
        cost=Sum("cost", default=0.0),
        seconds=Sum("seconds", default=0.0),
    )
    return found | {"tokens": found["prompt"] + found["completion"]}


# One replay.


class MatrixForm(forms.Form):
    """Which cases of a replay."""

    show = forms.MultipleChoiceField(required=False, choices=[(name, name) for name in (*FLAGS, matrix.TROUBLE)])
    q = forms.CharField(required=False, max_length=200)

    @property
    def wanted(self) -> RowFilter:
        """What is no flag is not one, and narrows nothing."""
        self.is_valid()
        return RowFilter(show=tuple(self.cleaned_data.get("show", ())), query=self.cleaned_data.get("q", ""))


def filter_of(data: QueryDict) -> tuple[RowFilter, str]:
    """Which cases an address asks for, and how to say so in another address."""
    wanted = MatrixForm(data).wanted
    query = QueryDict(mutable=True)
    if wanted.show:
        query.setlist("show", list(wanted.show))
    if wanted.query:
        query["q"] = wanted.query
    return wanted, query.urlencode()


@require_GET
@tenant_view()
def replay_detail(request: TenantRequest, pk: int) -> HttpResponse:
    """A replay: its verdict, and the cases beside its sides. The rows alone for htmx."""
    replay = replay_at(pk)
    sides = sides_of(replay)
    context = _progress(replay, sides) | _matrix(request, replay, sides)
    context |= {
        "findings": findings.of_replay(replay),
        "trends_url": f"{reverse('replay-trends', args=[request.tenant.slug])}?{_suite_query(replay)}",
        "ask": request.GET.get("ask", "") if request.GET.get("ask") in ASKED else "",
    }
    return render_page(cast(HttpRequest, request), "quality/replay_detail.html", context, partial="matrix")


@require_GET
@tenant_view()
def replay_progress(request: TenantRequest, pk: int) -> HttpResponse:
    """The part of the page that changes while it runs; asked for again and again until it has ended."""
    replay = replay_at(pk)
    if not request.htmx:
        return redirect("replay-detail", slug=request.tenant.slug, pk=pk)
    context = _progress(replay, sides_of(replay))
    return render(cast(HttpRequest, request), "quality/replay_detail.html#progress", context)


def replay_at(pk: int) -> Replay:
    found = Replay.objects.select_related("schedule", "created_by", "baseline_replay").filter(pk=pk)
    replay: Replay | None = found.defer("baseline_replay__result").first()
    if replay is None:
        raise Http404(_("There is no such replay."))
    return replay


def sides_of(replay: Replay) -> list[ReplaySide]:
    """The baseline first, if there is one."""
    return list(ReplaySide.objects.filter(replay=replay).defer("tools").order_by("name"))


def _suite_query(replay: Replay) -> str:
    query = QueryDict(mutable=True)
    query["suite"] = trends.suite_of(replay)
    return query.urlencode()


def _progress(replay: Replay, sides: list[ReplaySide]) -> dict[str, Any]:
    is_live = replay.state in LIVE_REPLAYS
    total = max(replay.num_expected, replay.num_finished)
    return {
        "replay": replay,
        "is_live": is_live,
        "verdict": verdict_of(replay),
        "told": _told(replay, sides),
        "total": total,
        "eta": _left(replay, total) if is_live else None,
        "may_retry": _may_retry(replay),
        "has_report": outcome.has_report(replay),
        "filter_words": trends.in_words(replay.query),
    }


def _may_retry(replay: Replay) -> bool:
    """Where it broke off the rest is asked for, too; a slot that was missed has nothing to ask."""
    has_broken_off = replay.state == ReplayState.FAILED and replay.num_cases > 0
    return has_broken_off or (replay.state == ReplayState.DONE and replay.num_errors > 0)


def _left(replay: Replay, total: int) -> float | None:
    """Seconds of work that are left, by what the samples took that are there."""
    if replay.state != ReplayState.RUNNING or not replay.seconds or not replay.num_finished:
        return None
    return replay.seconds / replay.num_finished * (total - replay.num_finished)


def _told(replay: Replay, sides: list[ReplaySide]) -> dict[str, Any]:
    """What came of it, in words and numbers."""
    result = replay.result or {}
    gate, comparison = result.get("gate") or {}, result.get("comparison") or {}
    difference = comparison.get("difference")
    return {
        "headline": result.get("verdict") or _unjudged(replay),
        "reasons": [*gate.get("failed", ()), *gate.get("missing", ())],
        "suite": _suite(replay, sides, result.get("summaries") or {}),
        "difference": difference
        and {"mean": difference["mean"], "low": difference["interval"][0], "high": difference["interval"][1]},
        "broken": comparison.get("broken", 0),
        "mended": comparison.get("mended", 0),
        "p": comparison.get("mcnemarP"),
        "warnings": [*dict.fromkeys(text for text in (comparison.get("warning"), *result.get("notices", ())) if text)],
    }


def _unjudged(replay: Replay) -> str:
    match replay.state:
        case ReplayState.CANCELLED:
            return _("Cancelled: no verdict.")
        case ReplayState.FAILED:
            return _("It broke off: no verdict.")
        case ReplayState.DONE:
            return _("No verdict was told.")
    return _("No verdict yet.")


def _suite(replay: Replay, sides: list[ReplaySide], summaries: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each side that has a summary; and for the earlier replay that one side was compared with."""
    lines = [
        {"word": side.get_name_display(), "side": side, **_numbers(summaries[side.name])}
        for side in sides
        if side.name in summaries
    ]
    before = replay.baseline_replay
    if lines and before is not None and len(sides) == 1:
        summary = Replay.objects.filter(pk=before.pk).values_list("result__summaries__candidate", flat=True).first()
        lines.insert(0, {"word": _("Baseline"), "side": None, "replay": before, **_numbers(summary or {})})
    return lines


def _numbers(summary: dict[str, Any]) -> dict[str, Any]:
    latency = summary.get("latencyMs") or {}
    return {
        **{name: summary.get(name, 0) for name in ("passed", "failed", "undecided", "flaky")},
        "rate": rate_of(summary),
        "tokens": summary.get("promptTokens", 0) + summary.get("completionTokens", 0),
        "p50": latency.get("p50"),
        "p95": latency.get("p95"),
    }


def _matrix(request: TenantRequest, replay: Replay, sides: list[ReplaySide]) -> dict[str, Any]:
    wanted, query = filter_of(request.GET)
    counts = matrix.counts(replay)
    context: dict[str, Any] = {
        "sides": sides,
        "shown": wanted.show,
        "query": query,
        "values": {"q": wanted.query, "cursor": request.GET.get("cursor", "")},
        "counts": counts,
        "flags": list(_flags(wanted, counts)),
        "legend": [(name, sign, word) for name, (sign, word) in VERDICTS.items()],
        "detail_url": reverse("replay-detail", args=[request.tenant.slug, replay.pk]),
        "faults": [],
        "matrix": None,
    }
    context["matrix_url"] = f"{context['detail_url']}?{query}"
    try:
        cursor = context["values"]["cursor"] or None
        context["matrix"] = matrix.find(replay, wanted, sides=[side.name for side in sides], cursor=cursor)
        context["num_shown"] = matrix.count(replay, wanted) if query else counts["all"]
    except BadCursor as error:
        context["faults"] = [str(error)]
    return context


def _flags(wanted: RowFilter, counts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """A chip for each flag that some case has: pressed, it is added to what is shown; pressed again, taken away. Its
    key is the same in every replay."""
    for place, name in enumerate(FLAGS, 1):
        if not counts[name] and name not in wanted.show:
            continue
        others = [one for one in wanted.show if one != name]
        query = QueryDict(mutable=True)
        query.setlist("show", others if name in wanted.show else [*others, name])
        if wanted.query:
            query["q"] = wanted.query
        yield {
            "word": FLAGS[name],
            "count": counts[name],
            "url": query.urlencode(),
            "is_shown": name in wanted.show,
            "key": str(place) if place < 10 else "",
        }


_STEPS = {"pause": steps.pause, "resume": steps.resume, "cancel": steps.cancel, "retry": steps.retry_errors}
_DONE = {
    "pause": gettext_lazy("Paused: samples under way end first."),
    "resume": gettext_lazy("It goes on."),
    "cancel": gettext_lazy("Cancelled."),
    "retry": gettext_lazy("What is missing is asked for again."),
}


@require_POST
@tenant_view(Role.OPERATOR)
def replay_step(request: TenantRequest, pk: int, step: str) -> HttpResponse:
    """Pause it, let it go on, cancel it, or ask again where errors came."""
    replay = replay_at(pk)
    try:
        _STEPS[step](replay, actor=request.user)
    except steps.WrongState as refusal:
        messages.error(cast(HttpRequest, request), str(refusal))
    else:
        messages.success(cast(HttpRequest, request), str(_DONE[step]))
    return redirect("replay-detail", slug=request.tenant.slug, pk=pk)


@require_GET
@tenant_view()
def replay_report(request: TenantRequest, pk: int) -> HttpResponse:
    """The report that the command writes, of a replay that has ended."""
    replay = replay_at(pk)
    if not outcome.has_report(replay):
        raise Http404(_("There is a report once a replay has run to its end."))
    response = HttpResponse(outcome.report_of(replay).json().encode(), content_type="application/json; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{request.tenant.slug}-replay-{pk}-report.json"'
    return response


@require_GET
@tenant_view(Role.ADMIN, scope=False)
def replay_answers(request: TenantRequest, pk: int) -> HttpResponseBase:
    """What the models answered, sample by sample as JSON lines: they can be judged again without asking."""
    with tenant_scope(request.tenant):
        answers.audited(replay_at(pk), actor=request.user)
    filename = f"{request.tenant.slug}-replay-{pk}-answers.jsonl"
    chunks = answers.lines(pk, tenant_id=request.tenant.pk)
    return stream(request, chunks, content_type=answers.MEDIA_TYPE, filename=filename)


# Trends.


@require_GET
@tenant_view()
def replay_trends(request: TenantRequest) -> HttpResponse:
    """A suite, or a case, over its replays."""
    context: dict[str, Any] = {"width": trends.WIDTH, "height": trends.HEIGHT, "fault": "", "case": None}
    if ref := request.GET.get("case", "").strip():
        context |= _case_trend(ref)
    known = trends.suites()
    key = request.GET.get("suite", "")
    chosen = next((suite for suite in known if suite.key == key), known[0] if known and not key else None)
    context |= {"suites": known, "suite": chosen, "ref": ref, "is_gone": bool(key) and chosen is None}
    if context["case"] is None and chosen is not None:
        found = trends.runs(chosen)
        context |= {
            "runs": [(run, verdict_of(run.replay)) for run in reversed(found)],
            "points": trends.chart(found),
        }
    return render(cast(HttpRequest, request), "quality/replay_trends.html", context)


def _case_trend(ref: str) -> dict[str, Any]:
    try:
        case = cases.get(cases.parse_ref(ref))
    except cases.NoSuchCase as error:
        return {"fault": str(error)}
    found = trends.runs_of_case(case)
    return {"case": case, "case_runs": found[::-1], "points": trends.chart(found)}
