"""Spans come in over OTLP/HTTP, as OpenTelemetry's exporters send them."""

import logging
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiRequest, OpenApiResponse, extend_schema
from google.rpc import code_pb2
from rest_framework.exceptions import Throttled
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from quality.api import problems
from quality.api.auth import TokenAuthentication, TokenScheme
from quality.api.base import TenantView, TokenRequest
from quality.api.ingest import body_reader
from quality.ingest import otlp, otlp_store
from quality.ingest.compressed import gunzip
from quality.ingest.otlp import Encoding
from quality.ingest.reader import CHUNK_BYTES, Unreadable
from tenants import shared
from tenants.models import ApiToken, Scope, User
from tenants.tokens import find_token

logger = logging.getLogger(__name__)

PATH = "/v1/traces"
KEY_HEADER = "X-Api-Key"
_WINDOW_S = 60
_CODES = {
    400: code_pb2.INVALID_ARGUMENT,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
    405: code_pb2.UNIMPLEMENTED,
    413: code_pb2.RESOURCE_EXHAUSTED,
    415: code_pb2.INVALID_ARGUMENT,
    429: code_pb2.RESOURCE_EXHAUSTED,
    503: code_pb2.UNAVAILABLE,
}


def _array(name: str, members: dict[str, Any]) -> dict[str, Any]:
    return {name: {"type": "array", "items": {"type": "object", "properties": members}}}


_ATTRIBUTES = _array("attributes", {"key": {"type": "string"}, "value": {"type": "object"}})
_TEXTS = ("traceId", "spanId", "parentSpanId", "name", "startTimeUnixNano", "endTimeUnixNano")
_SPAN = {**{name: {"type": "string"} for name in _TEXTS}, **_ATTRIBUTES, "status": {"type": "object"}}
_REQUEST = {
    "type": "object",
    "properties": _array("resourceSpans", _array("scopeSpans", _array("spans", _SPAN))),
    "description": "An ExportTraceServiceRequest in OTLP's JSON form: ids are hex, 64-bit numbers text.",
}


def refusal(status: int, message: str, content_type: str, headers: dict[str, str] | None = None) -> HttpResponse:
    """An error as a google.rpc.Status in the encoding of the request; JSON where that is none of ours."""
    encoding = encoding_of(content_type) or Encoding.JSON
    body = otlp.failure(encoding, code=_CODES.get(status, code_pb2.INTERNAL), message=message)
    return HttpResponse(body, status=status, content_type=encoding.value, headers=headers)


def encoding_of(content_type: str) -> Encoding | None:
    """The encoding that a Content-Type names, whatever its parameters."""
    media_type = content_type.partition(";")[0].strip().lower()
    return Encoding(media_type) if media_type in set(Encoding) else None


class _AsSent(BaseContentNegotiation):
    """The answer comes as the request does, so `Accept` says nothing."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class _OtlpRenderer(BaseRenderer):
    """Stands for both encodings: the view renders itself."""

    media_type = Encoding.PROTOBUF.value
    format = "otlp"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return b""


class _OtlpAuthentication(TokenAuthentication):
    """A bearer token; or the token alone as `x-api-key`, for senders that cannot write a space into a header."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        if "Authorization" not in request.headers and (text := request.headers.get(KEY_HEADER, "").strip()):
            token = find_token(text)
            if token is not None:
                return token.created_by, token
        return super().authenticate(request)


