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
    items: Iterable[Checked | ItemError], read: Callable[[Node], Iterable[Found]], *, complete: bool = False
) -> Iterator[Parsed | ItemError]:
    """Items into traces. `read` makes spans of one item, or raises RecordError. `complete`: an item holds all of its
    traces, so they come out with it, unless it is a piece of a document."""
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
            whole = complete and not item.piece
            yield from traces.let_out(keep_bytes=0 if whole else MAX_HELD_BYTES, sure=whole)
    except Unreadable:
        traces.begin_item()
        traces.doubt()
        yield from traces.let_out(keep_bytes=0, at_end=True)
        raise
    yield from traces.let_out(keep_bytes=0, at_end=True)


@dataclass(slots=True)
class _Held:
    """The spans of one trace so far; place of the first and the last item that had some."""

    item: Checked
    first: int
    last: int
    spans: list[Span] = field(default_factory=list)
    size: int = 0
    misses: bool = False
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
            misses = span.trace in self._missed or self._doubt == self._ordinal - 1
            late = span.trace in self._let_out
            held = self._held[span.trace] = _Held(item, self._ordinal, self._ordinal, misses=misses, late=late)
        else:
            held.misses = held.misses or held.last < self._doubt < self._ordinal
            held.last = self._ordinal
            self._held.move_to_end(span.trace)
        held.spans.append(span)
        held.size += span.size + _SPAN_BYTES
        self._size += span.size + _SPAN_BYTES

    def let_out(self, *, keep_bytes: int, at_end: bool = False, sure: bool = False) -> Iterator[Parsed | ItemError]:
        """Let traces out, those silent longest first, until no more is held."""
        cut = at_end and self._doubt == self._ordinal
        while self._held and self._size > keep_bytes:
            trace, held = self._held.popitem(last=False)
            self._size -= held.size
            misses = held.misses or held.late or cut or self._doubt == held.last + 1
            if not (sure or at_end):
                self._let_out[trace] = None
                while len(self._let_out) > _MAX_LET_OUT:
                    self._let_out.popitem(last=False)
            yield from _records(trace, held, whole=sure or not misses)


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
