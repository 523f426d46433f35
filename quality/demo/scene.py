"""One turn of the demo as it was played, and what a reviewer would say of it."""

import datetime as dt
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call. `content` is the tool message that the model read; None: none was recorded."""

    content: str | None
    is_error: bool | None = False
    error: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PlayedCall:
    """A call as the model wrote it: `args` is its own text, JSON or not."""

    tool: str
    args: str
    outcome: Outcome
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Cycle:
    """A model reply that asked for calls; `text` is what it said beside them."""

    calls: tuple[PlayedCall, ...]
    text: str | None = None
    think_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a careful reviewer says of a call, or of a cycle without one (`index` None)."""

    label: str
    note: str = ""
    cycle: int = 0
    index: int | None = None
    correction: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """One turn. `reply` is the last text, None if the turn ended without one; `fault` names what went wrong in it."""

    key: str
    source: str
    conversation: str
    contact: str
    position: int
    started_at: dt.datetime
    language: str
    user: str
    cycles: tuple[Cycle, ...]
    reply: str | None
    model: str | None
    provider: str | None
    tools: str
    fault: str
    reply_ms: int | None = None
    style_id: str | None = None
    prompt_version: str | None = None
    system: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def duration_ms(self) -> int | None:
        """Calls of one cycle run at the same time. None where the source told no times."""
        if self.reply_ms is None:
            return None
        slowest = (max((call.outcome.duration_ms or 0 for call in cycle.calls), default=0) for cycle in self.cycles)
        return self.reply_ms + sum(cycle.think_ms or 0 for cycle in self.cycles) + sum(slowest)
