"""Replays: planned, started, followed and stopped; their cases and samples; what people say of failures."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import Http404, HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.response import Response

from quality.api import replay_shapes as shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query
from quality.api.calls import text
from quality.api.cases import REF
from quality.api.problems import problem
from quality.api.proposals import CURSOR, bad_cursor, size
from quality.api.rendering import JSONRenderer, NDJSONRenderer
from quality.calls import BadCursor
from quality.improve import keyset
from quality.improve.cases import parse_ref
from quality.improve.filters import ListForm, WordsField
from quality.models import Replay, ReplayCase, ReplayFinding, ReplaySample, ReplaySide, ReplayState
from quality.replay import answers, findings, judging, matrix, outcome, plan, steps
from quality.replay.findings import FindingConflict
from quality.replay.matrix import FLAGS, TROUBLE, RowFilter
from quality.replay.plan import Wanted
from quality.replay.sides import read_tools, sides_of
from quality.replay.steps import WrongState
from quality.streaming import stream
from tenants.models import Scope

TAG = ["Replays"]
SAMPLES_A_PAGE = 20
MAX_SAMPLES_A_PAGE = 100
WRONG_STATE = OpenApiResponse(description="It is in another state: `current` is the replay as it stands.")
CONFLICT = OpenApiResponse(description="Somebody was faster: `current` is the finding that stands.")

type Step = Callable[..., Replay]


class ReplayListForm(ListForm):
    states = WordsField(ReplayState.values, required=False)
    outcome = forms.ChoiceField(required=False, choices=[(name, name) for name in shapes.OUTCOME_CHOICES])
    schedule = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


class CaseListForm(ListForm):
    show = WordsField([*FLAGS, TROUBLE], required=False)
    query = forms.CharField(required=False, max_length=200)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=matrix.MAX_PAGE_SIZE)


class SampleListForm(ListForm):
    side = forms.ChoiceField(required=False, choices=ReplaySide.Name.choices)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=MAX_SAMPLES_A_PAGE)


def replay_at(pk: int) -> Replay:
    replay: Replay | None = Replay.objects.select_related("created_by").filter(pk=pk).first()
    if replay is None:
        raise Http404
    return replay


def wanted_by(request: TokenRequest) -> Wanted:
    """What the body asks for. Raises ValidationError."""
    return Wanted.from_json(dict(request.data))


class ReplaysView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.REPLAYS_WRITE

    @extend_schema(
        operation_id="listReplays",
        tags=TAG,
        parameters=[
            text("state", "May repeat: any of these.", many=True, enum=ReplayState.values),
            text("outcome", enum=shapes.OUTCOME_CHOICES),
            OpenApiParameter("schedule", OpenApiTypes.INT, description="Id of the schedule that began it."),
            CURSOR,
            size(50, 200),
        ],
        responses=shapes.ReplayPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Replays, the newest first."""
        form = read_query(ReplayListForm, request)
        data, place = form.cleaned_data, form.place
        rows = Replay.objects.select_related("created_by").defer("settings", "estimate").order_by("-created_at", "-pk")
        if data["states"]:
            rows = rows.filter(state__in=data["states"])
        if data["outcome"]:
            rows = rows.filter(
                exit_code=next(code for code, name in shapes.OUTCOMES.items() if name == data["outcome"])
            )
        if data["schedule"]:
            rows = rows.filter(schedule=data["schedule"])
        if place["cursor"]:
            try:
                at, pk = keyset.read(place["cursor"], keyset.moment, keyset.number)
            except BadCursor as error:
                raise bad_cursor(error) from error
            rows = rows.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=pk))
        num = place.get("page_size", 50)
        found = list(rows[: num + 1])
        shown = found[:num]
        following = keyset.write(shown[-1].created_at, shown[-1].pk) if len(found) > num else None
        items = shapes.ReplaySerializer(shapes.shown(shown), many=True).data
        return Response({"items": items, "nextCursor": following})

    @extend_schema(
        operation_id="startReplay",
        tags=TAG,
        request=shapes.ReplayRequest,
        responses={201: shapes.ReplayDetailSerializer},
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Put cases to models again. Endpoints, prompts, tools and versions of the cases are frozen now; workers ask
        and judge. Follow it by its id."""
        replay = plan.start(wanted_by(request), actor=request.user, token=request.auth)
        return Response(shapes.replay_told(replay_at(replay.pk)), status=201)


class ReplayEstimateView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="estimateReplay", tags=TAG, request=shapes.ReplayRequest, responses=shapes.EstimateSerializer
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """What a replay would take: requests, tokens, money and time. Starts nothing."""
        return Response(shapes.EstimateSerializer(plan.estimate(wanted_by(request)).as_dict()).data)


class ReplayView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="getReplay", tags=TAG, responses=shapes.ReplayDetailSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A replay: how far it is, and once it has ended, how it came out."""
        return Response(shapes.replay_told(replay_at(pk)))


class _StepView(TenantView):
    """One step of a replay's life."""

    required_scope = Scope.REPLAYS_WRITE

    def taken(self, request: TokenRequest, pk: int, step: Step) -> Response | HttpResponse:
        try:
            replay = step(replay_at(pk), actor=request.user, token=request.auth)
        except WrongState as error:
            return problem(409, "wrong_state", str(error), current=shapes.replay_told(replay_at(pk)))
        return Response(shapes.replay_told(replay_at(replay.pk)))


def _describes[F: Callable[..., Any]](operation_id: str) -> Callable[[F], F]:
    """The description of a step: it takes no body."""
    answers = {200: shapes.ReplayDetailSerializer, 409: WRONG_STATE}
    return extend_schema(operation_id=operation_id, tags=TAG, request=None, responses=answers)


class ReplayPauseView(_StepView):
    @_describes("pauseReplay")
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Begin no more samples; those under way end and are kept."""
        return self.taken(request, pk, steps.pause)


class ReplayResumeView(_StepView):
    @_describes("resumeReplay")
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Go on with what a pause left."""
        return self.taken(request, pk, steps.resume)


class ReplayCancelView(_StepView):
    @_describes("cancelReplay")
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """End it for good: samples under way are broken off, finished ones stay."""
        return self.taken(request, pk, steps.cancel)


class ReplayRetryView(_StepView):
    @_describes("retryReplay")
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Ask again for samples that ended in an error, of a replay that has ended. Budgets begin anew."""
        return self.taken(request, pk, steps.retry_errors)


class ReplayReportView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="getReplayReport",
        tags=TAG,
        responses={
            200: OpenApiResponse(OpenApiTypes.OBJECT, description="As `--out-json` of the command writes it."),
            409: OpenApiResponse(description="It has not ended, or never began: `current` is the replay as it stands."),
        },
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> HttpResponse:
        """The report of a replay that has ended, with each sample and its reasons."""
        replay = replay_at(pk)
        if not outcome.has_report(replay):
            why = "It never began" if shapes.is_over(replay) else f"It is {replay.state}"
            message = f"{why}: there is a report of what has run to its end."
            return problem(409, "not_over", message, current=shapes.replay_told(replay))
        return HttpResponse(outcome.report_of(replay).json().encode(), content_type="application/json")


class ReplayAnswersView(TenantView):
    http_method_names = ("get", "options")  # HEAD would read it all to send nothing

    required_scope = Scope.EXPORT_READ
    renderer_classes = (NDJSONRenderer, JSONRenderer)

    @extend_schema(
        operation_id="getReplayAnswers",
        tags=TAG,
        responses={
            (200, "application/x-ndjson"): OpenApiResponse(
                OpenApiTypes.STR, description="One attempt a line, as `--answers` of the command reads them."
            )
        },
    )
    def get(self, request: TokenRequest, pk: int) -> HttpResponseBase:
        """What the models answered, with the raw replies; also while it runs."""
        self._begin(request, pk)
        return stream(
            request._request,
            answers.lines(pk, tenant_id=request.auth.tenant.pk),
            content_type=answers.MEDIA_TYPE,
            filename=f"replay-{pk}-answers.jsonl",
        )

    @in_scope
    def _begin(self, request: TokenRequest, pk: int) -> None:
        answers.audited(replay_at(pk), actor=request.user, token=request.auth)


class ReplayJudgeView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="getReplayJudge", tags=TAG, responses=shapes.ReplayJudgeSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """The model that judges meaning, and how far it agrees with people on each rubric of the replay's cases."""
        replay = replay_at(pk)
        return Response({"judge": judging.told(replay, outcome.cases_of(replay))})


# --- cases and samples -----------------------------------------------------------------------------------------------


class ReplayCasesView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="listReplayCases",
        tags=TAG,
        parameters=[
            text("show", "May repeat: all of these.", many=True, enum=[*FLAGS, TROUBLE]),
            text("query", "REG-12, or part of a tool's name."),
            CURSOR,
            size(matrix.PAGE_SIZE, matrix.MAX_PAGE_SIZE),
        ],
        responses=shapes.ReplayCasePageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """The cases of a replay: what got worse first, then what failed. `trouble` shows what is not simply passed."""
        form, replay = read_query(CaseListForm, request), replay_at(pk)
        names = [side.name for side in sides_of(replay)]
        wanted = RowFilter(show=form.cleaned_data["show"], query=form.cleaned_data["query"])
        try:
            page = matrix.find(replay, wanted, sides=names, **form.place)
        except BadCursor as error:
            raise bad_cursor(error) from error
        items = shapes.ReplayCaseSerializer(page.rows, many=True).data
        return Response({"items": items, "nextCursor": page.next})


def case_at(replay: Replay, ref: str) -> ReplayCase:
    row: ReplayCase | None = ReplayCase.objects.filter(replay=replay, number=parse_ref(ref)).first()
    if row is None:
        raise Http404
    return row


class ReplaySamplesView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="listReplaySamples",
        tags=TAG,
        parameters=[
            REF,
            text("side", enum=ReplaySide.Name.values),
            CURSOR,
            size(SAMPLES_A_PAGE, MAX_SAMPLES_A_PAGE),
        ],
        responses=shapes.SamplePageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int, ref: str) -> Response:
        """The samples of a case with all that is kept of them, side by side in their order."""
        form, replay = read_query(SampleListForm, request), replay_at(pk)
        case = case_at(replay, ref)
        rows = ReplaySample.objects.filter(replay=replay, replay_case=case).order_by("side", "index")
        if form.cleaned_data["side"]:
            rows = rows.filter(side=form.cleaned_data["side"])
        place = form.place
        if place["cursor"]:
            try:
                side, index = keyset.read(place["cursor"], keyset.text, keyset.number)
            except BadCursor as error:
                raise bad_cursor(error) from error
            rows = rows.filter(Q(side__gt=side) | Q(side=side, index__gt=index))
        num = place.get("page_size", SAMPLES_A_PAGE)
        found = list(rows[: num + 1])
        shown = found[:num]
        following = keyset.write(shown[-1].side, shown[-1].index) if len(found) > num else None
        items = shapes.SampleSerializer(_with_votes(replay, case, shown), many=True).data
        return Response({"items": items, "nextCursor": following})


