"""Conventions give the attributes of OpenTelemetry's spans a meaning. Which one a span follows is told by its keys, so
that spans of several may be in one file, one request and one trace."""

from collections.abc import Iterable, Iterator
from typing import Any

from quality.ingest.carriers import RawSpan, of_listing, of_otlp
from quality.ingest.conventions import genai, openinference
from quality.ingest.gathering import BadSpan, Found
from quality.ingest.records import RecordError


def spans(raw: Iterable[RawSpan | BadSpan]) -> Iterator[Found]:
    """Give each span its meaning. A span of no convention still links its children to what is above it."""
    for found in raw:
        if isinstance(found, BadSpan):
            yield found
            continue
        try:
            yield (openinference if _is_openinference(found) else genai).read(found)
        except RecordError as error:
            yield BadSpan(error, found.trace)


def of_document(document: Any) -> Iterator[Found]:
    """The spans of a document of any carrier; raises RecordError."""
    is_otlp = isinstance(document, dict) and "resourceSpans" in document
    return spans(of_otlp(document) if is_otlp else of_listing(document))


def owns(key: str) -> bool:
    """Is this a key of an attribute by which a convention of ours speaks?"""
    return genai.owns(key) or openinference.owns(key)


def is_last_page(document: Any) -> bool | None:
    """Is this the last page of a listing? None: it is no page."""
    is_page = isinstance(document, dict) and "data" in document and "next_cursor" in document
    return not document["next_cursor"] if is_page else None


def _is_openinference(span: RawSpan) -> bool:
    return bool(span.kind) or any(map(openinference.owns, span.attributes))


def source_of(document: Any) -> str | None:
    """Source of a document in a carrier of OpenTelemetry's, told by keys alone; None if it is in none of them. A
    request over OTLP may hold anybody's spans, with ours in a later line."""
    if not isinstance(document, dict):
        return None
    if "resourceSpans" in document:
        return openinference.SOURCE if any(map(openinference.owns, _otlp_keys(document))) else genai.SOURCE
    listed = document.get("data", [document])
    spans = [span for span in listed if _is_span(span)] if isinstance(listed, list) else []
    if any("span_kind" in span for span in spans) or (listed == [] and "next_cursor" in document):
        return openinference.SOURCE
    keys = {key for span in spans if isinstance(span.get("attributes"), dict) for key in span["attributes"]}
    if any(map(openinference.owns, keys)):
        return openinference.SOURCE
    return genai.SOURCE if any(map(genai.owns, keys)) else None


def _is_span(value: Any) -> bool:
    context = value.get("context") if isinstance(value, dict) else None
    return isinstance(context, dict) and "trace_id" in context and "span_id" in context


def _otlp_keys(document: dict[str, Any]) -> Iterator[str]:
    for resource in _dicts(document, "resourceSpans"):
        for scope in _dicts(resource, "scopeSpans"):
            for span in _dicts(scope, "spans"):
                for holder in (span, *_dicts(span, "events")):
                    yield from (key for pair in _dicts(holder, "attributes") if isinstance(key := pair.get("key"), str))


def _dicts(owner: dict[str, Any], key: str) -> list[dict[str, Any]]:
    held = owner.get(key)
    return [each for each in held if isinstance(each, dict)] if isinstance(held, list) else []