class TracesView(TenantView):
    required_scope = Scope.INGEST_WRITE
    authentication_classes = [_OtlpAuthentication]
    content_negotiation_class = _AsSent
    renderer_classes = [_OtlpRenderer]

    @extend_schema(
        operation_id="exportTraces",
        tags=["Ingest"],
        auth=[{TokenScheme.name: []}],  # type: ignore[list-item]  # taken over as it is
        request={
            Encoding.PROTOBUF.value: OpenApiRequest(OpenApiTypes.BINARY),
            Encoding.JSON.value: OpenApiRequest(_REQUEST),
        },
        responses={
            200: OpenApiResponse(
                OpenApiTypes.BINARY,
                description="Taken: an ExportTraceServiceResponse in the encoding of the request. `partial_success` "
                "tells of spans that were refused; do not send them again.",
            ),
            400: OpenApiResponse(description="The body cannot be read; do not send it again (google.rpc.Status)."),
            413: OpenApiResponse(description="The body is too large, as sent or unpacked; send less at once."),
            415: OpenApiResponse(description="Neither protobuf nor JSON, or an encoding other than gzip."),
            429: OpenApiResponse(description="Too many requests; send again after Retry-After seconds."),
            503: OpenApiResponse(description="The database does not answer; send again after Retry-After seconds."),
        },
    )
    def post(self, request: TokenRequest) -> HttpResponse:
        """Send spans in over OTLP: protobuf or JSON, plain or gzip. The token comes as `Authorization: Bearer qlab_…`
        or as `x-api-key: qlab_…`. Spans of tools, models and agents are kept (attributes `gen_ai.*` or
        `openinference.*`), others are taken and dropped. The spans of a trace may come in any order and in pieces:
        its calls are there at once, and later spans complete them."""
        raw = request._request
        content_type = raw.headers.get("Content-Type", "")
        encoding = encoding_of(content_type)
        if encoding is None:
            return refusal(415, f"Send {Encoding.PROTOBUF} or {Encoding.JSON}.", content_type)
        packing = raw.headers.get("Content-Encoding", "").strip().lower()
        if packing not in ("", "identity", "gzip"):
            return refusal(415, "Send the body as it is, or with Content-Encoding: gzip.", content_type)
        _count(request.auth)
        try:
            body = _body(raw, is_packed=packing == "gzip")
        except Unreadable as error:
            return refusal(413 if error.code == "too_large" else 400, error.message, content_type)
        try:
            asked = otlp.read_request(body, encoding)
        except otlp.Malformed as error:
            return refusal(400, str(error), content_type)
        arrival = otlp_store.receive(asked.spans, tenant=request.auth.tenant)
        num_rejected = asked.num_rejected + arrival.num_rejected
        message = asked.refusal or arrival.refusal
        told = f"{num_rejected} spans were refused. The first: {message}" if num_rejected else ""
        return HttpResponse(otlp.answer(encoding, num_rejected=num_rejected, message=told), content_type=encoding.value)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], HttpResponse]:
        return _handle


def _handle(error: Exception, context: dict[str, Any]) -> HttpResponse:
    """What any view of the API would answer, as a google.rpc.Status."""
    content_type = context["request"].headers.get("Content-Type", "")
    told = problems.handle(error, context)
    if told is None:
        logger.error("Spans could not be taken", exc_info=error)
        return refusal(500, "Something went wrong here. Tell us the request id.", content_type)
    kept = {name: told[name] for name in ("WWW-Authenticate", "Retry-After", "Allow") if told.has_header(name)}
    return refusal(told.status_code, str(getattr(error, "detail", error)) or told.reason_phrase, content_type, kept)


def _count(token: ApiToken) -> None:
    """Raises Throttled once the token has sent its requests of this minute. Without the shared cache nobody counts."""
    now = int(time.time())
    sent = shared.count(f"otlp:{token.pk}:{now // _WINDOW_S}", 1, 2 * _WINDOW_S)
    if sent is not None and sent > settings.OTLP_RATE_PER_MINUTE:
        message = f"A token may send spans {settings.OTLP_RATE_PER_MINUTE} times a minute. Send more at once."
        raise Throttled(_WINDOW_S - now % _WINDOW_S, message)


def _body(request: HttpRequest, *, is_packed: bool) -> bytes:
    """The body, unpacked step by step; raises Unreadable."""
    read = _limited(body_reader(request))
    if is_packed:
        read = _limited(gunzip(read))
    pieces = []
    while piece := read(CHUNK_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


def _limited(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    left = settings.OTLP_MAX_BYTES

    def read_limited(size: int) -> bytes:
        nonlocal left
        piece = read(size)
        left -= len(piece)
        if left < 0:
            raise Unreadable("too_large", too_large())
        return piece

    return read_limited


def too_large() -> str:
    return f"The request is larger than the {settings.OTLP_MAX_BYTES:,} bytes that are taken here. Send less at once."
