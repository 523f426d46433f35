"""How records are called in words for people, and what to do where one is refused.

Many of our ids are hashes of what a source tells: nobody finds one in a file. Such a record is called by what the file
does say of it.
"""

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quality.ingest.records import CallRecord, TurnRecord

ONE_OF_TWO = (
    "What is stored stays. If this one is right, take back the import that brought the other one, or send this to "
    "/api/ingest/tool-calls with If-Match: *. If both are, give each an id of its own."
)
PLACE_IS_LABELLED = "A label hangs on its place: undo the labels of that turn, then import this again."

_HASH = re.compile(r"[0-9a-f]{64}")
_UNNAMED = "~"
_SHOWN_CHARS = 60


def call_name(call: "CallRecord") -> str:
    """By the source's own id, or by tool, message and conversation."""
    if not _HASH.fullmatch(call.external_id):
        return f"The call {call.external_id}"
    told = f"The call of {call.tool_name}"
    told += f" with the id {call.tool_call_id}" if call.tool_call_id else f" at cycle {call.cycle}, index {call.index}"
    told += f" of message {call.message}" if call.message else ""
    return told + _conversation(call.conversation)


def turn_name(turn: "TurnRecord") -> str:
    """By the source's own id, or by conversation, message and what the user said."""
    if not _HASH.fullmatch(turn.external_id):
        return f"The turn {turn.external_id}"
    said = quoted(turn.messages)
    told = f" that begins with {said}" if said else ""
    return f"The turn{f' of message {turn.message}' if turn.message else ''}{_conversation(turn.conversation)}{told}"


def _conversation(name: str | None) -> str:
    return f" of conversation {name}" if name and not name.startswith(_UNNAMED) else ""


def quoted(messages: str | None) -> str:
    """The beginning of what the user said first, in quotes; empty where that is not known."""
    said = " ".join(asked(messages).split())
    return f"“{said if len(said) <= _SHOWN_CHARS else said[: _SHOWN_CHARS - 1] + '…'}”" if said else ""


def asked(messages: str | None) -> str:
    """What the user said first, of messages as JSON text; empty where that is not known."""
    told: list[dict[str, Any]] = json.loads(messages) if messages else []
    return _words(next((message.get("content") for message in told if message.get("role") == "user"), None))


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return " ".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
