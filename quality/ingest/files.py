"""A file of traces, however it is packed: its parts one after the other, as one stream of items.

What a format holds open, spans of a trace or requests of a chat, goes on from one file of an archive to the next: pages
of an export are read as one.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import IO

import msgspec

from quality.ingest.formats import Format
from quality.ingest.items import Parsed
from quality.ingest.packed import Packed, Part, RefusedPart, TooMuch
from quality.ingest.reader import Item, ItemError, Reader, Unreadable
from quality.ingest.traces import AUTO, Beginning, Traces

UNPACKED_TIMES = 4  # what may come out of a file, by what may come in
_NAMES_OF_TRACES = frozenset({".json", ".jsonl", ".ndjson", ".gz"})


class TraceFile:
    """Iterate for `Parsed` items and refusals; raises Unreadable. Items are counted over all members of an archive; a
    member that cannot be read on is a refusal, and the next one follows. `format` is that of the newest items."""

    def __init__(
        self, file: IO[bytes], *, max_bytes: int, format_name: str = AUTO, beginning: Beginning | None = None
    ) -> None:
        self._parts = _Parts(file, max_bytes=max_bytes, beginning=beginning)
        self._traces = Traces(self._parts, format_name=format_name, beginning=beginning, starts=self._parts.starts)

    @property
    def bytes_read(self) -> int:
        """Of the file as it is packed."""
        return self._parts.bytes_read

    @property
    def format(self) -> Format | None:
        return self._traces.format

    @property
    def telling(self) -> dict[str, tuple[str, ...]]:
        return self._traces.telling

    def named(self, issue: ItemError) -> ItemError:
        """The same, with the name of its member said, where the file is an archive."""
        name = self._parts.name_at(issue.index)
        return replace(issue, message=f"{name}: {issue.message}") if name else issue

    def __iter__(self) -> Iterator[Parsed | ItemError]:
        return iter(self._traces)


class _Parts:
    """The items of all parts. `starts` has the indexes that members of an archive begin with."""

    def __init__(self, file: IO[bytes], *, max_bytes: int, beginning: Beginning | None) -> None:
        self._max_unpacked = max_bytes * UNPACKED_TIMES
        self._packed = Packed(file, max_unpacked=self._max_unpacked)
        self._max_bytes = max_bytes
        self._beginning = beginning
        self._index = 0
        self._reader: Reader | None = None
        self._starts: list[int] = []
        self._names: list[str] = []
        self.starts: set[int] = set()

    @property
    def bytes_read(self) -> int:
        return self._packed.bytes_read

    @property
    def line(self) -> int:
        return self._reader.line if self._reader else 1

    def name_at(self, index: int) -> str:
        """The member that an item is of; empty where the file is no archive."""
        at = bisect_right(self._starts, index) - 1
        return self._names[at] if at >= 0 else ""

    def __iter__(self) -> Iterator[Item | ItemError]:
        for part in self._packed:
            if self._beginning and self._beginning.is_over:
                return
            if not part.name:
                yield from self._read(part)
                continue
            self.starts.add(self._index)
            self._starts.append(self._index)
            self._names.append(part.name)
            number = len(self._names)
            for item in self._read(part):
                if isinstance(item, ItemError):
                    yield replace(item, part=number)
                else:
                    yield msgspec.structs.replace(item, part=number)

    def _read(self, part: Part | RefusedPart) -> Iterator[Item | ItemError]:
        if isinstance(part, RefusedPart):
            yield self._refusal(part.code, part.message, line=1)
            return
        limit = self._max_unpacked if self._packed.is_packed else self._max_bytes
        read = self._beginning.reading(part.read) if self._beginning else part.read
        self._reader = reader = Reader(read, max_total_bytes=limit, first_index=self._index)
        try:
            yield from reader
        except TooMuch:
            raise
        except Unreadable as error:
            is_other = reader.next_index == self._index and not _is_named_like_traces(part.name)
            self._index = reader.next_index
            if not part.name:
                raise
            if self._beginning and self._beginning.is_over:
                return
            yield self._refusal("other_file" if is_other else error.code, error.message, line=reader.line)
        else:
            self._index = reader.next_index

    def _refusal(self, code: str, message: str, *, line: int) -> ItemError:
        self._index += 1
        return ItemError(self._index - 1, line, code, "", message)


def _is_named_like_traces(name: str) -> bool:
    """Files of other names in an archive, a README say, hold no part of any trace if they are no JSON."""
    return PurePosixPath(name).suffix.lower() in _NAMES_OF_TRACES
