"""A stream of traces, from bytes to turns: reader, JSON check, format, one item at a time."""

from collections.abc import Callable, Iterator

from quality.ingest.formats import FORMATS, Format, recognise
from quality.ingest.items import Checked, Parsed, check
from quality.ingest.reader import Item, ItemError, Reader, Unreadable
from quality.ingest.recognition import telling_keys
from quality.ingest.records import RecordError

AUTO = "auto"


class Beginning:
    """How much of a file is taken for a look at it; shared by all its parts. `is_over` if there is more of it."""

    def __init__(self, *, items: int, size: int, reads: int) -> None:
        self.num_items = 0
        self.is_over = False
        self._max_items = items
        self._size = size
        self._reads = reads

    def of(self, items: Iterator[Item | ItemError]) -> Iterator[Item | ItemError]:
        """The first items."""
        for item in items:
            if self.num_items >= self._max_items or self._size <= 0:
                self.is_over = True
                return
            self.num_items += 1
            self._size -= len(item.raw) if isinstance(item, Item) else 0
            yield item

    def reading(self, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """A read that gives no more than is taken, whatever the reader looks for; raises Unreadable then."""

        def read_some(size: int) -> bytes:
            if self._reads <= 0:
                self.is_over = True
                raise Unreadable("too_large", "Only the beginning was read.")
            piece = read(size)
            self._reads -= len(piece)
            return piece

        return read_some


class Traces:
    """Iterate for `Parsed` items and refusals; raises Unreadable. `format` is known once the first item was taken. A
    file may hold several: where its items are those of another format, that one reads on. `telling` has for each the
    keys of its first item by which it was recognised."""

    def __init__(self, reader: Reader, *, format_name: str = AUTO, beginning: Beginning | None = None) -> None:
        self._reader = reader
        self._beginning = beginning
        self.format: Format | None = None if format_name == AUTO else FORMATS[format_name]
        self.telling: dict[str, tuple[str, ...]] = {}

    @property
    def bytes_read(self) -> int:
        return self._reader.bytes_read

    @property
    def line(self) -> int:
        return self._reader.line

    def __iter__(self) -> Iterator[Parsed | ItemError]:
        items = check(self._beginning.of(iter(self._reader)) if self._beginning else self._reader)
        if self.format is not None:
            yield from self.format.read(items)
            return
        for item in items:
            if isinstance(item, ItemError):
                yield item
                continue
            other: list[Checked] = [item]
            while other and (found := recognise(other[0].root)):
                self.format = found
                if found.NAME not in self.telling:
                    self.telling[found.NAME] = telling_keys(found.NAME, other[0].root.value)
                yield from found.read(self._same(found, other, items))
            if other:
                labels = ", ".join(format.LABEL for format in FORMATS.values())
                yield item.refuse(RecordError("unknown_format", "", f"No known format. These can be read: {labels}."))

    @staticmethod
    def _same(
        current: Format, other: list[Checked], items: Iterator[Checked | ItemError]
    ) -> Iterator[Checked | ItemError]:
        """The item in `other` and those after it, up to one of another format, which is in `other` then."""
        yield other.pop()
        for item in items:
            if isinstance(item, Checked) and not current.recognise(item.root) and recognise(item.root):
                other.append(item)
                return
            yield item
