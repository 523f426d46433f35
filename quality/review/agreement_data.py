"""What agreement is measured of: reviewers' current labels, hints, a judge model's votes, suggested labels.

All functions need an open tenant scope. Labels of items that still wait in a blind queue are in no figure, whoever
looks: a figure must not tell a reviewer what others said before he has answered, and it is the same for everybody.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet

from quality.cases.judge_model import sha256_of
from quality.cases.matchers import Question
from quality.models import ACTIONABLE, Feedback, Hint, JudgeVote, Label, QueueEntry, Suggestion
from quality.replay import calibration
from quality.review import agreement as measures
from quality.review.agreement import Agreement, Measure, Prediction, Sheet, Table
from quality.review.hints import BY_NAME, Rule
from quality.review.queues.waiting import on_item, waits_blind
from tenants.models import User

MAX_LABELS: Final = 20_000  # the newest of the period
MAX_VOTES: Final = 5_000  # the newest of a judge
MAX_JUDGES: Final = 5
LABELS: Final = tuple(Label.values)

type ItemKey = tuple[int, int, int]
"""What tells an item from all others: call, turn, cycle. The call is 0 for a reply without one, and the cycle 0 for a
call, whose cycle may change as more of its trace comes in."""


@dataclass(frozen=True, kw_only=True)
class AnswerFilter:
    """Whose answers count: given in a period (`since` included, `until` not), on calls of these tools, of a style, of
    items in a queue. Empty fields narrow nothing."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None
    tools: tuple[str, ...] = ()
    style: str = ""
    queue: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One reviewer's current label on an item."""

    id: int
    item: ItemKey
    reviewer_id: int
    label: str
    at: dt.datetime
    tool_name: str

    @property
    def call_id(self) -> int | None:
        return self.item[0] or None

    @property
    def turn_id(self) -> int:
        return self.item[1]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Current labels, newest first. `is_capped`: there are older ones in the period, which are not here. `num_hidden`
    labels are left out because their item waits in a blind queue."""

    rows: tuple[Answer, ...]
    is_capped: bool
    num_hidden: int

    @property
    def sheet(self) -> Sheet:
        return measures.sheet_of((row.item, row.reviewer_id, row.label) for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class HintFigure:
    """How well the hints of a rule (None: of any rule) foretell that people find a call wrong."""

    rule: Rule | None
    prediction: Prediction


@dataclass(frozen=True, kw_only=True)
class JudgeFigure:
    """How far a judge model agrees with people, on one rubric or (empty) on all of them. `lenient`: it passed what
    people found wrong; `strict`: the other way round."""

    model: str
    rubric: str
    raw: Measure
    kappa: Measure
    lenient: int
    strict: int


@dataclass(frozen=True, kw_only=True)
class SuggestionFigure:
    """What a model suggested against what people say of the same items, and what became of the suggestions."""

    model: str
    raw: Measure
    kappa: Measure
    table: Table
    accepted: int
    overruled: int

    @property
    def taken(self) -> Measure:
        """Share of the decided ones that were accepted."""
        return measures.share(self.accepted, self.accepted + self.overruled)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All of the page: what people say among each other, and machines held against them."""

    answers: Answers
    people: Agreement
    hints: tuple[HintFigure, ...]
    suggestions: tuple[SuggestionFigure, ...]
    names: dict[int, str]


# --- answers ---------------------------------------------------------------------------------------------------------


def answers(wanted: AnswerFilter, limit: int = MAX_LABELS) -> Answers:
    """The newest current labels that the filter lets through. One query."""
    columns = ("pk", "turn_id", "cycle", "call_id", "reviewer_id", "label", "updated_at", "tool_name", "is_hidden")
    labels = _labels(wanted).annotate(is_hidden=waits_blind())
    found = list(labels.order_by("-updated_at", "-pk").values_list(*columns)[: limit + 1])
    kept = tuple(
        Answer(id=pk, item=item_key(turn, cycle, call), reviewer_id=by, label=label, at=at, tool_name=tool)
        for pk, turn, cycle, call, by, label, at, tool, is_hidden in found[:limit]
        if not is_hidden
    )
    return Answers(rows=kept, is_capped=len(found) > limit, num_hidden=len(found[:limit]) - len(kept))


def item_key(turn_id: int, cycle: int, call_id: int | None) -> ItemKey:
    return (0, turn_id, cycle) if call_id is None else (call_id, turn_id, 0)


def _labels(wanted: AnswerFilter) -> QuerySet[Feedback]:
    columns = {
        "updated_at__gte": wanted.since,
        "updated_at__lt": wanted.until,
        "tool_name__in": wanted.tools,
        "style_id": wanted.style,
    }
    labels = Feedback.objects.filter(**{column: value for column, value in columns.items() if value})
    return (
        labels
        if wanted.queue is None
        else labels.filter(on_item(QueueEntry.objects.filter(queue_id=wanted.queue).order_by()))
    )


def apart(found: Answers, left: int, right: int) -> list[tuple[Answer, Answer]]:
    """The answers of two reviewers on the items on which they disagree, newest first."""
    said: dict[ItemKey, dict[int, Answer]] = {}
    for row in found.rows:
        if row.reviewer_id in (left, right):
            said.setdefault(row.item, {}).setdefault(row.reviewer_id, row)
    both = [(one[left], one[right]) for one in said.values() if len(one) == 2]
    differing = [two for two in both if two[0].label != two[1].label]
    return sorted(differing, key=place_of, reverse=True)


def place_of(two: tuple[Answer, Answer]) -> tuple[dt.datetime, int]:
    """Where a disagreement stands in time: at the later of its answers."""
    return max((one.at, one.id) for one in two)


