"""The judge of a replay: a model that says what no matcher can, where all else holds.

Votes are asked for outside of any transaction and stored one question at a time; verdicts are read from what is stored.
The same question of the same model is answered from there, in whatever replay it was put first. A rubric on which the
judge does not agree with people is not left to it: such samples are not judged, and the replay is incomplete.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from django.db.models import F

from engine.errors import EngineError
from engine.net import Guard
from engine.providers.protocol import Usage
from quality.cases.attempt import Attempt
from quality.cases.budgets import Budget, OutOfBudget
from quality.cases.judge import Ask, judge
from quality.cases.judge_model import (
    MIN_KAPPA,
    MIN_LABELS,
    PARAMETERS,
    PROMPT_SHA256,
    Agreement,
    Ballot,
    Message,
    Say,
    Waiting,
    agreement,
    ballot,
    can_be_asked,
    rubric_sha256,
    saying,
    sha256_of,
)
from quality.cases.matchers import Question
from quality.cases.record import Case
from quality.models import JudgeVote, Replay, ReplayCase, ReplaySample, ReplaySide
from quality.replay import calibration, outcome, spending, stored
from quality.replay.sides import read_tools, sides_of
from quality.replay.wanted import RunSettings
from tenants import endpoints, outbound
from tenants.endpoints import ChosenModel
from tenants.envelope import SecretInvalid
from tenants.masking import reading
from tenants.models import ModelEndpoint
from tenants.scope import tenant_scope

logger = logging.getLogger(__name__)

ASK_S: Final = 120.0  # for one vote
WAKE_S: Final = 1.0  # between two looks at whether to go on
MAX_FAILURES: Final = 5  # in a row: the judge's server is away
CHUNK: Final = 500

type Item = Callable[[Ask], object]


class Unavailable(Exception):
    """The judge cannot be asked; the message says why, and what to do."""


@dataclass
class Stored:
    """The stored answers of one judge. Needs an open tenant scope where it does not know an answer yet."""

    model: str
    known: dict[str, bool | None] = field(default_factory=dict)

    def __call__(self, question: Question) -> bool | None:
        key = sha256_of(question, self.model)
        if key not in self.known:
            self.load([key])
        return self.known[key]

    def load(self, keys: Sequence[str]) -> None:
        found = dict.fromkeys(keys)
        for start in range(0, len(keys), CHUNK):
            rows = JudgeVote.objects.filter(question_sha256__in=keys[start : start + CHUNK])
            found.update(rows.values_list("question_sha256", "verdict"))
        self.known |= found


# --- verdicts --------------------------------------------------------------------------------------------------------


def asker(replay: Replay) -> Ask | None:
    """What the replay's judge has said. Asks nobody; needs an open tenant scope. None: it has no judge."""
    endpoint = _endpoint(replay)
    if endpoint is None:
        return None
    answers = Stored(endpoint.model)
    agreed: dict[str, Agreement] | None = None

    def ask(question: Question) -> bool | None:
        nonlocal agreed
        if agreed is None:
            agreed = calibration.agreements(calibration.labelled(), answers)
        found = agreed.get(question.rubric)
        return None if found is not None and found.is_refused else answers(question)

    return ask


def agreements(replay: Replay, cases: Iterable[Case]) -> list[Agreement]:
    """On each rubric of these cases, how far the replay's judge agrees with people. Needs an open tenant scope."""
    endpoint = _endpoint(replay)
    rubrics = sorted({rubric for case in cases for rubric in calibration.rubrics_of(case.expectation)})
    if endpoint is None or not rubrics:
        return []
    known = calibration.agreements(calibration.labelled(rubrics), Stored(endpoint.model))
    return [known.get(rubric) or agreement(rubric, []) for rubric in rubrics]


