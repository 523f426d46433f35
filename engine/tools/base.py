"""What a tool is, what it is told when it runs, and what it gives back."""

import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from engine.redaction import Redactor
from engine.text import truncate, well_formed

RESULT_LIMIT = 2_000  # characters of a result that the model reads; the whole of it is recorded
TIMEOUT_S = 15.0

type Arguments = dict[str, Any]
type Execute = Callable[[Arguments, ToolContext], Awaitable[ToolOutcome]]
type SecretSource = Callable[[str], str | None]


class Mode(StrEnum):
    """Who lets a call run."""

    AUTO = "auto"
    APPROVE = "approve"  # a person must approve it first
    CLIENT = "client"  # the caller answers it; the engine runs nothing


class Safety(StrEnum):
    SAFE = "safe"  # may be repeated: it changes nothing, or the same thing to the same state
    UNSAFE = "unsafe"  # must not be run twice


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call is told besides its arguments.

    `deadline` is a reading of `time.monotonic()`. `secrets` gives a secret by name (None: there is none), `redactor`
    knows every secret of the turn. `cancel` is set when the turn is given up, for work in threads that no
    cancellation reaches.
    """

    deadline: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_S)
    result_limit: int = RESULT_LIMIT
    idempotency_key: str = ""
    secrets: SecretSource = lambda _name: None
    redactor: Redactor = field(default_factory=Redactor)
    cancel: threading.Event = field(default_factory=threading.Event)

    def time_left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How a call ended: `text` is for the model and already cut, `result` is the whole of it, for the record.

    `error` is a short code or reason, set exactly when `is_error`. A body that is not UTF-8 text stands in `result`
    as base64 with `encoding` "base64" and the charset that its sender declared. `details` holds what a reviewer may
    want to see beside the result (HTTP status, the number of rows). Secrets are already replaced by their names.
    """

    text: str
    result: str
    is_error: bool = False
    error: str | None = None
    encoding: str = "text"
    charset: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Tool(Protocol):
    """One tool. `parameters` is a JSON Schema of an object; without `execute` the caller answers the call."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def safety(self) -> Safety: ...
    @property
    def execute(self) -> Execute | None: ...


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool made of one async function, or of none."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    execute: Execute | None
    mode: Mode = Mode.AUTO
    safety: Safety = Safety.UNSAFE


def succeeded(result: str, context: ToolContext, *, details: Mapping[str, Any] | None = None) -> ToolOutcome:
    whole = context.redactor.text(result)
    return ToolOutcome(_for_model(whole, context), whole, details=details or {})


def failed(message: str, context: ToolContext, *, error: str, details: Mapping[str, Any] | None = None) -> ToolOutcome:
    """A failure told in the tool's own words; `error` is the short code that lists and hints go by."""
    whole = context.redactor.text(message)
    return ToolOutcome(_for_model(whole, context), whole, is_error=True, error=error, details=details or {})


def _for_model(whole: str, context: ToolContext) -> str:
    return truncate(well_formed(whole), context.result_limit)


def told_in_json(message: str, context: ToolContext, *, error: str = "tool_failed") -> ToolOutcome:
    """A failure as tools of our own tell it: `{"error": "<message>"}`."""
    return failed(json.dumps({"error": message}, ensure_ascii=False), context, error=error)
