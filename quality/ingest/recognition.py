"""Why a format was recognised: those of its telling keys that an item has, for people to judge the guess by."""

import itertools
from collections.abc import Iterator
from typing import Any

_TELLING = {
    "neutral": ("tool_name", "external_id", "args", "result"),
    "openai_chat": (
        "request.messages",
        "response.choices",
        "messages[].tool_calls",
        "messages[].function_call",
        "messages[].tool_call_id",
        "messages[].role",
    ),
    "openai_responses": ("request.input", "response.output", "items[].call_id", "items[].type", "items[].role"),
    "anthropic_messages": (
        "request.messages",
        "response.content",
        "response[].content_block",
        "response[].data.content_block",
        "system",
        "messages[].content[].input",
        "messages[].content[].tool_use_id",
        "messages[].role",
    ),
    "vercel_ui": ("messages[].parts", "messages[].toolInvocations", "messages[].role"),
    "otel_genai": ("resourceSpans", "resourceSpans[].scopeSpans[].spans", "gen_ai.*"),
    "openinference": ("resourceSpans", "data[].span_kind", "data[].context.trace_id", "openinference.*"),
    "langfuse": (
        "observations[].traceId",
        "observations[].startTime",
        "data[].traceId",
        "data[].startTime",
        "traceId",
        "startTime",
        "observations",
    ),
    "langsmith": ("run_type", "trace_id", "child_runs", "id"),
    "mlflow": ("info.trace_id", "info.request_id", "info", "data.spans"),
}
_SHOWN = 4
_MAX_NODES = 2_000  # looked at for the names of attributes


def telling_keys(format_name: str, value: Any) -> tuple[str, ...]:
    """Up to four keys of the item by which the format is told; those that it begins with if none of them is there."""
    wanted = _TELLING[format_name]
    found = [path for path in wanted if not path.endswith("*") and _has(value, path.split("."))]
    prefixes = tuple(path[:-1] for path in wanted if path.endswith("*"))
    if prefixes:
        names = (name for name in _names(value) if name.startswith(prefixes))
        found = [*found[:2], *dict.fromkeys(itertools.islice(names, 20))]
    if not found and isinstance(value, dict):
        found = [str(key)[:100] for key in value]
    return tuple(found[:_SHOWN])


def _has(value: Any, path: list[str]) -> bool:
    """Is there such a member, in any element where the path says `[]`?"""
    if not path:
        return True
    name, each = path[0].removesuffix("[]"), path[0].endswith("[]")
    if not isinstance(value, dict) or name not in value:
        return False
    member = value[name]
    if not each:
        return _has(member, path[1:])
    return isinstance(member, list) and any(_has(element, path[1:]) for element in member[:_MAX_NODES])


def _names(value: Any) -> Iterator[str]:
    """Names of attributes: keys of objects, or those told by `key` as OTLP does; breadth first."""
    waiting = [value]
    for node in itertools.islice(waiting, _MAX_NODES):
        if isinstance(node, dict):
            told = node.get("key")
            yield from ([told] if isinstance(told, str) and "value" in node else [])
            yield from node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node[:_MAX_NODES])
