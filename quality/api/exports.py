"""Summary and exports of what reviewers say."""

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.response import Response

from quality import export
from quality.api import shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_query
from quality.api.calls import FILTER, FROM, TO, text
from quality.api.rendering import JSONRenderer, NDJSONRenderer
from quality.filters import CallExportForm, FeedbackExportForm, PeriodForm
from quality.models import Label
from quality.review.summary import last_imports, summarise
from quality.streaming import stream
from tenants.models import Scope

PART = [
    OpenApiParameter("limit", OpenApiTypes.INT, description="At most so many records; all by default."),
    text("cursor", "nextCursor of an export with a limit, to go on."),
]
LINES = {
    (200, export.MEDIA_TYPE): OpenApiResponse(
        OpenApiTypes.STR,
        description="One JSON record a line. The last one is "
        '{"recordType": "_end", "count": …, "sha256": of all bytes before it, "nextCursor": …}; '
        "without it the file is cut.",
    )
}


class SummaryView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="getFeedbackSummary", tags=["Feedback"], parameters=[FROM, TO], responses=shapes.SummarySerializer
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Label counts, error rate and labels of each tool, tools that fail most. The last 30 days by default."""
        form = read_query(PeriodForm, request)
        summary = summarise(since=form.cleaned_data["since"], until=form.cleaned_data["until"])
        body = shapes.PeriodSerializer(summary).data
        return Response({**body, "lastImports": shapes.ImportSerializer(last_imports(), many=True).data})


class ExportView(TenantView):
    http_method_names = ("get", "options")  # HEAD would read it all to send nothing

    required_scope = Scope.EXPORT_READ
    renderer_classes = (NDJSONRenderer, JSONRenderer)


class FeedbackExportView(ExportView):
    @extend_schema(
        operation_id="exportFeedback",
        tags=["Feedback"],
        parameters=[text("label", "May repeat: any of these.", many=True, enum=Label.values), FROM, TO, *PART],
        responses=LINES,
    )
    @in_scope
    def get(self, request: TokenRequest) -> StreamingHttpResponse:
        """Current labels with their calls as JSON lines, the one changed last at the end. from and to are times of the
        label's last change."""
        form = read_query(FeedbackExportForm, request)
        lines = export.export_feedback(wanted=form.wanted, part=form.part, actor=request.user, token=request.auth)
        return stream(request._request, lines, content_type=export.MEDIA_TYPE, filename="tool-call-feedback.jsonl")


class CallExportView(ExportView):
    @extend_schema(operation_id="exportToolCalls", tags=["Tool calls"], parameters=[*FILTER, *PART], responses=LINES)
    @in_scope
    def get(self, request: TokenRequest) -> StreamingHttpResponse:
        """Tool calls with arguments and results as JSON lines, the newest at the end."""
        form = read_query(CallExportForm, request)
        lines = export.export_calls(wanted=form.wanted, part=form.part, actor=request.user, token=request.auth)
        return stream(request._request, lines, content_type=export.MEDIA_TYPE, filename="tool-calls.jsonl")
