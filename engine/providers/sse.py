"""Server-sent events out of a byte stream: the WHATWG rules, and what servers do instead of them.

Bytes may be split anywhere: inside a character, inside CRLF, inside the byte order mark. Comments and the fields
`event`, `id` and `retry` carry nothing that a chat model's stream needs and are dropped. A last event without the blank
line that should end it still counts: the standard drops it, but several servers end their streams so.
"""

import re

LINE_END = re.compile(rb"\r\n|\r|\n")
BOM = b"\xef\xbb\xbf"


class SSEParser:
    """`feed(bytes)` gives the data of each event that became complete; `finish()` what was left at the end."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of a line without its end yet: joined once, so that input stays linear
        self._data: list[bytes] = []
        self._started = False
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        if not self._started:
            chunk = b"".join(self._line) + chunk
            self._line = []
            if len(chunk) < len(BOM) and BOM.startswith(chunk):
                self._line = [chunk]
                return []
            self._started = True
            chunk = chunk.removeprefix(BOM)
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the other half of a CRLF
            self._after_cr = False
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        *ended, rest = LINE_END.split(chunk)
        events = []
        for line in ended:
            if self._line:
                line = b"".join([*self._line, line])  # noqa: PLW2901 - the line is the pieces so far and this one
                self._line = []
            if (event := self._take(line)) is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
        return events

    def finish(self) -> list[str]:
        """Data of an event that the stream left open."""
        last = [self._take(b"".join(self._line)), self._take(b"")]
        self._line = []
        return [event for event in last if event is not None]

    def _take(self, line: bytes) -> str | None:
        if not line:
            data, self._data = self._data, []
            return b"\n".join(data).decode("utf-8", "replace") if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None
