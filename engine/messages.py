"""What travels between a chat model, the tools and the loop: plain, frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model asked for.

    `id` is never empty and is unique within a reply. `arguments` is the parsed object; `raw_arguments` is the text
    they were read from, as received, so that evidence keeps the model's own spelling.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    raw_arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """A call of the structured list that cannot run: `arguments` was cut off, or is not a JSON object."""

    id: str
    name: str
    raw_arguments: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What one answer of a model means: the calls to run, and the text for the user.

    `text` is what lies outside calls and reasoning, joined as it stood. `reasoning` is never shown and never searched
    for calls. `warnings` say, for people, what was dropped or repaired. `broken` are structured calls that must not
    run; the model may be told about them.
    """

    calls: tuple[ToolCall, ...] = ()
    text: str = ""
    reasoning: str = ""
    warnings: tuple[str, ...] = ()
    broken: tuple[BrokenCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one call. `content` is the whole result; what the model is shown of it may be shorter."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `tool_call_id` stands on `tool` messages only, `tool_calls` on the assistant's."""

    role: Role
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
