"""Summary and exports of what reviewers say."""

import logging
import time
from dataclasses import replace
from typing import Any, ClassVar

from django.core.cache import cache
from django.http import HttpRequest, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from quality import export
from quality.api import shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_query
from quality.api.calls import FILTER, FROM, TO, text
from quality.api.rendering import CSVRenderer, JSONRenderer, NDJSONRenderer
from quality.export_http import send
from quality.filters import (
    CallExportForm,
    CaseExportForm,
    ExportForm,
    FeedbackExportForm,
    PeriodForm,
    ProposalExportForm,
)
from quality.models import CaseStatus, Label, ProposalState
from quality.review import rates
from quality.review.blind import seen_by
from quality.review.summary import in_period, last_imports, summarise
from tenants.models import Scope

logger = logging.getLogger(__name__)

MAX_A_MINUTE = 120

PART = [
    OpenApiParameter("limit", OpenApiTypes.INT, description="At most so many records; all by default."),
    text("cursor", "nextCursor of an export with a limit, to go on."),
]
TAG = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="ETag of an export you have: the answer is 304 where it would be the same, byte for byte.",
)
LABEL = text("label", "May repeat: any of these.", many=True, enum=Label.values)
TOOL = text("tool", "May repeat: any of these.", many=True)
LINES: dict[Any, Any] = {
    (200, export.MEDIA_TYPE): OpenApiResponse(
        OpenApiTypes.STR,
        description="One JSON record a line. The last one is "
        '{"recordType": "_end", "count": …, "sha256": of all bytes before it, "nextCursor": …}; '
        "without it the file is cut. The answer has an ETag unless it would take long to tell.",
    ),
    304: OpenApiResponse(description="Nothing has changed."),
}


class SummaryView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="getFeedbackSummary",
        tags=["Feedback"],
        parameters=[
            *[parameter for parameter in FILTER if parameter.name in ("tool", "style", "model", "source", "toolset")],
            FROM,
            TO,
        ],
        responses=shapes.SummarySerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Label counts, error rate and labels of each tool, tools that fail most, and the share of wrong calls with
        its interval by tool, style, model, toolset and day. The last 30 days by default."""
        form = read_query(PeriodForm, request)
        period = in_period(seen_by(form.wanted, request.user))
        summary = summarise(period)
        told = {
            **shapes.PeriodSerializer(summary).data,
            "total": shapes.LabelRateSerializer(rates.total(period)).data,
            "rates": {
                name: shapes.LabelRateSerializer(rates.by(name, period), many=True).data for name in rates.DIMENSIONS
            },
            "trend": shapes.TrendPointSerializer(
                rates.trend(period, summary.since.date(), summary.until.date()), many=True
            ).data,
            "lastImports": shapes.ImportSerializer(last_imports(), many=True).data,
        }
        return Response(told)


class ExportThrottle(BaseThrottle):
    """MAX_A_MINUTE exports for each token, unchanged ones too. Without the shared cache none is refused."""

    def allow_request(self, request: Request, view: object) -> bool:
        key = f"exports:{request.auth.pk}:{int(time.time()) // 60}"
        try:
            cache.add(key, 0, timeout=120)
            return cache.incr(key) <= MAX_A_MINUTE
        except Exception:
            logger.exception("Exports are not counted: the cache does not answer")
            return True

    def wait(self) -> float:
        return 60 - time.time() % 60 + 1


class ExportView(TenantView):
    http_method_names = ("get", "options")  # HEAD would read it all to send nothing

    required_scope = Scope.EXPORT_READ
    throttle_classes = (ExportThrottle,)
    renderer_classes: tuple[type[BaseRenderer], ...] = (NDJSONRenderer, JSONRenderer)
    form_class: ClassVar[type[ExportForm]]
    as_csv = False

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        # The view is part of a cycle of REST framework's. Nothing in it may hold the answer: one that is given to
        # nobody, since the client has gone, ends at once then.
        del self.response
        return response

    def send(self, request: TokenRequest) -> HttpResponseBase:
        """What the query string asks for, or 304 where the client has it."""
        order = replace(read_query(self.form_class, request).order, as_csv=self.as_csv)
        reader = export.Reader(actor=request.user, token=request.auth)
        return send(request._request, order, tenant=request.auth.tenant, reader=reader, tagged=not self.as_csv)


class FeedbackExportView(ExportView):
    form_class = FeedbackExportForm

    @extend_schema(
        operation_id="exportFeedback", tags=["Feedback"], parameters=[LABEL, FROM, TO, *PART, TAG], responses=LINES
    )
    def get(self, request: TokenRequest) -> HttpResponseBase:
        """Current labels with their calls as JSON lines, the one changed last at the end. from and to are times of the
        label's last change."""
        return self.send(request)


class FeedbackSheetView(ExportView):
    form_class = FeedbackExportForm
    renderer_classes = (CSVRenderer, JSONRenderer)
    as_csv = True

    @extend_schema(
        operation_id="exportFeedbackAsCsv",
        tags=["Feedback"],
        parameters=[LABEL, FROM, TO, *PART],
        responses={
            (200, export.CSV_MEDIA_TYPE.partition(";")[0]): OpenApiResponse(
                OpenApiTypes.STR,
                description="RFC 4180 in UTF-8 with a byte order mark. A cell that a spreadsheet would run begins with "
                "an apostrophe. There is no trailer: a file whose connection broke off is cut.",
            )
        },
    )
    def get(self, request: TokenRequest) -> HttpResponseBase:
        """Current labels with their calls as a table for spreadsheets, the one changed last at the end."""
        return self.send(request)


class CallExportView(ExportView):
    form_class = CallExportForm

    @extend_schema(
        operation_id="exportToolCalls", tags=["Tool calls"], parameters=[*FILTER, *PART, TAG], responses=LINES
    )
    def get(self, request: TokenRequest) -> HttpResponseBase:
        """Tool calls with arguments and results as JSON lines, the newest at the end."""
        return self.send(request)


class CaseExportView(ExportView):
    form_class = CaseExportForm

    @extend_schema(
        operation_id="exportRegressionCases",
        tags=["Regression cases"],
        parameters=[
            text("status", "May repeat: any of these.", many=True, enum=CaseStatus.values),
            LABEL,
            TOOL,
            *PART,
            TAG,
        ],
        responses=LINES,
    )
    def get(self, request: TokenRequest) -> HttpResponseBase:
        """Regression cases as JSON lines, by number. This is what quality-tool-regressions reads."""
        return self.send(request)


class ProposalExportView(ExportView):
    form_class = ProposalExportForm

    @extend_schema(
        operation_id="exportImprovementProposals",
        tags=["Proposals"],
        parameters=[
            text("status", "May repeat: any of these.", many=True, enum=ProposalState.values),
            LABEL,
            TOOL,
            *PART,
            TAG,
        ],
        responses=LINES,
    )
    def get(self, request: TokenRequest) -> HttpResponseBase:
        """Tracked proposals with their resolution as JSON lines, in the order in which they were tracked."""
        return self.send(request)
