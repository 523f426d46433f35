"""What belongs together among the spans of one trace: pure, in any order of the spans.

A tool's span is the call that a model asked for if the ids are the same; of those without id, if name and arguments
are, then if the name is; else it belongs to the model span above it, or the last one that started before it. Cycle is
the ordinal of the model span by start, index the place the model gave the call; calls that no model is known to have
asked for, and retries, come after these in order of start.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from quality.ingest.messages import Call
from quality.ingest.payloads import Args, Result
from quality.ingest.records import MAX_PLACE, RecordError
from quality.ingest.spans import Span, Tool, fuller

_FOREVER = 1 << 64


def unique(spans: Iterable[Span]) -> list[Span]:
    """One span an id, by start."""
    kept: dict[str, Span] = {}
    for span in spans:
        kept[span.id] = fuller(kept[span.id], span) if span.id in kept else span
    return sorted(kept.values(), key=lambda span: (span.started or 0, span.id))


@dataclass(slots=True)
class Asked:
    """A call in a model's reply, until a tool span is found for it."""

    cycle: int
    call: Call
    nth: int = 0  # among those of the reply with its id, from 0
    num_same: int = 1
    used: bool = False


@dataclass(slots=True)
class Place:
    """Where a tool span belongs. `asked` is the call it ran; `by_id`: the two have the same id."""

    span: Span
    tool: Tool
    cycle: int | None = None
    index: int | None = None
    asked: Asked | None = None
    by_id: bool = False


class _Pool:
    """Calls that wait for their tool span, by some key: the latest added reply first, within a reply the first."""

    def __init__(self) -> None:
        self._stacks: dict[Hashable, list[deque[Asked]]] = defaultdict(list)

    def add(self, key: Hashable, asked: Asked) -> None:
        stack = self._stacks[key]
        if not stack or stack[-1][0].cycle != asked.cycle:
            stack.append(deque())
        stack[-1].append(asked)

    def take(self, key: Hashable) -> Asked | None:
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


class JoinedTrace:
    """The spans of one trace, by start, and what was found out about them."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans
        self.models = [(span, span.model) for span in spans if span.model is not None]
        self.tools = [(span, span.tool) for span in spans if span.tool is not None]
        if len(self.models) > MAX_PLACE:
            raise RecordError("out_of_range", "spans", f"More than {MAX_PLACE:,} model spans in one trace.")
        self.by_id = {span.id: span for span in spans}
        self.asked = [_asked(cycle, model.calls) for cycle, (_, model) in enumerate(self.models)]
        self.places = [Place(span, tool) for span, tool in self.tools]
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

        def of_asked(asked: Asked) -> list[Hashable]:
            found = key(asked.call.tool_name, asked.call.args)
            sides = (False,) if asked.call.call_id else (False, True)
            return [] if found is None else [(side, found) for side in sides]

        def of_place(place: Place) -> Hashable | None:
            found = key(place.tool.name, place.tool.args)
            return None if found is None else (place.tool.call_id is not None, found)

        self._sweep([place for place in self.places if place.cycle is None], of_asked, of_place)

    def _sweep(
        self,
        places: list[Place],
        of_asked: Callable[[Asked], Iterable[Hashable]],
        of_place: Callable[[Place], Hashable | None],
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

    def _settle(self, place: Place, asked: Asked | None, *, by_id: bool) -> None:
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

    def answer(self, asked: Asked) -> Result | None:
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


def _asked(cycle: int, calls: tuple[Call, ...]) -> list[Asked]:
    counts = Counter(call.call_id for call in calls)
    seen = Counter[str | None]()
    asked = []
    for call in calls:
        asked.append(Asked(cycle, call, nth=seen[call.call_id], num_same=counts[call.call_id]))
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
