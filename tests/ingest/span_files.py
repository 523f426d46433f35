"""Traces in the shapes of the span formats, built small: what each test of a format varies."""

import json
from typing import Any

TRACE = "5b8efff798038103d269b633813fc60c"
START = 1_777_801_500_000_000_000  # 2026-05-03T09:45:00Z
MILLISECOND = 1_000_000


def any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": any_value(held)} for key, held in value.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(held) for held in value]}}
    return {"stringValue": value}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def otlp_span(number: int, attributes: dict[str, Any], *, trace: str = TRACE, **more: Any) -> dict[str, Any]:
    """A span that starts `number` milliseconds after the others' time, and takes one."""
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": "span",
        "kind": 1,
        "startTimeUnixNano": str(START + number * MILLISECOND),
        "endTimeUnixNano": str(START + (number + 1) * MILLISECOND),
        "attributes": pairs(attributes),
        "status": {},
        **more,
    }


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": pairs({"service.name": "desk"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}]}


def genai_tool(number: int, *, call_id: str | None = "call_1", trace: str = TRACE, **more: Any) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_order",
        "gen_ai.tool.call.arguments": '{"n": "7"}',
        "gen_ai.tool.call.result": '{"status": "sent"}',
        **({"gen_ai.tool.call.id": call_id} if call_id else {}),
        **more.pop("attributes", {}),
    }
    return otlp_span(number, {k: v for k, v in attributes.items() if v is not None}, trace=trace, **more)


def genai_chat(number: int, *calls: str, trace: str = TRACE, **more: Any) -> dict[str, Any]:
    parts = [{"type": "tool_call", "id": c, "name": "get_order", "arguments": {"n": "7"}} for c in calls]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "OpenAI",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": f"reply-{number}",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Order 7?"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts or [text("Sent.")]}]),
        **more.pop("attributes", {}),
    }
    return otlp_span(number, {k: v for k, v in attributes.items() if v is not None}, trace=trace, **more)


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}
