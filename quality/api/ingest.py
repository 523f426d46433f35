"""Traces come in: neutral records, one or many, streamed."""
# mypy: disable-error-code="assignment"
# (a field may be called `index`: REST framework takes declared fields off the class)

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiRequest,
    OpenApiResponse,
    PolymorphicProxySerializer,
    extend_schema,
)
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest
from quality.api.problems import fault, problem
from quality.ingest import preview
from quality.ingest.compressed import gunzip
from quality.ingest.formats import neutral
from quality.ingest.preview import Preview
from quality.ingest.reader import ItemError, Reader, Shape, Unreadable
from quality.ingest.records import CONFLICT
from quality.ingest.store import Correction, batches, foresee, store, store_new
from quality.ingest.traces import Traces
from tenants.models import Scope, Tenant
from tenants.scope import tenant_scope

SHAPES: dict[str, Shape] = {
    "application/json": "json",
    "application/x-ndjson": "lines",
    "application/ndjson": "lines",
    "application/jsonl": "lines",
}
MAX_TOLD = 1_000  # refused items listed in one answer; all are counted
MAX_ERRORS = 100
MOSTLY_NEW = 100  # so many records at once hardly ever complete what is stored

EXAMPLE = {
    "external_id": "run-7:call-1",
    "conversation": "c-55",
    "message": "m-9",
    "tool_name": "get_order",
    "args": {"n": "7"},
    "result": {"status": "sent"},
    "started_at": "2026-05-12T08:30:00.000Z",
}


class RejectedItem(serializers.Serializer):
    """One record that was refused."""

    index = serializers.IntegerField(help_text="From 0, in the order sent.")
    line = serializers.IntegerField(help_text="From 1: where in the body.")
    code = serializers.CharField(help_text="`conflict`: stored with another content; send If-Match: * to correct it.")
    path = serializers.CharField(help_text="The field at fault, in the record.")
    message = serializers.CharField()


class IngestReport(serializers.Serializer):
    """What became of the records. All that are not rejected are stored."""

    accepted = serializers.IntegerField(help_text="New, or they completed or corrected a stored one.")
    unchanged = serializers.IntegerField(help_text="Stored before with the same content.")
    numReplaced = serializers.IntegerField(help_text="Stored calls that were corrected, by If-Match: *.")
    numRejected = serializers.IntegerField()
    rejected = RejectedItem(many=True, help_text=f"The first {MAX_TOLD:,} of them.")


class WarningOfPreview(serializers.Serializer):
    """What was odd."""

    code = serializers.CharField()
    count = serializers.IntegerField()
    meaning = serializers.CharField()


class IngestPreview(serializers.Serializer):
    """What is understood of the beginning of the body; nothing was stored."""

    isWhole = serializers.BooleanField(help_text="False: there is more of it than was read.")
    numItems = serializers.IntegerField()
    numTurns = serializers.IntegerField()
    numCalls = serializers.IntegerField()
    numResults = serializers.IntegerField()
    numErrors = serializers.IntegerField()
    warnings = WarningOfPreview(many=True)
    numRejected = serializers.IntegerField()
    rejected = RejectedItem(many=True, help_text=f"The first {preview.SHOWN_REFUSALS} of them.")
    failure = serializers.CharField(help_text="Why the rest could not be read; empty: it could.")


