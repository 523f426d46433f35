"""The cases of a replay as rows beside their sides: filtered, counted, what fails first. Pages and API share it.

All functions need an open tenant scope. Rows never read evidence.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from django.db.models import Case, Count, IntegerField, Q, QuerySet, Value, When
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from quality.cases.confirm import FRESH
from quality.cases.results import Standing
from quality.cases.statistics import Change
from quality.improve import keyset
from quality.improve.cases import parse_ref
from quality.models import Replay, ReplayCase, ReplayFinding, ReplaySample

PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 200

# What a row can be looked for by, in the order in which it is offered.
FLAGS: Final[dict[str, str | Promise]] = {
    "newly_failing": gettext_lazy("newly failing"),
    "newly_passing": gettext_lazy("newly passing"),
    "flaky": gettext_lazy("flaky"),
    "failing": gettext_lazy("failing"),
    "undecided": gettext_lazy("undecided"),
    "errors": gettext_lazy("with errors"),
    "invalid_calls": gettext_lazy("invalid calls"),
    "drifted": gettext_lazy("passed on drifted results"),
    "disputed": gettext_lazy("disputed"),
    "quarantined": gettext_lazy("quarantined"),
    "must": gettext_lazy("must pass"),
}
TROUBLE: Final = "trouble"  # what a person goes through: failing, got worse, or undecided

# By which rows are sorted: a confirmed regression before a failure, a failure before what is not known.
_RANK: Final = Case(
    When(is_quarantined=True, standing=Standing.FAILED, then=Value(5)),
    When(is_quarantined=True, then=Value(6)),
    When(is_confirmed=True, then=Value(0)),
    When(standing=Standing.FAILED, then=Value(1)),
    When(standing=Standing.UNDECIDED, then=Value(2)),
    When(is_flaky=True, then=Value(3)),
    When(standing="", then=Value(4)),
    default=Value(7),
    output_field=IntegerField(),
)


@dataclass(frozen=True, kw_only=True)
class RowFilter:
    """What the rows are narrowed to; a row has to have all of `show` (names of FLAGS, or TROUBLE). `query` is a case's
    number, or part of a tool's name."""

    show: tuple[str, ...] = ()
    query: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """One sample in a row: its place and its verdict."""

    index: int
    verdict: str

    @property
    def number(self) -> int:
        """As people count, from 1; of the fresh samples too."""
        return self.index % FRESH + 1

    @property
    def is_fresh(self) -> bool:
        return self.index >= FRESH


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A case on one side. `passes` of `judged` count without errors and without the samples that confirm; `missing`
    samples are not there yet."""

    side: str
    marks: tuple[Mark, ...] = ()
    fresh: tuple[Mark, ...] = ()
    missing: int = 0

    @property
    def judged(self) -> int:
        return sum(mark.verdict != "error" for mark in self.marks)

    @property
    def passes(self) -> int:
        return sum(mark.verdict == "pass" for mark in self.marks)

    @property
    def fresh_passes(self) -> int:
        return sum(mark.verdict == "pass" for mark in self.fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`cells` in the order of the sides."""

    case: ReplayCase
    cells: tuple[Cell, ...] = ()
    is_disputed: bool = False
    has_invalid_call: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    rows: list[Row] = field(default_factory=list)
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Numbers of the cases around one in a filter; `place` counts from 1, 0: it is not in the filter itself."""

    previous: int | None
    next: int | None
    place: int
    count: int


def find(
    replay: Replay, wanted: RowFilter, *, sides: Iterable[str], cursor: str | None = None, page_size: int = PAGE_SIZE
) -> Matrix:
    """A page of rows; raises BadCursor."""
    rows = _ordered(replay, wanted)
    if cursor:
        rank, number = keyset.read(cursor, keyset.number, keyset.number)
        rows = rows.filter(Q(rank__gt=rank) | Q(rank=rank, number__gt=number))
    found = list(rows[: page_size + 1])
    more = len(found) > page_size
    found = found[:page_size]
    return Matrix(
        rows=_filled(replay, found, list(sides)),
        next=keyset.write(found[-1].rank, found[-1].number) if more else None,  # type: ignore[attr-defined]
    )


def counts(replay: Replay) -> dict[str, int]:
    """How many rows each flag lets through, and `all`."""
    flags = {name: Count("pk", filter=_flag(name, replay)) for name in FLAGS}
    return _rows(replay).aggregate(all=Count("pk"), **flags)


def count(replay: Replay, wanted: RowFilter) -> int:
    return _matching(replay, wanted).count()


def neighbours(replay: Replay, wanted: RowFilter, number: int) -> Neighbours:
    """Where to go from a case without leaving the filter."""
    numbers = list(_ordered(replay, wanted).values_list("number", flat=True))
    if number not in numbers:
        return Neighbours(previous=None, next=numbers[0] if numbers else None, place=0, count=len(numbers))
    at = numbers.index(number)
    return Neighbours(
        previous=numbers[at - 1] if at else None,
        next=numbers[at + 1] if at + 1 < len(numbers) else None,
        place=at + 1,
        count=len(numbers),
    )


def row_of(replay: Replay, case: ReplayCase, *, sides: Iterable[str]) -> Row:
    return _filled(replay, [case], list(sides))[0]


def _rows(replay: Replay) -> QuerySet[ReplayCase]:
    return ReplayCase.objects.filter(replay=replay)


def _matching(replay: Replay, wanted: RowFilter) -> QuerySet[ReplayCase]:
    rows = _rows(replay)
    for name in wanted.show:
        rows = rows.filter(_flag(name, replay))
    if text := wanted.query.strip():
        number = text.upper().removeprefix("REG-")
        is_number = number.isascii() and number.isdigit() and len(number) < 10
        rows = rows.filter(Q(number=int(number)) if is_number else Q(tool_name__icontains=text))
    return rows


def _ordered(replay: Replay, wanted: RowFilter) -> QuerySet[ReplayCase]:
    return _matching(replay, wanted).annotate(rank=_RANK).order_by("rank", "number")


def _flag(name: str, replay: Replay) -> Q:
    """What a flag asks of a row."""
    if name == "invalid_calls":
        return Q(pk__in=_with_invalid_calls(replay).values("replay_case_id"))
    if name == "drifted":
        return Q(number__in=[parse_ref(ref) for ref in (replay.result or {}).get("drifted", ())])
    if name == "disputed":
        return Q(case_id__in=_disputes(replay).values("case_id"))
    return _COLUMNS[name]


_COLUMNS: Final[dict[str, Q]] = {
    "newly_failing": Q(change=Change.NEWLY_FAILING),
    "newly_passing": Q(change=Change.NEWLY_PASSING),
    "flaky": Q(is_flaky=True),
    "failing": Q(standing=Standing.FAILED),
    "undecided": Q(standing=Standing.UNDECIDED),
    "errors": Q(num_errors__gt=0),
    "quarantined": Q(is_quarantined=True),
    "must": Q(is_must=True),
    TROUBLE: Q(standing__in=[Standing.FAILED, Standing.UNDECIDED]) | Q(is_suspect=True) | Q(is_confirmed=True),
}


def _with_invalid_calls(replay: Replay) -> QuerySet[ReplaySample]:
    """Some call could not have run, whatever the verdict is."""
    return ReplaySample.objects.filter(replay=replay).exclude(invalid_calls=[]).order_by()


def _disputes(replay: Replay) -> QuerySet[ReplayFinding]:
    """Of this replay, or open still from another."""
    kind = ReplayFinding.Kind.DISPUTED
    return ReplayFinding.objects.filter(Q(replay=replay) | Q(is_open=True), kind=kind).order_by()


def _filled(replay: Replay, cases: list[ReplayCase], sides: list[str]) -> list[Row]:
    """The rows with their samples."""
    marks = _marks(replay, cases)
    said = _disputes(replay).filter(case_id__in=[case.case_id for case in cases])
    disputed = set(said.values_list("case_id", flat=True))
    invalid = set(_with_invalid_calls(replay).filter(replay_case__in=cases).values_list("replay_case_id", flat=True))
    return [
        Row(
            case=case,
            cells=tuple(_cell(side, case.num_samples, marks.get((case.pk, side), ())) for side in sides),
            is_disputed=case.case_id in disputed,
            has_invalid_call=case.pk in invalid,
        )
        for case in cases
    ]


def _marks(replay: Replay, cases: list[ReplayCase]) -> Mapping[tuple[int, str], tuple[Mark, ...]]:
    samples = ReplaySample.objects.filter(replay=replay, replay_case__in=cases)
    found = samples.order_by("replay_case_id", "side", "index").values_list(
        "replay_case_id", "side", "index", "verdict"
    )
    return {
        place: tuple(Mark(index, verdict) for _, _, index, verdict in group)
        for place, group in groupby(found, key=lambda row: (row[0], row[1]))
    }


def _cell(side: str, expected: int, marks: Iterable[Mark]) -> Cell:
    first: list[Mark] = []
    fresh: list[Mark] = []
    for mark in marks:
        (fresh if mark.is_fresh else first).append(mark)
    return Cell(side=side, marks=tuple(first), fresh=tuple(fresh), missing=max(0, expected - len(first)))
