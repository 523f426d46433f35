"""From the spans of one trace to its turn and calls: pure, for files and for spans that arrive in pieces.

A format reads what it carries into `Span`s: those of tools, of models, and others, which tell what their children
inherit. `records_of_trace` joins them. A tool's span is the call that a model asked for if the ids are the same; of
those without id, if name and arguments are, then if the name is; else it belongs to the model span above it, or the
last one that started before it. Cycle is the ordinal of the model span by start, index the place the model gave the
call; calls that no model is known to have asked for, and retries, come after these in order of start.

`whole=False` is for a trace of which a part may be missing. Then only what no further span can change is told: each
call for itself, with the model's message where ids match, without its turn and its cycle. The whole trace completes
these calls later.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from quality.ingest.messages import Call, Thread, answer_text
from quality.ingest.otlp_values import utc_from_nanoseconds
from quality.ingest.payloads import Args, Result
from quality.ingest.records import (
    MAX_PLACE,
    CallRecord,
    RecordError,
    TurnRecord,
    anonymous_turn_id,
    fingerprint,
)

_MAX_DURATION_MS = 2_147_483_647
_MILLISECOND = 1_000_000  # nanoseconds
_FOREVER = 1 << 64


@dataclass(frozen=True, slots=True)
class Tool:
    """What the span of a tool tells. `is_error` is the format's flag, None if it has none."""

    name: str
    call_id: str | None
    args: Args
    result: Result | None
    is_error: bool | None
    error: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """What the span of a model tells: the calls it asked for, and the answers to earlier ones (by call id) that it was
    given. `tells_unexecuted`: a call it asked for and no tool span ran is a record of its own."""

    message: str
    model: str | None = None
    provider: str | None = None
    calls: tuple[Call, ...] = ()
    answers: tuple[tuple[str, Result], ...] = ()
    thread: Thread | None = None
    tools: str | None = None
    tells_unexecuted: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are Unix nanoseconds; `session` stands for the conversation where the trace names none; `size` is
    that of its text, for bounds."""

    source: str
    trace: str
    id: str
    parent: str | None = None
    started: int | None = None
    ended: int | None = None
    conversation: str | None = None
    session: str | None = None
    contact: str | None = None
    prompt_version: str | None = None
    tool: Tool | None = None
    model: Model | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the spans of a trace say so far: its turn, None if there is none to tell. `earlier` has, by the id of a
    call that a tool's span tells, the id that the same call had while only the model's reply told it."""

    turn: TurnRecord | None
    earlier: dict[str, str]


def records_of_trace(spans: Iterable[Span], *, whole: bool = True) -> list[TurnRecord]:
    """The turn of one trace with its calls; of a part, each call alone. Nothing if no tool or model is in it. Any order
    and repetition of the spans gives the same. Raises RecordError."""
    if whole:
        turn = read_trace(spans).turn
        return [turn] if turn else []
    trace = _Trace(_unique(spans))
    trace.join()
    return [_alone(_record(trace, place, whole=False)) for place in trace.places]


def read_trace(spans: Iterable[Span]) -> Reading:
    """The same of a trace that more spans may come to. Raises RecordError."""
    trace = _Trace(_unique(spans))
    if not trace.tools and not trace.models:
        return Reading(None, {})
    trace.join()
    calls = [_record(trace, place, whole=True) for place in trace.places]
    calls += _unexecuted(trace)
    turn = _turn(trace, calls)
    earlier = {
        _call_id(place.span): _asked_id(trace.models[place.asked.cycle][0], place.asked)
        for place in trace.places
        if place.asked is not None
    }
    return Reading(turn if calls or turn.messages is not None else None, earlier)


def turn_id(source: str, trace: str) -> str:
    """Identity of a trace's turn."""
    return fingerprint("turn", source, trace)


def fuller(one: Span, other: Span) -> Span:
    """Of two that were sent as the same span, that which ended later, or else says more."""
    return other if _fullness(other) > _fullness(one) else one


def _unique(spans: Iterable[Span]) -> list[Span]:
    """One span an id, by start."""
    kept: dict[str, Span] = {}
    for span in spans:
        kept[span.id] = fuller(kept[span.id], span) if span.id in kept else span
    return sorted(kept.values(), key=lambda span: (span.started or 0, span.id))


