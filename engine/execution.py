"""The calls of one reply: which may run, running them side by side, and what others decide on the rest."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from engine.events import Event, ToolCallChanged
from engine.guards import RepeatGuard
from engine.history import NOT_ANSWERED
from engine.limits import Budget, Limits
from engine.messages import BrokenCall, Reply, ToolCall
from engine.recorder import Recorder
from engine.records import (
    ENDED,
    OPEN,
    Answered,
    Approve,
    CallRecord,
    CallState,
    Cycle,
    Decision,
    Decline,
    NotAnswered,
    Resume,
)
from engine.redaction import Redactor
from engine.tools import (
    Mode,
    Registry,
    Safety,
    SecretSource,
    Tool,
    ToolContext,
    ToolOutcome,
    failed,
    invalid_arguments,
    succeeded,
    told_in_json,
)

BEGUN = frozenset({CallState.RUNNING, CallState.PENDING})

OVER_BUDGET = "budget_exceeded"

type CallHandler = Callable[[CallRecord], Awaitable[Decision | str | None]]
type Tell = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True)
class Desk:
    """What all cycles of a turn share. `cancel` reaches tools in threads; `deadline` is `time.monotonic()`'s."""

    turn_id: str
    registry: Registry
    limits: Limits
    budget: Budget
    guard: RepeatGuard
    recorder: Recorder
    tell: Tell
    handler: CallHandler | None
    secrets: SecretSource
    redactor: Redactor
    deadline: float
    cancel: threading.Event = field(default_factory=threading.Event)

    def context(self, call: CallRecord) -> ToolContext:
        return ToolContext(
            deadline=min(self.deadline, time.monotonic() + self.limits.tool_timeout_s),
            result_limit=self.limits.result_max_chars,
            idempotency_key=call.idempotency_key,
            secrets=self.secrets,
            redactor=self.redactor,
            cancel=self.cancel,
        )


