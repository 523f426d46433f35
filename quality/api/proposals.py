"""Groups of feedback, and the improvements that are tracked of them."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response

from quality.api import improve_shapes as shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query, spelled
from quality.api.calls import text
from quality.api.cases import case_told
from quality.api.problems import InvalidRequest, fault
from quality.calls import BadCursor
from quality.improve import cases, groups, proposals
from quality.improve.filters import GroupForm, ProposalForm
from quality.improve.groups import GroupKey
from quality.models import ACTIONABLE, Feedback, Proposal, ProposalState
from quality.review.blind import visible
from quality.review.queues.waiting import viewer_of
from tenants.models import Scope, User

TAG = ["Proposals"]
CURSOR = text("cursor", "nextCursor of the page before.")
FILTER = [
    text("label", "May repeat: any of these.", many=True, enum=[label.value for label in ACTIONABLE]),
    text("tool"),
    text("style"),
    text("fault", "Kind of the fault, as a group names it."),
    CURSOR,
]


def size(default: int, most: int) -> OpenApiParameter:
    return OpenApiParameter("page_size", OpenApiTypes.INT, description=f"1 to {most}; {default} by default.")


def bad_cursor(error: BadCursor) -> InvalidRequest:
    return InvalidRequest([fault("cursor", "bad_cursor", str(error))])


class GroupsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="listFeedbackGroups",
        tags=TAG,
        parameters=[
            *FILTER,
            text("state", "May repeat; untracked and pending by default.", many=True, enum=list(groups.STATES)),
            text("order", "newest: by the day of the newest label, then by size.", enum=["newest", "largest"]),
            size(groups.PAGE_SIZE, groups.MAX_PAGE_SIZE),
        ],
        responses=shapes.GroupPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Actionable feedback, grouped by label, tool, style and kind of fault, with examples and a suggestion of what
        would mend it."""
        form = read_query(GroupForm, request)
        try:
            page = groups.find(form.wanted, order=form.order_or_default, viewer=viewer_of(request.user), **form.place)
        except BadCursor as error:
            raise bad_cursor(error) from error
        items = shapes.GroupSerializer(page.groups, many=True).data
        return Response({"items": items, "nextCursor": page.next})


def row_told(row: proposals.ProposalRow | proposals.ProposalDetail) -> dict[str, Any]:
    return {
        **shapes.proposal_told(row.proposal),
        "numItems": row.num_items,
        "numFeedback": row.num_feedback,
    }


def detail_told(pk: int, user: User) -> dict[str, Any]:
    found = proposals.detail(pk, viewer=viewer_of(user))
    return {
        **row_told(found),
        "examples": shapes.GroupExampleSerializer(found.examples, many=True).data,
        "history": shapes.ProposalEventSerializer(found.events, many=True).data,
        "rates": shapes.FaultRatesSerializer(found.rates).data,
        "cases": shapes.ProposalCaseSerializer(found.cases, many=True).data,
    }


class ProposalsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="listProposals",
        tags=TAG,
        parameters=[
            text("state", "May repeat: any of these.", many=True, enum=ProposalState.values),
            *FILTER,
            size(proposals.PAGE_SIZE, proposals.MAX_PAGE_SIZE),
        ],
        responses=shapes.ProposalPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Tracked proposals, those changed last first."""
        form = read_query(ProposalForm, request)
        try:
            page = proposals.find(form.wanted, viewer=viewer_of(request.user), **form.place)
        except BadCursor as error:
            raise bad_cursor(error) from error
        return Response({"items": [row_told(row) for row in page.rows], "nextCursor": page.next})

    @extend_schema(
        operation_id="trackProposal",
        tags=TAG,
        request=shapes.TrackRequest,
        responses={200: shapes.ProposalDetailSerializer, 201: shapes.ProposalDetailSerializer},
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Track a group. New feedback of the group joins the proposal; where one is pending already, that is the answer
        (200)."""
        wanted = read_body(shapes.TrackRequest, request)
        key = GroupKey(
            label=wanted["label"], tool_name=wanted["toolName"], style_id=wanted["styleId"], fault=wanted["fault"]
        )
        proposal, is_new = proposals.ensure_tracked(key, by=request.user, token=request.auth)
        return Response(detail_told(proposal.pk, request.user), status=201 if is_new else 200)


class ProposalView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="getProposal", tags=TAG, responses=shapes.ProposalDetailSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """A proposal with what it rests on, its history, its rates before and after, and its cases."""
        return Response(detail_told(pk, request.user))


class DismissView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="dismissProposal",
        tags=TAG,
        request=shapes.DismissRequest,
        responses=shapes.ProposalDetailSerializer,
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Decide that nothing is done. A second decision is refused (409) with the first one as `current`."""
        wanted = read_body(shapes.DismissRequest, request)
        proposals.dismiss(
            pk, reason=wanted["reason"], by=request.user, seen_version=wanted.get("version"), token=request.auth
        )
        return Response(detail_told(pk, request.user))


class ApplyView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="applyProposal", tags=TAG, request=shapes.ApplyRequest, responses=shapes.ProposalDetailSerializer
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Say what mended it. A second decision is refused (409) with the first one as `current`."""
        wanted = read_body(shapes.ApplyRequest, request)
        proposals.apply(
            pk,
            kind=wanted["kind"],
            ref=wanted["ref"],
            note=wanted["note"],
            by=request.user,
            seen_version=wanted.get("version"),
            token=request.auth,
        )
        return Response(detail_told(pk, request.user))


class ReopenView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="reopenProposal", tags=TAG, request=shapes.ReopenRequest, responses=shapes.ProposalDetailSerializer
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Take the decision back; it stays in the history. Refused (409) when a newer proposal took the group over."""
        wanted = read_body(shapes.ReopenRequest, request)
        proposals.reopen(
            pk, by=request.user, reason=wanted["reason"], seen_version=wanted.get("version"), token=request.auth
        )
        return Response(detail_told(pk, request.user))


class ProposalCaseView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="makeProposalCase",
        tags=TAG,
        request=shapes.ProposalCaseRequest,
        responses={201: shapes.ProposalCaseMadeSerializer},
    )
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Save a regression case of one of its labels, and close the proposal as applied with REG-<number>."""
        wanted = read_body(shapes.ProposalCaseRequest, request)
        proposal = proposals.get(pk)
        case = cases.case_from_feedback(
            _feedback(proposal, wanted.get("feedbackId"), request.user),
            by=request.user,
            proposal=proposal,
            expectation=spelled(request, "expectation"),
            behavior=wanted["behavior"],
            tags=wanted["tags"],
            seen_version=wanted.get("version"),
            token=request.auth,
        )
        made = cases.get(case.number)
        body = {"case": case_told(made, request.user), "check": shapes.check_told(made)}
        return Response({**body, "proposal": shapes.proposal_told(proposals.get(pk))}, status=201)


def _feedback(proposal: Proposal, pk: int | None, user: User) -> Feedback:
    """The label to make a case of: the one that is asked for, or the newest with a correction, or the newest."""
    rows = visible(groups.feedback_of(proposal), user).select_related("reviewer")
    if pk is not None:
        found = visible(Feedback.objects.select_related("reviewer").filter(pk=pk), user).first()
    else:
        found = rows.filter(correction__isnull=False).first() or rows.first()
    if found is None:
        raise InvalidRequest([fault("feedbackId", "no_such_feedback", "There is no such label, or not any more.")])
    return found
