"""A table of a page as a file for a spreadsheet."""

from collections.abc import Iterable, Sequence

from django.http import HttpResponse

from quality.export import CSV_MEDIA_TYPE
from quality.export_csv import sheet_head, sheet_row

type Cell = str | int | float | None


def sheet(name: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> HttpResponse:
    """The answer with the file `name`. Cells are spelled for programs, whatever the reader's language: a point before
    decimals, nothing where there is no value."""
    lines = [sheet_head(columns), *(sheet_row([_spelled(value) for value in row]) for row in rows)]
    response = HttpResponse("".join(lines).encode(), content_type=CSV_MEDIA_TYPE)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _spelled(value: Cell) -> str | None:
    return value if value is None or isinstance(value, str) else repr(value)