def _fullness(span: Span) -> tuple[int, int, str]:
    return span.ended or 0, span.size, repr(span)


# --- joining ----------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Asked:
    """A call in a model's reply, until a tool span is found for it."""

    cycle: int
    call: Call
    nth: int = 0  # among those of the reply with its id, from 0
    num_same: int = 1
    used: bool = False


@dataclass(slots=True)
class _Place:
    """Where a tool span belongs. `asked` is the call it ran; `by_id`: the two have the same id."""

    span: Span
    tool: Tool
    cycle: int | None = None
    index: int | None = None
    asked: _Asked | None = None
    by_id: bool = False


class _Pool:
    """Calls that wait for their tool span, by some key: the latest added reply first, within a reply the first."""

    def __init__(self) -> None:
        self._stacks: dict[Hashable, list[deque[_Asked]]] = defaultdict(list)

    def add(self, key: Hashable, asked: _Asked) -> None:
        stack = self._stacks[key]
        if not stack or stack[-1][0].cycle != asked.cycle:
            stack.append(deque())
        stack[-1].append(asked)

    def take(self, key: Hashable) -> _Asked | None:
        stack = self._stacks.get(key)
        while stack:
            while stack[-1]:
                asked = stack[-1].popleft() if len(stack[-1]) > 1 else stack.pop()[0]
                if not asked.used:
                    asked.used = True
                    return asked
                if not stack:
                    return None
        return None


