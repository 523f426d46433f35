"""Langfuse observations: pages of `GET /api/public/v2/observations`, traces of `GET /api/public/traces/{id}` with their
observations, or single observations.

Only observations of the type TOOL are calls; those of the type GENERATION are the model's replies. Input and output
come as JSON or as its text. `metadata.tool_call_id` and `metadata.prompt_version` are read where an application puts
them there.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from quality.ingest import evidence, messages, otlp_values
from quality.ingest.gathering import BadSpan, Found, gather
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.payloads import decoded, inside, read_args, read_result
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError
from quality.ingest.spans import Model, Span, Tool

NAME = "langfuse"
LABEL = "Langfuse"


def recognise(root: Node) -> bool:
    value = root.value
    if not isinstance(value, dict):
        return False
    listed = value.get("observations", value.get("data"))
    if isinstance(listed, list) and listed:
        return _is_observation(listed[0])
    if isinstance(listed, list):
        return isinstance(value.get("meta"), dict) or {"observations", "id", "timestamp"} <= value.keys()
    return _is_observation(value)


def _is_observation(value: Any) -> bool:
    return isinstance(value, dict) and {"traceId", "type", "startTime"} <= value.keys()


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return gather(items, _spans, complete=lambda root: "observations" in root.members, is_last=_is_last)


def _is_last(root: Node) -> bool | None:
    """Pages of version 2 name the next one, those of version 1 say how many there are."""
    meta = root.value.get("meta") if isinstance(root.value, dict) else None
    if not isinstance(meta, dict) or "data" not in root.members:
        return None
    if "cursor" in meta:
        return not meta["cursor"]
    page, pages = meta.get("page"), meta.get("totalPages")
    return page >= pages if isinstance(page, int) and isinstance(pages, int) else None


def _spans(root: Node) -> Iterator[Found]:
    if not isinstance(root.value, dict):
        raise RecordError("not_an_object", "", "Expected an object: a page, a trace or an observation.")
    key = next((key for key in ("observations", "data") if key in root.members), None)
    if key is None:
        yield _found(root, {}, "")
        return
    if not isinstance(root.value[key], list):
        raise RecordError("wrong_type", key, "Expected an array of observations.")
    trace = root.value if key == "observations" else {}
    for position, node in enumerate(root.members[key].elements):
        yield _found(node, trace, f"{key}[{position}]")


def _found(node: Node, trace: dict[str, Any], path: str) -> Found:
    try:
        return _span(node, trace, f"{path}." if path else "")
    except RecordError as error:
        told = node.value.get("traceId") if isinstance(node.value, dict) else None
        return BadSpan(error, told if isinstance(told, str) else None)


def _span(node: Node, trace: dict[str, Any], prefix: str) -> Span:
    value = node.value
    if not isinstance(value, dict):
        raise RecordError("not_an_object", prefix.rstrip("."), "Expected an object: one observation.")

    def name(key: str, held: dict[str, Any] = value) -> str | None:
        return evidence.name(held.get(key), f"{prefix}{key}")

    trace_id = name("traceId") or name("id", trace)
    span_id = name("id")
    if trace_id is None or span_id is None:
        missing = "id" if span_id is None else "traceId"
        raise RecordError("missing_field", f"{prefix}{missing}", "Expected the ids of the observation and its trace.")
    kind = value.get("type")
    metadata = decoded(node.get("metadata"))
    told = metadata.value if metadata is not None and isinstance(metadata.value, dict) else {}
    return Span(
        source=NAME,
        trace=trace_id,
        id=span_id,
        parent=name("parentObservationId"),
        started=otlp_values.nanoseconds_of_text(value.get("startTime")),
        ended=otlp_values.nanoseconds_of_text(value.get("endTime")),
        conversation=name("sessionId") or name("sessionId", trace),
        contact=name("userId") or name("userId", trace),
        prompt_version=_prompt(value, prefix) or _word(told, "prompt_version", prefix),
        tool=_tool(node, told, prefix) if kind == "TOOL" else None,
        model=_model(node, span_id, prefix) if kind == "GENERATION" else None,
        size=len(node.raw),
    )


def _prompt(observation: dict[str, Any], prefix: str) -> str | None:
    name, version = observation.get("promptName"), observation.get("promptVersion")
    told = isinstance(name, str) and isinstance(version, int | str) and not isinstance(version, bool)
    return evidence.name(f"{name}@{version}", f"{prefix}promptName") if told else None


def _word(metadata: dict[str, Any], key: str, prefix: str) -> str | None:
    value = metadata.get(key)
    return evidence.name(value, f"{prefix}metadata.{key}") if isinstance(value, str | int) else None


def _tool(node: Node, metadata: dict[str, Any], prefix: str) -> Tool:
    value = node.value
    name = evidence.name(value.get("name"), f"{prefix}name")
    if name is None:
        raise RecordError("missing_field", f"{prefix}name", "A call needs the name of its tool.")
    output = _payload(node.get("output"))
    answer = messages.tool_answer(decoded(output))
    level, message = value.get("level"), value.get("statusMessage")
    failed = level == "ERROR" if isinstance(level, str) else None
    if answer is not None and answer.failed:
        failed = True
    error = evidence.fault_text(message) if isinstance(message, str) and message else None
    if failed and error is None and answer is not None and answer.content is not None:
        error = evidence.fault_text(answer.content.value)
    return Tool(
        name=name,
        call_id=_word(metadata, "tool_call_id", prefix) or (answer.call_id if answer else None),
        args=read_args(_payload(node.get("input"))),
        result=read_result(answer.content if answer else output),
        is_error=failed,
        error=error if failed else None,
    )


def _payload(node: Node | None) -> Node | None:
    """Version 2 gives JSON as text, so that a text comes in quotes of its own."""
    if node is not None and isinstance(node.value, str) and node.value.startswith('"'):
        found = inside(node.value)
        return found if found is not None and isinstance(found.value, str) else node
    return node


def _model(node: Node, span_id: str, prefix: str) -> Model:
    value = node.value
    given = decoded(node.get("input"))
    return Model(
        message=span_id,
        model=evidence.name(value.get("model") or value.get("providedModelName"), f"{prefix}model"),
        tools=messages.offered(given.get("tools") if given else None),
        **messages.exchange(
            messages.of_request(given), messages.of_reply(node.get("output")), given.get("system") if given else None
        ),
    )
