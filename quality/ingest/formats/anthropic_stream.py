"""The message that the events of one stream make, for logs that kept the events."""

from typing import Any

from quality.ingest.jsontext import JsonError, Node, dump, parse


def message_of(response: Node) -> Node:
    """The response itself, or, of a list of events, the message that they make; pieces of it that do not fit are left
    out."""
    if not isinstance(response.value, list):
        return response
    message: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    for event in response.value:
        if not isinstance(event, dict):
            continue
        data = event["data"] if isinstance(event.get("data"), dict) else event
        index = data.get("index") if isinstance(data.get("index"), int) else None
        started, block, delta = data.get("message"), data.get("content_block"), data.get("delta")
        if isinstance(started, dict):
            message = {**started}
        elif isinstance(block, dict):
            blocks[index] = {**block}
        elif isinstance(delta, dict) and index in blocks:
            _add(blocks[index], delta)
    if not blocks:
        return response
    message["content"] = [_whole(block) for block in blocks.values()]
    try:
        return parse(dump(message).encode(), repeated_keys=True)
    except JsonError:
        return response


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for key in ("text", "partial_json"):
        piece = delta.get(key)
        if isinstance(piece, str):
            known = block.get(key)
            block[key] = (known if isinstance(known, str) else "") + piece


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments come as pieces of JSON text, none if there are no arguments."""
    pieces = block.pop("partial_json", None)
    if isinstance(pieces, str) and pieces:
        block["input"] = pieces
    return block