def names_of(ids: Iterable[int]) -> dict[int, str]:
    """What these people are called; two of one name are told apart by their addresses."""
    users = list(User.objects.filter(pk__in=set(ids)))
    called = Counter(map(str, users))
    return {user.pk: str(user) if called[str(user)] == 1 else f"{user} ({user.email})" for user in users}


# --- figures ---------------------------------------------------------------------------------------------------------


def figures(wanted: AnswerFilter) -> Figures:
    """All but the judge, which is measured on samples of replays and not on labels of a period. Four queries."""
    found = answers(wanted)
    sheet = found.sheet
    return Figures(
        answers=found,
        people=measures.agreement(sheet, LABELS),
        hints=hint_figures(sheet),
        suggestions=suggestion_figures(sheet),
        names=names_of(row.reviewer_id for row in found.rows),
    )


def hint_figures(sheet: Sheet) -> tuple[HintFigure, ...]:
    """Any hint first, then each rule that remarked on a labelled item, those first that agree best with people; none
    where no labelled item has a hint. One query. Items of which people say wrong as often as not are left out."""
    truth = _are_wrong(sheet)
    flagged: dict[str, set[Hashable]] = {"": set()}
    for rule, item in _hinted(truth):
        flagged.setdefault(rule, set()).add(item)
        flagged[""].add(item)
    found = [
        HintFigure(rule=BY_NAME[name] if name else None, prediction=prediction)
        for name, prediction in measures.predictions(truth, flagged).items()
    ]
    return tuple(sorted(found, key=_by_kappa)) if flagged[""] else ()


def _by_kappa(figure: HintFigure) -> tuple[Any, ...]:
    return (figure.rule is not None, -(figure.prediction.kappa.value or 0), figure.rule.name if figure.rule else "")


def _are_wrong(sheet: Sheet) -> dict[Hashable, bool]:
    """What most people say of each item: is it wrong, in the choice of the tool or in its arguments?"""
    most = {item: measures.majority(label in ACTIONABLE for label in said.values()) for item, said in sheet.items()}
    return {item: wrong for item, wrong in most.items() if wrong is not None}


def _on(items: Iterable[Any]) -> Q:
    """The condition on a row that it may hang on one of these items."""
    calls = [call for call, _, _ in items if call]
    turns = [turn for call, turn, _ in items if not call]
    return Q(call_id__in=calls) | Q(call_id=None, turn_id__in=turns)


def _hinted(items: Iterable[Any]) -> Iterable[tuple[str, ItemKey]]:
    rows = Hint.objects.filter(_on(items), rule__in=list(BY_NAME)).order_by()
    for rule, turn_id, cycle, call_id in rows.values_list("rule", "turn_id", "cycle", "call_id"):
        yield rule, item_key(turn_id, cycle, call_id)


def suggestion_figures(sheet: Sheet) -> tuple[SuggestionFigure, ...]:
    """By model, on the items of the sheet; those that people are split about count for what became of them alone."""
    rows = Suggestion.objects.filter(_on(sheet)).order_by()
    tables: dict[str, Counter[tuple[str, str]]] = {}
    states: dict[str, Counter[str]] = {}
    columns = ("model", "label", "state", "turn_id", "cycle", "call_id")
    for model, label, state, turn_id, cycle, call_id in rows.values_list(*columns):
        said = sheet.get(item_key(turn_id, cycle, call_id))
        if said is not None:
            states.setdefault(model, Counter())[state] += 1
            people = measures.majority(said.values())
            table = tables.setdefault(model, Counter())
            if people is not None:
                table[label, people] += 1
    return tuple(
        SuggestionFigure(
            model=model,
            raw=_raw(tables[model]),
            kappa=measures.kappa(tables[model]),
            table=tables[model],
            accepted=states[model][Suggestion.State.ACCEPTED],
            overruled=states[model][Suggestion.State.OVERRULED],
        )
        for model in sorted(states)
    )


def judge_figures() -> list[JudgeFigure]:
    """The models that judged replays, newest first, on each rubric that people spoke about, and on all together. Asks
    nobody: what was never asked is left out."""
    votes = JudgeVote.objects.order_by("-pk").values_list("model", "question_sha256", "verdict")[:MAX_VOTES]
    known: dict[str, dict[str, bool | None]] = {}
    for model, question, verdict in votes:
        known.setdefault(model, {})[question] = verdict
    if not known:
        return []
    labelled = calibration.labelled()
    found: list[JudgeFigure] = []
    for model, verdicts in list(known.items())[:MAX_JUDGES]:
        pairs = calibration.judged(labelled, _asker(model, verdicts))
        every = [pair for said in pairs.values() for pair in said]
        told = {"": every} | pairs if len(pairs) > 1 else pairs
        found += [_judge(model, rubric, said) for rubric, said in told.items()]
    return found


def _asker(model: str, verdicts: Mapping[str, bool | None]) -> Callable[[Question], bool | None]:
    return lambda question: verdicts.get(sha256_of(question, model))


def _judge(model: str, rubric: str, said: Iterable[tuple[bool, bool]]) -> JudgeFigure:
    table = Counter((str(judge), str(person)) for judge, person in said)
    return JudgeFigure(
        model=model,
        rubric=rubric,
        raw=_raw(table),
        kappa=measures.kappa(table),
        lenient=table["True", "False"],
        strict=table["False", "True"],
    )


def _raw(table: Table) -> Measure:
    return measures.share(sum(count for (one, other), count in table.items() if one == other), sum(table.values()))
