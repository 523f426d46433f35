"""Spans out of a stream of items, gathered to traces, within a bound.

A trace comes out at the end of the stream, or when more than `MAX_HELD_BYTES` of spans are held: then the one that was
silent longest. If it goes on after that, this is named as a refusal (`trace_spread`), and its later calls are stored
each for itself. So are the calls of a trace of which a refused item may have held a part: the item before or after its
own, or among them, or the last of the file.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError, Unreadable
from quality.ingest.records import RecordError
from quality.ingest.spans import Span, records_of_trace

MAX_HELD_BYTES = 16 * 1024 * 1024
_MAX_LET_OUT = 100_000  # traces that are remembered after they came out, some 200 bytes each
_SPAN_BYTES = 512  # what a span takes beside its text


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
) -> Iterator[Parsed | ItemError]:
    """Items into traces. `read` makes spans of one item, or raises RecordError. `complete` tells of an item
    that it holds all of its traces: they come out with it, unless it is a piece of a document."""
    traces = _Traces()
    try:
        for item in items:
            traces.begin_item()
            if isinstance(item, ItemError):
                traces.doubt()
                yield item
                continue
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
    yield from traces.close()


@dataclass(slots=True)
class _Held:
    """The spans of one trace so far; the item that it began with, and the ordinal of the last one that had some."""

    item: Checked
    last: int
    spans: list[Span] = field(default_factory=list)
    size: int = 0
    misses: bool = False  # a span of it was refused
    doubtful: bool = False
    late: bool = False


class _Traces:
    def __init__(self) -> None:
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._size = 0
        self._let_out: OrderedDict[str, None] = OrderedDict()
        self._missed: set[str] = set()
        self._ordinal = -1
        self._doubt = -2  # the last item that was refused

    def begin_item(self) -> None:
        self._ordinal += 1
        self._missed.clear()

    def doubt(self) -> None:
        """The item at hand was refused."""
        self._doubt = self._ordinal

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
            held = self._held[span.trace] = _Held(item, self._ordinal)
            held.misses = span.trace in self._missed
            held.late = span.trace in self._let_out
            held.doubtful = held.late or self._doubt == self._ordinal - 1
        else:
            held.doubtful = held.doubtful or held.last < self._doubt < self._ordinal
            held.last = self._ordinal
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
        cut = self._doubt == self._ordinal
        for trace in list(self._held):
            self._held[trace].doubtful |= cut
            yield from self._doubted(trace)

    def _doubted(self, trace: str) -> Iterator[Parsed | ItemError]:
        held = self._take(trace)
        doubtful = held.misses or held.doubtful or self._doubt == held.last + 1
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
