"""The tool loop: ask the model, run the calls of its reply, ask again, until it answers or a limit is reached.

    result = await run_turn(model, tools, messages)

Nothing in here knows where a turn is kept or shown: a `Recorder` is told before anything runs and after it ended, and
`on_event` hears what a person may watch. A tool's failure is text for the model; a turn always ends in an `Outcome`.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from engine.events import AssistantDelta, AssistantEnd, Event, ToolCallStreaming
from engine.execution import CallHandler, CycleCalls, Desk
from engine.guards import RepeatGuard
from engine.history import assistant_message, history, tool_message
from engine.limits import Budget, Limits
from engine.messages import Message, Reply
from engine.providers.protocol import ChatModel, Exchange, ModelError, Piece, Request, TextPiece, Usage
from engine.recorder import NoRecorder, Recorder
from engine.records import CallRecord, FailedReply, ReplyRecord, Resume
from engine.redaction import Redactor
from engine.tools import Registry, SecretSource, Tool

type OnEvent = Callable[[Event], Awaitable[None]]


class Outcome(StrEnum):
    """How a turn ended. `awaiting` is the only one after which it can go on."""

    ANSWERED = "answered"
    EMPTY = "empty"  # the model said nothing and called nothing, asked twice
    EXHAUSTED = "exhausted"  # all cycles used and no reply
    TIMED_OUT = "timed_out"
    BUDGET_EXCEEDED = "budget_exceeded"
    CANCELLED = "cancelled"
    PROVIDER_ERROR = "provider_error"
    AWAITING = "awaiting"  # calls are pending, or their outcome is unknown


@dataclass(frozen=True, slots=True)
class TurnResult:
    """`messages` are those that the turn adds to the conversation, in OpenAI form; `open_calls` are what it awaits.

    `error` says in words why a turn failed or stopped; `error_code` is the code of a `ModelError`.
    """

    outcome: Outcome
    content: str | None
    messages: tuple[dict[str, Any], ...]
    open_calls: tuple[CallRecord, ...] = ()
    num_cycles: int = 0
    num_calls: int = 0
    usage: Usage = Usage()  # noqa: RUF009 - frozen
    warnings: tuple[str, ...] = ()
    error: str | None = None
    error_code: str | None = None

    @property
    def exhausted(self) -> bool:
        return self.outcome is Outcome.EXHAUSTED


@dataclass(frozen=True, slots=True)
class Ending:
    outcome: Outcome
    content: str | None = None
    error: str | None = None
    error_code: str | None = None


async def run_turn(
    model: ChatModel,
    tools: Registry | Iterable[Tool],
    messages: Sequence[Message | Mapping[str, Any]],
    *,
    recorder: Recorder | None = None,
    limits: Limits | None = None,
    on_tool_call: CallHandler | None = None,
    on_event: OnEvent | None = None,
    resume: Resume | None = None,
    cancel: asyncio.Event | None = None,
    turn_id: str | None = None,
    secrets: SecretSource = lambda _name: None,
    redactor: Redactor | None = None,
) -> TurnResult:
    """Runs one turn to its end, or until it must wait for a person or the caller.

    `messages` is the conversation up to and with the user's message. `on_tool_call` is awaited for each call of a tool
    that has no `execute`; it gives a decision, or text as the result, or None: the call stays pending. `cancel`, once
    set, ends the turn, also in the middle of a tool. `turn_id` begins the idempotency key of each call.
    Raises what `recorder` and `on_event` raise, and `ToolError` for tools that cannot be offered together.
    """
    registry = tools if isinstance(tools, Registry) else Registry(tools)
    limits = limits or Limits()
    tell = on_event or _untold
    desk = Desk(
        turn_id=turn_id or uuid.uuid4().hex,
        registry=registry,
        limits=limits,
        budget=Budget(limits),
        guard=RepeatGuard(limits.identical_calls),
        recorder=recorder or NoRecorder(),
        tell=tell,
        handler=on_tool_call,
        secrets=secrets,
        redactor=redactor or Redactor(),
        deadline=time.monotonic() + limits.wall_time_s,
        cancel=threading.Event(),
    )
    turn = Turn(model, desk, history(messages))
    ending = await _until_cancelled(turn, resume or Resume(()), cancel or asyncio.Event())
    result = turn.result(ending)
    await tell(AssistantEnd(result.content, result.exhausted, result.outcome, result.error))
    return result


async def _untold(event: Event) -> None:
    """For turns that nobody watches."""


async def _until_cancelled(turn: "Turn", resume: Resume, cancel: asyncio.Event) -> Ending:
    """Runs the turn beside a watch on `cancel`. If our own task is cancelled the turn is, with nothing put on record:
    whoever does that (a worker that shuts down) takes the turn up again later."""
    if cancel.is_set():
        return Ending(Outcome.CANCELLED)
    work = asyncio.ensure_future(turn.run(resume))
    watch = asyncio.ensure_future(cancel.wait())
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        turn.desk.cancel.set()
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            return work.result()  # it ended in the same moment, one way or the other
        await turn.abandon()
        return Ending(Outcome.CANCELLED)
    finally:
        turn.desk.cancel.set()
        for task in (work, watch):
            task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


class Turn:
    """One turn under way."""

    def __init__(self, model: ChatModel, desk: Desk, opening: list[dict[str, Any]]) -> None:
        self.desk = desk
        self._model = model
        self._opening = opening
        self._offers = desk.registry.offers()
        self._replies: list[ReplyRecord] = []
        self._cycles: list[CycleCalls] = []
        self._call_ids: set[str] = set()
        self._exchanges: list[Exchange] = []  # of the request under way
        self._warnings: list[str] = []

    async def run(self, resume: Resume) -> Ending:
        ending = await self._take_up(resume)
        while ending is None:
            if time.monotonic() >= self.desk.deadline:
                ending = self._timed_out()
            elif self.desk.guard.is_insisted:
                ending = await self._last_answer()
            elif len(self._replies) >= self.desk.limits.max_cycles:
                ending = await self._exhausted()
            else:
                ending = await self._cycle()
        return ending

    async def abandon(self) -> None:
        """Puts on record what was under way when the turn was cancelled."""
        if self._exchanges:
            await self._failed("cancelled", "the turn was cancelled while the model was answering")
        for cycle in self._cycles[-1:]:
            await cycle.abandon()

    def result(self, ending: Ending) -> TurnResult:
        desk = self.desk
        return TurnResult(
            outcome=ending.outcome,
            content=ending.content,
            messages=tuple(self._added()),
            open_calls=tuple(call for cycle in self._cycles for call in cycle.open),
            num_cycles=len(self._replies),
            num_calls=desk.budget.num_calls,
            usage=desk.budget.usage,
            warnings=tuple(self._warnings),
            error=ending.error,
            error_code=ending.error_code,
        )

    async def _take_up(self, resume: Resume) -> Ending | None:
        """Goes once more through what is on record, and finishes what it left open."""
        for recorded in resume.cycles:
            calls = self._kept(recorded.reply)
            await calls.resume(recorded, resume)
        return self._settled() if self._replies else None

    async def _cycle(self) -> Ending | None:
        if spent := self.desk.budget.spent():
            return Ending(Outcome.BUDGET_EXCEEDED, error=f"The turn ended: {spent}.")
        try:
            record = await self._ask(self._offers)
        except ModelError as error:
            return self._unanswered(error)
        calls = self._kept(record)
        if not calls.calls:
            return self._settled()
        if spent := self.desk.budget.spent():
            await calls.refuse(f"the turn's budget is used up ({spent})")
        else:
            await calls.run()
        return self._settled()

    def _settled(self) -> Ending | None:
        """What the newest reply and its calls mean for the turn; None: the model is to be asked again."""
        newest, calls = self._replies[-1], self._cycles[-1]
        if not calls.calls:
            return self._said(newest)
        if any(cycle.open for cycle in self._cycles):
            return Ending(Outcome.AWAITING)
        if calls.is_over_budget:
            return Ending(Outcome.BUDGET_EXCEEDED, error="The turn ended with calls that its budget does not allow.")
        return None

    def _said(self, last: ReplyRecord) -> Ending:
        """The ending that a reply without calls makes; beyond the cycles of the turn it is only the last word on it."""
        is_beyond = last.cycle >= self.desk.limits.max_cycles
        if last.reply.text.strip():
            return Ending(Outcome.EXHAUSTED if is_beyond else Outcome.ANSWERED, last.reply.text)
        had_tools = last.offered or not len(self.desk.registry)
        return Ending(Outcome.EMPTY, error=SAID_NOTHING) if had_tools else Ending(Outcome.EXHAUSTED)

    async def _exhausted(self) -> Ending:
        if self.desk.limits.on_exhaustion == "answer":
            return await self._last_answer()
        return Ending(Outcome.EXHAUSTED)

    async def _last_answer(self) -> Ending:
        """One reply without tools."""
        try:
            record = await self._ask([], withheld=self._offers)
        except ModelError as error:
            return self._unanswered(error)
        self._kept(record)
        return self._said(record)

    async def _ask(
        self, offers: Sequence[Mapping[str, Any]], withheld: Sequence[Mapping[str, Any]] = ()
    ) -> ReplyRecord:
        """One reply of the model, recorded; a failure too is recorded before it is raised."""
        cycle, started_at, started = len(self._replies), datetime.now(UTC), time.monotonic()
        self._exchanges = []
        messages = [*self._opening, *self._added()]
        request = Request(messages, offers, self.desk.deadline, withheld, self._exchanges)

        async def listen(piece: Piece) -> None:
            if isinstance(piece, TextPiece):
                await self.desk.tell(AssistantDelta(cycle, piece.text))
            elif offers:
                streaming = ToolCallStreaming(cycle, piece.index, piece.id, piece.name, piece.arguments)
                await self.desk.tell(streaming)

        try:
            answer = await self._model.answer(request, listen)
        except ModelError as error:
            await self._failed(error.code, str(error))
            raise
        reply = self._with_fresh_ids(answer.reply, cycle)
        if not offers and (reply.calls or reply.broken):
            reply = replace(reply, calls=(), broken=(), warnings=(*reply.warnings, "call_without_tools_ignored"))
        record = ReplyRecord(
            cycle=cycle,
            reply=reply,
            offered=tuple(offers),
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            num_bytes=answer.num_bytes,
            model=answer.model,
            warnings=answer.warnings,
            exchanges=tuple(self._exchanges),
            started_at=started_at,
            duration_ms=round((time.monotonic() - started) * 1000),
        )
        await self.desk.recorder.reply_received(record)
        self._exchanges = []
        return record

    async def _failed(self, code: str, message: str) -> None:
        failure = FailedReply(len(self._replies), code, message, tuple(self._exchanges))
        self._exchanges = []
        await self.desk.recorder.reply_failed(failure)

    def _unanswered(self, error: ModelError) -> Ending:
        if time.monotonic() >= self.desk.deadline:
            return self._timed_out()
        return Ending(Outcome.PROVIDER_ERROR, error=str(error), error_code=error.code)

    def _timed_out(self) -> Ending:
        seconds = self.desk.limits.wall_time_s
        return Ending(Outcome.TIMED_OUT, error=f"The turn took longer than the {seconds:g} s that it may.")

    def _kept(self, record: ReplyRecord) -> CycleCalls:
        self._replies.append(record)
        self.desk.budget.add_reply(record)
        self._warnings += [*record.warnings, *record.reply.warnings]
        calls = CycleCalls(self.desk, record.cycle, record.reply)
        self._call_ids.update(call.call_id for call in calls.calls)
        self._cycles.append(calls)
        return calls

    def _with_fresh_ids(self, reply: Reply, cycle: int) -> Reply:
        """The reply with ids of our own in place of those that an earlier call of this turn has."""

        def fresh(call_id: str, index: int) -> str:
            return f"{call_id}_{cycle}_{index}" if call_id in self._call_ids else call_id

        num_calls = len(reply.calls)
        return replace(
            reply,
            calls=tuple(replace(call, id=fresh(call.id, at)) for at, call in enumerate(reply.calls)),
            broken=tuple(replace(call, id=fresh(call.id, num_calls + at)) for at, call in enumerate(reply.broken)),
        )

    def _added(self) -> list[dict[str, Any]]:
        """The messages of this turn so far; calls that are open have no result yet."""
        messages = []
        for record, cycle in zip(self._replies, self._cycles, strict=True):
            messages.append(assistant_message(record.reply.text, cycle.calls))
            answered = ((call.call_id, call.outcome) for call in cycle.calls)
            messages += [tool_message(call_id, outcome.text) for call_id, outcome in answered if outcome is not None]
        return messages


SAID_NOTHING = (
    "The model gave neither text nor a call, asked twice. Check that the server's tool parser fits the model."
)
