"""Hints: what rules see in a turn, to help choose what to look at. A hint is never a label.

One function a rule, one table. A rule is pure: a turn as plain values in, remarks out, the same for the same turn,
in whatever order its rows came. Each remark is one sentence with the evidence in it. Whoever changes what a rule says
raises VERSION; all hints are made again then.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from engine.errors import ToolError
from engine.parsing import parse
from engine.schema import Fault, compiled
from engine.strict_json import JsonError
from engine.text import TRUNCATED, boundary, truncate
from quality.cases.toolset import Toolset
from quality.cases.values import key_of, plain, pointer_to, read_exact
from quality.ingest.jsontext import storable
from quality.review.conversation import Said
from quality.review.figures import Known, stated
from quality.review.jsonview import Members, decode

VERSION: Final = 2

MAX_REMARKS = 10  # of one rule on one call
MAX_QUOTED = 80  # characters of evidence in a sentence
MAX_SENTENCE = 600
STORM = 3  # failures of one tool in one turn
LONG_LOOP = 3  # cycles of calls after which a reply is missed
MIN_SAMPLES = 20  # calls that a duration is compared with, at least
MIN_SLOW_MS = 1_000
SPREADS = 6.0  # how many robust standard deviations away from the middle is far

_ENDED_FOR_US = frozenset(("cancelled", "not_answered", "timed_out", "repeated_call", "refused", "worker_lost"))
_EXHAUSTED = {
    "exhausted": "used all its cycles",
    "budget_exceeded": "used up its budget",
    "timed_out": "used up its time",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """How long the calls of a tool took before this one, in milliseconds: their number, median, and median distance
    from it."""

    num_calls: int
    median: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """A call as a rule sees it. `args` and `result` are JSON text, whole unless `is_whole` is false; `result_end` is
    the end of a result, `tools` what was offered on that request. `error` is the code where the call is our own."""

    id: int
    cycle: int
    index: int
    tool_name: str
    args: str | None = None
    result: str | None = None
    result_end: str = ""
    is_whole: bool = True
    is_error: bool | None = None
    error: str | None = None
    is_ours: bool = False
    shown: str | None = None
    duration_ms: int | None = None
    usual: Usual | None = None
    warnings: tuple[str, ...] = ()
    tools: Toolset = Toolset()  # noqa: RUF009 - frozen

    @property
    def place(self) -> tuple[int, int]:
        return self.cycle, self.index

    @property
    def is_declined(self) -> bool:
        return (self.is_ours and self.error == "refused") or "denied" in self.warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTurn:
    """A turn that has ended, as a rule sees it. `said` are its messages, all of them if `is_whole`; `known` gives what
    the model had to go by in this turn, and `add_before` adds what it had from before; None and false say that not all
    of that is recorded."""

    calls: tuple[SeenCall, ...] = ()
    said: tuple[Said, ...] = ()
    is_whole: bool = True
    is_done: bool = True
    end_reason: str = ""
    tools: Toolset = Toolset()  # noqa: RUF009 - frozen
    known: Callable[[], Known | None] = lambda: None
    add_before: Callable[[Known], bool] = lambda _: True

    @property
    def reply(self) -> Said | None:
        """What the turn ends with, if that is a reply in words alone."""
        last = self.said[-1] if self.said and self.is_whole else None
        return last if last and last.role == "assistant" and not last.calls and last.text.strip() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a rule says: of a call, or, without one, of a reply of a turn that made none."""

    sentence: str
    call: SeenCall | None = None
    cycle: int = 0
    path: str = ""
    rule: str = ""

    @property
    def place(self) -> tuple[Any, ...]:
        """Tells a remark from all others of its turn."""
        return (self.call is None, self.call.place if self.call else (), self.cycle, self.rule, self.path)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its name for machines, the word for people, what it looks for in one line, and how."""

    name: str
    word: str | Promise
    about: str | Promise
    remarks: Callable[[SeenTurn], Iterable[Remark]]


def hints_of(turn: SeenTurn) -> list[Remark]:
    """All remarks on a turn, in an order of their own; no two at one place."""
    turn = replace(turn, calls=tuple(sorted(turn.calls, key=lambda call: call.place)))
    found: dict[tuple[Any, ...], Remark] = {}
    for rule in RULES:
        for remark in rule.remarks(turn):
            sentence, path = truncate(storable(remark.sentence), MAX_SENTENCE), storable(remark.path)
            finished = replace(remark, rule=rule.name, sentence=sentence, path=path)
            found.setdefault(finished.place, finished)
    return [found[place] for place in sorted(found)]


# --- arguments --------------------------------------------------------------------------------------------------------
def args_not_object(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        value = _value(call.args) if call.args and call.is_whole else {}
        if not isinstance(value, dict):
            kind = "text that is no JSON object" if isinstance(value, str) else f"JSON, but {_kind(value)}"
            yield _on(call, f"The arguments of {call.tool_name} are {kind}: {quoted(_plain_text(call.args))}.")


def repeated_key(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        if not call.args or not call.is_whole:
            continue
        try:
            found = _repeated(decode(call.args), ())
        except (ValueError, RecursionError):
            continue
        for steps in islice(dict.fromkeys(found), MAX_REMARKS):
            sentence = f"The arguments of {call.tool_name} name {quoted(str(steps[-1]))} twice; the last one counts."
            yield _on(call, sentence, pointer_to(*steps))


def schema_violation(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        value, schema = _value(call.args) if call.is_whole else None, call.tools.parameters(call.tool_name)
        if schema is None or not isinstance(value, dict):
            continue
        try:
            faults = compiled(schema).faults(plain(value))
        except (ToolError, TypeError, RecursionError):
            continue
        by_path: dict[str, list[str]] = {}
        for path, reason in _placed(faults):
            by_path.setdefault(path, []).append(reason)
        for path, reasons in islice(sorted(by_path.items()), MAX_REMARKS):
            where = f"at {path}" if path else "as a whole"
            said = "; ".join(dict.fromkeys(truncate(reason, 200) for reason in reasons[:3]))
            yield _on(call, f"Against the schema that {call.tool_name} was offered with, {where}: {said}.", path)


def unknown_tool(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        if call.tools and call.tools.get(call.tool_name) is None and "provider_executed" not in call.warnings:
            names = call.tools.names
            offered = ", ".join(truncate(name, MAX_QUOTED) for name in names[:5])
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            yield _on(call, f"No tool {quoted(call.tool_name)} was offered; offered were {offered}{more}.")


# --- what the model did -----------------------------------------------------------------------------------------------
def call_in_prose(turn: SeenTurn) -> Iterator[Remark]:
    """Written in a format of calls; or the turn ends by naming a tool that was never called, or by announcing one."""
    for said in turn.said:
        if said.role != "assistant" or said.calls or not said.text or said.hidden or not turn.tools:
            continue
        written = [call.name for call in parse(said.text, tools=_definitions(turn.tools)).calls]
        if written:
            sentence = f"The reply writes a call of {quoted(written[0])} as text, and none was made."
            yield _of_reply(turn, said, f"{sentence} It begins {quoted(said.text)}.")
        elif said is turn.reply and (sentence := _announced(turn, said.text)):
            yield _of_reply(turn, said, sentence)


def repeated_call(turn: SeenTurn) -> Iterator[Remark]:
    before: dict[tuple[str, str], int] = {}
    for number, call in enumerate(turn.calls, start=1):
        if call.args is None or not call.is_whole:
            continue
        key = (call.tool_name, _canonical(call.args))
        if key in before:
            same = f"{call.tool_name} was called with the same arguments before in this turn, as call {before[key]}"
            yield _on(call, f"{same}: {quoted(call.args)}.")
        elif not call.is_error:  # after a failure it is a retry
            before[key] = number


def error_not_retried(turn: SeenTurn) -> Iterator[Remark]:
    last = max((call.cycle for call in turn.calls), default=0)
    for call in turn.calls if turn.is_done else ():
        if call.is_error and call.cycle == last and not _was_stopped(call):
            yield _on(call, f"{call.tool_name} failed ({quoted(_failure(call))}), and no call followed.")


def retry_storm(turn: SeenTurn) -> Iterator[Remark]:
    failed = [call for call in turn.calls if call.is_error and not _was_stopped(call)]
    for name, number in sorted(Counter(call.tool_name for call in failed).items()):
        if number >= STORM:
            call = [call for call in failed if call.tool_name == name][-1]
            yield _on(call, f"{name} failed {number} times in this turn, at last with {quoted(_failure(call))}.")


def exhausted_loop(turn: SeenTurn) -> Iterator[Remark]:
    if not turn.calls:
        return
    call, number = turn.calls[-1], len(turn.calls)
    counted = f"{number} call{'s' if number > 1 else ''}"
    if turn.end_reason in _EXHAUSTED:
        yield _on(call, f"The turn {_EXHAUSTED[turn.end_reason]} after {counted}, without an answer.")
        return
    cycles = len({one.cycle for one in turn.calls})
    is_answered = not turn.said or not turn.is_whole or turn.reply is not None or turn.said[-1].role == "user"
    if turn.is_done and cycles >= LONG_LOOP and not is_answered and call.is_error is not None:
        yield _on(call, f"The messages end after {counted} in {cycles} cycles, without an answer.")


# --- what came of it --------------------------------------------------------------------------------------------------
def empty_result(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        if call.is_error or call.result is None or len(call.result) > 1_000:
            continue
        value = _value(call.result)
        if value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip()):
            yield _on(call, f"{call.tool_name} gave an empty result: {quoted(call.result)}.")
        elif isinstance(value, dict) and _is_hollow(value):
            yield _on(call, f"{call.tool_name} found nothing: {quoted(call.result)}.")


def result_cut(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        if call.shown is not None and call.shown.endswith(TRUNCATED):
            yield _on(
                call, f"The model read only the first {len(call.shown):,} characters of what {call.tool_name} gave."
            )
        elif sentence := _cut(call):
            yield _on(call, sentence)


def slow_call(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        usual, took = call.usual, call.duration_ms
        if usual is None or took is None or took < MIN_SLOW_MS or usual.num_calls < MIN_SAMPLES:
            continue
        spread = max(1.4826 * usual.spread, 0.1 * usual.median)  # of a normal distribution: its standard deviation
        if took > usual.median + SPREADS * spread and took > 3 * usual.median:
            yield _on(
                call,
                f"Took {_seconds(took)}; the {usual.num_calls} calls of {call.tool_name} before it took "
                f"{_seconds(usual.median)} in the median, half of them within {_seconds(usual.spread)} of that.",
            )


def contradicts_result(turn: SeenTurn) -> Iterator[Remark]:
    """Quiet wherever something is missing that the reply may rest on."""
    reply = turn.reply
    answered = [call for call in turn.calls if call.result is not None]
    if reply is None or reply.hidden or not answered or len(answered) < len(turn.calls):
        return
    figures, dates = stated(reply.text)
    figures = [figure for figure in figures if figure.proves]
    known = turn.known() if figures or dates else None
    missing = known.missing(figures, dates) if known else []
    if known and missing:  # most replies need no look at the conversation
        missing = known.missing(figures, dates) if turn.add_before(known) else []
    if missing:
        named = ", ".join(quoted(text) for text in missing[:3])
        held = "that" if len(missing) == 1 else "them"
        yield _of_reply(
            turn, reply, f"The reply says {named}. No result of this turn, and nothing before it, holds {held}."
        )


def declined(turn: SeenTurn) -> Iterator[Remark]:
    for call in turn.calls:
        if call.is_declined:
            told = _failure(call) if call.is_ours else call.error
            yield _on(call, f"A person refused this call of {call.tool_name}" + (f": {quoted(told)}." if told else "."))


RULES: Final = (
    Rule(
        "args_not_object",
        gettext_lazy("arguments are no object"),
        gettext_lazy("Arguments that are not JSON, or no object."),
        args_not_object,
    ),
    Rule(
        "repeated_key",
        gettext_lazy("argument given twice"),
        gettext_lazy("An argument that is named twice."),
        repeated_key,
    ),
    Rule(
        "schema_violation",
        gettext_lazy("against the schema"),
        gettext_lazy("Arguments that the offered schema refuses."),
        schema_violation,
    ),
    Rule(
        "unknown_tool",
        gettext_lazy("unknown tool"),
        gettext_lazy("A call of a tool that was not offered."),
        unknown_tool,
    ),
    Rule(
        "call_in_prose",
        gettext_lazy("described, not called"),
        gettext_lazy("A call in the words of a reply, and not made."),
        call_in_prose,
    ),
    Rule(
        "repeated_call",
        gettext_lazy("same call again"),
        gettext_lazy("The same call twice in one turn."),
        repeated_call,
    ),
    Rule(
        "error_not_retried",
        gettext_lazy("error, no retry"),
        gettext_lazy("A failure after which no call followed."),
        error_not_retried,
    ),
    Rule(
        "retry_storm",
        gettext_lazy("retry storm"),
        format_lazy(gettext_lazy("A tool that failed {count} times or more in a turn."), count=STORM),
        retry_storm,
    ),
    Rule(
        "exhausted_loop",
        gettext_lazy("loop without answer"),
        gettext_lazy("Calls until a limit, and no answer."),
        exhausted_loop,
    ),
    Rule("empty_result", gettext_lazy("empty result"), gettext_lazy("A result with nothing in it."), empty_result),
    Rule(
        "result_cut",
        gettext_lazy("result was cut"),
        gettext_lazy("A result that the model did not read whole."),
        result_cut,
    ),
    Rule(
        "slow_call",
        gettext_lazy("unusually slow"),
        gettext_lazy("A duration far from the tool's usual one."),
        slow_call,
    ),
    Rule(
        "contradicts_result",
        gettext_lazy("reply beside the results"),
        gettext_lazy("A number or date in the reply that nothing before it holds."),
        contradicts_result,
    ),
    Rule("declined", gettext_lazy("refused by a person"), gettext_lazy("A call that a person refused."), declined),
)
BY_NAME: Final = {rule.name: rule for rule in RULES}


# --- parts of sentences -----------------------------------------------------------------------------------------------
def quoted(text: str | None) -> str:
    """Evidence in one line, cut where it is long."""
    text = " ".join((text or "").split())
    return f"“{text if len(text) <= MAX_QUOTED else text[: boundary(text, MAX_QUOTED)] + '…'}”"


def _seconds(ms: float) -> str:
    return f"{ms / 1000:,.1f} s" if ms >= 1_000 else f"{ms:,.0f} ms"


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "an array"
    return {type(None): "null", bool: "true or false"}.get(type(value), "a number")


def _failure(call: SeenCall) -> str:
    """What the model was told of a failure."""
    told = _plain_text(call.result)
    return told or call.error or "no reason was recorded"


# --- reading ----------------------------------------------------------------------------------------------------------
def _on(call: SeenCall, sentence: str, path: str = "") -> Remark:
    return Remark(sentence=sentence, call=call, cycle=call.cycle, path=path)


def _of_reply(turn: SeenTurn, said: Said, sentence: str) -> Remark:
    """On the last call before the reply, by which it is judged; on the turn where there is none."""
    cycle = said.cycle or 0
    before = [call for call in turn.calls if call.cycle <= cycle]
    return Remark(sentence=sentence, call=before[-1] if before else None, cycle=cycle)


def _value(text: str | None) -> Any:
    """The value of a JSON text; what is none is text."""
    try:
        return None if text is None else read_exact(text)
    except (JsonError, ValueError, RecursionError):
        try:
            return _loose(decode(text or ""))
        except (ValueError, RecursionError):
            return text


def _loose(value: Any) -> Any:
    """What is beyond the engine's limits, such as a key that is there twice, is still an object or none."""
    return dict(value) if isinstance(value, Members) else value


