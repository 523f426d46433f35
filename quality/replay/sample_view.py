"""One sample as people read it: what was expected and sent, what the model called, where each result came from.

Pure: records and attempts in, plain values out. Everything quotes what models and tools wrote: pages show it inert.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from quality.cases.attempt import Attempt, BadAttempt, read_attempts
from quality.cases.conversation import NotReplayable, opening_of
from quality.cases.expectation import CallShape, Expectation
from quality.cases.explain import describe, describe_check, explain, place_of, quote
from quality.cases.record import Case, read_cases
from quality.cases.report import difference
from quality.cases.sample import Call, Reason
from quality.cases.stubs import Source
from quality.cases.values import plain
from quality.improve.expectation_form import MODES
from quality.review.arguments import ArgumentTable, argument_table
from quality.review.conversation import Conversation, read_conversation
from quality.review.jsonview import Node, decode, tree
from quality.review.offered import offered_tools

type Words = str | Promise

VERDICTS: Final[dict[str, tuple[str, Words]]] = {
    "pass": ("✓", gettext_lazy("passed")),
    "fail": ("✗", gettext_lazy("failed")),
    "invalid_call": ("!", gettext_lazy("invalid call")),
    "diverged": ("≠", gettext_lazy("left the recording")),
    "error": ("?", gettext_lazy("error")),
}
"""A verdict as a sign, for rows of many, and as a word."""

SOURCES: Final[dict[str, Words]] = {
    Source.EXACT: gettext_lazy("recorded for this call"),
    Source.MATCHED: gettext_lazy("recorded for a call that fits the same step"),
    Source.STUB: gettext_lazy("written into the case"),
    Source.DRIFTED: gettext_lazy("recorded for another call of this tool"),
    Source.ERROR: gettext_lazy("not available in a replay"),
    Source.FIXED: gettext_lazy("the given result"),
    Source.LIVE: gettext_lazy("of the real tool"),
    Source.MISSED: gettext_lazy("missed: no recorded result answers this call"),
}
SOURCE_NAMES: Final[dict[str, Words]] = {
    Source.EXACT: pgettext_lazy("where a result came from", "exact"),
    Source.MATCHED: pgettext_lazy("where a result came from", "matched"),
    Source.STUB: pgettext_lazy("where a result came from", "stub"),
    Source.DRIFTED: pgettext_lazy("where a result came from", "drifted"),
    Source.ERROR: pgettext_lazy("where a result came from", "error"),
    Source.FIXED: pgettext_lazy("where a result came from", "fixed"),
    Source.LIVE: pgettext_lazy("where a result came from", "live"),
    Source.MISSED: pgettext_lazy("where a result came from", "missed"),
}
"""The same in a word."""

ENDINGS: Final[dict[str, Words]] = {
    "answered": gettext_lazy("ended with an answer"),
    "stopped": gettext_lazy("cut by a limit of the replay"),
    "diverged": gettext_lazy("ended where the recording does"),
    "error": gettext_lazy("ended in an error that is not the model's"),
    "running": gettext_lazy("ended as soon as its verdict was known"),
}
RETRIES: Final[dict[str, Words]] = {
    "same_tool": gettext_lazy("After an error the same tool is called again."),
    "stop": gettext_lazy("After an error no more call is made."),
    "ask": gettext_lazy("After an error the user is asked."),
}
MAX_REASONS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """One way to be right (or, if forbidden, wrong): `args` are (place, what it has to be) in words."""

    tool: str
    args: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStep:
    """`ways`: any of these. `notes` say when, how often, and what belongs together."""

    number: int
    ways: tuple[ExpectedCall, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """An expectation in words. `need` is the sentence that says how many samples have to pass."""

    behavior: str
    mode: str
    steps: tuple[ExpectedStep, ...]
    forbidden: tuple[ExpectedCall, ...]
    rules: tuple[str, ...]
    need: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One call as the model made it. `number` counts all calls of the sample from 1; `source` is empty where nobody
    needed its result."""

    number: int
    name: str
    table: ArgumentTable
    raw: str
    fault: str
    source: str
    source_words: str
    result: Node | None
    is_error: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An argument that is not as expected: `tool` and place, what was expected there, and what came."""

    tool: str
    place: str
    expected: str
    got: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleView:
    """A sample; `cycles` are the model's replies with their calls. `fault` says why nothing more can be shown."""

    verdict: str
    reasons: tuple[str, ...] = ()
    num_more: int = 0
    differences: tuple[Difference, ...] = ()
    cycles: tuple[tuple[CallView, ...], ...] = ()
    reply: str | None = None
    ending: str = ""
    error: str = ""
    notes: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    cached: int = 0
    fault: str = ""

    @property
    def verdict_word(self) -> str:
        return str(VERDICTS.get(self.verdict, ("?", self.verdict))[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a side was asked: the conversation, and why it could not be, if so."""

    conversation: Conversation
    notes: tuple[str, ...] = ()
    fault: str = ""


def case_of(data: str) -> Case | None:
    """The case in a stored version; None where today's judge cannot read it."""
    found = read_cases([data.encode()])
    return found.cases[0] if found.cases else None


def expected_of(case: Case) -> Expected:
    expectation = case.expectation
    calls = expectation.calls
    return Expected(
        behavior=case.behavior,
        mode=str(MODES.get(str(calls.mode), calls.mode)) if calls else "",
        steps=tuple(_step(step) for step in (calls.steps if calls else None) or ()),
        forbidden=tuple(_shape(shape) for shape in expectation.forbid),
        rules=tuple(_rules(expectation)),
        need=_need(expectation),
        text=json.dumps(plain(case.record["expected"]["expectation"]), ensure_ascii=False, indent=2),
    )


def _step(step: Any) -> ExpectedStep:
    notes = []
    if step.when is not None:
        rest = {name: value for name, value in step.when.source.items() if name not in ("result", "path")}
        told = {"place": place_of(step.when.pointer), "number": step.when.result + 1, "value": describe(rest)}
        if told["place"]:
            notes.append(_("only if %(place)s of step %(number)s is %(value)s") % told)
        else:
            notes.append(_("only if the result of step %(number)s is %(value)s") % told)
    if step.count is not None:
        notes.append(_times(step.count.least, step.count.most))
    if step.group is not None:
        notes.append(_("in one reply with the others of group %(number)s") % {"number": step.group + 1})
    return ExpectedStep(number=step.number + 1, ways=tuple(map(_shape, step.shapes)), notes=tuple(notes))


def _times(least: int, most: int | None) -> str:
    if most is None:
        return _("%(least)s or more times") % {"least": least}
    return _("%(least)s to %(most)s times") % {"least": least, "most": most}


def _shape(shape: CallShape) -> ExpectedCall:
    notes = []
    if shape.extra.allowed:
        notes.append(_("other arguments may be there"))
    if shape.extra.ignored:
        notes.append(_("not looked at: %(names)s") % {"names": ", ".join(shape.extra.ignored)})
    if shape.extra.defaults:
        notes.append(_("may also be %(values)s") % {"values": describe({"equal": dict(shape.extra.defaults)})})
    args = tuple((place_of(each.pointer) or each.name, describe(each.matcher.source)) for each in shape.args)
    return ExpectedCall(tool=shape.tool.text, args=args, notes=tuple(notes))


def _rules(expectation: Expectation) -> Iterable[str]:
    limits, reply = expectation.limits, expectation.reply
    if expectation.calls and expectation.calls.parallel:
        yield _("All calls stand in one reply.")
    if limits.max_calls is not None:
        yield ngettext("At most %(count)s call.", "At most %(count)s calls.", limits.max_calls) % {
            "count": limits.max_calls
        }
    if limits.max_cycles is not None:
        yield ngettext(
            "At most %(count)s reply of the model.", "At most %(count)s replies of the model.", limits.max_cycles
        ) % {"count": limits.max_cycles}
    if expectation.retry:
        yield str(RETRIES.get(expectation.retry, expectation.retry))
    for check in reply.must:
        yield _("The reply has %(what)s.") % {"what": describe_check(check.source)}
    for check in reply.must_not:
        yield _("The reply does not have %(what)s.") % {"what": describe_check(check.source)}
    if reply.judge is not None:
        yield _("A judging model accepts the reply by: %(rubric)s") % {"rubric": quote(reply.judge.rubric)}
    if expectation.null_is_absent:
        yield _("null counts as left out.")


def _need(expectation: Expectation) -> str:
    match expectation.verdict.need:
        case "all":
            return _("It passes with all samples.")
        case "majority":
            return _("It passes with more than half of the samples.")
        case share:
            return _("It passes with %(share)s of the samples.") % {"share": f"{float(share):.0%}"}


def sent_of(case: Case, system_prompt: str | None) -> Sent:
    try:
        opening = opening_of(case, system_prompt)
    except NotReplayable as error:
        return Sent(conversation=Conversation(), fault=_("It cannot be replayed: %(why)s.") % {"why": error})
    return Sent(conversation=read_conversation(json.dumps(opening.messages)), notes=opening.notes)


def sample_of(data: str, verdict: str, reasons: Iterable[Mapping[str, Any]], tools: str | None) -> SampleView:
    """A stored sample. `tools` are those that were on offer, as JSON text."""
    told = [Reason.from_dict(each) for each in reasons if isinstance(each, Mapping)]
    try:
        attempt = next(iter(read_attempts([data.encode()])))
    except (BadAttempt, StopIteration) as error:
        fault = _("What is stored of it cannot be read: %(why)s") % {"why": error}
        return SampleView(verdict=verdict, reasons=_told(told), fault=fault)
    sample = attempt.sample
    return SampleView(
        verdict=verdict,
        reasons=_told(told),
        num_more=max(0, len(told) - MAX_REASONS),
        differences=tuple(
            Difference(tool=each["tool"] or "", place=each["place"], expected=each["expected"], got=each["got"])
            for each in difference(told)
        ),
        cycles=_cycles(attempt, told, {tool.name: tool.parameters for tool in offered_tools(tools or "[]")}),
        reply=sample.reply,
        ending=str(ENDINGS.get(str(sample.ending), sample.ending)),
        error=sample.error,
        notes=attempt.notes,
        models=attempt.models,
        fingerprints=attempt.fingerprints,
        cached=attempt.cached,
    )


def _told(reasons: list[Reason]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(explain(reason) for reason in reasons[:MAX_REASONS]))


def _cycles(
    attempt: Attempt, reasons: list[Reason], parameters: Mapping[str, Mapping[str, Any] | None]
) -> tuple[tuple[CallView, ...], ...]:
    found, number = [], 0
    for cycle, calls in enumerate(attempt.sample.cycles):
        sources = attempt.sources[cycle] if cycle < len(attempt.sources) else ()
        views = []
        for index, call in enumerate(calls):
            about = [explain(reason) for reason in reasons if reason.call == number]
            number += 1
            source = sources[index] if index < len(sources) else None
            views.append(_call(call, number, source or "", about, parameters.get(call.name)))
        found.append(tuple(views))
    return tuple(found)


def _call(call: Call, number: int, source: str, about: list[str], parameters: Mapping[str, Any] | None) -> CallView:
    raw = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments or {}, ensure_ascii=False)
    return CallView(
        number=number,
        name=call.name,
        table=argument_table(raw or "{}", parameters),
        raw=raw,
        fault=call.fault,
        source=source,
        source_words=str(SOURCES.get(source, source)),
        result=_tree(call.served.text) if call.served is not None else None,
        is_error=call.served is not None and call.served.is_error,
        reasons=tuple(dict.fromkeys(about)),
    )


def _tree(text: str) -> Node:
    try:
        return tree(decode(text))
    except ValueError:
        return tree(text)
