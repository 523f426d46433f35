"""An item on its way: cut out of a file, checked as JSON, read as turns, or refused."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from quality.ingest.jsontext import JsonError, Node, parse
from quality.ingest.reader import Item, ItemError
from quality.ingest.records import RecordError, TurnRecord


class Checked(msgspec.Struct, frozen=True, gc=False):
    """An item that is good JSON; `piece` and `part` as in `reader.Item`."""

    index: int
    line: int
    size: int
    root: Node
    piece: bool = False
    part: int = 0

    def refuse(self, error: RecordError) -> ItemError:
        return ItemError(self.index, self.line, error.code, error.path, error.message, self.part)


class Parsed(msgspec.Struct, frozen=True, gc=False):
    """An item as turns: stored as a whole or not at all. `size` is that of its text in bytes."""

    index: int
    line: int
    size: int
    turns: tuple[TurnRecord, ...]


def check(items: Iterable[Item | ItemError]) -> Iterator[Checked | ItemError]:
    """Parse each item; what was refused before passes through."""
    for item in items:
        if isinstance(item, ItemError):
            yield item
            continue
        try:
            root = parse(item.raw)
        except JsonError as error:
            where = f"{error.message} (line {item.line + error.line - 1}, column {error.column}, byte {error.offset})"
            yield ItemError(item.index, item.line + error.line - 1, error.code, error.path, where, item.part)
        else:
            yield Checked(item.index, item.line, len(item.raw), root, item.piece, item.part)


def each(
    items: Iterable[Checked | ItemError], read: Callable[[Node], Iterable[TurnRecord]]
) -> Iterator[Parsed | ItemError]:
    """For formats whose items stand alone: `read` makes the turns of one, or raises RecordError."""
    for item in items:
        if isinstance(item, ItemError):
            yield item
            continue
        try:
            yield Parsed(item.index, item.line, item.size, tuple(read(item.root)))
        except RecordError as error:
            yield item.refuse(error)
