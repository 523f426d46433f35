"""A stream of traces, from bytes to turns: reader, JSON check, format, one item at a time."""

from collections.abc import Callable, Container, Iterator
from typing import Protocol

from quality.ingest.formats import FORMATS, Format, are_read_alike, recognise
from quality.ingest.items import Checked, Parsed, check
from quality.ingest.reader import Item, ItemError, Unreadable
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


class Source(Protocol):
    """Where items come from: a `Reader`, or several of them one after the other."""

    @property
    def line(self) -> int: ...

    def __iter__(self) -> Iterator[Item | ItemError]: ...


class Traces:
    """Iterate for `Parsed` items and refusals; raises Unreadable. `format` is known once the first item was taken. A
    file may hold several: where its items are those of another format, that one reads on. `telling` has for each the
    keys of its first item by which it was recognised. `starts` are the indexes of items that a file of an archive
    begins with: one of them that no format knows is not taken for one more of the format at hand."""

    def __init__(
        self,
        source: Source,
        *,
        format_name: str = AUTO,
        beginning: Beginning | None = None,
        starts: Container[int] = (),
    ) -> None:
        self._source = source
        self._beginning = beginning
        self._starts = starts
        self.format: Format | None = None if format_name == AUTO else FORMATS[format_name]
        self.telling: dict[str, tuple[str, ...]] = {}

    @property
    def line(self) -> int:
        return self._source.line

    def __iter__(self) -> Iterator[Parsed | ItemError]:
        items = check(self._beginning.of(iter(self._source)) if self._beginning else self._source)
        if self.format is not None:
            yield from self.format.read(items)
            return
        before: list[ItemError] = []  # the refusal before an item: its format may have to know of it
        for item in items:
            if isinstance(item, ItemError):
                yield from before
                before = [item]
                continue
            other: list[Checked] = [item]
            while other and (found := recognise(other[0].root)):
                self.format = found
                self._tell(found, other[0])
                yield from found.read(self._same(found, before, other, items))
                before = []
            yield from before
            before = []
            if other:
                yield _unknown(other[0])
        yield from before

    def _tell(self, found: Format, item: Checked) -> None:
        if found.NAME not in self.telling:
            self.telling[found.NAME] = telling_keys(found.NAME, item.root.value)

    def _same(
        self, current: Format, before: list[ItemError], other: list[Checked], items: Iterator[Checked | ItemError]
    ) -> Iterator[Checked | ItemError]:
        """The item in `other` and those after it, up to one of another format, which is in `other` then."""
        yield from before
        yield other.pop()
        for item in items:
            if isinstance(item, Checked) and not current.recognise(item.root):
                found = recognise(item.root)
                if found and not are_read_alike(current, found):
                    other.append(item)
                    return
                if found:
                    self._tell(found, item)
                elif item.index in self._starts:
                    yield _unknown(item)
                    continue
            yield item


def _unknown(item: Checked) -> ItemError:
    labels = ", ".join(format.LABEL for format in FORMATS.values())
    return item.refuse(RecordError("unknown_format", "", f"No known format. These can be read: {labels}."))
