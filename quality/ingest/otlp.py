"""OTLP's requests for traces, as their two encodings carry them, and its answers: pure.

A request gives the spans that are of interest, each in OTLP's JSON form with hex ids, whichever way it came. Spans that
no convention of ours claims are left out; of those claimed, what cannot be read is refused, span by span.
"""

import base64
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from quality.ingest import carriers, conventions
from quality.ingest.gathering import BadSpan
from quality.ingest.jsontext import JsonError, dump, parse
from quality.ingest.otlp_values import MAX_DEPTH
from quality.ingest.records import RecordError
from quality.ingest.spans import Span

MAX_SPAN_BYTES = 4 * 1024 * 1024  # of one span that is kept
_MAX_JSON_DEPTH = 16 + 4 * MAX_DEPTH  # a value nests up to four containers a level
_MAX_NAME_CHARS = 256  # of resource and scope


class Encoding(StrEnum):
    """The media types of OTLP over HTTP. An answer comes in that of its request."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


class Malformed(ValueError):
    """The body is no request of OTLP's; the message says where."""


@dataclass(frozen=True, slots=True)
class KeptSpan:
    """One span of interest: as it is read, and as it is kept (JSON text)."""

    span: Span
    data: str


@dataclass(slots=True)
class Request:
    """What one request brought. `num_rejected` spans were refused, `refusal` says why the first was."""

    spans: list[KeptSpan] = field(default_factory=list)
    num_rejected: int = 0
    refusal: str = ""

    def reject(self, message: str, number: int = 1) -> None:
        self.num_rejected += number
        self.refusal = self.refusal or message


def read_request(body: bytes, encoding: Encoding) -> Request:
    """Raises Malformed."""
    request = Request()
    for found in (_of_protobuf if encoding is Encoding.PROTOBUF else _of_json)(body):
        if isinstance(found, RecordError):
            request.reject(_told(found))
            continue
        span, path = found
        try:
            request.spans.append(_kept(span, path))
        except RecordError as error:
            request.reject(_told(error))
    return request


def read_kept(data: str) -> Span:
    """A span that was kept; raises RecordError."""
    return _span(parse(data.encode(), depth=_MAX_JSON_DEPTH, limit=MAX_SPAN_BYTES, repeated_keys=True).value)


def answer(encoding: Encoding, *, num_rejected: int = 0, message: str = "") -> bytes:
    """The answer to a request that was taken, as a whole or but for some spans."""
    if encoding is Encoding.PROTOBUF:
        response = ExportTraceServiceResponse()
        if num_rejected or message:
            response.partial_success.rejected_spans = num_rejected
            response.partial_success.error_message = message
        return response.SerializeToString()
    partial = {"partialSuccess": {"rejectedSpans": str(num_rejected), "errorMessage": message}}
    return dump(partial if num_rejected or message else {}).encode()


def failure(encoding: Encoding, *, code: int, message: str) -> bytes:
    """A google.rpc.Status; `code` is one of google.rpc.Code."""
    if encoding is Encoding.PROTOBUF:
        return Status(code=code, message=message).SerializeToString()
    return dump({"code": code, "message": message}).encode()


def _told(error: RecordError) -> str:
    return f"{error.path}: {error.message}" if error.path else error.message


def _kept(span: dict[str, Any], path: str) -> KeptSpan:
    data = dump(span)
    if len(data.encode()) > MAX_SPAN_BYTES:
        raise RecordError("too_large", path, f"The span is larger than {MAX_SPAN_BYTES // (1024 * 1024)} MiB.")
    try:
        return KeptSpan(_span(span), data)
    except RecordError as error:
        raise RecordError(error.code, f"{path}.{error.path}".strip("."), error.message) from error


def _span(span: dict[str, Any]) -> Span:
    (found,) = conventions.spans([carriers.of_span(span)])
    if isinstance(found, BadSpan):
        raise found
    return found


# --- JSON -------------------------------------------------------------------------------------------------------------
def _of_json(body: bytes) -> Iterator[tuple[dict[str, Any], str] | RecordError]:
    try:
        document = parse(body, depth=_MAX_JSON_DEPTH, limit=len(body), repeated_keys=True).value
    except JsonError as error:
        raise Malformed(f"{error.message} (line {error.line}, column {error.column})") from error
    try:
        for resource, where in carriers.members(document, "resourceSpans", ""):
            for scope, within in carriers.members(resource, "scopeSpans", where):
                around = _around_json(resource, scope)
                for span, path in carriers.members(scope, "spans", within):
                    if not isinstance(span, dict):
                        yield RecordError("not_an_object", path, "Expected an object: one span.")
                    elif _is_ours(_keys_of_json(span)):
                        yield {key: span[key] for key in _MEMBERS if key in span} | around, path
    except RecordError as error:
        raise Malformed(_told(error)) from error


