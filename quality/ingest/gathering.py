"""Spans out of a stream of items, gathered to traces, within a bound.

A trace comes out at the end of the stream, or when more than `MAX_HELD_BYTES` of spans are held: then the one that was
silent longest. If it goes on after that, this is named as a refusal (`trace_spread`), and its later calls are stored
each for itself. So are the calls of a trace of which a refused item may have held a part: the item before or after its
own, or among them, or the last of the file. In an archive that is the same file, unless its files are seen to share
traces: then any may. So, too, if pages of a listing say that more follow, and none is the last.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError, Unreadable
from quality.ingest.records import RecordError
from quality.ingest.span_records import records_of_trace
from quality.ingest.spans import Span

MAX_HELD_BYTES = 16 * 1024 * 1024
_MAX_LET_OUT = 100_000  # traces that are remembered after they came out, some 200 bytes each
_SPAN_BYTES = 512  # what a span takes beside its text
NO_SPANS = frozenset({"unknown_format", "other_file"})  # refusals of what held nothing of any trace
MORE_PAGES = "more_pages"


class BadSpan(RecordError):
    """One span that was refused; `trace` is its trace, if it tells one."""

    def __init__(self, error: RecordError, trace: str | None = None) -> None:
        super().__init__(error.code, error.path, error.message)
        self.trace = trace


type Found = Span | BadSpan


def gather(
    items: Iterable[Checked | ItemError],
    read: Callable[[Node], Iterable[Found]],
    *,
    complete: Callable[[Node], bool] | None = None,
    is_last: Callable[[Node], bool | None] = lambda root: None,
) -> Iterator[Parsed | ItemError]:
    """Items into traces. `read` makes spans of one item, or raises RecordError. `complete` tells of an item
    that it holds all of its traces: they come out with it, unless it is a piece of a document. `is_last` tells of a
    page whether it is the last of its listing; None: it is no page."""
    traces, pages = _Traces(), _Pages()
    try:
        for item in items:
            traces.begin_item(item.part)
            if isinstance(item, ItemError):
                if item.code not in NO_SPANS:
                    traces.doubt()
                yield item
                continue
            pages.add(item, is_last(item.root))
            try:
                for found in read(item.root):
                    if isinstance(found, BadSpan):
                        traces.miss(found.trace)
                        yield item.refuse(found)
                    else:
                        traces.add(item, found)
            except RecordError as error:
                traces.doubt()
                yield item.refuse(error)
            else:
                if complete is not None and not item.piece and complete(item.root):
                    yield from traces.close_item()
            yield from traces.make_room()
    except Unreadable:
        traces.begin_item()
        traces.doubt()
        yield from traces.close()
        raise
    if (missing := pages.missing()) is not None:
        traces.miss_pages()
        yield missing
    yield from traces.close()


class _Pages:
    """The pages of listings that went by."""

    def __init__(self) -> None:
        self._newest: Checked | None = None
        self._has_last = False

    def add(self, item: Checked, is_last: bool | None) -> None:
        if is_last is not None:
            self._newest = item
            self._has_last |= is_last

    def missing(self) -> ItemError | None:
        """What to say if there were pages, and none of them was the last."""
        if self._newest is None or self._has_last:
            return None
        told = (
            "Its pages say that more follow, and the last one is not here. Calls are stored without their turn until "
            "all pages come in one: a zip of them, or one file after the other in one."
        )
        return self._newest.refuse(RecordError(MORE_PAGES, "", told))


@dataclass(slots=True)
class _Held:
    """The spans of one trace so far; the item that it began with, and the ordinal and part of the last one that had
    some."""

    item: Checked
    last: int
    part: int
    spans: list[Span] = field(default_factory=list)
    size: int = 0
    misses: bool = False  # a span of it was refused
    follows: bool = False  # the item before its first was refused; `is_apart`: that was of another file
    is_apart: bool = False
    doubtful: bool = False
    late: bool = False


class _Traces:
    def __init__(self) -> None:
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._size = 0
        self._let_out: OrderedDict[str, None] = OrderedDict()
        self._missed: set[str] = set()
        self._ordinal = -1
        self._part = 0
        self._doubt = -2  # the last item that was refused
        self._doubt_part = 0
        self._are_shared = False  # traces by the parts of an archive

    def begin_item(self, part: int | None = None) -> None:
        self._ordinal += 1
        self._part = self._part if part is None else part
        self._missed.clear()

    def doubt(self) -> None:
        """The item at hand was refused."""
        self._doubt, self._doubt_part = self._ordinal, self._part

    def miss_pages(self) -> None:
        """Nobody knows which of the traces go on in what is not here."""
        self.begin_item()
        self.doubt()
        self._are_shared = True

    def _is_in_doubt(self, ordinal: int, part: int) -> bool:
        """Was the item of this ordinal refused, and may it have held something of a trace in this part?"""
        return self._doubt == ordinal and (self._are_shared or self._doubt_part == part)

    def miss(self, trace: str | None) -> None:
        """A span was refused."""
        if trace is None:
            return
        if trace in self._held:
            self._held[trace].misses = True
        self._missed.add(trace)

    def add(self, item: Checked, span: Span) -> None:
        held = self._held.get(span.trace)
        if held is None:
            held = self._held[span.trace] = _Held(item, self._ordinal, self._part)
            held.misses = span.trace in self._missed
            held.late = span.trace in self._let_out
            held.doubtful = held.late
            held.follows = self._doubt == self._ordinal - 1
            held.is_apart = self._doubt_part != self._part
        else:
            held.doubtful = held.doubtful or held.last < self._doubt < self._ordinal
            self._are_shared |= held.part != self._part
            held.last, held.part = self._ordinal, self._part
            self._held.move_to_end(span.trace)
        held.spans.append(span)
        held.size += span.size + _SPAN_BYTES
        self._size += span.size + _SPAN_BYTES

    def close_item(self) -> Iterator[Parsed | ItemError]:
        """Let the traces of the item at hand out: nothing of them is elsewhere."""
        ended = [trace for trace, held in self._held.items() if held.last == self._ordinal]
        for trace in ended:
            held = self._take(trace)
            held.late = False
            yield from _records(trace, held, whole=not held.misses)

    def make_room(self) -> Iterator[Parsed | ItemError]:
        """Let traces out, those silent longest first, until few enough bytes are held."""
        while self._size > MAX_HELD_BYTES:
            trace = next(iter(self._held))
            self._let_out[trace] = None
            if len(self._let_out) > _MAX_LET_OUT:
                self._let_out.popitem(last=False)
            yield from self._doubted(trace)

    def close(self) -> Iterator[Parsed | ItemError]:
        """Let all out at the end of the stream. If that was refused, nobody knows what it would have told."""
        for trace, held in list(self._held.items()):
            held.doubtful |= self._is_in_doubt(self._ordinal, held.part)
            yield from self._doubted(trace)

    def _doubted(self, trace: str) -> Iterator[Parsed | ItemError]:
        held = self._take(trace)
        follows = held.follows and (self._are_shared or not held.is_apart)
        doubtful = held.misses or held.doubtful or follows or self._is_in_doubt(held.last + 1, held.part)
        yield from _records(trace, held, whole=not doubtful)

    def _take(self, trace: str) -> _Held:
        held = self._held.pop(trace)
        self._size -= held.size
        return held


def _records(trace: str, held: _Held, *, whole: bool) -> Iterator[Parsed | ItemError]:
    item = held.item
    if held.late:
        limit = MAX_HELD_BYTES // (1024 * 1024)
        yield item.refuse(
            RecordError(
                "trace_spread",
                "",
                f"The trace {trace} goes on here, more than {limit} MiB of other spans after it began. Its calls from "
                "here on are stored each for itself. Send the spans of one trace together.",
            )
        )
    try:
        turns = records_of_trace(held.spans, whole=whole)
    except RecordError as error:
        yield item.refuse(RecordError(error.code, error.path, f"The trace {trace}: {error.message}"))
        return
    if whole:
        yield from [Parsed(item.index, item.line, held.size, tuple(turns))] if turns else []
    else:
        yield from (Parsed(item.index, item.line, held.size // len(turns), (turn,)) for turn in turns)