class ToolCallsIngestView(TenantView):
    required_scope = Scope.INGEST_WRITE

    @extend_schema(
        operation_id="ingestToolCalls",
        tags=["Ingest"],
        parameters=[
            OpenApiParameter(
                "If-Match",
                OpenApiTypes.STR,
                OpenApiParameter.HEADER,
                enum=["*"],
                description="`*`: where a record conflicts with the stored one, what is sent replaces what is stored.",
            ),
            OpenApiParameter(
                "dry_run",
                OpenApiTypes.BOOL,
                description="`true`: say what is understood of the beginning, and store nothing.",
            ),
        ],
        request={
            "application/json": OpenApiRequest(OpenApiTypes.OBJECT, examples=[OpenApiExample("one call", EXAMPLE)]),
            "application/x-ndjson": OpenApiRequest(OpenApiTypes.BINARY),
        },
        responses={
            200: OpenApiResponse(
                PolymorphicProxySerializer(
                    "IngestAnswer", [IngestReport, IngestPreview], resource_type_field_name=None
                ),
                description="Every record is stored; or what they would be, with `dry_run=true`.",
            ),
            207: OpenApiResponse(IngestReport, description="Some records were rejected, the others are stored."),
            400: OpenApiResponse(description="No record could be stored (problem+json, with the report's members)."),
            409: OpenApiResponse(
                description="Every record is stored with another content, nothing was changed (problem+json, with the "
                "report's members)."
            ),
            412: OpenApiResponse(description="If-Match is something else than `*`: records have no entity tags."),
            413: OpenApiResponse(description="The body or its only record is too large."),
            415: OpenApiResponse(description="Not JSON, not JSON lines, or an unknown encoding."),
        },
    )
    def post(self, request: TokenRequest) -> Response | HttpResponse:
        """Send tool calls in as neutral records: one object, an array, or JSON lines. Sending a record again under its
        external_id changes nothing. A call may come in parts, in any order: a missing result may follow, and what is
        known is never lost to a record that does not tell it. Another known value is a `conflict`. Each record is
        stored or rejected by itself.

        With the header `If-Match: *` the sender corrects: of a conflicting record the values that were sent replace the
        stored ones (a result, its error and flag as one), those not sent stay. The call keeps its id, its place and its
        labels; the audit log gets `evidence.replaced` with the hashes of both versions and the fields that differ."""
        raw = request._request
        if (refusal := _refusal_of(raw)) is not None:
            return refusal
        read = body_reader(raw)
        beginning = preview.beginning() if raw.GET.get("dry_run") == "true" else None
        unpacked = gunzip(read) if _encoding(raw) == "gzip" else read
        reader = Reader(
            beginning.reading(unpacked) if beginning else unpacked,
            shape=SHAPES[raw.content_type or ""],
            max_total_bytes=settings.IMPORT_MAX_BYTES,
        )
        if int(raw.META.get("CONTENT_LENGTH") or 0) > settings.IMPORT_MAX_BYTES:
            outcome = _Outcome()
            outcome.stop(reader.too_large(), line=1)
            return _refused(outcome)
        if beginning:
            traces = Traces(reader, format_name=neutral.NAME, beginning=beginning)
            with tenant_scope(request.auth.tenant):
                return Response(_previewed(preview.summary(traces, beginning, foresee)))
        correction = Correction(request.user, request.auth) if "If-Match" in raw.headers else None
        return _answer(_store(Traces(reader, format_name=neutral.NAME), request.auth.tenant, correction))


def _encoding(request: HttpRequest) -> str:
    return request.headers.get("Content-Encoding", "identity").lower()


def _refusal_of(request: HttpRequest) -> HttpResponse | None:
    """The answer to a request that is not even read; None if it is."""
    charset = (request.content_params or {}).get("charset", "utf-8").lower()
    if request.content_type not in SHAPES or charset not in ("utf-8", "utf8"):
        accepted = ", ".join(SHAPES)
        return problem(415, "unsupported_media_type", f"Send one of {accepted}, in UTF-8.")
    if _encoding(request) not in ("identity", "gzip"):
        return problem(415, "unsupported_encoding", "Send the body as it is, or with Content-Encoding: gzip.")
    if (wanted := request.headers.get("If-Match")) not in (None, "*"):
        return problem(412, "precondition_failed", f"Records have no entity tag {wanted}. Send If-Match: * to correct.")
    if (dry_run := request.GET.get("dry_run", "false")) not in ("true", "false"):
        return problem(400, "invalid_request", f"dry_run is true or false, not {dry_run[:100]!r}.")
    return None