_MEMBERS = (
    "traceId",
    "spanId",
    "parentSpanId",
    "name",
    "kind",
    "startTimeUnixNano",
    "endTimeUnixNano",
    "attributes",
    "events",
    "status",
)


def _is_ours(keys: Iterator[str]) -> bool:
    return any(map(conventions.owns, keys))


def _keys_of_json(span: dict[str, Any]) -> Iterator[str]:
    events = span.get("events")
    for holder in (span, *(events if isinstance(events, list) else ())):
        pairs = holder.get("attributes") if isinstance(holder, dict) else None
        for pair in pairs if isinstance(pairs, list) else ():
            if isinstance(pair, dict) and isinstance(pair.get("key"), str):
                yield pair["key"]


def _around_json(resource: dict[str, Any], scope: Any) -> dict[str, Any]:
    described, named = resource.get("resource"), scope.get("scope") if isinstance(scope, dict) else None
    pairs = described.get("attributes") if isinstance(described, dict) else None
    service = None
    for pair in pairs if isinstance(pairs, list) else ():
        value = pair.get("value") if isinstance(pair, dict) and pair.get("key") == _SERVICE else None
        service = value.get("stringValue") if isinstance(value, dict) else service
    return _around(service, named.get("name") if isinstance(named, dict) else None)


_SERVICE = "service.name"


def _around(service: Any, scope: Any) -> dict[str, Any]:
    """What is kept of a span's resource and scope: whose it is, and who made it."""
    told: dict[str, Any] = {}
    if isinstance(service, str) and service:
        value = {"stringValue": service[:_MAX_NAME_CHARS]}
        told["resource"] = {"attributes": [{"key": _SERVICE, "value": value}]}
    if isinstance(scope, str) and scope:
        told["scope"] = {"name": scope[:_MAX_NAME_CHARS]}
    return told


# --- protobuf ---------------------------------------------------------------------------------------------------------
def _of_protobuf(body: bytes) -> Iterator[tuple[dict[str, Any], str] | RecordError]:
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise Malformed("The body is no ExportTraceServiceRequest in protobuf.") from error
    for at, resource in enumerate(request.resource_spans):
        service = next((pair.value.string_value for pair in resource.resource.attributes if pair.key == _SERVICE), "")
        for within, scope in enumerate(resource.scope_spans):
            around = _around(service, scope.scope.name)
            for position, span in enumerate(scope.spans):
                if _is_ours(_keys_of_protobuf(span)):
                    path = f"resourceSpans[{at}].scopeSpans[{within}].spans[{position}]"
                    try:
                        yield _json_form(span) | around, path
                    except RecordError as error:
                        yield RecordError(error.code, f"{path}.attributes", error.message)


def _keys_of_protobuf(span: WireSpan) -> Iterator[str]:
    for pairs in (span.attributes, *(event.attributes for event in span.events)):
        for pair in pairs:
            yield pair.key


def _json_form(span: WireSpan) -> dict[str, Any]:
    form: dict[str, Any] = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_time_unix_nano),
        "endTimeUnixNano": str(span.end_time_unix_nano),
        "attributes": _pairs(span.attributes, MAX_DEPTH),
        "events": [
            {
                "timeUnixNano": str(event.time_unix_nano),
                "name": event.name,
                "attributes": _pairs(event.attributes, MAX_DEPTH),
            }
            for event in span.events
        ],
        "status": {"code": span.status.code, "message": span.status.message},
    }
    return form


def _pairs(pairs: Iterable[KeyValue], depth: int) -> list[dict[str, Any]]:
    return [{"key": pair.key, "value": _value(pair.value, depth)} for pair in pairs]


def _value(value: AnyValue, depth: int) -> dict[str, Any]:
    if depth == 0:
        raise RecordError("too_deep", "", f"Values are nested more than {MAX_DEPTH} deep.")
    held: dict[str, Any] = {}
    match value.WhichOneof("value"):
        case "string_value":
            held["stringValue"] = value.string_value
        case "bool_value":
            held["boolValue"] = value.bool_value
        case "int_value":
            held["intValue"] = str(value.int_value)
        case "double_value":
            number = value.double_value
            held["doubleValue"] = number if math.isfinite(number) else str(number)
        case "array_value":
            held["arrayValue"] = {"values": [_value(each, depth - 1) for each in value.array_value.values]}
        case "kvlist_value":
            held["kvlistValue"] = {"values": _pairs(value.kvlist_value.values, depth - 1)}
        case "bytes_value":
            held["bytesValue"] = base64.b64encode(value.bytes_value).decode()
    return held
