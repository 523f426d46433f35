"""Logs of requests and responses, held open until nothing more of them comes, within a bound.

One file may hold those of many chats between each other. A log is found again by keys: hashes of what its next request
must begin with or name.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from quality.ingest.history import Reply

MAX_HELD_BYTES = 4 * 1024 * 1024  # of requests held until their log is complete; values in memory are some ten times it
MAX_LOGS = 10_000  # whose replies are remembered, some 300 bytes each
MAX_TOOLS_BYTES = 16 * 1024 * 1024  # of tools that remembered replies were offered; equal ones count once
_MAX_TOOLSETS = 256  # recent ones that are looked for equals


@dataclass(slots=True, eq=False)
class Log:
    """Pairs of one chat so far: replies by their position in the history. `size` counts the bytes that it holds; 0: it
    was let out, and there is nothing new since. `tools_size` counts those of the tools that its replies brought."""

    identity: object
    replies: dict[int, Reply] = field(default_factory=dict)
    size: int = 0
    keys: tuple[bytes, ...] = ()
    tools_size: int = 0


class Logs[L: Log]:
    """The open logs, oldest first."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, L] = {}
        self._logs: OrderedDict[int, L] = OrderedDict()
        self._held = 0
        self._tools_size = 0
        self._toolsets: OrderedDict[str, str] = OrderedDict()

    def take(self, keys: Iterable[bytes]) -> L | None:
        """The log that one of these keys finds; it is out until it is kept again."""
        log = next((found for key in keys if (found := self._by_key.get(key))), None)
        if log is not None:
            self._forget(log)
            self._held -= log.size
        return log

    def keep(self, log: L, keys: Iterable[bytes]) -> None:
        """Hold a log, as the newest, to be found by these keys from now on."""
        log.keys = tuple(keys)
        for key in log.keys:
            self._by_key[key] = log
        self._logs[id(log)] = log
        self._held += log.size
        self._tools_size += log.tools_size

    def sharing(self, log: L, reply: Reply) -> Reply:
        """A reply for a log that is out: requests repeat the tools they offer, and equal ones are held once."""
        if reply.tools is None:
            return reply
        tools = self._toolsets.get(reply.tools)
        if tools is None:
            tools = self._toolsets[reply.tools] = reply.tools
            log.tools_size += len(tools)
            if len(self._toolsets) > _MAX_TOOLSETS:
                self._toolsets.popitem(last=False)
        self._toolsets.move_to_end(tools)
        return replace(reply, tools=tools)

    def hold(self, log: L, size: int) -> None:
        """A log that was let out goes on to hold so much, so that what follows finds it."""
        log.size = size
        self._held += size

    def _forget(self, log: L) -> None:
        del self._logs[id(log)]
        self._tools_size -= log.tools_size
        for key in log.keys:
            if self._by_key.get(key) is log:
                del self._by_key[key]

    def full(self) -> Iterator[L]:
        """Logs that have to make room. Each stays known: if it goes on, it comes out again, longer, and merges with
        what is stored."""
        yield from self._let_out(MAX_HELD_BYTES)
        while len(self._logs) > MAX_LOGS or (self._tools_size > MAX_TOOLS_BYTES and len(self._logs) > 1):
            oldest = next(iter(self._logs.values()))
            self._forget(oldest)
            self._held -= oldest.size
            if oldest.size:
                yield oldest

    def rest(self) -> Iterator[L]:
        """All that is still held."""
        yield from self._let_out(0)

    def _let_out(self, keep_bytes: int) -> Iterator[L]:
        for log in list(self._logs.values()):
            if self._held <= keep_bytes:
                return
            if log.size:
                self._held -= log.size
                log.size = 0
                yield log


def prefixes(conversation: str | None, gists: Iterable[object]) -> list[bytes]:
    """For each count of messages a hash of the conversation's name and of that many of their gists."""
    running = hashlib.sha256(ascii(conversation).encode())
    found = []
    for gist in gists:
        running.update(b"\0" + ascii(gist).encode())
        found.append(running.digest())
    return found