class _Trace:
    """The spans of one trace, by start, and what was found out about them."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans
        self.models = [(span, span.model) for span in spans if span.model is not None]
        self.tools = [(span, span.tool) for span in spans if span.tool is not None]
        if len(self.models) > MAX_PLACE:
            raise RecordError("out_of_range", "spans", f"More than {MAX_PLACE:,} model spans in one trace.")
        self.by_id = {span.id: span for span in spans}
        self.asked = [_asked(cycle, model.calls) for cycle, (_, model) in enumerate(self.models)]
        self.places = [_Place(span, tool) for span, tool in self.tools]
        self._starts = [span.started or 0 for span, _ in self.models]
        self._answers: dict[str, list[tuple[int, list[Result]]]] = defaultdict(list)
        self._inherited: dict[str, dict[str, Any]] = {}

    def join(self) -> None:
        self._match_ids()
        self._match(lambda name, args: None if args.text is None else (name, _canonical(args.text)))
        self._match(lambda name, args: name)
        self._place_rest()
        for cycle, (_, model) in enumerate(self.models):
            for call_id, result in model.answers:
                known = self._answers[call_id]
                if not known or known[-1][0] != cycle:
                    known.append((cycle, []))
                known[-1][1].append(result)

    def _match_ids(self) -> None:
        self._sweep(
            [place for place in self.places if place.tool.call_id],
            lambda asked: [asked.call.call_id] if asked.call.call_id else [],
            lambda place: place.tool.call_id,
            by_id=True,
        )
        asking = {place.tool.call_id: place.cycle for place in self.places if place.by_id}
        for place in self.places:  # the same call run once more
            if not place.by_id and place.tool.call_id in asking:
                place.cycle = asking[place.tool.call_id]

    def _match(self, key: Callable[[str, Args], Hashable | None]) -> None:
        """By what a call says, where at least one side has no id."""

        def of_asked(asked: _Asked) -> list[Hashable]:
            found = key(asked.call.tool_name, asked.call.args)
            sides = (False,) if asked.call.call_id else (False, True)
            return [] if found is None else [(side, found) for side in sides]

        def of_place(place: _Place) -> Hashable | None:
            found = key(place.tool.name, place.tool.args)
            return None if found is None else (place.tool.call_id is not None, found)

        self._sweep([place for place in self.places if place.cycle is None], of_asked, of_place)

    def _sweep(
        self,
        places: list[_Place],
        of_asked: Callable[[_Asked], Iterable[Hashable]],
        of_place: Callable[[_Place], Hashable | None],
        *,
        by_id: bool = False,
    ) -> None:
        """First among the replies that began before the tool, the newest first; then, for clocks differ, the others."""
        pool, cycle = _Pool(), 0
        for place in places:
            until = bisect_right(self._starts, _start(place.span))
            for asked in (each for reply in self.asked[cycle:until] for each in reply if not each.used):
                for key in of_asked(asked):
                    pool.add(key, asked)
            cycle = max(cycle, until)
            self._settle(place, pool.take(of_place(place)), by_id=by_id)
        pool = _Pool()
        for asked in (each for reply in reversed(self.asked) for each in reply if not each.used):
            for key in of_asked(asked):
                pool.add(key, asked)
        for place in places:
            if place.asked is None:
                self._settle(place, pool.take(of_place(place)), by_id=by_id)

    def _settle(self, place: _Place, asked: _Asked | None, *, by_id: bool) -> None:
        if asked is not None:
            place.asked, place.cycle, place.index, place.by_id = asked, asked.cycle, asked.call.index, by_id

    def _place_rest(self) -> None:
        above = _inherit(self.spans, self.by_id, self._cycle_of_model())
        following = {cycle: self._following(cycle) for cycle in range(len(self.models))}
        for place in self.places:
            if place.cycle is None:
                before = bisect_right(self._starts, _start(place.span)) - 1
                place.cycle = above.get(place.span.id, before if before >= 0 else None)
            if place.index is None:
                cycle = place.cycle or 0
                place.index = following.get(cycle, 0)
                following[cycle] = place.index + 1
                if place.index > MAX_PLACE:
                    raise RecordError("out_of_range", "spans", f"More than {MAX_PLACE:,} calls of one reply.")

    def _following(self, cycle: int) -> int:
        """The first place after those that calls of this reply take."""
        every = self.models[cycle][1].tells_unexecuted
        return max((asked.call.index for asked in self.asked[cycle] if asked.used or every), default=-1) + 1

    def _cycle_of_model(self) -> Callable[[Span], int | None]:
        cycles = {span.id: cycle for cycle, (span, _) in enumerate(self.models)}
        return lambda span: cycles.get(span.id)

    def answer(self, asked: _Asked) -> Result | None:
        """What a model was told next that this call gave. Of calls with one id in a reply each has its own."""
        told = self._answers.get(asked.call.call_id or "", [])
        at = bisect_right(told, asked.cycle, key=lambda entry: entry[0])
        if at == len(told):
            return None
        results = told[at][1]
        return results[min(max(len(results) - asked.num_same, 0) + asked.nth, len(results) - 1)]

    def conversation(self, span: Span) -> str | None:
        named = self.inherited(span, "conversation", anywhere=True)
        return named or self.inherited(span, "session", anywhere=True)

    def inherited(self, span: Span, name: str, *, anywhere: bool) -> Any:
        """A fact of a span, else of the nearest span above, else (if it may be `anywhere`) of the first that has it."""
        known = self._inherited.get(name)
        if known is None:
            known = self._inherited[name] = _inherit(self.spans, self.by_id, lambda each: getattr(each, name))
        return known.get(span.id, self.first(name) if anywhere else None)

    def first(self, name: str) -> Any:
        """What the first span says that tells this fact; what a model span says of itself holds for no other."""
        key = f"first {name}"
        if key not in self._inherited:
            tells = (getattr(span, name) for span in self.spans if name != "prompt_version" or span.model is None)
            self._inherited[key] = {"": next((value for value in tells if value is not None), None)}
        return self._inherited[key][""]


def _asked(cycle: int, calls: tuple[Call, ...]) -> list[_Asked]:
    counts = Counter(call.call_id for call in calls)
    seen = Counter[str | None]()
    asked = []
    for call in calls:
        asked.append(_Asked(cycle, call, nth=seen[call.call_id], num_same=counts[call.call_id]))
        seen[call.call_id] += 1
    return asked


def _start(span: Span) -> int:
    return _FOREVER if span.started is None else span.started


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


def _inherit(spans: list[Span], by_id: dict[str, Span], tells: Callable[[Span], Any]) -> dict[str, Any]:
    """For each span what it tells, or the nearest span above it; absent if none does. Parents may be missing, or run in
    circles."""
    found: dict[str, Any] = {}
    for span in spans:
        path: dict[str, None] = {}
        at: Span | None = span
        value = None
        while at is not None and at.id not in path:
            if at.id in found:
                value = found[at.id]
                break
            path[at.id] = None
            value = tells(at)
            if value is not None:
                break
            at = by_id.get(at.parent) if at.parent else None
        found.update(dict.fromkeys(path, value))
    return {key: value for key, value in found.items() if value is not None}


# --- records ----------------------------------------------------------------------------------------------------------
def _record(trace: _Trace, place: _Place, *, whole: bool) -> CallRecord:
    span, tool, asked = place.span, place.tool, place.asked
    certain = whole or place.by_id
    model = trace.models[place.cycle][1] if certain and place.cycle is not None else None
    call_id = tool.call_id or (asked.call.call_id if asked and certain else None)
    args = _fuller_args(tool.args, asked.call.args) if asked and certain else tool.args
    duration, odd = _duration(span)
    outcome, told = _outcome(_settled(span, tool), trace.answer(asked) if asked and certain else None)
    warnings = {*tool.warnings, *args.warnings, *odd, *told}
    if call_id is None:
        warnings.add("no_call_id")
    return CallRecord(
        external_id=_call_id(span),
        tool_name=tool.name,
        cycle=(place.cycle or 0) if whole else 0,
        index=(place.index or 0) if certain else 0,
        tool_call_id=call_id,
        args=args.text,
        conversation=trace.conversation(span) or (span.trace if whole else None),
        contact=trace.inherited(span, "contact", anywhere=True),
        message=model.message if model else None,
        started_at=utc_from_nanoseconds(span.started),
        duration_ms=duration,
        model=model.model if model else None,
        provider=model.provider if model else None,
        source=span.source,
        prompt_version=_prompt_version(trace, span, place.cycle if certain else None, whole=whole),
        tools=model.tools if model else None,
        warnings=tuple(sorted(warnings)),
        **outcome,
    )


def _fuller_args(ran: Args, asked: Args) -> Args:
    """Those that the tool's span tells; the model's where it tells none, or the bare text of an only argument."""
    is_bare = {"args_not_json", "args_not_object"} & {*ran.warnings} and asked.text is not None and not asked.warnings
    return asked if ran.text is None or is_bare else ran


def _call_id(span: Span) -> str:
    """Identity of the call that a tool's span tells."""
    return f"{span.trace}:{span.id}"


