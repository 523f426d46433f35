"""From the spans of one trace to its turn and calls: pure, for files and for spans that arrive in pieces.

`whole=False` is for a trace of which a part may be missing. Then only what no further span can change is told: each
call for itself, with the model's message where ids match, without its turn and its cycle. The whole trace completes
these calls later.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from quality.ingest.messages import Thread, answer_text
from quality.ingest.otlp_values import utc_from_nanoseconds
from quality.ingest.payloads import Args, Result
from quality.ingest.records import CallRecord, TurnRecord, anonymous_turn_id, fingerprint
from quality.ingest.span_joining import Asked, JoinedTrace, Place, unique
from quality.ingest.spans import Span, Tool

_MAX_DURATION_MS = 2_147_483_647
_MILLISECOND = 1_000_000  # nanoseconds


@dataclass(frozen=True, slots=True)
class Reading:
    """What the spans of a trace say so far: its turn, None if there is none to tell. `earlier` has, by the id of a
    call that a tool's span tells, the id that the same call had while only the model's reply told it. `replies` are the
    messages of its replies, by cycle."""

    turn: TurnRecord | None
    earlier: dict[str, str]
    replies: tuple[str, ...] = ()


def records_of_trace(spans: Iterable[Span], *, whole: bool = True) -> list[TurnRecord]:
    """The turn of one trace with its calls; of a part, each call alone. Nothing if no tool or model is in it. Any order
    and repetition of the spans gives the same. Raises RecordError."""
    if whole:
        turn = read_trace(spans).turn
        return [turn] if turn else []
    trace = JoinedTrace(unique(spans))
    trace.join()
    return [_alone(_record(trace, place, whole=False)) for place in trace.places]


def read_trace(spans: Iterable[Span]) -> Reading:
    """The same of a trace that more spans may come to. Raises RecordError."""
    trace = JoinedTrace(unique(spans))
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
    replies = tuple(model.message for _, model in trace.models)
    return Reading(turn if calls or turn.messages is not None else None, earlier, replies)


def turn_id(source: str, trace: str) -> str:
    """Identity of a trace's turn."""
    return fingerprint("turn", source, trace)


def _record(trace: JoinedTrace, place: Place, *, whole: bool) -> CallRecord:
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


def _asked_id(span: Span, asked: Asked) -> str:
    """Identity of a call that only a model's span tells."""
    return fingerprint(span.source, span.trace, span.id, asked.call.index)


def _prompt_version(trace: JoinedTrace, span: Span, cycle: int | None, *, whole: bool) -> str | None:
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


def _unexecuted(trace: JoinedTrace) -> Iterable[CallRecord]:
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


def _messages(trace: JoinedTrace, calls: list[CallRecord]) -> tuple[str | None, Thread | None]:
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


def _answers(trace: JoinedTrace, calls: list[CallRecord]) -> dict[int, list[str]]:
    """What the tools answered to the calls of each reply, as messages."""
    asked = [{call.call_id for call in model.calls} for _, model in trace.models]
    found: dict[int, list[str]] = defaultdict(list)
    for call in sorted(calls, key=_by_place):
        if call.tool_call_id and call.result is not None and call.tool_call_id in asked[call.cycle]:
            found[call.cycle].append(answer_text(call.tool_call_id, call.result))
    return found


def _by_place(call: CallRecord) -> tuple[int, int]:
    return call.cycle, call.index


def _turn(trace: JoinedTrace, calls: list[CallRecord]) -> TurnRecord:
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