def _previewed(seen: Preview) -> dict[str, Any]:
    return {
        "isWhole": seen.is_whole,
        "numItems": seen.num_items,
        "numTurns": seen.num_turns,
        "numCalls": seen.num_calls,
        "numResults": seen.num_results,
        "numErrors": seen.num_errors,
        "warnings": [asdict(one) for one in seen.warnings],
        "numRejected": seen.num_refused,
        "rejected": [_told(item) for item in seen.refusals],
        "failure": seen.failure,
    }


def _told(item: ItemError) -> dict[str, Any]:
    return {"index": item.index, "line": item.line, "code": item.code, "path": item.path, "message": item.message}


def body_reader(request: HttpRequest) -> Callable[[int], bytes]:
    """Reads the body piece by piece. Django's WSGI request reads as far as Content-Length, so nothing of a body in
    chunks; a server that ends its stream by itself is read directly then."""
    environ: dict[str, Any] = getattr(request, "environ", {})
    in_chunks = not environ.get("CONTENT_LENGTH") and environ.get("wsgi.input_terminated")
    stream = environ["wsgi.input"] if in_chunks else request

    def read(size: int) -> bytes:
        try:
            return stream.read(size)
        except OSError as error:
            raise Unreadable("truncated", "The body ended too early.") from error

    return read


@dataclass(slots=True)
class _Outcome:
    """The sum of all batches. `failure` is why the rest could not be read, if it could not."""

    accepted: int = 0
    unchanged: int = 0
    num_replaced: int = 0
    num_rejected: int = 0
    num_conflicts: int = 0
    rejected: list[ItemError] = field(default_factory=list)
    failure: Unreadable | None = None

    def reject(self, refused: list[ItemError]) -> None:
        self.num_rejected += len(refused)
        self.num_conflicts += sum(item.code == CONFLICT for item in refused)
        self.rejected += refused[: max(0, MAX_TOLD - len(self.rejected))]

    def stop(self, failure: Unreadable, *, line: int) -> None:
        self.failure = failure
        index = self.accepted + self.unchanged + self.num_rejected
        self.reject([ItemError(index, line, failure.code, "", failure.message)])

    def report(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "unchanged": self.unchanged,
            "numReplaced": self.num_replaced,
            "numRejected": self.num_rejected,
            "rejected": [_told(item) for item in self.rejected],
        }


def _store(traces: Traces, tenant: Tenant, correction: Correction | None) -> _Outcome:
    outcome, all_new = _Outcome(), correction is None
    try:
        for good, bad in batches(iter(traces)):
            if all_new and len(good) >= MOSTLY_NEW:
                stored = store_new(good, tenant=tenant)
            else:
                stored = store(good, tenant=tenant, correction=correction)
            all_new = all_new and stored.is_new
            outcome.accepted += stored.accepted
            outcome.unchanged += stored.unchanged
            outcome.num_replaced += stored.num_replaced
            outcome.reject(sorted([*bad, *stored.rejected], key=lambda item: item.index))
    except Unreadable as failure:
        outcome.stop(failure, line=traces.line)
    return outcome


def _answer(outcome: _Outcome) -> Response | HttpResponse:
    if outcome.num_rejected and not outcome.accepted + outcome.unchanged:
        return _refused(outcome)
    return Response(outcome.report(), status=207 if outcome.num_rejected else 200)


def _refused(outcome: _Outcome) -> HttpResponse:
    """Nothing was stored."""
    failure = outcome.failure
    errors = [fault(item.path, item.code, item.message) for item in outcome.rejected[:MAX_ERRORS]]
    status, code = 400, "nothing_stored"
    if outcome.num_conflicts == outcome.num_rejected:
        status, code = 409, CONFLICT
    elif all(error["code"] == "too_large" for error in errors):
        status, code = 413, "too_large"
    detail = failure.message if failure else f"{outcome.num_rejected:,} rejected: {errors[0]['message']}"
    return problem(status, code, detail, errors=errors, **outcome.report())
