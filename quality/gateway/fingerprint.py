"""What makes two histories the same: a client sends all messages again with each request, and spells them anew.

A message counts by what it is, not by how it is written: replies with calls by the ids of these, results by the id of
their call and their text, all else by role and text. The system prompt counts for nothing: some say the time in it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

SYSTEM = frozenset(("system", "developer"))


def digests(messages: Sequence[Mapping[str, Any]], seed: str) -> list[bytes]:
    """For each message the fingerprint of the history up to it, itself included. `seed` keeps apart what must not be
    taken for one, such as two contacts."""
    running = hashlib.sha256(seed.encode("utf-8", "surrogatepass"))
    found = []
    for message in messages:
        if message.get("role") not in SYSTEM:
            part = json.dumps(gist(message), separators=(",", ":"))
            running.update(len(part).to_bytes(8) + part.encode())
        found.append(running.digest())
    return found


def gist(message: Mapping[str, Any]) -> list[Any]:
    """What stays the same of a message however a client spells it."""
    role = message.get("role")
    if role == "assistant":
        calls = message.get("tool_calls")
        ids = [_call_gist(call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        if not ids and isinstance(message.get("function_call"), dict):
            ids = [_call_gist({"function": message["function_call"]})]
        return [role, ids] if ids else [role, _text(message.get("content"))]
    if role == "tool":
        return [role, message.get("tool_call_id"), _text(message.get("content"))]
    return [role, _text(message.get("content"))]


def _call_gist(call: Mapping[str, Any]) -> Any:
    """A call's id; where it has none, what it asks for."""
    if call.get("id"):
        return call["id"]
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.dumps(json.loads(arguments), sort_keys=True)
    return [function.get("name"), arguments]


def _text(content: Any) -> Any:
    """Text alone, whether it came as one string or as parts; null and nothing are the same."""
    if content is None:
        return ""
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text") or "") for part in content)
    return content.strip() if isinstance(content, str) else content
