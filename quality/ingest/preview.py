"""A look at the beginning of a file: what it is taken for and why, what was understood, what was odd or refused.

Nothing is stored. However large the file, no more than `MAX_BYTES` of it (unpacked) is read, once; where no call was
found, a little of it once more as each other format.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

from quality.ingest import wording
from quality.ingest.files import TraceFile
from quality.ingest.formats import FORMATS, SPAN_FORMATS
from quality.ingest.gathering import MORE_PAGES
from quality.ingest.items import Parsed
from quality.ingest.noted import meaning
from quality.ingest.reader import ItemError, Unreadable
from quality.ingest.records import CallRecord, TurnRecord
from quality.ingest.store import BatchReport
from quality.ingest.traces import AUTO, Beginning, Traces
from quality.privacy.incoming import masked_turn
from tenants.masking import reading
from tenants.masking.reading import Reading

MAX_ITEMS = 500
MAX_ITEM_BYTES = 2 * 1024 * 1024  # of the items together; one alone may be larger
MAX_BYTES = 6 * 1024 * 1024  # read in search of them: one item of the largest size, and a little more
MAX_TRIED_ITEMS = 50  # as each other format
MAX_TRIED_BYTES = 512 * 1024
SHOWN_ROWS = 30
SHOWN_REFUSALS = 50
_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class Row:
    """A call, or a turn without one (`tool` is empty)."""

    turn: int
    asked: str
    tool: str = ""
    args: str | None = None
    result: str | None = None
    is_error: bool | None = None
    started_at: str | None = None


@dataclass(frozen=True, slots=True)
class Recognised:
    """A format that the items are read as; `keys` are those that told, none where a person chose it."""

    name: str
    label: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """A format that finds calls in the first records, where the one at hand finds none."""

    name: str
    label: str
    num_calls: int
    num_turns: int


@dataclass(frozen=True, slots=True)
class Warned:
    code: str
    count: int
    meaning: str


@dataclass(slots=True)
class Preview:
    """Counts are of the items that were read; `is_whole` says that these are all. `num_known` counts those that are
    stored already, and would change nothing."""

    formats: list[Recognised] = field(default_factory=list)
    is_whole: bool = True
    num_items: int = 0
    num_turns: int = 0
    num_calls: int = 0
    num_results: int = 0
    num_errors: int = 0
    num_timed: int = 0
    num_offered: int = 0
    num_conversations: int = 0
    num_known: int = 0
    tools: list[tuple[str, int]] = field(default_factory=list)
    warnings: list[Warned] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    num_refused: int = 0
    refusals: list[ItemError] = field(default_factory=list)
    failure: str = ""
    alternatives: list[Alternative] = field(default_factory=list)

    @property
    def is_without_calls(self) -> bool:
        return not self.num_calls and bool(self.num_items)


type Foresee = Callable[[Sequence[Parsed]], BatchReport]


def look_at(
    file: IO[bytes], *, max_bytes: int, format_name: str = AUTO, foresee: Foresee = lambda batch: BatchReport()
) -> Preview:
    """Read the beginning of a file. `foresee` tells what the store would make of it."""
    part = beginning()
    traces = TraceFile(file, max_bytes=max_bytes, format_name=format_name, beginning=part)
    seen = summary(traces, part, foresee)
    if seen.is_without_calls and file.seekable():
        seen.alternatives = _alternatives(file, {found.name for found in seen.formats}, max_bytes)
    return seen


def _alternatives(file: IO[bytes], tried: set[str], max_bytes: int) -> list[Alternative]:
    """Formats that find calls where those that were tried find none; first the one that finds most."""
    found = []
    for name in FORMATS.keys() - tried:
        file.seek(0)
        part = Beginning(items=MAX_TRIED_ITEMS, size=MAX_TRIED_BYTES, reads=MAX_BYTES)
        seen = summary(TraceFile(file, max_bytes=max_bytes, format_name=name, beginning=part), part)
        if seen.num_calls:
            found.append(Alternative(name, FORMATS[name].LABEL, seen.num_calls, seen.num_turns))
    return sorted(found, key=lambda one: (-one.num_calls, list(FORMATS).index(one.name)))


def beginning() -> Beginning:
    """As much as a look takes."""
    return Beginning(items=MAX_ITEMS, size=MAX_ITEM_BYTES, reads=MAX_BYTES)


def summary(
    traces: TraceFile | Traces, beginning: Beginning, foresee: Foresee = lambda batch: BatchReport()
) -> Preview:
    """What was understood of a file that is read no further than its beginning; as whoever reads may see it."""
    seen, turns, reader = Preview(), dict[tuple[str, str], int](), reading.current()
    tools, warnings, conversations = Counter[str](), Counter[str](), set[str]()
    good, bad = list[Parsed](), list[ItemError]()
    try:
        for item in traces:
            if isinstance(item, ItemError):
                bad.append(item)
                continue
            good.append(item)
            for turn in item.turns:
                place = turns.setdefault((turn.source, turn.external_id), len(turns) + 1)
                _count(seen, turn)
                tools.update(call.tool_name for call in turn.calls)
                warnings.update(turn.warnings)
                warnings.update(warning for call in turn.calls for warning in call.warnings)
                conversations.update([turn.conversation] if turn.conversation else [])
                if len(seen.rows) < SHOWN_ROWS:
                    seen.rows.extend(_rows(place, masked_turn(turn, reader.masker) if reader else turn))
    except Unreadable as error:
        seen.failure = "" if beginning.is_over else error.message
    seen.is_whole = not beginning.is_over
    if seen.is_whole or not _are_spans(traces):
        report = foresee(good)
        seen.num_known = report.unchanged
        bad += report.rejected
    _refuse(seen, traces, bad)
    seen.num_items, seen.num_turns = beginning.num_items, len(turns)
    seen.num_conversations = len(conversations)
    seen.tools = tools.most_common()
    seen.warnings = [Warned(code, count, meaning(code)) for code, count in warnings.most_common()]
    seen.rows = seen.rows[:SHOWN_ROWS]
    seen.formats = _formats(traces)
    if reader:
        _mask(seen, reader)
    return seen


def _mask(seen: Preview, reader: Reading) -> None:
    """What says of the file what is odd or refused quotes it."""
    seen.failure = reader.sentence(seen.failure)
    seen.warnings = [
        replace(one, code=reader.prose(one.code), meaning=reader.prose(one.meaning)) for one in seen.warnings
    ]
    seen.refusals = [
        replace(one, path=reader.prose(one.path), message=reader.sentence(one.message)) for one in seen.refusals
    ]


def _formats(traces: TraceFile | Traces) -> list[Recognised]:
    if not traces.telling and traces.format:
        return [Recognised(traces.format.NAME, traces.format.LABEL)]
    return [Recognised(name, FORMATS[name].LABEL, keys) for name, keys in traces.telling.items()]


def _are_spans(traces: TraceFile | Traces) -> bool:
    """Of a trace that is read in part nobody knows what the store will say of the whole."""
    return any(found.name in SPAN_FORMATS for found in _formats(traces))


def _refuse(seen: Preview, traces: TraceFile | Traces, refusals: Sequence[ItemError]) -> None:
    told = [one for one in refusals if seen.is_whole or one.code != MORE_PAGES]
    seen.num_refused = len(told)
    shown = sorted(told, key=lambda one: one.index)[:SHOWN_REFUSALS]
    seen.refusals = [traces.named(one) if isinstance(traces, TraceFile) else one for one in shown]


def _count(seen: Preview, turn: TurnRecord) -> None:
    seen.num_calls += len(turn.calls)
    seen.num_results += sum(call.has_outcome for call in turn.calls)
    seen.num_errors += sum(call.is_error is True for call in turn.calls)
    seen.num_timed += sum(bool(call.started_at or turn.started_at) for call in turn.calls)
    seen.num_offered += sum(call.tools is not None for call in turn.calls)


def _rows(place: int, turn: TurnRecord) -> Iterable[Row]:
    asked = wording.asked(turn.messages)[:_SHOWN_CHARS]
    if not turn.calls:
        return [Row(place, asked, started_at=turn.started_at)]
    return [_row(place, asked, turn, call) for call in turn.calls]


def _row(place: int, asked: str, turn: TurnRecord, call: CallRecord) -> Row:
    result = call.result if call.result is not None else call.error
    return Row(place, asked, call.tool_name, call.args, result, call.is_error, call.started_at or turn.started_at)
