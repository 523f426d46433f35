"""`judge(expectation, sample)`: does a sample meet what the case expects, and if not, why?

The parts of an expectation are judged one by one (`Finding`). A model is asked last, and only if all else holds: it
never overrides a check.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from quality.cases import moments
from quality.cases.calls import judge_calls
from quality.cases.expectation import Expectation
from quality.cases.findings import Finding
from quality.cases.fitting import Fitting, Sitting
from quality.cases.matchers import Ask, Question, Scope
from quality.cases.sample import Call, Ending, Judgement, Reason, Sample, Verdict
from quality.cases.schema import ExpectationError, parse
from quality.cases.toolset import Toolset
from quality.cases.values import key_of

__all__ = ["Ask", "CaseCheck", "CaseJudge", "Question", "judge", "judge_case", "judge_recorded"]

_QUESTION_MARKS: Final = "?？؟\u037e"
_NOTHING: Final = Finding()  # of a part that expects nothing; never changed
MAX_CALLS: Final = 200  # of a sample that are looked at; a turn makes 32 at most


def judge(
    expectation: Any, sample: Sample, *, tools: Any = None, now: datetime | str | None = None, ask: Ask | None = None
) -> Judgement:
    """The verdict on one sample, with reasons. What cannot be judged is an `error`; only what `ask` raises is raised.

    `tools` are those of the case (a list as a request offers them, its JSON text, or a `Toolset`): calls are checked
    against them. `now` is the case's recorded time. `ask` puts a question to a model; it is called last, and at most
    once for the same question.
    """
    try:
        parsed = parse(expectation)
    except ExpectationError as error:
        return Judgement(
            verdict=Verdict.ERROR,
            reasons=tuple(
                Reason(code="bad_expectation", path=fault.path, got=fault.message) for fault in error.faults[:20]
            ),
        )
    return CaseJudge(parsed, tools=tools, now=now, ask=ask).judge(sample)


class CaseJudge:
    """Judges the samples of one case: what they have in common is looked at once."""

    def __init__(
        self, expectation: Expectation, *, tools: Any = None, now: datetime | str | None = None, ask: Ask | None = None
    ) -> None:
        self._expectation = expectation
        self._tools = Toolset.read(tools)
        self._scope = Scope(now=_moment(now), null_is_absent=expectation.null_is_absent)
        self._fitting = Fitting(self._tools, self._scope)
        self._ask = ask

    def judge(self, sample: Sample) -> Judgement:
        if self._expectation.first_cycle_only:
            reply = None if any(sample.cycles[:1]) else sample.reply
            sample = replace(sample, cycles=sample.cycles[:1], reply=reply)
        judgement = _Judge(self._expectation, sample, self._fitting, self._scope).judgement()
        if self._ask is not None and _only_waits_for_a_model(judgement):
            asking = replace(self._scope, ask=_remembering(self._ask))
            judgement = _Judge(self._expectation, sample, Fitting(self._tools, asking), asking).judgement()
        return judgement


def _moment(now: datetime | str | None) -> datetime | None:
    read = moments.read(now) if isinstance(now, str) else now
    return read if isinstance(read, datetime) else None


def _only_waits_for_a_model(judgement: Judgement) -> bool:
    return judgement.verdict is Verdict.ERROR and any(reason.code == "not_judged" for reason in judgement.reasons)


def _remembering(ask: Ask) -> Ask:
    answers: dict[str, bool | None] = {}

    def once(question: Question) -> bool | None:
        key = key_of([question.rubric, question.of, question.got, question.model, question.votes])
        if key not in answers:
            answers[key] = ask(question)
        return answers[key]

    return once


class _Judge:
    """One sitting over one sample."""

    def __init__(self, expectation: Expectation, sample: Sample, fitting: Fitting, scope: Scope) -> None:
        self.expectation = expectation
        self.sample = sample
        self.scope = scope
        self.sitting = Sitting(sample, fitting, most=MAX_CALLS)
        self.over = sample.ending in (Ending.ANSWERED, Ending.STOPPED)

    def judgement(self) -> Judgement:
        if self.sample.ending is Ending.ERROR:
            reason = Reason(code="sample_error", got=self.sample.error or "the sample was not finished")
            return self._result(Verdict.ERROR, [reason])
        calls = self._calls()
        findings = [self._too_many(), calls, self._forbid(), self._limits(), self._retry(), self._reply(calls.pairs)]
        reasons = [reason for finding in findings for reason in finding.reasons]
        over = self.over or (self.expectation.first_cycle_only and bool(self.sample.cycles))
        if over:
            reasons += [reason for finding in findings for reason in finding.missing]
        if reasons:
            return self._result(_verdict(reasons), reasons, calls.pairs)
        settled = over or all(finding.settled for finding in findings)
        undecided = [reason for finding in findings for reason in finding.open]
        if not settled:
            reason = Reason(code=str(self.sample.ending), got="the expectation was not decided by the calls so far")
            return self._result(Verdict.DIVERGED, [reason], calls.pairs, decided=False)
        if undecided:
            return self._result(Verdict.ERROR, undecided, calls.pairs)
        return self._result(Verdict.PASS, [], calls.pairs)

    def _result(
        self, verdict: Verdict, reasons: list[Reason], pairs: tuple[tuple[int, int], ...] = (), *, decided: bool = True
    ) -> Judgement:
        validity = tuple(reading.validity for reading in self.sitting.readings)
        return Judgement(verdict=verdict, reasons=tuple(reasons), validity=validity, decided=decided, pairs=pairs)

    def _too_many(self) -> Finding:
        made = self.sample.num_calls
        if made <= MAX_CALLS:
            return _NOTHING
        return Finding(reasons=[Reason(code="too_many_calls", expected=MAX_CALLS, got=made)])

    def _calls(self) -> Finding:
        if self.expectation.calls is None:
            return _NOTHING
        return judge_calls(self.expectation.calls, self.sitting)

    def _forbid(self) -> Finding:
        if not self.expectation.forbid:
            return _NOTHING
        finding = Finding(settled=False)
        for place, shape in enumerate(self.expectation.forbid):
            for number, reading in enumerate(self.sitting.readings):
                match = self.sitting.forbidden(shape, number)
                told = Reason(code="forbidden_call", step=place, call=number, tool=reading.call.name)
                if match.ok:
                    got = reading.arguments if shape.args else None
                    finding.reasons.append(replace(told, expected=shape.source, got=got))
                elif match.ok is None:
                    finding.open += [
                        replace(told, code=miss.code, path=miss.path, expected=miss.expected, got=miss.got)
                        for miss in match.misses
                    ]
        return finding

    def _limits(self) -> Finding:
        limits = self.expectation.limits
        if limits.max_calls is None and limits.max_cycles is None:
            return _NOTHING
        finding = Finding(settled=False)
        for code, most, made in (
            ("too_many_calls", limits.max_calls, self.sample.num_calls),
            ("too_many_cycles", limits.max_cycles, self.sample.num_cycles),
        ):
            if most is not None and made > most:
                finding.reasons.append(Reason(code=code, expected=most, got=made))
        return finding

    def _retry(self) -> Finding:
        """What the model did after the first error that it was served."""
        rule = self.expectation.retry
        if rule is None:
            return _NOTHING
        finding = Finding(settled=False)
        failed = [
            (number, reading)
            for number, reading in enumerate(self.sitting.readings)
            if reading.call.served is not None and reading.call.served.is_error
        ]
        if not failed:
            return finding
        cycle = failed[0][1].validity.cycle
        later = [
            (number, reading) for number, reading in enumerate(self.sitting.readings) if reading.validity.cycle > cycle
        ]
        first = [(number, reading.call.name) for number, reading in failed if reading.validity.cycle == cycle]
        if rule == "same_tool":
            for number, tool in first:
                if all(reading.call.name != tool for _, reading in later):
                    finding.missing.append(Reason(code="not_retried", call=number, tool=tool))
            finding.settled = not finding.missing
            return finding
        finding.reasons += [
            Reason(code="called_after_error", call=number, tool=reading.call.name, got=first[0][1])
            for number, reading in later
        ]
        if rule == "ask" and not any(mark in (self.sample.reply or "") for mark in _QUESTION_MARKS):
            finding.missing.append(
                Reason(code="did_not_ask", call=first[0][0], tool=first[0][1], got=self.sample.reply)
            )
        return finding

    def _reply(self, pairs: tuple[tuple[int, int], ...]) -> Finding:
        expected = self.expectation.reply
        if not expected:
            return _NOTHING
        reply = self.sample.reply
        finding = Finding(settled=False)
        if reply is None:
            if expected.must or expected.judge:
                finding.missing.append(Reason(code="no_reply"))
            return finding

        def results(step: int | None, tool: str | None, pointer: str) -> list[Any]:
            return self.sitting.results(pairs, step, tool, pointer)

        for side, wanted, checks in (("must", True, expected.must), ("must_not", False, expected.must_not)):
            for place, check in enumerate(checks):
                holds = check.holds(reply, results)
                path = f"/reply/{side}/{place}"
                if holds is None:
                    code = "check_undecided" if check.name == "language" else "check_timeout"
                    finding.open.append(Reason(code=code, path=path, expected=check.source, got=reply))
                elif holds is not wanted:
                    code = "reply_lacks" if wanted else "reply_has"
                    finding.reasons.append(Reason(code=code, path=path, expected=check.source, got=reply))
        if expected.judge is not None and not finding.reasons:
            match = expected.judge.match(reply, self.scope)
            code = "reply_judged_wrong" if match.ok is False else "not_judged"
            reason = Reason(code=code, path="/reply/judge", expected=expected.judge.source, got=reply)
            if match.ok is False:
                finding.reasons.append(reason)
            elif match.ok is None:
                finding.open.append(reason)
        return finding


def _verdict(reasons: list[Reason]) -> Verdict:
    """A call that could not have run tells more than that something else is missing; a forbidden one is worse."""
    codes = {reason.code for reason in reasons}
    return Verdict.INVALID_CALL if "invalid_call" in codes and "forbidden_call" not in codes else Verdict.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCheck:
    """Does an expectation do what a case is for? `warnings` say in words what it does not."""

    recorded: Judgement
    corrected: Judgement | None
    warnings: tuple[str, ...]


def judge_recorded(
    expectation: Any,
    *,
    call: Call | None,
    beside: tuple[Call, ...] = (),
    index: int = 0,
    tools: Any = None,
    now: datetime | str | None = None,
) -> Judgement:
    """Judge the recorded call of a case as if a replay had made it. `call` None: the model made no call and answered in
    text. `beside` are the other calls of the same model reply, `index` is the call's place among them."""
    calls = [*beside]
    if call is not None:
        calls.insert(index, call)
    sample = Sample(cycles=(tuple(calls),) if calls else (), reply=None if calls else "")
    return judge(expectation, sample, tools=tools, now=now)


