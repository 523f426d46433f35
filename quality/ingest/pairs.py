"""Pairs of request and response that repeat the history in each request: read as one log a chat.

The last request holds the results, each response the id, time and model of its reply. Pairs of one chat may come as one
array or as lines, in a row or between those of other chats.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from quality.ingest.history import Reply
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.logs import Log, Logs
from quality.ingest.reader import ItemError, Unreadable
from quality.ingest.records import RecordError, TurnRecord, fingerprint


@dataclass(frozen=True, slots=True)
class Pair:
    """What tells a pair's log: a hash for each count of the request's messages, and of those with the reply, which is
    None if the request failed."""

    keys: Sequence[bytes]
    with_reply: bytes | None
    reply: Reply
    conversation: str | None = None


@dataclass(slots=True, eq=False)
class PairLog(Log):
    last: Checked | None = None


class PairLogs:
    """The open logs. One goes on if its last request, with the reply at best, begins the new one."""

    def __init__(
        self, *, read_pair: Callable[[Node], Pair], read_log: Callable[[Node, PairLog], Iterable[TurnRecord]]
    ) -> None:
        self._read_pair = read_pair
        self._read_log = read_log
        self._logs = Logs[PairLog]()

    def add(self, item: Checked) -> Iterator[Parsed | ItemError]:
        """Take a pair in; logs that make room for it come out. Raises RecordError."""
        pair = self._read_pair(item.root)
        if not pair.keys:
            raise RecordError("missing_field", "request.messages", "Expected at least one message.")
        log, position = self._logs.take(reversed(pair.keys)), len(pair.keys)
        if log and position in log.replies and log.replies[position].message != pair.reply.message:
            self._logs.keep(log, log.keys)
            log = None  # the same request was answered twice, or another chat begins alike: two turns
        if log is None:
            log = PairLog(pair.conversation or pair.reply.message or fingerprint(item.root.text))
        log.last, log.size = item, item.size
        log.replies[position] = self._logs.sharing(log, pair.reply)
        self._logs.keep(log, [pair.keys[-1], *([pair.with_reply] if pair.with_reply else [])])
        for full in self._logs.full():
            yield from self._end(full)

    def close(self) -> Iterator[Parsed | ItemError]:
        for log in self._logs.rest():
            yield from self._end(log)

    def _end(self, log: PairLog) -> Iterator[Parsed | ItemError]:
        item, log.last = log.last, None
        if item is None:
            return
        try:
            yield Parsed(item.index, item.line, item.size, tuple(self._read_log(item.root, log)))
        except RecordError as error:
            yield item.refuse(error)


def is_pair(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("request"), dict) and "response" in value


class _Open(Protocol):
    def add(self, item: Checked) -> Iterator[Parsed | ItemError]: ...

    def close(self) -> Iterator[Parsed | ItemError]: ...


def read(
    items: Iterable[Checked | ItemError], *, read_alone: Callable[[Node], Iterable[TurnRecord]], logs: _Open
) -> Iterator[Parsed | ItemError]:
    """For formats whose items stand alone, or are pairs that make up `logs`."""
    try:
        for item in items:
            if isinstance(item, ItemError):
                yield item
                continue
            try:
                if is_pair(item.root.value):
                    yield from logs.add(item)
                else:
                    yield Parsed(item.index, item.line, item.size, tuple(read_alone(item.root)))
            except RecordError as error:
                yield item.refuse(error)
    except Unreadable:
        yield from logs.close()  # what came before the fault is whole
        raise
    yield from logs.close()
