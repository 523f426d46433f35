"""How far a judge agrees with people, rubric by rubric.

People have spoken where a case was made of a label (the recorded call is right or wrong, the corrected one is right),
and where somebody confirmed or settled a failure of a replay. A model is asked of such a sample only where all else
holds, so what the judge says of the rubric decides it, and can be set against what the person said.

All functions need an open tenant scope; nobody is asked by them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from quality.cases.attempt import read_attempts
from quality.cases.expectation import Expectation
from quality.cases.judge import Ask, corrected, judge
from quality.cases.judge_model import Agreement, agreement
from quality.cases.matchers import Judged, Matcher, Question
from quality.cases.record import read_cases
from quality.cases.sample import Call, Sample, Verdict
from quality.cases.schema import ExpectationError, parse
from quality.improve.case_draft import read_correction
from quality.models import Case, CaseVersion, Feedback, Label, ReplayCase, ReplayFinding, ToolCall

MAX_CASES: Final = 500  # the newest; more labels would not say more
MAX_FINDINGS: Final = 500
_ASKS: Final = '"judge"'  # in the JSON of an expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A sample that a person has judged, and all that it takes to judge it again."""

    expectation: Expectation
    sample: Sample
    tools: Any
    now: Any
    is_right: bool

    def passed(self, ask: Ask) -> bool | None:
        """What the judge makes of it; None: it was not asked, or has not answered."""
        found = judge(self.expectation, self.sample, tools=self.tools, now=self.now, ask=ask)
        return None if found.verdict is Verdict.ERROR else found.passed


def rubrics_of(expectation: Expectation) -> set[str]:
    found = set[str]()

    def note(matcher: Matcher) -> bool:
        if isinstance(matcher, Judged):
            found.add(matcher.rubric)
        return False

    for matcher in expectation.matchers():
        matcher.any_part(note)
    if expectation.reply.judge is not None:
        found.add(expectation.reply.judge.rubric)
    return found


def labelled(rubrics: Collection[str] | None = None) -> list[Labelled]:
    """The samples that people have judged and a judge is asked about; of these rubrics, if some are given."""
    return [
        each
        for each in (*_recorded(), *_found())
        if rubrics is None or not rubrics_of(each.expectation).isdisjoint(rubrics)
    ]


def judged(labels: Iterable[Labelled], ask: Ask) -> dict[str, list[tuple[bool, bool]]]:
    """By rubric, what the judge says and what a person said, sample by sample. `ask` gives the judge's stored
    answers; samples that it has not answered are left out."""
    pairs: dict[str, list[tuple[bool, bool]]] = {}
    for each in labels:
        asked = set[str]()

        def noted(question: Question, asked: set[str] = asked) -> bool | None:
            asked.add(question.rubric)
            return ask(question)

        passed = each.passed(noted)
        if passed is not None:
            for rubric in asked:
                pairs.setdefault(rubric, []).append((passed, each.is_right))
    return pairs


def agreements(labels: Iterable[Labelled], ask: Ask) -> dict[str, Agreement]:
    """By rubric. `ask` gives the judge's stored answers."""
    return {rubric: agreement(rubric, said) for rubric, said in judged(labels, ask).items()}


def _recorded() -> Iterator[Labelled]:
    """The recorded call of each case, as it was labelled, and the corrected one, which is right."""
    rows = Case.objects.filter(expectation__contains=_ASKS, index__isnull=False).select_related("call")
    cases = list(rows.order_by("-number")[:MAX_CASES])
    feedback = Feedback.objects.in_bulk([case.feedback_id for case in cases if case.feedback_id])
    replies = _replies(cases)
    for case in cases:
        try:
            expectation = parse(case.expectation)
        except ExpectationError:
            continue
        said = feedback.get(case.feedback_id)
        call = Call(case.tool_name, case.args)
        right = corrected(call, read_correction(said) if said and said.label == case.label else None)
        beside = replies.get((case.call.turn_id, case.call.cycle), {}) if case.call else {}
        others = [other for pk, other in beside.items() if pk != case.call_id]
        for made, is_right in ((call, case.label == Label.GOOD_REPLY), (right, True)):
            if made is not None:
                calls = [*others[: case.index], made, *others[case.index :]]
                sample = Sample(cycles=(tuple(calls),), reply=None)
                yield Labelled(
                    expectation=expectation, sample=sample, tools=case.tools, now=case.now, is_right=is_right
                )


def _replies(cases: Iterable[Case]) -> dict[tuple[int, int], dict[int, Call]]:
    """The calls of the replies that the cases are about, by turn and cycle, where they are still known."""
    found: dict[tuple[int, int], dict[int, Call]] = {}
    calls = ToolCall.objects.filter(turn__in={case.call.turn_id for case in cases if case.call}).order_by("index")
    for pk, turn, cycle, name, args in calls.values_list("pk", "turn_id", "cycle", "tool_name", "args"):
        found.setdefault((turn, cycle), {})[pk] = Call(name, args)
    return found


def _found() -> Iterator[Labelled]:
    """Failures of replays that a person confirmed, or disputed and settled."""
    said = _said()
    rows = ReplayCase.objects.filter(pk__in={finding.sample.replay_case_id for finding, _ in said})  # type: ignore[union-attr]
    versions = {(row.case_id, row.version): row for row in rows}
    records = CaseVersion.objects.filter(case__in={case for case, _ in versions}, data__contains=_ASKS)
    cases = {(one.case_id, one.number): read_cases([one.data.encode()]).cases for one in records}
    for finding, is_right in said:
        assert finding.sample is not None
        for case in cases.get((finding.case_id, finding.case_version), ()):
            for attempt in read_attempts([finding.sample.data.encode()]):
                yield Labelled(
                    expectation=case.expectation, sample=attempt.sample, tools=case.tools, now=case.now,
                    is_right=is_right,
                )  # fmt: skip


def _said() -> list[tuple[ReplayFinding, bool]]:
    """Findings on a sample that say whether it is right."""
    kind, outcome = ReplayFinding.Kind, ReplayFinding.Outcome
    meaning: Mapping[tuple[str, str], bool] = {
        (kind.CONFIRMED, ""): False,
        (kind.DISPUTED, outcome.HOLDS): False,
        (kind.DISPUTED, outcome.CHANGED): True,
    }
    rows = ReplayFinding.objects.filter(sample__isnull=False, is_open=False).select_related("sample").order_by("-pk")
    return [(row, meaning[row.kind, row.outcome]) for row in rows[:MAX_FINDINGS] if (row.kind, row.outcome) in meaning]