def judge_case(
    expectation: Any,
    *,
    label: str,
    call: Call | None,
    correction: Mapping[str, Any] | None = None,
    beside: tuple[Call, ...] = (),
    index: int = 0,
    tools: Any = None,
    now: datetime | str | None = None,
) -> CaseCheck:
    """Check a case against itself: the recorded call of a bad label must fail it, that of `good_reply` and the
    corrected one must pass; each at its place among the calls `beside` it."""

    def judged_as(made: Call | None) -> Judgement:
        return judge_recorded(expectation, call=made, beside=beside, index=index, tools=tools, now=now)

    recorded = judged_as(call)
    corrected_call = corrected(call, correction)
    judged = judged_as(corrected_call) if corrected_call else None
    warnings = []
    if recorded.verdict is Verdict.ERROR:
        warnings.append("The recorded call cannot be judged by this expectation.")
    elif label == "good_reply" and not recorded.passed:
        warnings.append("The recorded call was labelled good, but fails this expectation.")
    elif label != "good_reply" and recorded.passed:
        warnings.append("The recorded call was labelled bad, but passes this expectation: it would catch nothing.")
    if judged is not None and not judged.passed and judged.verdict is not Verdict.ERROR:
        warnings.append("The corrected call fails this expectation: no model could pass the case.")
    return CaseCheck(recorded=recorded, corrected=judged, warnings=tuple(warnings))


def corrected(call: Call | None, correction: Mapping[str, Any] | None) -> Call | None:
    """The call that a reviewer's correction asks for; None where it does not say enough to make one."""
    correction = correction or {}
    tool, arguments = correction.get("tool"), correction.get("arguments")
    name = tool if isinstance(tool, str) and tool else call.name if call is not None else ""
    if not name or (not isinstance(arguments, Mapping) and not isinstance(tool, str)):
        return None
    if isinstance(arguments, Mapping):
        return Call(name, dict(arguments))
    return Call(name, call.arguments) if call is not None and call.name == name else None