def notices(replay: Replay, cases: Sequence[Case]) -> list[str]:
    """What a reader of the report has to know of the judge. Needs an open tenant scope."""
    asking = [case for case in cases if case.expectation.needs_judge]
    label = _settings(replay).judge_label
    if not asking:
        return []
    if not label:
        return [f"{len(asking)} cases leave meaning to a judge, and this replay has none."]
    endpoint = _endpoint(replay)
    if endpoint is None:
        return [f"The judge {label} is gone or switched off: what waits for it is not judged."]
    told = [_told(label, each) for each in agreements(replay, asking) if each.is_refused or not each.is_known]
    if endpoint.model in set(ReplaySide.objects.filter(replay=replay).values_list("model", flat=True)):
        told.append(f"{endpoint.model} judges what it said itself: take another model as judge.")
    return told


def _told(label: str, each: Agreement) -> str:
    rubric = each.rubric if len(each.rubric) <= 80 else f"{each.rubric[:80]}…"
    if each.is_refused:
        return (
            f"Not left to the judge {label}: “{rubric}”. Its kappa with people is {each.kappa:.2f} of "
            f"{each.num_labels} labels, below {MIN_KAPPA}."
        )
    return f"The judge {label} is not calibrated on “{rubric}”: {each.num_labels} of {MIN_LABELS} labels."


def told(replay: Replay, cases: Sequence[Case]) -> dict[str, Any] | None:
    """The judge in a report, as JSON; None: the replay has none. Needs an open tenant scope."""
    endpoint = _endpoint(replay)
    if endpoint is None:
        return None
    return {
        "label": endpoint.label,
        "model": endpoint.model,
        "promptSha256": PROMPT_SHA256,
        "minLabels": MIN_LABELS,
        "minKappa": MIN_KAPPA,
        "rubrics": [agreement_told(each) for each in agreements(replay, cases)],
    }


def agreement_told(each: Agreement) -> dict[str, Any]:
    gates = "refused" if each.is_refused else "calibrated" if each.is_known else "not_calibrated"
    return {
        "rubric": each.rubric,
        "labels": each.num_labels,
        "agreement": each.agreed,
        "kappa": each.kappa,
        "state": gates,
    }


def votes_on(replay: Replay, case: Case, sample: ReplaySample, tools: Any = None) -> list[dict[str, Any]]:
    """What was asked about one sample, with each vote and its rationale. Needs an open tenant scope. Raises BadAttempt.

    A question is found by its hash, which is that of what is kept."""
    endpoint = _endpoint(replay)
    if endpoint is None or not case.expectation.needs_judge:
        return []
    reader = reading.current()
    if reader is not None:
        with reading.as_stored():
            sample = ReplaySample.objects.select_related("replay_case").get(pk=sample.pk)
            case = outcome.read_cases([sample.replay_case])[sample.replay_case_id]
    attempt = stored.read_attempt(sample)
    asked: dict[str, Question] = {}
    answers = Stored(endpoint.model)

    def noted(question: Question) -> bool | None:
        asked[sha256_of(question, endpoint.model)] = question
        return answers(question)

    _judged(case, attempt, tools)(noted)
    rows = JudgeVote.objects.filter(question_sha256__in=list(asked)).order_by("pk")
    return [
        {
            "rubric": reader.prose(asked[row.question_sha256].rubric) if reader else asked[row.question_sha256].rubric,
            "model": row.model,
            "passed": row.verdict,
            "votes": row.votes,
            "at": row.created_at,
        }
        for row in rows
    ]


# --- asking ----------------------------------------------------------------------------------------------------------


def ask_open(replay_id: int, *, tenant_id: int, until: float, go_on: Callable[[], bool]) -> bool:
    """Ask whatever the replay's samples leave to its judge. Call it in no scope.

    True: nothing is left that could be asked; what failed stays not judged. False: `until` (`time.monotonic()`) has
    come, or `go_on`, called about once a second, said no.
    """
    with tenant_scope(tenant_id):
        replay: Replay = Replay.objects.get(pk=replay_id)
        items = _items(replay)
        if not items:
            return True
        try:
            chosen, guard, key = _opened(replay)
        except Unavailable as error:
            logger.warning("replay %s: %s", replay_id, error)
            return True
    answers = Stored(chosen.name)
    given_up = set[str]()
    while questions := _open_questions(items, answers, chosen, given_up, tenant_id):
        sitting = _Sitting(replay, tenant_id, chosen, answers, given_up)
        if not sitting.ask(questions, guard, key, until, go_on):
            return False
        if sitting.is_over:
            return True
    return True


