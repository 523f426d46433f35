"""The tables of agreement as rows for a spreadsheet: each figure with its interval, and what it is of."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from quality.models import Label
from quality.pages.sheet import Cell
from quality.review.agreement import Measure
from quality.review.agreement_data import LABELS, Figures, JudgeFigure

type Sheet = tuple[Sequence[str], Iterable[Sequence[Cell]]]

ANY_RULE = "any"


def columns_of(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high", f"{name}_n", f"{name}_interval", f"{name}_why_not"]


def cells_of(measure: Measure) -> list[Cell]:
    how, why = measure.how, measure.why
    return [measure.value, measure.low, measure.high, measure.n, how.value if how else None, why.value if why else None]


def summary(figures: Figures) -> Sheet:
    people = figures.people
    counts = ["labels", "items", "items_with_two_labels", "reviewers"]
    row = [people.num_labels, people.num_items, people.num_shared, people.num_reviewers]
    return [*counts, *columns_of("alpha"), *columns_of("raw")], [[*row, *cells_of(people.alpha), *cells_of(people.raw)]]


def labels(figures: Figures) -> Sheet:
    columns = ["label", "given", *columns_of("alpha"), *columns_of("raw"), *columns_of("again")]

    def rows() -> Iterator[Sequence[Cell]]:
        for one in figures.people.labels:
            yield [one.label, one.num_given, *cells_of(one.alpha), *cells_of(one.raw), *cells_of(one.again)]

    return columns, rows()


def pairs(figures: Figures) -> Sheet:
    columns = ["reviewer", "other", "items", "apart", *columns_of("kappa"), *columns_of("raw")]
    columns += [column for label in LABELS for column in columns_of(f"kappa_{label}")]

    def rows() -> Iterator[Sequence[Cell]]:
        for pair in figures.people.pairs:
            names = [figures.names.get(int(str(one)), str(one)) for one in (pair.left, pair.right)]
            of_labels = [cell for label in LABELS for cell in cells_of(pair.labels[label])]
            yield [*names, pair.num_items, pair.num_apart, *cells_of(pair.kappa), *cells_of(pair.raw), *of_labels]

    return columns, rows()


def confusion(figures: Figures) -> Sheet:
    counts = sorted(figures.people.confusion.items(), key=_by_label)
    return ["label", "other", "pairs_of_answers"], [(one, other, count) for (one, other), count in counts]


def _by_label(entry: tuple[tuple[str, str], int]) -> tuple[int, int]:
    (one, other), _ = entry
    return Label.values.index(one), Label.values.index(other)


def hints(figures: Figures) -> Sheet:
    columns = ["rule", "hits", "false_alarms", "missed", "neither"]
    columns += [*columns_of("precision"), *columns_of("recall"), *columns_of("kappa")]

    def rows() -> Iterator[Sequence[Cell]]:
        for figure in figures.hints:
            told = figure.prediction
            counts = [told.hits, told.false_alarms, told.missed, told.neither]
            measures = [cell for one in (told.precision, told.recall, told.kappa) for cell in cells_of(one)]
            yield [figure.rule.name if figure.rule else ANY_RULE, *counts, *measures]

    return columns, rows()


def suggestions(figures: Figures) -> Sheet:
    columns = ["model", "accepted", "overruled", *columns_of("taken"), *columns_of("kappa"), *columns_of("raw")]
    rows = (
        [one.model, one.accepted, one.overruled, *cells_of(one.taken), *cells_of(one.kappa), *cells_of(one.raw)]
        for one in figures.suggestions
    )
    return columns, rows


def judge(figures: Sequence[JudgeFigure]) -> Sheet:
    columns = ["model", "rubric", "passed_what_people_found_wrong", "failed_what_people_found_right"]
    rows = (
        [one.model, one.rubric, one.lenient, one.strict, *cells_of(one.kappa), *cells_of(one.raw)] for one in figures
    )
    return [*columns, *columns_of("kappa"), *columns_of("raw")], rows


SHEETS: Mapping[str, Callable[[Figures], Sheet]] = {
    "summary": summary,
    "labels": labels,
    "pairs": pairs,
    "confusion": confusion,
    "hints": hints,
    "suggestions": suggestions,
}
