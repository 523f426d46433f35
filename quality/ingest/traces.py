"""A file or body of traces, from bytes to turns: reader, JSON check, format, one item at a time."""

from collections.abc import Iterator

from quality.ingest.formats import FORMATS, Format, recognise
from quality.ingest.items import Checked, Parsed, check
from quality.ingest.reader import ItemError, Reader
from quality.ingest.records import RecordError

AUTO = "auto"


class Traces:
    """Iterate for `Parsed` items and refusals; raises Unreadable. `format` is known once the first item was taken. A
    file may hold several: where its items are those of another format, that one reads on."""

    def __init__(self, reader: Reader, *, format_name: str = AUTO) -> None:
        self._reader = reader
        self.format: Format | None = None if format_name == AUTO else FORMATS[format_name]

    @property
    def bytes_read(self) -> int:
        return self._reader.bytes_read

    @property
    def line(self) -> int:
        return self._reader.line

    def __iter__(self) -> Iterator[Parsed | ItemError]:
        items = check(self._reader)
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