def _open_questions(
    items: Sequence[Item], answers: Stored, chosen: ChosenModel, given_up: set[str], tenant_id: int
) -> list[Question]:
    """Questions that are not answered yet, without those that cannot be."""
    while True:
        waiting = Waiting(lambda question: answers.known.get(sha256_of(question, chosen.name)))
        for item in items:
            item(waiting.ask)
        found = {sha256_of(question, chosen.name): question for question in waiting.questions.values()}
        new = [key for key in found if key not in answers.known]
        if not new:
            return [
                question
                for key, question in found.items()
                if key not in given_up and can_be_asked(question, chosen.name, chosen.label)
            ]
        with tenant_scope(tenant_id):
            answers.load(new)


def _items(replay: Replay) -> list[Item]:
    """What is judged: samples that wait for it, and what the judge is held against."""
    if not _settings(replay).judge_label:
        return []
    waiting = list(ReplaySample.objects.filter(replay=replay, awaits_judge=True))
    rows = ReplayCase.objects.filter(pk__in={sample.replay_case_id for sample in waiting})
    cases = outcome.read_cases(list(rows))
    tools = {side.name: read_tools(side) for side in sides_of(replay)}
    found = [
        _judged(cases[sample.replay_case_id], stored.read_attempt(sample), tools[sample.side]) for sample in waiting
    ]
    rubrics = {rubric for case in cases.values() for rubric in calibration.rubrics_of(case.expectation)}
    return found + [each.passed for each in calibration.labelled(rubrics)] if found else []


def _judged(case: Case, attempt: Attempt, tools: Any) -> Item:
    offered = case.tools if tools is None else tools

    def judged(ask: Ask) -> object:
        return judge(case.expectation, attempt.sample, tools=offered, now=case.now, ask=ask)

    return judged


def _settings(replay: Replay) -> RunSettings:
    return RunSettings.from_json(replay.settings)


def _endpoint(replay: Replay) -> ModelEndpoint | None:
    label = _settings(replay).judge_label
    return ModelEndpoint.objects.filter(label=label, is_enabled=True).first() if label else None


def _opened(replay: Replay) -> tuple[ChosenModel, Guard, str | None]:
    endpoint = _endpoint(replay)
    if endpoint is None:
        raise Unavailable(f"the judge {_settings(replay).judge_label} is gone or switched off")
    try:
        key = endpoints.read_key(endpoint.pk, run=f"judge of replay {replay.pk}")
    except SecretInvalid as error:
        raise Unavailable(f"the key of {endpoint.label} cannot be read: set it again on its page") from error
    return endpoints.chosen(endpoint), outbound.guard(), key


