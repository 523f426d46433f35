"""What the calls of a replay are answered with. Nothing here opens a connection: results come from the recording.

Looked up in this order: a recorded call with equal arguments (one that was not used yet first); a recorded call that
fits the same step of the expectation, so that an argument nobody cares for causes no miss; stubs that people wrote into
the case; and then the miss policy.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from quality.cases.canonical import call_hash
from quality.cases.conversation import RecordedCall
from quality.cases.expectation import CallShape
from quality.cases.fitting import Fitting, Sitting
from quality.cases.matchers import Scope
from quality.cases.record import Case
from quality.cases.sample import Call, Sample, Served
from quality.cases.schema import ExpectationError, parse
from quality.cases.toolset import Toolset, name_of
from quality.cases.values import plain

NOT_AVAILABLE: Final = '{"error": "not available in replay"}'


class OnMiss(StrEnum):
    """What follows a call that no recorded result answers."""

    STOP = "stop"  # the sample ends here
    FIFO = "fifo"  # the next recorded result of the same tool
    ERROR = "error"  # the tool says that it is not available
    FIXED = "fixed"  # one given result
    LIVE = "live"  # the real tool, if it is on the list of those that may be called


class Source(StrEnum):
    """Where a result came from."""

    EXACT = "exact"
    MATCHED = "matched"
    STUB = "stub"
    DRIFTED = "drifted"  # of a call with other arguments
    ERROR = "error"
    FIXED = "fixed"
    LIVE = "live"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Result:
    """`shown` is what the model reads; None: the call gets no answer."""

    source: Source
    served: Served | None = None
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class _Stub:
    shape: CallShape
    served: Served
    shown: str


class Shelf:
    """The recorded results of one case, for one sample: each is taken off once before any is given twice."""

    def __init__(
        self,
        case: Case,
        context: Sequence[RecordedCall] = (),
        *,
        toolset: Toolset,
        on_miss: OnMiss = OnMiss.STOP,
        miss_result: str = "",
    ) -> None:
        self._case, self._toolset = case, toolset
        self._on_miss, self._miss_result = on_miss, miss_result
        self._recorded = [*_recorded(case), *context]
        self._hashes = [self._hash(each.tool, each.arguments) for each in self._recorded]
        self._used: set[int] = set()
        self._stubs = list(_written(case))
        self._fitting = Fitting(toolset, Scope(null_is_absent=case.expectation.null_is_absent))
        self.counts: Counter[Source] = Counter()

    def answer(self, call: Call) -> Result:
        found = self._exact(call) or self._matched(call) or self._written(call) or self._miss(call)
        self.counts[found.source] += 1
        return found

    def _hash(self, tool: str, arguments: Any) -> str:
        return call_hash(tool, arguments, self._toolset.parameters(tool))

    def _exact(self, call: Call) -> Result | None:
        wanted = self._hash(call.name, call.arguments)
        return self._take(Source.EXACT, [place for place, each in enumerate(self._hashes) if each == wanted])

    def _matched(self, call: Call) -> Result | None:
        steps = (self._case.expectation.calls.steps if self._case.expectation.calls else None) or ()
        if not steps or not self._recorded:
            return None
        calls = (call, *(Call(each.tool, each.arguments) for each in self._recorded))
        sitting = Sitting(Sample((calls,)), self._fitting, most=len(calls))
        for step in steps:
            if sitting.fit(step, 0).match.ok:
                same = [place for place in self._of_tool(call.name) if sitting.fit(step, place + 1).match.ok]
                if same:
                    return self._take(Source.MATCHED, same)
        return None

    def _written(self, call: Call) -> Result | None:
        sitting = Sitting(Sample(((call,),)), self._fitting, most=1)
        for stub in self._stubs:
            if sitting.forbidden(stub.shape, 0).ok:
                return Result(Source.STUB, stub.served, stub.shown)
        return None

    def _miss(self, call: Call) -> Result:
        match self._on_miss:
            case OnMiss.FIFO:
                unused = [place for place in self._of_tool(call.name) if place not in self._used]
                return self._take(Source.DRIFTED, unused) or Result(Source.MISSED)
            case OnMiss.ERROR:
                return Result(Source.ERROR, Served(NOT_AVAILABLE, is_error=True), NOT_AVAILABLE)
            case OnMiss.FIXED:
                return Result(Source.FIXED, Served(self._miss_result), self._miss_result)
        return Result(Source.MISSED)

    def _of_tool(self, tool: str) -> list[int]:
        return [place for place, each in enumerate(self._recorded) if name_of(each.tool) == name_of(tool)]

    def _take(self, source: Source, places: Sequence[int]) -> Result | None:
        if not places:
            return None
        place = next((place for place in places if place not in self._used), places[-1])
        self._used.add(place)
        return Result(source, self._recorded[place].served, self._recorded[place].shown)


def _recorded(case: Case) -> list[RecordedCall]:
    """The recorded calls that the case carries, and the labelled call itself where it is not among them."""
    found = [
        RecordedCall(str(stub["tool"]), _arguments(stub["arguments"]), *_result(stub))
        for stub in case.stubs
        if "arguments" in stub
    ]
    call, observed = case.call, case.observed
    known = {call_hash(each.tool, each.arguments) for each in found}
    if call is not None and call_hash(call.name, call.arguments) not in known:
        if observed.get("result") is not None:
            found.append(RecordedCall(call.name, call.arguments, *_result(observed)))
        elif isinstance(error := observed.get("error"), str) and error:
            text = json.dumps(error, ensure_ascii=False)
            found.append(RecordedCall(call.name, call.arguments, Served(text, is_error=True), error))
    return found


def _arguments(value: Any) -> str | Mapping[str, Any] | None:
    return value if value is None or isinstance(value, str | Mapping) else json.dumps(plain(value))


def _result(record: Mapping[str, Any]) -> tuple[Served, str]:
    """As the judge looks into it, and as the model reads it: text is shown without quotation marks."""
    value = plain(record.get("result"))
    text = json.dumps(value, ensure_ascii=False)
    return Served(text, is_error=record.get("isError") is True), value if isinstance(value, str) else text


def _written(case: Case) -> list[_Stub]:
    found = []
    for stub in case.stubs:
        if "arguments" not in stub:
            shape = {"tool": stub["tool"], **({"args": stub["args"]} if stub.get("args") else {})}
            try:
                (read,) = parse({"version": 1, "forbid": [shape]}).forbid
            except ExpectationError:
                continue  # a matcher of another version: it answers no call
            found.append(_Stub(read, *_result(stub)))
    return found
