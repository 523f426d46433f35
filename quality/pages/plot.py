"""A chart as an SVG: where its bars, lines and dots stand. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from quality.review.charts import Chart, Piece

WIDTH, HEIGHT = 720, 140
GAP = 0.15  # of a bar's place


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A bar (with `height`) or a dot, and what it says; `number` is its piece's."""

    number: int
    x: float
    y: float
    width: float = 0
    height: float = 0
    value: float
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One series: marks, and for lines the paths between dots that follow each other."""

    key: str
    number: int
    marks: tuple[Mark, ...]
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plot:
    """`top` is the highest value, `bottom` the lowest (0 unless values are below), `zero` where 0 stands."""

    width: int
    height: int
    top: float
    bottom: float
    zero: float
    series: tuple[Drawn, ...]
    pieces: tuple[Piece, ...]


def plot(chart: Chart) -> Plot:
    """Bars on each other for parts of a whole, else lines."""
    top, bottom = _ends(chart)
    step = WIDTH / max(len(chart.pieces), 1)
    drawn = _bars(chart, top, step) if chart.stacked else _lines(chart, top, bottom, step)
    return Plot(
        width=WIDTH,
        height=HEIGHT,
        top=top,
        bottom=bottom,
        zero=_y(0, top, bottom),
        series=tuple(drawn),
        pieces=chart.pieces,
    )


def _ends(chart: Chart) -> tuple[float, float]:
    if chart.stacked:
        sums = [sum(filter(None, column)) for column in zip(*(one.values for one in chart.series), strict=True)]
        return max(sums, default=0) or 1, 0
    values = [value for one in chart.series for value in one.values if value is not None]
    top, bottom = max(values, default=0), min([*values, 0])
    if chart.unit in ("share", "alpha"):
        top = max(top, 1.0) if chart.unit == "alpha" else _ceiling(top)
    return top or 1, bottom


def _ceiling(share: float) -> float:
    """A round share above the highest one, so that small rates fill the chart."""
    return next((end for end in (0.05, 0.1, 0.25, 0.5) if share <= end), 1.0)


def _y(value: float, top: float, bottom: float) -> float:
    return round(HEIGHT * (1 - (value - bottom) / (top - bottom)), 2)


def _bars(chart: Chart, top: float, step: float) -> list[Drawn]:
    floors = [0.0] * len(chart.pieces)
    drawn = []
    for number, one in enumerate(chart.series):
        marks = []
        for at, value in enumerate(one.values):
            if not value:
                continue
            height = HEIGHT * value / top
            floors[at] += height
            marks.append(
                Mark(
                    number=at,
                    x=round(at * step + step * GAP / 2, 2),
                    y=round(HEIGHT - floors[at], 2),
                    width=round(step * (1 - GAP), 2),
                    height=round(height, 2),
                    value=value,
                )
            )
        drawn.append(Drawn(key=one.key, number=number, marks=tuple(marks)))
    return drawn


def _lines(chart: Chart, top: float, bottom: float, step: float) -> list[Drawn]:
    drawn = []
    for number, one in enumerate(chart.series):
        marks = [
            Mark(
                number=at,
                x=round(at * step + step / 2, 2),
                y=_y(value, top, bottom),
                value=value,
                n=one.ns[at] if len(one.ns) == len(one.values) else None,
            )
            for at, value in enumerate(one.values)
            if value is not None
        ]
        drawn.append(Drawn(key=one.key, number=number, marks=tuple(marks), paths=tuple(_paths(marks))))
    return drawn


def _paths(marks: Sequence[Mark]) -> list[str]:
    """A path for each run of pieces without a hole."""
    runs: list[list[Mark]] = []
    for mark in marks:
        if runs and runs[-1][-1].number == mark.number - 1:
            runs[-1].append(mark)
        else:
            runs.append([mark])
    return ["M" + " L".join(f"{mark.x} {mark.y}" for mark in run) for run in runs if len(run) > 1]
