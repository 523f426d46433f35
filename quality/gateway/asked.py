"""The body of a request. Only the members we need are read; the others go on as they were spelled."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from quality.gateway.errors import INVALID, GatewayError
from quality.ingest.jsontext import MAX_BYTES, JsonError, dump, parse

MAX_DEPTH = 500
_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_STREAM_OPTIONS = "stream_options"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a completion. `members` are the raw values of its body by name."""

    members: Mapping[str, bytes]
    model: str
    is_streamed: bool
    offers_tools: bool
    wants_usage: bool
    is_single: bool  # one choice is wanted: of several we read none

    @property
    def tools(self) -> list[Any]:
        """The tools offered, as far as they are a list."""
        try:
            value = json.loads(self.members.get("tools", b"null"))
        except (ValueError, RecursionError):
            return []
        return value if isinstance(value, list) else []

    def body_for(self, model: str, parameters: Mapping[str, Any], *, streamed: bool | None = None) -> bytes:
        """What goes on: the server's name of the model, the endpoint's parameters where the client says nothing.
        `streamed` False asks for the same answer in one piece."""
        members = {name: dump(value).encode() for name, value in parameters.items()} | dict(self.members)
        members["model"] = dump(model).encode()
        if streamed is False:
            members["stream"] = b"false"
            members.pop(_STREAM_OPTIONS, None)
        return spliced(members)


def read_asked(body: bytes) -> Asked:
    """Raises GatewayError for a body that no model could be chosen by."""
    members = _members(body)
    model = _value(members.get("model"))
    if not isinstance(model, str) or not model:
        message = "Name the model: `model` is the label of one of the tenant's models. GET /v1/models lists them."
        raise GatewayError(400, INVALID, "model_missing", message, param="model")
    if "messages" not in members:
        raise GatewayError(400, INVALID, "messages_missing", "Send `messages`: an array.", param="messages")
    options = _value(members.get(_STREAM_OPTIONS))
    number = _value(members.get("n"))
    return Asked(
        members=members,
        model=model,
        is_streamed=members.get("stream") == b"true",
        offers_tools=_offers_tools(members),
        wants_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        is_single=number in (None, 1),
    )


def _offers_tools(members: Mapping[str, bytes]) -> bool:
    """Are there tools that the model may call?"""
    tools = members.get("tools", b"")
    return tools[:1] == b"[" and tools[1:].strip() != b"]" and members.get("tool_choice") != b'"none"'


def spliced(members: Mapping[str, bytes]) -> bytes:
    """A JSON object of raw members."""
    return b"{" + b",".join(dump(name).encode() + b":" + raw for name, raw in members.items()) + b"}"


def split(raw: bytes) -> dict[str, bytes]:
    """The raw members of a JSON object; raises JsonError."""
    try:
        return {name: bytes(value).strip() for name, value in _split(raw).items()}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        # msgspec refuses lone surrogates, which clients of some languages send; and it says little of what is wrong
        node = parse(raw, depth=MAX_DEPTH, limit=max(len(raw), MAX_BYTES), repeated_keys=True)
        if not isinstance(node.value, dict):
            raise JsonError("wrong_type", "Expected a JSON object.") from None
        return {name: member.raw for name, member in node.members.items()}


def _members(body: bytes) -> dict[str, bytes]:
    try:
        return split(body)
    except JsonError as error:
        where = f" (line {error.line}, column {error.column})" if error.line else ""
        raise GatewayError(400, INVALID, error.code, f"The body cannot be read: {error.message}{where}") from error


def _value(raw: bytes | None) -> Any:
    """The value of a small member; None where it is absent or unreadable."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
