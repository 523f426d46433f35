"""Where a turn is written down while it runs.

Each method returns when its record is kept: nothing that it records is acted on before. A recorder that raises ends the
turn at once (running tools are cancelled) and its error comes out of `run_turn`: what lost its lease must not go on.
"""

from collections.abc import Sequence
from typing import Protocol

from engine.records import CallRecord, Cycle, FailedReply, ReplyRecord


class Recorder(Protocol):
    async def reply_received(self, reply: ReplyRecord) -> None:
        """Before any call of it is run."""

    async def reply_failed(self, failure: FailedReply) -> None:
        """No usable reply came, or the turn was given up while it was coming."""

    async def calls_started(self, calls: Sequence[CallRecord]) -> None:
        """Before these calls run (`running`) or wait (`pending`); again when a call that waited runs after all."""

    async def call_ended(self, call: CallRecord) -> None:
        """`result`, `error` or `unknown`. A call that was not run comes here at once."""


class NoRecorder:
    """For turns that leave nothing behind."""

    async def reply_received(self, reply: ReplyRecord) -> None:
        pass

    async def reply_failed(self, failure: FailedReply) -> None:
        pass

    async def calls_started(self, calls: Sequence[CallRecord]) -> None:
        pass

    async def call_ended(self, call: CallRecord) -> None:
        pass


class MemoryRecorder:
    """Keeps a turn in memory, in the form in which it can be taken up again."""

    def __init__(self) -> None:
        self.replies: dict[int, ReplyRecord] = {}
        self.calls: dict[tuple[int, int], CallRecord] = {}
        self.failures: list[FailedReply] = []

    @property
    def cycles(self) -> list[Cycle]:
        return [
            Cycle(reply, {index: call for (cycle, index), call in self.calls.items() if cycle == number})
            for number, reply in sorted(self.replies.items())
        ]

    async def reply_received(self, reply: ReplyRecord) -> None:
        self.replies[reply.cycle] = reply

    async def reply_failed(self, failure: FailedReply) -> None:
        self.failures.append(failure)

    async def calls_started(self, calls: Sequence[CallRecord]) -> None:
        for call in calls:
            self.calls[call.cycle, call.index] = call

    async def call_ended(self, call: CallRecord) -> None:
        self.calls[call.cycle, call.index] = call
