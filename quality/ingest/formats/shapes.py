"""By which keys the formats that are lists of messages are told apart.

An item may fit more than one: a chat in which no tool was called is the same in several. Then the formats agree on
what it says, too.
"""

from collections.abc import Iterator
from typing import Any

from quality.ingest.pairs import is_pair

_CHAT, _RESPONSES, _ANTHROPIC, _UI = "openai_chat", "openai_responses", "anthropic_messages", "vercel_ui"
_CHAT_KEYS = {"tool_calls", "function_call", "tool_call_id"}
_UI_KEYS = {"parts", "toolInvocations"}
_BLOCK_KEYS = ({"tool_use_id"}, {"id", "name", "input"}, {"thinking", "signature"})
_ANTHROPIC_REQUEST_KEYS = {"system", "anthropic_version", "stop_sequences", "thinking", "mcp_servers", "top_k"}


def metadata_of(value: dict[str, Any]) -> dict[str, Any]:
    metadata = value.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def kinds(value: Any) -> frozenset[str]:
    """Names of the formats that such an item may belong to."""
    if is_pair(value):
        return frozenset({_kind_of_pair(value["request"], value["response"])})
    if not isinstance(value, dict):
        return frozenset()
    if isinstance(value.get("messages"), list):
        return _kinds_of_messages(value)
    items = value.get("items")
    if isinstance(items, list) and any("role" in item or "call_id" in item for item in _objects(items)):
        return frozenset({_RESPONSES})
    return frozenset()


def _kind_of_pair(request: dict[str, Any], response: Any) -> str:
    if any("content_block" in each for event in _objects(response) for each in _objects([event, event.get("data")])):
        return _ANTHROPIC  # the events of a stream
    answer = response if isinstance(response, dict) else {}
    if "choices" in answer:
        return _CHAT
    if "output" in answer or ("input" in request and "messages" not in request):
        return _RESPONSES
    if "content" in answer and "role" in answer:
        return _ANTHROPIC
    return _ANTHROPIC if _kinds_of_messages(request) == {_ANTHROPIC} else _CHAT


def _kinds_of_messages(value: dict[str, Any]) -> frozenset[str]:
    messages = list(_objects(value.get("messages")))
    keys = {key for message in messages for key in message}
    if keys & _UI_KEYS:
        return frozenset({_UI})
    if keys & _CHAT_KEYS:
        return frozenset({_CHAT})
    if value.keys() & _ANTHROPIC_REQUEST_KEYS or any(
        wanted <= block.keys()
        for message in messages
        for block in _objects(message.get("content"))
        for wanted in _BLOCK_KEYS
    ):
        return frozenset({_ANTHROPIC})
    return frozenset({_CHAT, _ANTHROPIC, _UI})


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
