"""OpenInference's attributes, as Phoenix and its instrumentations write them: flat (`tool.name`), or nested.

The processor for Vercel's AI SDK leaves some things to the SDK's own attributes (`ai.*`), which are read where
OpenInference's say nothing.
"""

import re
from typing import Any

from quality.ingest import evidence, messages
from quality.ingest.carriers import RawSpan
from quality.ingest.jsontext import Node, dump
from quality.ingest.payloads import decoded, inside, node_of, read_args, read_result
from quality.ingest.spans import Model, Span, Tool

SOURCE = "openinference"

_KIND = "openinference.span.kind"
_MAX_LEVELS = 12  # of a flat name; `llm.output_messages.0.message.tool_calls.0.tool_call.function.name` has 9
_NUMBER = re.compile(r"[0-9]{1,9}")
_SAID = "llm.output_messages.0.message.content"
_TOLD_ELSEWHERE = ("tool-call", "reasoning")  # calls are in `tool_calls` too; reasoning is left out
_VERCEL = "ai.operationId"  # all spans of the SDK have it
_VERCEL_TOOLS = "ai.prompt.tools"
_VERCEL_OUTPUTS = ("text", "json", "content", "error-text", "error-json")


def owns(key: str) -> bool:
    return key.partition(".")[0] == "openinference"


def read(raw: RawSpan) -> Span:
    """Raises RecordError."""
    attributes = dict(_flat(raw.attributes, ""))
    kind = attributes.get(_KIND) or raw.kind
    return Span(
        source=SOURCE,
        trace=raw.trace,
        id=raw.id,
        parent=raw.parent,
        started=raw.started,
        ended=raw.ended,
        conversation=_name(attributes, "session.id"),
        contact=_name(attributes, "user.id"),
        prompt_version=_name(attributes, "llm.prompt_template.version"),
        tool=_tool(raw, attributes) if kind == "TOOL" else None,
        model=_model(raw, attributes) if kind == "LLM" else None,
        size=raw.size,
    )


def _flat(value: Any, name: str) -> list[tuple[str, Any]]:
    """Nested attributes by their flat names. Payloads are text, so no nesting of theirs is lost."""
    if isinstance(value, dict) and value:
        return [each for key, held in value.items() for each in _flat(held, f"{name}.{key}" if name else key)]
    if isinstance(value, list) and any(isinstance(element, dict) for element in value):
        return [each for position, held in enumerate(value) for each in _flat(held, f"{name}.{position}")]
    return [(name, value)]


def _name(attributes: dict[str, Any], key: str) -> str | None:
    value = attributes.get(key)
    return evidence.name(value, key) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _node(attributes: dict[str, Any], key: str) -> Node | None:
    """A payload: text as a rule; one that came nested is put together again."""
    value = attributes.get(key)
    if value is None:
        value = _tree(attributes, f"{key}.")
    return node_of(value) if value not in (None, {}, []) else None


def _tool(raw: RawSpan, attributes: dict[str, Any]) -> Tool | None:
    name = _name(attributes, "tool.name") or raw.name
    if not name:
        return None
    given = _node(attributes, "input.value")
    output = _node(attributes, "output.value")
    answer = messages.tool_answer(decoded(output))  # LangChain's instrumentation writes the whole message
    return Tool(
        name=name,
        call_id=_name(attributes, "tool.id")
        or _name(attributes, "tool_call.id")
        or (answer.call_id if answer else None),
        args=read_args(given or _node(attributes, "tool.parameters")),
        result=read_result(answer.content if answer else output),
        is_error=raw.failed or bool(answer and answer.failed),
        error=(raw.exception() or raw.status_message) if raw.failed else None,
    )


def _model(raw: RawSpan, attributes: dict[str, Any]) -> Model:
    provider = _name(attributes, "llm.provider") or _name(attributes, "llm.system")
    return Model(
        message=raw.id,
        model=_name(attributes, "llm.model_name"),
        provider=provider.lower() if provider else None,
        tools=_tools(attributes),
        **messages.exchange(
            _messages(attributes, "llm.input_messages."), _messages(_with_text(attributes), "llm.output_messages.")
        ),
    )


