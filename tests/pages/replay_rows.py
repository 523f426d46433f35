"""Replays as rows, as their runner leaves them: for pages that show them."""

import datetime as dt
import json
from collections.abc import Iterable
from typing import Any

from quality.cases.attempt import Attempt
from quality.cases.sample import Call, CallValidity, Ending, Reason, Sample, Served
from quality.models import Case, Replay, ReplayCase, ReplaySample, ReplaySide
from tests.factories import LATEST

INVALID = CallValidity(call=0, cycle=0, index=0, tool="get_weather", code="bad_arguments", path="/unit")
RIGHT, WRONG = '{"city": "Zürich"}', '{"city": "Zurich", "unit": "kelvin"}'


def make_replay(*, sides: Iterable[str] = ("candidate",), **fields: Any) -> Replay:
    """A replay without cases, with these sides; done and passed with nothing said."""
    usual: dict[str, Any] = {
        "state": "done",
        "exit_code": 0,
        "created_at": LATEST,
        "started_at": LATEST,
        "finished_at": LATEST + dt.timedelta(seconds=83),
        "prompt_tokens": 12_000,
        "completion_tokens": 345,
        "requests": 40,
        "cost": 0.42,
        "seconds": 83,
        "result": result_of(sides),
    }
    replay = Replay.objects.create(**(usual | fields))
    for name in sides:
        make_side(replay, name)
    return replay


def result_of(sides: Iterable[str] = ("candidate",), **more: Any) -> dict[str, Any]:
    summary = {"cases": 4, "passed": 3, "failed": 1, "undecided": 0, "flaky": 1, "rate": 0.75, "interval": [0.5, 0.95],
               "promptTokens": 6_000, "completionTokens": 170, "latencyMs": {"p50": 800, "p95": 2_100}}  # fmt: skip
    gate: dict[str, Any] = {"failed": [], "missing": [], "red": [], "open": []}
    told = {"verdict": "No regression shown.", "gate": gate, "comparison": None, "notices": []}
    return told | {"summaries": dict.fromkeys(sides, summary)} | more


def make_side(replay: Replay, name: str = "candidate", **fields: Any) -> ReplaySide:
    usual = {"endpoint_id": 1, "model_label": f"{name}-model", "base_url": "http://127.0.0.1:9/v1", "model": "tiny"}
    return ReplaySide.objects.create(replay=replay, name=name, **(usual | {"same_sha256": "a" * 64} | fields))


def make_row(replay: Replay, case: Case, **fields: Any) -> ReplayCase:
    usual = {"number": case.number, "version": case.version, "tool_name": case.tool_name, "num_samples": 3}
    row = ReplayCase.objects.create(replay=replay, case=case, **(usual | fields))
    Replay.objects.filter(pk=replay.pk).update(num_cases=ReplayCase.objects.filter(replay=replay).count())
    return row


def make_sample(
    row: ReplayCase, verdict: str = "pass", *, side: str = "candidate", index: int = 0, **fields: Any
) -> ReplaySample:
    attempt = attempt_of(row, verdict, side=side, index=index)
    reasons = [reason.as_dict() for reason in reasons_of(verdict)]
    fields.setdefault("invalid_calls", [INVALID.as_dict()] if verdict == "invalid_call" else [])
    usual = {"data": attempt.line(), "reasons": reasons, "requests": 1, "prompt_tokens": 300, "completion_tokens": 20}
    return ReplaySample.objects.create(
        replay_id=row.replay_id, replay_case=row, side=side, index=index, verdict=verdict, **(usual | fields)
    )


def reasons_of(verdict: str) -> list[Reason]:
    if verdict == "error":
        return [Reason(code="sample_error", got="HTTP 503")]
    if verdict == "pass":
        return []
    return [
        Reason(
            code="wrong_argument",
            step=0,
            call=0,
            tool="get_weather",
            path="/city",
            expected={"equal": "Zürich"},
            got="Zurich",
        ),
        Reason(code="extra_argument", step=0, call=0, tool="get_weather", path="/unit", got="kelvin"),
    ]


def attempt_of(row: ReplayCase, verdict: str, *, side: str, index: int, source: str = "exact") -> Attempt:
    served = Served(json.dumps({"temperature": 21.5}))
    call = Call("get_weather", RIGHT if verdict == "pass" else WRONG, served)
    sample = Sample(((call,),), "It is 21.5 degrees.", Ending.ANSWERED)
    if verdict == "error":
        sample = Sample((), None, Ending.ERROR, "HTTP 503: <b>busy</b>")
    return Attempt(
        case=row.ref,
        version=row.version,
        side=side,
        index=index,
        sample=sample,
        sources=((source,),) if verdict != "error" else (),
        requests=1,
        prompt_tokens=300,
        completion_tokens=20,
        latencies_ms=(700,),
        models=("tiny",),
        request_sha256="0" * 64,
    )


def samples_of(row: ReplayCase, verdicts: str, *, side: str = "candidate", first: int = 0) -> list[ReplaySample]:
    """A sample for each letter: p(ass), f(ail), i(nvalid call), d(iverged), e(rror)."""
    words = {"p": "pass", "f": "fail", "i": "invalid_call", "d": "diverged", "e": "error"}
    made = [make_sample(row, words[letter], side=side, index=first + at) for at, letter in enumerate(verdicts)]
    Replay.objects.filter(pk=row.replay_id).update(
        num_finished=ReplaySample.objects.filter(replay_id=row.replay_id).count(), num_errors=verdicts.count("e")
    )
    return made