class CycleCalls:
    """The calls of one reply, in the model's order; broken ones come after those that can be read."""

    def __init__(self, desk: Desk, cycle: int, reply: Reply) -> None:
        asked: list[ToolCall | BrokenCall] = [*reply.calls, *reply.broken]
        self.calls = [_record(desk, cycle, index, call) for index, call in enumerate(asked)]
        self._ran: set[int] = set()
        self._broken = {len(reply.calls) + index: call for index, call in enumerate(reply.broken)}
        self._desk = desk

    @property
    def open(self) -> tuple[CallRecord, ...]:
        return tuple(call for call in self.calls if call.state in OPEN)

    @property
    def is_over_budget(self) -> bool:
        return any(call.outcome is not None and call.outcome.error == OVER_BUDGET for call in self.calls)

    async def refuse(self, reason: str) -> None:
        """Runs none of them: the budget of the turn is used up."""
        for call in self.calls:
            await self._change(self._refused(call, reason))

    async def run(self) -> None:
        """A reply that has just come: judge each call, run what may run, park what waits."""
        await self._carry_out([self._judged(call) for call in self.calls])

    async def resume(self, recorded: Cycle, resume: Resume) -> None:
        """A reply from the record: what ended stays, what never began begins, what is open is decided or stays open."""
        work = []
        for planned in self.calls:
            call = recorded.calls.get(planned.index)
            if call is None:
                work.append(self._judged(planned))
                continue
            self._desk.guard.admits(call.cycle, call.name, call.arguments, call.raw_arguments)
            if call.state in OPEN or call.started_at is not None:
                self._desk.budget.take_call()
            self.calls[call.index] = call
            if call.state not in ENDED:
                work.append(self._taken_up(call, resume.decisions.get(call.call_id)))
        await self._carry_out(work)

    async def abandon(self) -> None:
        """The turn was given up: what was running is put on record as what is known of it."""
        for call in self.calls:
            if call.state is CallState.RUNNING:
                if call.index in self._ran and call.safety is Safety.UNSAFE:
                    await self._change(replace(call, state=CallState.UNKNOWN))
                else:
                    outcome = told_in_json("the turn was cancelled", self._desk.context(call), error="cancelled")
                    await self._change(_ended(call, outcome))

    def _judged(self, call: CallRecord) -> CallRecord:
        """The call with the state it gets: `running`, `pending`, or `error` with the reason why it is not run."""
        desk, context = self._desk, self._desk.context(call)
        admitted = desk.guard.admits(call.cycle, call.name, call.arguments, call.raw_arguments)
        if not admitted:
            return _ended(call, failed(desk.guard.told(), context, error="repeated_call"))
        if broken := self._broken.get(call.index):
            return _ended(call, invalid_arguments(call.name, "$", broken.reason, context))
        if fault := desk.registry.check(call.name, call.arguments, context):
            return _ended(call, fault)
        if time.monotonic() >= desk.deadline:
            return _ended(call, failed("Error: not run: the turn's time is used up", context, error="timed_out"))
        if not desk.budget.take_call():
            return self._refused(call, f"a turn may make no more than {desk.limits.max_calls} calls")
        waits = call.mode is Mode.APPROVE or not self._can_run(call)
        return replace(call, state=CallState.PENDING if waits else CallState.RUNNING)

    def _refused(self, call: CallRecord, reason: str) -> CallRecord:
        return _ended(call, failed(f"Error: not run: {reason}", self._desk.context(call), error=OVER_BUDGET))

    def _taken_up(self, call: CallRecord, decision: Decision | None) -> CallRecord:
        """A call that had begun when the record ends, with what was decided on it since."""
        context = self._desk.context(call)
        if decision is None and call.state is CallState.RUNNING:
            return call if call.safety is Safety.SAFE else replace(call, state=CallState.UNKNOWN)
        match decision:
            case Approve(arguments):
                edited = call if arguments is None else replace(call, arguments=arguments)
                if fault := self._desk.registry.check(edited.name, edited.arguments, context):
                    return _ended(edited, fault)
                return replace(edited, state=CallState.RUNNING if self._can_run(call) else CallState.PENDING)
            case None:
                return call
        return _ended(call, decided(decision, context))

    def _can_run(self, call: CallRecord) -> bool:
        tool = self._desk.registry.get(call.name)
        return tool is not None and tool.execute is not None and tool.mode is not Mode.CLIENT

    async def _carry_out(self, calls: Sequence[CallRecord]) -> None:
        """Writes down what begins, then does all of it side by side."""
        now = datetime.now(UTC)
        changed = [call for call in calls if call.state is CallState.RUNNING or call != self.calls[call.index]]
        begun = [replace(call, started_at=now) for call in changed if call.state in BEGUN]
        for call in begun:
            self.calls[call.index] = call
        if begun:
            await self._desk.recorder.calls_started(begun)
        for call in begun:
            await self._tell(call)
        for call in changed:
            if call.state not in BEGUN:
                await self._change(call)
        waiting = [call for call in self.calls if call.state is CallState.PENDING]
        running = [self._run(call) for call in begun if call.state is CallState.RUNNING]
        await side_by_side(running + [self._ask_caller(call) for call in waiting])

    async def _run(self, call: CallRecord) -> None:
        self._ran.add(call.index)
        context, started = self._desk.context(call), time.monotonic()
        outcome = await self._outcome(call, context)
        duration_ms = round((time.monotonic() - started) * 1000)
        await self._change(replace(_ended(call, outcome), duration_ms=duration_ms))

    async def _outcome(self, call: CallRecord, context: ToolContext) -> ToolOutcome:
        """What the tool gives; what it does in place of giving it is told to the model."""
        try:
            outcome: Any = await self._desk.registry.run(call.name, call.arguments, context)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            return told_in_json("the tool gave up", context, error="tool_crashed")
        except (Exception, SystemExit) as error:
            return told_in_json(f"{type(error).__name__}: {error}", context, error="tool_crashed")
        if not isinstance(outcome, ToolOutcome):
            return told_in_json(f"the tool returned {type(outcome).__name__}", context, error="tool_crashed")
        return outcome

    async def _ask_caller(self, call: CallRecord) -> None:
        """Lets the caller's handler answer a call of a tool that is the caller's; with no answer it stays pending."""
        desk = self._desk
        if desk.handler is None or call.mode is Mode.APPROVE or self._can_run(call):
            return
        context = desk.context(call)
        try:
            async with asyncio.timeout(desk.deadline - time.monotonic()) as limit:
                answer = await desk.handler(call)
        except Exception as error:
            if limit.expired():
                return
            text = f"{type(error).__name__}: {error}"
            await self._change(_ended(call, told_in_json(text, context, error="tool_crashed")))
            return
        if isinstance(answer, str):
            answer = Answered(answer)
        if answer is not None and not isinstance(answer, Approve):
            await self._change(_ended(call, decided(answer, context)))

    async def _change(self, call: CallRecord) -> None:
        await self._desk.recorder.call_ended(call)
        await self._tell(call)

    async def _tell(self, call: CallRecord) -> None:
        self.calls[call.index] = call
        await self._desk.tell(ToolCallChanged(call))


def decided(decision: Answered | Decline | NotAnswered, context: ToolContext) -> ToolOutcome:
    """A decision that needs no run, as the model reads it."""
    match decision:
        case Answered(result, is_error):
            return failed(result, context, error="answered") if is_error else succeeded(result, context)
        case Decline(reason):
            return failed(f"Error: the call was refused: {reason or 'no reason given'}", context, error="refused")
        case NotAnswered():
            return failed(NOT_ANSWERED, context, error="not_answered")


async def side_by_side(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs all; the first error cancels the others and comes out."""
    tasks = [asyncio.ensure_future(work) for work in works]
    if not tasks:
        return
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _record(desk: Desk, cycle: int, index: int, call: ToolCall | BrokenCall) -> CallRecord:
    tool: Tool | None = desk.registry.get(call.name)
    return CallRecord(
        cycle=cycle,
        index=index,
        call_id=call.id,
        name=call.name,
        raw_arguments=call.raw_arguments,
        arguments=call.arguments if isinstance(call, ToolCall) else None,
        state=CallState.STREAMING,
        mode=tool.mode if tool else Mode.AUTO,
        safety=tool.safety if tool else Safety.UNSAFE,
        idempotency_key=f"{desk.turn_id}:{cycle}:{index}",
    )


def _ended(call: CallRecord, outcome: ToolOutcome) -> CallRecord:
    return replace(call, state=CallState.ERROR if outcome.is_error else CallState.RESULT, outcome=outcome)