def _with_text(attributes: dict[str, Any]) -> dict[str, Any]:
    """With the text of the reply where it is told as the span's output alone, and in no message."""
    said = attributes.get("output.value")
    is_text = attributes.get("output.mime_type") == "text/plain" and isinstance(said, str) and said
    is_missing = not any(key.startswith(_SAID) for key in attributes)
    return attributes | {_SAID: said} if is_text and is_missing else attributes


def _tree(attributes: dict[str, Any], prefix: str) -> Any:
    """What the names after a prefix spell, as nested objects; those whose names are all numbers as arrays."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        *path, last = name[len(prefix) :].split(".", _MAX_LEVELS)
        at = root
        for step in path:
            held = at.get(step)
            at[step] = at = held if isinstance(held, dict) else {}
        at[last] = value
    return _arrays(root)


def _arrays(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    read = {key: _arrays(held) for key, held in value.items()}
    if read and all(map(_NUMBER.fullmatch, read)):
        return [read[key] for key in sorted(read, key=int)]
    return read


def _messages(attributes: dict[str, Any], prefix: str) -> list[messages.Message]:
    found: list[messages.Message] = []
    tree = _tree(attributes, prefix)
    for element in tree if isinstance(tree, list) else []:
        message = element.get("message") if isinstance(element, dict) else None
        if isinstance(message, dict):
            role = "user" if "input" in prefix else "assistant"
            form = _in_openai_form(message, role)
            if _VERCEL in attributes and form["role"] == "tool":
                form["content"] = _bare(form["content"])
            found += messages.read(node_of(form), role)
    return found


def _in_openai_form(message: dict[str, Any], role: str) -> dict[str, Any]:
    told = message.get("role")
    form: dict[str, Any] = {"role": told if isinstance(told, str) else role, "content": message.get("content")}
    calls = [_call(each) for each in _elements(message.get("tool_calls"))]
    texts, blocks = [], []
    for each in _elements(message.get("contents")):
        content = each.get("message_content")
        content = content if isinstance(content, dict) else each
        if content.get("type") == "tool_use":
            calls.append(_call(content))
        elif content.get("type") == "text" and isinstance(content.get("text"), str):
            texts.append(content["text"])
            blocks.append({"type": "text", "text": content["text"]})
        elif content.get("type") not in _TOLD_ELSEWHERE:
            blocks.append(content)
    if form["content"] is None and blocks:
        form["content"] = "".join(texts) if len(texts) == len(blocks) else blocks
    if calls:
        form["tool_calls"] = calls
    for key in ("tool_call_id", "name"):
        if isinstance(message.get(key), str):
            form[key] = message[key]
    return form


def _bare(content: Any) -> Any:
    """What a tool said, without the SDK's wrapper around it: `{"type": "json", "value": …}`, in text."""
    node = inside(content) if isinstance(content, str) and content.startswith('{"type":') else None
    wrapped = node.value if node else None
    if not isinstance(wrapped, dict) or "value" not in wrapped or wrapped["type"] not in _VERCEL_OUTPUTS:
        return content
    value = wrapped["value"]
    return value if isinstance(value, str) else dump(value)


def _elements(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _call(held: dict[str, Any]) -> dict[str, Any]:
    call = held.get("tool_call")
    call = call if isinstance(call, dict) else held
    function = call.get("function")
    function = function if isinstance(function, dict) else call
    given = next((function[key] for key in ("arguments", "input") if function.get(key) is not None), None)
    named = {"name": function.get("name")}
    return {
        "id": call.get("id"),
        "type": "function",
        "function": named if given is None else named | {"arguments": given},
    }


def _tools(attributes: dict[str, Any]) -> str | None:
    tools = [each.get("tool") for each in _elements(_tree(attributes, "llm.tools."))]
    schemas = [schema for tool in tools if isinstance(tool, dict) and (schema := tool.get("json_schema")) is not None]
    return messages.offered(node_of(schemas or attributes.get(_VERCEL_TOOLS)))
