"""Requests of OTLP, made of the JSON form that files have."""

import base64
import copy
import json
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATH = "/v1/traces"
PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def spans_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in document.get("resourceSpans", []):
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def protobuf(document: dict[str, Any]) -> bytes:
    """The same request in protobuf, whose JSON has ids in base64."""
    document = copy.deepcopy(document)
    for span in spans_of(document):
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(document, ExportTraceServiceRequest()).SerializeToString()


def body(document: dict[str, Any], content_type: str) -> bytes:
    return protobuf(document) if content_type == PROTOBUF else json.dumps(document).encode()


def batch(spans: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}