def _with_votes(replay: Replay, row: ReplayCase, samples: list[Any]) -> list[Any]:
    """The samples of a case with what the judge was asked about each as `judged`."""
    case = outcome.read_cases([row])[row.pk]
    tools = {side.name: read_tools(side) for side in sides_of(replay)}
    for sample in samples:
        sample.judged = judging.votes_on(replay, case, sample, tools[sample.side])
    return samples


# --- findings --------------------------------------------------------------------------------------------------------


class OpenFindingsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="listOpenDisputes", tags=TAG, responses=shapes.ReplayFindingListSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Disputes that wait for somebody to settle them, the oldest first."""
        return Response({"items": shapes.ReplayFindingSerializer(findings.open_disputes(), many=True).data})


class ReplayFindingsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="listReplayFindings", tags=TAG, responses=shapes.ReplayFindingListSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """What people said of the failures of a replay, the newest first."""
        return Response({"items": shapes.ReplayFindingSerializer(findings.of_replay(replay_at(pk)), many=True).data})


class _FindingView(TenantView):
    """A write that answers with a finding."""

    required_scope = Scope.REPLAYS_WRITE

    def said(self, say: Callable[[], ReplayFinding], status: int) -> Response | HttpResponse:
        try:
            found = say()
        except ReplayCase.DoesNotExist as error:
            raise Http404 from error
        except FindingConflict as error:
            return problem(409, error.code, str(error), current=shapes.finding_told(error.finding))
        except ValidationError as error:
            raise _spelled(error) from error
        row = ReplayFinding.objects.select_related("case", "by", "settled_by").get(pk=found.pk)
        return Response(shapes.finding_told(row), status=status)


def _spelled(error: ValidationError) -> ValidationError:
    """The same, its fields spelled as the API does."""
    names = {"sample": "sampleId"}
    return ValidationError({names.get(name, name): list(found) for name, found in error.error_dict.items()})


class DisputeView(_FindingView):
    @extend_schema(
        operation_id="disputeCase",
        tags=TAG,
        parameters=[REF],
        request=shapes.DisputeRequest,
        responses={201: shapes.ReplayFindingSerializer, 409: CONFLICT},
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int, ref: str) -> Response | HttpResponse:
        """Say that the expectation is wrong, not the model. It waits for somebody to settle it; a case has one open
        dispute at most."""
        replay, sent = replay_at(pk), read_body(shapes.DisputeRequest, request)
        return self.said(
            lambda: findings.dispute(
                replay,
                parse_ref(ref),
                sample_id=sent["sampleId"],
                note=sent["note"],
                by=request.user,
                token=request.auth,
            ),
            status=201,
        )


class ConfirmView(_FindingView):
    @extend_schema(
        operation_id="confirmCase",
        tags=TAG,
        parameters=[REF],
        request=shapes.ConfirmRequest,
        responses={201: shapes.ReplayFindingSerializer, 409: CONFLICT},
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int, ref: str) -> Response | HttpResponse:
        """Say that the failure is real: somebody looked at it."""
        replay, sent = replay_at(pk), read_body(shapes.ConfirmRequest, request)
        return self.said(
            lambda: findings.confirm(
                replay,
                parse_ref(ref),
                sample_id=sent["sampleId"],
                note=sent["note"],
                by=request.user,
                token=request.auth,
            ),
            status=201,
        )


class SettleView(_FindingView):
    @extend_schema(
        operation_id="settleDispute",
        tags=TAG,
        request=shapes.SettleRequest,
        responses={200: shapes.ReplayFindingSerializer, 409: CONFLICT},
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response | HttpResponse:
        """Close a dispute: the expectation was changed, it holds, or the dispute is withdrawn."""
        finding = ReplayFinding.objects.filter(pk=pk).first()
        if finding is None:
            raise Http404
        sent = read_body(shapes.SettleRequest, request)
        return self.said(
            lambda: findings.settle(
                finding, outcome=sent["outcome"], note=sent["note"], by=request.user, token=request.auth
            ),
            status=200,
        )