class _Sitting:
    """Questions under way. `is_over`: the judge may not, or cannot, be asked any more."""

    def __init__(
        self, replay: Replay, tenant_id: int, chosen: ChosenModel, answers: Stored, given_up: set[str]
    ) -> None:
        self.is_over = False
        self._replay, self._tenant_id, self._chosen = replay, tenant_id, chosen
        self._answers, self._given_up = answers, given_up
        self._failures = 0
        self._num_asked, self._used = 0, Usage()  # of votes that were not written down yet

    def ask(
        self, questions: Sequence[Question], guard: Guard, key: str | None, until: float, go_on: Callable[[], bool]
    ) -> bool:
        """False: it is to go on later. What was answered by then is stored."""
        waiting = list(questions)
        under_way: dict[asyncio.Task[Ballot], Question] = {}
        with asyncio.Runner() as runner:
            client = runner.run(_made(guard, self._chosen))
            model = self._chosen.built(client, key)
            say = self._counted(saying(replace(model, parameters={**model.parameters, **PARAMETERS}), ASK_S))
            try:
                while (waiting and not self.is_over) or under_way:
                    is_late = time.monotonic() >= until
                    if not go_on() or (is_late and not under_way):
                        return False
                    while waiting and not (is_late or self.is_over) and len(under_way) < self._concurrency:
                        if not self._may_ask():
                            self.is_over = True
                            break
                        question = waiting.pop(0)
                        under_way[runner.run(_begun(question, say))] = question
                    if under_way:
                        done, _ = runner.run(_some(under_way))
                        for task in done:
                            self._ended(under_way.pop(task), task)
            finally:
                runner.run(_stopped(under_way))
                runner.run(client.aclose())
                self._write_down()
        return not waiting or self.is_over

    @property
    def _concurrency(self) -> int:
        return _settings(self._replay).concurrency

    def _may_ask(self) -> bool:
        """Is there anything left of the budget?"""
        with tenant_scope(self._tenant_id):
            now = Replay.objects.get(pk=self._replay.pk)
        try:
            Budget("the run", _settings(now).budget.allowance, spent=spending.of_run(now)).check()
        except OutOfBudget:
            return False
        return True

    def _counted(self, say: Say) -> Say:
        """The same; what it takes is counted, also of a question that comes to nothing."""

        async def counted(messages: Sequence[Message]) -> tuple[str, Usage]:
            self._num_asked += 1
            text, used = await say(messages)
            self._used += used
            return text, used

        return counted

    def _write_down(self) -> None:
        num_asked, used = self._num_asked, self._used
        self._num_asked, self._used = 0, Usage()
        with tenant_scope(self._tenant_id):
            Replay.objects.filter(pk=self._replay.pk).update(
                requests=F("requests") + num_asked,
                prompt_tokens=F("prompt_tokens") + used.prompt_tokens,
                completion_tokens=F("completion_tokens") + used.completion_tokens,
                cost=F("cost") + self._chosen.price.of(used),
            )

    def _ended(self, question: Question, task: asyncio.Task[Ballot]) -> None:
        self._write_down()
        key = sha256_of(question, self._chosen.name)
        try:
            found = task.result()
        except EngineError as error:
            logger.warning("replay %s: the judge %s did not answer: %s", self._replay.pk, self._chosen.label, error)
            self._given_up.add(key)
            self._failures += 1
            self.is_over = self.is_over or self._failures >= MAX_FAILURES
            return
        self._failures = 0
        if found.verdict is None:
            self._given_up.add(key)
        self._answers.known[key] = found.verdict
        with tenant_scope(self._tenant_id):
            _keep(key, question, found, self._chosen.name)


def _keep(key: str, question: Question, found: Ballot, model: str) -> None:
    """A question without a readable vote is asked again another time, and then has its new votes."""
    JudgeVote.objects.update_or_create(
        question_sha256=key,
        defaults={
            "model": model,
            "prompt_sha256": PROMPT_SHA256,
            "rubric_sha256": rubric_sha256(question.rubric),
            "votes": [vote.as_dict() for vote in found.votes],
            "verdict": found.verdict,
            "prompt_tokens": found.usage.prompt_tokens,
            "completion_tokens": found.usage.completion_tokens,
        },
    )


async def _made(guard: Guard, chosen: ChosenModel) -> Any:
    return guard.client(chosen.base_url)


async def _begun(question: Question, say: Say) -> asyncio.Task[Ballot]:
    return asyncio.create_task(ballot(question, say))


async def _some(tasks: Mapping[asyncio.Task[Ballot], Question]) -> tuple[set[asyncio.Task[Ballot]], Any]:
    return await asyncio.wait(list(tasks), timeout=WAKE_S, return_when=asyncio.FIRST_COMPLETED)


async def _stopped(tasks: Iterable[asyncio.Task[Ballot]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