def _asked_id(span: Span, asked: _Asked) -> str:
    """Identity of a call that only a model's span tells."""
    return fingerprint(span.source, span.trace, span.id, asked.call.index)


def _prompt_version(trace: _Trace, span: Span, cycle: int | None, *, whole: bool) -> str | None:
    """That of the model span, else that of the tool's and what is above it."""
    asking = trace.models[cycle][0].prompt_version if cycle is not None else None
    return asking or trace.inherited(span, "prompt_version", anywhere=whole)


def _settled(span: Span, tool: Tool) -> Tool:
    """While a tool runs, that it has no error yet is no verdict."""
    return replace(tool, is_error=None) if not span.ended and tool.is_error is False else tool


def _outcome(tool: Tool, answer: Result | None) -> tuple[dict[str, Any], set[str]]:
    """Result and verdict, with warnings. A result that only a later request of the model tells is taken from there."""
    result = tool.result if tool.result is not None or tool.is_error else answer
    is_error, error = tool.is_error, tool.error
    if result is not None and (is_error is None or (is_error and error is None)):
        is_error, error = is_error or result.is_error, result.error
    warnings = set[str]()
    if result is None and not is_error:
        warnings.add("no_result")
    if result is not None and not is_error:
        warnings.update(result.warnings)
    return {"result": result.text if result else None, "is_error": is_error, "error": error}, warnings


def _duration(span: Span) -> tuple[int | None, set[str]]:
    if not span.ended or span.started is None:
        return None, {"unfinished"}
    duration = round((span.ended - span.started) / _MILLISECOND)
    if span.ended < span.started or duration > _MAX_DURATION_MS:
        return None, {"clock_skew"}
    return duration, set()


