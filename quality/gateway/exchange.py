"""One request and its reply, as they are handed to the recorder: bytes, and what is known beside them."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from quality.gateway.errors import INVALID, GatewayError
from quality.ingest.jsontext import storable
from quality.ingest.records import MAX_NAME_CHARS, UNNAMED

CLIENT_GONE = "client_gone"  # a fault
CALLS_IN_TEXT = "calls_in_text"  # warnings
ASKED_AGAIN = "asked_again_without_streaming"
MAX_REPLY = 8 * 1024 * 1024  # bytes of a reply that are kept to be recorded


@dataclass(frozen=True, slots=True)
class Said:
    """What the client says of a request in headers of ours; empty where it says nothing."""

    conversation: str = ""
    contact: str = ""
    style: str = ""
    prompt_version: str = ""


HEADERS = {
    "x-qlab-conversation": "conversation",
    "x-qlab-contact": "contact",
    "x-qlab-style": "style",
    "x-qlab-prompt-version": "prompt_version",
}


def read_said(headers: Mapping[str, str]) -> Said:
    """Raises GatewayError for a value that could not be kept."""
    found = {}
    for header, name in HEADERS.items():
        value = storable(headers.get(header, "").strip())
        if len(value) > MAX_NAME_CHARS:
            message = f"{header}: {len(value):,} characters; the limit is {MAX_NAME_CHARS}."
            raise GatewayError(400, INVALID, "too_long", message, param=header)
        found[name] = value
    if found["conversation"].startswith(UNNAMED):
        message = f"x-qlab-conversation: names that begin with {UNNAMED} are ours. Choose another one."
        raise GatewayError(400, INVALID, "reserved", message, param="x-qlab-conversation")
    return Said(**found)


@dataclass(slots=True)
class Exchange:
    """`reply` is what the client was sent. `status` is None where the model's server gave no answer; `fault` says why a
    reply is missing or not whole. `warnings` say what was done to it on its way. `key` is the server's: not to be kept.
    """

    id: str
    tenant_id: int
    label: str
    model: str
    said: Said
    request: bytes
    checks_arguments: bool
    started_at: dt.datetime
    key: str | None = field(default=None, repr=False)
    status: int | None = None
    is_stream: bool = False
    reply: bytearray = field(default_factory=bytearray)
    fault: str = ""
    duration_ms: int = 0
    warnings: list[str] = field(default_factory=list)
    is_too_large: bool = False

    @property
    def size(self) -> int:
        return len(self.request) + len(self.reply)

    @property
    def has_failed(self) -> bool:
        """Did the model's server give no whole, good answer? A client that went away, before its first byte or after,
        is no failure of it."""
        if self.fault == CLIENT_GONE:
            return self.status not in (None, 200)
        return self.status != 200 or bool(self.fault)

    def keep(self, piece: bytes) -> None:
        if len(self.reply) + len(piece) > MAX_REPLY:
            self.is_too_large = True
        else:
            self.reply += piece
