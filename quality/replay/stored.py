"""Samples as rows: judged when they land, and read again without asking or judging anew."""

from dataclasses import replace
from typing import Any

from engine.providers.protocol import Usage
from engine.redaction import Redactor
from quality.cases.attempt import Attempt, read_attempts
from quality.cases.judge import Ask, judge
from quality.cases.record import Case
from quality.cases.replay import Side
from quality.cases.results import Judged
from quality.cases.sample import CallValidity, Judgement, Reason, Sample, Verdict
from quality.ingest.jsontext import storable
from quality.models import ReplayCase, ReplaySample


def judged(case: Case, side: Side, attempt: Attempt, ask: Ask | None = None) -> Judgement:
    tools = case.tools if side.tools is None else side.tools
    return judge(case.expectation, attempt.sample, tools=tools, now=case.now, ask=ask)


def waits_for_judge(judgement: Judgement) -> bool:
    """All else holds, and a model has to say the rest."""
    return judgement.verdict is Verdict.ERROR and any(reason.code == "not_judged" for reason in judgement.reasons)


def sample_of(
    row: ReplayCase, side: Side, attempt: Attempt, judgement: Judgement, *, awaits_judge: bool
) -> ReplaySample:
    """A sample as it is stored, not saved yet."""
    price, redactor = side.endpoint.price, Redactor({"MODEL_KEY": side.endpoint.key or ""})
    return ReplaySample(
        tenant_id=row.tenant_id,
        replay_id=row.replay_id,
        replay_case=row,
        side=side.name,
        index=attempt.index,
        awaits_judge=awaits_judge,
        data=_redacted(attempt, redactor).line(),
        requests=attempt.requests,
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        cost=price.of(Usage(attempt.prompt_tokens, attempt.completion_tokens)) if price else 0,
        duration_ms=sum(attempt.latencies_ms),
        **redactor.value(columns_of(judgement)),
    )


def _redacted(attempt: Attempt, redactor: Redactor) -> Attempt:
    """Without the key, should the server have said it back; its raw answers are without it already."""
    sample = attempt.sample
    cycles = tuple(
        tuple(replace(call, name=redactor.text(call.name), arguments=redactor.value(call.arguments)) for call in cycle)
        for cycle in sample.cycles
    )
    return replace(attempt, sample=replace(sample, cycles=cycles, reply=redactor.value(sample.reply)))


def columns_of(judgement: Judgement) -> dict[str, Any]:
    """What a judgement says, for the columns of a sample."""
    return {
        "verdict": str(judgement.verdict),
        "reasons": [plain(reason.as_dict()) for reason in judgement.reasons],
        "invalid_calls": [plain(call.as_dict()) for call in judgement.validity if not call.valid],
    }


def plain(value: Any) -> Any:
    """JSON values that a `jsonb` column can hold."""
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return value


def read_attempt(sample: ReplaySample) -> Attempt:
    """All of it, with the server's answers."""
    [attempt] = read_attempts([sample.data.encode()])
    return attempt


def read_judged(sample: ReplaySample) -> Judged:
    """The attempt without the server's answers, and what was said of it when it landed."""
    reasons = tuple(Reason.from_dict(reason) for reason in sample.reasons)
    calls = tuple(_validity(call) for call in sample.invalid_calls)
    judgement = Judgement(verdict=Verdict(sample.verdict), reasons=reasons, validity=calls)
    return Judged(replace(read_attempt(sample), raw=()), judgement)


def counted(row: ReplayCase, side: str, index: int, verdict: str) -> Judged:
    """A sample of which nothing but the verdict is looked at."""
    attempt = Attempt(case=row.ref, version=row.version, side=side, index=index, sample=Sample())
    return Judged(attempt, Judgement(verdict=Verdict(verdict)))


def _validity(call: dict[str, Any]) -> CallValidity:
    return CallValidity(**{name: value for name, value in call.items() if name != "valid"})
