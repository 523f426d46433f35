"""Regression cases: the list, one case, its changes, and exports coming back in."""

import tempfile
from typing import IO, Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiRequest, OpenApiResponse, extend_schema
from rest_framework.response import Response

from quality.api import improve_shapes as shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query, spelled
from quality.api.calls import text
from quality.api.ingest import SHAPES, body_reader
from quality.api.problems import InvalidRequest, fault, problem
from quality.calls import BadCursor
from quality.improve import cases
from quality.improve.case_import import MAX_TOTAL_BYTES, ImportRefused, ImportReport
from quality.improve.cases import parse_ref
from quality.improve.filters import CaseForm
from quality.ingest.compressed import gunzip
from quality.ingest.reader import CHUNK_BYTES, Unreadable
from quality.models import Case, CaseStatus, Feedback, Label
from quality.review.blind import visible
from tenants.models import Scope, User
from tenants.scope import tenant_scope

TAG = ["Cases"]
REF = OpenApiParameter("ref", OpenApiTypes.STR, OpenApiParameter.PATH, description="REG-12, or 12.")
LINES = [media_type for media_type, shape in SHAPES.items() if shape == "lines"]


def case_told(case: Case, user: User) -> dict[str, Any]:
    """All of a case, as the API says it to this user."""
    shown = shapes.CaseSerializer(_Whole(case, user)).data
    return dict(shown)


class _Whole:
    """A case with what the database keeps beside it."""

    def __init__(self, case: Case, user: User) -> None:
        self._case = case
        self.history = cases.versions(case)
        self.duplicates = [other.ref for other in cases.duplicates(case)]
        self.provenance = {
            "turnId": case.call.turn_id if case.call else None,
            "callId": case.call_id,
            "feedbackId": case.feedback_id,
            "proposalId": case.proposal_id,
            "reviewers": _reviewers(case, user),
            "mergedInto": case.merged_into.ref if case.merged_into else None,
            "createdBy": case.created_by,
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._case, name)


def _reviewers(case: Case, user: User) -> list[dict[str, Any]]:
    """Who labels the case's item as the case is labelled, of those of whom this user may know it."""
    if case.feedback_id is None:
        return []
    origin = Feedback.objects.filter(pk=case.feedback_id).values("turn_id", "cycle", "call_id").first()
    if origin is None:
        return []
    rows = visible(Feedback.objects.filter(**origin, label=case.label), user).select_related("reviewer")
    return [{"id": row.reviewer_id, "name": str(row.reviewer)} for row in rows.order_by("created_at", "pk")]


def made_told(number: int, user: User) -> dict[str, Any]:
    case = cases.get(number)
    return {"case": case_told(case, user), "check": shapes.check_told(case)}


class CasesView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="listCases",
        tags=TAG,
        parameters=[
            text("status", "May repeat: any of these.", many=True, enum=CaseStatus.values),
            text("label", "May repeat: any of these.", many=True, enum=Label.values),
            text("tool"),
            text("tag"),
            OpenApiParameter("proposal", OpenApiTypes.INT, description="Id of the proposal that it closed."),
            text("q", "In the behaviour or the tool's name."),
            text("cursor", "nextCursor of the page before."),
            OpenApiParameter("page_size", OpenApiTypes.INT, description="1 to 200; 50 by default."),
        ],
        responses=shapes.CasePageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Cases, the newest number first."""
        form = read_query(CaseForm, request)
        try:
            page = cases.find(form.wanted, **form.place)
        except BadCursor as error:
            raise InvalidRequest([fault("cursor", "bad_cursor", str(error))]) from error
        items = shapes.CaseRowSerializer(page.rows, many=True).data
        return Response({"items": items, "nextCursor": page.next})

    @extend_schema(
        operation_id="makeCase", tags=TAG, request=shapes.NewCaseRequest, responses={201: shapes.MadeCaseSerializer}
    )
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Save a case of a label. `check` says whether it does what it is for: the recorded call of a bad label must
        fail it, the corrected one must pass."""
        wanted = read_body(shapes.NewCaseRequest, request)
        found = Feedback.objects.select_related("reviewer").filter(pk=wanted["feedbackId"])
        feedback = visible(found, request.user).first()
        if feedback is None:
            raise InvalidRequest([fault("feedbackId", "no_such_feedback", "There is no such label, or not any more.")])
        case = cases.case_from_feedback(
            feedback,
            by=request.user,
            expectation=spelled(request, "expectation"),
            behavior=wanted["behavior"],
            tags=wanted["tags"],
            token=request.auth,
        )
        return Response(made_told(case.number, request.user), status=201)


class CaseView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.FEEDBACK_WRITE

    @extend_schema(operation_id="getCase", tags=TAG, parameters=[REF], responses=shapes.CaseSerializer)
    @in_scope
    def get(self, request: TokenRequest, ref: str) -> Response:
        """One case, with where it comes from."""
        return Response(case_told(cases.get(parse_ref(ref)), request.user))

    @extend_schema(
        operation_id="editCase",
        tags=TAG,
        parameters=[REF],
        request=shapes.EditRequest,
        responses=shapes.MadeCaseSerializer,
    )
    @in_scope
    def patch(self, request: TokenRequest, ref: str) -> Response:
        """Change a case, as a new version. If it was changed since the `version` you saw, the answer is 409 with what
        is there now (`current`) and what you sent (`sent`)."""
        wanted = read_body(shapes.EditRequest, request)
        case = cases.edit(
            parse_ref(ref),
            by=request.user,
            seen_version=wanted["version"],
            behavior=wanted.get("behavior"),
            expectation=spelled(request, "expectation"),
            stubs=spelled(request, "stubs"),
            tags=wanted.get("tags"),
            note=wanted["note"],
            token=request.auth,
        )
        return Response(made_told(case.number, request.user))


