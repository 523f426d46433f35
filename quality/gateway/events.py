"""A stream of server-sent events as the bytes of each, so that what is not changed goes on byte by byte."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.providers.completion import read_event
from engine.providers.protocol import ModelError
from engine.providers.sse import SSEParser

MAX_EVENT = 1 << 20  # bytes; longer ones are no chunks of a completion
DONE = "[DONE]"

_END = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `objects` are the JSON objects in its data; `is_broken`: there is data, and it is no JSON."""

    raw: bytes
    objects: tuple[dict[str, Any], ...] = ()
    is_done: bool = False
    is_broken: bool = False

    @property
    def is_comment(self) -> bool:
        return not (self.objects or self.is_done or self.is_broken)


class TooLong(Exception):
    """An event that does not end."""


class Events:
    """Takes bytes as they come and gives the events that are whole by now."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Raises TooLong; then `rest` is all that was not given out."""
        self._rest += chunk
        while found := _END.search(self._rest, max(self._looked - 3, 0)):
            raw = bytes(self._rest[: found.end()])
            del self._rest[: found.end()]
            self._looked = 0
            yield read(raw)
        self._looked = len(self._rest)
        if self._looked > MAX_EVENT:
            raise TooLong

    def finish(self) -> Iterator[Event]:
        """The last event, if the stream ended without its blank line."""
        if rest := self.rest():
            yield read(rest)

    def rest(self) -> bytes:
        rest = bytes(self._rest)
        self._rest.clear()
        self._looked = 0
        return rest


def read(raw: bytes) -> Event:
    parser = SSEParser()
    datas = [*parser.feed(raw), *parser.finish()]
    objects: list[dict[str, Any]] = []
    is_done = is_broken = False
    for data in datas:
        if data.strip() == DONE:
            is_done = True
            continue
        try:
            objects += read_event(data)
        except ModelError:
            is_broken = True
    return Event(raw, tuple(objects), is_done, is_broken)
