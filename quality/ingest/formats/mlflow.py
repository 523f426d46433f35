"""MLflow traces, as `Trace.to_dict()` writes them: one object a trace, of schema version 3, or of the older 2.

Attributes are JSON text and are decoded once; ids are base64 or hex. The conversation is `mlflow.trace.session`, the
contact `mlflow.trace.user`; the tag `prompt_version` is our convention.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from quality.ingest import evidence, messages, otlp_values
from quality.ingest.gathering import BadSpan, Found, gather
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node, storable
from quality.ingest.payloads import decoded, read_args, read_result
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError
from quality.ingest.spans import Model, Span, Tool

NAME = "mlflow"
LABEL = "MLflow"

_MODELS = frozenset({"CHAT_MODEL", "LLM"})
_ERRORS = (2, "2", "ERROR", "STATUS_CODE_ERROR")
_SUFFIX = re.compile(r"(.+)_[0-9]{1,4}", re.DOTALL)  # of repeated names in schema version 2


def recognise(root: Node) -> bool:
    value = root.value
    if not isinstance(value, dict) or not isinstance(value.get("info"), dict):
        return False
    data = value.get("data")
    return isinstance(data, dict) and "spans" in data


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return gather(items, _spans, complete=lambda root: True)


@dataclass(frozen=True, slots=True)
class _Info:
    """What the trace says of all its spans."""

    trace: str
    conversation: str | None
    contact: str | None
    prompt_version: str | None
    is_old: bool


def _spans(root: Node) -> Iterator[Found]:
    if not isinstance(root.value, dict):
        raise RecordError("not_an_object", "", "Expected an object with `info` and `data`.")
    info = _info(root)
    data = decoded(root.get("data"))
    spans = data.get("spans") if data is not None else None
    if spans is None or not isinstance(spans.value, list):
        raise RecordError("missing_field", "data.spans", "Expected an array of spans.")
    for position, node in enumerate(spans.elements):
        path = f"data.spans[{position}]"
        try:
            yield _span(node, info, path)
        except RecordError as error:
            yield BadSpan(error, info.trace)


def _info(root: Node) -> _Info:
    info = root.value.get("info")
    if not isinstance(info, dict):
        raise RecordError("missing_field", "info", "Expected an object.")
    trace = evidence.name(info.get("trace_id") or info.get("request_id"), "info.trace_id")
    if trace is None:
        raise RecordError("missing_field", "info.trace_id", "Expected the id of the trace.")
    told = {**_strings(info.get("request_metadata")), **_strings(info.get("trace_metadata"))}
    return _Info(
        trace=trace,
        conversation=evidence.name(told.get("mlflow.trace.session"), "info.trace_metadata.mlflow.trace.session"),
        contact=evidence.name(told.get("mlflow.trace.user"), "info.trace_metadata.mlflow.trace.user"),
        prompt_version=evidence.name(_strings(info.get("tags")).get("prompt_version"), "info.tags.prompt_version"),
        is_old="trace_id" not in info,
    )


def _strings(value: Any) -> dict[str, str]:
    """Metadata and tags: an object, or a list of `key` and `value`."""
    pairs = value.items() if isinstance(value, dict) else []
    if isinstance(value, list):
        pairs = [(each.get("key"), each.get("value")) for each in value if isinstance(each, dict)]
    return {key: text for key, text in pairs if isinstance(key, str) and isinstance(text, str)}


def _span(node: Node, info: _Info, path: str) -> Span:
    value = node.value
    if not isinstance(value, dict):
        raise RecordError("not_an_object", path, "Expected an object: one span.")
    context = value["context"] if isinstance(value.get("context"), dict) else {}
    span_id = _id(value.get("span_id") or context.get("span_id"), f"{path}.span_id")
    if span_id is None:
        raise RecordError("missing_field", f"{path}.span_id", "Expected the id of the span.")
    attributes = node.get("attributes") or Node(b"{}", {})
    kind = _text(attributes, "mlflow.spanType")
    return Span(
        source=NAME,
        trace=info.trace,
        id=span_id,
        parent=_id(value.get("parent_span_id") or value.get("parent_id"), f"{path}.parent_span_id"),
        started=otlp_values.nanoseconds(value.get("start_time_unix_nano") or value.get("start_time")),
        ended=otlp_values.nanoseconds(value.get("end_time_unix_nano") or value.get("end_time")),
        conversation=info.conversation,
        contact=info.contact,
        prompt_version=info.prompt_version,
        tool=_tool(node, attributes, info, path) if kind == "TOOL" else None,
        model=_model(attributes, span_id, path) if kind in _MODELS else None,
        size=len(node.raw),
    )


def _id(value: Any, path: str) -> str | None:
    return otlp_values.identifier(value, otlp_values.SPAN_ID_BYTES) or evidence.name(value, path)


def _attribute(attributes: Node, key: str) -> Node | None:
    return decoded(attributes.get(key))


def _text(attributes: Node, key: str) -> str | None:
    """A plain word, which some versions encoded twice."""
    found = decoded(_attribute(attributes, key))
    return found.value if found is not None and isinstance(found.value, str) else None


def _tool(node: Node, attributes: Node, info: _Info, path: str) -> Tool:
    function = _text(attributes, "mlflow.spanFunctionName")
    name, warnings = function or evidence.name(node.value.get("name"), f"{path}.name"), list[str]()
    if name and not function and info.is_old and (match := _SUFFIX.fullmatch(name)):
        name = match[1]
        warnings.append("name_suffix_removed")
    if not name:
        raise RecordError("missing_field", f"{path}.name", "A call needs the name of its tool.")
    output = _attribute(attributes, "mlflow.spanOutputs")
    answer = messages.tool_answer(output)
    failed, message = _status(node.value)
    if answer is not None and answer.failed:
        failed = True
    result = read_result(answer.content if answer else output)
    error = _exception(node) or message
    if failed and error is None and answer is not None and answer.content is not None:
        error = evidence.fault_text(answer.content.value)
    return Tool(
        name=evidence.name(name, f"{path}.name") or "",
        call_id=answer.call_id if answer else None,
        args=read_args(_attribute(attributes, "mlflow.spanInputs")),
        result=result,
        is_error=failed,
        error=error if failed else None,
        warnings=tuple(warnings),
    )


def _status(span: dict[str, Any]) -> tuple[bool | None, str | None]:
    """The flag, None if there is none, and its message."""
    status = span.get("status")
    held = (
        status if isinstance(status, dict) else {"code": span.get("status_code"), "message": span.get("status_message")}
    )
    code, message = held.get("code"), held.get("message")
    text = storable(message) if isinstance(message, str) and message else None
    return (None if code is None else code in _ERRORS), text


def _exception(node: Node) -> str | None:
    events = node.value.get("events")
    for event in reversed(events if isinstance(events, list) else []):
        told = event.get("attributes") if isinstance(event, dict) and event.get("name") == "exception" else None
        message = told.get("exception.message") if isinstance(told, dict) else None
        if isinstance(message, str) and message:
            return storable(message)
    return None


def _model(attributes: Node, span_id: str, path: str) -> Model:
    given, output = _attribute(attributes, "mlflow.spanInputs"), _attribute(attributes, "mlflow.spanOutputs")
    told = output.value if output is not None and isinstance(output.value, dict) else {}
    provider = _text(attributes, "mlflow.llm.provider")
    tools = _attribute(attributes, "mlflow.chat.tools") or (given.get("tools") if given else None)
    model = told.get("model") or _text(attributes, "mlflow.llm.model")
    return Model(
        message=evidence.name(told.get("id"), f"{path}.attributes.mlflow.spanOutputs.id") or span_id,
        model=evidence.name(model, f"{path}.attributes.mlflow.llm.model"),
        provider=evidence.name(provider.lower(), f"{path}.attributes.mlflow.llm.provider") if provider else None,
        tools=messages.offered(tools),
        **messages.exchange(
            messages.of_request(given), messages.of_reply(output), given.get("system") if given else None
        ),
    )
