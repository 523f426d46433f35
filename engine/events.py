"""What a turn tells while it runs: `assistant_delta`, `tool_call` on each change of state, `assistant_end` last."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.records import CallRecord, CallState


@dataclass(frozen=True, slots=True)
class AssistantDelta:
    """A piece of visible text of the reply in this cycle."""

    cycle: int
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {"type": "assistant_delta", "cycle": self.cycle, "text": self.text}


@dataclass(frozen=True, slots=True)
class ToolCallStreaming:
    """A piece of a call that the model is writing. Its name comes with the first piece; where it comes again, the model
    was asked again and the call begins anew."""

    cycle: int
    index: int
    call_id: str | None
    name: str | None
    arguments_delta: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "tool_call",
            "state": CallState.STREAMING.value,
            "cycle": self.cycle,
            "index": self.index,
            "callId": self.call_id,
            "name": self.name,
            "argumentsDelta": self.arguments_delta,
        }


@dataclass(frozen=True, slots=True)
class ToolCallChanged:
    """A call as it now is. `result` is the text that the model reads."""

    call: CallRecord

    def as_dict(self) -> dict[str, Any]:
        call, outcome = self.call, self.call.outcome
        event: dict[str, Any] = {
            "type": "tool_call",
            "state": call.state.value,
            "cycle": call.cycle,
            "index": call.index,
            "callId": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
            "rawArguments": call.raw_arguments,
        }
        if outcome is not None:
            event |= {"result": outcome.text, "isError": outcome.is_error, "error": outcome.error}
        return event


@dataclass(frozen=True, slots=True)
class AssistantEnd:
    """Nothing follows. `content` is null where there is no reply; `end_reason` says why the turn ended."""

    content: str | None
    exhausted: bool
    end_reason: str
    error: str | None = None

    def as_dict(self) -> Mapping[str, Any]:
        return {
            "type": "assistant_end",
            "content": self.content,
            "exhausted": self.exhausted,
            "endReason": self.end_reason,
            "error": self.error,
        }


type Event = AssistantDelta | ToolCallStreaming | ToolCallChanged | AssistantEnd
