"""The engine's Recorder on the journal, and the live events of the turn that it writes down.

Events are gathered for a tenth of a second, pieces of text and of arguments joined; whatever is recorded meanwhile
takes them along, so that the events of a reply are never behind the reply itself.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings

from engine.events import AssistantDelta, AssistantEnd, Event, ToolCallStreaming
from engine.records import CallRecord, FailedReply, ReplyRecord
from quality.ingest.jsontext import dump
from quality.turns.claim import Claim
from quality.turns.faults import may_strike
from quality.turns.journal import Entry, Journal, LeaseLost
from quality.turns.rows import INSERT_REPLY, UPSERT_CALL, Origin, Statement, call_row, failure_row, reply_row

logger = logging.getLogger(__name__)

GATHER_S = 0.1


class RowRecorder:
    """Writes one claimed turn down. `lost` is called when a write finds that the turn is not ours any more.

    `toolset_id` gives the id of a stored toolset; it is asked once a reply.
    """

    def __init__(
        self,
        claim: Claim,
        journal: Journal,
        origin: Origin,
        toolset_id: Callable[[Sequence[Any]], "asyncio.Future[int | None]"],
        lost: Callable[[], None],
    ) -> None:
        self.toolset: int | None = None  # of the newest reply
        self.model = ""
        self._claim = claim
        self._journal = journal
        self._origin = origin
        self._toolset_id = toolset_id
        self._lost = lost
        self._held_until = 0.0
        self._gathered: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._toolsets: dict[int, int | None] = {}  # by cycle
        self._models: dict[int, str] = {}
        self._flushes: set[asyncio.Task[None]] = set()

    def knows(self, cycle: int, model: str, toolset: int | None) -> None:
        """A reply that an earlier claim recorded."""
        self._models[cycle], self._toolsets[cycle] = model, toolset
        self.model, self.toolset = model, toolset

    async def reply_received(self, reply: ReplyRecord) -> None:
        may_strike("reply_came")
        self.knows(reply.cycle, reply.model, await self._toolset_id(reply.offered) if reply.offered else self.toolset)
        await self.write((INSERT_REPLY, reply_row(self._claim, reply, self.toolset)))
        may_strike("reply_kept")

    async def reply_failed(self, failure: FailedReply) -> None:
        await self.write((INSERT_REPLY, failure_row(self._claim, failure)))

    async def calls_started(self, calls: Sequence[CallRecord]) -> None:
        await self.write(*(self._call(call) for call in calls))
        may_strike("call_begun")

    async def call_ended(self, call: CallRecord) -> None:
        may_strike("call_ran")
        await self.write(self._call(call))
        may_strike("call_kept")

    async def tell(self, event: Event) -> None:
        """The engine's `on_event`. The end is told with the row that ends the turn; see `Carrier`."""
        if not isinstance(event, AssistantEnd):
            self.say(event)

    def say(self, event: Event) -> None:
        self._gathered.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._flush)

    async def write(self, *statements: Statement, last: Sequence[str] = ()) -> None:
        """Commit these rows with the events so far, and with `last` behind them. Raises LeaseLost."""
        began = time.monotonic()
        await self._journal.write(Entry(self._claim, statements, [*self._taken(), *last]))
        self._held_until = began + settings.TURN_LEASE_S

    async def is_ours(self) -> bool:
        """Each write renews the lease. Where it has passed by this machine's clock, another may have the turn, or
        nobody came for it: a write tells."""
        if time.monotonic() < self._held_until:
            return True
        try:
            await self.write()
        except LeaseLost:
            self._lost()
            return False
        return True

    def _taken(self) -> list[str]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        return [dump(event.as_dict()) for event in joined(gathered)]

    def _flush(self) -> None:
        async def flush() -> None:
            try:
                await self.write()
            except LeaseLost:
                self._lost()
            except Exception:
                logger.exception("turn %s: its events were not kept", self._claim.turn_id)

        self._timer = None
        task = asyncio.ensure_future(flush())
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)

    def _call(self, call: CallRecord) -> Statement:
        model, toolset = self._models.get(call.cycle, ""), self._toolsets.get(call.cycle)
        return UPSERT_CALL, call_row(self._claim, call, self._origin, model, toolset)


def joined(events: Sequence[Event]) -> list[Event]:
    """Pieces of one text, or of one call's arguments, that follow each other become one."""
    result: list[Event] = []
    for event in events:
        match result[-1] if result else None, event:
            case AssistantDelta(cycle, text), AssistantDelta(same, more) if cycle == same:
                result[-1] = AssistantDelta(cycle, text + more)
            case ToolCallStreaming() as begun, ToolCallStreaming() as piece if (begun.cycle, begun.index) == (
                piece.cycle,
                piece.index,
            ):
                result[-1] = ToolCallStreaming(
                    begun.cycle,
                    begun.index,
                    begun.call_id or piece.call_id,
                    begun.name or piece.name,
                    begun.arguments_delta + piece.arguments_delta,
                )
            case _:
                result.append(event)
    return result