def _unexecuted(trace: _Trace) -> Iterable[CallRecord]:
    """Calls that models asked for and no span ran: all of them if the trace tells no tool's span at all."""
    for cycle, (span, model) in enumerate(trace.models):
        if trace.tools and not model.tells_unexecuted:
            continue
        for asked in trace.asked[cycle]:
            if asked.used:
                continue
            call = asked.call
            ran = Tool(call.tool_name, call.call_id, call.args, None, None)
            outcome, warnings = _outcome(ran, trace.answer(asked))
            warnings.update(call.args.warnings)
            if call.call_id is None:
                warnings.add("no_call_id")
            yield CallRecord(
                external_id=_asked_id(span, asked),
                tool_name=call.tool_name,
                cycle=cycle,
                index=call.index,
                tool_call_id=call.call_id,
                args=call.args.text,
                conversation=trace.conversation(span) or span.trace,
                contact=trace.inherited(span, "contact", anywhere=True),
                message=model.message,
                model=model.model,
                provider=model.provider,
                source=span.source,
                prompt_version=_prompt_version(trace, span, cycle, whole=True),
                tools=model.tools,
                warnings=tuple(sorted(warnings)),
                **outcome,
            )


def _alone(call: CallRecord) -> TurnRecord:
    """A call whose turn is not known yet."""
    return TurnRecord(
        external_id=anonymous_turn_id(call.source, call.external_id),
        source=call.source,
        calls=(call,),
        conversation=call.conversation,
        contact=call.contact,
        started_at=call.started_at,
        num_cycles=1,
    )


_SILENT = '{"role":"assistant","content":null}'


def _messages(trace: _Trace, calls: list[CallRecord]) -> tuple[str | None, Thread | None]:
    """The turn's messages, and the thread that tells more of them. Each model span is one reply: the last request holds
    them all; where it does not, they are put together from each span's own."""
    threads = [model.thread for _, model in trace.models]
    told = [thread for thread in threads if thread and (thread.given or thread.reply)]
    if not told:
        return None, None
    answers = _answers(trace, calls)
    last = threads[-1]
    if last and last.reply and last.num_replies == len(threads):
        texts, best = [*last.given, last.reply], last
    else:
        best = next((thread for thread in told if thread.opening), told[0])
        texts = list(best.opening)
        for cycle, thread in enumerate(threads):
            texts.append((thread.reply if thread else None) or _SILENT)
            texts += answers[cycle] if cycle < len(threads) - 1 else []
    texts += answers[len(threads) - 1]
    return f"[{','.join(texts)}]", best


def _answers(trace: _Trace, calls: list[CallRecord]) -> dict[int, list[str]]:
    """What the tools answered to the calls of each reply, as messages."""
    asked = [{call.call_id for call in model.calls} for _, model in trace.models]
    found: dict[int, list[str]] = defaultdict(list)
    for call in sorted(calls, key=_by_place):
        if call.tool_call_id and call.result is not None and call.tool_call_id in asked[call.cycle]:
            found[call.cycle].append(answer_text(call.tool_call_id, call.result))
    return found


def _by_place(call: CallRecord) -> tuple[int, int]:
    return call.cycle, call.index


def _turn(trace: _Trace, calls: list[CallRecord]) -> TurnRecord:
    first = trace.spans[0]
    source = min(span.source for span, _ in (*trace.tools, *trace.models))
    span, last = trace.models[-1] if trace.models else (first, None)
    messages, thread = _messages(trace, calls)
    started = [span.started for span in trace.spans if span.started is not None]
    ended = [span.ended for span in trace.spans if span.ended]
    took = _duration(replace(first, started=min(started, default=None), ended=max(ended, default=None)))[0]
    return TurnRecord(
        external_id=turn_id(source, first.trace),
        source=source,
        calls=tuple(sorted(calls, key=_by_place)),
        conversation=trace.first("conversation") or trace.first("session") or first.trace,
        contact=trace.first("contact"),
        outbound_message=last.message if last and not last.calls else None,
        started_at=utc_from_nanoseconds(min(started, default=None)),
        duration_ms=took if len(ended) == len(trace.spans) else None,
        model=last.model if last else None,
        provider=last.provider if last else None,
        prompt_version=span.prompt_version or trace.inherited(span, "prompt_version", anywhere=True),
        messages=messages,
        system=thread.system if thread else None,
        position=thread.position if thread else 0,
        num_cycles=max(len(trace.models), 1),
        tools=next((model.tools for _, model in reversed(trace.models) if model.tools), None),
    )
