"""Spans of OpenTelemetry as files and requests carry them, before any convention gives their attributes a meaning.

Carriers: OTLP in JSON form (`resourceSpans`), Phoenix's listing (`{"data": […], "next_cursor": …}`), and the JSON of
OpenTelemetry's SDK, one span an object, as its console exporter writes it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quality.ingest import evidence, otlp_values
from quality.ingest.gathering import BadSpan
from quality.ingest.jsontext import dump, storable
from quality.ingest.otlp_values import SPAN_ID_BYTES, TRACE_ID_BYTES
from quality.ingest.records import RecordError

_ERRORS = (2, "2", "STATUS_CODE_ERROR", "ERROR", "StatusCode.ERROR")


@dataclass(frozen=True, slots=True)
class RawSpan:
    """One span of any meaning. Events are (name, attributes)."""

    trace: str
    id: str
    parent: str | None
    name: str
    started: int | None
    ended: int | None
    failed: bool
    status_message: str | None
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    kind: str = ""
    size: int = 0

    def exception(self) -> str | None:
        """The message of the last exception that was recorded."""
        told = [attributes.get("exception.message") for name, attributes in self.events if name == "exception"]
        return next((storable(text) for text in reversed(told) if isinstance(text, str) and text), None)


def of_otlp(document: Any) -> Iterator[RawSpan | BadSpan]:
    """The spans of an export request in JSON form; raises RecordError if it is none."""
    for resource, where in members(document, "resourceSpans", ""):
        for scope, within in members(resource, "scopeSpans", where):
            for span, path in members(scope, "spans", within):
                yield _checked(_of_otlp, span, path)


def of_span(span: Any) -> RawSpan | BadSpan:
    """One span in OTLP's JSON form."""
    return _checked(_of_otlp, span, "")


def of_listing(document: Any) -> Iterator[RawSpan | BadSpan]:
    """The spans of a listing, `{"data": […]}`, or the one span that the document is."""
    if isinstance(document, dict) and "data" not in document:
        yield _checked(_of_object, document, "")
    else:
        for span, path in members(document, "data", ""):
            yield _checked(_of_object, span, path)


def members(owner: Any, key: str, path: str) -> Iterator[tuple[Any, str]]:
    """Elements of an array that an object has, with their paths; none if it has no such array."""
    if not isinstance(owner, dict):
        raise RecordError("not_an_object", path, "Expected an object.")
    where = _joined(path, key)
    elements = owner.get(key)
    if elements is not None and not isinstance(elements, list):
        raise RecordError("wrong_type", where, "Expected an array.")
    for position, element in enumerate(elements or []):
        yield element, f"{where}[{position}]"


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _checked(read: Callable[[dict[str, Any], str], RawSpan], span: Any, path: str) -> RawSpan | BadSpan:
    if not isinstance(span, dict):
        return BadSpan(RecordError("not_an_object", path, "Expected an object: one span."))
    try:
        return read(span, path)
    except RecordError as error:
        context = span.get("context")
        told = span.get("traceId") or (context.get("trace_id") if isinstance(context, dict) else None)
        return BadSpan(error, otlp_values.identifier(told, TRACE_ID_BYTES))


def _of_otlp(span: dict[str, Any], path: str) -> RawSpan:
    status = span.get("status")
    status = status if isinstance(status, dict) else {}
    attributes = otlp_values.attributes(span.get("attributes"), _joined(path, "attributes"))
    events = [
        (event["name"], otlp_values.attributes(event.get("attributes"), f"{where}.attributes"))
        for event, where in members(span, "events", path)
        if isinstance(event, dict) and isinstance(event.get("name"), str)
    ]
    return RawSpan(
        trace=otlp_values.required_identifier(span.get("traceId"), TRACE_ID_BYTES, _joined(path, "traceId")),
        id=otlp_values.required_identifier(span.get("spanId"), SPAN_ID_BYTES, _joined(path, "spanId")),
        parent=otlp_values.identifier(span.get("parentSpanId"), SPAN_ID_BYTES),
        name=_name(span.get("name"), _joined(path, "name")),
        started=otlp_values.nanoseconds(span.get("startTimeUnixNano")),
        ended=otlp_values.nanoseconds(span.get("endTimeUnixNano")),
        failed=status.get("code") in _ERRORS,
        status_message=_text(status.get("message")),
        attributes=attributes,
        events=events,
        size=_weight(attributes, events),
    )


def _of_object(span: dict[str, Any], path: str) -> RawSpan:
    """Phoenix has the status on top, the SDK within `status`."""
    context, status, attributes = (
        value if isinstance(value := span.get(key), dict) else {} for key in ("context", "status", "attributes")
    )
    where = _joined(path, "context")
    events = [
        (event["name"], event["attributes"])
        for event, _ in members(span, "events", path)
        if isinstance(event, dict) and isinstance(event.get("name"), str) and isinstance(event.get("attributes"), dict)
    ]
    return RawSpan(
        trace=otlp_values.required_identifier(context.get("trace_id"), TRACE_ID_BYTES, f"{where}.trace_id"),
        id=otlp_values.required_identifier(context.get("span_id"), SPAN_ID_BYTES, f"{where}.span_id"),
        parent=otlp_values.identifier(span.get("parent_id"), SPAN_ID_BYTES),
        name=_name(span.get("name"), _joined(path, "name")),
        started=otlp_values.nanoseconds_of_text(span.get("start_time")),
        ended=otlp_values.nanoseconds_of_text(span.get("end_time")),
        failed=(span.get("status_code") or status.get("status_code")) in _ERRORS,
        status_message=_text(span.get("status_message") or status.get("description")),
        attributes=attributes,
        events=events,
        kind=span["span_kind"] if isinstance(span.get("span_kind"), str) else "",
        size=_weight(attributes, events),
    )


def _name(value: Any, path: str) -> str:
    return evidence.name(value, path) or ""


def _text(value: Any) -> str | None:
    return storable(value) if isinstance(value, str) and value else None


def _weight(attributes: dict[str, Any], events: list[tuple[str, dict[str, Any]]]) -> int:
    """About the bytes that the values take, those of events too: conventions keep payloads there."""
    told = [attributes, *(each for _, each in events)]
    return sum(len(value) if isinstance(value, str) else len(dump(value)) for each in told for value in each.values())
