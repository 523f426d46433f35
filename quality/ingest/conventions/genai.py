"""OpenTelemetry's own attributes for generative AI (`gen_ai.*`), all of them still in development.

Payloads are opt-in, and come as JSON text or structured. Names that were renamed are read in both forms.
"""

from typing import Any

from quality.ingest import evidence, messages
from quality.ingest.carriers import RawSpan
from quality.ingest.jsontext import Node
from quality.ingest.payloads import node_of, read_args, read_result
from quality.ingest.spans import Model, Span, Tool

SOURCE = "otel_genai"

_TOOL_SPAN = "execute_tool"
_MODEL_SPANS = frozenset({"chat", "generate_content", "text_completion"})
_PAYLOAD_EVENT = "gen_ai.client.inference.operation.details"


def owns(key: str) -> bool:
    return key.startswith("gen_ai.")


def read(raw: RawSpan) -> Span:
    """Raises RecordError."""
    attributes = raw.attributes
    for name, more in raw.events:
        if name == _PAYLOAD_EVENT:
            attributes = more | attributes
    operation = attributes.get("gen_ai.operation.name") or raw.name.partition(" ")[0]
    return Span(
        source=SOURCE,
        trace=raw.trace,
        id=raw.id,
        parent=raw.parent,
        started=raw.started,
        ended=raw.ended,
        conversation=_first(attributes, "gen_ai.conversation.id"),
        session=_first(attributes, "session.id"),
        contact=_first(attributes, "user.id", "enduser.id"),
        prompt_version=_first(attributes, "gen_ai.agent.version"),
        tool=_tool(raw, attributes) if operation == _TOOL_SPAN else None,
        model=_model(raw, attributes) if operation in _MODEL_SPANS else None,
        size=raw.size,
    )


def _first(attributes: dict[str, Any], *keys: str) -> str | None:
    """The first of these attributes that tells a name."""
    told = ((key, attributes.get(key)) for key in keys)
    return next((found for key, value in told if _is_name(value) and (found := evidence.name(value, key))), None)


def _is_name(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _node(attributes: dict[str, Any], key: str) -> Node | None:
    value = attributes.get(key)
    return None if value is None else node_of(value)


def _tool(raw: RawSpan, attributes: dict[str, Any]) -> Tool | None:
    name = _first(attributes, "gen_ai.tool.name") or raw.name.removeprefix(_TOOL_SPAN).strip()
    if not name:
        return None
    kind = _first(attributes, "error.type")
    failed = raw.failed or kind is not None
    return Tool(
        name=name,
        call_id=_first(attributes, "gen_ai.tool.call.id"),
        args=read_args(_node(attributes, "gen_ai.tool.call.arguments")),
        result=read_result(_node(attributes, "gen_ai.tool.call.result")),
        is_error=failed,
        error=(raw.status_message or raw.exception() or kind) if failed else None,
    )


def _model(raw: RawSpan, attributes: dict[str, Any]) -> Model:
    given = messages.of_request(_node(attributes, "gen_ai.input.messages"))
    reply = messages.of_reply(_node(attributes, "gen_ai.output.messages"))[:1]  # others are choices that were not used
    provider = _first(attributes, "gen_ai.provider.name", "gen_ai.system")
    return Model(
        message=_first(attributes, "gen_ai.response.id") or raw.id,
        model=_first(attributes, "gen_ai.response.model", "gen_ai.request.model"),
        provider=provider.lower() if provider else None,
        tools=messages.offered(_node(attributes, "gen_ai.tool.definitions")),
        **messages.exchange(given, reply, _node(attributes, "gen_ai.system_instructions")),
    )
