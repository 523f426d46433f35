"""How far a judge agrees with people, rubric by rubric.

People have spoken where a case was made of a label (the recorded call is right or wrong, the corrected one is right),
and where somebody confirmed or settled a failure of a replay. A model is asked of such a sample only where all else
holds, so what the judge says of the rubric decides it, and can be set against what the person said.

All functions need an open tenant scope; nobody is asked by them.
"""

from collections.abc import Iterable, Iterator, Mapping
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
from quality.improve.cases import beside_of, correction_of
from quality.models import Case, CaseVersion, Label, ReplayCase, ReplayFinding

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


def labelled() -> list[Labelled]:
    """All samples that people have judged and a judge is asked about."""
    return [*_recorded(), *_found()]


def agreements(labels: Iterable[Labelled], ask: Ask) -> dict[str, Agreement]:
    """By rubric. `ask` gives the judge's stored answers."""
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
    return {rubric: agreement(rubric, said) for rubric, said in pairs.items()}


def _recorded() -> Iterator[Labelled]:
    """The recorded call of each case, as it was labelled, and the corrected one, which is right."""
    rows = Case.objects.filter(expectation__contains=_ASKS, index__isnull=False).select_related("call")
    for row in rows.order_by("-number")[:MAX_CASES]:
        try:
            expectation = parse(row.expectation)
        except ExpectationError:
            continue
        call, beside = Call(row.tool_name, row.args), list(beside_of(row))
        right = corrected(call, correction_of(row))
        for made, is_right in ((call, row.label == Label.GOOD_REPLY), (right, True)):
            if made is not None:
                calls = [*beside]
                calls.insert(min(row.index or 0, len(beside)), made)
                sample = Sample(cycles=(tuple(calls),), reply=None)
                yield Labelled(expectation=expectation, sample=sample, tools=row.tools, now=row.now, is_right=is_right)


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
