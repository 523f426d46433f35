"""A file of traces, however it is packed: its parts one after the other, as one stream of items."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from quality.ingest.formats import Format
from quality.ingest.items import Parsed
from quality.ingest.packed import Packed, Part, RefusedPart, TooMuch
from quality.ingest.reader import ItemError, Reader, Unreadable
from quality.ingest.traces import AUTO, Beginning, Traces

UNPACKED_TIMES = 4  # what may come out of a file, by what may come in


class TraceFile:
    """Iterate for `Parsed` items and refusals; raises Unreadable. Items are counted over all members of an archive; a
    member that cannot be read on is a refusal, and the next one follows. `format` is that of the newest items."""

    def __init__(
        self, file: IO[bytes], *, max_bytes: int, format_name: str = AUTO, beginning: Beginning | None = None
    ) -> None:
        self._max_unpacked = max_bytes * UNPACKED_TIMES
        self._packed = Packed(file, max_unpacked=self._max_unpacked)
        self._max_bytes = max_bytes
        self._format_name = format_name
        self._beginning = beginning
        self._index = 0
        self._starts: list[int] = []
        self._names: list[str] = []
        self.format: Format | None = None
        self.telling: dict[str, tuple[str, ...]] = {}

    @property
    def bytes_read(self) -> int:
        """Of the file as it is packed."""
        return self._packed.bytes_read

    def named(self, issue: ItemError) -> ItemError:
        """The same, with the name of its member said, where the file is an archive."""
        at = bisect_right(self._starts, issue.index) - 1
        return replace(issue, message=f"{self._names[at]}: {issue.message}") if at >= 0 else issue

    def __iter__(self) -> Iterator[Parsed | ItemError]:
        for part in self._packed:
            if self._beginning and self._beginning.is_over:
                return
            if part.name:
                self._starts.append(self._index)
                self._names.append(part.name)
            if isinstance(part, RefusedPart):
                yield self._refusal(part.code, part.message, line=1)
            else:
                yield from self._read(part)

    def _read(self, part: Part) -> Iterator[Parsed | ItemError]:
        limit = self._max_unpacked if self._packed.is_packed else self._max_bytes
        read = self._beginning.reading(part.read) if self._beginning else part.read
        reader = Reader(read, max_total_bytes=limit, first_index=self._index)
        traces = Traces(reader, format_name=self._format_name, beginning=self._beginning)
        traces.telling = self.telling
        try:
            for item in traces:
                self.format = traces.format or self.format
                yield item
        except TooMuch:
            raise
        except Unreadable as error:
            if not part.name:
                raise
            self._index = reader.next_index
            if self._beginning and self._beginning.is_over:
                return
            yield self._refusal(error.code, error.message, line=reader.line)
        else:
            self._index = reader.next_index

    def _refusal(self, code: str, message: str, *, line: int) -> ItemError:
        self._index += 1
        return ItemError(self._index - 1, line, code, "", message)