def _plain_text(text: str | None) -> str:
    value = _value(text)
    return value if isinstance(value, str) else text or ""


def _canonical(args: str) -> str:
    try:
        return key_of(read_exact(args))
    except (JsonError, ValueError, RecursionError):
        return args


def _repeated(value: Any, here: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, Members):
        counts = Counter(name for name, _ in value)
        yield from ((*here, name) for name, number in counts.items() if number > 1)
        for name, item in value:
            yield from _repeated(item, (*here, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _repeated(item, (*here, number))


def _placed(faults: Iterable[Fault]) -> Iterator[tuple[str, str]]:
    """JSON pointer and reason; what is no fault of the arguments, but of the schema, is left out. A fault of several
    arguments, that they are too many, is said of each alone."""
    for fault in faults:
        is_shared = len(fault.places) > 1
        for steps in fault.places:
            yield pointer_to(*steps), f"{quoted(str(steps[-1]))} is not allowed" if is_shared else fault.reason


def _was_stopped(call: SeenCall) -> bool:
    """It failed by the hand of a person, or of our own limits: not for the model to try again."""
    return call.is_declined or (call.is_ours and call.error in _ENDED_FOR_US)


def _is_hollow(value: dict[str, Any]) -> bool:
    """Nothing but empty members, at least one of them a list or an object; counts of 0 beside it are empty, too."""
    members = list(value.values())
    return any(item in ([], {}) for item in members) and all(
        item is None or item in ("", [], {}) or (item == 0 and not isinstance(item, bool)) for item in members
    )


_CUT_MARK = re.compile(
    r"""(?ix)(?:
      \[(?:\.\.\.|…)?\s?(?:(?:output|result|response|content)\s)?truncated[^\]\n]{0,60}\]
    | [<(](?:(?:output|result|response)\s)?truncated[^>)\n]{0,60}[>)]
    | (?:\.\.\.|…)\ ?\(?\d[\d,.]*\ (?:more\ )?(?:characters|bytes|lines)[^\n]{0,30}
    )[\s"'}\]]*$"""
)


def _cut(call: SeenCall) -> str:
    if call.result is None:
        return ""
    end = call.result_end or call.result[-200:]
    if mark := _CUT_MARK.search(end):
        return f"The result of {call.tool_name} ends with a mark of having been cut: {quoted(mark[0].rstrip(chr(34)))}."
    if not call.is_whole:
        return ""
    value = _value(call.result)
    if isinstance(value, dict) and value.get("truncated") is True:
        return f"The result of {call.tool_name} says that it is cut: “truncated: true”."
    if isinstance(value, str) and len(value) > 200 and value.lstrip()[:1] in ("{", "["):
        closed = value.rstrip()[-1:] in ("}", "]")
        if not closed:
            return f"The result of {call.tool_name} begins as JSON and breaks off after {quoted(value[-60:])}."
    return ""


# --- calls in words ---------------------------------------------------------------------------------------------------
_ANNOUNCED = re.compile(
    r"""(?ix)(?:^|[.!…:\n])[ \t]{0,8}
    (?:(?:ok|okay|sure|certainly|of\ course|great|certo|va\ bene|claro|vale|perfetto|perfecto)[,.!]?\s+)?
    (?P<said>
      (?:let\ me|i['’]ll|i\ will|i(?:['’]m|\ am)\ going\ to)\s+(?:now\s+|just\s+|quickly\s+)?
        (?:check|look|search|find|fetch|pull|call|verify|retrieve|query|run)\b
    | (?:ora|adesso|subito)\s+(?:controllo|verifico|cerco|guardo)\b | (?:controllo|verifico|cerco|guardo)\s+subito\b
    | (?:fammi|mi\ faccia|lasciami|mi\ lasci)\s+(?:controllare|verificare|cercare|vedere)\b
    | (?:voy\ a|vamos\ a)\s+(?:consultar|revisar|buscar|comprobar|verificar|mirar)\b
    | (?:déjame|déjeme|permíteme|permítame)\s+(?:consultar|revisar|buscar|comprobar|verificar|ver)\b
    )[^.!?\n]{0,120}"""
)
_CONDITION = re.compile(r"(?i)\b(?:if|once|when|after|as soon as|se|quando|appena|si|cuando|en cuanto)\b")


def _announced(turn: SeenTurn, text: str) -> str:
    """A turn's last words that name a tool which was not called, or that announce to look something up."""
    called = {call.tool_name for call in turn.calls}
    for name in turn.tools.names:
        is_a_code = "_" in name.strip("_") or bool(re.search(r"[a-z][A-Z]", name))
        if is_a_code and name not in called and re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", text):
            return f"The turn ends by naming the tool {quoted(name)}, and it was not called: {quoted(text)}."
    if turn.calls or "?" in text:
        return ""
    found = _ANNOUNCED.search(text)
    if found is None or _CONDITION.search(found[0]):
        return ""
    return f"The turn ends with {quoted(found['said'])}, and no call was made."


def _definitions(tools: Toolset) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters or {"type": "object"}}}
        for tool in tools.tools.values()
    ]