class CaseVersionsView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="listCaseVersions", tags=TAG, parameters=[REF], responses=shapes.CaseVersionsSerializer)
    @in_scope
    def get(self, request: TokenRequest, ref: str) -> Response:
        """Every version of a case with its whole record, newest first."""
        versions = cases.versions(cases.get(parse_ref(ref)))
        return Response({"items": shapes.CaseVersionSerializer(versions, many=True).data})


class ArchiveView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="archiveCase",
        tags=TAG,
        parameters=[REF],
        request=shapes.CaseStepRequest,
        responses=shapes.CaseSerializer,
    )
    @in_scope
    def post(self, request: TokenRequest, ref: str) -> Response:
        """Take a case out of use."""
        wanted = read_body(shapes.CaseStepRequest, request)
        case = cases.archive(
            parse_ref(ref),
            by=request.user,
            note=wanted["note"],
            seen_version=wanted.get("version"),
            token=request.auth,
        )
        return Response(case_told(case, request.user))


class RestoreView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="restoreCase",
        tags=TAG,
        parameters=[REF],
        request=shapes.CaseStepRequest,
        responses=shapes.CaseSerializer,
    )
    @in_scope
    def post(self, request: TokenRequest, ref: str) -> Response:
        """Take a case back into use, also one that was merged."""
        wanted = read_body(shapes.CaseStepRequest, request)
        case = cases.restore(
            parse_ref(ref),
            by=request.user,
            note=wanted["note"],
            seen_version=wanted.get("version"),
            token=request.auth,
        )
        return Response(case_told(case, request.user))


class MergeView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="mergeCases",
        tags=TAG,
        parameters=[REF],
        request=shapes.MergeRequest,
        responses=shapes.CaseSerializer,
    )
    @in_scope
    def post(self, request: TokenRequest, ref: str) -> Response:
        """Keep this one of two duplicates and archive the `other`, which keeps where it came from."""
        wanted = read_body(shapes.MergeRequest, request)
        case = cases.merge(
            parse_ref(ref), parse_ref(wanted["other"]), by=request.user, note=wanted["note"], token=request.auth
        )
        return Response(case_told(case, request.user))


class JudgeView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="judgeCase",
        tags=TAG,
        parameters=[REF],
        request=shapes.JudgeRequest,
        responses=shapes.CaseCheckSerializer,
    )
    @in_scope
    def post(self, request: TokenRequest, ref: str) -> Response:
        """Judge the recorded and the corrected call by the case's expectation, or by the one sent. Changes nothing."""
        read_body(shapes.JudgeRequest, request)
        case = cases.get(parse_ref(ref))
        return Response(shapes.check_told(case, expectation=spelled(request, "expectation")))


class CaseImportView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="importCases",
        tags=TAG,
        request={"application/x-ndjson": OpenApiRequest(OpenApiTypes.BINARY)},
        responses={
            200: OpenApiResponse(shapes.CaseImportSerializer, description="Every case is here."),
            207: OpenApiResponse(shapes.CaseImportSerializer, description="Some lines were refused."),
            400: OpenApiResponse(description="Nothing was taken: no line is good, or the file was cut or changed."),
            413: OpenApiResponse(description="The body is too large. Export the cases in parts."),
            415: OpenApiResponse(description="Not JSON lines, or an unknown encoding."),
        },
    )
    def post(self, request: TokenRequest) -> Response | HttpResponse:
        """Take in an export of cases. Numbers are kept where they are free; the same line again changes nothing."""
        raw = request._request
        if raw.content_type not in LINES:
            return problem(415, "unsupported_media_type", f"Send one of {', '.join(LINES)}, in UTF-8.")
        encoding = raw.headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            return problem(415, "unsupported_encoding", "Send the body as it is, or with Content-Encoding: gzip.")
        read = body_reader(raw)
        # All of it is read first: a slow sender must not hold a transaction.
        with tempfile.SpooledTemporaryFile(max_size=CHUNK_BYTES) as body:
            try:
                _spool(gunzip(read) if encoding == "gzip" else read, body)
                with tenant_scope(request.auth.tenant):
                    report = cases.import_cases(body, by=request.user, token=request.auth)
            except Unreadable as error:
                return problem(413 if error.code == "too_large" else 400, error.code, error.message)
            except ImportRefused as error:
                return _refused(error.fault.message, ImportReport(num_refused=1, refused=[error.fault]))
        if report.num_refused and not report.num_created + report.num_unchanged:
            return _refused(f"{report.num_refused:,} refused: {report.refused[0].message}", report)
        return Response(_report_told(report), status=207 if report.num_refused else 200)


def _spool(read: Any, body: IO[bytes]) -> None:
    total = 0
    while piece := read(CHUNK_BYTES):
        total += len(piece)
        if total > MAX_TOTAL_BYTES:
            raise Unreadable("too_large", f"It is larger than {MAX_TOTAL_BYTES // 1024**2} MiB. Export it in parts.")
        body.write(piece)
    body.seek(0)


def _report_told(report: ImportReport) -> dict[str, Any]:
    return {
        "numCreated": report.num_created,
        "numUnchanged": report.num_unchanged,
        "numRefused": report.num_refused,
        "refused": shapes.LineFaultSerializer(report.refused, many=True).data,
        "renumbered": [{"old": old, "new": new} for old, new in report.renumbered],
        "warnings": report.warnings,
    }


def _refused(detail: str, report: ImportReport) -> HttpResponse:
    """Nothing was taken."""
    errors = [fault(f"line {one.line}: {one.path}".strip(": "), one.code, one.message) for one in report.refused[:100]]
    return problem(400, "nothing_imported", detail, errors=errors, **_report_told(report))
